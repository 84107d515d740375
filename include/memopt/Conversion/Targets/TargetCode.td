//===- TargetCode.td - code of a kind of machine -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_TARGETS_TARGETCODE_TD
#define MEMOPT_CONVERSION_TARGETS_TARGETCODE_TD

include "mlir/IR/Interfaces.td"

def TargetCodeAttrInterface : AttrInterface<"TargetCodeAttrInterface"> {
  let description = [{
    How the kernels of a planned program become code of the machine that `memopt.target` names. TargetAttrInterface says
    what a plan needs to know of the machine; this interface is asked when the plan stands. Processors and NVIDIA's GPUs
    have it as external models (registerTargetCode). Another family of GPUs gives its operations (DeviceOps), its numbers
    (DeviceMachine) and the three methods for a device.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"What kernels are scheduled for. Fails with a diagnostic.",
      "::llvm::FailureOr<::mlir::memopt::KernelOptions>", "getKernelOptions",
      (ins "::llvm::function_ref<::mlir::InFlightDiagnostic()>":$emitError)>,
    InterfaceMethod<[{
        The processor of program.so, as ObjectOptions has it. Beside a device the processor only launches: any will do.
      }],
      "::std::string", "getHostProcessor", (ins), "", [{ return "generic"; }]>,
    InterfaceMethod<[{
        Of a device: turns its kernels, functions of KernelLowering, into the LLVM dialect and the dialect of its operations.
      }],
      "::llvm::LogicalResult", "convertKernels", (ins "::mlir::ModuleOp":$kernels), "",
      [{ llvm_unreachable("a processor has no kernels of a device"); }]>,
    InterfaceMethod<"Of a device: its kernels as text. Uses up the module. Fails with a diagnostic.",
      "::mlir::memopt::Emission", "emitText", (ins "::mlir::ModuleOp":$kernels, "::std::string &":$text), "",
      [{ llvm_unreachable("a processor has no kernels of a device"); }]>,
    InterfaceMethod<[{
        Of a device: writes the file that TargetAttrInterface::getImageName names, and what belongs beside it, into a
        folder. Uses up the module. Strided launches get no more blocks than the device runs at once, where that is known.
        Fails with a diagnostic.
      }],
      "::mlir::memopt::Emission", "writeImage", (ins "::mlir::ModuleOp":$kernels, "::llvm::StringRef":$folder,
        "::llvm::MutableArrayRef<::mlir::memopt::KernelLaunch>":$launches), "",
      [{ llvm_unreachable("a processor has no kernels of a device"); }]>
  ];
}

#endif // MEMOPT_CONVERSION_TARGETS_TARGETCODE_TD
