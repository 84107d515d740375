//===- OwnOperators.cpp - operators that the user gives as source -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The archive has the source of an operator memopt_operators.NAME in extra/memopt_operators, as
//
//   NAME.mlir     a function @NAME: of numbers, which is applied to all elements, or of tensors
//   NAME.c        a function NAME of addresses (memopt.foreign_call)
//   NAME.each.c   the same, which goes element by element
//
// A function of MLIR takes the call's place in the graph. It has no ops but those that compute, so
// it is data like the rest of the archive; C is code, which must be allowed.
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/ApartOps.h"
#include "memopt/Import/Graph/GraphImporter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::Operation;
using mlir::RankedTensorType;
using mlir::Type;
using mlir::Value;

//===----------------------------------------------------------------------===//
// MLIR
//===----------------------------------------------------------------------===//

/// Parses the source; the parser's words become the error's.
static Expected<mlir::OwningOpRef<mlir::ModuleOp>> parseSource(OpContext &op, StringRef source) {
  std::string said;
  mlir::ScopedDiagnosticHandler handler(op.b.getContext(), [&](mlir::Diagnostic &diagnostic) {
    if (said.empty())
      said = diagnostic.str();
    return mlir::success();
  });
  auto module = mlir::parseSourceString<mlir::ModuleOp>(source, op.b.getContext());
  if (!module)
    return op.error("the source is no MLIR: " + said);
  return module;
}

static bool isTensor(Type type) { return isa<RankedTensorType>(type); }

/// Numbers or tensors, for both operands and results.
static Error checkTypes(OpContext &op, mlir::func::FuncOp function, ArrayRef<Value> operands) {
  mlir::FunctionType type = function.getFunctionType();
  if (type.getNumInputs() != operands.size() || type.getNumResults() != op.getNumResults())
    return op.error("the function takes " + Twine(type.getNumInputs()) + " values and gives " +
                    Twine(type.getNumResults()) + ", expected " + Twine(operands.size()) + " and " +
                    Twine(op.getNumResults()));
  bool ofTensors = !type.getInputs().empty() && isTensor(type.getInput(0));
  auto check = [&](Type own, RankedTensorType given, StringRef what, size_t number) -> Error {
    if (own == (ofTensors ? Type(given) : given.getElementType()))
      return Error::success();
    std::string text;
    raw_string_ostream(text) << what << " " << number << " of the function is " << own
                             << ", expected " << (ofTensors ? Type(given) : given.getElementType());
    return op.error(text);
  };
  for (auto [number, operand] : enumerate(operands))
    if (Error failed = check(type.getInput(number), cast<RankedTensorType>(operand.getType()),
                             "argument", number))
      return failed;
  for (size_t number = 0; number < op.getNumResults(); ++number)
    if (Error failed = check(type.getResult(number), op.resultType(number), "result", number))
      return failed;
  return Error::success();
}

/// The body applied to tensors: each op of numbers is that of all elements.
static Error applyToElements(OpContext &op, mlir::Block &body, mlir::IRMapping &values,
                             ArrayRef<int64_t> shape) {
  for (Operation &inner : body.without_terminator()) {
    if (auto constant = dyn_cast<mlir::arith::ConstantOp>(inner)) {
      auto type = RankedTensorType::get(shape, constant.getType());
      values.map(constant.getResult(),
                 mlir::arith::ConstantOp::create(
                     op.b, mlir::DenseElementsAttr::get(type, mlir::Attribute(constant.getValue())))
                     .getResult());
      continue;
    }
    bool computes = isa<mlir::arith::ArithDialect, mlir::math::MathDialect>(inner.getDialect());
    if (!computes || !mlir::OpTrait::hasElementwiseMappableTraits(&inner))
      return op.error("the function has " + inner.getName().getStringRef() +
                      ", expected ops of arith and math that compute a number from numbers");
    Operation *copy = op.b.clone(inner, values);
    for (mlir::OpResult result : copy->getResults())
      result.setType(RankedTensorType::get(shape, result.getType()));
  }
  return Error::success();
}

