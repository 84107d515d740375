//===- Manifest.cpp - what a package says of itself -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Package/Manifest.h"

#include "memopt-runtime/interface/PackageFormat.h"
#include "memopt/Analysis/CostModel.h"
#include "memopt/Analysis/FrozenVariable.h"
#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Dialect/Kernels/AttentionTiles.h"
#include "memopt/Dialect/Program.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

#include <map>

using namespace mlir;
using namespace mlir::memopt;
namespace json = llvm::json;

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

json::Object mlir::memopt::bySpace(ArrayRef<int64_t> bytes) {
  json::Object object;
  for (auto [space, number] : llvm::enumerate(bytes))
    object[stringifySpace(static_cast<Space>(space))] = number;
  return object;
}

DictionaryAttr mlir::memopt::getConvBnEval(ModuleOp module) {
  return module->getAttrOfType<DictionaryAttr>(MemoptDialect::kEfficientConvBnEvalAttr);
}

std::optional<json::Value> mlir::memopt::describeConvBnEval(ModuleOp module) {
  DictionaryAttr report = getConvBnEval(module);
  return report ? std::optional(attributeToJson(report)) : std::nullopt;
}

namespace {
class ManifestBuilder {
public:
  ManifestBuilder(const StepModel &step, const ManifestOptions &options)
      : module(step.getModule()), model(step), step(step.getFunction()), graph(this->step),
        target(getTarget(module)), options(options) {}

  FailureOr<json::Object> build() {
    if (failed(addInputs()) || failed(addOutputs()) || failed(addVariables()) ||
        failed(addGradients()))
      return failure();
    addInstructions();
    addRegions();
    if (failed(addLists()))
      return failure();
    addHeader();
    return std::move(manifest);
  }

private:
  void addHeader() {
    auto planned = module->getAttrOfType<PlannedAttr>(MemoptDialect::kPlannedAttr);
    manifest["format"] = "memopt-package";
    manifest["version"] = ::memopt::manifestVersion;
    manifest["program_interface_version"] = MEMOPT_PROGRAM_INTERFACE_VERSION;
    manifest["compiler"] = "memopt " MEMOPT_VERSION;
    manifest["target"] = target.describe();
    if (llvm::json::Object *device = manifest.getObject("target"))
      (*device)["overhead_bytes"] = options.overheadBytes;
    manifest["target_features"] = options.targetFeatures;
    manifest["threads"] = target.getThreads();
    manifest["instrumented"] = options.isInstrumented;
    manifest["mode"] = options.mode;
    if (options.isAveraged)
      manifest["averaged"] = true;
    manifest["micro_batches"] = options.microBatches;
    manifest["ranks"] = options.ranks;
    manifest["arena_bytes"] = bySpace(planned.getArenaBytes());
    if (!options.diskFolder.empty())
      manifest["disk_folder"] = options.diskFolder;
    manifest["predicted_peak_bytes"] = bySpace(planned.getArenaBytes());
    manifest["lower_bound_bytes"] = bySpace(planned.getLowerBoundBytes());
    if (auto sites = module->getAttrOfType<ArrayAttr>(MemoptDialect::kIndexSitesAttr))
      manifest["index_sites"] = attributeToJson(sites);
    manifest["optimizer"] = json::Object(options.optimizer);
    if (std::optional<json::Value> fusion = describeConvBnEval(module))
      manifest["efficient_conv_bn_eval"] = std::move(*fusion);
    int64_t clones = llvm::count_if(graph.getInstructions(), [](Operation *op) {
      return cast<InstructionOpInterface>(op).getClone() != 0;
    });
    manifest["plan"] = json::Object{{"recomputed", clones}, {"text", options.planText}};
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
                        {"space", stringifySpace(getSpace(type))},
                        {"offset", *offset},
                        {"bytes", getTensorBytes(type)}};
  }

  std::string getInputName(unsigned number) {
    auto name = step.getArgAttrOfType<StringAttr>(number, MemoptDialect::kNameAttr);
    return name ? name.getValue().str() : "input" + std::to_string(number);
  }

