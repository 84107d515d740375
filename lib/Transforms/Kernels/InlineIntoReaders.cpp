//===- InlineIntoReaders.cpp - kernels that store less --------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Kernels/InlineIntoReaders.h"

#include "KernelFusion.h"

#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::memopt;

/// Copies of the module that are tried.
static constexpr int kMaxAttempts = 64;

/// What of the bytes that the widest instruction needs may be left for another form to be worth a
/// search of its own.
static constexpr double kWorthwhile = 0.98;

//===----------------------------------------------------------------------===//
// One value
//===----------------------------------------------------------------------===//

static bool computesElementwise(Operation *op) {
  if (auto generic = dyn_cast<linalg::GenericOp>(op))
    return generic.getNumReductionLoops() == 0;
  return isFreeInKernels(op) || isa<PackBitsOp, UnpackBitsOp>(op);
}

/// The value that a kernel computes with where an operand is `argument`.
static Value getUnpacked(BlockArgument argument) {
  if (!argument.hasOneUse())
    return argument;
  auto unpack = dyn_cast<UnpackBitsOp>(*argument.user_begin());
  return unpack ? Value(unpack.getResult()) : argument;
}

/// The ops in a kernel's body that `yielded` needs, in their order, and the block arguments at
/// their ends; nothing where one of them is not elementwise.
static SmallVector<Operation *> getSlice(Value yielded, llvm::SetVector<BlockArgument> &leaves) {
  SetVector<Operation *> slice;
  Block *body = yielded.getParentBlock();
  SmallVector<Value> todo{yielded};
  while (!todo.empty()) {
    Value value = todo.pop_back_val();
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      if (argument.getOwner() == body)
        leaves.insert(argument);
      continue;
    }
    Operation *op = value.getDefiningOp();
    if (op->getBlock() != body || !slice.insert(op))
      continue;
    if (!computesElementwise(op))
      return {};
    op->walk([&](Operation *inner) { llvm::append_range(todo, inner->getOperands()); });
  }
  SmallVector<Operation *> ops = slice.takeVector();
  llvm::sort(ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return ops;
}

/// Whether the kernel has no sums and reads every element of the operand once.
static bool canComputeOperand(OpOperand &use) {
  auto reader = dyn_cast<KernelOp>(use.getOwner());
  if (!reader || !llvm::all_of(reader.getBody().front().without_terminator(),
                               [](Operation &op) { return computesElementwise(&op); }))
    return false;
  Value read = getUnpacked(reader.getBody().getArgument(use.getOperandNumber()));
  auto type = cast<RankedTensorType>(read.getType());
  return llvm::all_of(read.getUsers(), [&](Operation *user) {
    auto generic = dyn_cast<linalg::GenericOp>(user);
    return generic &&
           ShapedType::getNumElements(generic.getStaticLoopRanges()) == type.getNumElements();
  });
}

/// Variables are overwritten, by kernels that come after all readers of the old value.
static bool isWrittenBefore(Value leaf, Operation *reader) {
  auto read = getBufferRoot(leaf).getDefiningOp<ReadOp>();
  if (!read)
    return false;
  return llvm::any_of(reader->getBlock()->getOps<WriteOp>(), [&](WriteOp write) {
    Operation *maker = getBufferRoot(write.getValue()).getDefiningOp();
    return write.getVariableAttr() == read.getVariableAttr() &&
           (!maker || maker == reader || maker->isBeforeInBlock(reader));
  });
}

static bool canInline(OpResult value) {
  auto producer = dyn_cast<KernelOp>(value.getOwner());
  if (!producer || value.use_empty() || !llvm::all_of(value.getUses(), canComputeOperand))
    return false;
  llvm::SetVector<BlockArgument> leaves;
  if (getSlice(producer.getYield()->getOperand(value.getResultNumber()), leaves).empty())
    return false;
  return llvm::none_of(leaves, [&](BlockArgument leaf) {
    Value operand = producer->getOperand(leaf.getArgNumber());
    return llvm::any_of(value.getUsers(),
                        [&](Operation *reader) { return isWrittenBefore(operand, reader); });
  });
}

/// Replaces operand `use` by the ops that compute it.
static void computeOperand(OpOperand &use, KernelOp producer, unsigned result) {
  auto reader = cast<KernelOp>(use.getOwner());
  Block &body = reader.getBody().front();
  BlockArgument old = body.getArgument(use.getOperandNumber());
  llvm::SetVector<BlockArgument> leaves;
  Value yielded = producer.getYield()->getOperand(result);
  SmallVector<Operation *> slice = getSlice(yielded, leaves);
  SmallVector<Value> operands(reader.getInputs());
  IRMapping mapping;
  for (BlockArgument leaf : leaves) {
    Value operand = producer->getOperand(leaf.getArgNumber());
    auto *known = llvm::find(operands, operand);
    size_t position = known - operands.begin();
    if (known == operands.end()) {
      operands.push_back(operand);
      body.addArgument(leaf.getType(), leaf.getLoc());
    }
    mapping.map(leaf, body.getArgument(position));
  }
  OpBuilder builder = OpBuilder::atBlockBegin(&body);
  for (Operation *op : slice)
    builder.clone(*op, mapping);
  old.replaceAllUsesWith(mapping.lookup(yielded));
  operands.erase(operands.begin() + old.getArgNumber());
  body.eraseArgument(old.getArgNumber());
  reader->setOperands(operands);
}

