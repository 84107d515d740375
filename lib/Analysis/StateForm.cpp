//===- StateForm.cpp - how state that is there keeps a tensor ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/StateForm.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::memopt;

static constexpr StringLiteral kStateShardAttr = "memopt.state_shard";
static constexpr StringLiteral kStateSpaceAttr = "memopt.state_space";

std::string mlir::memopt::getUnitName(StringRef first) { return (first + "@unit").str(); }

VariableOp mlir::memopt::createJoined(VariableOp first, StringRef name, RankedTensorType piece) {
  OpBuilder builder(first);
  auto joined = VariableOp::create(builder, first.getLoc(), name, piece, first.getRole());
  joined.setJoined(true);
  joined.setPlacement(first.getPlacement());
  joined.setOffset(first.getOffset());
  joined.setTrainable(first.getTrainable());
  joined.setSlotAttr(first.getSlotAttr());
  joined.setInitValueAttr(first.getInitValueAttr());
  joined.setNamesAttr(builder.getArrayAttr({}));
  return joined;
}

std::optional<StateShard> StateShard::get(VariableOp variable) {
  auto facts = variable->getAttrOfType<DictionaryAttr>(kStateShardAttr);
  auto type = facts ? facts.getAs<TypeAttr>("type") : TypeAttr();
  auto part = type ? dyn_cast<RankedTensorType>(type.getValue()) : RankedTensorType();
  auto shard = facts ? facts.getAs<ShardAttr>("shard") : ShardAttr();
  if (!part || !shard)
    return std::nullopt;
  auto unit = facts.getAs<StringAttr>("unit");
  return StateShard{part, shard, unit ? unit.str() : std::string()};
}

void StateShard::attachTo(VariableOp variable) const {
  Builder b(variable.getContext());
  SmallVector<NamedAttribute> facts{b.getNamedAttr("type", TypeAttr::get(type)),
                                    b.getNamedAttr("shard", shard)};
  if (!unit.empty())
    facts.push_back(b.getNamedAttr("unit", b.getStringAttr(unit)));
  variable->setDiscardableAttr(kStateShardAttr, b.getDictionaryAttr(facts));
}

void StateShard::removeFrom(VariableOp variable) {
  variable->removeDiscardableAttr(kStateShardAttr);
}

std::optional<Space> mlir::memopt::getStateSpace(VariableOp variable) {
  auto space = variable->getAttrOfType<SpaceAttr>(kStateSpaceAttr);
  return space ? std::optional(space.getValue()) : std::nullopt;
}

void mlir::memopt::setStateSpace(VariableOp variable, Space space) {
  variable->setDiscardableAttr(kStateSpaceAttr, SpaceAttr::get(variable.getContext(), space));
}

void mlir::memopt::removeStateSpace(VariableOp variable) {
  variable->removeDiscardableAttr(kStateSpaceAttr);
}
