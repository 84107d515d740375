//===- TargetAttributes.td - machines to compile for -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_TARGETATTRIBUTES_TD
#define MEMOPT_DIALECT_TARGETATTRIBUTES_TD

include "memopt/Dialect/MemoptDialect.td"

def Memopt_CpuAttr : AttrDef<Memopt_Dialect, "Cpu"> {
  let mnemonic = "cpu";
  let summary = "Processors with oneDNN";
  let description = [{
    `processor` as clang's -march names it; without it the machine at hand. Library calls are planned for
    `threads`; a run may use fewer. `reference` takes plain loops in double precision in place of libraries.
    `profile` holds rates that costs are predicted from, by the keys of a machine profile
    (docs/MemoptCompile.md). lib/Target/Cpu answers for it all (TargetAttrInterface).

    Example: `memopt.target = #memopt.cpu<processor = "znver4", threads = 2>`
  }];
  let parameters = (ins StringRefParameter<"", "\"\"">:$processor, DefaultValuedParameter<"int64_t", "2">:$threads,
    DefaultValuedParameter<"bool", "false">:$reference, OptionalParameter<"::mlir::DictionaryAttr">:$profile);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

#endif // MEMOPT_DIALECT_TARGETATTRIBUTES_TD
