//===- TensorBuilders.cpp - small tensors and casts that passes make -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Utils/TensorBuilders.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

Value mlir::memopt::createSplat(OpBuilder &builder, Location location, RankedTensorType type,
                                double number) {
  Type element = type.getElementType();
  TypedAttr value = isa<FloatType>(element)
                        ? TypedAttr(builder.getFloatAttr(element, number))
                        : TypedAttr(builder.getIntegerAttr(element, static_cast<int64_t>(number)));
  return arith::ConstantOp::create(builder, location,
                                   DenseElementsAttr::get(type, Attribute(value)));
}

Value mlir::memopt::convertFloats(OpBuilder &builder, Location location, Value value,
                                  Type elementType) {
  auto from = cast<RankedTensorType>(value.getType());
  RankedTensorType to = from.clone(elementType);
  if (from == to)
    return value;
  if (to.getElementTypeBitWidth() > from.getElementTypeBitWidth())
    return arith::ExtFOp::create(builder, location, to, value);
  return arith::TruncFOp::create(builder, location, to, value);
}
