//===- KernelFunction.cpp - functions that kernels become --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Emission/KernelFunction.h"

#include "memopt/Conversion/Core/Graph/KernelArguments.h"

using namespace mlir;
using namespace mlir::memopt;

LLVM::LLVMFuncOp mlir::memopt::addKernelFunction(ModuleOp program, Location location,
                                                 StringRef symbol, ArrayRef<Type> arguments,
                                                 unsigned number) {
  OpBuilder builder = OpBuilder::atBlockEnd(program.getBody());
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(program.getContext()), arguments);
  auto function = LLVM::LLVMFuncOp::create(builder, location, symbol, type);
  function.setVisibility_(LLVM::Visibility::Hidden);
  function->setAttr(kKernelNumberAttr, builder.getI64IntegerAttr(number));
  return function;
}

SmallVector<Type> mlir::memopt::getArgumentTypes(MLIRContext *context, size_t pointers,
                                                 size_t ids) {
  SmallVector<Type> types(pointers, LLVM::LLVMPointerType::get(context));
  types.append(ids, IntegerType::get(context, 64));
  return types;
}

KernelFunctionBuilder::KernelFunctionBuilder(ModuleOp program, KernelOp kernel, size_t ids,
                                             std::string name, unsigned number)
    : builder(OpBuilder::atBlockEnd(program.getBody())), location(kernel.getLoc()),
      pointer(LLVM::LLVMPointerType::get(program.getContext())), i64(builder.getI64Type()),
      program(program), kernel(kernel), name(std::move(name)), number(number),
      numPointers(kernel.getNumOperands() + kernel.getNumResults() + (hasChecks(kernel) ? 1 : 0)),
      argumentTypes(mlir::memopt::getArgumentTypes(program.getContext(), numPointers, ids)) {}

LLVM::LLVMFuncOp KernelFunctionBuilder::add(StringRef symbol, ArrayRef<Type> arguments) {
  return addKernelFunction(program, location, symbol, arguments, number);
}

Value KernelFunctionBuilder::constant(int64_t value) {
  return LLVM::ConstantOp::create(builder, location, i64, builder.getI64IntegerAttr(value));
}

StageArguments KernelFunctionBuilder::getStageArguments(const ElementGraph &graph,
                                                        ArrayRef<Value> values) {
  unsigned numOperands = kernel.getNumOperands(), numResults = kernel.getNumResults();
  StageArguments arguments;
  arguments.buffers.assign(values.begin(), values.begin() + numOperands);
  llvm::append_range(arguments.results, values.slice(numOperands, numResults));
  if (numPointers > numOperands + numResults)
    arguments.faults = values[numOperands + numResults];
  llvm::append_range(arguments.randomIds, values.drop_front(numPointers));
  for (DenseElementsAttr constants : graph.getConstantBuffers())
    arguments.buffers.push_back(addConstant(constants));
  return arguments;
}

Value KernelFunctionBuilder::addConstant(DenseElementsAttr given) {
  std::string &symbol = constants[given];
  if (symbol.empty())
    symbol = declareConstant(given);
  return LLVM::AddressOfOp::create(builder, location, pointer, symbol);
}

/// A boolean becomes a byte.
std::string KernelFunctionBuilder::declareConstant(DenseElementsAttr values) {
  if (values.getElementType().isInteger(1))
    values = values.mapValues(builder.getI8Type(), [](const APInt &bit) { return bit.zext(8); });
  auto flat = RankedTensorType::get(values.getNumElements(), values.getElementType());
  std::string symbol = name + "_constant" + std::to_string(constants.size() - 1);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(program.getBody());
  auto type = LLVM::LLVMArrayType::get(values.getElementType(), values.getNumElements());
  auto global = LLVM::GlobalOp::create(builder, location, type, /*isConstant=*/true,
                                       LLVM::Linkage::Internal, symbol, values.reshape(flat),
                                       /*alignment=*/64);
  global->setAttr(kKernelNumberAttr, builder.getI64IntegerAttr(number));
  return symbol;
}
