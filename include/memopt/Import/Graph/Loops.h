//===- Loops.h - loops over formulas -------------------------- -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A memopt.scan whose body is a formula of elements (Formula.h).
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_GRAPH_LOOPS_H
#define MEMOPT_IMPORT_GRAPH_LOOPS_H

#include "memopt/Import/Graph/Formula.h"

namespace memopt::pt2 {

using Elements = llvm::ArrayRef<Element>;

/// What an iteration of a loop sees.
struct Turn {
  Element number; ///< of the iteration, [1] i64
  llvm::SmallVector<Element> fixed, slices, carried;
};
struct Yields {
  llvm::SmallVector<Element> next, made;
};
/// Runs the body `count` times, with the numbers from 0 or, with `reverse`, down to 0. Of `slices`
/// an iteration has the one of its number in the first dimension; what it makes is stacked there.
struct Loop {
  llvm::SmallVector<Element> last, made;
};
Loop repeat(int64_t count, bool reverse, Elements fixed, Elements slices, Elements carried,
            llvm::function_ref<Yields(const Turn &)> body);

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_GRAPH_LOOPS_H
