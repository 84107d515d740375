//===- Recurrent.cpp - LSTM, GRU and plain recurrent layers -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A direction of a layer is a loop over time (memopt.scan). What does not wait for the step before is
// taken out of the loop: one product gives what the input contributes to all its steps, [T, B,
// gates * H], of which a step reads its slice. Biases are added there, too, so that their gradients
// are one sum. Long sequences are several loops (memopt/Dialect/LoopCuts.h).
//
//   LSTM  Hochreiter and Schmidhuber, Long Short-Term Memory, 1997
//   GRU   Cho et al., Learning Phrase Representations using RNN Encoder-Decoder, 2014
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/LoopCuts.h"
#include "memopt/Import/Graph/OpContext.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;
namespace math = mlir::math;

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }
static Value add(Builder &b, Value x, Value y) { return arith::AddFOp::create(b, x, y); }
static Value subtract(Builder &b, Value x, Value y) { return arith::SubFOp::create(b, x, y); }
static Value sigmoid(Builder &b, Value x) { return mlir::memopt::SigmoidOp::create(b, x); }
static Value tanh(Builder &b, Value x) { return math::TanhOp::create(b, x); }

/// x w^T
static Value product(Builder &b, Value x, Value w) {
  auto type = RankedTensorType::get({typeOf(x).getDimSize(0), typeOf(w).getDimSize(0)},
                                    typeOf(x).getElementType());
  return mlir::memopt::MatmulOp::create(b, type, x, w, /*transpose_a=*/false, /*transpose_b=*/true);
}

static Value slice2d(Builder &b, Value x, int64_t row, int64_t column, int64_t rows,
                     int64_t columns) {
  if (typeOf(x).getShape() == ArrayRef<int64_t>{rows, columns})
    return x;
  auto index = [&](int64_t value) { return b.getIndexAttr(value); };
  return mlir::tensor::ExtractSliceOp::create(
      b, typeOf(x).clone(ArrayRef<int64_t>{rows, columns}), x,
      ArrayRef<mlir::OpFoldResult>{index(row), index(column)},
      ArrayRef<mlir::OpFoldResult>{index(rows), index(columns)},
      ArrayRef<mlir::OpFoldResult>{index(1), index(1)});
}

static Value join(Builder &b, ArrayRef<Value> parts, int64_t dim) {
  return parts.size() == 1 ? parts.front()
                           : mlir::tensor::ConcatOp::create(b, dim, parts).getResult();
}

//===----------------------------------------------------------------------===//
// Cells
//===----------------------------------------------------------------------===//

namespace {
enum class Kind { Lstm, Gru, Tanh, Relu };

/// The tensors of one direction of one layer.
struct CellWeights {
  Value input, hidden;         ///< [gates * H, I] and [gates * H, R]
  Value inputBias, hiddenBias; ///< [gates * H], or null
  Value projection;            ///< [R, H] of an LSTM, or null
};

struct State {
  Value hidden; ///< [B, R]
  Value cell;   ///< [B, H] of an LSTM
};

/// A cell, which computes one step of one direction of a layer.
class Cell {
public:
  Cell(Kind kind, const CellWeights &weights)
      : kind(kind), weights(weights),
        size(typeOf(weights.hidden).getDimSize(0) / getNumGates(kind)) {}

  static int64_t getNumGates(Kind kind) {
    return kind == Kind::Lstm ? 4 : kind == Kind::Gru ? 3 : 1;
  }

  /// What the inputs [rows, I] of any number of steps contribute.
  Value prepare(Builder &b, Value inputs) const;
  /// The state after a step, of which `fromInput` [B, gates * H] is prepared.
  State step(Builder &b, const State &state, Value fromInput) const;

private:
  static Value addBias(Builder &b, Value sum, Value bias) {
    return bias ? add(b, sum, broadcastAlong(b, bias, 1, typeOf(sum).getShape())) : sum;
  }
  Value gate(Builder &b, Value gates, int64_t number) const {
    return slice2d(b, gates, 0, number * size, typeOf(gates).getDimSize(0), size);
  }
  State stepLstm(Builder &b, const State &state, Value gates) const;
  Value stepGru(Builder &b, Value hidden, Value fromInput, Value fromHidden) const;

  Kind kind;
  const CellWeights &weights;
  int64_t size;
};
} // namespace

/// A GRU multiplies its third gate before the input's part is added, so its other bias is added
/// step by step.
Value Cell::prepare(Builder &b, Value inputs) const {
  Value prepared = addBias(b, product(b, inputs, weights.input), weights.inputBias);
  return kind == Kind::Gru ? prepared : addBias(b, prepared, weights.hiddenBias);
}

