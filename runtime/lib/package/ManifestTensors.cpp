//===- ManifestTensors.cpp - tensors of a manifest at their places -------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ManifestReading.h"

using namespace memopt;

StatusOr<std::string> memopt::readStringOr(const JsonView &view, const char *key,
                                           const std::string &otherwise) {
  return view.has(key) ? view.getString(key) : StatusOr<std::string>(otherwise);
}

StatusOr<std::optional<double>> memopt::readOptionalNumber(const JsonView &view, const char *key) {
  std::optional<double> number;
  if (view.has(key) && !view.raw()[key].is_null()) {
    MEMOPT_ASSIGN_OR_RETURN(double value, view.getNumber(key));
    number = value;
  }
  return number;
}

StatusOr<BytesBySpace> memopt::readBytes(const JsonView &view) {
  BytesBySpace bytes{};
  for (int space = 0; space < countedSpaces; ++space) {
    if (!view.has(getSpaceName(space)))
      continue; // a space that is not named holds nothing
    MEMOPT_ASSIGN_OR_RETURN(bytes[space], view.getInteger(getSpaceName(space)));
    if (bytes[space] < 0)
      return view.fail("must not be negative");
  }
  return bytes;
}

StatusOr<int> memopt::readSpace(const JsonView &view, const char *key) {
  MEMOPT_ASSIGN_OR_RETURN(std::string name, view.getString(key));
  for (int space = 0; space < countedSpaces; ++space)
    if (name == getSpaceName(space))
      return space;
  return view.fail("lies in " + quote(name) + "; this runtime knows 'device', 'host' and 'disk'");
}

static Status readDType(const JsonView &view, DType &dtype) {
  MEMOPT_ASSIGN_OR_RETURN(std::string name, view.getString("dtype"));
  std::optional<DType> parsed = parseDType(name);
  if (!parsed)
    return view.fail("has the unknown dtype " + quote(name));
  dtype = *parsed;
  return Status::ok();
}

Status memopt::checkPlace(const JsonView &view, int space, int64_t offset, int64_t bytes,
                          const BytesBySpace &arenaBytes) {
  int64_t limit = arenaBytes[size_t(space)];
  if (offset >= 0 && bytes >= 0 && offset <= limit && bytes <= limit - offset)
    return Status::ok();
  return view.fail("takes " + std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
                   " of the " + getSpaceName(space) + " arena, which has " + std::to_string(limit));
}

static Status readPlace(const JsonView &view, const char *spaceKey, const BytesBySpace &arenaBytes,
                        PlacedTensor &tensor) {
  MEMOPT_ASSIGN_OR_RETURN(tensor.space, readSpace(view, spaceKey));
  MEMOPT_ASSIGN_OR_RETURN(tensor.offset, view.getInteger("offset"));
  MEMOPT_ASSIGN_OR_RETURN(tensor.bytes, view.getInteger("bytes"));
  MEMOPT_RETURN_IF_ERROR(checkPlace(view, tensor.space, tensor.offset, tensor.bytes, arenaBytes));
  if (tensor.offset % getByteSize(tensor.dtype))
    return view.fail("has offset " + std::to_string(tensor.offset) + ", no multiple of its " +
                     std::to_string(getByteSize(tensor.dtype)) + "-byte elements");
  return Status::ok();
}

Status memopt::readTensor(const JsonView &view, const char *spaceKey,
                          const BytesBySpace &arenaBytes, PlacedTensor &tensor) {
  MEMOPT_ASSIGN_OR_RETURN(tensor.name, view.getString("name"));
  MEMOPT_RETURN_IF_ERROR(readDType(view, tensor.dtype));
  MEMOPT_ASSIGN_OR_RETURN(JsonView shape, view.get("shape"));
  MEMOPT_ASSIGN_OR_RETURN(tensor.shape, shape.asIntegers());
  StatusOr<int64_t> expected = getTensorBytes(tensor.dtype, tensor.shape);
  if (!expected.isOk())
    return shape.fail("is wrong: " + expected.getMessage());
  MEMOPT_RETURN_IF_ERROR(readPlace(view, spaceKey, arenaBytes, tensor));
  if (tensor.bytes != *expected)
    return view.fail("has " + std::to_string(tensor.bytes) + " bytes, but " +
                     toString(tensor.dtype, tensor.shape) + " takes " + std::to_string(*expected));
  return Status::ok();
}

