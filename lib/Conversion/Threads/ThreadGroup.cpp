//===- ThreadGroup.cpp - the threads that share an iteration -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ThreadGroup.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::memopt;

void ThreadGroup::open() {
  Type i32 = builder.getI32Type();
  ImplicitLocOpBuilder b(location, builder);
  inBlock = ops.createThreadId(b);
  // In a block of one group the compiler must see that all threads take the same iterations.
  bool isBlock = shape.group == shape.block;
  Value size = constant(shape.group);
  group = isBlock ? constant(0) : arith::DivUIOp::create(builder, location, inBlock, size);
  rank = isBlock ? inBlock : arith::RemUIOp::create(builder, location, inBlock, size);
  // Threads of the warp that belong to the group.
  uint32_t all = ~uint32_t(0);
  mask = LLVM::ConstantOp::create(builder, location, i32, builder.getI32IntegerAttr(all));
  if (shape.group < machine.warpThreads) {
    Value ofFirst = LLVM::ConstantOp::create(builder, location, i32,
                                             builder.getI32IntegerAttr((1 << shape.group) - 1));
    Value lane = arith::RemUIOp::create(builder, location, inBlock, constant(machine.warpThreads));
    Value first = arith::SubIOp::create(builder, location, lane, rank);
    mask = arith::ShLIOp::create(builder, location, ofFirst,
                                 arith::TruncIOp::create(builder, location, i32, first));
  }
}

void ThreadGroup::synchronize() {
  if (shape.group == 1)
    return;
  ImplicitLocOpBuilder b(location, builder);
  if (shape.group > machine.warpThreads)
    ops.synchronizeBlock(b);
  else
    ops.synchronizeWarp(b, mask);
}

Value ThreadGroup::getFirstLane(int64_t lanes, Value block) {
  Value part = rank;
  if (block) {
    Value before = arith::MulIOp::create(builder, location, block, constant(shape.group));
    part = arith::AddIOp::create(builder, location, before, part);
  }
  return arith::MulIOp::create(builder, location, part, constant(lanes));
}

bool ThreadGroup::areApart() {
  if (shape.group == 1)
    return false;
  for (Scope *scope = nodes.current; scope; scope = scope->parent)
    if (scope->vector)
      return true;
  return false;
}

Value ThreadGroup::getWarp() {
  return arith::DivUIOp::create(builder, location, inBlock, constant(machine.warpThreads));
}

Value ThreadGroup::getLaneOfWarp() {
  return arith::RemUIOp::create(builder, location, inBlock, constant(machine.warpThreads));
}

Value ThreadGroup::getSharedBuffer(const std::string &name, Type element, int64_t count) {
  OpBuilder::InsertionGuard guard(builder);
  auto function = builder.getInsertionBlock()->getParentOp()->getParentOfType<LLVM::LLVMFuncOp>();
  if (!function)
    function = cast<LLVM::LLVMFuncOp>(builder.getInsertionBlock()->getParentOp());
  auto module = function->getParentOfType<ModuleOp>();
  std::string symbol = (function.getName() + "_" + name).str();
  if (!module.lookupSymbol(symbol)) {
    builder.setInsertionPointToStart(module.getBody());
    auto type = LLVM::LLVMArrayType::get(Storage::ofWhole(element).unit, count);
    LLVM::GlobalOp::create(builder, location, type, /*isConstant=*/false, LLVM::Linkage::Internal,
                           symbol, Attribute(), /*alignment=*/machine.accessBytes,
                           ops.getSharedSpace());
  }
  builder.setInsertionPointToStart(&function.getBody().front());
  auto shared = LLVM::LLVMPointerType::get(builder.getContext(), ops.getSharedSpace());
  return LLVM::AddressOfOp::create(builder, location, shared, symbol);
}