  LogicalResult addInputs() {
    json::Array inputs;
    for (BlockArgument argument : step.getArguments()) {
      unsigned number = argument.getArgNumber();
      auto object =
          describe(step, cast<RankedTensorType>(argument.getType()), graph.getOffset(argument));
      if (failed(object))
        return failure();
      (*object)["name"] = getInputName(number);
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
                             graph.getOffset(operand.get()));
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

  /// The instruction that makes a value, or the last one before it is read from a variable; -1 when
  /// it is there from the start.
  int64_t readyAfter(Value value) {
    Operation *op = getBufferRoot(value).getDefiningOp();
    while (op && !isInstruction(op))
      op = op->getPrevNode();
    if (!op)
      return -1;
    const Loop *loop = findLoop(op);
    return loop ? loop->end - 2 : graph.getTime(op) - 1;
  }

  /// The first instruction that uses a value, views looked through; their number where none does.
  int64_t neededBy(Value value) {
    auto first = static_cast<int64_t>(graph.getInstructions().size());
    SmallVector<Value> open{value};
    while (!open.empty())
      for (Operation *user : open.pop_back_val().getUsers()) {
        if (!isInstruction(user)) {
          llvm::append_range(open, user->getResults());
          continue;
        }
        const Loop *loop = findLoop(user);
        first = std::min(first, loop ? loop->begin - 1 : graph.getTime(user) - 1);
      }
    return first;
  }

  const Loop *findLoop(Operation *op) {
    const Loop *found =
        llvm::find_if(graph.getLoops(), [&](const Loop &loop) { return loop.op == op; });
    return found == graph.getLoops().end() ? nullptr : found;
  }

  LogicalResult addVariables() {
    json::Array variables;
    for (auto variable : module.getOps<VariableOp>()) {
      if (variable.getJoined())
        continue; // those outside know the tensors in it
      VariableOp home = variable;
      if (variable.liesInUnit())
        home = SymbolTable::lookupNearestSymbolFrom<VariableOp>(variable, variable.getUnitAttr());
      IntegerAttr offset = home.getOffsetAttr();
      auto object =
          describe(variable, home.getPlacedType(),
                   offset ? FailureOr<int64_t>(offset.getInt()) : FailureOr<int64_t>(failure()));
      if (failed(object))
        return failure();
      object->erase("space");
      (*object)["name"] = variable.getSymName();
      (*object)["names"] = variable.getNames() ? attributeToJson(*variable.getNames())
                                               : json::Array{variable.getSymName()};
      (*object)["role"] =
          isFrozenScale(variable) ? StringRef(kFrozenScaleRole) : stringifyRole(variable.getRole());
      if (std::optional<FrozenVariable> frozen = FrozenVariable::get(variable))
        (*object)["encoding"] = describeEncoding(*frozen);
      addRestore(variable, *object);
      if (auto dtype = variable->getAttrOfType<StringAttr>(MemoptDialect::kDtypeAttr))
        (*object)["dtype"] = dtype.getValue();
      (*object)["trainable"] = variable.getTrainable();
      (*object)["placement"] = stringifySpace(home.getPlacement());
      if (std::optional<ShardAttr> shard = variable.getShard())
        addShard(*shard, *object);
      if (variable.liesInUnit())
        (*object)["unit"] = *variable.getUnit();
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

  static void addShard(ShardAttr shard, json::Object &object) {
    object["whole_shape"] = json::Array(shard.getShape());
    if (shard.getFirst())
      object["unit_first"] = shard.getFirst();
  }

  /// What a checkpoint has to do with a variable. A constant of one program among several is no
  /// checkpoint's; of state that they share one of them alone may know who reads it.
  void addRestore(VariableOp variable, json::Object &object) {
    if (variable->hasAttr(kOwnAttr)) {
      object["own"] = true;
      object["names"] = json::Array();
      object["restore"] = "never";
    } else if (auto known = variable->getAttrOfType<StringAttr>(kRestoreAttr)) {
      object["restore"] = known.getValue();
    } else if (variable.getTransient()) {
      object["restore"] =
          SymbolTable::symbolKnownUseEmpty(variable, module) ? "never" : "if_present";
    }
  }

  static json::Object describeEncoding(const FrozenVariable &frozen) {
    json::Object encoding{{"code", ::memopt::getName(frozen.code)},
                          {"shape", json::Array(frozen.wholeType.getShape())}};
    if (!frozen.scales.empty())
      encoding["scales"] = frozen.scales;
    if (!frozen.scaleScales.empty())
      encoding["scale_scales"] = frozen.scaleScales;
    return encoding;
  }

  /// Without data: weights start with the variance that keeps a layer's output at its input's scale
  /// (LeCun et al., Efficient BackProp, section 4.6), vectors at zero unless the importer knew
  /// better.
  void addInitialization(VariableOp variable, json::Object &object) {
    std::optional<FrozenVariable> frozen = FrozenVariable::get(variable);
    RankedTensorType type = frozen ? frozen->wholeType : variable.getWholeType();
    if (variable.getInitial() || (frozen && frozen->initial)) {
      object["init"] = "weights";
    } else if (isFrozenScale(variable)) {
      object["init"] = "zeros";
    } else if (variable.getInitValue() && variable.getRole() != Role::Parameter &&
               variable.getRole() != Role::Buffer && variable.getRole() != Role::Hyperparameter &&
               variable.getInitValue()->isZero()) {
      object["init"] = "zeros";
    } else if ((variable.getRole() == Role::OptimizerState ||
                variable.getRole() == Role::LossScale) &&
               variable.getInitValue()) {
      object["init"] = "constant";
      object["init_value"] = variable.getInitValue()->convertToDouble();
    } else if (variable.getRole() == Role::Hyperparameter ||
               variable.getRole() == Role::OptimizerState || variable.getRole() == Role::Gradient ||
               variable.getRole() == Role::IndexFault) {
      object["init"] = "zeros";
      if (variable.getInitValue())
        object["init_value"] = variable.getInitValue()->convertToDouble();
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
    for (GradientOp gradient : model.getGradients()) {
      auto object = describe(gradient, cast<RankedTensorType>(gradient.getValue().getType()),
                             graph.getOffset(gradient.getValue()));
      if (failed(object))
        return failure();
      (*object)["name"] = gradient.getVariable();
      (*object)["ready_after"] = readyAfter(gradient.getValue());
      if (std::optional<ShardAttr> shard = gradient.getShard())
        addShard(*shard, *object);
      gradients.push_back(std::move(*object));
    }
    manifest["gradients"] = std::move(gradients);
    return success();
  }

  void addInstructions() {
    CostModel costs(module);
    json::Array instructions;
    SmallVector<SmallVector<int64_t>> live;
    for (unsigned space = 0; space < kNumSpaces; ++space)
      live.push_back(graph.getLiveBytes(static_cast<Space>(space)));
    for (auto [index, op] : llvm::enumerate(graph.getInstructions())) {
      auto instruction = cast<InstructionOpInterface>(op);
      SmallVector<int64_t> now;
      for (ArrayRef<int64_t> bytes : live)
        now.push_back(bytes[index + 1]);
      json::Object object{{"kind", isa<LibraryCallOp>(op) ? "library" : instruction.getKindName()},
                          {"name", instruction.getKindName() + "." + std::to_string(index)},
                          {"module", getModulePath(op->getLoc())},
                          {"live_bytes", bySpace(now)},
                          {"resource", stringifyResource(instruction.getResource())},
                          {"phase", stringifyPhase(instruction.getPhase())},
                          {"clone", static_cast<int64_t>(instruction.getClone())},
                          {"flops", instruction.getFlops()},
                          {"bytes_moved", instruction.getBytesMoved()},
                          {"predicted_seconds", costs.getSeconds(op)},
                          {"outputs", outputsOf(instruction)}};
      if (std::string nodes = describeNodes(op); !nodes.empty())
        object["ops"] = std::move(nodes);
      if (auto call = dyn_cast<LibraryCallOp>(op))
        object["call"] = static_cast<int64_t>(*call.getNumber());
      if (isa<CollectiveOp, CollectiveStartOp>(op)) {
        object["collective"] = static_cast<int64_t>(*cast<ListedOpInterface>(op).getNumber());
        object["ready_after"] = readyAfter(op->getOperand(0));
        object["needed_by"] = neededBy(op->getResult(0)); // of what is in flight: its wait
      }
      instructions.push_back(std::move(object));
    }
    manifest["instructions"] = std::move(instructions);
  }

  void addRegions() {
    json::Array regions;
    for (const Loop &loop : graph.getLoops())
      regions.push_back(json::Object{{"begin", loop.begin - 1},
                                     {"end", loop.end - 1},
                                     {"count", loop.count},
                                     {"inputs", batchOf(loop.op)}});
    manifest["regions"] = std::move(regions);
  }

  /// The inputs that an iteration finds filled anew: all of them, for they belong together.
  json::Array batchOf(Operation *loop) {
    json::Array names;
    auto repeat = dyn_cast<RepeatOp>(loop);
    if (repeat && repeat.getNextBatch())
      for (unsigned number = 0; number < step.getNumArguments(); ++number)
        names.push_back(getInputName(number));
    return names;
  }

  /// What a device's libraries need to know of a call beside its description: the plan, and the
  /// alignment of each operand. A call that is kernels of the package the program launches itself.
  LogicalResult addPlan(LibraryCallOp call, json::Object &entry) {
    if (!target.isDevice())
      return success();
    if (call.getImplementation() == kOwnKernels) {
      entry["launched"] = true;
      return success();
    }
    auto plan = target.getPlan(call.getCall(), call.getImplementation().value_or(""),
                               [&] { return call.emitOpError(); });
    if (failed(plan))
      return failure();
    if (plan->kind() != json::Value::Null)
      entry["plan"] = std::move(*plan);
    addAlignments(call, entry);
    return success();
  }

  /// What the plan promises wherever it puts a buffer: its kernels are to be the same ones then.
  void addAlignments(LibraryCallOp call, json::Object &entry) {
    auto getPromise = [&](Value value) {
      int64_t bytes = getTensorBytes(getBufferRoot(value).getType());
      int64_t promise = getBufferAlignment(bytes, target.getLeastAlignment());
      for (const SliceAddress &slice : getSliceAddresses(value))
        promise = llvm::MinAlign(llvm::MinAlign(promise, slice.first), slice.step);
      return promise;
    };
    json::Array operands, results;
    for (auto [input, offset] : llvm::zip_equal(call.getInputs(), call.getOperandOffsets())) {
      auto type = cast<RankedTensorType>(input.getType());
      int64_t bytes = getTensorBytes(RankedTensorType::get({}, type.getElementType()));
      operands.push_back(static_cast<int64_t>(llvm::MinAlign(getPromise(input), offset * bytes)));
    }
    for (Value result : call->getResults())
      results.push_back(getPromise(result));
    entry["operand_alignments"] = std::move(operands);
    entry["result_alignments"] = std::move(results);
  }

  /// Where what is sent lies, and where it lands.
  void addEnds(Operation *op, json::Object &entry) {
    if (!isa<CollectiveOp, CollectiveStartOp, TransferStartOp>(op))
      return;
    Value landed = op->getResult(0);
    if (isa<TokenType>(landed.getType()))
      landed = landed.user_begin()->getResult(0);
    for (auto [key, value] : {std::pair("from", op->getOperand(0)), std::pair("to", landed)})
      entry[key] = json::Object{{"space", stringifySpace(getSpace(value.getType()))},
                                {"offset", graph.getOffset(value).value_or(-1)}};
  }

  /// Library calls, transfers, collectives and what else the runtime finds in lists.
  LogicalResult addLists() {
    for (StringRef name : {"library_calls", "transfers", "collectives"})
      manifest[name] = json::Array();
    llvm::MapVector<StringRef, std::map<uint64_t, json::Object>> lists;
    for (Operation *op : graph.getInstructions())
      if (auto listed = dyn_cast<ListedOpInterface>(op)) {
        json::Object entry = listed.describe(target);
        addEnds(op, entry);
        if (auto call = dyn_cast<LibraryCallOp>(op); call && failed(addPlan(call, entry)))
          return failure();
        lists[listed.getListName()].emplace(*listed.getNumber(), std::move(entry));
      }
    for (auto &[name, entries] : lists) {
      json::Array list;
      for (auto &[number, entry] : entries)
        list.push_back(std::move(entry));
      manifest[name] = std::move(list);
    }
    return success();
  }

  json::Array outputsOf(InstructionOpInterface op) {
    json::Array outputs;
    auto tensors = llvm::make_filter_range(
        op->getResults(), [](Value result) { return isa<RankedTensorType>(result.getType()); });
    for (auto [result, offset] : llvm::zip_first(tensors, op.getOffsetsAttr().asArrayRef()))
      outputs.push_back(json::Object{
          {"space", stringifySpace(getSpace(result.getType()))},
          {"offset", offset},
          {"bytes", getTensorBytes(result.getType())},
          {"dtype", getDtypeName(cast<RankedTensorType>(result.getType()).getElementType())}});
    return outputs;
  }

  ModuleOp module;
  const StepModel &model;
  func::FuncOp step;
  KernelGraph graph;
  TargetAttrInterface target;
  const ManifestOptions &options;
  json::Object manifest;
};
} // namespace

FailureOr<json::Object> mlir::memopt::buildManifest(ModuleOp planned,
                                                    const ManifestOptions &options) {
  FailureOr<StepModel> step = StepModel::create(planned);
  if (failed(step))
    return failure();
  if (!planned->getAttrOfType<PlannedAttr>(MemoptDialect::kPlannedAttr))
    return planned.emitError("is not planned: a package holds planned programs");
  return ManifestBuilder(*step, options).build();
}
