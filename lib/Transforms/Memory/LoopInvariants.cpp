//===- LoopInvariants.cpp - what leaves a loop ------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LoopInvariants.h"

#include "memopt/Analysis/FrozenVariable.h"
#include "memopt/Dialect/Kernels/KernelBody.h"
#include "memopt/Transforms/Libraries/LibraryCallBuilder.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

#include <map>
#include <unordered_map>

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

static Value skipReshapes(Value value) {
  while (isReshape(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

namespace {
/// Which values one loop does not change. The body of a scan is a function of its arguments: it reads
/// no variable.
class LoopReads {
public:
  explicit LoopReads(InstructionOpInterface loop) : loop(loop), body(loop.getBodies().front()) {
    for (auto variable : loop->getParentOfType<ModuleOp>().getOps<VariableOp>())
      variables[variable.getSymNameAttr()] = variable;
    loop.walk([&](WriteOp write) { written.insert(write.getVariableAttr().getAttr()); });
  }

  /// What `value` is outside of the loop: a variable's name, or an operand of the loop; null where
  /// the loop changes it.
  const void *getSource(Value value) const {
    value = skipReshapes(value);
    if (auto read = value.getDefiningOp<ReadOp>()) {
      StringAttr name = read.getVariableAttr().getAttr();
      VariableOp variable = variables.lookup(name);
      // With the next batch the runtime says how many samples were before it.
      bool isFixed = !written.contains(name) && variable.getPlacement() == Space::Device &&
                     variable.getRole() != Role::Hyperparameter;
      return isFixed ? name.getAsOpaquePointer() : nullptr;
    }
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || argument.getOwner() != body)
      return nullptr;
    Value outside = loop->getOperand(argument.getArgNumber());
    if (auto scan = dyn_cast<ScanOp>(*loop))
      return argument.getArgNumber() < scan.getFixed().size() ? outside.getAsOpaquePointer()
                                                              : nullptr;
    // Each iteration may begin with another batch in the arguments of the step.
    return isa<BlockArgument>(getBufferRoot(outside)) ? nullptr : outside.getAsOpaquePointer();
  }

  /// Whether a variable keeps the value in codes: widened for all iterations it would take the
  /// bytes that these save.
  bool isEncoded(Value value) const {
    value = skipReshapes(value);
    auto read = value.getDefiningOp<ReadOp>();
    return read && FrozenVariable::get(variables.lookup(read.getVariableAttr().getAttr()));
  }

private:
  mutable InstructionOpInterface loop;
  Block *body;
  llvm::DenseMap<StringAttr, VariableOp> variables;
  llvm::DenseSet<StringAttr> written;
};
} // namespace

namespace {
/// Kernels of a loop by what they compute, whatever pass they belong to, and of what.
class KnownKernels {
public:
  using Sources = SmallVector<const void *, 4>;

  /// The number of `kernel`, and whether no other kernel had it.
  std::pair<size_t, bool> insert(KernelOp kernel, Sources sources, size_t number) {
    OwningOpRef<KernelOp> copy = cast<KernelOp>(kernel->clone());
    copy->walk([](Operation *op) {
      op->removeDiscardableAttr(MemoptDialect::kPhaseAttr);
      op->removeDiscardableAttr(MemoptDialect::kCloneAttr);
    });
    SmallVector<Known> &alike = known[hashBody(*copy)];
    for (Known &other : alike)
      if (other.sources == sources && haveEqualBodies(*other.kernel, *copy))
        return {other.number, false};
    alike.push_back({std::move(copy), std::move(sources), number});
    return {number, true};
  }

private:
  struct Known {
    OwningOpRef<KernelOp> kernel;
    Sources sources;
    size_t number;
  };
  std::unordered_map<size_t, SmallVector<Known>> known;
};
} // namespace

/// Whether nothing happens in the kernel but its results, and these are read in the loop alone.
static bool mayLeave(KernelOp kernel) {
  bool hasChecks = kernel.walk([](CheckOp) { return WalkResult::interrupt(); }).wasInterrupted();
  return kernel.getNumOperands() != 0 && kernel.getResource() == Resource::Compute && !hasChecks &&
         llvm::all_of(kernel->getUsers(), [](Operation *user) {
           return isa<InstructionOpInterface>(user) || isReshape(user);
         });
}

void mlir::memopt::collectKernels(RepeatOp loop, const CostModel &costs,
                                  SmallVectorImpl<Invariant> &invariants) {
  LoopReads reads(loop);
  KnownKernels known;
  for (auto kernel : loop.getBody().front().getOps<KernelOp>()) {
    if (!mayLeave(kernel))
      continue;
    KnownKernels::Sources sources;
    for (Value input : kernel.getInputs())
      sources.push_back(reads.getSource(input));
    if (llvm::is_contained(sources, nullptr) ||
        llvm::any_of(kernel.getInputs(), [&](Value input) { return reads.isEncoded(input); }))
      continue;
    auto [number, isNew] = known.insert(kernel, std::move(sources), invariants.size());
    if (isNew) {
      invariants.push_back({loop, invariants.size()});
      for (Type type : kernel.getResultTypes())
        invariants.back().bytes += getTensorBytes(type);
    }
    Invariant &invariant = invariants[number];
    invariant.addSavings(costs.getNanoseconds(kernel), loop.getRepeatCount() - (isNew ? 1 : 0));
    invariant.instructions.push_back(kernel);
  }
}

//===----------------------------------------------------------------------===//
// Packed weights
//===----------------------------------------------------------------------===//

/// How the target's library would take the weights of `call`; null where it takes them as they are.
static PackWeightsAttr getPacking(LibraryCallOp call) {
  LibraryCallAttrInterface plain = call.getCall();
  if (plain.getPackedWeightBytes() || !plain.withPackedWeights(0))
    return nullptr;
  int64_t bytes = getTarget(call).getPackedWeightBytes(plain);
  return bytes ? PackWeightsAttr::get(call.getContext(), plain.withPackedWeights(bytes)) : nullptr;
}

void mlir::memopt::collectPackings(InstructionOpInterface loop, const CostModel &costs,
                                   SmallVectorImpl<Invariant> &invariants) {
  LoopReads reads(loop);
  DenseMap<Attribute, PackWeightsAttr> packings;
  std::map<std::tuple<const void *, int64_t, const void *>, size_t> known;
  for (auto call : loop.getBodies().front()->getOps<LibraryCallOp>()) {
    auto [packing, isAsked] = packings.try_emplace(call.getCallAttr());
    if (isAsked)
      packing->second = getPacking(call);
    const void *source =
        packing->second ? reads.getSource(call.getInputs()[kPackedOperand]) : nullptr;
    if (!source)
      continue;
    auto [entry, isNew] = known.try_emplace(
        {packing->second.getAsOpaquePointer(), call.getOperandOffsets()[kPackedOperand], source},
        invariants.size());
    int64_t bytes = packing->second.getCall().getPackedWeightBytes();
    if (isNew)
      invariants.push_back({loop, invariants.size(), {}, packing->second, bytes});
    Invariant &invariant = invariants[entry->second];
    invariant.addSavings(costs.getTransferNanoseconds(bytes),
                         loop.getRepeatCount() - (isNew ? 1 : 0));
    invariant.instructions.push_back(call);
  }
}

//===----------------------------------------------------------------------===//
// Leaving
//===----------------------------------------------------------------------===//

/// The same value in front of the loop.
static Value getOutside(Value value, Operation *loop, OpBuilder &builder) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return loop->getOperand(argument.getArgNumber());
  Operation *op = value.getDefiningOp();
  IRMapping mapping;
  if (!isa<ReadOp>(op))
    mapping.map(op->getOperand(0), getOutside(op->getOperand(0), loop, builder));
  return builder.clone(*op, mapping)->getResult(0);
}

static void eraseUnusedViews(Operation *op) {
  if (!op || !op->use_empty() || !(isa<ReadOp>(op) || isReshape(op)))
    return;
  Operation *next = op->getNumOperands() ? op->getOperand(0).getDefiningOp() : nullptr;
  op->erase();
  eraseUnusedViews(next);
}

/// `value`, as the loop's body sees it.
static Value bringInto(Operation *loop, Value value) {
  Block &body = loop->getRegion(0).front();
  auto scan = dyn_cast<ScanOp>(loop);
  if (!scan) {
    loop->insertOperands(loop->getNumOperands(), value);
    return body.addArgument(value.getType(), value.getLoc());
  }
  scan.getFixedMutable().append(value);
  return body.insertArgument(scan.getFixed().size() - 1, value.getType(), value.getLoc());
}

/// Plain weights that nobody in a scan reads any more need not live through it.
static void eraseIfUnused(ScanOp scan, BlockArgument fixed) {
  if (!fixed.use_empty())
    return;
  unsigned number = fixed.getArgNumber();
  scan.getFixedMutable().erase(number);
  scan.getBody().front().eraseArgument(number);
}

/// Erases an instruction without users, and what nobody else needs of what it read.
static void eraseWithViews(Operation *op) {
  llvm::SmallSetVector<Value, 4> inputs(op->operand_begin(), op->operand_end());
  op->erase();
  for (Value input : inputs)
    eraseUnusedViews(input.getDefiningOp());
}

static void hoistKernels(const Invariant &invariant) {
  Operation *loop = invariant.loop;
  OpBuilder builder(loop);
  IRMapping mapping;
  Operation *first = invariant.instructions.front();
  for (Value input : first->getOperands())
    mapping.map(input, getOutside(input, loop, builder));
  Operation *outside = builder.clone(*first, mapping);
  for (auto [number, value] : llvm::enumerate(outside->getResults())) {
    Value inside = bringInto(loop, value);
    for (Operation *kernel : invariant.instructions)
      kernel->getResult(number).replaceAllUsesWith(inside);
  }
  llvm::for_each(invariant.instructions, eraseWithViews);
}

static LogicalResult hoistPacking(const Invariant &invariant) {
  Operation *loop = invariant.loop;
  OpBuilder builder(loop);
  auto first = cast<LibraryCallOp>(invariant.instructions.front());
  BufferView packed = invariant.packing.getViews().back();
  Value weights = first.getInputs()[kPackedOperand];
  auto argument = dyn_cast<BlockArgument>(skipReshapes(weights));
  Value plain = getOutside(weights, loop, builder);
  auto packing =
      createLibraryCall(builder, first, RankedTensorType::get(packed.extents, packed.elementType),
                        plain, invariant.packing, {first.getOperandOffsets()[kPackedOperand]});
  if (failed(packing))
    return failure();
  Value inside = bringInto(loop, packing->getResult(0));
  for (Operation *op : invariant.instructions) {
    auto call = cast<LibraryCallOp>(op);
    SmallVector<Value> inputs(call.getInputs());
    SmallVector<int64_t> offsets(call.getOperandOffsets());
    inputs[kPackedOperand] = inside;
    offsets[kPackedOperand] = 0;
    OpBuilder here(call);
    auto reader = createLibraryCall(here, call, call.getResultTypes(), inputs,
                                    invariant.packing.getCall(), offsets);
    if (failed(reader))
      return failure();
    reader->setClone(call.getClone());
    call.replaceAllUsesWith(*reader);
    eraseWithViews(call);
  }
  if (auto scan = dyn_cast<ScanOp>(loop); scan && argument)
    eraseIfUnused(scan, argument);
  return success();
}

SmallVector<std::pair<LibraryCallOp, LibraryCallOp>> mlir::memopt::findSharedPackings(Block &body) {
  std::map<std::tuple<const void *, const void *, int64_t, Phase>, LibraryCallOp> known;
  SmallVector<std::pair<LibraryCallOp, LibraryCallOp>> found;
  for (auto call : body.getOps<LibraryCallOp>()) {
    if (!isa<PackWeightsAttr>(call.getCall()))
      continue;
    auto [first, isNew] = known.try_emplace({call.getCallAttr().getAsOpaquePointer(),
                                             call.getInputs()[0].getAsOpaquePointer(),
                                             call.getOperandOffsets()[0], call.getPhase()},
                                            call);
    if (!isNew)
      found.push_back({call, first->second});
  }
  return found;
}

int64_t mlir::memopt::sharePackings(Block &body) {
  SmallVector<std::pair<LibraryCallOp, LibraryCallOp>> found = findSharedPackings(body);
  for (auto [call, first] : found) {
    call.replaceAllUsesWith(first);
    call.erase();
  }
  return static_cast<int64_t>(found.size());
}

LogicalResult mlir::memopt::hoist(const Invariant &invariant) {
  if (invariant.packing)
    return hoistPacking(invariant);
  hoistKernels(invariant);
  return success();
}
