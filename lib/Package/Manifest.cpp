//===- Manifest.cpp - what a package says of itself -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Package/Manifest.h"

#include "memopt-runtime/PackageFormat.h"
#include "memopt/Analysis/CostModel.h"
#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Conversion/HostProgram.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace mlir::memopt;
namespace json = llvm::json;

StringRef mlir::memopt::getDtypeName(Type type) {
  if (type.isF32())
    return "f32";
  if (type.isF64())
    return "f64";
  if (type.isBF16())
    return "bf16";
  if (type.isInteger(64))
    return "i64";
  if (type.isInteger(32))
    return "i32";
  if (type.isInteger(8))
    return "i8";
  return type.isInteger(1) ? "i1" : "";
}

json::Value mlir::memopt::attributeToJson(Attribute attribute) {
  if (auto dictionary = dyn_cast<DictionaryAttr>(attribute)) {
    json::Object object;
    for (NamedAttribute entry : dictionary)
      object[entry.getName().getValue()] = attributeToJson(entry.getValue());
    return object;
  }
  if (auto list = dyn_cast<ArrayAttr>(attribute)) {
    json::Array array;
    for (Attribute entry : list)
      array.push_back(attributeToJson(entry));
    return array;
  }
  if (auto list = dyn_cast<DenseI64ArrayAttr>(attribute))
    return json::Array(list.asArrayRef());
  if (auto boolean = dyn_cast<BoolAttr>(attribute))
    return boolean.getValue();
  if (auto integer = dyn_cast<IntegerAttr>(attribute))
    return integer.getInt();
  if (auto number = dyn_cast<FloatAttr>(attribute))
    return number.getValueAsDouble();
  if (auto text = dyn_cast<StringAttr>(attribute))
    return text.getValue();
  return nullptr;
}

namespace {
class ManifestBuilder {
public:
  ManifestBuilder(ModuleOp module, const ManifestOptions &options)
      : module(module), step(getStepFunction(module)), graph(step), options(options) {}

  FailureOr<json::Object> build() {
    if (failed(addInputs()) || failed(addOutputs()) || failed(addVariables()) ||
        failed(addGradients()))
      return failure();
    addInstructions();
    addHeader();
    return std::move(manifest);
  }

private:
  void addHeader() {
    int64_t arena = getBytes(MemoptDialect::kArenaBytesAttr),
            bound = getBytes(MemoptDialect::kLowerBoundAttr);
    manifest["format"] = "memopt-package";
    manifest["version"] = ::memopt::manifestVersion;
    manifest["program_interface_version"] = MEMOPT_PROGRAM_INTERFACE_VERSION;
    manifest["compiler"] = "memopt 0.1.0";
    manifest["target"] = options.target;
    manifest["target_features"] = options.targetFeatures;
    manifest["threads"] = options.threads;
    manifest["instrumented"] = options.isInstrumented;
    manifest["mode"] = options.mode;
    manifest["arena_bytes"] = bySpace(arena);
    manifest["predicted_peak_bytes"] = bySpace(arena);
    manifest["lower_bound_bytes"] = bySpace(bound);
    manifest["optimizer"] = json::Object(options.optimizer);
    int64_t clones = llvm::count_if(graph.getInstructions(), [](Operation *op) {
      return op->hasAttr(MemoptDialect::kCloneAttr);
    });
    manifest["plan"] = json::Object{{"recomputed", clones}, {"text", options.planText}};
  }

  /// Bytes in each space: a kernel graph has all its buffers in the device's.
  json::Object bySpace(int64_t device) {
    json::Object bytes;
    for (int space = 0; space < ::memopt::countedSpaces; ++space)
      bytes[::memopt::spaceNames[space]] = space == MEMOPT_SPACE_DEVICE ? device : 0;
    return bytes;
  }

  int64_t getBytes(StringRef name) {
    auto attribute = module->getAttrOfType<IntegerAttr>(name);
    return attribute ? attribute.getInt() : 0;
  }

  /// What every buffer has: type and place.
  FailureOr<json::Object> describe(Operation *op, RankedTensorType type,
                                   FailureOr<int64_t> offset) {
    if (failed(offset))
      return op->emitOpError() << "has a value of type " << type << " without an offset";
    StringRef dtype = getDtypeName(type.getElementType());
    if (dtype.empty())
      return op->emitOpError() << "has a value of type " << type << ", which no package holds";
    return json::Object{{"dtype", dtype},
                        {"shape", json::Array(type.getShape())},
                        {"space", "device"},
                        {"offset", *offset},
                        {"bytes", getTensorBytes(type)}};
  }

