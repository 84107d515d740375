//===- GraphImporter.cpp - from the schema's graph to a module -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Nodes are imported in file order, which is topological. Each name of the graph is bound to a
// Tensor.
//
// In-place operators (the training level has them) change no memory here: the operator is lowered
// as its functional twin, then all names of the very tensor it wrote are bound to the new value.
// Writing through a partial view would have to change the tensor behind it; such a graph is
// refused, unless nobody looks at the other names again.
//
//===----------------------------------------------------------------------===//

#include "GraphImporter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::ModuleOp;

GraphImporter::GraphImporter(mlir::MLIRContext &context, const ExportedProgram &program,
                             const Weights &weights, StringRef file, const ImportOptions &options)
    : context(context), program(program), weights(weights), file(file), options(options),
      builder(mlir::UnknownLoc::get(&context), &context) {
  root.graph = &program.graph;
}

Error GraphImporter::error(const Twine &message) const { return makeError(file + ": " + message); }

Expected<mlir::OwningOpRef<ModuleOp>> GraphImporter::run() {
  RETURN_IF_ERROR(checkSupported());
  mlir::Location loc = mlir::NameLoc::get(builder.getStringAttr(file));
  module = ModuleOp::create(loc);
  builder.setInsertionPointToEnd(module->getBody());
  function =
      mlir::func::FuncOp::create(builder, loc, "train_step", builder.getFunctionType({}, {}));
  builder.setInsertionPointToStart(function.addEntryBlock());
  scopes.push_back(&root);
  countUses(root);
  RETURN_IF_ERROR(createInputs());
  annotateBatch();
  RETURN_IF_ERROR(importNodes(root));
  root.position = program.graph.nodes.size();
  RETURN_IF_ERROR(createOutputs());
  RETURN_IF_ERROR(finish());
  return std::move(module);
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

void GraphImporter::countUses(Scope &scope) const {
  auto use = [&](const Argument &argument, size_t position) {
    for (const std::string &name : argument.names)
      scope.lastUse[name] = position;
  };
  for (auto [position, node] : enumerate(scope.graph->nodes))
    for (const NamedArgument &input : node.inputs)
      use(input.value, position);
  for (const Argument &output : scope.graph->outputs)
    use(output, scope.graph->nodes.size());
}

Expected<Tensor> GraphImporter::lookup(StringRef name) const {
  const Scope &scope = *scopes.back();
  if (auto it = scope.values.find(name); it != scope.values.end())
    return it->second;
  if (auto it = scope.graph->unsupportedTensors.find(name);
      it != scope.graph->unsupportedTensors.end())
    return makeError("value '" + name + "' has element type " + it->second +
                     ", which is not supported");
  return makeError("refers to missing value '" + name + "'");
}

bool GraphImporter::isUsedLater(StringRef name) const {
  const Scope &scope = *scopes.back();
  auto it = scope.lastUse.find(name);
  return it != scope.lastUse.end() && it->second > scope.position;
}

Error GraphImporter::define(StringRef name, Tensor tensor) {
  if (!scopes.back()->values.try_emplace(name, std::move(tensor)).second)
    return makeError("value '" + name + "' is defined twice");
  return Error::success();
}

Error GraphImporter::mutate(const Tensor &from, Tensor to) {
  if (from.sizes != to.sizes || from.dtype != to.dtype)
    return makeError("writes " + Twine(getName(to.dtype)) + toString(to.sizes) + " over " +
                     getName(from.dtype) + toString(from.sizes));
  if (auto it = folded.find(from.storage); it != folded.end())
    return makeError("writes over the buffer '" + it->second +
                     "'; run run_decompositions({}) on the "
                     "exported program before saving it");
  to.storage = from.storage;
  to.view = from.view;
  for (auto &[target, variable] : variables) {
    if (variable.initial.storage != from.storage)
      continue;
    if (!variable.isBuffer || variable.initial.view != from.view)
      return makeError("writes over part of the state '" + target +
                       "'; run run_decompositions({}) on the "
                       "exported program before saving it");
  }
  for (Scope *scope : scopes)
    for (auto &entry : scope->values) {
      Tensor &tensor = entry.second;
      if (tensor.storage != from.storage)
        continue;
      if (tensor.view == from.view) {
        tensor = to;
        continue;
      }
      auto use = scope->lastUse.find(entry.first());
      if (use != scope->lastUse.end() && use->second > scope->position)
        return makeError("writes over memory that '" + entry.first() +
                         "' sees through another view; run run_decompositions({}) on the exported "
                         "program before saving it");
    }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

mlir::Location GraphImporter::getLocation(const Node &node) const {
  mlir::Location name = mlir::NameLoc::get(
      mlir::StringAttr::get(&context, node.name.empty() ? node.target : node.name));
  return mlir::NameLoc::get(mlir::StringAttr::get(&context, node.modulePath), name);
}

Error GraphImporter::nodeError(const Node &node, Error cause) const {
  return error("node '" + node.name + "'" +
               (node.modulePath.empty() ? "" : " in module '" + node.modulePath + "'") + ": " +
               node.target + ": " + llvm::toString(std::move(cause)));
}

Error GraphImporter::importNodes(Scope &scope) {
  for (auto [position, node] : enumerate(scope.graph->nodes)) {
    scope.position = position;
    builder.setLoc(getLocation(node));
    if (Error err = importNode(node))
      return nodeError(node, std::move(err));
  }
  return Error::success();
}

/// Assertions and arithmetic on sizes: sizes are static, the recorded hints stand for them.
static bool isHousekeeping(StringRef target) {
  return target.starts_with("aten._assert") || target == "aten.sym_size.int" ||
         target == "aten.sym_constrain_range_for_size.default" ||
         target.starts_with("_operator.") || target.starts_with("torch.sym_") ||
         target.starts_with("math.");
}

static bool isGradMode(StringRef target) {
  return target == "higher_order.wrap_with_set_grad_enabled";
}

Error GraphImporter::importNode(const Node &node) {
  if (isHousekeeping(node.target))
    return Error::success();
  if (isGradMode(node.target))
    return inlineGraph(node);
  return importOperator(node);
}

Error GraphImporter::importOperator(const Node &node) {
  bool inPlace = false;
  const OpRow *row = OpTable::get().lookup(node.target, inPlace);
  assert(row && "checkSupported() has passed");
  std::vector<Parameter> parameters = parseParameters(row->parameters);
  OpContext op(*this, builder, node, *scopes.back()->graph);
  RETURN_IF_ERROR(op.bind(parameters));
  RETURN_IF_ERROR(row->lower(op));
  RETURN_IF_ERROR(op.checkResults());
  std::vector<std::optional<Tensor>> results = op.takeResults();
  for (const std::optional<Tensor> &result : results)
    if (result && result->constant)
      foldedBytes +=
          result->constant->getNumStored() * (result->dtype == DType::Bool ? 1 : sizeof(int64_t));
  if (foldedBytes > limits::foldedBytes)
    return makeError("index arithmetic gives more than " + Twine(limits::foldedBytes) + " bytes");
  if (inPlace) {
    if (results.size() != 1 || !results.front() ||
        parameters.front().type != Parameter::Type::Tensor)
      return makeError("expected one result, found " + Twine(results.size()));
    Tensor target = op.tensor(parameters.front().name);
    RETURN_IF_ERROR(mutate(target, *results.front()));
    results.front()->storage = target.storage;
    results.front()->view = target.view;
  }
  size_t i = 0;
  for (const Argument &output : node.outputs) {
    if (output.kind != Argument::Kind::Tensor && output.kind != Argument::Kind::Tensors) {
      ++i;
      continue;
    }
    for (const std::string &name : output.names)
      if (std::optional<Tensor> &result = results[i++]; result && !name.empty())
        RETURN_IF_ERROR(define(name, std::move(*result)));
  }
  return Error::success();
}

/// wrap_with_set_grad_enabled(enabled, graph, tensors...): the graph's nodes take the call's place.
Error GraphImporter::inlineGraph(const Node &node) {
  if (node.inputs.size() < 2 || node.inputs[0].value.kind != Argument::Kind::Bool ||
      node.inputs[1].value.kind != Argument::Kind::Graph)
    return makeError("expected a boolean and a graph as its first arguments");
  bool gradients = node.inputs[0].value.ints.front();
  const Graph &graph = *node.inputs[1].value.graph;
  ArrayRef<NamedArgument> operands = ArrayRef(node.inputs).drop_front(2);
  if (operands.size() != graph.inputs.size())
    return makeError("the graph takes " + Twine(graph.inputs.size()) + " tensors, " +
                     Twine(operands.size()) + " are given");
  Scope scope;
  scope.graph = &graph;
  for (auto [input, operand] : zip_equal(graph.inputs, operands)) {
    if (input.kind != Argument::Kind::Tensor || operand.value.kind != Argument::Kind::Tensor)
      return makeError("expected tensors as operands of the graph");
    ASSIGN_OR_RETURN(Tensor value, lookup(operand.value.names.front()));
    if (!scope.values.try_emplace(input.names.front(), std::move(value)).second)
      return makeError("input '" + input.names.front() + "' of the graph is defined twice");
  }
  countUses(scope);
  scopes.push_back(&scope);
  Error failed = importNodes(scope);
  std::vector<Tensor> results;
  for (const Argument &output : graph.outputs) {
    if (failed)
      break;
    if (output.kind != Argument::Kind::Tensor) {
      failed = makeError("expected tensors as results of the graph");
      break;
    }
    auto value = lookup(output.names.front());
    if (value)
      results.push_back(*value);
    else
      failed = value.takeError();
  }
  scopes.pop_back();
  if (failed)
    return failed;
  std::vector<std::string> names;
  for (const Argument &output : node.outputs)
    append_range(names, output.names);
  if (names.size() != results.size())
    return makeError("the graph gives " + Twine(results.size()) + " tensors, expected " +
                     Twine(names.size()));
  for (auto [name, result] : zip_equal(names, results)) {
    if (!gradients)
      RETURN_IF_ERROR(stopGradient(result));
    RETURN_IF_ERROR(define(name, std::move(result)));
  }
  return Error::success();
}

/// A tensor that no gradient may flow through. The dialect has no op for that, because it would
/// only matter when a trainable parameter stands behind the value; such a graph is refused.
Error GraphImporter::stopGradient(const Tensor &tensor) const {
  if (!tensor.value || !isFloat(tensor.dtype))
    return Error::success();
  SmallVector<mlir::Value> pending{tensor.value};
  SmallPtrSet<mlir::Operation *, 16> visited;
  while (!pending.empty()) {
    mlir::Operation *producer = pending.pop_back_val().getDefiningOp();
    if (!producer || !visited.insert(producer).second)
      continue;
    if (auto read = dyn_cast<mlir::memopt::ReadOp>(producer))
      if (auto variable = module.get().lookupSymbol<mlir::memopt::VariableOp>(read.getVariable());
          variable && variable.getTrainable())
        return makeError("stops the gradient of a value that depends on the parameter '" +
                         variable.getSymName() + "', which is not supported");
    for (mlir::Value operand : producer->getOperands())
      if (isa<mlir::FloatType>(mlir::getElementTypeOrSelf(operand.getType())))
        pending.push_back(operand);
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Before and after
//===----------------------------------------------------------------------===//

namespace {
/// What cannot be imported, by operator, with the modules that use it.
struct Unsupported {
  unsigned count = 0;
  SmallVector<StringRef, 4> modules;
};
} // namespace

static void collectUnsupported(const Graph &graph, MapVector<StringRef, Unsupported> &found) {
  for (const Node &node : graph.nodes) {
    bool inPlace;
    bool known = isHousekeeping(node.target) || isGradMode(node.target) ||
                 OpTable::get().lookup(node.target, inPlace);
    for (const NamedArgument &input : node.inputs)
      if (known && input.value.graph)
        collectUnsupported(*input.value.graph, found);
    if (known)
      continue;
    Unsupported &entry = found[node.target];
    ++entry.count;
    if (!is_contained(entry.modules, node.modulePath))
      entry.modules.push_back(node.modulePath);
  }
}

/// All operators that are missing, in one error: whoever adds them wants the whole list.
Error GraphImporter::checkSupported() const {
  MapVector<StringRef, Unsupported> found;
  collectUnsupported(program.graph, found);
  if (found.empty())
    return Error::success();
  std::string text;
  raw_string_ostream os(text);
  os << found.size() << (found.size() == 1 ? " operator is" : " operators are")
     << " not supported:";
  for (const auto &[target, entry] : found) {
    os << "\n  " << target << " (" << entry.count << (entry.count == 1 ? " use" : " uses")
       << " in ";
    constexpr size_t shown = 8;
    interleaveComma(ArrayRef(entry.modules).take_front(shown), os,
                    [&](StringRef module) { os << (module.empty() ? "the root module" : module); });
    if (entry.modules.size() > shown)
      os << " and " << entry.modules.size() - shown << " more";
    os << ")";
  }
  return error(text);
}

RandomState GraphImporter::nextRandomState(mlir::ImplicitLocOpBuilder &b) {
  auto read = [&](StringRef name, mlir::Value &value) {
    if (value)
      return value;
    mlir::OpBuilder::InsertionGuard guard(b);
    auto type = mlir::RankedTensorType::get({}, b.getI64Type());
    b.setInsertionPoint(function);
    if (!module->lookupSymbol(name)) {
      mlir::memopt::VariableOp::create(b, module->getLoc(), name, type,
                                       mlir::memopt::Role::Hyperparameter);
    }
    b.setInsertionPointToStart(&function.getBody().front());
    value = mlir::memopt::ReadOp::create(b, type, name);
    return value;
  };
  mlir::Value seedValue = read("seed", seed), stepValue = read("step", step);
  return {seedValue, stepValue, nextRandom++};
}

/// Removes what nobody uses and runs the verifiers. A verifier's message becomes the error: a graph
/// that contradicts itself gets here with shapes that no operator has.
Error GraphImporter::finish() {
  for (mlir::Operation &op : make_early_inc_range(reverse(function.getBody().front())))
    if (mlir::isOpTriviallyDead(&op))
      op.erase();
  std::string message;
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diagnostic) {
    if (message.empty() && diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error) {
      raw_string_ostream os(message);
      if (auto loc = dyn_cast<mlir::NameLoc>(diagnostic.getLocation()))
        os << "module '" << loc.getName().getValue() << "': ";
      os << diagnostic;
    }
    return mlir::success();
  });
  if (failed(mlir::verify(*module)))
    return error("the graph contradicts itself: " + message);
  return Error::success();
}
