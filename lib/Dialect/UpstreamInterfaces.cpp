//===- UpstreamInterfaces.cpp - interfaces of arith, math and tensor ops -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Registration, costs and recomputation. The gradient rules are in UpstreamGradients.cpp, the table
// of elementwise ops in ElementaryGradients.def, loops in UpstreamIteration.cpp.
//
//===----------------------------------------------------------------------===//

#include "UpstreamInterfaces.h"

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// `flops` operations for each element of the result.
template <typename OpTy, int64_t flops>
struct ElementwiseCost : CostOpInterface::ExternalModel<ElementwiseCost<OpTy, flops>, OpTy> {
  int64_t getFlops(Operation *op) const {
    auto type = dyn_cast<ShapedType>(op->getResult(0).getType());
    return type && type.hasStaticShape() ? flops * type.getNumElements() : flops;
  }
};

template <typename OpTy>
struct PureRecomputable : RecomputableOpInterface::ExternalModel<PureRecomputable<OpTy>, OpTy> {};
} // namespace

template <typename OpTy, int64_t flops> static void attachCost(MLIRContext *context) {
  OpTy::template attachInterface<ElementwiseCost<OpTy, flops>, PureRecomputable<OpTy>>(*context);
}

static void attachCosts(MLIRContext *context) {
#define UNARY(OP, FLOPS, DX) attachCost<OP, FLOPS>(context);
#define BINARY(OP, FLOPS, DA, DB) attachCost<OP, FLOPS>(context);
#define TERNARY(OP, FLOPS, DA, DB, DC) attachCost<OP, FLOPS>(context);
#define ZERO(OP, FLOPS) attachCost<OP, FLOPS>(context);
#include "ElementaryGradients.def"
  attachCost<math::FPowIOp, 20>(context);
  attachCost<arith::SelectOp, 1>(context);
  attachCost<arith::ExtFOp, 1>(context);
  attachCost<arith::TruncFOp, 1>(context);
  attachCost<tensor::CastOp, 0>(context);
  attachCost<tensor::CollapseShapeOp, 0>(context);
  attachCost<tensor::ExpandShapeOp, 0>(context);
  attachCost<tensor::ExtractSliceOp, 0>(context);
  attachCost<tensor::ConcatOp, 0>(context);
  attachCost<tensor::EmptyOp, 0>(context);
}

void memopt::registerUpstreamInterfaces(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, arith::ArithDialect *, math::MathDialect *,
                            tensor::TensorDialect *, MemoptDialect *) {
    attachCosts(context);
    attachUpstreamGradients(context);
    attachUpstreamIteration(context);
  });
}
