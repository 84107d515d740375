//===- ShardUnits.cpp - small tensors that are cut over ranks together -------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Ranks/ShardUnits.h"
#include "memopt/Planning/Ranks/RankModel.h"

#include <algorithm>
#include <map>

using namespace memopt::planning;

/// Below it a message takes about as long as the smallest one.
static constexpr int64_t leastUnitBytes = 16384;
/// One element of padding for so many of tensors.
static constexpr int64_t elementsOfPadding = 100;

static int64_t getPadding(int64_t elements, int64_t ranks, int64_t unit) {
  return getShardElements(elements, ranks, unit) * ranks - elements;
}

namespace {
/// The units of one group.
class UnitBuilder {
public:
  UnitBuilder(int64_t ranks, const ShardTensor &first)
      : ranks(ranks), unit(first.unit), elementBytes(first.elementBytes) {}

  bool suffices(int64_t elements) const {
    return elements * elementBytes >= leastUnitBytes &&
           getPadding(elements, ranks, unit) <= elements / elementsOfPadding;
  }

  void add(size_t number, int64_t elements) {
    if (suffices(elements))
      return;
    append(open, number, elements);
    if (suffices(open.elements))
      close();
  }

  void finish(std::vector<ShardUnit> &result) {
    if (!open.members.empty())
      joinRest();
    for (ShardUnit &made : units)
      if (made.members.size() > 1)
        result.push_back(std::move(made));
  }

private:
  /// Where a shard could begin behind the members so far.
  int64_t getNextFirst(const ShardUnit &of) const { return (of.elements + unit - 1) / unit * unit; }

  void append(ShardUnit &target, size_t number, int64_t elements) const {
    int64_t first = getNextFirst(target);
    target.members.push_back(number);
    target.firsts.push_back(first);
    target.elements = first + elements;
  }

  void close() {
    units.push_back(std::move(open));
    open = ShardUnit();
  }

  /// What is left belongs to the unit before it, unless that would leave more padding.
  void joinRest() {
    if (units.empty())
      return close();
    ShardUnit joined = units.back();
    int64_t shift = getNextFirst(joined);
    for (size_t i = 0; i < open.members.size(); ++i) {
      joined.members.push_back(open.members[i]);
      joined.firsts.push_back(shift + open.firsts[i]);
    }
    joined.elements = shift + open.elements;
    auto padding = [&](const ShardUnit &of) { return getPadding(of.elements, ranks, unit); };
    if (padding(joined) > padding(units.back()) + padding(open))
      return close();
    units.back() = std::move(joined);
  }

  int64_t ranks, unit, elementBytes;
  ShardUnit open;
  std::vector<ShardUnit> units;
};
} // namespace

std::vector<ShardUnit> memopt::planning::formShardUnits(llvm::ArrayRef<ShardTensor> tensors,
                                                        int64_t ranks) {
  std::map<int64_t, UnitBuilder> groups;
  for (size_t number = 0; ranks > 1 && number < tensors.size(); ++number)
    if (const ShardTensor &tensor = tensors[number]; tensor.group)
      groups.try_emplace(*tensor.group, ranks, tensor).first->second.add(number, tensor.elements);
  std::vector<ShardUnit> units;
  for (auto &[group, builder] : groups)
    builder.finish(units);
  std::sort(units.begin(), units.end(), [](const ShardUnit &a, const ShardUnit &b) {
    return a.members.front() < b.members.front();
  });
  return units;
}
