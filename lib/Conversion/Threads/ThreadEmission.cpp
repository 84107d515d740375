//===- ThreadEmission.cpp - stages on the threads of a device ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On a device an iteration of a stage's parallel loop belongs to a group of threads: one, a part of
// a warp, a warp, or a block. What runs over lanes on a processor runs over threads times lanes of
// a thread; everything outside of lanes is computed by every thread of the group, from the same
// addresses. So threads of a group part ways only inside lanes, where nothing is exchanged: sums
// over lanes, tiles and barriers stand outside, where the group is together.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Emission/KernelEmission.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

int64_t StageEmitter::getGroupsOfBlock(const KernelStage &stage) {
  return stage.blockThreads / stage.groupThreads;
}

/// Reads the number of this thread; at the beginning of the function.
void StageEmitter::openThreads() {
  Type i32 = builder.getI32Type(), i64 = builder.getI64Type();
  Value thread = NVVM::ThreadIdXOp::create(builder, location, i32);
  threads.inBlock = arith::ExtUIOp::create(builder, location, i64, thread);
  // In a block of one group the compiler must see that all threads take the same iterations.
  bool isBlock = stage.groupThreads == stage.blockThreads;
  Value size = constant(stage.groupThreads);
  threads.group =
      isBlock ? constant(0) : arith::DivUIOp::create(builder, location, threads.inBlock, size);
  threads.rank =
      isBlock ? threads.inBlock : arith::RemUIOp::create(builder, location, threads.inBlock, size);
  // Threads of the warp that belong to the group.
  uint32_t all = ~uint32_t(0);
  Value mask = LLVM::ConstantOp::create(builder, location, i32, builder.getI32IntegerAttr(all));
  if (stage.groupThreads < kWarpThreads) {
    Value ofFirst = LLVM::ConstantOp::create(
        builder, location, i32, builder.getI32IntegerAttr((1 << stage.groupThreads) - 1));
    Value lane = arith::RemUIOp::create(builder, location, threads.inBlock, constant(kWarpThreads));
    Value first = arith::SubIOp::create(builder, location, lane, threads.rank);
    mask = arith::ShLIOp::create(builder, location, ofFirst,
                                 arith::TruncIOp::create(builder, location, i32, first));
  }
  threads.mask = mask;
}

/// Iterations of the stage, one for each group of the grid in turn.
void StageEmitter::emitOnDevice(const llvm::BitVector &overlaid) {
  overOperand = overlaid;
  openThreads();
  Type i32 = builder.getI32Type(), i64 = builder.getI64Type();
  Value groups = constant(getGroupsOfBlock(stage));
  auto wide = [&](Value value) -> Value {
    value = arith::ExtUIOp::create(builder, location, i64, value);
    return arith::MulIOp::create(builder, location, value, groups);
  };
  Value first = wide(NVVM::BlockIdXOp::create(builder, location, i32));
  gridStep = wide(NVVM::GridDimXOp::create(builder, location, i32));
  first = arith::AddIOp::create(builder, location, first, threads.group);
  emit(first, constant(countTrips(table, stage)));
}

/// What depends on no loop is computed inside: a thread that has no iteration must not read what
/// others overwrite.
void StageEmitter::emitGridLoop(Value begin, Value end, llvm::function_ref<void(Value)> body) {
  emitLoop(begin, end, gridStep, {}, [&](Value iteration, ValueRange) {
    ScopeGuard scope(*this);
    Scope *outside = std::exchange(outermost, current);
    body(iteration);
    outermost = outside;
    return SmallVector<Value>();
  });
}

/// Until all threads of the group are here, with what they have read and written.
void StageEmitter::synchronize() {
  if (stage.groupThreads == 1)
    return;
  if (stage.groupThreads > kWarpThreads)
    NVVM::Barrier0Op::create(builder, location);
  else
    NVVM::SyncWarpOp::create(builder, location, threads.mask);
}

