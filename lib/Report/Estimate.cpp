//===- Estimate.cpp - what a training step will hold, before it is planned -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Report/Estimate.h"

#include "memopt/Analysis/FrozenVariable.h"
#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Transforms/Optimizers/Optimizer.h"
#include "memopt/Transforms/Optimizers/ParameterKind.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::memopt;
namespace json = llvm::json;

EstimatedBytes &EstimatedBytes::operator+=(const EstimatedBytes &other) {
  parameters += other.parameters;
  buffers += other.buffers;
  gradients += other.gradients;
  optimizerState += other.optimizerState;
  activations += other.activations;
  return *this;
}

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

/// The module that owns the tensor of a dotted name.
static StringAttr getOwner(MLIRContext *context, StringRef name) {
  return StringAttr::get(context, name.contains('.') ? name.rsplit('.').first : "");
}

/// The state of an optimizer with its defaults; every parameter takes part.
static OptimizerEstimate estimate(const Optimizer &optimizer, ArrayRef<ParameterInfo> parameters) {
  OptimizerEstimate result;
  result.name = optimizer.getName().str();
  auto plan = OptimizerPlan::parse(("optimizer=" + optimizer.getName()).str());
  if (!plan) {
    result.refusal = llvm::toString(plan.takeError());
    return result;
  }
  auto choices = plan->choose(parameters);
  if (!choices) {
    result.refusal = llvm::toString(choices.takeError());
    return result;
  }
  for (auto [parameter, choice] : llvm::zip_equal(parameters, *choices))
    for (const StateTensor &tensor :
         getStateTensors(*choice.optimizer, parameter, choice.settings, choice.stateBits))
      result.stateBytes += getTensorBytes(tensor.type);
  return result;
}

FailureOr<Estimate> Estimate::create(ModuleOp module) {
  FailureOr<StepModel> step = StepModel::create(module);
  if (failed(step))
    return failure();
  if (step->getGradients().empty())
    return step->getFunction().emitOpError("has no gradients; an estimate is of training steps");
  Estimate result;
  MLIRContext *context = module.getContext();
  SymbolTable symbols(module);
  for (auto variable : module.getOps<VariableOp>()) {
    if (variable.getJoined())
      continue; // its tensors have variables, too
    StringRef name = variable.getOf().value_or(variable.getSymName());
    int64_t bytes = getTensorBytes(variable.getWholeType());
    if (variable.getRole() == Role::Parameter)
      result.modules[getOwner(context, name)].parameters += bytes;
    else if (variable.getRole() == Role::Buffer)
      result.modules[getOwner(context, name)].buffers += bytes;
    else if (variable.getRole() == Role::OptimizerState)
      result.modules[getOwner(context, name)].optimizerState += bytes;
  }
  SmallVector<ParameterInfo> parameters;
  for (GradientOp gradient : step->getGradients()) {
    auto variable = symbols.lookup<VariableOp>(gradient.getVariable());
    result.modules[getOwner(context, gradient.getVariable())].gradients +=
        getTensorBytes(gradient.getWholeType());
    result.elements += variable.getWholeType().getNumElements();
    parameters.push_back(describeParameter(variable, step->getReads(variable.getSymNameAttr())));
  }
  step->getFunction().walk([&](OptimizerStepOp op) {
    if (result.optimizer.empty())
      result.optimizer = op.getOptimizer().str();
  });
  for (const Optimizer *optimizer : getOptimizers())
    result.optimizers.push_back(estimate(*optimizer, parameters));
  return result;
}

//===----------------------------------------------------------------------===//
// Activations
//===----------------------------------------------------------------------===//

