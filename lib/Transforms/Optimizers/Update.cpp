//===- Update.cpp - formulas of an optimizer's update ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Optimizers/Update.h"

#include "DynamicCodes.h"
#include "memopt/Dialect/Formula.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"

#include <numeric>

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Terms
//===----------------------------------------------------------------------===//

static double fold(TermKind kind, ArrayRef<double> x) {
  switch (kind) {
  case TermKind::Add:
    return x[0] + x[1];
  case TermKind::Sub:
    return x[0] - x[1];
  case TermKind::Mul:
    return x[0] * x[1];
  case TermKind::Div:
    return x[0] / x[1];
  case TermKind::Max:
    return std::fmax(x[0], x[1]);
  case TermKind::Min:
    return std::fmin(x[0], x[1]);
  case TermKind::Pow:
    return std::pow(x[0], x[1]);
  case TermKind::Sqrt:
    return std::sqrt(x[0]);
  case TermKind::Abs:
    return std::fabs(x[0]);
  case TermKind::Floor:
    return std::floor(x[0]);
  case TermKind::SelectLess:
    return x[0] < x[1] ? x[2] : x[3];
  case TermKind::Decode:
  case TermKind::Encode:
  case TermKind::Leaf:
    break;
  }
  llvm_unreachable("not made of numbers");
}

Quantity Quantity::make(TermKind kind, ArrayRef<Quantity> operands) {
  const Quantity *recorded = llvm::find_if(operands, [](const Quantity &x) { return x.owner; });
  if (recorded != operands.end())
    return recorded->owner->addNode({kind, SmallVector<Quantity, 4>(operands)});
  return fold(kind, llvm::map_to_vector(operands, [](const Quantity &x) { return x.number; }));
}

