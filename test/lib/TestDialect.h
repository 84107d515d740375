//===- TestDialect.h - ops of nobody's, for tests ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TEST_LIB_TESTDIALECT_H
#define MEMOPT_TEST_LIB_TESTDIALECT_H

#include "mlir/IR/DialectRegistry.h"

namespace memopt_test {
void registerTestDialect(mlir::DialectRegistry &registry);
} // namespace memopt_test

#endif // MEMOPT_TEST_LIB_TESTDIALECT_H
