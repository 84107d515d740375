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
    `processor` has the name that clang's -march uses; the default is this machine. Library calls are planned for
    `threads`; a run may use fewer. `reference` uses plain loops in double precision instead of libraries. Costs are
    predicted from the rates of `profile`, by the keys of a machine profile (docs/MemoptCompile.md). lib/Target/Cpu
    implements TargetAttrInterface.

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
    Kernels become code of `chip` (`sm_75` or newer), and launches are planned for `sms` multiprocessors. `device` is the
    name of the machine for people. `image` is the form of the kernels in a package: `cubin`, or `bitcode` for an emulated
    device, whose library calls are plain loops of the runtime. Costs are predicted from the rates of `profile`, by the
    keys of a machine profile. cuDNN plans its calls by `properties`; without them it plans none. `matmul_precision` and
    `conv_precision` say how products and convolutions of f32 are computed, in PyTorch's words: in f32 (`highest`), TF32
    (`high`), or bf16 (`medium`, only products). All this comes from a device description (docs/Cuda.md). lib/Target/Cuda
    implements TargetAttrInterface.

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
