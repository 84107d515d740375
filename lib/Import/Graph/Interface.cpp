//===- Interface.cpp - inputs, variables and results of the step -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Program.h"
#include "memopt/Import/Graph/GraphImporter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/DialectResourceBlobManager.h"

#include <cstring>

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::memopt::MemoptDialect;
using mlir::memopt::Role;

//===----------------------------------------------------------------------===//
// Inputs and variables
//===----------------------------------------------------------------------===//

static Expected<const TensorMeta *> metaOf(const Graph &graph, StringRef name) {
  if (auto it = graph.tensors.find(name); it != graph.tensors.end())
    return &it->second;
  if (auto it = graph.unsupportedTensors.find(name); it != graph.unsupportedTensors.end())
    return makeError(it->second + " is not supported");
  return makeError("it is missing in tensor_values");
}

Error GraphImporter::createInputs() {
  findTies();
  for (auto [index, spec] : enumerate(program.inputs)) {
    const Argument &argument = program.graph.inputs[index];
    bool agrees = spec.kind == InputSpec::Kind::ConstantInput ||
                  (argument.kind == Argument::Kind::Tensor && argument.names.front() == spec.value);
    if (!agrees)
      return error("input " + Twine(index) + " of the graph is not '" + spec.value +
                   "', which its spec names");
    if (spec.kind == InputSpec::Kind::ConstantInput)
      continue; // a Python number or None, already folded into the graph
    auto meta = metaOf(program.graph, spec.value);
    Error failed = Error::success();
    if (!meta)
      failed = meta.takeError();
    else if ((*meta)->getNumElements() == 0)
      failed = createEmpty(spec, **meta);
    else if (spec.kind == InputSpec::Kind::User)
      failed = createUserInput(spec, **meta);
    else
      failed = createVariable(index, **meta);
    if (failed)
      return error("input '" + spec.value + "': " + llvm::toString(std::move(failed)));
  }
  return Error::success();
}

/// What `torch.tensor([])` leaves, to be joined with tensors that have elements; and buffers that
/// keep nothing, as of a layer whose weights are given to it.
Error GraphImporter::createEmpty(const InputSpec &spec, const TensorMeta &meta) {
  if (spec.kind != InputSpec::Kind::TensorConstant && spec.kind != InputSpec::Kind::Buffer)
    return makeError("tensors without elements are not supported");
  Tensor tensor = newTensor(meta.dtype, meta.sizes);
  if (isFloat(meta.dtype)) {
    mlir::OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(&function.getBody().front());
    mlir::ImplicitLocOpBuilder b(function.getLoc(), builder);
    SmallVector<int64_t> ones(meta.sizes.size(), 1); // broadcast late, as all that is filled
    tensor.value = splat(b, RankedTensorType::get(ones, getElementType(builder, meta.dtype)), 0.0);
  } else {
    tensor.constant = ConstantTensor::splat(meta.dtype, meta.sizes, 0);
  }
  return define(spec.value, std::move(tensor));
}

Error GraphImporter::createUserInput(const InputSpec &spec, const TensorMeta &meta) {
  unsigned index = function.getNumArguments();
  auto type = RankedTensorType::get(meta.sizes, getElementType(builder, meta.dtype));
  mlir::NamedAttrList attrs;
  attrs.set(MemoptDialect::kNameAttr, builder.getStringAttr(spec.value));
  if (meta.dtype == DType::U8)
    attrs.set(MemoptDialect::kDtypeAttr, builder.getStringAttr(getName(meta.dtype)));
  if (failed(
          function.insertArgument(index, type, attrs.getDictionary(&context), function.getLoc())))
    return makeError("cannot become an argument");
  Tensor tensor = newTensor(meta.dtype, meta.sizes);
  tensor.value = function.getArgument(index);
  return define(spec.value, std::move(tensor));
}

bool GraphImporter::isMutatedAtOutput(StringRef target) const {
  return any_of(program.outputs, [&](const OutputSpec &spec) {
    return spec.kind == OutputSpec::Kind::StateMutation && spec.target == target;
  });
}