/// Results of the forward pass that an instruction of the backward pass reads.
LogicalResult Estimate::addActivations(ModuleOp module) {
  FailureOr<StepModel> step = StepModel::create(module);
  if (failed(step) || failed(verifyKernelGraph(*step)))
    return failure();
  KernelGraph graph(step->getFunction());
  llvm::SetVector<unsigned> kept;
  for (Operation *op : graph.getInstructions())
    if (getPhase(op) == Phase::Backward)
      for (Value operand : op->getOperands())
        kept.insert(graph.getBufferOf(operand));
  for (unsigned number : kept) {
    const Buffer &buffer = graph.getBuffers()[number];
    if (buffer.kind != Buffer::Kind::Result || getPhase(buffer.op) != Phase::Forward)
      continue;
    StringRef path = getModulePath(buffer.op->getLoc());
    modules[StringAttr::get(module.getContext(), path)].activations += buffer.bytes;
  }
  countFrozen(module);
  return success();
}

/// What frozen parameters take less as codes than as the numbers of the joint graph.
void Estimate::countFrozen(ModuleOp module) {
  SymbolTable symbols(module);
  for (auto variable : module.getOps<VariableOp>()) {
    std::optional<FrozenVariable> frozen = FrozenVariable::get(variable);
    if (!frozen)
      continue;
    int64_t bytes = getTensorBytes(variable.getTensorType());
    for (const std::string &name : {frozen->scales, frozen->scaleScales})
      if (auto scales = name.empty() ? VariableOp() : symbols.lookup<VariableOp>(name))
        bytes += getTensorBytes(scales.getTensorType());
    modules[getOwner(module.getContext(), variable.getSymName())].parameters +=
        bytes - getTensorBytes(frozen->wholeType);
  }
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

EstimatedBytes Estimate::getTotal() const {
  EstimatedBytes total;
  for (const auto &[module, bytes] : modules)
    total += bytes;
  return total;
}

static StringRef takeParts(StringRef path, int parts) {
  size_t end = 0;
  for (int part = 0; part < parts && end != StringRef::npos; ++part)
    end = path.find('.', part ? end + 1 : 0);
  return path.take_front(end);
}

llvm::MapVector<StringRef, EstimatedBytes> Estimate::getModules(int depth) const {
  llvm::MapVector<StringRef, EstimatedBytes> sums;
  for (const auto &[module, bytes] : modules)
    sums[takeParts(module.getValue(), depth)] += bytes;
  return sums;
}

int64_t mlir::memopt::getZeroBytes(const EstimatedBytes &bytes, int stage, int64_t ranks) {
  auto part = [&](int64_t whole, int from) {
    return stage >= from ? static_cast<int64_t>(llvm::divideCeil(whole, ranks)) : whole;
  };
  return bytes.buffers + part(bytes.optimizerState, 1) + part(bytes.gradients, 2) +
         part(bytes.parameters, 3);
}

/// The formulas that papers and manuals have, of the number of trainable parameters alone.
std::vector<std::pair<std::string, int64_t>> Estimate::getClassical() const {
  return {{"sgd, f32: 4 + 4", 8 * elements},
          {"sgd with momentum, f32: 4 + 4 + 4", 12 * elements},
          {"adam, f32: 4 + 4 + 8", 16 * elements},
          {"adam, 16 bits with f32 master copy: 2 + 2 + 12", 16 * elements}};
}

//===----------------------------------------------------------------------===//
// For programs
//===----------------------------------------------------------------------===//

static json::Object toObject(const EstimatedBytes &bytes) {
  return json::Object{{"parameter_bytes", bytes.parameters},
                      {"buffer_bytes", bytes.buffers},
                      {"gradient_bytes", bytes.gradients},
                      {"optimizer_state_bytes", bytes.optimizerState},
                      {"activation_bytes", bytes.activations}};
}

static constexpr int64_t kRanks[] = {1, 2, 4, 8, 16, 64};

json::Object Estimate::toJson() const {
  json::Array list, tried, formulas, zero;
  for (const auto &[module, bytes] : modules) {
    json::Object object = toObject(bytes);
    object["module"] = module.getValue();
    list.push_back(std::move(object));
  }
  for (const OptimizerEstimate &entry : optimizers) {
    json::Object object{{"name", entry.name}};
    if (entry.refusal.empty())
      object["state_bytes"] = entry.stateBytes;
    else
      object["refused"] = entry.refusal;
    tried.push_back(std::move(object));
  }
  for (const auto &[name, bytes] : getClassical())
    formulas.push_back(json::Object{{"name", name}, {"bytes", bytes}});
  for (int64_t ranks : kRanks)
    for (int stage = 0; stage <= 3; ++stage)
      zero.push_back(json::Object{
          {"ranks", ranks}, {"stage", stage}, {"bytes", getZeroBytes(getTotal(), stage, ranks)}});
  return json::Object{{"format", "memopt-estimate"},    {"version", 1},
                      {"trainable_elements", elements}, {"optimizer", optimizer},
                      {"total", toObject(getTotal())},  {"modules", std::move(list)},
                      {"optimizers", std::move(tried)}, {"classical", std::move(formulas)},
                      {"zero", std::move(zero)}};
}

//===----------------------------------------------------------------------===//
// For people
//===----------------------------------------------------------------------===//

static std::string formatBytes(int64_t bytes) {
  static constexpr const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double number = static_cast<double>(bytes);
  size_t unit = 0;
  for (; number >= 1024 && unit + 1 < std::size(units); ++unit)
    number /= 1024;
  return unit ? llvm::formatv("{0:F2} {1}", number, units[unit]).str()
              : llvm::formatv("{0} B", bytes).str();
}

static std::string formatRow(StringRef name, ArrayRef<int64_t> numbers) {
  std::string row = llvm::formatv("{0,-40}", name).str();
  for (int64_t bytes : numbers)
    row += llvm::formatv(" {0,12}", bytes ? formatBytes(bytes) : "-").str();
  return row + "\n";
}

static std::string formatRow(StringRef name, const EstimatedBytes &bytes) {
  int64_t numbers[] = {bytes.parameters + bytes.buffers, bytes.gradients, bytes.optimizerState,
                       bytes.activations};
  return formatRow(name, ArrayRef<int64_t>(numbers));
}

std::string Estimate::toText() const {
  // As deep as fits a page.
  constexpr size_t kRows = 40;
  constexpr int kDeepest = 16;
  int depth = 1;
  while (depth < kDeepest && getModules(depth + 1).size() <= kRows &&
         getModules(depth + 1).size() > getModules(depth).size())
    ++depth;
  std::string text = llvm::formatv("{0,-40} {1,12} {2,12} {3,12} {4,12}\n", "module", "parameters",
                                   "gradients", "state", "activations");
  for (const auto &[module, bytes] : getModules(depth))
    text += formatRow(module.empty() ? "(of none)" : module, bytes);
  EstimatedBytes total = getTotal();
  text += formatRow("all", total);
  text +=
      llvm::formatv("\n{0} trainable parameters; model state {1}, activations that the backward "
                    "pass reads {2}, both as if everything lived at once and nothing were "
                    "recomputed\n\nstate of every optimizer with its defaults:\n",
                    elements, formatBytes(total.getState()), formatBytes(total.activations));
  for (const OptimizerEstimate &entry : optimizers)
    text += llvm::formatv("  {0,-38} {1,12}\n", entry.name,
                          entry.refusal.empty() ? formatBytes(entry.stateBytes) : entry.refusal);
  text += "\nclassical formulas, bytes for each trainable parameter:\n";
  for (const auto &[name, bytes] : getClassical())
    text += llvm::formatv("  {0,-46} {1,12}\n", name, formatBytes(bytes));
  text += llvm::formatv("\nmodel state of each rank with ZeRO and {0}:\n{1,-40} {2,12} {3,12} "
                        "{4,12} {5,12}\n",
                        optimizer, "ranks", "stage 0", "stage 1", "stage 2", "stage 3");
  for (int64_t ranks : kRanks) {
    SmallVector<int64_t> row;
    for (int stage = 0; stage <= 3; ++stage)
      row.push_back(getZeroBytes(total, stage, ranks));
    text += formatRow(std::to_string(ranks), row);
  }
  return text;
}
