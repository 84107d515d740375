//===- FlowOps.cpp - loops, borders and transfers -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BoundRegion.h"
#include "LoopCosts.h"
#include "memopt/Dialect/DiskBlocks.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// RepeatOp
//===----------------------------------------------------------------------===//

void RepeatOp::build(OpBuilder &builder, OperationState &state, ValueRange inputs, int64_t count,
                     bool nextBatch) {
  state.addOperands(inputs);
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.count = builder.getI64IntegerAttr(count);
  if (nextBatch)
    properties.next_batch = builder.getUnitAttr();
  Region *body = state.addRegion();
  Block &block = body->emplaceBlock();
  for (Value input : inputs)
    block.addArgument(input.getType(), input.getLoc());
  ensureTerminator(*body, builder, state.location);
}

LogicalResult RepeatOp::verify() {
  if (getBody().getArgumentTypes() != getInputs().getTypes())
    return emitOpError("expects one block argument for each operand, of its type");
  auto yield = cast<YieldOp>(getBody().front().getTerminator());
  if (!yield.getValues().empty())
    return emitOpError("gives no values; state passes through variables");
  return success();
}

int64_t RepeatOp::getFlops() {
  return sumOverBody(*this, [](CostOpInterface op) { return op.getFlops(); });
}
int64_t RepeatOp::getBytesMoved() {
  return sumOverBody(*this, [](CostOpInterface op) { return op.getBytesMoved(); });
}
std::string RepeatOp::getKindName() { return "repeat"; }
Work RepeatOp::getWork() { return Work(); }
int64_t RepeatOp::getRepeatCount() { return getCountAttr().getInt(); }
SmallVector<Block *> RepeatOp::getBodies() { return {&getBody().front()}; }

//===----------------------------------------------------------------------===//
// CommitOp
//===----------------------------------------------------------------------===//

void CommitOp::build(OpBuilder &, OperationState &state, Value loss) { state.addOperands(loss); }

LogicalResult CommitOp::verify() {
  if (cast<RankedTensorType>(getLoss().getType()).getNumElements() != 1)
    return emitOpError() << "expects a loss of one element, found " << getLoss().getType();
  return success();
}

/// Nothing moves over it: it may end the step.
void CommitOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  effects.emplace_back(MemoryEffects::Write::get());
}

int64_t CommitOp::getFlops() { return 0; }
std::string CommitOp::getKindName() { return "commit"; }
Work CommitOp::getWork() { return Work(); }

//===----------------------------------------------------------------------===//
// Transfers
//===----------------------------------------------------------------------===//

void TransferStartOp::build(OpBuilder &builder, OperationState &state, Value source, Space to) {
  state.addOperands(source);
  state.addTypes(TokenType::get(builder.getContext()));
  state.getOrAddProperties<Properties>().to = SpaceAttr::get(builder.getContext(), to);
}

LogicalResult TransferStartOp::verify() {
  if (getSpace(getSource().getType()) == getTo())
    return emitOpError() << "goes to the space that it comes from, " << stringifySpace(getTo());
  if (getResource() == Resource::Disk && getSpace(getSource().getType()) != Space::Host &&
      getTo() != Space::Host)
    return emitOpError("goes past the host: between the device and the disk lies a window there");
  return success();
}

/// The device's engines copy from and to the host; whatever touches the disk waits for the disk.
Resource TransferStartOp::getResource() {
  Space from = getSpace(getSource().getType());
  if (from == Space::Disk || getTo() == Space::Disk)
    return Resource::Disk;
  return from == Space::Device ? Resource::CopyOut : Resource::CopyIn;
}

int64_t TransferStartOp::getFlops() { return 0; }
int64_t TransferStartOp::getBytesMoved() {
  int64_t bytes = getTensorBytes(getSource().getType());
  return getResource() == Resource::Disk ? roundUpToDiskBlocks(bytes) : bytes;
}
std::string TransferStartOp::getKindName() { return "transfer_start"; }
StringRef TransferStartOp::getListName() { return "transfers"; }

Work TransferStartOp::getWork() {
  Work work;
  work.workClass =
      getResource() == Resource::Disk ? WorkClass::DiskTransfer : WorkClass::HostTransfer;
  work.bytes = static_cast<double>(getBytesMoved());
  return work;
}

llvm::json::Object TransferStartOp::describe(TargetAttrInterface) {
  return llvm::json::Object{{"bytes", getBytesMoved()},
                            {"resource", stringifyResource(getResource())}};
}

void TransferWaitOp::build(OpBuilder &, OperationState &state, Value token) {
  auto start = token.getDefiningOp<TransferStartOp>();
  state.addOperands(token);
  state.addTypes(inSpace(cast<RankedTensorType>(start.getSource().getType()), start.getTo()));
}

LogicalResult TransferWaitOp::verify() {
  auto start = getToken().getDefiningOp<TransferStartOp>();
  if (!start)
    return emitOpError("expects the token of a transfer_start");
  RankedTensorType expected =
      inSpace(cast<RankedTensorType>(start.getSource().getType()), start.getTo());
  if (getResult().getType() != expected)
    return emitOpError() << "has type " << getResult().getType() << ", expected " << expected;
  return success();
}

int64_t TransferWaitOp::getFlops() { return 0; }
int64_t TransferWaitOp::getBytesMoved() { return 0; }
std::string TransferWaitOp::getKindName() { return "transfer_wait"; }
Work TransferWaitOp::getWork() { return Work(); }
