//===- UpstreamInterfaces.cpp - interfaces of arith, math and tensor ops -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Registration, costs and recomputation. The table of scalar ops is ScalarOps.def, the
// gradient rules are in UpstreamGradients.cpp, ScalarOps.def, loops in UpstreamIteration.cpp,
// views in Views.cpp, layouts in Layouts.cpp.
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

template <typename OpTy, ScalarCost cost>
struct ScalarModel : ScalarOpInterface::ExternalModel<ScalarModel<OpTy, cost>, OpTy> {
  static ScalarCost getScalarCost() { return cost; }
};

template <typename OpTy>
struct PureRecomputable : RecomputableOpInterface::ExternalModel<PureRecomputable<OpTy>, OpTy> {};
} // namespace

template <typename OpTy, int64_t flops> static void attachCost(MLIRContext *context) {
  OpTy::template attachInterface<ElementwiseCost<OpTy, flops>, PureRecomputable<OpTy>>(*context);
}

template <typename OpTy, int64_t flops, ScalarCost cost>
static void attachScalar(MLIRContext *context) {
  attachCost<OpTy, flops>(context);
  OpTy::template attachInterface<ScalarModel<OpTy, cost>>(*context);
}

static void attachCosts(MLIRContext *context) {
#define SCALAR(OP, FLOPS, COST) attachScalar<OP, FLOPS, ScalarCost::COST>(context);
#include "ScalarOps.def"
  attachScalar<math::FPowIOp, 20, ScalarCost::Call>(context);
  attachScalar<arith::SelectOp, 1, ScalarCost::Simple>(context);
  attachScalar<arith::ExtFOp, 1, ScalarCost::Simple>(context);
  attachScalar<arith::TruncFOp, 1, ScalarCost::Simple>(context);
  attachCost<tensor::CastOp, 0>(context);
  attachCost<tensor::CollapseShapeOp, 0>(context);
  attachCost<tensor::ExpandShapeOp, 0>(context);
  attachCost<tensor::ExtractSliceOp, 0>(context);
  attachCost<tensor::ConcatOp, 0>(context);
  attachCost<tensor::EmptyOp, 0>(context);
}

void mlir::memopt::registerUpstreamInterfaces(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, arith::ArithDialect *, math::MathDialect *,
                            tensor::TensorDialect *, MemoptDialect *) {
    attachCosts(context);
    attachUpstreamGradients(context);
    attachUpstreamIteration(context);
  });
  // A reshape is one in a module of nothing but upstream's ops, too.
  registry.addExtension(+[](MLIRContext *context, tensor::TensorDialect *) {
    attachUpstreamViews(context);
    attachUpstreamLayouts(context);
  });
}