/// Gives every target the name under which its tensor is declared: the first of those tied
/// together, which shared storage shows. On the meta device one trace is left: of two parameters
/// that are tied the graph reads only one, so an unused one goes with the only used one like it.
void GraphImporter::findTies() {
  StringMap<SmallVector<StringRef, 2>>
      used; // by type and shape: targets of used parameters whose storage tells nothing
  auto describe = [&](const InputSpec &spec) {
    auto meta = program.graph.tensors.find(spec.value);
    if (spec.kind != InputSpec::Kind::Parameter || meta == program.graph.tensors.end() ||
        weights.knowsTies(spec.target))
      return std::string();
    return (getName(meta->second.dtype) + toString(meta->second.sizes)).str();
  };
  for (const InputSpec &spec : program.inputs)
    if (std::string like = describe(spec); !like.empty() && root.lastUse.count(spec.value))
      used[like].push_back(spec.target);

  StringMap<StringRef> groups; // target to what identifies its tensor
  for (const InputSpec &spec : program.inputs) {
    if (spec.target.empty())
      continue;
    StringRef key = weights.getAlias(spec.target);
    if (!root.lastUse.count(spec.value))
      if (auto twins = used.find(describe(spec)); twins != used.end() && twins->second.size() == 1)
        key = weights.getAlias(twins->second.front());
    groups[spec.target] = key;
  }
  StringMap<StringRef> first;
  for (const InputSpec &spec : program.inputs)
    if (!spec.target.empty())
      variableOf[spec.target] =
          first.try_emplace(groups[spec.target], spec.target).first->second.str();
}

/// Integer buffers outside the state dict (position ids) are constants unless the step changes
/// them. They are variables all the same, though nobody reads them, for a checkpoint has them.
Expected<bool> GraphImporter::foldBuffer(const InputSpec &spec, const TensorMeta &meta) {
  constexpr int64_t largest = 1 << 20;
  bool isState = spec.kind == InputSpec::Kind::Parameter ||
                 (spec.kind == InputSpec::Kind::Buffer && spec.persistent);
  if (isState || isFloat(meta.dtype) || meta.getNumElements() > largest ||
      isMutatedAtOutput(spec.target))
    return false;
  ASSIGN_OR_RETURN(std::optional<TensorData> data, weights.load(spec.target));
  if (!data)
    return false;
  SmallVector<int64_t> elements;
  size_t width = getByteWidth(meta.dtype);
  for (size_t at = 0; at != data->bytes.size(); at += width) {
    int64_t word = 0;
    std::memcpy(&word, data->bytes.data() + at, width);
    bool isSigned = meta.dtype != DType::U8 && meta.dtype != DType::Bool;
    elements.push_back(isSigned ? SignExtend64(word, width * 8) : word);
  }
  Tensor tensor = newTensor(meta.dtype, meta.sizes);
  tensor.constant = ConstantTensor::dense(meta.dtype, meta.sizes, elements);
  folded[tensor.storage] = spec.target;
  if (spec.kind == InputSpec::Kind::Buffer) {
    ASSIGN_OR_RETURN(mlir::memopt::VariableOp declaration,
                     declareVariable(spec, spec.target, meta));
    declaration.setNamesAttr(builder.getStrArrayAttr(StringRef(spec.target)));
  }
  if (Error failed = define(spec.value, std::move(tensor)))
    return std::move(failed);
  return true;
}