/// Emits `body` for the threads for which `condition` holds. What does not depend on variables
/// bound inside is computed before, by all.
void StageEmitter::emitWhere(Value condition, llvm::function_ref<void()> body) {
  auto branch = scf::IfOp::create(builder, location, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(builder);
  Operation *previous = current->child;
  Scope *outer = current;
  outer->child = branch;
  builder.setInsertionPointToStart(branch.thenBlock());
  body();
  outer->child = previous;
}

Value StageEmitter::isBelow(Value a, int64_t b) {
  return arith::CmpIOp::create(builder, location, arith::CmpIPredicate::slt, a, constant(b));
}

//===----------------------------------------------------------------------===//
// Lanes
//===----------------------------------------------------------------------===//

/// The first lane of this thread in block `block` of lanes.
Value StageEmitter::getFirstLane(int64_t lanes, Value block) {
  Value part = threads.rank;
  if (block) {
    Value before = arith::MulIOp::create(builder, location, block, constant(stage.groupThreads));
    part = arith::AddIOp::create(builder, location, before, part);
  }
  return arith::MulIOp::create(builder, location, part, constant(lanes));
}

/// This thread's lanes of block number `block`. Lanes of a thread divide the size, so that a thread
/// has all of them or none.
void StageEmitter::emitThreadBlockAt(AtomId variable, int64_t lanes, Value block,
                                     llvm::function_ref<void()> body) {
  int64_t size = table.getSize(variable);
  Value first = getFirstLane(lanes, block);
  auto emitLanes = [&] {
    emitBlock(variable, first, lanes, lanes, {}, [&](ValueRange) {
      body();
      return SmallVector<Value>();
    });
  };
  if (size % (lanes * stage.groupThreads) == 0)
    return emitLanes();
  emitWhere(isBelow(first, size), emitLanes);
}

/// Every thread of the group goes its own way through its lanes.
SmallVector<Value> StageEmitter::emitThreadLoop(AtomId variable, int64_t lanes, ValueRange carried,
                                                BodyFn body) {
  return emitLoop(getFirstLane(lanes, nullptr), constant(table.getSize(variable)),
                  lanes * stage.groupThreads, carried, [&](Value first, ValueRange arguments) {
                    return emitBlock(variable, first, lanes, lanes, arguments, body);
                  });
}

/// Whether threads of a group are at different elements here.
bool StageEmitter::areThreadsApart() {
  if (!target.isDevice() || stage.groupThreads == 1)
    return false;
  for (Scope *scope = current; scope; scope = scope->parent)
    if (scope->vector)
      return true;
  return false;
}

/// Bytes that divide the address of the lanes of `scope`, or of one element without it. Buffers
/// begin at multiples of kDeviceAlignment.
unsigned StageEmitter::getAlignment(const IndexExpr &address, Type element, Scope *scope) {
  unsigned bytes = getAlignment(element);
  if (!target.isDevice() || !scope)
    return bytes;
  auto elements = static_cast<uint64_t>(kDeviceAlignment / bytes);
  auto divide = [&](int64_t step) { elements = std::gcd(elements, static_cast<uint64_t>(step)); };
  divide(address.constant);
  for (auto [atom, coefficient] : address.terms)
    divide(atom == *scope->vector ? coefficient * scope->lanes : coefficient);
  return bytes * static_cast<unsigned>(elements);
}

//===----------------------------------------------------------------------===//
// Stores and aliases
//===----------------------------------------------------------------------===//

/// A nest whose results lie over operands waits, before its first store, for the other threads'
/// reads: those of earlier nests, and those that belong to the row and stand before its loops.
void StageEmitter::emitFencedNest(const KernelNest &nest) {
  emitNest(nest, 0);
  if (!nest.vectorLoop || !isOverOperand(nest))
    return;
  // What was emitted last is the nest's outermost loop; the reads stand before it.
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(&*std::prev(builder.getInsertionPoint()));
  synchronize();
}

/// Of a device; a processor's iterations are in the order that they are written in.
bool StageEmitter::isOverOperand(const KernelNest &nest) {
  return target.isDevice() && llvm::any_of(nest.stores, [&](const KernelStore &store) {
           return overOperand.test(store.result);
         });
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

/// Shared memory of `count` elements, the same for the same name.
Value StageEmitter::getSharedBuffer(const std::string &name, Type element, int64_t count) {
  OpBuilder::InsertionGuard guard(builder);
  auto function = builder.getInsertionBlock()->getParentOp()->getParentOfType<LLVM::LLVMFuncOp>();
  if (!function)
    function = cast<LLVM::LLVMFuncOp>(builder.getInsertionBlock()->getParentOp());
  auto module = function->getParentOfType<ModuleOp>();
  std::string symbol = (function.getName() + "_" + name).str();
  if (!module.lookupSymbol(symbol)) {
    builder.setInsertionPointToStart(module.getBody());
    auto type = LLVM::LLVMArrayType::get(getMemoryType(element), count);
    LLVM::GlobalOp::create(builder, location, type, /*isConstant=*/false, LLVM::Linkage::Internal,
                           symbol, Attribute(), /*alignment=*/kDeviceAlignment,
                           static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared));
  }
  builder.setInsertionPointToStart(&function.getBody().front());
  auto shared = LLVM::LLVMPointerType::get(builder.getContext(),
                                           static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared));
  return LLVM::AddressOfOp::create(builder, location, shared, symbol);
}
