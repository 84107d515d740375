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

#include "memopt/Import/Graph/GraphImporter.h"
#include "Dropout.h"

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
  mlir::Location loc = mlir::NameLoc::get(builder.getStringAttr(file));
  module = ModuleOp::create(loc);
  if (options.target)
    (*module)->setAttr(mlir::memopt::MemoptDialect::kTargetAttr, options.target);
  builder.setInsertionPointToEnd(module->getBody());
  function =
      mlir::func::FuncOp::create(builder, loc, "train_step", builder.getFunctionType({}, {}));
  builder.setInsertionPointToStart(function.addEntryBlock());
  scopes.push_back(&root);
  countUses(root);
  for (const Node &node : program.graph.nodes)
    classes.try_emplace(node.modulePath, node.moduleClass);
  for (const InputSpec &spec : program.inputs)
    inputs.insert(spec.value);
  RETURN_IF_ERROR(createInputs());
  annotateBatch();
  importNodes(root);
  if (!refusals.empty())
    return refusals.take(file);
  root.position = program.graph.nodes.size();
  RETURN_IF_ERROR(createOutputs());
  RETURN_IF_ERROR(finish());
  return std::move(module);
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

/// Assertions and arithmetic on sizes: sizes are static, the recorded hints stand for them.
/// What a solver says of its success shows in the values here.
static bool isAssertion(StringRef target) {
  return target.starts_with("aten._assert") || target == "aten._linalg_check_errors.default";
}
static bool isHousekeeping(StringRef target) {
  return isAssertion(target) || target == "aten.sym_size.int" ||
         target == "aten.sym_constrain_range_for_size.default" ||
         target.starts_with("_operator.") || target.starts_with("torch.sym_") ||
         target.starts_with("math.");
}

/// Names that more than an assertion depends on: `x.max().item()` in `assert x.max().item() < n` is
/// none of them.
static StringSet<> findNeeded(const Graph &graph) {
  StringSet<> needed;
  auto need = [&](const Argument &argument) {
    needed.insert(argument.names.begin(), argument.names.end());
  };
  auto isNeeded = [&](const Argument &argument) {
    return any_of(argument.names, [&](const std::string &name) { return needed.contains(name); });
  };
  for_each(graph.outputs, need);
  for (const Node &node : reverse(graph.nodes))
    if (!isHousekeeping(node.target) ||
        (!isAssertion(node.target) && any_of(node.outputs, isNeeded)))
      for (const NamedArgument &input : node.inputs)
        need(input.value);
  return needed;
}

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
  scope.needed = findNeeded(*scope.graph);
}

Tensor GraphImporter::newTensor(DType dtype, ArrayRef<int64_t> sizes) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.sizes.assign(sizes.begin(), sizes.end());
  tensor.storage = newIdentity();
  tensor.view = newIdentity();
  return tensor;
}

Expected<Tensor> GraphImporter::lookup(StringRef name) const {
  const Scope &scope = *scopes.back();
  if (auto it = scope.values.find(name); it != scope.values.end())
    return it->second;
  if (auto it = scope.graph->unsupportedTensors.find(name);
      it != scope.graph->unsupportedTensors.end())
    return makeError("value '" + name + "' has " + it->second + ", which is not supported");
  return makeError("refers to missing value '" + name + "'");
}

bool GraphImporter::isUsedLater(StringRef name) const {
  const Scope &scope = *scopes.back();
  auto it = scope.lastUse.find(name);
  return it != scope.lastUse.end() && it->second > scope.position;
}

