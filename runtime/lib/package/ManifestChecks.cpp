//===- ManifestChecks.cpp - a manifest that contradicts itself -----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ManifestReading.h"
#include <algorithm>
#include <set>

using namespace memopt;

/// Tensors of one unit are in the same bytes of each rank, none among another's elements.
static Status checkUnits(const std::vector<const VariableSpec *> &members) {
  for (size_t i = 1; i < members.size(); ++i) {
    const VariableSpec &before = *members[i - 1], &after = *members[i];
    if (before.unit != after.unit)
      continue;
    bool isApart = !before.wholeShape || !after.wholeShape ||
                   before.unitFirst + getElementCount(*before.wholeShape) <= after.unitFirst;
    if (before.space != after.space || before.offset != after.offset ||
        before.shape != after.shape || before.dtype != after.dtype || !isApart)
      return badInput(quote(before.name) + " and " + quote(after.name) +
                      " do not lie together in unit " + quote(after.unit));
  }
  return Status::ok();
}

/// Variables and inputs keep their places for the whole run, so no two may share a byte, but for
/// those of one unit.
static Status checkOverlaps(const Manifest &manifest) {
  std::vector<const PlacedTensor *> order;
  std::vector<const VariableSpec *> members;
  std::set<std::string> units;
  for (const VariableSpec &variable : manifest.variables) {
    if (!variable.unit.empty())
      members.push_back(&variable);
    if (variable.unit.empty() || units.insert(variable.unit).second)
      order.push_back(&variable);
  }
  std::sort(members.begin(), members.end(), [](const VariableSpec *a, const VariableSpec *b) {
    return std::tie(a->unit, a->unitFirst) < std::tie(b->unit, b->unitFirst);
  });
  MEMOPT_RETURN_IF_ERROR(checkUnits(members));
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

/// Names in a checkpoint's model file must differ, and be ones that the file can hold: that should
/// not turn out at the first save. What is no variable of the model has its own file or none.
static Status checkCheckpointNames(const Manifest &manifest) {
  std::set<std::string> seen = {"__metadata__"};
  for (const VariableSpec &variable : manifest.variables)
    for (const std::string &name : variable.names)
      if ((variable.role == "parameter" || variable.role == "buffer") && !seen.insert(name).second)
        return badInput("variable " + quote(variable.name) + " has the name " + quote(name) +
                        " in checkpoints, which is taken");
  return Status::ok();
}

/// The runtime reads them as numbers.
static Status checkNumbers(const Manifest &manifest) {
  for (const VariableSpec &variable : manifest.variables)
    if ((variable.role == "loss_scale" || variable.isGradientNorm()) &&
        getElementCount(variable.shape) != 1)
      return badInput("variable " + quote(variable.name) + " of role " + quote(variable.role) +
                      " is " + toString(variable.dtype, variable.shape) + ", expected one number");
  return Status::ok();
}

/// Variables that the runtime writes must have the type it writes.
static Status checkHyperparameters(const Manifest &manifest) {
  static const char *const counts[] = {"step", "seed", "sample_offset"};
  for (const VariableSpec &variable : manifest.variables) {
    if (variable.role != "hyperparameter")
      continue;
    if (variable.isExchange()) {
      int space = variable.name == exchangeName ? MEMOPT_SPACE_HOST : MEMOPT_SPACE_DEVICE;
      if (variable.dtype != DType::I8 || variable.space != space)
        return badInput("hyperparameter " + quote(variable.name) + " is " +
                        toString(variable.dtype, variable.shape) + " on the " +
                        getSpaceName(variable.space) + ", expected i8 on the " +
                        getSpaceName(space));
      continue;
    }
    bool isRate = variable.name == "lr" || variable.isGroupRate() || variable.isOptimizerSetting(),
         isCount =
             std::find(std::begin(counts), std::end(counts), variable.name) != std::end(counts);
    if (!isRate && !isCount)
      return badInput(
          "hyperparameter " + quote(variable.name) +
          " is unknown; known are 'lr', 'lr.N' and 'hyperparameter.NAME' with an init_value, "
          "'step', 'seed' and 'sample_offset'");
    bool hasType = isRate ? variable.dtype == DType::F32 || variable.dtype == DType::F64
                          : variable.dtype == DType::I64;
    if (!hasType || getElementCount(variable.shape) != 1)
      return badInput("hyperparameter " + quote(variable.name) + " is " +
                      toString(variable.dtype, variable.shape) + ", expected one " +
                      (isRate ? "f32" : "i64"));
  }
  return Status::ok();
}

/// Codes and their scales fit each other.
static Status checkEncodings(const Manifest &manifest) {
  auto check = [&](const std::string &name, DType dtype, int64_t elements) -> Status {
    const VariableSpec *scales = manifest.findVariable(name);
    if (scales && scales->isFrozenScale() && scales->dtype == dtype &&
        scales->shape == Shape{elements})
      return Status::ok();
    return badInput("the scales " + quote(name) + " of codes are " +
                    (scales ? scales->role + " " + toString(scales->dtype, scales->shape)
                            : std::string("not there")) +
                    ", expected frozen_scale " + toString(dtype, {elements}));
  };
  for (const VariableSpec &variable : manifest.variables) {
    if (!variable.encoding || variable.encoding->scales.empty())
      continue;
    const EncodingSpec &encoding = *variable.encoding;
    int64_t scales = getBlockCount(getElementCount(encoding.shape));
    if (encoding.scaleScales.empty()) {
      MEMOPT_RETURN_IF_ERROR(check(encoding.scales, DType::F32, scales));
      continue;
    }
    MEMOPT_RETURN_IF_ERROR(check(encoding.scales, DType::I8, getScaleBytes(scales)));
    MEMOPT_RETURN_IF_ERROR(check(encoding.scaleScales, DType::F32, getScaleBlockCount(scales)));
  }
  return Status::ok();
}

static Status checkIndexFault(const Manifest &manifest) {
  const VariableSpec *fault = manifest.findIndexFault();
  if (!fault)
    return Status::ok();
  if (fault->dtype != DType::I64 || getElementCount(fault->shape) != 1)
    return badInput("variable " + quote(fault->name) + " of role 'index_fault' is " +
                    toString(fault->dtype, fault->shape) + ", expected one i64");
  auto isFault = [](const VariableSpec &variable) { return variable.role == "index_fault"; };
  if (std::count_if(manifest.variables.begin(), manifest.variables.end(), isFault) > 1)
    return badInput("there are two variables of role 'index_fault'");
  return Status::ok();
}

/// Library instructions and calls point at each other.
static Status checkCalls(const Manifest &manifest) {
  auto calls = int64_t(manifest.libraryCalls.size());
  for (size_t i = 0; i < manifest.instructions.size(); ++i) {
    const InstructionSpec &instruction = manifest.instructions[i];
    if (instruction.kind == "library" && !instruction.call)
      return badInput(manifest.describeInstruction(int64_t(i)) + " lacks 'call'");
    if (instruction.call && (*instruction.call < 0 || *instruction.call >= calls))
      return badInput(manifest.describeInstruction(int64_t(i)) + " makes library call " +
                      std::to_string(*instruction.call) + " of " + std::to_string(calls));
  }
  return Status::ok();
}

/// Puts outer regions before those that they hold.
static Status orderRegions(Manifest &manifest) {
  std::vector<RegionSpec> &regions = manifest.regions;
  std::stable_sort(regions.begin(), regions.end(), [](const RegionSpec &a, const RegionSpec &b) {
    return std::make_pair(a.begin, -a.end) < std::make_pair(b.begin, -b.end);
  });
  for (size_t i = 0; i < regions.size(); ++i)
    for (size_t j = i + 1; j < regions.size() && regions[j].begin < regions[i].end; ++j)
      if (regions[j].end > regions[i].end)
        return badInput("the regions of instructions " + std::to_string(regions[i].begin) + " to " +
                        std::to_string(regions[i].end) + " and " +
                        std::to_string(regions[j].begin) + " to " + std::to_string(regions[j].end) +
                        " cut into each other");
  // Loops over the same samples: the first of them takes totals that the next needs.
  const RegionSpec *first = manifest.findBatchRegion();
  for (const RegionSpec &region : regions)
    if (!region.inputs.empty() && (region.inputs != first->inputs || region.count != first->count))
      return badInput("two regions take other samples: one has " + std::to_string(first->count) +
                      " times " + std::to_string(first->inputs.size()) + " inputs, another " +
                      std::to_string(region.count) + " times " +
                      std::to_string(region.inputs.size()));
  return Status::ok();
}

/// What a training step must have.
static Status checkTraining(const Manifest &manifest) {
  int loss = manifest.getLossIndex();
  if (loss < 0)
    return badInput("a package of mode 'train' needs an output of role 'loss'");
  const OutputSpec &output = manifest.outputs[size_t(loss)];
  if (getElementCount(output.shape) != 1 || !isFloat(output.dtype))
    return badInput("the loss is " + toString(output.dtype, output.shape) +
                    ", expected one floating-point value");
  return Status::ok();
}

/// A list of programs has the manifest's own as the first.
static Status checkPrograms(const Manifest &manifest) {
  if (manifest.programs.size() > mostPrograms)
    return badInput("the package has " + std::to_string(manifest.programs.size()) +
                    " programs, expected at most " + std::to_string(mostPrograms));
  std::set<std::string> seen;
  for (const ProgramEntry &program : manifest.programs)
    if (!seen.insert(program.name).second)
      return badInput("there are two programs named " + quote(program.name));
  if (!manifest.programs.empty() && manifest.programs[0].kind != manifest.mode)
    return badInput("program " + quote(manifest.programs[0].name) + " is of kind " +
                    quote(manifest.programs[0].kind) + ", and the manifest of mode " +
                    quote(manifest.mode));
  return Status::ok();
}

Status memopt::checkManifest(Manifest &manifest) {
  MEMOPT_RETURN_IF_ERROR(checkPrograms(manifest));
  MEMOPT_RETURN_IF_ERROR(checkNames(manifest.inputs, "inputs"));
  MEMOPT_RETURN_IF_ERROR(checkNames(manifest.variables, "variables"));
  MEMOPT_RETURN_IF_ERROR(checkNames(manifest.gradients, "gradients"));
  MEMOPT_RETURN_IF_ERROR(checkCheckpointNames(manifest));
  MEMOPT_RETURN_IF_ERROR(checkOverlaps(manifest));
  MEMOPT_RETURN_IF_ERROR(checkHyperparameters(manifest));
  MEMOPT_RETURN_IF_ERROR(checkNumbers(manifest));
  MEMOPT_RETURN_IF_ERROR(checkEncodings(manifest));
  MEMOPT_RETURN_IF_ERROR(checkIndexFault(manifest));
  MEMOPT_RETURN_IF_ERROR(checkCalls(manifest));
  MEMOPT_RETURN_IF_ERROR(orderRegions(manifest));
  return manifest.mode == "train" ? checkTraining(manifest) : Status::ok();
}
