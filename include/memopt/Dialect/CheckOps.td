//===- CheckOps.td - what data must not do -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_CHECKOPS_TD
#define MEMOPT_DIALECT_CHECKOPS_TD

include "memopt/Dialect/MemoptBase.td"

def Memopt_IntLike : AnyTypeOf<[Memopt_IntTensor, I64, I32, I16, I8]>;

def Memopt_CheckOp : Memopt_Op<"check", [Pure, SameOperandsAndResultType, Elementwise, Scalarizable, Vectorizable,
    Tensorizable, Memopt_Recomputable, Memopt_Cost, Memopt_Differentiable, Memopt_Iteration]> {
  let summary = "Integers with those that are not allowed replaced, and reported";
  let description = [{
    An element from `min` to `max`, or equal to `ignore`, is kept. With `min` above `max` all are kept but those
    between them: `min = 1, max = -1` allows any divisor. Another element becomes `otherwise`, and the running
    program reports it, with the entry number `site` of the module's `memopt.index_sites`, in the variable of
    role `index_fault`: the least of all reports of a step stays, so that running a check again changes nothing.

    Example: `%1 = memopt.check %0 {min = 0 : i64, max = 9 : i64, otherwise = 0 : i64, site = 0 : i64} : tensor<4xi64>`
  }];
  let arguments = (ins Memopt_IntLike:$value, I64Attr:$min, I64Attr:$max, OptionalAttr<I64Attr>:$ignore,
    I64Attr:$otherwise, I64Attr:$site);
  let results = (outs Memopt_IntLike:$result);
  let assemblyFormat = "$value attr-dict `:` type($result)";
}

#endif // MEMOPT_DIALECT_CHECKOPS_TD