Quantity mlir::memopt::operator+(Quantity a, Quantity b) {
  return Quantity::make(TermKind::Add, {a, b});
}
Quantity mlir::memopt::operator-(Quantity a, Quantity b) {
  return Quantity::make(TermKind::Sub, {a, b});
}
Quantity mlir::memopt::operator*(Quantity a, Quantity b) {
  return Quantity::make(TermKind::Mul, {a, b});
}
Quantity mlir::memopt::operator/(Quantity a, Quantity b) {
  return Quantity::make(TermKind::Div, {a, b});
}
Quantity mlir::memopt::sqrt(Quantity x) { return Quantity::make(TermKind::Sqrt, {x}); }
Quantity mlir::memopt::abs(Quantity x) { return Quantity::make(TermKind::Abs, {x}); }
Quantity mlir::memopt::floor(Quantity x) { return Quantity::make(TermKind::Floor, {x}); }
Quantity mlir::memopt::sign(Quantity x) {
  return selectLess(x, 0.0, -1.0, selectLess(0.0, x, 1.0, 0.0));
}
Quantity mlir::memopt::pow(Quantity x, Quantity y) { return Quantity::make(TermKind::Pow, {x, y}); }
Quantity mlir::memopt::max(Quantity a, Quantity b) { return Quantity::make(TermKind::Max, {a, b}); }
Quantity mlir::memopt::min(Quantity a, Quantity b) { return Quantity::make(TermKind::Min, {a, b}); }
Quantity mlir::memopt::selectLess(Quantity x, Quantity y, Quantity a, Quantity b) {
  return Quantity::make(TermKind::SelectLess, {x, y, a, b});
}
Quantity mlir::memopt::lerp(Quantity a, Quantity b, Quantity weight) {
  return (1.0 - weight) * a + weight * b;
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

static Value reshapeOnce(ImplicitLocOpBuilder &b, Value value, ArrayRef<int64_t> shape,
                         ArrayRef<ReassociationIndices> parts) {
  auto type = RankedTensorType::get(shape, tensorType(value).getElementType());
  if (type.getRank() < tensorType(value).getRank())
    return tensor::CollapseShapeOp::create(b, type, value, parts);
  return tensor::ExpandShapeOp::create(b, type, value, parts);
}

Value mlir::memopt::reshapeTo(ImplicitLocOpBuilder &b, Value value, ArrayRef<int64_t> shape) {
  RankedTensorType type = tensorType(value);
  if (type.getShape() == shape)
    return value;
  auto wanted = RankedTensorType::get(shape, type.getElementType());
  if (type.getRank() != wanted.getRank())
    if (auto parts = getReassociationIndicesForReshape(type, wanted))
      return reshapeOnce(b, value, shape, *parts);
  // Through a vector: nothing moves on the way.
  auto whole = [](int64_t rank) {
    return SmallVector<ReassociationIndices>{llvm::to_vector<2>(llvm::seq<int64_t>(0, rank))};
  };
  Value vector = reshapeOnce(b, value, {type.getNumElements()}, whole(type.getRank()));
  return reshapeOnce(b, vector, shape, whole(wanted.getRank()));
}

/// Zeros behind a vector.
static Value padTo(ImplicitLocOpBuilder &b, Value vector, int64_t size) {
  RankedTensorType type = tensorType(vector);
  return PadOp::create(b, RankedTensorType::get({size}, type.getElementType()), vector,
                       ArrayRef<int64_t>{0}, ArrayRef<int64_t>{size - type.getDimSize(0)});
}

/// Each element of `rows` `columns` times, as a vector that ends after `size`.
static Value repeatRows(ImplicitLocOpBuilder &b, Value rows, int64_t columns, int64_t size) {
  RankedTensorType type = tensorType(rows);
  SmallVector<int64_t> shape{type.getDimSize(0), columns};
  Value repeated = BroadcastOp::create(b, RankedTensorType::get(shape, type.getElementType()), rows,
                                       ArrayRef<int64_t>{0});
  Value vector = reshapeTo(b, repeated, {shape[0] * columns});
  SmallVector<OpFoldResult> offset{b.getIndexAttr(0)}, length{b.getIndexAttr(size)},
      stride{b.getIndexAttr(1)};
  return tensor::ExtractSliceOp::create(b, vector, offset, length, stride);
}

//===----------------------------------------------------------------------===//
// Recording
//===----------------------------------------------------------------------===//

Update::Update(OptimizerStepOp op, const Optimizer &optimizer, ImplicitLocOpBuilder &b)
    : settings(OptimizerSettings::fromAttribute(op.getSettings())), op(op), optimizer(optimizer),
      b(b), element(tensorType(op.getParameter()).getElementType()),
      computeType(getComputeType(element)), shape(tensorType(op.getParameter()).getShape()) {
  if (shape.empty())
    shape.push_back(1);
  for (auto [number, name] : llvm::enumerate(op.getState().getAsValueRange<StringAttr>()))
    stateNumbers[name] = number;
  bool hasCodes = llvm::any_of(op.getOldState(), [](Value state) {
    return tensorType(state).getElementType().isInteger(8);
  });
  if (!hasCodes)
    return;
  int64_t elements = getNumElements();
  isHalved = settings.has(kStateBits);
  if (isHalved) {
    int64_t halved = llvm::divideCeil(elements, kHalvedBlock);
    cut({halved, 2, kHalvedBlock / 2});
    return;
  }
  isPadded = elements % kBlock != 0;
  int64_t blocks = llvm::divideCeil(elements, kBlock);
  cut({blocks, kBlock});
}

SmallVector<int64_t> Update::allDims() const {
  return llvm::to_vector(llvm::seq<int64_t>(0, shape.size()));
}

ArrayRef<int64_t> Update::getDims(Quantity x) const {
  return x.owner ? ArrayRef<int64_t>(nodes[x.id].dims) : ArrayRef<int64_t>();
}

Quantity Update::addNode(Node node) {
  for (const Quantity &operand : node.operands)
    for (int64_t dim : getDims(operand))
      if (!llvm::is_contained(node.dims, dim))
        node.dims.push_back(dim);
  llvm::sort(node.dims);
  nodes.push_back(std::move(node));
  return Quantity(this, nodes.size() - 1);
}

Quantity Update::addLeaf(Value value, ArrayRef<int64_t> dims) {
  auto [entry, isNew] = leafOf.try_emplace(value, nodes.size());
  if (isNew) {
    Node leaf{TermKind::Leaf};
    leaf.value = value;
    leaf.dims.assign(dims.begin(), dims.end());
    nodes.push_back(std::move(leaf));
  }
  return Quantity(this, entry->second);
}

Quantity Update::readFull(Value value) {
  SmallVector<int64_t> vector{tensorType(value).getNumElements()};
  if (isHalved && vector[0] != getNumElements())
    value = padTo(b, reshapeTo(b, value, vector), getNumElements());
  return addLeaf(reshapeTo(b, value, isPadded ? vector : shape), allDims());
}

StateCode Update::getCode(bool isSigned) const { return {isHalved ? 4u : 8u, isSigned}; }

/// The table of codes, in front of the generics that read it.
Value Update::codeTable(bool isSigned) {
  Value &table = codeTables[isSigned];
  if (!table)
    table = arith::ConstantOp::create(b, getStateCodes(b.getContext(), getCode(isSigned)));
  return table;
}

/// Which half of a byte has the element; null where it has all of it.
Value Update::getHalf(ImplicitLocOpBuilder &inner) const {
  if (!isHalved)
    return {};
  const int64_t *found = llvm::find(domainDims, 1);
  assert(found != domainDims.end() && "codes of a block are read one by one");
  return linalg::IndexOp::create(inner, found - domainDims.begin());
}

template <typename Builder> auto Update::withDims(ArrayRef<int64_t> dims, Builder build) {
  SmallVector<int64_t> outer(dims);
  std::swap(outer, domainDims);
  auto made = build();
  std::swap(outer, domainDims);
  return made;
}

Quantity Update::hyperparameter(StringRef option, unsigned place) {
  if (Value input = op.getInput(getInputName(option, place)))
    return readScalar(input);
  return settings.getNumbers(option)[place];
}

Value Update::findState(StringRef name) {
  auto found = stateNumbers.find(name);
  return found == stateNumbers.end() ? Value() : op.getOldState()[found->second];
}

Quantity Update::state(StringRef name, ArrayRef<int64_t> dims) {
  Value value = findState(name);
  assert(value && "a rule reads state that it did not declare");
  if (tensorType(value).getElementType().isInteger(8)) {
    Node node{TermKind::Decode};
    if (isHalved) {
      node.operands = {addLeaf(reshapeTo(b, value, {shape[0], shape[2]}), {0, 2})};
      node.dims = {1};
    } else {
      node.operands = {readFull(value)};
    }
    node.isSigned = !optimizer.isNonNegative(name);
    node.value = codeTable(node.isSigned);
    return addNode(std::move(node)) * addLeaf(findState((name + ".scale").str()), {0});
  }
  if (isFull(dims))
    return readFull(value);
  SmallVector<int64_t> sizes = llvm::map_to_vector(dims, [&](int64_t dim) { return shape[dim]; });
  return addLeaf(reshapeTo(b, value, sizes), dims);
}

void Update::setState(StringRef name, Quantity value) {
  Value old = findState(name);
  assert(old && "a rule writes state that it did not declare");
  if (!tensorType(old).getElementType().isInteger(8)) {
    newState.insert_or_assign(name, value);
    return;
  }
  SmallVector<int64_t> withinBlock{1};
  if (isHalved)
    withinBlock.push_back(2);
  Quantity scale = reduce(ReduceKind::Max, abs(value), withinBlock);
  // A block of zeros has scale zero; any divisor will do.
  Node node{TermKind::Encode, {value / max(scale, 1e-38)}};
  node.isSigned = !optimizer.isNonNegative(name);
  Quantity codes = addNode(std::move(node));
  newState.insert_or_assign(name, isHalved ? pack(codes) : codes);
  newState.insert_or_assign((name + ".scale").str(), scale);
}

Quantity Update::mean(Quantity x, ArrayRef<int64_t> dims) {
  double count = 1;
  for (int64_t dim : dims.empty() ? getDims(x) : dims)
    count *= static_cast<double>(shape[dim]);
  return sum(x, dims) / count;
}

Quantity Update::materialize(Quantity x) {
  return addLeaf(compute(x, computeType), SmallVector<int64_t>(getDims(x)));
}

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

/// What `x` reads; `isScalar` tells a formula of scalars from one that only uses their values.
void Update::collect(Quantity x, bool isScalar, Inputs &inputs) const {
  if (!x.owner)
    return;
  const Node &node = nodes[x.id];
  if (node.dims.empty() && !isScalar)
    inputs.scalars.insert(x.id);
  else if (node.kind == TermKind::Leaf)
    inputs.leaves.insert(x.id);
  else
    for (const Quantity &operand : node.operands)
      collect(operand, isScalar, inputs);
}

/// Where a generic over `dims` reads a leaf; `isFlat` when it runs over the vector of all elements.
Read Update::readAt(unsigned leaf, ArrayRef<int64_t> dims, bool isFlat) {
  Value value = nodes[leaf].value;
  ArrayRef<int64_t> has = nodes[leaf].dims;
  if (isFlat) {
    if (has.size() == 1)
      value = repeatRows(b, value, shape[1], tensorType(op.getParameter()).getNumElements());
    return {value, b.getMultiDimIdentityMap(1)};
  }
  if (isPadded && isFull(has))
    value = reshapeTo(b, padTo(b, value, getNumElements()), shape);
  SmallVector<int64_t> positions = llvm::map_to_vector(
      has, [&](int64_t dim) -> int64_t { return llvm::find(dims, dim) - dims.begin(); });
  return {value, selectDims(b.getContext(), dims.size(), positions)};
}

Value Update::emit(Quantity x, Type compute, llvm::DenseMap<unsigned, Value> &known,
                   ImplicitLocOpBuilder &inner) {
  Formula f{inner, compute};
  if (!x.owner)
    return f.number(x.number);
  if (Value value = known.lookup(x.id))
    return value;
  const Node &node = nodes[x.id];
  SmallVector<Value> y = llvm::map_to_vector(
      node.operands, [&](Quantity operand) { return emit(operand, compute, known, inner); });
  Value value;
  switch (node.kind) {
  case TermKind::Add:
    value = f.add(y[0], y[1]);
    break;
  case TermKind::Sub:
    value = f.sub(y[0], y[1]);
    break;
  case TermKind::Mul:
    value = f.mul(y[0], y[1]);
    break;
  case TermKind::Div:
    value = f.div(y[0], y[1]);
    break;
  case TermKind::Max:
    value = arith::MaximumFOp::create(inner, y[0], y[1]);
    break;
  case TermKind::Min:
    value = arith::MinimumFOp::create(inner, y[0], y[1]);
    break;
  case TermKind::Pow:
    value = math::PowFOp::create(inner, y[0], y[1]);
    break;
  case TermKind::Sqrt:
    value = math::SqrtOp::create(inner, y[0]);
    break;
  case TermKind::Abs:
    value = math::AbsFOp::create(inner, y[0]);
    break;
  case TermKind::Floor:
    value = math::FloorOp::create(inner, y[0]);
    break;
  case TermKind::SelectLess: {
    Value less = arith::CmpFOp::create(inner, arith::CmpFPredicate::OLT, y[0], y[1]);
    value = arith::SelectOp::create(inner, less, y[2], y[3]);
    break;
  }
  case TermKind::Decode:
    value = f.wide(emitDecode(inner, y[0], node.value, getHalf(inner)));
    break;
  case TermKind::Encode:
    value = emitEncode(inner, convertTo(inner, y[0], inner.getF32Type()), getCode(node.isSigned),
                       getHalf(inner));
    break;
  case TermKind::Leaf:
    llvm_unreachable("leaves are read before");
  }
  known[x.id] = value;
  return value;
}

SmallVector<Value> Update::compute(ArrayRef<Output> outputs, ArrayRef<int64_t> dims) {
  bool isScalar = dims.empty(), isFlat = isPadded && isFull(dims);
  Inputs inputs;
  SmallVector<Type> types;
  for (const Output &output : outputs) {
    collect(output.value, isScalar, inputs);
    types.push_back(output.type);
  }
  SmallVector<int64_t> domain = llvm::map_to_vector(dims, [&](int64_t dim) { return shape[dim]; });
  if (isFlat)
    domain = {tensorType(op.getParameter()).getNumElements()};
  Type compute = isScalar ? b.getF64Type() : computeType;
  SmallVector<Read> reads = readInputs(inputs, dims, domain.size(), isFlat);
  return withDims(dims, [&] {
    return createPointwise(b, domain, reads, types, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
      auto known = nameInputs(inputs, compute, x, inner);
      return llvm::map_to_vector(outputs, [&](const Output &output) {
        return convertTo(inner, emit(output.value, compute, known, inner), output.type);
      });
    });
  });
}

