//===- WorkTests.cpp - what library calls are said to take ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Memopt.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::memopt;

static LibraryCallAttrInterface parse(MLIRContext &context, StringRef more) {
  std::string text =
      ("#memopt.matmul<m = 64, n = 64, k = 64, a_strides = [64, 1], b_strides = [64, 1], "
       "c_strides = [64, 1], type = f32, accumulator = f32" +
       more + ">")
          .str();
  return cast<LibraryCallAttrInterface>(parseAttribute(text, &context));
}

/// A product of the rows that a mask chooses is planned as if it chose half of them; the operations
/// that are reported are those of all.
TEST(WorkTest, CountedRows) {
  MLIRContext context;
  context.loadDialect<MemoptDialect>();
  LibraryCallAttrInterface plain = parse(context, "");
  for (StringRef counted : {", counts_rows = true", ", counts_terms = true"}) {
    LibraryCallAttrInterface call = parse(context, counted);
    EXPECT_EQ(call.getWork().operations, plain.getWork().operations / 2);
    EXPECT_EQ(call.getFlops(), plain.getFlops());
  }
}

/// A convolution of 32 to 32 channels of 7 x 7 pixels, with filters of `taps` x `taps`, as a library
/// runs it under a name.
static Work getConvolutionWork(MLIRContext &context, StringRef kind, int64_t taps,
                               StringRef implementation) {
  std::string weight = std::to_string(taps) + "x" + std::to_string(taps);
  std::string image = "tensor<2x7x7x32xf32>", filter = "tensor<32x32x" + weight + "xf32>";
  bool isWeight = kind == "backward_weights";
  std::string size = std::to_string(taps), padding = std::to_string(taps / 2);
  std::string text = "func.func @step(%a: " + image + ", %b: " + (isWeight ? image : filter) +
                     ") {\n%0 = memopt.library_call #memopt.convolution<kind = " + kind.str() +
                     ", layout = channels_last, input = [2, 32, 7, 7], weight = [32, 32, " + size +
                     ", " + size +
                     "], output = [2, 32, 7, 7], strides = [1, 1], padding_lower = [" + padding +
                     ", " + padding + "], padding_upper = [" + padding + ", " + padding +
                     "], dilations = [1, 1], groups = 1, type = f32, accumulator = f32> (%a, %b) "
                     "{operand_offsets = "
                     "array<i64: 0, 0>, workspace = 0 : i64, implementation = \"" +
                     implementation.str() + "\"} : (" + image + ", " + (isWeight ? image : filter) +
                     ") -> " + (isWeight ? filter : image) + "\nreturn\n}";
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  Work work;
  EXPECT_TRUE(module) << text;
  if (module)
    module->walk([&](LibraryCallOp op) { work = op.getWork(); });
  return work;
}

/// Filters of one tap, of several, and those that are taken in tiles have rates of their own.
TEST(WorkTest, ConvolutionsByTheirTaps) {
  MLIRContext context;
  context.loadDialect<MemoptDialect, func::FuncDialect>();
  for (StringRef kind : {"forward", "backward_data", "backward_weights"}) {
    bool isWeight = kind == "backward_weights";
    Work point = getConvolutionWork(context, kind, 1, "brg:avx2");
    EXPECT_EQ(point.workClass,
              isWeight ? WorkClass::PointwiseConvolutionWeight : WorkClass::PointwiseConvolution);
    Work plain = getConvolutionWork(context, kind, 3, "brg:avx2");
    EXPECT_EQ(plain.workClass, isWeight ? WorkClass::ConvolutionWeight : WorkClass::Convolution);
    Work tiled = getConvolutionWork(context, kind, 3, "memopt:avx2/winograd");
    EXPECT_EQ(tiled.workClass,
              isWeight ? WorkClass::TiledConvolutionWeight : WorkClass::TiledConvolution);
    // Four tiles of two pixels have eight.
    EXPECT_DOUBLE_EQ(tiled.operations, plain.operations * 64 / 49);
  }
}
