//===- OpContext.cpp - one operator being lowered -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/OpContext.h"
#include "memopt/Import/Graph/GraphImporter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Support/DebugStringHelper.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <numeric>

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;

std::string memopt::pt2::toString(ArrayRef<int64_t> shape) {
  std::string text = "[";
  raw_string_ostream os(text);
  interleaveComma(shape, os);
  os << "]";
  return text;
}

std::string memopt::pt2::toString(double number) { return formatv("{0}", number).str(); }

mlir::Type memopt::pt2::getElementType(mlir::Builder &b, DType type) {
  switch (type) {
  case DType::Bool:
    return b.getI1Type();
  case DType::U8:
  case DType::I8:
    return b.getI8Type();
  case DType::I16:
    return b.getIntegerType(16);
  case DType::I32:
    return b.getI32Type();
  case DType::I64:
    return b.getI64Type();
  case DType::F16:
    return b.getF16Type();
  case DType::BF16:
    return b.getBF16Type();
  case DType::F32:
    return b.getF32Type();
  case DType::F64:
    return b.getF64Type();
  }
  llvm_unreachable("all types are known");
}

int64_t Tensor::getNumElements() const {
  int64_t count = 1;
  for (int64_t size : sizes)
    count *= size;
  return count;
}

ArrayRef<int64_t> Tensor::extents() const {
  if (constant)
    return constant->getExtents();
  return cast<RankedTensorType>(value.getType()).getShape();
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

/// The names of an operator's results in order; lists of tensors are laid flat.
static void collectResults(const Node &node, std::vector<std::string> &names) {
  for (const Argument &output : node.outputs)
    if (output.kind == Argument::Kind::Tensor || output.kind == Argument::Kind::Tensors)
      append_range(names, output.names);
    else
      names.emplace_back(); // none, or a size that its hint has replaced
}

OpContext::OpContext(GraphImporter &importer, mlir::ImplicitLocOpBuilder &builder, const Node &node,
                     const Graph &graph, bool widensHalves)
    : importer(importer), b(builder), node(node), graph(graph), widensHalves(widensHalves) {
  collectResults(node, resultNames);
  results.resize(resultNames.size());
}

Error OpContext::error(const Twine &message) const { return makeError(message); }

/// Whether an argument's kind fits the parameter; numbers that the file wrote in a narrower form
/// fit too.
static bool accepts(Parameter::Type type, const Argument &value) {
  using Type = Parameter::Type;
  using Kind = Argument::Kind;
  switch (type) {
  case Type::Ignored:
    return true;
  case Type::Tensor:
    return value.kind == Kind::Tensor;
  case Type::Tensors:
    return value.kind == Kind::Tensors &&
           none_of(value.names, [](const std::string &name) { return name.empty(); });
  case Type::OptionalTensors:
    return value.kind == Kind::Tensors;
  case Type::Int:
    return value.kind == Kind::Int;
  case Type::Ints:
    return value.kind == Kind::Ints || value.kind == Kind::Int;
  case Type::Float:
    return value.kind == Kind::Float || value.kind == Kind::Int;
  case Type::Floats:
    return value.kind == Kind::Floats || value.kind == Kind::Ints;
  case Type::Scalar:
    return value.kind == Kind::Float || value.kind == Kind::Int || value.kind == Kind::Bool;
  case Type::Bool:
    return value.kind == Kind::Bool;
  case Type::String:
    return value.kind == Kind::String;
  case Type::DType:
    return value.kind == Kind::ScalarType;
  case Type::TensorOrScalar:
    return value.kind == Kind::Tensor || accepts(Type::Scalar, value);
  }
  llvm_unreachable("all types are known");
}

static StringRef describe(Parameter::Type type) {
  using Type = Parameter::Type;
  switch (type) {
  case Type::Ignored:
    return "anything";
  case Type::Tensor:
    return "a tensor";
  case Type::Tensors:
    return "a list of tensors";
  case Type::OptionalTensors:
    return "a list of optional tensors";
  case Type::Int:
    return "an integer";
  case Type::Ints:
    return "a list of integers";
  case Type::Float:
    return "a number";
  case Type::Floats:
    return "a list of numbers";
  case Type::Scalar:
    return "a number";
  case Type::Bool:
    return "a boolean";
  case Type::String:
    return "a string";
  case Type::DType:
    return "an element type";
  case Type::TensorOrScalar:
    return "a tensor or a number";
  }
  llvm_unreachable("all types are known");
}

Error OpContext::check(const Parameter &parameter, const Argument &value) const {
  if (value.kind == Argument::Kind::None) {
    if (parameter.optional || parameter.type == Parameter::Type::Ignored)
      return Error::success();
  } else if (accepts(parameter.type, value)) {
    return Error::success();
  }
  return error("argument '" + parameter.name + "': expected " + describe(parameter.type) +
               (parameter.optional ? " or none" : "") + ", found " + getName(value.kind));
}

/// Sizes that are names of computed integers become their values.
static Expected<std::unique_ptr<Argument>> resolveSizes(const OpContext &op, const Graph &graph,
                                                        const Argument &value) {
  auto resolved = std::make_unique<Argument>(value);
  for (auto [name, number] : zip_equal(value.names, resolved->ints)) {
    if (name.empty())
      continue;
    auto it = graph.symInts.find(name);
    if (it == graph.symInts.end())
      return op.error("refers to missing size '" + name + "'");
    number = it->second;
  }
  resolved->names.clear();
  return resolved;
}

Error OpContext::bind(const std::vector<Parameter> &parameters) {
  StringMap<const Argument *> given;
  for (const NamedArgument &input : node.inputs)
    if (!given.try_emplace(input.name, &input.value).second)
      return error("argument '" + input.name + "' is given twice");
  for (const Parameter &parameter : parameters) {
    const Argument *value = nullptr;
    if (auto it = given.find(parameter.name); it != given.end()) {
      value = it->second;
      given.erase(it);
    } else if (parameter.defaultValue) {
      value = owned.emplace_back(std::make_unique<Argument>(*parameter.defaultValue)).get();
    } else {
      return error("argument '" + parameter.name + "' is missing");
    }
    RETURN_IF_ERROR(check(parameter, *value));
    bool isSize = value->kind == Argument::Kind::Int || value->kind == Argument::Kind::Ints;
    if (isSize && !value->names.empty()) {
      ASSIGN_OR_RETURN(auto resolved, resolveSizes(*this, graph, *value));
      value = owned.emplace_back(std::move(resolved)).get();
    }
    if (value->kind == Argument::Kind::Tensor || value->kind == Argument::Kind::Tensors)
      for (const std::string &name : value->names)
        if (!name.empty())
          if (auto tensor = importer.lookup(name); !tensor)
            return tensor.takeError();
    arguments[parameter.name] = value;
  }
  if (!given.empty())
    return error("argument '" + given.begin()->first() + "' is not known for this operator");
  if (results.empty())
    return error("expected at least one result, found none");
  claims.resize(results.size());
  for (auto [name, meta] : zip_equal(resultNames, claims)) {
    if (name.empty())
      continue;
    if (auto it = graph.tensors.find(name); it != graph.tensors.end())
      meta = it->second;
    else if (auto type = graph.unsupportedTensors.find(name);
             type != graph.unsupportedTensors.end())
      return error((claims.size() == 1 ? "its result" : "result '" + name + "'") + " has " +
                   type->second + ", which is not supported");
    else
      return error("result '" + name + "' is missing in tensor_values");
  }
  metas = claims;
  for (TensorMeta &meta : metas)
    if (widensHalves && isHalf(meta.dtype))
      meta.dtype = DType::F32;
  return Error::success();
}

const Argument &OpContext::argument(StringRef name) const {
  auto it = arguments.find(name);
  assert(it != arguments.end() && "the row has no such parameter");
  return *it->second;
}

bool OpContext::has(StringRef name) const { return argument(name).kind != Argument::Kind::None; }

Error OpContext::checkReal(DType result) const {
  if (isFloat(result))
    return Error::success();
  return error("expected a floating-point result, found " + getName(result));
}

Error OpContext::checkNoBytes(ArrayRef<StringRef> names) {
  for (StringRef name : names)
    if (tensor(name).dtype == DType::U8)
      return error(
          "argument '" + name +
          "': differences of unsigned bytes wrap around; convert it to a wider type before");
  return Error::success();
}

bool OpContext::isTensor(StringRef name) const {
  return argument(name).kind == Argument::Kind::Tensor;
}

Tensor OpContext::original(StringRef name) const {
  return cantFail(importer.lookup(argument(name).names.front())); // bind() has looked it up
}

Tensor OpContext::lookup(StringRef value) {
  Tensor tensor = cantFail(importer.lookup(value));
  return widensHalves && isHalf(tensor.dtype) ? castTo(*this, tensor, DType::F32) : tensor;
}

Tensor OpContext::tensor(StringRef name) { return lookup(argument(name).names.front()); }

std::optional<Tensor> OpContext::optionalTensor(StringRef name) {
  if (!has(name))
    return std::nullopt;
  return tensor(name);
}

std::vector<std::optional<Tensor>> OpContext::tensors(StringRef name) {
  std::vector<std::optional<Tensor>> result;
  for (const std::string &element : argument(name).names)
    if (element.empty())
      result.emplace_back();
    else
      result.emplace_back(lookup(element));
  return result;
}

Operand OpContext::operand(StringRef name) {
  if (argument(name).kind == Argument::Kind::Tensor)
    return tensor(name);
  return scalar(name);
}

int64_t OpContext::integer(StringRef name) const { return argument(name).ints.front(); }

std::optional<int64_t> OpContext::optionalInteger(StringRef name) const {
  if (!has(name))
    return std::nullopt;
  return integer(name);
}

ArrayRef<int64_t> OpContext::integers(StringRef name) const { return argument(name).ints; }
double OpContext::number(StringRef name) const { return scalar(name).asDouble(); }
ArrayRef<double> OpContext::numbers(StringRef name) const { return argument(name).floats; }

Scalar OpContext::scalar(StringRef name) const {
  const Argument &value = argument(name);
  Scalar result;
  if (value.kind == Argument::Kind::Float) {
    result.isFloat = true;
    result.real = value.floats.front();
  } else {
    result.isBool = value.kind == Argument::Kind::Bool;
    result.integer = value.ints.front();
  }
  return result;
}

bool OpContext::flag(StringRef name) const { return argument(name).ints.front(); }
StringRef OpContext::text(StringRef name) const { return argument(name).text; }

std::optional<DType> OpContext::dtype(StringRef name) const {
  if (!has(name))
    return std::nullopt;
  DType type = DType(argument(name).ints.front());
  return widensHalves && isHalf(type) ? DType::F32 : type;
}

std::optional<Shape> OpContext::getStorageOrder(StringRef name) const {
  auto meta = graph.tensors.find(argument(name).names.front());
  if (meta == graph.tensors.end() || meta->second.storageOffset != 0)
    return std::nullopt;
  ArrayRef<int64_t> sizes = meta->second.sizes, strides = meta->second.strides;
  Shape order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  auto getStep = [&](int64_t dim) { return sizes[dim] == 1 ? 0 : strides[dim]; };
  llvm::stable_sort(order, [&](int64_t a, int64_t b) { return getStep(a) > getStep(b); });
  int64_t stride = 1;
  for (int64_t dim : reverse(order)) {
    if (sizes[dim] != 1 && strides[dim] != stride)
      return std::nullopt;
    stride *= sizes[dim];
  }
  return order;
}

Expected<int64_t> OpContext::dimension(StringRef name, int64_t value, int64_t rank) const {
  int64_t bound = std::max<int64_t>(rank, 1); // PyTorch lets a scalar pretend one dimension
  if (value < -bound || value >= bound)
    return error("argument '" + name + "': expected a dimension of a tensor of rank " +
                 Twine(rank) + ", found " + Twine(value));
  return value < 0 ? value + bound : value;
}

Expected<int64_t> OpContext::dimension(StringRef name, int64_t rank) const {
  return dimension(name, integer(name), rank);
}

/// No list and an empty list both mean all dimensions.
Expected<Shape> OpContext::dimensions(StringRef name, int64_t rank) const {
  Shape result;
  if (has(name))
    for (int64_t value : integers(name)) {
      ASSIGN_OR_RETURN(int64_t dim, dimension(name, value, rank));
      if (is_contained(result, dim))
        return error("argument '" + name + "' names dimension " + Twine(dim) + " twice");
      result.push_back(dim);
    }
  if (result.empty())
    append_range(result, seq<int64_t>(0, rank));
  llvm::sort(result);
  while (!result.empty() && result.back() >= rank)
    result.pop_back();
  return result;
}

Expected<Shape> OpContext::perDimension(StringRef name, int64_t count) const {
  ArrayRef<int64_t> values = integers(name);
  if (values.size() == 1)
    return Shape(count, values.front());
  if (int64_t(values.size()) != count)
    return error("argument '" + name + "': expected " + Twine(count) + " integers or one, found " +
                 Twine(values.size()));
  return Shape(values);
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

bool OpContext::isUsed(size_t i) const {
  return !resultNames[i].empty() && importer.isUsedLater(resultNames[i]);
}

RankedTensorType OpContext::resultType(size_t i) const {
  return tensorType(metas[i].dtype, metas[i].sizes);
}

void OpContext::copyResults() {
  for (std::optional<Tensor> &result : results)
    if (result)
      result = copy(std::move(*result));
}

void OpContext::setResult(size_t i, Value value) { setResult(i, wrap(metas[i].dtype, value)); }

Error OpContext::mutate(StringRef name, Tensor to) {
  Tensor from = original(name);
  return importer.mutate(from, isHalf(from.dtype) ? castTo(*this, to, from.dtype) : to);
}

Error OpContext::finishResults() {
  for (auto [name, meta, result] : zip_equal(resultNames, claims, results)) {
    if (!result || name.empty())
      continue;
    if (widensHalves && isHalf(meta.dtype) && result->dtype == DType::F32)
      result = castTo(*this, *result, meta.dtype);
    if (result->dtype != meta.dtype || ArrayRef(result->sizes) != ArrayRef(meta.sizes))
      return error("result '" + name + "': the file says " + getName(meta.dtype) +
                   toString(meta.sizes) + ", the operator gives " + getName(result->dtype) +
                   toString(result->sizes));
    if (!result->value)
      continue;
    auto type = cast<RankedTensorType>(result->value.getType());
    if (type.getElementType() != elementType(result->dtype) || type.getRank() != result->rank())
      return error("result '" + name + "': the file says " + getName(meta.dtype) +
                   toString(meta.sizes) + ", the operator gives " +
                   mlir::debugString(type.getElementType()) + toString(type.getShape()));
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

mlir::Type OpContext::elementType(DType dtype) const { return getElementType(b, dtype); }

RankedTensorType OpContext::tensorType(DType dtype, ArrayRef<int64_t> sizes) const {
  return RankedTensorType::get(sizes, elementType(dtype));
}

/// A known tensor's stored elements as a constant of that shape.
static Value materialize(OpContext &op, const ConstantTensor &constant) {
  RankedTensorType type = op.tensorType(constant.getType(), constant.getExtents());
  int64_t count = constant.getNumStored();
  auto make = [&](auto read) {
    using T = decltype(read(int64_t()));
    std::unique_ptr<T[]> elements(new T[count]);
    for (int64_t i = 0; i != count; ++i)
      elements[i] = read(constant.getStored(i));
    return mlir::DenseElementsAttr::get(type, ArrayRef<T>(elements.get(), count));
  };
  mlir::DenseElementsAttr attr;
  switch (constant.getType()) {
  case DType::Bool:
    attr = make([](int64_t v) { return v != 0; });
    break;
  case DType::U8:
  case DType::I8:
    attr = make([](int64_t v) { return int8_t(v); });
    break;
  case DType::I16:
    attr = make([](int64_t v) { return int16_t(v); });
    break;
  case DType::I32:
    attr = make([](int64_t v) { return int32_t(v); });
    break;
  default:
    attr = make([](int64_t v) { return v; });
    break;
  }
  return mlir::arith::ConstantOp::create(op.b, attr);
}

Value OpContext::getCompact(const Tensor &tensor) {
  return tensor.constant ? materialize(*this, *tensor.constant) : tensor.value;
}

Value OpContext::get(const Tensor &tensor) {
  return broadcastValue(b, getCompact(tensor), tensor.sizes);
}

Tensor OpContext::wrap(DType dtype, ArrayRef<int64_t> sizes, Value value) const {
  Tensor result;
  result.dtype = dtype;
  result.sizes.assign(sizes.begin(), sizes.end());
  result.value = value;
  return copy(std::move(result));
}

Tensor OpContext::wrap(DType dtype, Value value) const {
  return wrap(dtype, cast<RankedTensorType>(value.getType()).getShape(), value);
}

Tensor OpContext::wrap(Constant constant) const {
  Tensor result;
  result.dtype = constant->getType();
  result.sizes.assign(constant->getSizes().begin(), constant->getSizes().end());
  result.constant = std::move(constant);
  return copy(std::move(result));
}

Tensor OpContext::copy(Tensor tensor) const {
  tensor.storage = importer.newIdentity();
  tensor.view = importer.newIdentity();
  return tensor;
}
