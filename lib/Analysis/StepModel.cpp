//===- StepModel.cpp - what the step of a module is -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/StepModel.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "llvm/ADT/SetVector.h"
using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Finding the step
//===----------------------------------------------------------------------===//

static FailureOr<func::FuncOp> findStep(ModuleOp module) {
  func::FuncOp step;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!function.isPublic() || function.isDeclaration())
      continue;
    if (step) {
      InFlightDiagnostic diagnostic = function.emitError()
                                      << "is a second public function; a module has one, its step";
      diagnostic.attachNote(step.getLoc()) << "'" << step.getName() << "' is here";
      return diagnostic;
    }
    step = function;
  }
  if (!step)
    return emitError(module.getLoc()) << "has no step: expected one public function with a body";
  return step;
}

static LogicalResult verifyTypes(func::FuncOp step) {
  FunctionType type = step.getFunctionType();
  for (ArrayRef<Type> types : {type.getInputs(), type.getResults()})
    for (Type value : types) {
      auto tensor = dyn_cast<RankedTensorType>(value);
      if (!tensor || !tensor.hasStaticShape())
        return step.emitError() << "takes or gives a value of type " << value
                                << ", expected statically shaped tensors";
    }
  return success();
}

static bool isLoss(func::FuncOp step, unsigned result) {
  auto role = step.getResultAttrOfType<StringAttr>(result, MemoptDialect::kRoleAttr);
  return role && role.getValue() == "loss";
}

static LogicalResult verifyOneLoss(func::FuncOp step) {
  std::optional<unsigned> first;
  for (unsigned result = 0; result < step.getNumResults(); ++result) {
    if (!isLoss(step, result))
      continue;
    if (first)
      return step.emitError() << "has two losses, results " << *first << " and " << result
                              << "; expected one result with memopt.role = \"loss\"";
    first = result;
  }
  return success();
}

FailureOr<StepModel> StepModel::create(ModuleOp module) {
  FailureOr<func::FuncOp> step = findStep(module);
  if (failed(step) || failed(verifyTypes(*step)) || failed(verifyOneLoss(*step)))
    return failure();
  if (!step->getBody().hasOneBlock())
    return step->emitError("has several blocks; a step is one");
  return StepModel(module, *step);
}

StepModel::StepModel(ModuleOp module, func::FuncOp function) : module(module), function(function) {
  for (auto variable : module.getOps<VariableOp>())
    variables[variable.getSymNameAttr()] = variable;
  function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (auto read = dyn_cast<ReadOp>(op))
      reads[read.getVariableAttr().getAttr()].push_back(read);
    else if (auto write = dyn_cast<WriteOp>(op))
      writes[write.getVariableAttr().getAttr()].push_back(write);
    else if (auto gradient = dyn_cast<GradientOp>(op))
      gradients.push_back(gradient);
    else if (auto found = dyn_cast<CommitOp>(op))
      commit = found;
  });
}

Value StepModel::getLoss() const {
  func::FuncOp step = function;
  auto isScalar = [](Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    return type.getRank() == 0 && isa<FloatType>(type.getElementType());
  };
  Value first;
  for (OpOperand &operand : getReturn()->getOpOperands()) {
    if (isLoss(step, operand.getOperandNumber()))
      return operand.get();
    if (!first && isScalar(operand.get()))
      first = operand.get();
  }
  return first;
}

//===----------------------------------------------------------------------===//
// Values and ops
//===----------------------------------------------------------------------===//

static bool isElementType(Type type) { return !getDtypeName(type).empty(); }

/// Scalars and tokens are no buffers.
static LogicalResult verifyValue(Type type, function_ref<InFlightDiagnostic()> emitError) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor) {
    if (isa<TokenType>(type) || type.isIndex() || isElementType(type))
      return success();
    return emitError() << "has a value of type " << type << ", expected a tensor of known rank";
  }
  if (!isElementType(tensor.getElementType()))
    return emitError() << "has a value of type " << type << ", whose elements no package holds";
  if (!hasBoundedShape(tensor))
    return emitError() << "has a value of type " << type
                       << ", expected sizes that are known, and at most 2^48 elements";
  if (tensor.getNumElements() == 0)
    return emitError() << "has a value of type " << type << ", which has no elements";
  return success();
}