State Cell::stepLstm(Builder &b, const State &state, Value gates) const {
  Value input = sigmoid(b, gate(b, gates, 0)), forget = sigmoid(b, gate(b, gates, 1));
  Value candidate = tanh(b, gate(b, gates, 2)), output = sigmoid(b, gate(b, gates, 3));
  State next;
  next.cell = add(b, multiply(b, forget, state.cell), multiply(b, input, candidate));
  next.hidden = multiply(b, output, tanh(b, next.cell));
  if (weights.projection)
    next.hidden = product(b, next.hidden, weights.projection);
  return next;
}

Value Cell::stepGru(Builder &b, Value hidden, Value fromInput, Value fromHidden) const {
  auto sum = [&](int64_t number) {
    return add(b, gate(b, fromInput, number), gate(b, fromHidden, number));
  };
  Value reset = sigmoid(b, sum(0)), update = sigmoid(b, sum(1));
  Value own = multiply(b, reset, gate(b, fromHidden, 2));
  Value candidate = tanh(b, add(b, gate(b, fromInput, 2), own));
  return add(b, multiply(b, subtract(b, hidden, candidate), update), candidate);
}

State Cell::step(Builder &b, const State &state, Value fromInput) const {
  Value fromHidden = product(b, state.hidden, weights.hidden);
  if (kind == Kind::Gru)
    return {stepGru(b, state.hidden, fromInput, addBias(b, fromHidden, weights.hiddenBias)),
            Value()};
  Value sum = add(b, fromInput, fromHidden);
  if (kind == Kind::Lstm)
    return stepLstm(b, state, sum);
  return {kind == Kind::Tanh ? tanh(b, sum) : mlir::memopt::ReluOp::create(b, sum).getResult(),
          Value()};
}

//===----------------------------------------------------------------------===//
// Loops over time
//===----------------------------------------------------------------------===//

/// One loop over `inputs` [count * B, I], with the last step first where `reverse`. The state becomes
/// that behind it; the outputs are [count * B, R].
static Value runSteps(Builder &b, Kind kind, const CellWeights &weights, Value inputs, bool reverse,
                      State &state) {
  int64_t batch = typeOf(state.hidden).getDimSize(0);
  int64_t count = typeOf(inputs).getDimSize(0) / batch;
  Value prepared = Cell(kind, weights).prepare(b, inputs);
  prepared = reshapeValue(b, prepared, {count, batch, typeOf(prepared).getDimSize(1)});
  SmallVector<Value> fixed{weights.hidden}, carried{state.hidden};
  if (kind == Kind::Gru && weights.hiddenBias)
    fixed.push_back(weights.hiddenBias);
  if (weights.projection)
    fixed.push_back(weights.projection);
  if (state.cell)
    carried.push_back(state.cell);
  auto scan =
      mlir::memopt::ScanOp::create(b, fixed, prepared, /*firsts=*/{0}, carried, count, reverse);
  mlir::Block &body = scan.getBody().front();
  Builder inner(b.getLoc(), b.getContext());
  inner.setInsertionPointToEnd(&body);
  CellWeights inside{nullptr, scan.getFixedArguments().front(), nullptr, nullptr, nullptr};
  if (kind == Kind::Gru && weights.hiddenBias)
    inside.hiddenBias = scan.getFixedArguments().back();
  if (weights.projection)
    inside.projection = scan.getFixedArguments().back();
  State before{scan.getCarriedArguments().front(),
               state.cell ? Value(scan.getCarriedArguments().back()) : Value()};
  State after = Cell(kind, inside).step(inner, before, scan.getSliceArguments().front());
  SmallVector<Value> yielded{after.hidden};
  if (after.cell)
    yielded.push_back(after.cell);
  yielded.push_back(after.hidden);
  mlir::memopt::YieldOp::create(inner, yielded);
  scan = mlir::memopt::ScanOp::finish(b, scan);
  state = {scan.getLastValues().front(), state.cell ? Value(scan.getLastValues().back()) : Value()};
  Value outputs = scan.getStacked().front();
  return reshapeValue(b, outputs, {count * batch, typeOf(outputs).getDimSize(2)});
}

//===----------------------------------------------------------------------===//
// Cells as operators
//===----------------------------------------------------------------------===//

static Error checkReal(OpContext &op, ArrayRef<Value> values) {
  for (Value value : values)
    if (value && typeOf(value).getElementType() != typeOf(values.front()).getElementType())
      return op.error("expected tensors of one floating-point type");
  if (!isa<mlir::FloatType>(typeOf(values.front()).getElementType()))
    return op.error("expected tensors of one floating-point type");
  return Error::success();
}

