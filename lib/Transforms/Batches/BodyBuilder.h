//===- BodyBuilder.h - what runs for each micro-batch, as a loop -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One loop of split-batch: the body of a repeat, built out of ops of the graph as it was, and the
// variables through which its iterations talk.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_BATCHES_BODYBUILDER_H
#define MEMOPT_LIB_TRANSFORMS_BATCHES_BODYBUILDER_H

#include "MicroBatches.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

namespace mlir::memopt {

/// Makes the variables through which iterations talk, and accesses to them.
class LoopVariables {
public:
  explicit LoopVariables(const StepModel &step)
      : module(step.getModule()), step(step.getFunction()), symbols(module) {}

  VariableOp create(const Twine &name, RankedTensorType type, Role role) {
    OpBuilder builder(module.getContext());
    auto variable = VariableOp::create(builder, module.getLoc(), name.str(), type, role);
    symbols.insert(variable, Block::iterator(step));
    variable.setNamesAttr(builder.getStrArrayAttr({variable.getSymName()}));
    return variable;
  }

  static Value read(OpBuilder &builder, Location location, VariableOp variable, Phase phase) {
    auto read = ReadOp::create(builder, location, variable.getTensorType(), variable.getSymName());
    setPhase(read, phase);
    return read;
  }
  static void write(OpBuilder &builder, Location location, Value value, VariableOp variable,
                    Phase phase) {
    setPhase(WriteOp::create(builder, location, value, variable.getSymName()), phase);
  }
  VariableOp lookUp(FlatSymbolRefAttr name) const {
    return symbols.lookup<VariableOp>(name.getAttr());
  }

private:
  ModuleOp module;
  Operation *step; ///< in front of which variables stand
  SymbolTable symbols;
};

/// What one update's samples are cut into.
struct Cut {
  int64_t iterations; ///< micro-batches of a rank
  int64_t ranks;
  bool syncsBatchNorm; ///< statistics are those of a micro-batch of all ranks

  int64_t getParts() const { return iterations * ranks; }
};

/// Sums up one value over the iterations of a loop.
struct LoopSum {
  Value value; ///< in the graph as it was
  VariableOp sum;
  /// Of this rank's part of the sum over ranks, where each iteration adds up that alone; or null.
  RankedTensorType shard;
  /// The vector of values, of which `value` is the last to be made, that are shared out together;
  /// or null.
  PackOp pack = nullptr;
};

/// Builds the body of one repeat out of ops of the graph as it was.
class BodyBuilder {
public:
  /// `totals`: of the loops in front of this one.
  BodyBuilder(const MicroBatches &plan, const BatchModel &batch, RepeatOp repeat, Cut cut,
              const DenseMap<StringAttr, VariableOp> &shadows, const DenseMap<Value, Value> &totals)
      : plan(plan), batch(batch), repeat(repeat), cut(cut), shadows(shadows), totals(totals),
        builder(OpBuilder::atBlockTerminator(&repeat.getBody().front())) {
    mapping.map(repeat.getInputs(), repeat.getBody().getArguments());
  }

  /// A copy of `op`, with what it reads made known there.
  void add(Operation *op);
  void accumulate(const LoopSum &accumulator);
  /// Updates of buffers, as if the ranks came one after the other.
  void addUpdatesOfRanks(ArrayRef<Operation *> updates);
  Value lookUp(Value original) const { return mapping.lookup(original); }

private:
  void placeDraw(DrawOpInterface draw, Value original);
  Value createFirstElement(Operation *draw, int64_t perSample);
  Value readFirstSample(Location location, Phase phase);
  void provide(Value value, Operation *user);
  Value bringInside(Value value);
  Value provideTotal(Value value);
  Value createCounted(Value value, int64_t batches);
  int64_t countBatchesFor(Operation *user) const;
  void synchronize(Operation *copy, Operation *original);
  void redirect(Operation *copy);

  const MicroBatches &plan;
  const BatchModel &batch;
  RepeatOp repeat;
  Cut cut;
  const DenseMap<StringAttr, VariableOp> &shadows;
  const DenseMap<Value, Value> &totals;
  OpBuilder builder;
  IRMapping mapping;
  DenseMap<Value, Value> totalsInside; ///< by what a micro-batch makes of it
};

/// What `op` counts in so many batches: what counts no samples is the same for any.
Value createCount(OpBuilder &builder, const BatchModel &batch, CountOp op, int64_t batches);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_BATCHES_BODYBUILDER_H
