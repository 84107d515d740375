//===- UpdateTargets.cpp - parameters that are updated together -----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "UpdateTargets.h"

#include "memopt/Transforms/Optimizers/Update.h"
#include "memopt/Transforms/Ranks/Shards.h"

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

/// What parameters of one unit have in common; none where one is updated by itself.
static std::optional<std::string> describeUpdate(const UpdateChoices &choices, size_t number,
                                                 const ReadsOf &reads) {
  auto [parameter, gradient] = choices.parameters[number];
  const ParameterUpdate &choice = choices.updates[number];
  const ParameterInfo &info = choices.infos[number];
  auto isNumber = [&](const StateTensor &tensor) {
    return tensor.type.getRank() == 0 && info.type.getRank() != 0;
  };
  if (choice.hasOwnCount ||
      (choices.average &&
       llvm::any_of(getStateTensors(getAverage(), info, *choices.average, /*bits=*/32), isNumber)))
    return std::nullopt;
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << choice.optimizer->getName() << choice.settings.toAttribute(parameter.getContext())
         << choice.stateBits << ' ' << choice.rate.value_or(0) << choice.rate.has_value();
  for (const HyperparameterInput &input : choice.inputs)
    stream << ' ' << input.name << ' ' << input.initial << ' ' << input.factor;
  for (const StateTensor &tensor :
       getStateTensors(*choice.optimizer, info, choice.settings, choice.stateBits)) {
    if (isNumber(tensor))
      return std::nullopt;
    stream << ' ' << tensor.name;
  }
  stream << ' ' << parameter.getTensorType().getElementType() << ' '
         << getElementTypeOrSelf(gradient.getType()) << ' '
         << describeReads(reads.lookup(parameter.getSymNameAttr()));
  return text;
}

static std::vector<planning::ShardUnit> formUnits(const UpdateChoices &choices,
                                                  const ReadsOf &reads, int64_t shardRanks) {
  ShardGroups groups;
  std::vector<planning::ShardTensor> tensors;
  for (auto [number, info] : llvm::enumerate(choices.infos)) {
    planning::ShardTensor tensor{info.type.getNumElements(), info.type.getElementTypeBitWidth() / 8,
                                 16, std::nullopt};
    if (unsigned bits = choices.updates[number].stateBits; bits <= 8)
      tensor.unit = Update::getBlock(bits);
    if (std::optional<std::string> alike = describeUpdate(choices, number, reads))
      tensor.group = groups.get(*alike);
    tensors.push_back(tensor);
  }
  return planning::formShardUnits(tensors, shardRanks);
}

namespace {
/// Where a parameter lies in a unit.
struct Place {
  size_t unit;
  int64_t first; ///< element
};
} // namespace

SmallVector<UpdateTarget> mlir::memopt::formTargets(const UpdateChoices &choices,
                                                    const ReadsOf &reads, int64_t shardRanks,
                                                    bool formsUnits) {
  std::vector<planning::ShardUnit> units;
  if (formsUnits)
    units = formUnits(choices, reads, shardRanks);
  DenseMap<size_t, Place> places;
  for (auto [number, unit] : llvm::enumerate(units))
    for (auto [member, first] : llvm::zip_equal(unit.members, unit.firsts))
      places[member] = {number, first};
  SmallVector<UpdateTarget> targets;
  DenseMap<size_t, size_t> targetOf; // by unit
  for (auto [number, entry] : llvm::enumerate(choices.parameters)) {
    const ParameterInfo &info = choices.infos[number];
    auto place = places.find(number);
    size_t target = targets.size();
    RankedTensorType type = info.type;
    if (place != places.end()) {
      target = targetOf.try_emplace(place->second.unit, target).first->second;
      type = type.clone(units[place->second.unit].elements);
    }
    if (target == targets.size())
      targets.push_back({{}, &choices.updates[number], type, entry.second});
    targets[target].members.push_back(
        {entry.first, info, place == places.end() ? 0 : place->second.first});
  }
  return targets;
}
