//===- Manifest.cpp - what a package says of its program ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/Manifest.h"
#include <algorithm>
#include <set>

using namespace memopt;
using nlohmann::json;

const char *memopt::getSpaceName(int space) {
  return space == MEMOPT_SPACE_DEVICE ? "device" : "host";
}

int Manifest::getLossIndex() const {
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].role == "loss")
      return int(i);
  return -1;
}

template <typename Spec>
static const Spec *findByName(const std::vector<Spec> &specs, const std::string &name) {
  auto found =
      std::find_if(specs.begin(), specs.end(), [&](const Spec &spec) { return spec.name == name; });
  return found == specs.end() ? nullptr : &*found;
}
const VariableSpec *Manifest::findVariable(const std::string &name) const {
  return findByName(variables, name);
}
const InputSpec *Manifest::findInput(const std::string &name) const {
  return findByName(inputs, name);
}

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

static StatusOr<std::string> getStringOr(const JsonView &view, const char *key,
                                         const std::string &otherwise) {
  return view.has(key) ? view.getString(key) : StatusOr<std::string>(otherwise);
}

static StatusOr<BytesBySpace> readBytes(const JsonView &view) {
  BytesBySpace bytes{};
  for (int space = 0; space < MEMOPT_SPACE_COUNT; ++space) {
    if (!view.has(getSpaceName(space)))
      continue; // a space that is not named holds nothing
    MEMOPT_ASSIGN_OR_RETURN(bytes[space], view.getInteger(getSpaceName(space)));
    if (bytes[space] < 0)
      return view.fail("must not be negative");
  }
  return bytes;
}

static StatusOr<int> readSpace(const JsonView &view, const char *key) {
  MEMOPT_ASSIGN_OR_RETURN(std::string name, view.getString(key));
  for (int space = 0; space < MEMOPT_SPACE_COUNT; ++space)
    if (name == getSpaceName(space))
      return space;
  return view.fail("lies in " + quote(name) + "; this runtime knows 'device' and 'host'");
}

static Status readDType(const JsonView &view, DType &dtype) {
  MEMOPT_ASSIGN_OR_RETURN(std::string name, view.getString("dtype"));
  std::optional<DType> parsed = parseDType(name);
  if (!parsed)
    return view.fail("has the unknown dtype " + quote(name));
  dtype = *parsed;
  return Status::ok();
}

static Status readPlace(const JsonView &view, const char *spaceKey, const BytesBySpace &arenaBytes,
                        PlacedTensor &tensor) {
  MEMOPT_ASSIGN_OR_RETURN(tensor.space, readSpace(view, spaceKey));
  MEMOPT_ASSIGN_OR_RETURN(tensor.offset, view.getInteger("offset"));
  MEMOPT_ASSIGN_OR_RETURN(tensor.bytes, view.getInteger("bytes"));
  int64_t limit = arenaBytes[tensor.space];
  if (tensor.offset < 0 || tensor.bytes < 0 || tensor.offset > limit ||
      tensor.bytes > limit - tensor.offset)
    return view.fail("takes " + std::to_string(tensor.bytes) + " bytes at offset " +
                     std::to_string(tensor.offset) + " of the " + getSpaceName(tensor.space) +
                     " arena, which has " + std::to_string(limit));
  if (tensor.offset % getByteSize(tensor.dtype))
    return view.fail("has offset " + std::to_string(tensor.offset) + ", no multiple of its " +
                     std::to_string(getByteSize(tensor.dtype)) + "-byte elements");
  return Status::ok();
}