static Error copyBody(OpContext &op, mlir::Block &body, mlir::IRMapping &values) {
  for (Operation &inner : body.without_terminator()) {
    if (!isa<mlir::arith::ArithDialect, mlir::math::MathDialect, mlir::linalg::LinalgDialect,
             mlir::tensor::TensorDialect, mlir::memopt::MemoptDialect>(inner.getDialect()) ||
        isa<mlir::memopt::ForeignCallOp>(inner))
      return op.error("the function has " + inner.getName().getStringRef() +
                      ", expected ops of arith, math, linalg, tensor and memopt");
    op.b.clone(inner, values);
  }
  return Error::success();
}

static Error inlineFunction(OpContext &op, StringRef name, StringRef source,
                            ArrayRef<Value> operands) {
  op.b.getContext()->loadDialect<mlir::linalg::LinalgDialect>();
  auto module = parseSource(op, source);
  if (!module)
    return module.takeError();
  auto function = (*module)->lookupSymbol<mlir::func::FuncOp>(name);
  if (!function || !function.getBody().hasOneBlock())
    return op.error("the source has no func.func @" + name + " of one block");
  if (Error failed = checkTypes(op, function, operands))
    return failed;
  mlir::Block &body = function.getBody().front();
  mlir::IRMapping values;
  values.map(body.getArguments(), operands);
  bool ofTensors = !operands.empty() && isTensor(body.getArgument(0).getType());
  ArrayRef<int64_t> shape = op.resultType(0).getShape();
  if (!ofTensors)
    for (Value operand : operands)
      if (cast<RankedTensorType>(operand.getType()).getShape() != shape)
        return op.error("a function of numbers takes tensors of one shape, that of its results");
  if (Error failed =
          ofTensors ? copyBody(op, body, values) : applyToElements(op, body, values, shape))
    return failed;
  for (auto [number, value] : enumerate(body.getTerminator()->getOperands()))
    op.setResult(number, values.lookup(value));
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Operators
//===----------------------------------------------------------------------===//

static Error callForeign(OpContext &op, StringRef name, StringRef source, ArrayRef<Value> operands,
                         bool isElementwise) {
  if (!op.importer.getOptions().allowsC)
    return op.error(
        "is given in C, which is code that the program would run; allow it by --c-sources=on");
  SmallVector<Type> results;
  for (size_t i = 0; i < op.getNumResults(); ++i)
    results.push_back(op.resultType(i));
  auto call =
      mlir::memopt::ForeignCallOp::create(op.b, results, operands, name, source, isElementwise,
                                          mlir::memopt::Phase::Forward, /*clone=*/0,
                                          /*offsets=*/nullptr);
  for (auto [i, result] : enumerate(call.getResults()))
    op.setResult(i, result);
  return Error::success();
}

Expected<bool> GraphImporter::importOwnOperator(const Node &node) {
  StringRef name = node.target;
  if (!name.consume_front("memopt_operators.") || !name.consume_back(".default"))
    return false;
  auto find = [&](StringRef ending) -> const std::string * {
    auto it = program.operators.find((name + ending).str());
    return it == program.operators.end() ? nullptr : &it->second;
  };
  const std::string *mlir = find(".mlir"), *each = find(".each.c"), *whole = find(".c");
  if (!mlir && !each && !whole)
    return false;
  OpContext op(*this, builder, node, *scopes.back()->graph);
  if (Error failed = op.bind(parseParameters("Tensor[] arguments")))
    return failed;
  SmallVector<Value> operands;
  for (const std::optional<Tensor> &tensor : op.tensors("arguments"))
    operands.push_back(op.get(*tensor));
  if (op.getNumResults() == 0)
    return op.error("has no result");
  if (Error failed = mlir ? inlineFunction(op, name, *mlir, operands)
                          : callForeign(op, name, each ? *each : *whole, operands, each))
    return failed;
  if (Error failed = op.finishResults())
    return failed;
  std::vector<std::optional<Tensor>> results = op.takeResults();
  size_t i = 0;
  for (const Argument &output : node.outputs)
    for (const std::string &result : output.names)
      if (std::optional<Tensor> &tensor = results[i++]; tensor && !result.empty())
        if (Error failed = define(result, std::move(*tensor)))
          return failed;
  return true;
}
