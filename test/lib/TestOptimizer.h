//===- TestOptimizer.h - an optimizer of nobody's ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TEST_LIB_TESTOPTIMIZER_H
#define MEMOPT_TEST_LIB_TESTOPTIMIZER_H

namespace memopt_test {
/// `test-sign`: parameters move by the rate against the sign of the gradient's running sum.
void registerTestOptimizer();
} // namespace memopt_test

#endif // MEMOPT_TEST_LIB_TESTOPTIMIZER_H
