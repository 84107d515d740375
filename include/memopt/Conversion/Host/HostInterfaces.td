//===- HostInterfaces.td - instructions as host code -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_HOSTINTERFACES_TD
#define MEMOPT_CONVERSION_HOSTINTERFACES_TD

include "memopt/Interfaces/MemoptInterfaces.td"

def HostInstructionOpInterface : OpInterface<"HostInstructionOpInterface", [InstructionOpInterface]> {
  let description = [{
    How an instruction of the planned program becomes code of the step function. The dialect's own have
    theirs as external models (registerHostInstructions).
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"Emits one execution at the emitter's position. Fails with a diagnostic.",
      "::llvm::LogicalResult", "emit", (ins "::mlir::memopt::HostEmitter &":$emitter)>
  ];
}

#endif // MEMOPT_CONVERSION_HOSTINTERFACES_TD
