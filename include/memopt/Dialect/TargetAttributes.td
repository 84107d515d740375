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

def Memopt_CudaAttr : AttrDef<Memopt_Dialect, "Cuda"> {
  let mnemonic = "cuda";
  let summary = "NVIDIA GPUs";
  let description = [{
    The `chip` whose code kernels become (`sm_75` or newer), and how many multiprocessors, `sms`, launches are
    planned for. `device` names the machine for people. `image` is the form of the kernels in a package: `cubin`, or
    `bitcode` for an emulated device, whose library calls are the runtime's plain loops. `profile` holds rates that
    costs are predicted from, by the keys of a machine profile. A device description (docs/Cuda.md) says all this;
    lib/Target/Cuda answers for it (TargetAttrInterface). `properties` are those by which cuDNN plans its calls, without
    which none are planned. `matmul_precision` and `conv_precision` say what products and convolutions of f32 are made
    of, in PyTorch's words: f32 (`highest`), TF32 (`high`), or bf16 (`medium`, of products alone).

    Example: `memopt.target = #memopt.cuda<"sm_90", sms = 132, device = "NVIDIA H100 80GB HBM3">`
  }];
  let parameters = (ins StringRefParameter<>:$chip, "int64_t":$sms, StringRefParameter<"", "\"\"">:$device,
    StringRefParameter<"", "\"cubin\"">:$image, OptionalParameter<"::mlir::DictionaryAttr">:$profile,
    OptionalParameter<"::mlir::DictionaryAttr">:$properties, StringRefParameter<"", "\"highest\"">:$matmul_precision,
    StringRefParameter<"", "\"high\"">:$conv_precision);
  let assemblyFormat = [{
    `<` $chip `,` struct($sms, $device, $image, $profile, $properties, $matmul_precision, $conv_precision) `>`
  }];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// 90 of sm_90.
    unsigned getCapability();
    bool isEmulated() { return getImage() == "bitcode"; }
  }];
}

#endif // MEMOPT_DIALECT_TARGETATTRIBUTES_TD
