//===- FormKernels.cpp - groups ops into kernels and library calls --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Idea:    library ops become calls (FormLibraryCalls.cpp); KernelFusion decides which of the other
//          ops share a kernel; here the kernels are built as it says.
// Input:   linalg.generic, views, constants, reads, writes, marks and the ops that libraries
// compute
//          (memopt-lower-to-linalg).
// Output:  the kernel graph. A kernel's operands are buffers: results of kernels and calls, reads
//          and arguments of the step. Whatever lies between a buffer and a member (views,
//          constants, inlined ops) is copied into each kernel.
// Bits:    never change; a kernel evaluates the same scalar expressions.
//
//===----------------------------------------------------------------------===//

#include "KernelFusion.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Libraries/FormLibraryCalls.h"
#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_FORMKERNELSPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// One kernel
//===----------------------------------------------------------------------===//

namespace {
/// Copies a unit and what it reads into the body of a new kernel.
class KernelBuilder {
public:
  /// `positions` numbers the block's ops as they stood before kernels were formed.
  KernelBuilder(const KernelFusion &fusion, ArrayRef<Operation *> unit,
                const llvm::DenseMap<Operation *, unsigned> &positions)
      : fusion(fusion), unit(unit), positions(positions) {}

  /// Builds the kernel in front of `before`, or nothing when no value of the unit is used outside.
  void build(Operation *before, llvm::DenseMap<Value, Value> &replacements) {
    SmallVector<Value> results = getResults();
    for (Operation *op : unit)
      include(op);
    OpBuilder b(before);
    SmallVector<Value> inputs = buffers.takeVector();
    for (Value &input : inputs)
      input = replacements.lookup_or(input, input);
    auto kernel = KernelOp::create(b, getLocation(), ValueRange(results).getTypes(), inputs);
    copyAttributes(kernel, results);
    Block &body = kernel.getBody().emplaceBlock();
    IRMapping mapping;
    for (Value buffer : order)
      mapping.map(buffer, body.addArgument(buffer.getType(), buffer.getLoc()));
    b.setInsertionPointToStart(&body);
    for (Operation *op : sortedOps()) {
      Operation *member = b.clone(*op, mapping);
      member->removeDiscardableAttr(MemoptDialect::kActivationsAttr);
      member->removeDiscardableAttr(MemoptDialect::kNarrowedAttr);
    }
    SmallVector<Value> yielded =
        llvm::map_to_vector(results, [&](Value value) { return mapping.lookup(value); });
    YieldOp::create(b, kernel.getLoc(), yielded);
    for (auto [old, made] : llvm::zip_equal(results, kernel.getResults()))
      replacements[old] = made;
  }

private:
  /// Values that something outside of this unit reads, inlined readers counted where they end up.
  SmallVector<Value> getResults() const {
    SmallVector<Value> results;
    for (Operation *op : unit)
      for (Value result : op->getResults())
        if (isReadOutside(result))
          results.push_back(result);
    return results;
  }

  bool isReadOutside(Value value) const {
    llvm::SmallPtrSet<Operation *, 8> seen;
    SmallVector<Operation *> todo(value.getUsers());
    while (!todo.empty()) {
      Operation *user = todo.pop_back_val();
      while (user->getBlock() != unit.front()->getBlock())
        user = user->getParentOp();
      if (llvm::is_contained(unit, user) || !seen.insert(user).second)
        continue;
      // A reshape at the end of the way is an alias of the buffer for the op behind it.
      if (!fusion.isComputedInReaders(user))
        return true;
      llvm::append_range(todo, user->getUsers());
    }
    return false;
  }

  /// In the order in which a walk into each operand's own operands first meets buffers.
  void include(Operation *root) {
    SmallVector<Value> todo;
    auto open = [&](Operation *op) {
      if (!included.insert(op).second)
        return;
      ops.push_back(op);
      SmallVector<Value> read;
      op->walk([&](Operation *inner) {
        for (Value value : inner->getOperands())
          if (value.getParentBlock() == root->getBlock())
            read.push_back(value);
      });
      todo.append(read.rbegin(), read.rend());
    };
    open(root);
    while (!todo.empty()) {
      Value value = todo.pop_back_val();
      Operation *source = value.getDefiningOp();
      if (source && (llvm::is_contained(unit, source) || fusion.isComputedInReaders(source)))
        open(source);
      else if (buffers.insert(value))
        order.push_back(value);
    }
  }

  SmallVector<Operation *> sortedOps() {
    llvm::sort(
        ops, [&](Operation *a, Operation *b) { return positions.lookup(a) < positions.lookup(b); });
    return ops;
  }

  Location getLocation() const {
    SmallVector<Location> locations =
        llvm::map_to_vector(unit, [](Operation *op) { return op->getLoc(); });
    return FusedLoc::get(unit.front()->getContext(), locations);
  }

  /// The phase of its members, which is one, the number of the clone that all of them are, and the
  /// numbers of activations.
  void copyAttributes(KernelOp kernel, ArrayRef<Value> results) const {
    kernel.setPhase(getPhase(unit.front()));
    SmallVector<int64_t> activations = llvm::map_to_vector(
        results, [](Value value) { return getActivationNumber(cast<OpResult>(value)); });
    if (llvm::any_of(activations, [](int64_t number) { return number >= 0; }))
      kernel->setDiscardableAttr(MemoptDialect::kActivationsAttr,
                                 DenseI64ArrayAttr::get(kernel.getContext(), activations));
    Attribute clone = unit.front()->getDiscardableAttr(MemoptDialect::kCloneAttr);
    bool isClone = clone && llvm::all_of(unit, [&](Operation *op) {
                     return op->getDiscardableAttr(MemoptDialect::kCloneAttr) == clone;
                   });
    if (isClone)
      kernel.setClone(cast<IntegerAttr>(clone).getInt());
  }