/// The leaves, then the scalars in the type of the elements.
SmallVector<Read> Update::readInputs(const Inputs &inputs, ArrayRef<int64_t> dims, unsigned rank,
                                     bool isFlat) {
  SmallVector<Read> reads;
  for (unsigned leaf : inputs.leaves)
    reads.push_back(readAt(leaf, dims, isFlat));
  for (unsigned scalar : inputs.scalars)
    reads.push_back({computeScalar(scalar), AffineMap::get(rank, 0, b.getContext())});
  return reads;
}

llvm::DenseMap<unsigned, Value> Update::nameInputs(const Inputs &inputs, Type compute, ValueRange x,
                                                   ImplicitLocOpBuilder &inner) {
  llvm::DenseMap<unsigned, Value> known;
  for (auto [value, id] : llvm::zip(x, inputs.leaves))
    known[id] = value.getType().isInteger(8) ? value : convertTo(inner, value, compute);
  for (auto [value, id] : llvm::zip(x.drop_front(inputs.leaves.size()), inputs.scalars))
    known[id] = value;
  return known;
}

Value Update::computeScalar(unsigned id) {
  const Node &node = nodes[id];
  if (node.kind == TermKind::Leaf && tensorType(node.value).getElementType() == computeType)
    return node.value;
  return compute({{Quantity(this, id), computeType}}, {}).front();
}