  LogicalResult addInputs() {
    json::Array inputs;
    for (BlockArgument argument : step.getArguments()) {
      unsigned number = argument.getArgNumber();
      auto object =
          describe(step, cast<RankedTensorType>(argument.getType()), getPlannedOffset(argument));
      if (failed(object))
        return failure();
      auto name = step.getArgAttrOfType<StringAttr>(number, MemoptDialect::kNameAttr);
      (*object)["name"] = name ? name.getValue().str() : "input" + std::to_string(number);
      if (auto dtype = step.getArgAttrOfType<StringAttr>(number, MemoptDialect::kDtypeAttr))
        (*object)["dtype"] = dtype.getValue();
      if (auto batch = step.getArgAttrOfType<IntegerAttr>(number, MemoptDialect::kBatchDimAttr))
        (*object)["batch_dim"] = batch.getInt();
      if (auto range =
              step.getArgAttrOfType<DictionaryAttr>(number, MemoptDialect::kValidRangeAttr))
        (*object)["valid_range"] = attributeToJson(range);
      inputs.push_back(std::move(*object));
    }
    manifest["inputs"] = std::move(inputs);
    return success();
  }

  LogicalResult addOutputs() {
    json::Array outputs;
    Operation *terminator = step.getBody().front().getTerminator();
    for (OpOperand &operand : terminator->getOpOperands()) {
      unsigned number = operand.getOperandNumber();
      auto object = describe(terminator, cast<RankedTensorType>(operand.get().getType()),
                             getPlannedOffset(operand.get()));
      if (failed(object))
        return failure();
      auto name = step.getResultAttrOfType<StringAttr>(number, MemoptDialect::kNameAttr);
      auto role = step.getResultAttrOfType<StringAttr>(number, MemoptDialect::kRoleAttr);
      (*object)["name"] = name ? name.getValue().str() : "output" + std::to_string(number);
      (*object)["role"] = role ? role.getValue().str() : "output";
      outputs.push_back(std::move(*object));
    }
    manifest["outputs"] = std::move(outputs);
    return success();
  }

  /// The instruction that makes a value; -1 when it is there from the start.
  int64_t readyAfter(Value value) {
    Operation *op = getBufferRoot(value).getDefiningOp();
    return op && isInstruction(op) ? graph.getTime(op) - 1 : -1;
  }

  LogicalResult addVariables() {
    json::Array variables;
    for (auto variable : module.getOps<VariableOp>()) {
      auto offset = variable->getAttrOfType<IntegerAttr>(MemoptDialect::kOffsetAttr);
      auto object =
          describe(variable, variable.getTensorType(),
                   offset ? FailureOr<int64_t>(offset.getInt()) : FailureOr<int64_t>(failure()));
      if (failed(object))
        return failure();
      object->erase("space");
      (*object)["name"] = variable.getSymName();
      (*object)["names"] = variable.getNames() ? attributeToJson(*variable.getNames())
                                               : json::Array{variable.getSymName()};
      (*object)["role"] = stringifyRole(variable.getRole());
      if (variable.getTransient())
        (*object)["restore"] =
            SymbolTable::symbolKnownUseEmpty(variable, module) ? "never" : "if_present";
      if (auto dtype = variable->getAttrOfType<StringAttr>(MemoptDialect::kDtypeAttr))
        (*object)["dtype"] = dtype.getValue();
      (*object)["trainable"] = variable.getTrainable();
      (*object)["placement"] = stringifySpace(variable.getPlacement());
      if (variable.getOf())
        (*object)["of"] = *variable.getOf();
      if (variable.getSlot())
        (*object)["slot"] = *variable.getSlot();
      addInitialization(variable, *object);
      variables.push_back(std::move(*object));
    }
    manifest["variables"] = std::move(variables);
    return success();
  }

