//===- ViewTests.cpp - what views say about their elements ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each view is read element by element through its parts, and held against the numbers that the op
// is defined to give.
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
class ViewTest : public ::testing::Test {
protected:
  ViewTest() {
    DialectRegistry registry;
    registry.insert<MemoptDialect, arith::ArithDialect, func::FuncDialect, math::MathDialect,
                    tensor::TensorDialect>();
    registerUpstreamInterfaces(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }

  /// The view in a function of operands `arguments`; the view is what it returns.
  ViewOpInterface parse(StringRef arguments, StringRef view, StringRef type) {
    std::string text = ("func.func @f(" + arguments + ") -> " + type + " {\n  %r = " + view +
                        "\n  return %r : " + type + "\n}")
                           .str();
    module = parseSourceString<ModuleOp>(text, &context);
    EXPECT_TRUE(module) << text;
    auto function = *module->getOps<func::FuncOp>().begin();
    return cast<ViewOpInterface>(function.getBody().front().front());
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};
} // namespace

static ArrayRef<int64_t> shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

static SmallVector<int64_t> delinearize(int64_t index, ArrayRef<int64_t> shape) {
  SmallVector<int64_t> indices(shape.size());
  for (size_t dim = shape.size(); dim-- > 0; index /= shape[dim])
    indices[dim] = index % shape[dim];
  return indices;
}

static int64_t linearize(ArrayRef<int64_t> indices, ArrayRef<int64_t> shape) {
  int64_t linear = 0;
  for (auto [index, size] : llvm::zip_equal(indices, shape)) {
    EXPECT_GE(index, 0);
    EXPECT_LT(index, size);
    linear = linear * size + index;
  }
  return linear;
}

static bool contains(const ViewPart &part, ArrayRef<int64_t> indices) {
  for (auto [index, offset, size] : llvm::zip_equal(indices, part.offsets, part.sizes))
    if (index < offset || index >= offset + size)
      return false;
  return true;
}

/// For each element of the result 100 * operand + number of the element there; -1 for a zero.
static std::vector<int64_t> readElements(ViewOpInterface view) {
  ArrayRef<int64_t> shape = shapeOf(view->getResult(0));
  std::vector<int64_t> elements;
  for (int64_t i = 0; i < ShapedType::getNumElements(shape); ++i) {
    SmallVector<int64_t> at = delinearize(i, shape);
    int64_t found = -1;
    for (const ViewPart &part : view.getViewParts()) {
      if (!contains(part, at))
        continue;
      EXPECT_EQ(found, -1) << "parts overlap at " << i;
      found = 100 * part.operand +
              linearize(part.map.compose(at), shapeOf(view->getOperand(part.operand)));
    }
    elements.push_back(found);
  }
  return elements;
}

using Elements = std::vector<int64_t>;

TEST_F(ViewTest, Broadcast) {
  ViewOpInterface view = parse("%a: tensor<1x3xf32>",
                               "memopt.broadcast %a {dimensions = array<i64: 0, 2>} : "
                               "(tensor<1x3xf32>) -> tensor<2x2x3xf32>",
                               "tensor<2x2x3xf32>");
  EXPECT_EQ(view.getViewKind(), ViewKind::Strided);
  EXPECT_EQ(readElements(view), (Elements{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}));
}

TEST_F(ViewTest, Transpose) {
  ViewOpInterface view = parse("%a: tensor<2x1x3xf32>",
                               "memopt.transpose %a {permutation = array<i64: 2, 0, 1>} : "
                               "(tensor<2x1x3xf32>) -> tensor<3x2x1xf32>",
                               "tensor<3x2x1xf32>");
  EXPECT_EQ(view.getViewKind(), ViewKind::Strided);
  EXPECT_EQ(readElements(view), (Elements{0, 3, 1, 4, 2, 5}));
}

TEST_F(ViewTest, SliceThatDropsADimension) {
  ViewOpInterface view = parse("%a: tensor<3x2x5xf32>",
                               "tensor.extract_slice %a[1, 1, 0] [2, 1, 3] [1, 1, 2] : "
                               "tensor<3x2x5xf32> to tensor<2x3xf32>",
                               "tensor<2x3xf32>");
  EXPECT_EQ(view.getViewKind(), ViewKind::Strided);
  EXPECT_FALSE(view.showsWhole(0));
  EXPECT_EQ(readElements(view), (Elements{15, 17, 19, 25, 27, 29}));
}

TEST_F(ViewTest, ReshapesKeepTheOrder) {
  Elements inOrder = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  ViewOpInterface collapse = parse("%a: tensor<1x3x1x2x2xf32>",
                                   "tensor.collapse_shape %a [[0, 1, 2, 3], [4]] : "
                                   "tensor<1x3x1x2x2xf32> into tensor<6x2xf32>",
                                   "tensor<6x2xf32>");
  EXPECT_EQ(collapse.getViewKind(), ViewKind::Reshape);
  EXPECT_EQ(readElements(collapse), inOrder);
  ViewOpInterface expand = parse("%a: tensor<6x2xf32>",
                                 "tensor.expand_shape %a [[0, 1, 2], [3, 4]] output_shape "
                                 "[1, 3, 2, 2, 1] : tensor<6x2xf32> into tensor<1x3x2x2x1xf32>",
                                 "tensor<1x3x2x2x1xf32>");
  EXPECT_EQ(expand.getViewKind(), ViewKind::Reshape);
  EXPECT_EQ(readElements(expand), inOrder);
}

TEST_F(ViewTest, ReshapesOfOneElement) {
  EXPECT_EQ(readElements(parse("%a: tensor<1x1xf32>",
                               "tensor.collapse_shape %a [] : tensor<1x1xf32> into tensor<f32>",
                               "tensor<f32>")),
            (Elements{0}));
  EXPECT_EQ(readElements(parse("%a: tensor<1x1x1xf32>",
                               "tensor.collapse_shape %a [[0, 1], [2]] : tensor<1x1x1xf32> into "
                               "tensor<1x1xf32>",
                               "tensor<1x1xf32>")),
            (Elements{0}));
}

TEST_F(ViewTest, Pad) {
  ViewOpInterface view = parse("%a: tensor<2x2xf32>",
                               "memopt.pad %a {low = array<i64: 1, 0>, high = array<i64: 0, 1>} : "
                               "(tensor<2x2xf32>) -> tensor<3x3xf32>",
                               "tensor<3x3xf32>");
  EXPECT_EQ(view.getViewKind(), ViewKind::Assembled);
  EXPECT_TRUE(view.showsWhole(0));
  EXPECT_EQ(readElements(view), (Elements{-1, -1, -1, 0, 1, -1, 2, 3, -1}));
}

TEST_F(ViewTest, Reverse) {
  ViewOpInterface view =
      parse("%a: tensor<2x3xf32>",
            "memopt.reverse %a {dimensions = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "tensor<2x3xf32>");
  EXPECT_EQ(view.getViewKind(), ViewKind::Assembled);
  EXPECT_EQ(readElements(view), (Elements{2, 1, 0, 5, 4, 3}));
}

TEST_F(ViewTest, Concat) {
  ViewOpInterface view =
      parse("%a: tensor<2x1xf32>, %b: tensor<2x2xf32>",
            "tensor.concat dim(1) %a, %b : (tensor<2x1xf32>, tensor<2x2xf32>) -> tensor<2x3xf32>",
            "tensor<2x3xf32>");
  EXPECT_EQ(view.getViewKind(), ViewKind::Assembled);
  EXPECT_EQ(readElements(view), (Elements{0, 100, 101, 1, 102, 103}));
}