static LogicalResult verifyOp(Operation &op) {
  bool isOurs = isa_and_nonnull<MemoptDialect>(op.getDialect());
  if (op.getNumRegions() != 0 && !isOurs && !isa<linalg::LinalgOp>(op))
    return op.emitOpError("holds a region, which no step does: its control flow is unrolled");
  if (!isOurs && !isa<func::ReturnOp>(op) && !isMemoryEffectFree(&op))
    return op.emitOpError("has effects; a step changes variables alone, by memopt.write");
  WalkResult inside = op.walk([](Operation *nested) {
    for (Type type : nested->getResultTypes())
      if (failed(verifyValue(type, [&] { return nested->emitOpError(); })))
        return WalkResult::interrupt();
    return WalkResult::advance();
  });
  return failure(inside.wasInterrupted());
}

LogicalResult mlir::memopt::verifyTensorGraph(func::FuncOp function) {
  if (function.isDeclaration())
    return success();
  if (!function.getBody().hasOneBlock())
    return function.emitError("has several blocks; a step is one");
  Block &block = function.getBody().front();
  for (Type type : block.getArgumentTypes())
    if (failed(verifyValue(type, [&] { return function.emitOpError(); })))
      return failure();
  for (Operation &op : block)
    if (failed(verifyOp(op)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Accesses
//===----------------------------------------------------------------------===//

bool StepModel::writesState(WriteOp write) const {
  VariableOp variable = getVariable(write.getVariableAttr().getAttr());
  return variable && variable.isState();
}

VariableOp StepModel::getVariable(StringAttr name) const {
  if (VariableOp known = variables.lookup(name))
    return known;
  ModuleOp current = module; // one declared since
  return current.lookupSymbol<VariableOp>(name);
}

LogicalResult StepModel::verifyCommit() const {
  if (!getLoss())
    return success();
  for (const auto &[variable, writesOfIt] : writes)
    for (WriteOp write : writesOfIt) {
      Operation *inBody = getBody().findAncestorOpInBlock(*write);
      CommitOp border = commit;
      bool isBefore =
          !border || border->getBlock() != &getBody() || inBody->isBeforeInBlock(border);
      if (isBefore && writesState(write))
        return write.emitOpError()
               << "changes '" << variable.getValue() << "' before the loss was committed";
    }
  return success();
}

LogicalResult StepModel::verifyAccesses() const {
  for (const auto &[variable, writesOfIt] : writes) {
    DenseMap<Block *, WriteOp> byBlock;
    for (WriteOp write : writesOfIt) {
      auto [entry, isFirst] = byBlock.try_emplace(write->getBlock(), write);
      if (isFirst)
        continue;
      InFlightDiagnostic diagnostic = write.emitOpError()
                                      << "is the second of '" << variable.getValue()
                                      << "' in its block; a block writes a variable once";
      diagnostic.attachNote(entry->second.getLoc()) << "the first is here";
      return diagnostic;
    }
  }
  return verifyCommit();
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

/// Of what an importer writes, `"module"("node"("line"))`, the part behind the module.
static NameLoc getNode(NameLoc location) { return dyn_cast<NameLoc>(location.getChildLoc()); }

StringRef mlir::memopt::getModulePath(Location location) {
  StringRef path;
  location->walk([&](Location inner) {
    auto name = dyn_cast<NameLoc>(inner);
    if (!name || name.getName().empty())
      return WalkResult::advance();
    path = name.getName();
    return WalkResult::interrupt();
  });
  return path;
}

std::string mlir::memopt::describeNodes(Operation *op) {
  constexpr size_t shown = 6;
  llvm::SetVector<NameLoc> nodes;
  op->walk([&](Operation *part) {
    part->getLoc()->walk([&](Location inner) {
      auto name = dyn_cast<NameLoc>(inner);
      if (!name || !getNode(name))
        return WalkResult::advance();
      nodes.insert(getNode(name));
      return WalkResult::skip();
    });
  });
  std::string text;
  for (NameLoc node : ArrayRef(nodes.getArrayRef()).take_front(shown)) {
    text += (text.empty() ? "" : ", ") + ("'" + node.getName().getValue() + "'").str();
    if (NameLoc line = getNode(node))
      text += " at " + line.getName().getValue().str();
  }
  if (nodes.size() > shown)
    text += " and " + std::to_string(nodes.size() - shown) + " more";
  return text.empty() ? text : (nodes.size() == 1 ? "node " : "nodes ") + text;
}

std::string mlir::memopt::describeModule(Operation *op) {
  StringRef path = getModulePath(op->getLoc());
  return path.empty() ? "" : (" in module '" + path + "'").str();
}
