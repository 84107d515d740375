//===- Gradients.cpp - what a model says about its gradients -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Gradients that are stopped, and the backward formulas of torch.autograd.Function, which
// tools/python/memopt/tracing/gradients.py writes into the graph:
//
//    y = ...                                             what forward computes
//    g = memopt.incoming_gradient(y, 0)
//    d = ...                                             what backward computes from g
//    z = memopt.custom_gradient([y], [g], [x], [d])      y, whose gradient reaches x as d
//
//    z = memopt.with_gradient_of(y, x)                   y, whose gradient is x's
//
//    loss = memopt.updated_where(loss, [p], n)           p is updated where n is above zero
//
// Evaluation has no gradients, so there it is all the identity.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/GraphImporter.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::Value;

/// A view of its own: writing over it must not give the tensor behind it a stopped gradient.
static Error lowerDetach(OpContext &op) {
  Tensor result = op.importer.stopGradient(op.tensor("self"));
  result.view = op.importer.newIdentity();
  return setResult(op, result);
}

namespace {
enum class Alias { View, Detached, Unknown };
} // namespace

/// Core ATen writes `alias` for `detach` as well as for `x[:]`; which of them it was, only the name
/// of what the model called tells. A function written in Python may have called either.
static Alias classifyAlias(StringRef caller) {
  auto [kind, name] = caller.rsplit('.');
  if (!is_contained({"method_descriptor", "wrapper_descriptor", "builtin_function_or_method",
                     "OpOverloadPacket", "OpOverload"},
                    kind))
    return Alias::Unknown;
  return name.starts_with("detach") ? Alias::Detached : Alias::View;
}

static Error lowerAlias(OpContext &op) {
  Tensor self = op.tensor("self");
  Alias alias = classifyAlias(op.node.caller);
  if (alias == Alias::Detached)
    return lowerDetach(op);
  if (alias == Alias::View || !isFloat(self.dtype) || op.importer.getOptions().evaluate)
    return setResult(op, self);
  if (StringRef parameter = op.importer.findTrainable(self); !parameter.empty())
    return op.error("may be a detached tensor, and depends on the parameter '" + parameter +
                    "'; export with run_decompositions({}), as memopt_export does");
  return setResult(op, self);
}

static Error lowerIncomingGradient(OpContext &op) {
  Tensor value = op.tensor("value");
  if (!isFloat(value.dtype))
    return op.error("expected a floating-point tensor, found " + getName(value.dtype));
  return setResult(op, op.wrap(value.dtype, mlir::memopt::IncomingGradientOp::create(
                                                op.b, op.get(value),
                                                op.b.getI64IntegerAttr(op.integer("result")))));
}

static SmallVector<Value> getValues(OpContext &op, StringRef name) {
  SmallVector<Value> values;
  for (const std::optional<Tensor> &tensor : op.tensors(name))
    values.push_back(op.get(*tensor));
  return values;
}

static Error lowerCustomGradient(OpContext &op) {
  std::vector<std::optional<Tensor>> values = op.tensors("values");
  if (values.size() != op.getNumResults())
    return op.error("expected one result for each of " + Twine(values.size()) + " values, found " +
                    Twine(op.getNumResults()));
  if (op.importer.getOptions().evaluate) {
    for (auto [i, value] : enumerate(values))
      op.setResult(i, op.copy(*value));
    return Error::success();
  }
  SmallVector<Value> forward = getValues(op, "values");
  auto marked = mlir::memopt::CustomGradientOp::create(
      op.b, mlir::ValueRange(forward).getTypes(), forward, getValues(op, "gradients"),
      getValues(op, "inputs"), getValues(op, "input_gradients"));
  for (auto [i, result] : enumerate(marked.getResults()))
    op.setResult(i, result);
  return Error::success();
}

static Error lowerWithGradientOf(OpContext &op) {
  Tensor written = op.tensor("written"), value = op.tensor("value");
  if (written.sizes != value.sizes || written.dtype != value.dtype)
    return op.error("expected two tensors of one shape and type");
  if (op.importer.getOptions().evaluate || !isFloat(value.dtype))
    return setResult(op, op.copy(written));
  Value y = op.get(written), x = op.get(value);
  auto gradient = mlir::memopt::IncomingGradientOp::create(op.b, y, op.b.getI64IntegerAttr(0));
  auto marked = mlir::memopt::CustomGradientOp::create(
      op.b, mlir::TypeRange(y.getType()), y, gradient.getResult(), x, gradient.getResult());
  return setResult(op, op.wrap(written.dtype, marked.getResult(0)));
}

/// The loss, and a mark beside it; evaluation updates nothing.
static Error lowerUpdatedWhere(OpContext &op) {
  Tensor loss = op.tensor("loss"), count = op.tensor("count");
  SmallVector<mlir::Attribute> variables;
  for (const std::optional<Tensor> &parameter : op.tensors("parameters"))
    if (StringRef name = op.importer.findTrainable(*parameter); !name.empty())
      variables.push_back(mlir::FlatSymbolRefAttr::get(op.b.getContext(), name));
  if (!variables.empty() && !op.importer.getOptions().evaluate)
    mlir::memopt::UpdatedWhereOp::create(op.b, op.get(count), op.b.getArrayAttr(variables));
  return setResult(op, loss);
}

void memopt::pt2::registerGradients(OpTable &table) {
  table.add("aten.alias.default", "Tensor self", lowerAlias);
  table.add("aten.alias_copy.default", "Tensor self", lowerCopied<lowerAlias>);
  table.add("aten.detach_copy.default", "Tensor self", lowerCopied<lowerDetach>);
  table.add("aten.detach.default", "Tensor self", lowerDetach);
  table.add("memopt.incoming_gradient.default", "Tensor value, int result", lowerIncomingGradient);
  table.add("memopt.custom_gradient.default",
            "Tensor[] values, Tensor[] gradients, Tensor[] inputs, Tensor[] input_gradients",
            lowerCustomGradient);
  table.add("memopt.with_gradient_of.default", "Tensor written, Tensor value", lowerWithGradientOf);
  table.add("memopt.updated_where.default", "Tensor loss, Tensor[] parameters, Tensor count",
            lowerUpdatedWhere);
}