  /// Without data: weights start with the variance that keeps a layer's output at its input's scale
  /// (LeCun et al., Efficient BackProp, section 4.6), vectors at zero unless the importer knew
  /// better.
  void addInitialization(VariableOp variable, json::Object &object) {
    RankedTensorType type = variable.getTensorType();
    if (variable.getInitial()) {
      object["init"] = "weights";
    } else if (variable.getInitValue() && variable.getRole() != Role::Parameter &&
               variable.getRole() != Role::Buffer && variable.getInitValue()->isZero()) {
      object["init"] = "zeros";
    } else if (variable.getRole() == Role::Hyperparameter ||
               variable.getRole() == Role::OptimizerState) {
      object["init"] = "zeros";
    } else {
      object["init"] = "absent";
      if (variable.getInitValue())
        object["init_value"] = variable.getInitValue()->convertToDouble();
      else if (type.getRank() >= 2)
        object["init_scale"] =
            1.0 / std::sqrt(std::max<double>(1.0, type.getNumElements() / type.getDimSize(0)));
      else
        object["init_value"] = 0.0;
    }
  }

  LogicalResult addGradients() {
    json::Array gradients;
    for (auto gradient : step.getOps<GradientOp>()) {
      auto object = describe(gradient, cast<RankedTensorType>(gradient.getValue().getType()),
                             getPlannedOffset(gradient.getValue()));
      if (failed(object))
        return failure();
      (*object)["name"] = gradient.getVariable();
      (*object)["ready_after"] = readyAfter(gradient.getValue());
      gradients.push_back(std::move(*object));
    }
    manifest["gradients"] = std::move(gradients);
    return success();
  }

  void addInstructions() {
    CostModel costs(module);
    llvm::DenseMap<Operation *, int64_t> numbers = numberLibraryCalls(graph);
    json::Array instructions, calls;
    SmallVector<int64_t> live = graph.getLiveBytes();
    for (auto [index, op] : llvm::enumerate(graph.getInstructions())) {
      auto call = dyn_cast<LibraryCallOp>(op);
      json::Object object{{"kind", call ? "library" : "kernel"},
                          {"name", nameOf(op, index)},
                          {"module", getModulePath(op->getLoc())},
                          {"resource", "compute"},
                          {"live_bytes", bySpace(live[index + 1])}};
      if (auto phase = op->getAttrOfType<StringAttr>(MemoptDialect::kPhaseAttr))
        object["phase"] = phase.getValue();
      if (auto clone = op->getAttrOfType<IntegerAttr>(MemoptDialect::kCloneAttr))
        object["clone"] = clone.getInt();
      if (auto cost = dyn_cast<CostOpInterface>(op)) {
        object["flops"] = cost.getFlops();
        object["bytes_moved"] = cost.getBytesMoved();
      }
      object["predicted_seconds"] = costs.getSeconds(op);
      object["outputs"] = outputsOf(op);
      if (call)
        object["call"] = numbers.lookup(op);
      instructions.push_back(std::move(object));
      if (call) {
        json::Object descriptor = std::move(*attributeToJson(call.getDescriptor()).getAsObject());
        descriptor["workspace_bytes"] = call.getWorkspaceBytes();
        descriptor["buffers"] = static_cast<int64_t>(op->getNumOperands() + op->getNumResults());
        calls.push_back(std::move(descriptor));
      }
    }
    manifest["instructions"] = std::move(instructions);
    manifest["regions"] = json::Array();
    manifest["transfers"] = json::Array();
    manifest["library_calls"] = std::move(calls);
  }

  std::string nameOf(Operation *op, size_t index) {
    if (auto call = dyn_cast<LibraryCallOp>(op))
      return call.getDescriptor().getAs<StringAttr>("kind").getValue().str() + "." +
             std::to_string(index);
    return "kernel." + std::to_string(index);
  }

  json::Array outputsOf(Operation *op) {
    json::Array outputs;
    auto offsets = op->getAttrOfType<DenseI64ArrayAttr>(MemoptDialect::kOffsetsAttr);
    for (auto [result, offset] : llvm::zip_first(op->getResults(), offsets.asArrayRef()))
      outputs.push_back(json::Object{
          {"space", "device"},
          {"offset", offset},
          {"bytes", getTensorBytes(result.getType())},
          {"dtype", getDtypeName(cast<RankedTensorType>(result.getType()).getElementType())}});
    return outputs;
  }

  ModuleOp module;
  func::FuncOp step;
  KernelGraph graph;
  const ManifestOptions &options;
  json::Object manifest;
};
} // namespace

FailureOr<json::Object> mlir::memopt::buildManifest(ModuleOp planned,
                                                    const ManifestOptions &options) {
  return ManifestBuilder(planned, options).build();
}
