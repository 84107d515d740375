//===- Package.cpp - planned program to package -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Package/Package.h"

#include "memopt-runtime/Safetensors.h"

#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::memopt;

/// The elements as they lie in memory: packed, row-major, booleans as bytes.
static FailureOr<std::vector<char>> getElementBytes(VariableOp variable, ElementsAttr elements) {
  int64_t bytes = getTensorBytes(variable.getTensorType());
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
  if (variable.getTensorType().getElementType().isInteger(1)) {
    for (bool value : dense.getValues<bool>())
      data.push_back(value);
    return data;
  }
  ArrayRef<char> raw = dense.getRawData();
  for (int64_t copies = dense.isSplat() ? variable.getTensorType().getNumElements() : 1; copies > 0;
       --copies)
    data.insert(data.end(), raw.begin(), raw.end());
  return data;
}

static LogicalResult writeWeights(ModuleOp module, StringRef directory) {
  std::vector<std::vector<char>> storage;
  std::vector<::memopt::TensorToWrite> tensors;
  for (auto variable : module.getOps<VariableOp>()) {
    if (!variable.getInitial())
      continue;
    FailureOr<std::vector<char>> data = getElementBytes(variable, *variable.getInitial());
    if (failed(data))
      return failure();
    storage.push_back(std::move(*data));
    RankedTensorType type = variable.getTensorType();
    std::optional<::memopt::DType> dtype =
        ::memopt::parseDType(getDtypeName(type.getElementType()).str());
    if (!dtype)
      return variable.emitOpError()
             << "has element type " << type.getElementType() << ", which no package holds";
    tensors.push_back({variable.getSymName().str(), *dtype,
                       std::vector<int64_t>(type.getShape().begin(), type.getShape().end()),
                       storage.back().data()});
  }
  SmallString<128> path(directory);
  llvm::sys::path::append(path, "weights.safetensors");
  ::memopt::Status status = ::memopt::writeSafetensors(path.str().str(), tensors);
  if (!status.isOk())
    return module.emitError() << status.getMessage();
  return success();
}

LogicalResult mlir::memopt::writePackageData(ModuleOp planned, const ManifestOptions &options,
                                             StringRef directory) {
  FailureOr<llvm::json::Object> manifest = buildManifest(planned, options);
  if (failed(manifest) || failed(writeWeights(planned, directory)))
    return failure();
  std::string text;
  llvm::raw_string_ostream(text) << llvm::formatv("{0:2}\n",
                                                  llvm::json::Value(std::move(*manifest)));
  SmallString<128> path(directory);
  llvm::sys::path::append(path, "manifest.json");
  ::memopt::Status status = ::memopt::writeFileAtomically(path.str().str(), text);
  if (!status.isOk())
    return planned.emitError() << status.getMessage();
  return success();
}