static Error checkShape(OpContext &op, StringRef what, Value value, ArrayRef<int64_t> expected) {
  if (!value || typeOf(value).getShape() == expected)
    return Error::success();
  return op.error("expected " + what + " of shape " + toString(expected) + ", found " +
                  toString(typeOf(value).getShape()));
}

/// Shapes of one cell's tensors; `hidden` has R columns.
static Error checkCell(OpContext &op, Kind kind, const CellWeights &weights, Value input,
                       const State &state) {
  RETURN_IF_ERROR(
      checkReal(op, {input, weights.input, weights.hidden, weights.inputBias, weights.hiddenBias,
                     weights.projection, state.hidden, state.cell}));
  if (typeOf(weights.hidden).getRank() != 2 || typeOf(state.hidden).getRank() != 2)
    return op.error("expected matrices as weights and states");
  int64_t rows = typeOf(weights.hidden).getDimSize(0), gates = Cell::getNumGates(kind);
  int64_t batch = typeOf(state.hidden).getDimSize(0), size = rows / gates;
  int64_t recurrent = weights.projection ? typeOf(weights.projection).getDimSize(0) : size;
  if (rows % gates)
    return op.error("expected weights with a multiple of " + Twine(gates) + " rows, found " +
                    Twine(rows));
  RETURN_IF_ERROR(checkShape(op, "weights", weights.hidden, {rows, recurrent}));
  RETURN_IF_ERROR(
      checkShape(op, "weights", weights.input, {rows, typeOf(input).getShape().back()}));
  RETURN_IF_ERROR(checkShape(op, "a bias", weights.inputBias, rows));
  RETURN_IF_ERROR(checkShape(op, "a bias", weights.hiddenBias, rows));
  RETURN_IF_ERROR(checkShape(op, "a projection", weights.projection, {recurrent, size}));
  RETURN_IF_ERROR(checkShape(op, "a state", state.hidden, {batch, recurrent}));
  return checkShape(op, "a state", state.cell, {batch, size});
}

static Value getOptional(OpContext &op, StringRef name) {
  std::optional<Tensor> tensor = op.optionalTensor(name);
  return tensor ? op.get(*tensor) : Value();
}