static Status readTensor(const JsonView &view, const char *spaceKey, const BytesBySpace &arenaBytes,
                         PlacedTensor &tensor) {
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

static StatusOr<InputSpec> readInput(const JsonView &view, const BytesBySpace &arenaBytes) {
  InputSpec input;
  MEMOPT_RETURN_IF_ERROR(readTensor(view, "space", arenaBytes, input));
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
  MEMOPT_ASSIGN_OR_RETURN(valid.reason, getStringOr(range, "reason", ""));
  if (isFloat(input.dtype))
    return range.fail("is for integers, the input is " + std::string(getName(input.dtype)));
  input.validRange = valid;
  return input;
}

static StatusOr<OutputSpec> readOutput(const JsonView &view, const BytesBySpace &arenaBytes) {
  OutputSpec output;
  MEMOPT_RETURN_IF_ERROR(readTensor(view, "space", arenaBytes, output));
  MEMOPT_ASSIGN_OR_RETURN(output.role, getStringOr(view, "role", "metric"));
  return output;
}

static StatusOr<std::optional<double>> readOptionalNumber(const JsonView &view, const char *key) {
  std::optional<double> number;
  if (view.has(key) && !view.raw()[key].is_null()) {
    MEMOPT_ASSIGN_OR_RETURN(double value, view.getNumber(key));
    number = value;
  }
  return number;
}

static StatusOr<VariableSpec> readVariable(const JsonView &view, const BytesBySpace &arenaBytes) {
  VariableSpec variable;
  MEMOPT_RETURN_IF_ERROR(readTensor(view, "placement", arenaBytes, variable));
  MEMOPT_ASSIGN_OR_RETURN(variable.role, view.getString("role"));
  if (view.has("names")) {
    MEMOPT_ASSIGN_OR_RETURN(JsonView names, view.get("names"));
    MEMOPT_ASSIGN_OR_RETURN(variable.names, names.asStrings());
  }
  variable.isTrainable = false;
  if (view.has("trainable")) {
    MEMOPT_ASSIGN_OR_RETURN(variable.isTrainable, view.getBool("trainable"));
  }
  MEMOPT_ASSIGN_OR_RETURN(std::string init, view.getString("init"));
  if (init == "weights")
    variable.init = VariableInit::Weights;
  else if (init == "zeros")
    variable.init = VariableInit::Zeros;
  else if (init == "absent")
    variable.init = VariableInit::Absent;
  else
    return view.fail("has init " + quote(init) + "; known are 'weights', 'zeros' and 'absent'");
  MEMOPT_ASSIGN_OR_RETURN(std::string restore, getStringOr(view, "restore", "required"));
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
  return variable;
}

static StatusOr<PlacedTensor> readInstructionOutput(const JsonView &view,
                                                    const BytesBySpace &arenaBytes) {
  PlacedTensor tensor;
  MEMOPT_RETURN_IF_ERROR(readDType(view, tensor.dtype));
  MEMOPT_RETURN_IF_ERROR(readPlace(view, "space", arenaBytes, tensor));
  return tensor;
}

static StatusOr<InstructionSpec> readInstruction(const JsonView &view,
                                                 const BytesBySpace &arenaBytes) {
  InstructionSpec instruction{};
  MEMOPT_ASSIGN_OR_RETURN(instruction.name, view.getString("name"));
  MEMOPT_ASSIGN_OR_RETURN(instruction.kind, getStringOr(view, "kind", "kernel"));
  MEMOPT_ASSIGN_OR_RETURN(instruction.module, getStringOr(view, "module", ""));
  MEMOPT_ASSIGN_OR_RETURN(instruction.ops, getStringOr(view, "ops", ""));
  if (view.has("outputs")) {
    MEMOPT_ASSIGN_OR_RETURN(std::vector<JsonView> outputs, view.getArray("outputs"));
    for (const JsonView &output : outputs) {
      MEMOPT_ASSIGN_OR_RETURN(PlacedTensor tensor, readInstructionOutput(output, arenaBytes));
      instruction.outputs.push_back(std::move(tensor));
    }
  }
  if (view.has("live_bytes")) {
    MEMOPT_ASSIGN_OR_RETURN(JsonView live, view.get("live_bytes"));
    MEMOPT_ASSIGN_OR_RETURN(instruction.liveBytes, readBytes(live));
  }
  return instruction;
}

/// An index into the manifest's instructions, at least `least`.
static StatusOr<int64_t> readInstructionIndex(const JsonView &view, const char *key,
                                              size_t instructionCount, int64_t least) {
  MEMOPT_ASSIGN_OR_RETURN(int64_t index, view.getInteger(key));
  if (index < least || index >= int64_t(instructionCount))
    return view.fail("has " + quote(key) + " " + std::to_string(index) + ", but there are " +
                     std::to_string(instructionCount) + " instructions");
  return index;
}

template <typename Spec, typename Read>
static Status readList(const JsonView &root, const char *key, std::vector<Spec> &list, Read read) {
  MEMOPT_ASSIGN_OR_RETURN(std::vector<JsonView> elements, root.getArray(key));
  list.reserve(elements.size());
  for (const JsonView &element : elements) {
    StatusOr<Spec> spec = read(element);
    if (!spec.isOk())
      return spec.takeStatus();
    list.push_back(*std::move(spec));
  }
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// The whole
//===----------------------------------------------------------------------===//

static Status checkVersions(const JsonView &root) {
  MEMOPT_ASSIGN_OR_RETURN(std::string format, root.getString("format"));
  if (format != "memopt-package")
    return badInput("format is " + quote(format) + ", expected 'memopt-package'");
  MEMOPT_ASSIGN_OR_RETURN(int64_t version, root.getInteger("version"));
  if (version != manifestVersion)
    return badInput("the package has version " + std::to_string(version) +
                    ", this runtime reads version " + std::to_string(manifestVersion) +
                    "; compile the model again");
  MEMOPT_ASSIGN_OR_RETURN(int64_t interface, root.getInteger("program_interface_version"));
  if (interface != MEMOPT_PROGRAM_INTERFACE_VERSION)
    return badInput("the program was compiled for interface version " + std::to_string(interface) +
                    ", this runtime offers version " +
                    std::to_string(MEMOPT_PROGRAM_INTERFACE_VERSION) + "; compile the model again");
  return Status::ok();
}

static Status readHead(const JsonView &root, Manifest &manifest) {
  MEMOPT_ASSIGN_OR_RETURN(manifest.compiler, getStringOr(root, "compiler", "unknown"));
  MEMOPT_ASSIGN_OR_RETURN(manifest.target, root.getString("target"));
  MEMOPT_ASSIGN_OR_RETURN(manifest.mode, root.getString("mode"));
  if (manifest.mode != "train" && manifest.mode != "eval")
    return badInput("mode is " + quote(manifest.mode) + ", expected 'train' or 'eval'");
  MEMOPT_ASSIGN_OR_RETURN(manifest.threads, root.getInteger("threads"));
  if (manifest.threads < 1 || manifest.threads > 4096)
    return badInput("threads is " + std::to_string(manifest.threads) + ", expected 1 to 4096");
  MEMOPT_ASSIGN_OR_RETURN(JsonView arena, root.get("arena_bytes"));
  MEMOPT_ASSIGN_OR_RETURN(manifest.arenaBytes, readBytes(arena));
  MEMOPT_ASSIGN_OR_RETURN(JsonView predicted, root.get("predicted_peak_bytes"));
  MEMOPT_ASSIGN_OR_RETURN(manifest.predictedPeakBytes, readBytes(predicted));
  manifest.predictedDiskBytes = 0;
  if (predicted.has("disk")) {
    MEMOPT_ASSIGN_OR_RETURN(manifest.predictedDiskBytes, predicted.getInteger("disk"));
  }
  if (root.has("optimizer") && root.raw()["optimizer"].is_object()) {
    MEMOPT_ASSIGN_OR_RETURN(JsonView optimizer, root.get("optimizer"));
    MEMOPT_ASSIGN_OR_RETURN(manifest.learningRate, readOptionalNumber(optimizer, "lr"));
  }
  return Status::ok();
}

static Status readGradients(const JsonView &root, Manifest &manifest) {
  if (!root.has("gradients"))
    return Status::ok();
  size_t count = manifest.instructions.size();
  return readList(
      root, "gradients", manifest.gradients, [&](const JsonView &view) -> StatusOr<GradientSpec> {
        GradientSpec gradient;
        MEMOPT_RETURN_IF_ERROR(readTensor(view, "space", manifest.arenaBytes, gradient));
        MEMOPT_ASSIGN_OR_RETURN(gradient.readyAfter,
                                readInstructionIndex(view, "ready_after", count, /*least=*/-1));
        return gradient;
      });
}

/// Variables and inputs keep their places for the whole run, so no two may share a byte.
static Status checkOverlaps(const Manifest &manifest) {
  std::vector<const PlacedTensor *> order;
  for (const VariableSpec &variable : manifest.variables)
    order.push_back(&variable);
  for (const InputSpec &input : manifest.inputs)
    order.push_back(&input);
  std::sort(order.begin(), order.end(), [](const PlacedTensor *a, const PlacedTensor *b) {
    return std::tie(a->space, a->offset, a->bytes) < std::tie(b->space, b->offset, b->bytes);
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const PlacedTensor &before = *order[i - 1], &after = *order[i];
    if (before.space == after.space && before.bytes && after.bytes &&
        before.offset + before.bytes > after.offset)
      return badInput(quote(before.name) + " and " + quote(after.name) + " overlap in the " +
                      getSpaceName(before.space) + " arena at offset " +
                      std::to_string(after.offset));
  }
  return Status::ok();
}

template <typename Spec>
static Status checkNames(const std::vector<Spec> &specs, const char *kind) {
  std::set<std::string> seen;
  for (const Spec &spec : specs)
    if (!seen.insert(spec.name).second)
      return badInput("there are two " + std::string(kind) + " named " + quote(spec.name));
  return Status::ok();
}

/// Variables that the runtime writes before each step must have the type it writes.
static Status checkHyperparameters(const Manifest &manifest) {
  for (const VariableSpec &variable : manifest.variables) {
    if (variable.role != "hyperparameter")
      continue;
    bool isRate = variable.name == "lr",
         isCount = variable.name == "step" || variable.name == "seed";
    if (!isRate && !isCount)
      return badInput("hyperparameter " + quote(variable.name) +
                      " is unknown; known are 'lr', 'step' and 'seed'");
    bool hasType = isRate ? variable.dtype == DType::F32 || variable.dtype == DType::F64
                          : variable.dtype == DType::I64;
    if (!hasType || getElementCount(variable.shape) != 1)
      return badInput("hyperparameter " + quote(variable.name) + " is " +
                      toString(variable.dtype, variable.shape) + ", expected one " +
                      (isRate ? "f32" : "i64"));
  }
  return Status::ok();
}

static Status checkWhole(const Manifest &manifest) {
  MEMOPT_RETURN_IF_ERROR(checkNames(manifest.inputs, "inputs"));
  MEMOPT_RETURN_IF_ERROR(checkNames(manifest.variables, "variables"));
  MEMOPT_RETURN_IF_ERROR(checkNames(manifest.gradients, "gradients"));
  MEMOPT_RETURN_IF_ERROR(checkOverlaps(manifest));
  MEMOPT_RETURN_IF_ERROR(checkHyperparameters(manifest));
  if (manifest.mode != "train")
    return Status::ok();
  int loss = manifest.getLossIndex();
  if (loss < 0)
    return badInput("a package of mode 'train' needs an output of role 'loss'");
  if (getElementCount(manifest.outputs[loss].shape) != 1 || !isFloat(manifest.outputs[loss].dtype))
    return badInput("the loss is " +
                    toString(manifest.outputs[loss].dtype, manifest.outputs[loss].shape) +
                    ", expected one floating-point value");
  if (!manifest.lossReadyAfter)
    return badInput("a package of mode 'train' needs 'loss_ready_after'");
  return Status::ok();
}

StatusOr<Manifest> memopt::parseManifest(std::string_view text) {
  MEMOPT_ASSIGN_OR_RETURN(json document, parseJson(text, /*maxDepth=*/16));
  JsonView root(document);
  Manifest manifest;
  MEMOPT_RETURN_IF_ERROR(checkVersions(root));
  MEMOPT_RETURN_IF_ERROR(readHead(root, manifest));
  auto bind = [&](auto read) {
    return [&manifest, read](const JsonView &view) { return read(view, manifest.arenaBytes); };
  };
  MEMOPT_RETURN_IF_ERROR(readList(root, "inputs", manifest.inputs, bind(readInput)));
  MEMOPT_RETURN_IF_ERROR(readList(root, "outputs", manifest.outputs, bind(readOutput)));
  MEMOPT_RETURN_IF_ERROR(readList(root, "variables", manifest.variables, bind(readVariable)));
  MEMOPT_RETURN_IF_ERROR(
      readList(root, "instructions", manifest.instructions, bind(readInstruction)));
  MEMOPT_RETURN_IF_ERROR(readGradients(root, manifest));
  if (root.has("loss_ready_after") && !root.raw()["loss_ready_after"].is_null()) {
    MEMOPT_ASSIGN_OR_RETURN(
        int64_t index,
        readInstructionIndex(root, "loss_ready_after", manifest.instructions.size(), /*least=*/0));
    manifest.lossReadyAfter = index;
  }
  MEMOPT_RETURN_IF_ERROR(readList(root, "library_calls", manifest.libraryCalls,
                                  [](const JsonView &view) -> StatusOr<json> {
                                    if (!view.raw().is_object())
                                      return view.failExpected("an object");
                                    return view.raw();
                                  }));
  MEMOPT_RETURN_IF_ERROR(checkWhole(manifest));
  return manifest;
}
