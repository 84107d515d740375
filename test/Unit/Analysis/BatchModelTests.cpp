//===- BatchModelTests.cpp - how samples travel through ops -------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/BatchModel.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Parser/Parser.h"

#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
constexpr int64_t kNone = -1;

/// An op, behind what it needs, written with the operands %a0, %a1, ... of the given types.
struct Query {
  const char *name;
  const char *op;
  std::vector<const char *> operandTypes;
  std::vector<int64_t> operandDims;
  /// Of the op's results; empty when samples would mix.
  std::vector<int64_t> resultDims;
};

class Samples : public ::testing::TestWithParam<Query> {
protected:
  Samples() {
    DialectRegistry registry;
    registry.insert<MemoptDialect, func::FuncDialect, arith::ArithDialect, tensor::TensorDialect>();
    registerUpstreamInterfaces(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }

  /// Arguments with samples say so.
  OwningOpRef<ModuleOp> parse(const Query &query) {
    std::string text = "func.func @f(";
    for (size_t i = 0; i < query.operandTypes.size(); ++i) {
      text += (i ? ", %a" : "%a") + std::to_string(i) + ": " + query.operandTypes[i];
      if (query.operandDims[i] != kNone)
        text += " {memopt.batch_dim = " + std::to_string(query.operandDims[i]) + " : i64}";
    }
    text += ") {\n" + std::string(query.op) + "\nreturn\n}\n";
    return parseSourceString<ModuleOp>(text, &context);
  }

  MLIRContext context;
};

TEST_P(Samples, Travel) {
  const Query &query = GetParam();
  OwningOpRef<ModuleOp> module = parse(query);
  ASSERT_TRUE(module);
  FailureOr<StepModel> step = StepModel::create(*module);
  ASSERT_TRUE(succeeded(step));
  ScopedDiagnosticHandler silent(&context, [](Diagnostic &) { return success(); });
  FailureOr<BatchModel> batch = BatchModel::create(*step);
  ASSERT_EQ(succeeded(batch), !query.resultDims.empty());
  if (failed(batch))
    return;
  std::vector<int64_t> found;
  for (Value result :
       step->getFunction().getBody().front().getTerminator()->getPrevNode()->getResults()) {
    std::optional<BatchDimension> dimension = batch->getDimension(result);
    found.push_back(dimension ? dimension->dim : kNone);
  }
  EXPECT_EQ(found, query.resultDims);
}

const char *kConvolution =
    "%r = memopt.convolution %a0, %a1 {strides = array<i64: 1>, padding_low = array<i64: 0>, "
    "padding_high = array<i64: 0>, dilations = array<i64: 1>, groups = 1 : i64} "
    ": (tensor<2x3x4xf32>, tensor<5x3x1xf32>) -> tensor<2x5x4xf32>";
const char *kMatmul = "%r = memopt.matmul %a0, %a1 {transpose_b} "
                      ": (tensor<2x3xf32>, tensor<5x3xf32>) -> tensor<2x5xf32>";
const char *kBatchedMatmul = "%r = memopt.matmul %a0, %a1 {transpose_a} "
                             ": (tensor<7x3x2xf32>, tensor<7x3x5xf32>) -> tensor<7x2x5xf32>";
const char *kReduce =
    "%r = memopt.reduce %a0 {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 2>} "
    ": (tensor<2x3x4xf32>) -> tensor<3xf32>";
const char *kCollapse =
    "%r = tensor.collapse_shape %a0 [[0, 1], [2]] : tensor<2x3x4xf32> into tensor<6x4xf32>";
const char *kExpand = "%r = tensor.expand_shape %a0 [[0, 1], [2]] output_shape [2, 3, 4] : "
                      "tensor<6x4xf32> into tensor<2x3x4xf32>";
const char *kThroughRows =
    "%c = tensor.collapse_shape %a0 [[0, 1], [2]] : tensor<2x3x4xf32> into tensor<6x4xf32>\n"
    "%r = tensor.expand_shape %c [[0, 1], [2]] output_shape [2, 3, 4] : "
    "tensor<6x4xf32> into tensor<2x3x4xf32>";
const char *kBetween =
    "%c = tensor.collapse_shape %a0 [[0, 1, 2]] : tensor<4x3x2xf32> into tensor<24xf32>\n"
    "%r = tensor.expand_shape %c [[0, 1]] output_shape [2, 12] : "
    "tensor<24xf32> into tensor<2x12xf32>";
const char *kAcross =
    "%c = tensor.collapse_shape %a0 [[0, 1], [2]] : tensor<2x3x4xf32> into tensor<6x4xf32>\n"
    "%r = tensor.expand_shape %c [[0, 1], [2]] output_shape [3, 2, 4] : "
    "tensor<6x4xf32> into tensor<3x2x4xf32>";
const char *kSlice = "%r = tensor.extract_slice %a0[1, 0, 0] [1, 3, 2] [1, 1, 1] : "
                     "tensor<2x3x4xf32> to tensor<3x2xf32>";
const char *kConcat =
    "%r = tensor.concat dim(1) %a0, %a1 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>";
const char *kCrossEntropy =
    "%t, %c, %m, %l = memopt.cross_entropy %a0, %a1 : (tensor<2x3xf32>, tensor<2xi64>) "
    "-> (tensor<f32>, tensor<f32>, tensor<2xf32>, tensor<2xf32>)";
const char *kBatchNorm =
    "%r, %m, %v = memopt.batch_norm %a0 {eps = 1.0e-5 : f64, operandSegmentSizes = array<i32: 1, "
    "0, 0>} "
    ": (tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>)";
const char *kLayerNorm =
    "%r, %m, %v = memopt.layer_norm %a0 {eps = 1.0e-5 : f64, begin = 1 : i64, operandSegmentSizes "
    "= "
    "array<i32: 1, 0, 0>} : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>)";
const char *kBroadcast = "%r = memopt.broadcast %a0 {dimensions = array<i64: 1, 2>} : "
                         "(tensor<2x3xf32>) -> tensor<4x2x3xf32>";
const char *kTranspose = "%r = memopt.transpose %a0 {permutation = array<i64: 2, 0, 1>} : "
                         "(tensor<2x3x4xf32>) -> tensor<4x2x3xf32>";
const char *kPad = "%r = memopt.pad %a0 {low = array<i64: 1, 0>, high = array<i64: 0, 0>} : "
                   "(tensor<2x3xf32>) -> tensor<3x3xf32>";
const char *kSoftmax =
    "%r = memopt.softmax %a0 {axis = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>";
const char *kAdd = "%r = arith.addf %a0, %a1 : tensor<2x3xf32>";
const char *kEmbedding =
    "%r = memopt.embedding %a0, %a1 : (tensor<5x3xf32>, tensor<2x4xi64>) -> tensor<2x4x3xf32>";

const char *kGather =
    "%r = memopt.gather %a0, %a1 {indexed = array<i64: 1>, positions = array<i64: 1>} "
    ": (tensor<2x5xf32>, tensor<3x2xi64>) -> tensor<3x2xf32>";
const char *kScatter = "%r = memopt.scatter %a0, %a1, %a2 {kind = #memopt.scatter<add>, "
                       "indexed = array<i64: 1>, positions = array<i64: 0>} "
                       ": (tensor<2x5xf32>, tensor<2x3xf32>, tensor<2x3xi64>) -> tensor<2x5xf32>";
const char *kSum = "%z = arith.constant dense<0.0> : tensor<2x5xf32>\n"
                   "%r = memopt.scatter %z, %a0, %a1 {kind = #memopt.scatter<add>, "
                   "indexed = array<i64: 1>, positions = array<i64: 0>} "
                   ": (tensor<2x5xf32>, tensor<2x3xf32>, tensor<2x3xi64>) -> tensor<2x5xf32>";
const char *kArgsort =
    "%r = memopt.argsort %a0 {axis = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xi64>";
const char *kReverse =
    "%r = memopt.reverse %a0 {dimensions = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>";
const char *kStop = "%r = memopt.stop_gradient %a0 : (tensor<2x3xf32>) -> tensor<2x3xf32>";

const char *k2x3 = "tensor<2x3xf32>", *k5x3 = "tensor<5x3xf32>", *k2x3x4 = "tensor<2x3x4xf32>",
           *k6x4 = "tensor<6x4xf32>";

INSTANTIATE_TEST_SUITE_P(
    Ops, Samples,
    ::testing::Values(
        Query{"Elementwise", kAdd, {k2x3, k2x3}, {0, 0}, {0}},
        Query{"GatherAtAPosition", kGather, {"tensor<2x5xf32>", "tensor<3x2xi64>"}, {0, 1}, {1}},
        Query{"GatherAlongSamples", kGather, {"tensor<2x5xf32>", "tensor<3x2xi64>"}, {1, -1}, {}},
        Query{"GatherFromWhatAllShare",
              kGather,
              {"tensor<2x5xf32>", "tensor<3x2xi64>"},
              {-1, 0},
              {0}},
        Query{"ScatterAtAPosition",
              kScatter,
              {"tensor<2x5xf32>", k2x3, "tensor<2x3xi64>"},
              {0, 0, 0},
              {0}},
        Query{"ScatterIntoWhatAllShare",
              kScatter,
              {"tensor<2x5xf32>", k2x3, "tensor<2x3xi64>"},
              {-1, 0, 0},
              {0}},
        Query{"ScatterMixesSamples",
              kScatter,
              {"tensor<2x5xf32>", k2x3, "tensor<2x3xi64>"},
              {-1, 1, 1},
              {}},
        Query{"ScatterSumsSamplesOntoZeros", kSum, {k2x3, "tensor<2x3xi64>"}, {1, 1}, {kNone}},
        Query{"OrderOfEachSample", kArgsort, {k2x3}, {0}, {0}},
        Query{"OrderAmongSamples", kArgsort, {k2x3}, {1}, {}},
        Query{"ReverseInSamples", kReverse, {k2x3}, {0}, {0}},
        Query{"ReverseSamples", kReverse, {k2x3}, {1}, {}},
        Query{"StopGradient", kStop, {k2x3}, {0}, {0}},
        Query{"WithWhatAllSamplesShare", kAdd, {k2x3, k2x3}, {kNone, 1}, {1}},
        Query{"Broadcast", kBroadcast, {k2x3}, {0}, {1}},
        Query{"Transpose", kTranspose, {k2x3x4}, {0}, {1}},
        Query{"ReduceOverSamples", kReduce, {k2x3x4}, {0}, {kNone}},
        Query{"ReduceBesideSamples", kReduce, {k2x3x4}, {1}, {0}},
        Query{"PadBesideSamples", kPad, {k2x3}, {1}, {1}},
        Query{"PadSamples", kPad, {k2x3}, {0}, {}},
        Query{"CollapseOuterFactor", kCollapse, {k2x3x4}, {0}, {0}},
        Query{"CollapseInnerFactor", kCollapse, {k2x3x4}, {1}, {0}},
        Query{"ExpandInnerFactor", kThroughRows, {k2x3x4}, {1}, {1}},
        Query{"ExpandBetweenFactors", kBetween, {"tensor<4x3x2xf32>"}, {1}, {1}},
        Query{"ExpandAcrossSamples", kAcross, {k2x3x4}, {1}, {}},
        Query{"CollapseElsewhere", kCollapse, {k2x3x4}, {2}, {1}},
        Query{"ExpandTakesSamplesApart", kExpand, {k6x4}, {0}, {}},
        Query{"ExpandElsewhere", kExpand, {k6x4}, {1}, {2}},
        Query{"SliceKeepsAll", kSlice, {k2x3x4}, {1}, {0}},
        Query{"SliceOfOne", kSlice, {k2x3x4}, {0}, {}},
        Query{"SliceOfSome", kSlice, {k2x3x4}, {2}, {}},
        Query{"Concat", kConcat, {k2x3, k2x3}, {0, 0}, {0}},
        Query{"ConcatOfSamples", kConcat, {k2x3, k2x3}, {1, 1}, {1}},
        Query{"Embedding", kEmbedding, {k5x3, "tensor<2x4xi64>"}, {kNone, 0}, {0}},
        Query{"Convolution", kConvolution, {k2x3x4, "tensor<5x3x1xf32>"}, {0, kNone}, {0}},
        Query{
            "ConvolutionOverChannels", kConvolution, {k2x3x4, "tensor<5x3x1xf32>"}, {1, kNone}, {}},
        Query{"ConvolutionOfFilters", kConvolution, {k2x3x4, "tensor<5x3x1xf32>"}, {kNone, 0}, {1}},
        Query{"MatmulRows", kMatmul, {k2x3, k5x3}, {0, kNone}, {0}},
        Query{"MatmulColumns", kMatmul, {k2x3, k5x3}, {kNone, 0}, {1}},
        Query{"MatmulSumsSamples", kMatmul, {k2x3, k5x3}, {1, 1}, {kNone}},
        Query{"MatmulSumsWhatOneSideSays", kMatmul, {k2x3, k5x3}, {1, kNone}, {kNone}},
        Query{"BatchedMatmul",
              kBatchedMatmul,
              {"tensor<7x3x2xf32>", "tensor<7x3x5xf32>"},
              {0, 0},
              {0}},
        Query{"BatchedMatmulTransposed",
              kBatchedMatmul,
              {"tensor<7x3x2xf32>", "tensor<7x3x5xf32>"},
              {2, kNone},
              {1}},
        Query{"BatchNorm", kBatchNorm, {k2x3x4}, {0}, {0, kNone, kNone}},
        Query{"BatchNormOfChannels", kBatchNorm, {k2x3x4}, {1}, {1, 0, 0}},
        Query{"LayerNorm", kLayerNorm, {k2x3}, {0}, {0, 0, 0}},
        Query{"LayerNormOverSamples", kLayerNorm, {k2x3}, {1}, {}},
        Query{"Softmax", kSoftmax, {k2x3}, {0}, {0}},
        Query{"SoftmaxOverSamples", kSoftmax, {k2x3}, {1}, {}},
        Query{
            "CrossEntropy", kCrossEntropy, {k2x3, "tensor<2xi64>"}, {0, 0}, {kNone, kNone, 0, 0}}),
    [](const ::testing::TestParamInfo<Query> &info) { return info.param.name; });
} // namespace