Error GraphImporter::createVariable(size_t index, const TensorMeta &meta) {
  const InputSpec &spec = program.inputs[index];
  const TensorMeta *stored = weights.getMeta(spec.target);
  if (!stored)
    return makeError("no tensor '" + spec.target + "' among the weights");
  if (stored->dtype != meta.dtype || stored->sizes != meta.sizes)
    return makeError("the graph says " + Twine(getName(meta.dtype)) + toString(meta.sizes) +
                     ", the weights say " + getName(stored->dtype) + toString(stored->sizes));
  ASSIGN_OR_RETURN(bool isConstant, foldBuffer(spec, meta));
  if (isConstant)
    return Error::success();

  const std::string &target = variableOf.find(spec.target)->second;
  Variable &variable = variables[target];
  if (!variable.declaration) {
    ASSIGN_OR_RETURN(variable.declaration, declareVariable(spec, target, meta));
    readInitial(meta, variable);
    variableAt[variable.initial.storage] = target;
  }
  bool isParameter = spec.kind == InputSpec::Kind::Parameter,
       isBuffer = spec.kind == InputSpec::Kind::Buffer;
  if (isParameter || (isBuffer && spec.persistent)) // as is what it may share its memory with
    variable.declaration.setTransient(false);
  if (isParameter || isBuffer)
    variable.names.push_back(spec.target);
  SmallVector<StringRef> names(variable.names.begin(), variable.names.end());
  variable.declaration.setNamesAttr(builder.getStrArrayAttr(names));
  return define(spec.value, variable.initial);
}

Expected<mlir::memopt::VariableOp>
GraphImporter::declareVariable(const InputSpec &spec, StringRef name, const TensorMeta &meta) {
  auto type = RankedTensorType::get(meta.sizes, getElementType(builder, meta.dtype));
  ASSIGN_OR_RETURN(mlir::ElementsAttr initial, loadInitial(spec.target, meta));
  bool isParameter = spec.kind == InputSpec::Kind::Parameter;
  mlir::OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(function);
  auto declaration = mlir::memopt::VariableOp::create(
      builder, mlir::NameLoc::get(builder.getStringAttr(name)), chooseSymbol(name), type,
      isParameter ? Role::Parameter : Role::Buffer);
  declaration.setTrainable(isParameter && meta.requiresGrad && isFloat(meta.dtype));
  declaration.setTransient(!isParameter && !spec.persistent);
  StringRef path = StringRef(spec.target).take_front(StringRef(spec.target).rfind('.') + 1);
  // What nodes say of the module; nothing where none of them is its own.
  if (StringRef owner = classes.lookup(path.empty() ? path : path.drop_back()); !owner.empty())
    declaration.setModuleClass(owner);
  if (initial)
    declaration.setInitialAttr(initial);
  if (meta.dtype == DType::U8)
    declaration->setAttr(MemoptDialect::kDtypeAttr, builder.getStringAttr(getName(meta.dtype)));
  return declaration;
}

/// The target, or where that is a name of the program's own, one that is not.
std::string GraphImporter::chooseSymbol(StringRef target) {
  std::string symbol = target.str();
  while (mlir::memopt::isProgramName(symbol) || (symbol != target && variableOf.contains(symbol)))
    symbol = "model." + symbol;
  if (symbol != target)
    renamed[symbol] = target.str();
  return symbol;
}

/// The value that the step begins with.
void GraphImporter::readInitial(const TensorMeta &meta, Variable &variable) {
  mlir::memopt::VariableOp declaration = variable.declaration;
  variable.isBuffer = declaration.getRole() == Role::Buffer;
  variable.initial = newTensor(meta.dtype, meta.sizes);
  mlir::OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(&function.getBody().front());
  variable.initial.value = mlir::memopt::ReadOp::create(
      builder, declaration.getLoc(), declaration.getTensorType(), declaration.getSymName());
  if (!isFloat(meta.dtype))
    suggestInitial(variable.initial, 0);
}

void GraphImporter::suggestInitial(const Tensor &tensor, double value) {
  mlir::Value state = tensor.value;
  if (auto widened = state ? state.getDefiningOp<mlir::arith::ExtFOp>() : nullptr)
    state = widened.getIn();
  auto read = state ? state.getDefiningOp<mlir::memopt::ReadOp>() : nullptr;
  if (!read)
    return;
  auto target = renamed.find(read.getVariable());
  auto it = variables.find(target == renamed.end() ? read.getVariable().str() : target->second);
  if (it == variables.end() || it->second.declaration.getInitial() ||
      it->second.declaration.getInitValue())
    return;
  it->second.declaration.setInitValueAttr(builder.getF64FloatAttr(value));
}

