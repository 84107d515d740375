//===- HostProgram.cpp - the step function of a program ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Host/HostProgram.h"

#include "EntryPoints.h"

using namespace mlir;
using namespace mlir::memopt;

void mlir::memopt::addPackageSymbols(ModuleOp program) {
  OpBuilder builder = OpBuilder::atBlockEnd(program.getBody());
  LLVM::GlobalOp::create(builder, program.getLoc(), builder.getI32Type(), /*isConstant=*/true,
                         LLVM::Linkage::External, EntryPoints::kVersion,
                         builder.getI32IntegerAttr(MEMOPT_PROGRAM_INTERFACE_VERSION));
  constexpr size_t digestBytes = kDigestPlaceholder.size() + 1;
  LLVM::GlobalOp::create(builder, program.getLoc(),
                         LLVM::LLVMArrayType::get(builder.getI8Type(), digestBytes),
                         /*isConstant=*/true, LLVM::Linkage::External, MEMOPT_PROGRAM_DIGEST_SYMBOL,
                         builder.getStringAttr(StringRef(kDigestPlaceholder.data(), digestBytes)));
}

LogicalResult mlir::memopt::buildHostProgram(const StepModel &step, ModuleOp program,
                                             KernelFunctionFn lowerKernel,
                                             const HostOptions &options) {
  return HostEmitter(step.getFunction(), program, lowerKernel, options).emitStep();
}
