//===- MemoptInterfaces.cpp - contracts between ops and passes --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Interfaces/MemoptInterfaces.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

#include "memopt/Interfaces/MemoptAttrInterfaces.cpp.inc"
#include "memopt/Interfaces/MemoptEnums.cpp.inc"
#include "memopt/Interfaces/MemoptInterfaces.cpp.inc"

int64_t mlir::memopt::multiplyCounts(ArrayRef<int64_t> factors) {
  int64_t product = 1;
  for (int64_t factor : factors)
    if (llvm::MulOverflow(product, factor, product) || product > kMaxCount)
      product = kMaxCount; // a later 0 gives 0 all the same
  return product;
}

bool mlir::memopt::hasBoundedShape(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape())
    return false;
  SmallVector<int64_t> sizes(tensor.getShape());
  for (int64_t &size : sizes)
    size = std::max<int64_t>(1, size);
  return multiplyCounts(sizes) <= kMaxElements;
}

int64_t mlir::memopt::getTensorBytes(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape())
    return 0;
  unsigned bits = tensor.getElementType().isIndex() ? 64 : tensor.getElementTypeBitWidth();
  return multiplyCounts({multiplyCounts(tensor.getShape()), static_cast<int64_t>((bits + 7) / 8)});
}

int64_t mlir::memopt::getBufferAlignment(int64_t bytes, int64_t least) {
  if (bytes >= 64)
    return 64;
  return std::max<int64_t>(least, llvm::PowerOf2Ceil(std::max<int64_t>(bytes, 1)));
}

int64_t mlir::memopt::getOperandAndResultBytes(Operation *op) {
  int64_t bytes = 0;
  for (Type type : op->getOperandTypes())
    bytes = addCounts(bytes, getTensorBytes(type));
  for (Type type : op->getResultTypes())
    bytes = addCounts(bytes, getTensorBytes(type));
  return bytes;
}

int64_t memopt::BufferView::getReach() const {
  int64_t reach = 0;
  for (auto [extent, stride] : llvm::zip_equal(extents, strides))
    reach += (extent - 1) * stride;
  return reach;
}

LogicalResult mlir::memopt::verifyInstruction(Operation *op) {
  auto instruction = cast<InstructionOpInterface>(op);
  DenseI64ArrayAttr offsets = instruction.getOffsetsAttr();
  if (!offsets)
    return success();
  int64_t expected = llvm::count_if(op->getResultTypes(), llvm::IsaPred<RankedTensorType>) +
                     static_cast<int64_t>(instruction.getWorkspaces().size());
  if (offsets.size() != expected)
    return op->emitOpError() << "has " << offsets.size() << " offsets, expected " << expected
                             << ": one for each result and each workspace";
  for (int64_t offset : offsets.asArrayRef())
    if (offset < 0)
      return op->emitOpError() << "offsets must not be negative, found " << offset;
  return success();
}

memopt::ScalarCost mlir::memopt::getScalarCost(OperationName name) {
  auto *scalar = name.getInterface<ScalarOpInterface>();
  return scalar ? scalar->getScalarCost() : ScalarCost::Simple;
}

bool mlir::memopt::areComplete(ArrayRef<ViewPart> parts, ArrayRef<int64_t> shape) {
  int64_t rest = ShapedType::getNumElements(shape);
  for (const ViewPart &part : parts)
    rest -= ShapedType::getNumElements(part.sizes);
  return rest == 0;
}

SmallVector<Value> memopt::TiedValues::getAll() const {
  SmallVector<Value> values;
  for (OpOperand *operand : operands)
    values.push_back(operand->get());
  values.append(results.begin(), results.end());
  return values;
}
