//===- Package.cpp - planned program to package -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Package/Package.h"

#include "memopt-runtime/package/Safetensors.h"

#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"

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
  auto pathOf = [&](StringRef name) {
    SmallString<128> path(directory);
    llvm::sys::path::append(path, name);
    return path.str().str();
  };
  std::error_code error = llvm::sys::fs::create_directories(
      directory, /*IgnoreExisting=*/true, llvm::sys::fs::perms::all_all); // less the umask
  if (!error)
    error = llvm::sys::fs::remove(pathOf("manifest.json"));
  if (error) {
    planned.emitError() << directory << ": cannot make the package's folder: " << error.message();
    return StatusCode::Environment;
  }
  ::memopt::Status written =
      ::memopt::writeSafetensors(pathOf("weights.safetensors"), weights->tensors);
  if (!written.isOk())
    return report(planned, written);
  std::vector<std::string> deviceKernels;
  if (StatusCode code = writeProgram(planned, program, directory, deviceKernels);
      code != StatusCode::Ok)
    return code;
  if (getTarget(planned).isDevice())
    (*manifest)["kernels"] = llvm::json::Array(deviceKernels);
  std::string text = llvm::formatv("{0:2}\n", llvm::json::Value(std::move(*manifest)));
  return report(planned, ::memopt::writeFileAtomically(pathOf("manifest.json"), text));
}
