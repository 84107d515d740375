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
#include "memopt/Analysis/FrozenVariable.h"
#include "memopt/Conversion/Host/HostProgram.h"

#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <cerrno>
#include <deque>
#include <fcntl.h>

using namespace mlir;
using namespace mlir::memopt;

/// The elements as they lie in memory: packed, row-major, booleans as bytes.
static FailureOr<std::vector<char>> getElementBytes(VariableOp variable, RankedTensorType type,
                                                    ElementsAttr elements) {
  int64_t bytes = getTensorBytes(type);
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
  if (type.getElementType().isInteger(1)) {
    for (bool value : dense.getValues<bool>())
      data.push_back(value);
    return data;
  }
  ArrayRef<char> raw = dense.getRawData();
  for (int64_t copies = dense.isSplat() ? type.getNumElements() : 1; copies > 0; --copies)
    data.insert(data.end(), raw.begin(), raw.end());
  return data;
}

namespace {
/// First values as they will stand in the file, and what keeps them.
struct Weights {
  std::deque<std::vector<char>> storage;
  std::vector<::memopt::TensorToWrite> tensors;
};
} // namespace

/// Adds those of a program that no program before had.
static LogicalResult collectWeights(ModuleOp module, Weights &weights) {
  llvm::StringSet<> known;
  for (const ::memopt::TensorToWrite &tensor : weights.tensors)
    known.insert(tensor.name);
  for (auto variable : module.getOps<VariableOp>()) {
    // What runs keep in codes they make of the whole.
    std::optional<FrozenVariable> frozen = FrozenVariable::get(variable);
    ElementsAttr initial = frozen ? frozen->initial : variable.getInitialAttr();
    RankedTensorType type = frozen ? frozen->wholeType : variable.getWholeType();
    if (!initial || known.contains(variable.getSymName()))
      continue;
    FailureOr<std::vector<char>> data = getElementBytes(variable, type, initial);
    if (failed(data))
      return failure();
    weights.storage.push_back(std::move(*data));
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
  return success();
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
  ::memopt::Descriptor target = ::memopt::openUninterrupted(AT_FDCWD, path, O_WRONLY);
  if (target.get() < 0)
    return ::memopt::environmentError(::memopt::describeErrno("opening", path, errno));
  MEMOPT_RETURN_IF_ERROR(
      ::memopt::writeAt(target, path, digest.data(), digest.size(), static_cast<int64_t>(place)));
  return ::memopt::syncAndClose(std::move(target), path);
}

static std::string printManifest(const llvm::json::Object &manifest) {
  return llvm::formatv("{0:2}\n", llvm::json::Value(llvm::json::Object(manifest))).str();
}

/// Ends a package whose other files are there; `marked` are those that have the digest's
/// placeholder.
static ::memopt::Status finish(const std::string &folder, llvm::json::Object manifest,
                               ArrayRef<std::string> marked) {
  MEMOPT_ASSIGN_OR_RETURN(std::string digest, computeDigest(folder, printManifest(manifest)));
  for (const std::string &name : marked)
    MEMOPT_RETURN_IF_ERROR(writeDigest(getPathIn(folder, name), digest));
  manifest["digest"] = digest;
  return ::memopt::writeFileAtomically(getPathIn(folder, ::memopt::manifestFile),
                                       printManifest(manifest));
}

/// Writes down which kernels there are, how each is launched, and which ones an instruction launches.
static void addLaunches(ArrayRef<KernelLaunch> kernels,
                        ArrayRef<SmallVector<int64_t, 1>> ofInstructions,
                        llvm::json::Object &manifest) {
  llvm::json::Array names, launches;
  for (const KernelLaunch &kernel : kernels) {
    names.push_back(kernel.symbol);
    launches.push_back(llvm::json::Object{{"blocks", kernel.blocks},
                                          {"threads", kernel.threads},
                                          {"shared_bytes", kernel.sharedBytes}});
  }
  manifest["kernels"] = std::move(names);
  manifest["launches"] = std::move(launches);
  for (auto [instruction, numbers] :
       llvm::zip_equal(*manifest.getArray("instructions"), ofInstructions))
    if (!numbers.empty())
      (*instruction.getAsObject())["launched_kernels"] = llvm::json::Array(numbers);
}

namespace {
/// A package while its files are written.
class PackageWriter {
public:
  PackageWriter(ArrayRef<ProgramToWrite> programs, bool isOfSeveral)
      : programs(programs), isOfSeveral(isOfSeveral) {}

  ::memopt::StatusCode write(StringRef directory) {
    using ::memopt::StatusCode;
    ModuleOp first = programs.front().planned;
    for (const ProgramToWrite &program : programs) {
      FailureOr<llvm::json::Object> manifest = buildManifest(program.planned, program.manifest);
      if (failed(manifest) || failed(collectWeights(program.planned, weights)))
        return StatusCode::BadInput;
      manifests.push_back(std::move(*manifest));
    }
    auto making = ::memopt::PackageInMaking::begin(directory.str());
    if (!making.isOk())
      return report(first, making.takeStatus());
    folder = making->getPath();
    ::memopt::Status written = ::memopt::writeSafetensors(
        getPathIn(folder, ::memopt::weightsFile), weights.tensors, kDigestPlaceholder.str());
    if (!written.isOk())
      return report(first, written);
    marked.push_back(::memopt::weightsFile);
    if (StatusCode code = writeCode(); code != StatusCode::Ok)
      return code;
    if (isOfSeveral)
      listPrograms();
    for (size_t number = 1; number < programs.size(); ++number)
      if (::memopt::Status status = writeManifest(number); !status.isOk())
        return report(first, status);
    ::memopt::Status finished = finish(folder, std::move(manifests.front()), marked);
    return report(first, finished.isOk() ? making->publish() : std::move(finished));
  }

private:
  /// That of all programs, which are for one machine.
  ::memopt::StatusCode writeCode() {
    std::vector<ProgramSource> sources;
    for (auto [program, manifest] : llvm::zip_equal(programs, manifests)) {
      for (const char *key : {"target", "target_features"})
        if (*manifests.front().get(key) != *manifest.get(key))
          return report(program.planned,
                        ::memopt::badInput("program '" + program.name +
                                           "' is compiled for another machine than program '" +
                                           programs.front().name + "'"));
      sources.push_back({program.planned, program.options});
    }
    DeviceLaunches launches;
    if (auto code = writePrograms(sources, folder, launches); code != ::memopt::StatusCode::Ok)
      return code;
    if (getTarget(programs.front().planned).isDevice())
      for (auto [manifest, numbers] : llvm::zip_equal(manifests, launches.ofInstructions))
        addLaunches(launches.kernels, numbers, manifest);
    marked.push_back(::memopt::programFile);
    return ::memopt::StatusCode::Ok;
  }

  ::memopt::Status writeManifest(size_t number) {
    manifests[number]["digest"] = kDigestPlaceholder;
    std::string name = ::memopt::getProgramFile(number, ::memopt::manifestFile);
    marked.push_back(name);
    return ::memopt::writeFileAtomically(getPathIn(folder, name), printManifest(manifests[number]));
  }

  /// In the first manifest: what there is.
  void listPrograms() {
    llvm::json::Array list;
    for (size_t number = 0; number < programs.size(); ++number) {
      llvm::json::Object shapes;
      for (const llvm::json::Value &input : *manifests[number].getArray("inputs"))
        shapes[*input.getAsObject()->getString("name")] = *input.getAsObject()->get("shape");
      list.push_back(llvm::json::Object{
          {"name", programs[number].name},
          {"kind", programs[number].manifest.mode},
          {"shapes", std::move(shapes)},
          {"predicted_peak_bytes", *manifests[number].get("predicted_peak_bytes")}});
      manifests[number]["version"] = ::memopt::severalProgramsVersion;
    }
    manifests.front()["programs"] = std::move(list);
  }

  ArrayRef<ProgramToWrite> programs;
  bool isOfSeveral;
  Weights weights;
  std::vector<llvm::json::Object> manifests;
  std::vector<std::string> marked; ///< files in which the digest will stand
  std::string folder;
};
} // namespace

::memopt::StatusCode mlir::memopt::writePackage(ModuleOp planned, const ManifestOptions &options,
                                                const ProgramOptions &program,
                                                StringRef directory) {
  ProgramToWrite only{"", planned, options, program};
  return PackageWriter(only, /*isOfSeveral=*/false).write(directory);
}

::memopt::StatusCode mlir::memopt::writePackage(ArrayRef<ProgramToWrite> programs,
                                                StringRef directory) {
  return PackageWriter(programs, /*isOfSeveral=*/true).write(directory);
}
