//===- Package.cpp - planned program to package -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Package/Package.h"

#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/interface/PackageFormat.h"
#include "memopt-runtime/package/PackageInMaking.h"
#include "memopt-runtime/package/Safetensors.h"
#include "memopt/Conversion/Host/HostProgram.h"

#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <cerrno>
#include <fcntl.h>

using namespace mlir;
using namespace mlir::memopt;

/// The elements as they lie in memory: packed, row-major, booleans as bytes.
static FailureOr<std::vector<char>> getElementBytes(VariableOp variable, ElementsAttr elements) {
  int64_t bytes = getTensorBytes(variable.getWholeType());
  if (auto resource = dyn_cast<DenseResourceElementsAttr>(elements)) {
    AsmResourceBlob *blob = resource.getRawHandle().getBlob();
    if (!blob || static_cast<int64_t>(blob->getData().size()) != bytes)
      return variable.emitOpError() << "has " << (blob ? blob->getData().size() : 0)
                                    << " bytes of data, expected " << bytes;
    return std::vector<char>(blob->getData().begin(), blob->getData().end());
  }
  auto dense = dyn_cast<DenseElementsAttr>(elements);
  if (!dense)
    return variable.emitOpError() << "has initial values in a form that no package holds";
  std::vector<char> data;
  data.reserve(bytes);
  if (variable.getWholeType().getElementType().isInteger(1)) {
    for (bool value : dense.getValues<bool>())
      data.push_back(value);
    return data;
  }
  ArrayRef<char> raw = dense.getRawData();
  for (int64_t copies = dense.isSplat() ? variable.getWholeType().getNumElements() : 1; copies > 0;
       --copies)
    data.insert(data.end(), raw.begin(), raw.end());
  return data;
}

namespace {
/// First values as they will stand in the file, and what keeps them.
struct Weights {
  std::vector<std::vector<char>> storage;
  std::vector<::memopt::TensorToWrite> tensors;
};
} // namespace

static FailureOr<Weights> collectWeights(ModuleOp module) {
  Weights weights;
  for (auto variable : module.getOps<VariableOp>()) {
    if (!variable.getInitial())
      continue;
    FailureOr<std::vector<char>> data = getElementBytes(variable, *variable.getInitial());
    if (failed(data))
      return failure();
    weights.storage.push_back(std::move(*data));
    RankedTensorType type = variable.getWholeType();
    StringRef name = getDtypeName(type.getElementType());
    if (auto outside = variable->getAttrOfType<StringAttr>(MemoptDialect::kDtypeAttr))
      name = outside.getValue();
    std::optional<::memopt::DType> dtype = ::memopt::parseDType(name.str());
    if (!dtype)
      return variable.emitOpError()
             << "has element type " << type.getElementType() << ", which no package holds";
    weights.tensors.push_back({variable.getSymName().str(), *dtype,
                               std::vector<int64_t>(type.getShape().begin(), type.getShape().end()),
                               weights.storage.back().data()});
  }
  return weights;
}

/// Shows a failure of the runtime's as a diagnostic.
static ::memopt::StatusCode report(ModuleOp module, const ::memopt::Status &status) {
  if (!status.isOk())
    module.emitError() << status.getMessage();
  return status.getCode();
}

//===----------------------------------------------------------------------===//
// What belongs together
//===----------------------------------------------------------------------===//

static_assert(kDigestPlaceholder.size() == ::memopt::digestLetters);

using FileBuffer = std::unique_ptr<llvm::MemoryBuffer>;

static ::memopt::StatusOr<FileBuffer> readBack(const std::string &path) {
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!file)
    return ::memopt::environmentError("reading '" + path + "': " + file.getError().message());
  return std::move(*file);
}

/// Of all files of a package, and of the manifest, which is not there yet; where the digest will
/// stand they have its placeholder. The same input and options give the same digest.
static ::memopt::StatusOr<std::string> computeDigest(const std::string &folder,
                                                     StringRef manifest) {
  llvm::BLAKE3 hash;
  auto add = [&](StringRef name, StringRef content) {
    hash.update((name + "\n" + Twine(content.size()) + "\n").str());
    hash.update(content);
  };
  add(::memopt::manifestFile, manifest);
  MEMOPT_ASSIGN_OR_RETURN(std::vector<std::string> names, ::memopt::listFolder(folder)); // sorted
  for (const std::string &name : names) {
    MEMOPT_ASSIGN_OR_RETURN(FileBuffer file, readBack(getPathIn(folder, name)));
    add(name, file->getBuffer());
  }
  return llvm::toHex(hash.final<::memopt::digestLetters / 2>(), /*LowerCase=*/true);
}

/// Puts the digest in the place of its placeholder.
static ::memopt::Status writeDigest(const std::string &path, StringRef digest) {
  MEMOPT_ASSIGN_OR_RETURN(FileBuffer file, readBack(path));
  size_t place = file->getBuffer().find(kDigestPlaceholder);
  if (place == StringRef::npos)
    return ::memopt::environmentError("'" + path + "' has no place for the package's digest");
  ::memopt::Descriptor target(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (target.get() < 0)
    return ::memopt::environmentError(::memopt::describeErrno("opening", path, errno));
  MEMOPT_RETURN_IF_ERROR(
      ::memopt::writeAt(target, path, digest.data(), digest.size(), static_cast<int64_t>(place)));
  return ::memopt::syncAndClose(std::move(target), path);
}

/// Ends a package whose other files are there.
static ::memopt::Status finish(const std::string &folder, llvm::json::Object manifest) {
  auto print = [&] {
    return llvm::formatv("{0:2}\n", llvm::json::Value(llvm::json::Object(manifest))).str();
  };
  MEMOPT_ASSIGN_OR_RETURN(std::string digest, computeDigest(folder, print()));
  for (const char *name : {::memopt::programFile, ::memopt::weightsFile})
    MEMOPT_RETURN_IF_ERROR(writeDigest(getPathIn(folder, name), digest));
  manifest["digest"] = digest;
  return ::memopt::writeFileAtomically(getPathIn(folder, ::memopt::manifestFile), print());
}

::memopt::StatusCode mlir::memopt::writePackage(ModuleOp planned, const ManifestOptions &options,
                                                const ProgramOptions &program,
                                                StringRef directory) {
  using ::memopt::StatusCode;
  FailureOr<llvm::json::Object> manifest = buildManifest(planned, options);
  if (failed(manifest))
    return StatusCode::BadInput;
  FailureOr<Weights> weights = collectWeights(planned);
  if (failed(weights))
    return StatusCode::BadInput;
  auto making = ::memopt::PackageInMaking::begin(directory.str());
  if (!making.isOk())
    return report(planned, making.takeStatus());
  const std::string &folder = making->getPath();
  ::memopt::Status written = ::memopt::writeSafetensors(getPathIn(folder, ::memopt::weightsFile),
                                                        weights->tensors, kDigestPlaceholder.str());
  if (!written.isOk())
    return report(planned, written);
  std::vector<std::string> deviceKernels;
  if (StatusCode code = writeProgram(planned, program, folder, deviceKernels);
      code != StatusCode::Ok)
    return code;
  if (getTarget(planned).isDevice())
    (*manifest)["kernels"] = llvm::json::Array(deviceKernels);
  ::memopt::Status finished = finish(folder, std::move(*manifest));
  return report(planned, finished.isOk() ? making->publish() : std::move(finished));
}