/// Small tensors and those that are not numbers of whole bytes go inline, others stay in the mapped
/// file.
Expected<mlir::ElementsAttr> GraphImporter::loadInitial(StringRef name, const TensorMeta &meta) {
  ASSIGN_OR_RETURN(std::optional<TensorData> data, weights.load(name));
  if (!data)
    return mlir::ElementsAttr();
  auto type = RankedTensorType::get(meta.sizes, getElementType(builder, meta.dtype));
  if (meta.dtype == DType::Bool) {
    SmallVector<bool> elements(map_range(data->bytes, [](char byte) { return byte != 0; }));
    return mlir::DenseElementsAttr::get(type, elements);
  }
  constexpr size_t inlineBytes = 64;
  if (data->bytes.size() <= inlineBytes)
    return mlir::DenseElementsAttr::getFromRawBuffer(type, data->bytes);
  size_t alignment = getByteWidth(meta.dtype);
  auto release = [owner = data->owner](void *, size_t, size_t) {};
  if (reinterpret_cast<uintptr_t>(data->bytes.data()) % alignment == 0)
    return mlir::DenseResourceElementsAttr::get(
        type, name,
        mlir::AsmResourceBlob(data->bytes, alignment, std::move(release), /*dataIsMutable=*/false));
  return mlir::DenseResourceElementsAttr::get(
      type, name, mlir::HeapAsmResourceBlob::allocateAndCopyWithAlign(data->bytes, alignment));
}

/// Dimension 0 counts samples when all inputs have it in common.
void GraphImporter::annotateBatch() {
  std::optional<int64_t> batch;
  for (mlir::Type type : function.getArgumentTypes()) {
    auto tensor = cast<RankedTensorType>(type);
    if (tensor.getRank() == 0)
      continue;
    if (batch && *batch != tensor.getDimSize(0))
      return;
    batch = tensor.getDimSize(0);
  }
  if (!batch)
    return;
  for (auto [index, type] : enumerate(function.getArgumentTypes()))
    if (cast<RankedTensorType>(type).getRank() > 0)
      function.setArgAttr(index, MemoptDialect::kBatchDimAttr, builder.getI64IntegerAttr(0));
}

//===----------------------------------------------------------------------===//
// Outputs and writes
//===----------------------------------------------------------------------===//

Expected<size_t> GraphImporter::chooseLoss(ArrayRef<const OutputSpec *> outputs) const {
  auto isFloatScalar = [&](size_t i) {
    if (outputs[i]->value.kind != Argument::Kind::Tensor)
      return false;
    auto it = program.graph.tensors.find(outputs[i]->value.names.front());
    return it != program.graph.tensors.end() && it->second.sizes.empty() &&
           isFloat(it->second.dtype);
  };
  auto list = [&] {
    std::string names;
    for (auto [i, output] : enumerate(outputs))
      names +=
          (i ? ", " : "") + (output->value.names.empty() ? "none" : output->value.names.front());
    return names.empty() ? std::string("none") : names;
  };
  if (options.loss.empty()) {
    for (size_t i = 0; i != outputs.size(); ++i)
      if (isFloatScalar(i))
        return i;
    if (options.evaluate)
      return outputs.size();
    return error("no output is a floating-point scalar that could be the loss; outputs: " + list());
  }
  size_t index = outputs.size();
  if (StringRef(options.loss).getAsInteger(10, index))
    for (auto [i, output] : enumerate(outputs))
      if (is_contained(output->value.names, options.loss))
        index = i;
  if (index >= outputs.size())
    return error("no output is named or numbered '" + options.loss + "'; outputs: " + list());
  if (!isFloatScalar(index))
    return error("output '" + options.loss +
                 "' is not a floating-point scalar, so it cannot be the loss");
  return index;
}

