//===- KernelFunction.h - functions that kernels become ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_EMISSION_KERNELFUNCTION_H
#define MEMOPT_CONVERSION_CORE_EMISSION_KERNELFUNCTION_H

#include "memopt/Conversion/Core/Emission/NodeEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace mlir::memopt {

/// On functions and constants: the number of the kernel that they are of.
inline constexpr llvm::StringLiteral kKernelNumberAttr = "memopt.kernel_number";

/// An empty function, at the end of `program`.
LLVM::LLVMFuncOp addKernelFunction(ModuleOp program, Location location, StringRef symbol,
                                   ArrayRef<Type> arguments, unsigned number);

/// Of a function that takes addresses, and behind them what tells random numbers apart.
SmallVector<Type> getArgumentTypes(MLIRContext *context, size_t pointers, size_t ids);

/// Adds the functions of one kernel to a program.
class KernelFunctionBuilder {
public:
  /// `ids`: how many the kernel takes.
  KernelFunctionBuilder(ModuleOp program, KernelOp kernel, size_t ids, std::string name,
                        unsigned number);

  const std::string &getName() const { return name; }
  std::string getStageName(size_t stage) const { return name + "_stage" + std::to_string(stage); }
  /// Operands, results, the word for reports if the kernel checks anything, ids.
  ArrayRef<Type> getArgumentTypes() const { return argumentTypes; }
  LLVM::LLVMFuncOp add(StringRef symbol, ArrayRef<Type> arguments);
  /// What a stage finds in a function that has `values` for the kernel's arguments. Constants
  /// become globals of the program.
  StageArguments getStageArguments(const ElementGraph &graph, ArrayRef<Value> values);
  Value constant(int64_t value);

  OpBuilder builder;
  const Location location;
  const Type pointer, i64;

private:
  /// The address of a constant, which is declared once for all stages.
  Value addConstant(DenseElementsAttr values);
  std::string declareConstant(DenseElementsAttr values);

  ModuleOp program;
  KernelOp kernel;
  std::string name;
  unsigned number;
  llvm::DenseMap<Attribute, std::string> constants; ///< symbols of those that are declared
  size_t numPointers;
  SmallVector<Type> argumentTypes;
};

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_EMISSION_KERNELFUNCTION_H
