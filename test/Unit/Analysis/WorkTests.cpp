//===- WorkTests.cpp - what library calls are said to take ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Memopt.h"

#include "mlir/AsmParser/AsmParser.h"
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