/// Rebuilds the kernel without a result that nothing reads, and what only that needed.
static void dropResult(KernelOp kernel, unsigned dropped) {
  Block &body = kernel.getBody().front();
  kernel.getYield()->eraseOperand(dropped);
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
    if (op.use_empty() && !op.hasTrait<OpTrait::IsTerminator>())
      op.erase();
  for (unsigned number = body.getNumArguments(); number-- > 0;)
    if (body.getArgument(number).use_empty()) {
      body.eraseArgument(number);
      kernel->eraseOperand(number);
    }
  SmallVector<Value> kept;
  for (OpResult result : kernel->getResults())
    if (result.getResultNumber() != dropped)
      kept.push_back(result);
  if (!kept.empty()) {
    OpBuilder builder(kernel);
    auto smaller =
        KernelOp::create(builder, kernel.getLoc(), ValueRange(kept).getTypes(), kernel.getInputs());
    smaller.setPhase(kernel.getPhase());
    smaller.setClone(kernel.getClone());
    smaller.getBody().takeBody(kernel.getBody());
    for (auto [old, made] : llvm::zip_equal(kept, smaller.getResults()))
      old.replaceAllUsesWith(made);
  }
  kernel.erase();
}

static void inlineValue(OpResult value) {
  auto producer = cast<KernelOp>(value.getOwner());
  while (!value.use_empty())
    computeOperand(*value.getUses().begin(), producer, value.getResultNumber());
  dropResult(producer, value.getResultNumber());
}

//===----------------------------------------------------------------------===//
// What binds
//===----------------------------------------------------------------------===//

namespace {
/// The instruction that needs the most bytes by itself, and how many need as much.
struct Widest {
  int64_t instruction = -1; ///< the first of them
  int64_t bytes = -1, count = 0;

  explicit Widest(const KernelGraph &graph) {
    for (auto [number, op] : llvm::enumerate(graph.getInstructions())) {
      int64_t needed = getBytes(graph, op);
      if (needed > bytes)
        *this = Widest(static_cast<int64_t>(number), needed);
      else if (needed == bytes)
        ++count;
    }
  }
  bool isBelow(const Widest &other) const {
    return std::tie(bytes, count) < std::tie(other.bytes, other.count);
  }

private:
  Widest(int64_t instruction, int64_t bytes) : instruction(instruction), bytes(bytes), count(1) {}

  static int64_t getBytes(const KernelGraph &graph, Operation *op) {
    llvm::SmallSetVector<unsigned, 16> own;
    auto isBuffer = [](Value value) { return isa<RankedTensorType>(value.getType()); };
    for (Value value : llvm::make_filter_range(op->getOperands(), isBuffer))
      own.insert(graph.getBufferOf(value));
    DenseSet<unsigned> taken;
    for (Value value : llvm::make_filter_range(op->getResults(), isBuffer)) {
      unsigned result = graph.getBufferOf(value);
      SmallVector<unsigned> takeable = graph.getTakeableBuffers(result);
      auto *free = llvm::find_if(takeable, [&](unsigned old) { return taken.insert(old).second; });
      if (free == takeable.end())
        own.insert(result);
    }
    own.insert_range(graph.getWorkspacesOf(op));
    int64_t bytes = 0;
    for (unsigned number : own)
      if (const Buffer &buffer = graph.getBuffers()[number];
          buffer.kind != Buffer::Kind::Variable && buffer.space == Space::Device)
        bytes += buffer.bytes;
    return bytes;
  }
};
} // namespace

/// Values at the instruction that could be computed where they are read, the largest first.
static SmallVector<OpResult> getCandidates(Operation *instruction) {
  llvm::SmallSetVector<OpResult, 8> candidates;
  for (Value operand : instruction->getOperands())
    if (auto result = dyn_cast<OpResult>(operand))
      candidates.insert(result);
  candidates.insert(instruction->result_begin(), instruction->result_end());
  candidates.remove_if([](OpResult value) { return !canInline(value); });
  auto values = candidates.takeVector();
  SmallVector<std::pair<int64_t, size_t>> order;
  for (auto [number, value] : llvm::enumerate(values))
    order.push_back({-getTensorBytes(value.getType()), number});
  llvm::sort(order);
  return llvm::map_to_vector(order, [&](auto entry) { return values[entry.second]; });
}

/// Of a module that has one.
static func::FuncOp getStep(ModuleOp module) { return StepModel::create(module)->getFunction(); }

InlinedForm mlir::memopt::inlineIntoReaders(ModuleOp module) {
  InlinedForm form;
  KernelGraph given(getStep(module));
  double resident = static_cast<double>(given.getVariableBytes(Space::Device));
  double before = resident + static_cast<double>(Widest(given).bytes), after = before;
  ModuleOp current = module;
  int64_t attempts = 0;
  for (bool isBetter = true; isBetter;) {
    isBetter = false;
    KernelGraph graph(getStep(current));
    Widest widest(graph);
    after = resident + static_cast<double>(widest.bytes);
    if (widest.instruction < 0 || attempts + widest.count > kMaxAttempts)
      break;
    for (OpResult candidate : getCandidates(graph.getInstructions()[widest.instruction])) {
      ++attempts;
      IRMapping mapping;
      OwningOpRef<ModuleOp> attempt = cast<ModuleOp>(current->clone(mapping));
      inlineValue(cast<OpResult>(mapping.lookup(Value(candidate))));
      KernelGraph changed(getStep(*attempt));
      if (!Widest(changed).isBelow(widest) || !changed.getWritesNeedingCopies().empty())
        continue;
      form.module = std::move(attempt);
      ++form.values;
      current = *form.module;
      isBetter = true;
      break;
    }
  }
  return after <= kWorthwhile * before ? std::move(form) : InlinedForm();
}