Value Update::toScalar(Quantity x) {
  if (x.owner)
    return compute(x, computeType);
  auto type = RankedTensorType::get({}, computeType);
  return arith::ConstantOp::create(
      b, DenseElementsAttr::get(type, Attribute(b.getFloatAttr(computeType, x.number))));
}

Value Update::compute(Quantity x, Type type) {
  if (x.owner && nodes[x.id].kind == TermKind::Leaf &&
      tensorType(nodes[x.id].value).getElementType() == type)
    return nodes[x.id].value;
  SmallVector<int64_t> dims(getDims(x));
  return compute({{x, type}}, dims).front();
}

Quantity Update::reduce(ReduceKind kind, Quantity x, ArrayRef<int64_t> reduced) {
  SmallVector<int64_t> dims(getDims(x)), kept, positions;
  for (auto [position, dim] : llvm::enumerate(dims)) {
    if (reduced.empty() || llvm::is_contained(reduced, dim))
      positions.push_back(position);
    else
      kept.push_back(dim);
  }
  SmallVector<int64_t> domain = llvm::map_to_vector(dims, [&](int64_t dim) { return shape[dim]; });
  Inputs inputs;
  collect(x, /*isScalar=*/false, inputs);
  SmallVector<Read> reads = readInputs(inputs, dims, domain.size(), /*isFlat=*/false);
  auto body = [&](ImplicitLocOpBuilder &inner, ValueRange y) {
    auto known = nameInputs(inputs, computeType, y, inner);
    return SmallVector<Value>{emit(x, computeType, known, inner)};
  };
  // Halves of bytes are told by their place in the domain, which chunks would change.
  Value value = withDims(dims, [&] {
    auto build = isHalved ? createPlainReduction : createReduction;
    return build(b, domain, positions, reads, {{kind, computeType}}, body).front();
  });
  return addLeaf(value, kept);
}