Error GraphImporter::createOutputs() {
  SmallVector<const OutputSpec *> users;
  for (const OutputSpec &spec : program.outputs)
    if (spec.kind == OutputSpec::Kind::User)
      users.push_back(&spec);
    else if (spec.kind == OutputSpec::Kind::InputMutation)
      return error("the step changes its input '" + spec.target +
                   "'; what it keeps from step to step must be a buffer");
  ASSIGN_OR_RETURN(size_t loss, chooseLoss(users));
  if (loss < users.size())
    std::rotate(users.begin(), users.begin() + loss, users.begin() + loss + 1);

  builder.setLoc(function.getLoc());
  builder.setInsertionPointToEnd(&function.getBody().front());
  OpContext op(*this, builder, outputNode, program.graph);
  SmallVector<mlir::Value> values;
  SmallVector<mlir::DictionaryAttr> attributes;
  for (auto [i, spec] : enumerate(users)) {
    if (spec->value.kind != Argument::Kind::Tensor)
      continue; // None and Python numbers are no results of the program
    const std::string &name = spec->value.names.front();
    auto tensor = lookup(name);
    if (!tensor)
      return error("output '" + name + "': " + llvm::toString(tensor.takeError()));
    bool isLoss = loss < users.size() && i == 0;
    // A step's predictions are for nobody, and returned they would be alive until its end.
    if (!isLoss && !options.evaluate && !tensor->sizes.empty())
      continue;
    mlir::NamedAttrList attrs;
    attrs.set(MemoptDialect::kNameAttr, builder.getStringAttr(isLoss ? "loss" : name));
    attrs.set(MemoptDialect::kRoleAttr,
              builder.getStringAttr(isLoss                   ? "loss"
                                    : isFloat(tensor->dtype) ? "prediction"
                                                             : "output"));
    if (tensor->dtype == DType::U8)
      attrs.set(MemoptDialect::kDtypeAttr, builder.getStringAttr(getName(tensor->dtype)));
    values.push_back(op.get(*tensor));
    attributes.push_back(attrs.getDictionary(&context));
  }
  if (values.empty())
    return error("the program returns no tensor");
  if (!options.evaluate)
    RETURN_IF_ERROR(createWrites(op));
  mlir::func::ReturnOp::create(builder, values);
  auto types = to_vector(map_range(values, [](mlir::Value value) { return value.getType(); }));
  function.setFunctionType(builder.getFunctionType(function.getArgumentTypes(), types));
  for (auto [i, attrs] : enumerate(attributes))
    function.setResultAttrs(i, attrs);
  return Error::success();
}

/// New values of state: those that the outputs list, and of buffers those that in-place operators
/// gave. A parameter's has to be listed, for it says that its gradient is that of the new value.
Error GraphImporter::createWrites(OpContext &op) {
  StringMap<std::string> listed; // first name of the variable to the value's name
  for (const OutputSpec &spec : program.outputs) {
    if (spec.kind != OutputSpec::Kind::StateMutation)
      continue;
    auto variable = variableOf.find(spec.target);
    if (variable == variableOf.end())
      return error("output '" + spec.value.names.front() + "' mutates '" + spec.target +
                   "', which is no state of the program");
    if (!listed.try_emplace(variable->second, spec.value.names.front()).second)
      return error("'" + spec.target + "' is mutated by two outputs");
  }
  for (const InputSpec &spec : program.inputs) {
    auto target = variableOf.find(spec.target);
    if (spec.target.empty() || target == variableOf.end() || target->second != spec.target)
      continue;
    auto declared = variables.find(target->second);
    if (declared == variables.end())
      continue; // folded, and constant
    const Variable &variable = declared->second;
    auto it = listed.find(spec.target);
    auto value = lookup(it == listed.end() ? StringRef(spec.value) : StringRef(it->second));
    if (!value)
      return error("new value of '" + spec.target + "': " + llvm::toString(value.takeError()));
    if (it == listed.end() && value->value == variable.initial.value)
      continue;
    if (!variable.isBuffer && it == listed.end())
      return error("the forward pass changes the parameter '" + spec.target + "'");
    if (value->dtype != variable.initial.dtype || value->sizes != variable.initial.sizes)
      return error("'" + spec.target + "' is " + getName(variable.initial.dtype) +
                   toString(variable.initial.sizes) + " and gets " + getName(value->dtype) +
                   toString(value->sizes));
    mlir::memopt::WriteOp::create(builder, op.get(*value), spec.target);
  }
  return Error::success();
}
