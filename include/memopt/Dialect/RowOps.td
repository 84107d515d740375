//===- RowOps.td - rows of which some count -*- tablegen -*----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_ROWOPS_TD
#define MEMOPT_DIALECT_ROWOPS_TD

include "memopt/Dialect/MemoptBase.td"

def Memopt_FillRowsOp : Memopt_GraphOp<"fill_rows", [DeclareOpInterfaceMethods<PrecisionOpInterface, ["getFollowedOperands"]>]> {
  let summary = "Rows that count, and one of them in the place of each other";
  let description = [{
    Along `dim` the entries of `input` count where `counts` says so. Each other entry becomes the first that counts, or
    ones where none does. So functions are defined on all rows, whatever those that do not count hold; what is made
    of these is left out later, and no gradient comes through them.

    Which row is lent makes no difference, so a part of the rows may lend one of its own: micro-batches do.

    Example: `%1 = memopt.fill_rows %x, %m {dim = 0 : i64} : (tensor<8x3xf32>, tensor<8xi1>) -> tensor<8x3xf32>`
  }];
  let arguments = (ins Memopt_FloatTensor:$input, Memopt_BoolTensor:$counts, I64Attr:$dim);
  let results = (outs Memopt_FloatTensor:$result);
  let hasVerifier = 1;
}

#endif // MEMOPT_DIALECT_ROWOPS_TD