/// Bytes of two codes each, which have other bits.
Quantity Update::pack(Quantity codes) {
  SmallVector<int64_t> dims = allDims();
  Inputs inputs;
  collect(codes, /*isScalar=*/false, inputs);
  SmallVector<Read> reads = readInputs(inputs, dims, dims.size(), /*isFlat=*/false);
  Value bytes = withDims(dims, [&] {
    return createPlainReduction(b, shape, {1}, reads, {{ReduceKind::Add, b.getI8Type()}},
                                [&](ImplicitLocOpBuilder &inner, ValueRange y) {
                                  auto known = nameInputs(inputs, computeType, y, inner);
                                  return SmallVector<Value>{emit(codes, computeType, known, inner)};
                                })
        .front();
  });
  return addLeaf(bytes, {0, 2});
}

/// The first elements of a value that fills whole blocks.
Value Update::cutPadding(Value value, int64_t elements) {
  int64_t size = tensorType(value).getNumElements();
  if (!isHalved || size == elements)
    return value;
  SmallVector<OpFoldResult> offset{b.getIndexAttr(0)}, length{b.getIndexAttr(elements)},
      stride{b.getIndexAttr(1)};
  return tensor::ExtractSliceOp::create(b, reshapeTo(b, value, {size}), offset, length, stride);
}

SmallVector<Value> Update::finish() {
  SmallVector<Value> results(op->getNumResults());
  SmallVector<Output> outputs;
  SmallVector<unsigned> numbers;
  auto give = [&](unsigned number, Quantity value) {
    Type type = tensorType(op->getResult(number)).getElementType();
    if (isFull(getDims(value))) {
      outputs.push_back({value, type});
      numbers.push_back(number);
    } else {
      results[number] = compute(value, type);
    }
  };
  give(0, newParameter);
  for (auto [number, name] : llvm::enumerate(op.getState().getAsValueRange<StringAttr>()))
    if (Value tensor = newStateTensors.lookup(name))
      results[number + 1] = tensor;
    else
      give(number + 1, newState.find(name)->second);
  for (auto [number, value] : llvm::zip_equal(numbers, compute(outputs, allDims())))
    results[number] = value;
  for (auto [value, result] : llvm::zip_equal(results, op->getResults()))
    value = reshapeTo(b, cutPadding(value, tensorType(result).getNumElements()),
                      tensorType(result).getShape());
  return results;
}
