//===- CheckIndices.cpp - checks of indices and divisors while the program runs -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Indices come from data, and data may be anything: a batch, a checkpoint, what the model computes.
// An index that the analysis of ranges does not prove to lie inside gets a memopt.check, which
// makes it harmless and reports it; so does an integer divisor that may be zero. Equal checks of
// one value are one, so that a backward pass shares those of the forward pass.
//
// Input:  the joint graph, inputs annotated (memopt-annotate-input-ranges).
// Output: the same with checks in front of the ops that need them; the table of their places
//         (`memopt.index_sites`) and the variable of role `index_fault` when there are any.
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/IntegerRanges.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Dialect/Program.h"
#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>

namespace mlir::memopt {
#define GEN_PASS_DEF_CHECKINDICESPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// What an operand must be, in the terms of memopt.check.
struct Requirement {
  int64_t min, max;
  std::optional<int64_t> ignore;
  int64_t otherwise;
  StringRef what;

  bool isMetBy(const IntegerRange &range) const {
    if (min > max) // all but what lies between
      return range.getHull().max <= max || range.getHull().min >= min;
    bool othersFit =
        !range.other || range.other == ignore || (*range.other >= min && *range.other <= max);
    return range.isWithin(min, max) && othersFit;
  }
};

/// Puts checks in front of uses and remembers their places.
class Checker {
public:
  explicit Checker(ModuleOp module) : module(module), builder(module.getContext()) {}

  LogicalResult check(OpOperand &operand, const Requirement &requirement) {
    if (requirement.isMetBy(ranges.get(operand.get())))
      return success();
    auto key = std::make_tuple(operand.get().getAsOpaquePointer(), requirement.min, requirement.max,
                               requirement.ignore);
    auto [entry, isNew] = checks.try_emplace(key, nullptr);
    if (isNew) {
      FailureOr<Value> made = createCheck(operand, requirement);
      if (failed(made))
        return failure();
      entry->second = *made;
    }
    operand.set(entry->second);
    return success();
  }
  bool isChecked(Value value, int64_t size) const {
    // Whatever index is ignored, which is the last of the key, none first.
    auto entry = checks.lower_bound({value.getAsOpaquePointer(), 0, size - 1, std::nullopt});
    if (entry == checks.end())
      return false;
    auto [checked, min, max, ignore] = entry->first;
    return checked == value.getAsOpaquePointer() && min == 0 && max == size - 1;
  }
  /// Declares what checks need, if there are any.
  void finish();

private:
  FailureOr<Value> createCheck(OpOperand &operand, const Requirement &requirement);
  FailureOr<int64_t> getSite(Operation *user, DictionaryAttr description);

  ModuleOp module;
  OpBuilder builder;
  IntegerRanges ranges;
  std::map<std::tuple<const void *, int64_t, int64_t, std::optional<int64_t>>, Value> checks;
  SmallVector<Attribute> sites;
  DenseMap<Attribute, int64_t> numbers; ///< of sites by what they say, the first of each
};
} // namespace

/// What users call the op.
static StringRef nameOf(Operation *op) {
  return isa<MemoptDialect>(op->getDialect()) ? op->getName().stripDialect() : "integer division";
}

/// The check stands where the value is there first, so that all its users may share it.
FailureOr<Value> Checker::createCheck(OpOperand &operand, const Requirement &requirement) {
  Operation *user = operand.getOwner();
  auto number = [&](int64_t value) { return builder.getI64IntegerAttr(value); };
  auto text = [&](StringRef value) { return builder.getStringAttr(value); };
  FailureOr<int64_t> site =
      getSite(user, builder.getDictionaryAttr(
                        {builder.getNamedAttr("module", text(getModulePath(user->getLoc()))),
                         builder.getNamedAttr("op", text(nameOf(user))),
                         builder.getNamedAttr("min", number(requirement.min)),
                         builder.getNamedAttr("max", number(requirement.max)),
                         builder.getNamedAttr("what", text(requirement.what))}));
  if (failed(site))
    return failure();
  OpBuilder b(user);
  b.setInsertionPointAfterValue(operand.get());
  auto check = CheckOp::create(b, user->getLoc(), operand.get(), requirement.min, requirement.max,
                               requirement.ignore ? number(*requirement.ignore) : IntegerAttr(),
                               requirement.otherwise, *site);
  return Value(check);
}

/// A number of its own, or where the word of a report has none left, that of a site which says the
/// same.
FailureOr<int64_t> Checker::getSite(Operation *user, DictionaryAttr description) {
  int64_t next = static_cast<int64_t>(sites.size());
  auto first = numbers.try_emplace(description, next).first;
  if (next == kMostIndexSites) {
    if (first->second < next)
      return first->second;
    return user->emitOpError() << "is the place of check " << next + 1
                               << " of an index; a program reports of at most " << kMostIndexSites
                               << " that differ";
  }
  sites.push_back(description);
  return next;
}

void Checker::finish() {
  if (sites.empty())
    return;
  module->setAttr(MemoptDialect::kIndexSitesAttr, builder.getArrayAttr(sites));
  builder.setInsertionPointToStart(module.getBody());
  auto type = RankedTensorType::get({}, builder.getI64Type());
  std::string name = "index_fault";
  while (module.lookupSymbol(name))
    name += "_";
  VariableOp::create(builder, module.getLoc(), name, type, Role::IndexFault).setTransient(true);
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

static Requirement getRequirement(const IndexUse &use) {
  return {0, use.size - 1, use.ignore, use.skips ? -1 : 0, use.what};
}

namespace {
struct CheckIndicesPass : mlir::memopt::impl::CheckIndicesPassBase<CheckIndicesPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    Checker checker(module);
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal())
        for (Block *block : getProgramBlocks(function.getBody().front()))
          if (failed(checkBlock(*block, checker)))
            return signalPassFailure();
    checker.finish();
  }

private:
  static LogicalResult checkBlock(Block &block, Checker &checker) {
    SmallVector<IndexUse> skipping;
    for (Operation &op : llvm::make_early_inc_range(block)) {
      if (OpOperand *divisor = getIntegerDivisor(&op))
        if (failed(checker.check(*divisor, {1, -1, std::nullopt, 1, "divisors"})))
          return failure();
      auto indexing = dyn_cast<IndexingOpInterface>(op);
      if (!indexing)
        continue;
      for (const IndexUse &use : indexing.getIndexUses())
        if (use.skips)
          skipping.push_back(use);
        else if (failed(checker.check(*use.operand, getRequirement(use))))
          return failure();
    }
    // What leaves out bad indices by itself need not report those that were reported before.
    for (const IndexUse &use : skipping)
      if (!checker.isChecked(use.operand->get(), use.size) &&
          failed(checker.check(*use.operand, getRequirement(use))))
        return failure();
    return success();
  }
};
} // namespace