template <Kind kind> static Error lowerCell(OpContext &op) {
  CellWeights weights{op.get(op.tensor("w_ih")), op.get(op.tensor("w_hh")), getOptional(op, "b_ih"),
                      getOptional(op, "b_hh"), nullptr};
  State state;
  if (kind == Kind::Lstm) {
    std::vector<std::optional<Tensor>> states = op.tensors("hx");
    if (states.size() != 2)
      return op.error("expected a hidden and a cell state");
    state = {op.get(*states[0]), op.get(*states[1])};
  } else {
    state.hidden = op.get(op.tensor("hx"));
  }
  // Without a batch there is one row.
  Value input = op.get(op.tensor("input"));
  bool isVector = typeOf(input).getRank() == 1;
  auto asRows = [&](Value value) {
    return value && isVector && typeOf(value).getRank() == 1
               ? reshapeValue(op.b, value, {1, typeOf(value).getDimSize(0)})
               : value;
  };
  input = asRows(input);
  state = {asRows(state.hidden), asRows(state.cell)};
  if (typeOf(input).getRank() != 2)
    return op.error("expected an input of rank 2");
  RETURN_IF_ERROR(checkCell(op, kind, weights, input, state));
  RETURN_IF_ERROR(checkShape(op, "a state", state.hidden,
                             {typeOf(input).getDimSize(0), typeOf(state.hidden).getDimSize(1)}));
  Cell cell(kind, weights);
  State next = cell.step(op.b, state, cell.prepare(op.b, input));
  op.setResult(0, reshapeValue(op.b, next.hidden, op.resultMeta(0).sizes));
  if (kind == Kind::Lstm)
    op.setResult(1, reshapeValue(op.b, next.cell, op.resultMeta(1).sizes));
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

namespace {
/// A stack of layers over sequences.
class Layers {
public:
  Layers(OpContext &op, Kind kind) : op(op), b(op.b), kind(kind) {}

  /// Checks the arguments and builds everything.
  Error run();

private:
  Error readArguments();
  Expected<CellWeights> takeWeights(size_t number);
  SmallVector<Value> runDirection(const CellWeights &weights, ArrayRef<Value> from, size_t number);
  Expected<SmallVector<Value>> cutInput();
  SmallVector<Value> cut(Value rows);
  Error setResults(ArrayRef<Value> outputs);
  static Value part(Builder &b, Value states, int64_t number);
  int64_t getTimeDim() const { return op.flag("batch_first") ? 1 : 0; }
  /// Steps of each loop of a layer.
  SmallVector<int64_t> getCounts() const {
    return mlir::memopt::cutLoop(steps, layers * directions);
  }

  OpContext &op;
  Builder &b;
  Kind kind;
  int64_t steps = 0, batch = 0, layers = 0, directions = 1;
  Tensor input;        ///< [T, B, I], or [B, T, I] with batch_first
  Value hidden, cells; ///< initial states of all layers and directions
  std::vector<Value> parameters;
  SmallVector<Value> lastHidden, lastCells;
};
} // namespace

Error Layers::readArguments() {
  input = op.tensor("input");
  if (input.rank() != 3 || input.getNumElements() == 0 || !isFloat(input.dtype))
    return op.error("expected a floating-point input of rank 3, found " + getName(input.dtype) +
                    toString(input.sizes));
  steps = input.sizes[getTimeDim()];
  batch = input.sizes[1 - getTimeDim()];
  layers = op.integer("num_layers");
  directions = op.flag("bidirectional") ? 2 : 1;
  if (layers < 1 || layers > 1024)
    return op.error("expected 1 to 1024 layers, found " + Twine(layers));
  std::vector<std::optional<Tensor>> states;
  if (kind == Kind::Lstm)
    states = op.tensors("hx");
  else
    states.push_back(op.tensor("hx"));
  if (states.size() != (kind == Kind::Lstm ? 2 : 1))
    return op.error("expected a hidden and a cell state");
  hidden = op.get(*states[0]);
  cells = kind == Kind::Lstm ? op.get(*states[1]) : Value();
  for (Value value : {hidden, cells})
    if (value &&
        (typeOf(value).getRank() != 3 || typeOf(value).getDimSize(0) != layers * directions ||
         typeOf(value).getDimSize(1) != batch))
      return op.error("expected states for " + Twine(layers * directions) + " layers and " +
                      Twine(batch) + " samples, found " + toString(typeOf(value).getShape()));
  for (const std::optional<Tensor> &parameter : op.tensors("params"))
    parameters.push_back(op.get(*parameter));
  return Error::success();
}

/// Weights, biases and a projection follow each other, direction by direction.
Expected<CellWeights> Layers::takeWeights(size_t number) {
  size_t biases = op.flag("has_biases") ? 2 : 0, count = parameters.size() / (layers * directions);
  bool projects = kind == Kind::Lstm && count == 3 + biases;
  if (parameters.size() % (layers * directions) || (count != 2 + biases && !projects))
    return op.error("expected weights for " + Twine(layers * directions) + " layers, found " +
                    Twine(parameters.size()) + " tensors");
  const Value *first = parameters.data() + number * count;
  CellWeights weights{first[0], first[1], nullptr, nullptr, nullptr};
  if (biases) {
    weights.inputBias = first[2];
    weights.hiddenBias = first[3];
  }
  if (projects)
    weights.projection = first[count - 1];
  return weights;
}

/// The state of one layer and direction.
Value Layers::part(Builder &b, Value states, int64_t number) {
  ArrayRef<int64_t> shape = typeOf(states).getShape();
  if (mlir::matchPattern(states, mlir::m_AnyZeroFloat()))
    return splat(b, typeOf(states).clone(shape.drop_front()), 0.0);
  Value rows = reshapeValue(b, states, {shape[0] * shape[1], shape[2]});
  return slice2d(b, rows, number * shape[1], 0, shape[1], shape[2]);
}

/// By loop, in the order of time, as `from` is.
SmallVector<Value> Layers::runDirection(const CellWeights &weights, ArrayRef<Value> from,
                                        size_t number) {
  State state{part(b, hidden, number), cells ? part(b, cells, number) : Value()};
  bool isReverse = number % directions == 1;
  SmallVector<Value> outputs(from.size());
  for (size_t turn = 0; turn < from.size(); ++turn) {
    size_t loop = isReverse ? from.size() - 1 - turn : turn;
    outputs[loop] = runSteps(b, kind, weights, from[loop], isReverse, state);
  }
  lastHidden.push_back(state.hidden);
  lastCells.push_back(state.cell);
  return outputs;
}

/// The rows of the input for each loop. A loop's own steps are transposed, not all at once.
Expected<SmallVector<Value>> Layers::cutInput() {
  SmallVector<Value> parts;
  int64_t first = 0;
  for (int64_t count : getCounts()) {
    ASSIGN_OR_RETURN(Tensor part, slice(op, input, getTimeDim(), first, 1, count));
    if (getTimeDim() == 1)
      part = permute(op, part, {1, 0, 2});
    ASSIGN_OR_RETURN(part, reshape(op, part, {count * batch, input.sizes[2]}));
    parts.push_back(op.get(part));
    first += count;
  }
  return parts;
}

/// Rows of [T * B, columns] for each loop.
SmallVector<Value> Layers::cut(Value rows) {
  SmallVector<Value> parts;
  int64_t first = 0;
  for (int64_t count : getCounts()) {
    parts.push_back(slice2d(b, rows, first * batch, 0, count * batch, typeOf(rows).getDimSize(1)));
    first += count;
  }
  return parts;
}

/// `outputs`: by loop.
Error Layers::setResults(ArrayRef<Value> outputs) {
  int64_t columns = typeOf(outputs.front()).getDimSize(1);
  SmallVector<Value> parts = map_to_vector(outputs, [&](Value part) {
    return reshapeValue(b, part, {typeOf(part).getDimSize(0) / batch, batch, columns});
  });
  Tensor result = op.wrap(op.resultMeta(0).dtype, join(b, parts, 0));
  if (op.flag("batch_first"))
    result = op.copy(permute(op, result, {1, 0, 2}));
  op.setResult(0, result);
  auto setStates = [&](size_t i, ArrayRef<Value> states) {
    if (i < op.getNumResults() && op.isUsed(i)) {
      int64_t width = typeOf(states.front()).getDimSize(1);
      op.setResult(i, reshapeValue(b, join(b, states, 0), {layers * directions, batch, width}));
    }
  };
  setStates(1, lastHidden);
  if (kind == Kind::Lstm)
    setStates(2, lastCells);
  return Error::success();
}

Error Layers::run() {
  RETURN_IF_ERROR(readArguments());
  double p = op.number("dropout");
  if (!(p >= 0 && p < 1))
    return op.error("argument 'dropout': expected a number from 0 to below 1, found " +
                    toString(p));
  bool drops = p > 0 && op.flag("train") && dropoutIsOn(op);
  ASSIGN_OR_RETURN(SmallVector<Value> outputs, cutInput());
  for (int64_t layer = 0; layer != layers; ++layer) {
    if (layer != 0 && drops)
      outputs = cut(op.get(dropout(op, op.wrap(op.resultMeta(0).dtype, join(b, outputs, 0)), p)));
    SmallVector<SmallVector<Value>> both;
    for (int64_t direction = 0; direction != directions; ++direction) {
      size_t number = layer * directions + direction;
      ASSIGN_OR_RETURN(CellWeights weights, takeWeights(number));
      State initial{part(b, hidden, number), cells ? part(b, cells, number) : Value()};
      RETURN_IF_ERROR(checkCell(op, kind, weights, outputs.front(), initial));
      both.push_back(runDirection(weights, outputs, number));
    }
    for (size_t loop = 0; loop < outputs.size(); ++loop)
      outputs[loop] = directions == 1 ? both[0][loop] : join(b, {both[0][loop], both[1][loop]}, 1);
  }
  return setResults(outputs);
}

template <Kind kind> static Error lowerLayers(OpContext &op) { return Layers(op, kind).run(); }

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerRecurrent(OpTable &table) {
  table.add("aten.lstm.input",
            "Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float "
            "dropout, bool train, bool bidirectional, bool batch_first",
            lowerLayers<Kind::Lstm>);
  constexpr StringLiteral layers =
      "Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, "
      "bool train, bool bidirectional, bool batch_first";
  table.add("aten.gru.input", layers, lowerLayers<Kind::Gru>);
  table.add("aten.rnn_tanh.input", layers, lowerLayers<Kind::Tanh>);
  table.add("aten.rnn_relu.input", layers, lowerLayers<Kind::Relu>);
  table.add("aten.lstm_cell.default",
            "Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? "
            "b_hh=None",
            lowerCell<Kind::Lstm>);
  constexpr StringLiteral cell = "Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? "
                                 "b_ih=None, Tensor? b_hh=None";
  table.add("aten.gru_cell.default", cell, lowerCell<Kind::Gru>);
  table.add("aten.rnn_tanh_cell.default", cell, lowerCell<Kind::Tanh>);
  table.add("aten.rnn_relu_cell.default", cell, lowerCell<Kind::Relu>);
}