  const KernelFusion &fusion;
  ArrayRef<Operation *> unit;
  const llvm::DenseMap<Operation *, unsigned> &positions;
  llvm::SmallPtrSet<Operation *, 16> included;
  SmallVector<Operation *> ops;
  llvm::SetVector<Value> buffers;
  SmallVector<Value> order;
};
} // namespace

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

static void eraseDeadOps(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

/// Scalars are computed inside kernels; between instructions there are buffers alone.
static LogicalResult verifyStoredScalars(Block &block) {
  for (Operation &op : block) {
    if (isFreeInKernels(&op) || isa<linalg::GenericOp>(op))
      continue;
    for (Value operand : op.getOperands())
      if (Operation *source = operand.getDefiningOp();
          source && isFreeInKernels(source) && !isa<RankedTensorType>(operand.getType()))
        return op.emitOpError() << "reads a scalar of type " << operand.getType()
                                << " outside of a kernel, expected tensors";
  }
  return success();
}

namespace {
struct FormKernelsPass : mlir::memopt::impl::FormKernelsPassBase<FormKernelsPass> {
  using FormKernelsPassBase::FormKernelsPassBase;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (failed(verifyTensorGraph(func)))
      return signalPassFailure();
    if (func.isExternal())
      return;
    // Inner blocks first: what nobody inside uses any more is dead outside.
    giveWritesTheirConstants(func);
    SmallVector<Block *> blocks = getProgramBlocks(func.getBody().front());
    for (Block *block : llvm::reverse(blocks)) {
      shareReads(*block);
      eraseDeadOps(*block);
      if (failed(formLibraryCalls(*block)))
        return signalPassFailure();
      eraseDeadOps(*block);
      if (failed(verifyStoredScalars(*block)))
        return signalPassFailure();
      formKernels(*block);
      eraseDeadOps(*block);
    }
  }

private:
  /// A constant that is written stands in front of its write: as a buffer it would be shared, kept,
  /// and moved over loops that change what it was written to.
  static void giveWritesTheirConstants(func::FuncOp func) {
    func.walk([](WriteOp write) {
      if (Operation *constant = write.getValue().getDefiningOp<arith::ConstantOp>())
        write.getValueMutable().assign(OpBuilder(write).clone(*constant)->getResult(0));
    });
  }

  /// One value for a phase's reads of a variable between its writes: two operands of a kernel are
  /// two buffers, of which it may overwrite one while it reads the other.
  static void shareReads(Block &block) {
    llvm::DenseMap<StringAttr, ReadOp> known;
    for (Operation &op : llvm::make_early_inc_range(block)) {
      op.walk([&](WriteOp write) { known.erase(write.getVariableAttr().getAttr()); });
      auto read = dyn_cast<ReadOp>(op);
      if (!read)
        continue;
      auto [entry, isNew] = known.try_emplace(read.getVariableAttr().getAttr(), read);
      ReadOp first = entry->second;
      if (isNew || getPhase(first) != getPhase(read) ||
          first.getResult().getType() != read.getResult().getType())
        continue;
      read.getResult().replaceAllUsesWith(first.getResult());
      read.erase();
    }
  }

  /// Rebuilds the block in the order of units; ops that are no kernels move, with the reshapes that
  /// they read in front of them.
  static void formKernels(Block &block) {
    KernelFusion fusion(block);
    llvm::DenseMap<Operation *, unsigned> positions;
    for (auto [number, op] : llvm::enumerate(block))
      positions[&op] = number;
    Operation *end = block.getTerminator();
    llvm::DenseMap<Value, Value> replacements;
    for (ArrayRef<Operation *> unit : fusion.getUnits()) {
      Operation *first = unit.front();
      bool isKernel = isa<linalg::GenericOp>(first) || first->hasTrait<OpTrait::FillsKernel>() ||
                      isFreeInKernels(first);
      if (isKernel) {
        KernelBuilder(fusion, unit, positions).build(end, replacements);
      } else {
        moveAliases(first, end, replacements);
        if (first != end)
          first->moveBefore(end);
      }
    }
    for (auto mark : llvm::make_early_inc_range(block.getOps<GradientOp>()))
      moveToMaker(mark);
  }

  /// A gradient's bytes may be overwritten when it was used, so its mark stands where it is made.
  static void moveToMaker(GradientOp mark) {
    SmallVector<Operation *> moved{mark};
    Value value = mark.getValue();
    for (; isReshape(value.getDefiningOp()); value = value.getDefiningOp()->getOperand(0))
      moved.push_back(value.getDefiningOp());
    Operation *last = value.getDefiningOp();
    if (!isInstruction(last) || last->getBlock() != mark->getBlock())
      return;
    for (Operation *op : llvm::reverse(moved)) {
      op->moveAfter(last);
      last = op;
    }
  }

  /// Gives `op` its operands' new values, reshapes copied behind what they rename.
  static void moveAliases(Operation *op, Operation *end,
                          llvm::DenseMap<Value, Value> &replacements) {
    for (OpOperand &operand : op->getOpOperands())
      operand.set(getAlias(operand.get(), end, replacements));
  }

  static Value getAlias(Value value, Operation *end, llvm::DenseMap<Value, Value> &replacements) {
    if (Value made = replacements.lookup(value))
      return made;
    Operation *op = value.getDefiningOp();
    if (!isReshape(op))
      return value;
    Value source = getAlias(op->getOperand(0), end, replacements);
    IRMapping mapping;
    mapping.map(op->getOperand(0), source);
    Value made = OpBuilder(end).clone(*op, mapping)->getResult(0);
    replacements[value] = made;
    return made;
  }
};
} // namespace