StatusOr<PlacedTensor> memopt::readUnnamedTensor(const JsonView &view,
                                                 const BytesBySpace &arenaBytes) {
  PlacedTensor tensor;
  MEMOPT_RETURN_IF_ERROR(readDType(view, tensor.dtype));
  MEMOPT_RETURN_IF_ERROR(readPlace(view, "space", arenaBytes, tensor));
  return tensor;
}

Status memopt::checkInMemory(const JsonView &view, const PlacedTensor &tensor) {
  if (tensor.space != diskSpace)
    return Status::ok();
  return view.fail("lies on disk, expected a place in memory: runs read or write it in each step");
}

StatusOr<InputSpec> memopt::readInput(const JsonView &view, const BytesBySpace &arenaBytes) {
  InputSpec input;
  MEMOPT_RETURN_IF_ERROR(readTensor(view, "space", arenaBytes, input));
  MEMOPT_RETURN_IF_ERROR(checkInMemory(view, input));
  if (view.has("batch_dim") && !view.raw()["batch_dim"].is_null()) {
    MEMOPT_ASSIGN_OR_RETURN(int64_t dim, view.getInteger("batch_dim"));
    if (dim < 0 || dim >= int64_t(input.shape.size()))
      return view.fail("has no dimension " + std::to_string(dim));
    input.batchDim = dim;
  }
  if (!view.has("valid_range") || view.raw()["valid_range"].is_null())
    return input;
  MEMOPT_ASSIGN_OR_RETURN(JsonView range, view.get("valid_range"));
  ValidRange valid;
  MEMOPT_ASSIGN_OR_RETURN(valid.min, range.getInteger("min"));
  MEMOPT_ASSIGN_OR_RETURN(valid.max, range.getInteger("max"));
  if (range.has("ignore") && !range.raw()["ignore"].is_null()) {
    MEMOPT_ASSIGN_OR_RETURN(int64_t ignore, range.getInteger("ignore"));
    valid.ignore = ignore;
  }
  MEMOPT_ASSIGN_OR_RETURN(valid.reason, readStringOr(range, "reason", ""));
  if (isFloat(input.dtype))
    return range.fail("is for integers, the input is " + std::string(getName(input.dtype)));
  input.validRange = valid;
  return input;
}

StatusOr<OutputSpec> memopt::readOutput(const JsonView &view, const BytesBySpace &arenaBytes) {
  OutputSpec output;
  MEMOPT_RETURN_IF_ERROR(readTensor(view, "space", arenaBytes, output));
  MEMOPT_RETURN_IF_ERROR(checkInMemory(view, output));
  MEMOPT_ASSIGN_OR_RETURN(output.role, readStringOr(view, "role", "metric"));
  return output;
}

/// As many elements as no unit has, so that sums of such numbers do not overflow.
constexpr int64_t mostUnitElements = int64_t(1) << 56;

Status memopt::readWholeShape(const JsonView &view, int64_t ranks, ShardedTensor &tensor) {
  if (!view.has("whole_shape"))
    return Status::ok();
  MEMOPT_ASSIGN_OR_RETURN(JsonView shape, view.get("whole_shape"));
  MEMOPT_ASSIGN_OR_RETURN(tensor.wholeShape, shape.asIntegers());
  StatusOr<int64_t> bytes = getTensorBytes(tensor.dtype, *tensor.wholeShape);
  if (!bytes.isOk())
    return shape.fail("is wrong: " + bytes.getMessage());
  if (view.has("unit_first")) {
    MEMOPT_ASSIGN_OR_RETURN(tensor.unitFirst, view.getInteger("unit_first"));
    if (tensor.unitFirst < 0 || tensor.unitFirst > mostUnitElements)
      return view.fail("begins at element " + std::to_string(tensor.unitFirst) + " of its unit");
  }
  if (ranks < 2 || tensor.shape.size() != 1 || *bytes == 0 ||
      tensor.shape[0] <
          (tensor.unitFirst + getElementCount(*tensor.wholeShape) + ranks - 1) / ranks)
    return shape.fail("is " + toString(tensor.dtype, *tensor.wholeShape) + ", of which " +
                      toString(tensor.dtype, tensor.shape) + " is none of " +
                      std::to_string(ranks) + " parts");
  return Status::ok();
}