Error GraphImporter::define(StringRef name, Tensor tensor) {
  if (!scopes.back()->add(name, std::move(tensor)))
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
  if (auto it = variableAt.find(from.storage); it != variableAt.end()) {
    const Variable &variable = variables[it->second];
    if (!variable.isBuffer || variable.initial.view != from.view)
      return makeError("writes over part of the state '" + it->second +
                       "'; run run_decompositions({}) on the "
                       "exported program before saving it");
  }
  for (Scope *scope : scopes) {
    SmallVector<StringRef, 2> &names = scope->namesOf[from.storage];
    // A variable's last value is asked for at the end, whatever reads its first.
    erase_if(names, [&](StringRef name) {
      auto use = scope->lastUse.find(name);
      bool isRead = use != scope->lastUse.end() && use->second >= scope->position;
      return !isRead && !(scope == &root && inputs.contains(name));
    });
    for (StringRef name : names) {
      Tensor &tensor = scope->values.find(name)->second;
      if (tensor.view == from.view)
        tensor = to;
      else if (auto use = scope->lastUse.find(name);
               use != scope->lastUse.end() && use->second > scope->position)
        return makeError("writes over memory that '" + name +
                         "' sees through another view; run run_decompositions({}) on the exported "
                         "program before saving it");
    }
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

/// `"module"("node"("model.py:12"))`; messages and the manifest take it apart again.
mlir::Location GraphImporter::getLocation(const Node &node) const {
  mlir::Location location = mlir::UnknownLoc::get(&context);
  auto wrap = [&](StringRef name) {
    location = mlir::NameLoc::get(mlir::StringAttr::get(&context, name), location);
  };
  if (!node.line.empty())
    wrap(node.line);
  wrap(node.name.empty() ? node.target : node.name);
  wrap(node.modulePath);
  return location;
}

/// All nodes; those that fail get stand-ins for their results.
void GraphImporter::importNodes(Scope &scope) {
  if (overridesTraining() || !options.dropout)
    scope.forwarded = findAlphaDropouts(*scope.graph);
  for (auto [position, node] : enumerate(scope.graph->nodes)) {
    scope.position = position;
    builder.setLoc(getLocation(node));
    bool isConsequence = readsStandIn(node);
    Error failed = importNode(node);
    if (!failed && !isConsequence)
      continue;
    if (failed && !isConsequence)
      refusals.add(node, std::move(failed));
    else
      consumeError(std::move(failed));
    defineStandIns(node);
  }
}

bool GraphImporter::readsStandIn(const Node &node) const {
  const Scope &scope = *scopes.back();
  return any_of(node.inputs, [&](const NamedArgument &input) {
    return any_of(input.value.names,
                  [&](const std::string &name) { return scope.standIns.contains(name); });
  });
}

/// Marks a node's results as made up, and makes them up where import has not got to it.
void GraphImporter::defineStandIns(const Node &node) {
  Scope &scope = *scopes.back();
  for (const Argument &output : node.outputs)
    for (const std::string &name : output.names) {
      scope.standIns.insert(name);
      auto meta = scope.graph->tensors.find(name);
      if (meta == scope.graph->tensors.end())
        continue;
      Tensor tensor = newTensor(meta->second.dtype, meta->second.sizes);
      tensor.value = mlir::tensor::EmptyOp::create(builder, tensor.sizes,
                                                   getElementType(builder, tensor.dtype));
      scope.add(name, std::move(tensor));
    }
}

/// A number that Python takes from a tensor only to assert something of it.
bool GraphImporter::isNumberForAssertion(const Node &node) const {
  return node.target == "aten.item.default" && node.outputs.size() == 1 &&
         node.outputs.front().names.size() == 1 &&
         !scopes.back()->needed.contains(node.outputs.front().names.front());
}

static bool isGradMode(StringRef target) {
  return target == "higher_order.wrap_with_set_grad_enabled";
}

Error GraphImporter::importNode(const Node &node) {
  if (isHousekeeping(node.target) || isNumberForAssertion(node))
    return Error::success();
  if (isGradMode(node.target))
    return inlineGraph(node);
  if (!scopes.back()->forwarded.empty() && node.outputs.size() == 1)
    if (const std::string &name = node.outputs.front().names.front();
        scopes.back()->forwarded.contains(name)) {
      ASSIGN_OR_RETURN(Tensor tensor, lookup(scopes.back()->forwarded[name]));
      return define(name, std::move(tensor));
    }
  return importOperator(node);
}

Error GraphImporter::importOperator(const Node &node) {
  bool inPlace = false;
  const OpRow *row = OpTable::get().lookup(node.target, inPlace);
  if (!row) {
    ASSIGN_OR_RETURN(bool isOwn, importOwnOperator(node));
    if (isOwn)
      return Error::success();
    refusals.addUnknown(node);
    defineStandIns(node);
    return Error::success();
  }
  std::vector<Parameter> parameters = parseParameters(row->parameters);
  OpContext op(*this, builder, node, *scopes.back()->graph, !row->keepsHalves);
  RETURN_IF_ERROR(op.bind(parameters));
  RETURN_IF_ERROR(row->lower(op));
  RETURN_IF_ERROR(op.finishResults());
  std::vector<std::optional<Tensor>> results = op.takeResults();
  for (const std::optional<Tensor> &result : results)
    if (result && result->constant)
      foldedBytes +=
          result->constant->getNumStored() * (result->dtype == DType::Bool ? 1 : sizeof(int64_t));
  if (foldedBytes > limits::foldedBytes)
    return makeError("index arithmetic gives more than " + Twine(limits::foldedBytes) + " bytes");
  if (inPlace) {
    const std::string &self = parameters.front().name;
    if (results.size() != 1 || !results.front() || !op.isTensor(self))
      return makeError("expected one result and a tensor to write over, found " +
                       Twine(results.size()) + " results");
    RETURN_IF_ERROR(op.mutate(self, *results.front()));
    Tensor target = op.original(self);
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
    if (!scope.add(input.names.front(), std::move(value)))
      return makeError("input '" + input.names.front() + "' of the graph is defined twice");
    if (scopes.back()->standIns.contains(operand.value.names.front()))
      scope.standIns.insert(input.names.front());
  }
  std::vector<std::string> names;
  for (const Argument &output : node.outputs)
    append_range(names, output.names);
  if (names.size() != graph.outputs.size())
    return makeError("the graph gives " + Twine(graph.outputs.size()) + " tensors, expected " +
                     Twine(names.size()));
  countUses(scope);
  scopes.push_back(&scope);
  importNodes(scope);
  scopes.pop_back();
  for (auto [name, output] : zip_equal(names, graph.outputs)) {
    if (output.kind != Argument::Kind::Tensor)
      return makeError("expected tensors as results of the graph");
    auto result = scope.values.find(output.names.front());
    if (result == scope.values.end())
      return makeError("refers to missing value '" + output.names.front() + "'");
    if (scope.standIns.contains(output.names.front()))
      scopes.back()->standIns.insert(name);
    RETURN_IF_ERROR(define(name, gradients ? result->second : stopGradient(result->second)));
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

Tensor GraphImporter::stopGradient(Tensor tensor) {
  if (tensor.value && isFloat(tensor.dtype) && !options.evaluate)
    tensor.value = mlir::memopt::StopGradientOp::create(builder, tensor.value);
  return tensor;
}

StringRef GraphImporter::findTrainable(const Tensor &tensor) const {
  SmallVector<mlir::Value> pending;
  if (tensor.value)
    pending.push_back(tensor.value);
  SmallPtrSet<mlir::Operation *, 16> visited;
  while (!pending.empty()) {
    mlir::Operation *producer = pending.pop_back_val().getDefiningOp();
    if (!producer || !visited.insert(producer).second)
      continue;
    if (auto read = dyn_cast<mlir::memopt::ReadOp>(producer))
      if (auto variable = module.get().lookupSymbol<mlir::memopt::VariableOp>(read.getVariable());
          variable && variable.getTrainable())
        return read.getVariable();
    for (mlir::Value operand : producer->getOperands())
      if (isa<mlir::FloatType>(mlir::getElementTypeOrSelf(operand.getType())))
        pending.push_back(operand);
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Before and after
//===----------------------------------------------------------------------===//

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