/// Codes have the size that their tensor asks for; their scales are checked by checkManifest.
static Status readEncoding(const JsonView &view, VariableSpec &variable) {
  MEMOPT_ASSIGN_OR_RETURN(JsonView given, view.get("encoding"));
  MEMOPT_ASSIGN_OR_RETURN(std::string name, given.getString("code"));
  std::optional<BlockCode> code = parseBlockCode(name);
  if (!code)
    return given.fail("has the code " + quote(name) + "; known are 'bf16', 'int8' and 'nf4'");
  EncodingSpec encoding{*code, {}, "", ""};
  MEMOPT_ASSIGN_OR_RETURN(JsonView shape, given.get("shape"));
  MEMOPT_ASSIGN_OR_RETURN(encoding.shape, shape.asIntegers());
  StatusOr<int64_t> bytes = getTensorBytes(DType::F32, encoding.shape);
  if (!bytes.isOk())
    return shape.fail("is wrong: " + bytes.getMessage());
  MEMOPT_ASSIGN_OR_RETURN(encoding.scales, readStringOr(given, "scales", ""));
  MEMOPT_ASSIGN_OR_RETURN(encoding.scaleScales, readStringOr(given, "scale_scales", ""));
  int64_t elements = *bytes / 4;
  bool isNarrow = *code == BlockCode::BF16;
  bool fits = isNarrow ? variable.dtype == DType::BF16 && variable.shape == encoding.shape
                       : variable.dtype == DType::I8 && variable.shape.size() == 1 &&
                             variable.shape[0] == getCodeBytes(*code, elements);
  if (!fits || variable.wholeShape || encoding.scales.empty() != isNarrow)
    return given.fail("is " + name + " of " + toString(DType::F32, encoding.shape) +
                      ", which is not kept as " + toString(variable.dtype, variable.shape) +
                      (encoding.scales.empty() ? " without scales" : " with scales"));
  variable.encoding = std::move(encoding);
  return Status::ok();
}

StatusOr<VariableSpec> memopt::readVariable(const JsonView &view, const Manifest &manifest) {
  VariableSpec variable;
  MEMOPT_RETURN_IF_ERROR(readTensor(view, "placement", manifest.arenaBytes, variable));
  MEMOPT_RETURN_IF_ERROR(readWholeShape(view, manifest.ranks, variable));
  MEMOPT_ASSIGN_OR_RETURN(variable.unit, readStringOr(view, "unit", ""));
  MEMOPT_ASSIGN_OR_RETURN(variable.role, view.getString("role"));
  if (view.has("encoding"))
    MEMOPT_RETURN_IF_ERROR(readEncoding(view, variable));
  if (!variable.isState() || variable.role == "loss_scale" || variable.isFrozenScale())
    MEMOPT_RETURN_IF_ERROR(checkInMemory(view, variable));
  if (view.has("names")) {
    MEMOPT_ASSIGN_OR_RETURN(JsonView names, view.get("names"));
    MEMOPT_ASSIGN_OR_RETURN(variable.names, names.asStrings());
  }
  variable.isTrainable = false;
  if (view.has("trainable")) {
    MEMOPT_ASSIGN_OR_RETURN(variable.isTrainable, view.getBool("trainable"));
  }
  if (view.has("own")) {
    MEMOPT_ASSIGN_OR_RETURN(variable.isOwn, view.getBool("own"));
  }
  MEMOPT_ASSIGN_OR_RETURN(std::string init, view.getString("init"));
  if (init == "weights")
    variable.init = VariableInit::Weights;
  else if (init == "zeros")
    variable.init = VariableInit::Zeros;
  else if (init == "constant")
    variable.init = VariableInit::Constant;
  else if (init == "absent")
    variable.init = VariableInit::Absent;
  else
    return view.fail("has init " + quote(init) +
                     "; known are 'weights', 'zeros', 'constant' and 'absent'");
  MEMOPT_ASSIGN_OR_RETURN(std::string restore, readStringOr(view, "restore", "required"));
  if (restore == "required")
    variable.restore = VariableRestore::Required;
  else if (restore == "if_present")
    variable.restore = VariableRestore::IfPresent;
  else if (restore == "never")
    variable.restore = VariableRestore::Never;
  else
    return view.fail("has restore " + quote(restore) +
                     "; known are 'required', 'if_present' and 'never'");
  MEMOPT_ASSIGN_OR_RETURN(variable.initScale, readOptionalNumber(view, "init_scale"));
  MEMOPT_ASSIGN_OR_RETURN(variable.initValue, readOptionalNumber(view, "init_value"));
  if (variable.init == VariableInit::Constant && !variable.initValue)
    return view.fail("has init 'constant' without init_value");
  return variable;
}
