//===- FormLibraryCalls.cpp - named ops to library calls --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For each op in turn: views of operands become element strides and an offset of the underlying
// buffer, where the library reads such strides well; a transposition that every user of the result
// applies becomes strides of the result; a bias added to the result right away becomes an operand.
// The descriptor then says everything, and the runtime is asked what scratch it costs.
//
//===----------------------------------------------------------------------===//

#include "FormLibraryCalls.h"
#include "LibraryWorkspace.h"
#include "StridedView.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::memopt;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

//===----------------------------------------------------------------------===//
// Descriptors
//===----------------------------------------------------------------------===//

static llvm::json::Value toJson(Attribute attribute) {
  if (auto text = dyn_cast<StringAttr>(attribute))
    return text.getValue().str();
  if (auto flag = dyn_cast<BoolAttr>(attribute))
    return flag.getValue();
  if (auto integer = dyn_cast<IntegerAttr>(attribute))
    return integer.getInt();
  if (auto number = dyn_cast<FloatAttr>(attribute))
    return number.getValueAsDouble();
  if (auto numbers = dyn_cast<DenseI64ArrayAttr>(attribute)) {
    llvm::json::Array array;
    for (int64_t number : numbers.asArrayRef())
      array.push_back(number);
    return array;
  }
  llvm::json::Object object;
  for (NamedAttribute named : cast<DictionaryAttr>(attribute))
    object[named.getName().strref().str()] = toJson(named.getValue());
  return object;
}

namespace {
/// One call under construction.
struct Call {
  OpBuilder b;
  Operation *op;
  const LibraryCallOptions &options;
  SmallVector<NamedAttribute> descriptor;
  SmallVector<Value> operands;
  SmallVector<int64_t> offsets;
  SmallVector<Type> resultTypes;
  /// For each result the order in which it is stored; empty for its own.
  SmallVector<SmallVector<int64_t>> orders;

  Call(Operation *op, StringRef kind, const LibraryCallOptions &options)
      : b(op), op(op), options(options) {
    set("kind", b.getStringAttr(kind));
    Type element = typeOf(op->getOperand(0)).getElementType();
    set("dtype", b.getStringAttr(element.isF64() ? "f64" : "f32"));
    if (options.reference)
      set("reference", b.getBoolAttr(true));
  }
  void set(StringRef key, Attribute value) { descriptor.push_back(b.getNamedAttr(key, value)); }
  void set(StringRef key, ArrayRef<int64_t> values) { set(key, b.getDenseI64ArrayAttr(values)); }
  void set(StringRef key, int64_t value) { set(key, b.getI64IntegerAttr(value)); }

  void addOperand(const StridedView &view) {
    operands.push_back(view.buffer);
    offsets.push_back(view.offset);
  }
  void addPacked(Value value) {
    StridedView view = getStridedView(value);
    addOperand(view.isPacked() ? view : getPackedView(value));
  }
  FailureOr<LibraryCallOp> finish();
};
} // namespace

FailureOr<LibraryCallOp> Call::finish() {
  Type element = typeOf(op->getOperand(0)).getElementType();
  if (!element.isF32() && !element.isF64())
    return op->emitOpError() << "has element type " << element << "; libraries compute f32 and f64";
  DictionaryAttr dictionary = b.getDictionaryAttr(descriptor);
  std::string json, error;
  llvm::raw_string_ostream(json) << toJson(dictionary);
  int64_t workspace = queryLibraryWorkspace(json, options.threads, error);
  if (workspace < 0)
    return op->emitOpError() << "no library call can compute this: " << error;
  auto cost = dyn_cast<CostOpInterface>(op);
  auto call = LibraryCallOp::create(b, op->getLoc(), resultTypes, operands, dictionary,
                                    b.getDenseI64ArrayAttr(offsets), b.getI64IntegerAttr(workspace),
                                    b.getI64IntegerAttr(cost ? cost.getFlops() : 0));
  for (NamedAttribute attribute : op->getDiscardableAttrs())
    call->setDiscardableAttr(attribute.getName(), attribute.getValue());
  return call;
}

//===----------------------------------------------------------------------===//
// Results in another order
//===----------------------------------------------------------------------===//

/// The permutation by which `use` reads its operand, or nothing when it reads otherwise: result
/// dimension i of what it wants is dimension permutation[i] of the operand.
static std::optional<SmallVector<int64_t>> getWantedOrder(OpOperand &use) {
  if (auto transpose = dyn_cast<TransposeOp>(use.getOwner()))
    return SmallVector<int64_t>(transpose.getPermutation());
  auto generic = dyn_cast<linalg::GenericOp>(use.getOwner());
  if (!generic)
    return std::nullopt;
  AffineMap map = generic.getMatchingIndexingMap(&use);
  if (!map.isPermutation())
    return std::nullopt;
  SmallVector<int64_t> order(map.getNumResults());
  for (auto [dim, expr] : llvm::enumerate(map.getResults()))
    order[cast<AffineDimExpr>(expr).getPosition()] = dim;
  return order;
}

/// Whether the user reads its operand through strides, in whatever order it lies.
static bool isStrided(Operation *user) {
  return isa<MatmulOp, AttentionOp, AttentionBackwardOp>(user);
}

/// The one order other than the identity that all uses want.
static std::optional<SmallVector<int64_t>> getCommonOrder(Value result) {
  std::optional<SmallVector<int64_t>> common;
  for (OpOperand &use : result.getUses()) {
    if (isStrided(use.getOwner()))
      continue;
    std::optional<SmallVector<int64_t>> order = getWantedOrder(use);
    if (!order || (common && *common != *order))
      return std::nullopt;
    common = order;
  }
  if (!common || llvm::is_sorted(*common))
    return std::nullopt;
  return common;
}

/// Replaces `old` by `permuted`, which has old's dimensions in `order`; uses want that order or
/// none.
static void replacePermuted(Value old, Value permuted, ArrayRef<int64_t> order) {
  for (OpOperand &use : llvm::make_early_inc_range(old.getUses())) {
    if (isStrided(use.getOwner())) {
      SmallVector<int64_t> inverse(order.size());
      for (auto [to, from] : llvm::enumerate(order))
        inverse[from] = to;
      OpBuilder b(use.getOwner());
      use.set(TransposeOp::create(b, old.getLoc(), old.getType(), permuted,
                                  b.getDenseI64ArrayAttr(inverse)));
      continue;
    }
    if (auto transpose = dyn_cast<TransposeOp>(use.getOwner())) {
      transpose.getResult().replaceAllUsesWith(permuted);
      transpose.erase();
      continue;
    }
    auto generic = cast<linalg::GenericOp>(use.getOwner());
    SmallVector<AffineMap> maps = generic.getIndexingMapsArray();
    unsigned rank = maps[use.getOperandNumber()].getNumDims();
    maps[use.getOperandNumber()] = AffineMap::getMultiDimIdentityMap(rank, old.getContext());
    generic.setIndexingMapsAttr(Builder(old.getContext()).getAffineMapArrayAttr(maps));
    use.set(permuted);
  }
}

/// Chooses the type in which `result` is stored and gives its strides in the op's own order.
static SmallVector<int64_t> addResult(Call &call, Value result, bool mayPermute) {
  RankedTensorType type = typeOf(result);
  std::optional<SmallVector<int64_t>> order;
  if (mayPermute)
    order = getCommonOrder(result);
  call.orders.push_back(order.value_or(SmallVector<int64_t>()));
  if (!order) {
    call.resultTypes.push_back(type);
    return getPackedStrides(type.getShape());
  }
  SmallVector<int64_t> shape, strides(order->size());
  for (int64_t dim : *order)
    shape.push_back(type.getDimSize(dim));
  for (auto [dim, stride] : llvm::zip_equal(*order, getPackedStrides(shape)))
    strides[dim] = stride;
  call.resultTypes.push_back(RankedTensorType::get(shape, type.getElementType()));
  return strides;
}

static void replaceResult(const Call &call, OpResult old, Value made) {
  ArrayRef<int64_t> order = call.orders[old.getResultNumber()];
  if (order.empty())
    old.replaceAllUsesWith(made);
  else
    replacePermuted(old, made, order);
}

//===----------------------------------------------------------------------===//
// Bias
//===----------------------------------------------------------------------===//

namespace {
/// result + bias, with the bias repeated along all dimensions but one.
struct BiasAdd {
  linalg::GenericOp add;
  /// A reshape between the op and the addition, or null.
  Operation *reshape;
  Value bias;
};
} // namespace

static bool isPlainAddition(linalg::GenericOp generic) {
  if (generic.getNumDpsInputs() != 2 || generic.getNumResults() != 1 ||
      generic.getNumReductionLoops() != 0)
    return false;
  Block &body = *generic.getBody();
  auto yield = cast<linalg::YieldOp>(body.getTerminator());
  auto add = yield.getValues()[0].getDefiningOp<arith::AddFOp>();
  return add && body.getOperations().size() == 2 && add.getLhs() != add.getRhs() &&
         isa<BlockArgument>(add.getLhs()) && isa<BlockArgument>(add.getRhs());
}

/// Finds the addition of a bias along dimension `axis` as the only use of `result`.
static std::optional<BiasAdd> matchBias(Value result, int64_t axis, bool mayReshape) {
  if (!result.hasOneUse())
    return std::nullopt;
  BiasAdd match{nullptr, nullptr, Value()};
  OpOperand *use = &*result.use_begin();
  if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(use->getOwner())) {
    // Fine when the last dimension, along which the bias runs, stays itself.
    match.reshape = use->getOwner();
    Value reshaped = match.reshape->getResult(0);
    if (!mayReshape || !reshaped.hasOneUse() || typeOf(reshaped).getRank() == 0 ||
        typeOf(reshaped).getShape().back() != typeOf(result).getShape().back())
      return std::nullopt;
    axis = typeOf(reshaped).getRank() - 1;
    use = &*reshaped.use_begin();
  }
  match.add = dyn_cast<linalg::GenericOp>(use->getOwner());
  if (!match.add || !isPlainAddition(match.add) ||
      match.add->getResult(0).getType() != use->get().getType() ||
      !match.add.getMatchingIndexingMap(use).isIdentity() ||
      !match.add.getMatchingIndexingMap(match.add.getDpsInitOperand(0)).isIdentity())
    return std::nullopt;
  OpOperand *other = match.add.getDpsInputOperand(1 - use->getOperandNumber());
  AffineMap map = match.add.getMatchingIndexingMap(other);
  if (map.getNumResults() != 1 || map.getResult(0) != getAffineDimExpr(axis, map.getContext()) ||
      other->get().getType() == use->get().getType())
    return std::nullopt;
  match.bias = other->get();
  return match;
}

/// The bias must be known where the call stands.
static bool isAvailableBefore(Value value, Operation *op) {
  Operation *producer = value.getDefiningOp();
  return !producer || (producer->getBlock() == op->getBlock() && producer->isBeforeInBlock(op));
}

static void replaceWithBias(const BiasAdd &match, Value made) {
  linalg::GenericOp add = match.add;
  OpBuilder b(add);
  Value sum = made;
  if (match.reshape) {
    IRMapping mapping;
    mapping.map(match.reshape->getOperand(0), made);
    sum = b.clone(*match.reshape, mapping)->getResult(0);
  }
  add->getResult(0).replaceAllUsesWith(sum);
  add->erase();
  if (match.reshape)
    match.reshape->erase();
}

//===----------------------------------------------------------------------===//
// Matmul
//===----------------------------------------------------------------------===//

/// A matrix that has neither rows nor columns contiguous is gathered first: libraries would be
/// slow.
static StridedView getMatrixView(Value value) {
  StridedView view = getStridedView(value);
  ArrayRef<int64_t> strides = view.strides, shape = view.shape;
  size_t row = shape.size() - 2, column = shape.size() - 1;
  bool isReadable =
      strides[column] == 1 || strides[row] == 1 || shape[column] == 1 || shape[row] == 1;
  return isReadable ? view : getPackedView(value);
}

static void addMatrix(Call &call, StringRef key, Value value, bool transposed) {
  StridedView view = getMatrixView(value);
  call.addOperand(view);
  if (transposed)
    std::swap(view.strides[view.strides.size() - 1], view.strides[view.strides.size() - 2]);
  call.set(key, view.strides);
}

static LogicalResult formMatmul(MatmulOp op, const LibraryCallOptions &options) {
  Call call(op, "matmul", options);
  ArrayRef<int64_t> shape = typeOf(op.getResult()).getShape();
  ArrayRef<int64_t> a = typeOf(op.getA()).getShape();
  call.set("batch", shape.drop_back(2));
  call.set("m", shape[shape.size() - 2]);
  call.set("n", shape.back());
  call.set("k", op.getTransposeA() ? a[a.size() - 2] : a.back());
  addMatrix(call, "a_strides", op.getA(), op.getTransposeA());
  addMatrix(call, "b_strides", op.getB(), op.getTransposeB());
  std::optional<BiasAdd> bias = matchBias(op.getResult(), shape.size() - 1, /*mayReshape=*/true);
  if (bias && isAvailableBefore(bias->bias, op)) {
    call.addPacked(bias->bias);
    call.set("bias", call.b.getStringAttr("n"));
  } else {
    bias.reset();
  }
  call.set("c_strides", addResult(call, op.getResult(), /*mayPermute=*/!bias));
  FailureOr<LibraryCallOp> made = call.finish();
  if (failed(made))
    return failure();
  if (bias)
    replaceWithBias(*bias, made->getResult(0));
  else
    replaceResult(call, op->getResult(0), made->getResult(0));
  op->erase();
  return success();
}

//===----------------------------------------------------------------------===//
// Convolution
//===----------------------------------------------------------------------===//

/// Sizes in the order [N, C, spatial...] whatever the layout.
static SmallVector<int64_t> getChannelsFirst(Value value, Layout layout) {
  SmallVector<int64_t> shape(typeOf(value).getShape());
  if (layout == Layout::ChannelsLast)
    std::rotate(shape.begin() + 1, shape.end() - 1, shape.end());
  return shape;
}

template <typename OpType>
static LogicalResult formConvolution(OpType op, StringRef kind, Value input, Value output,
                                     Value weight, const LibraryCallOptions &options) {
  Call call(op, kind, options);
  Layout layout = op.getLayout();
  call.set("layout", call.b.getStringAttr(layout == Layout::ChannelsLast ? "nhwc" : "nchw"));
  call.set("input", getChannelsFirst(input, layout));
  call.set("output", getChannelsFirst(output, layout));
  call.set("weight", typeOf(weight).getShape());
  call.set("strides", op.getStrides());
  call.set("padding_lower", op.getPaddingLow());
  call.set("padding_upper", op.getPaddingHigh());
  call.set("dilations", op.getDilations());
  call.set("groups", op.getGroupsAttr().getInt());
  for (Value operand : op->getOperands())
    call.addPacked(operand);
  std::optional<BiasAdd> bias;
  if (kind == "convolution_forward") {
    int64_t rank = typeOf(output).getRank();
    bias = matchBias(output, layout == Layout::ChannelsLast ? rank - 1 : 1, /*mayReshape=*/false);
    if (bias && !isAvailableBefore(bias->bias, op))
      bias.reset();
    if (bias)
      call.addPacked(bias->bias);
    call.set("bias", call.b.getBoolAttr(bias.has_value()));
  }
  call.resultTypes.push_back(op.getResult().getType());
  FailureOr<LibraryCallOp> made = call.finish();
  if (failed(made))
    return failure();
  if (bias)
    replaceWithBias(*bias, made->getResult(0));
  else
    op.getResult().replaceAllUsesWith(made->getResult(0));
  op->erase();
  return success();
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// Vectors of features must be contiguous; all other strides are free.
static void addHeads(Call &call, StringRef key, Value value) {
  StridedView view = getStridedView(value);
  if (view.strides.back() != 1 && view.shape.back() != 1)
    view = getPackedView(value);
  call.addOperand(view);
  call.set(key, view.strides);
}

template <typename OpType> static void setAttention(Call &call, OpType op) {
  ArrayRef<int64_t> query = typeOf(op.getQuery()).getShape(), key = typeOf(op.getKey()).getShape();
  call.set("batch", query[0]);
  call.set("heads", query[1]);
  call.set("kv_heads", key[1]);
  call.set("query_length", query[2]);
  call.set("key_length", key[2]);
  call.set("head_dim", query[3]);
  call.set("value_dim", typeOf(op.getValue()).getShape()[3]);
  call.set("scale", op.getScaleAttr());
  call.set("causal", call.b.getBoolAttr(op.getCausal()));
  addHeads(call, "q_strides", op.getQuery());
  addHeads(call, "k_strides", op.getKey());
  addHeads(call, "v_strides", op.getValue());
  if (Value mask = op.getMask()) {
    StridedView view = getStridedView(mask);
    call.addOperand(view);
    // A size of 1 is repeated over the scores.
    SmallVector<int64_t> scores{query[0], query[1], query[2], key[2]};
    SmallVector<int64_t> strides(4, 0);
    size_t missing = 4 - view.shape.size();
    for (auto [dim, size] : llvm::enumerate(view.shape))
      strides[dim + missing] = size == 1 ? 0 : view.strides[dim];
    Type element = typeOf(mask).getElementType();
    call.set("mask",
             call.b.getDictionaryAttr(
                 {call.b.getNamedAttr("dtype", call.b.getStringAttr(element.isInteger(1) ? "i1"
                                                                    : element.isF64()    ? "f64"
                                                                                         : "f32")),
                  call.b.getNamedAttr("strides", call.b.getDenseI64ArrayAttr(strides))}));
  }
  double dropout = op.getDropoutAttr().getValueAsDouble();
  if (dropout > 0) {
    call.addPacked(op.getSeed());
    call.addPacked(op.getStep());
    call.set("dropout",
             call.b.getDictionaryAttr(
                 {call.b.getNamedAttr("probability", call.b.getF64FloatAttr(dropout)),
                  call.b.getNamedAttr("id", call.b.getI64IntegerAttr(op.getIdAttr().getInt()))}));
  }
}

static LogicalResult finishAttention(Call &call) {
  FailureOr<LibraryCallOp> made = call.finish();
  if (failed(made))
    return failure();
  for (auto [old, result] : llvm::zip_equal(call.op->getResults(), made->getResults()))
    replaceResult(call, old, result);
  call.op->erase();
  return success();
}

/// A transposition of heads and tokens may be folded; one that takes features apart may not.
static void addHeadsResult(Call &call, StringRef key, Value result) {
  std::optional<SmallVector<int64_t>> order = getCommonOrder(result);
  call.set(key, addResult(call, result, order && order->back() == 3));
}

static LogicalResult formAttention(AttentionOp op, const LibraryCallOptions &options) {
  Call call(op, "attention_forward", options);
  setAttention(call, op);
  addHeadsResult(call, "o_strides", op.getResult());
  addResult(call, op.getLogsumexp(), /*mayPermute=*/false);
  return finishAttention(call);
}

static LogicalResult formAttentionBackward(AttentionBackwardOp op,
                                           const LibraryCallOptions &options) {
  Call call(op, "attention_backward", options);
  setAttention(call, op);
  addHeads(call, "o_strides", op.getOutput());
  call.addPacked(op.getLogsumexp());
  addHeads(call, "do_strides", op.getGradient());
  addHeadsResult(call, "dq_strides", op.getQueryGradient());
  addHeadsResult(call, "dk_strides", op.getKeyGradient());
  addHeadsResult(call, "dv_strides", op.getValueGradient());
  return finishAttention(call);
}

//===----------------------------------------------------------------------===//
// All of a block
//===----------------------------------------------------------------------===//

static LogicalResult form(Operation *op, const LibraryCallOptions &options) {
  if (auto matmul = dyn_cast<MatmulOp>(op))
    return formMatmul(matmul, options);
  if (auto forward = dyn_cast<ConvolutionOp>(op))
    return formConvolution(forward, "convolution_forward", forward.getInput(), forward.getResult(),
                           forward.getFilter(), options);
  if (auto data = dyn_cast<ConvolutionBackwardDataOp>(op))
    return formConvolution(data, "convolution_backward_data", data.getResult(), data.getGradient(),
                           data.getFilter(), options);
  if (auto weights = dyn_cast<ConvolutionBackwardWeightsOp>(op))
    return formConvolution(weights, "convolution_backward_weights", weights.getInput(),
                           weights.getGradient(), weights.getResult(), options);
  if (auto attention = dyn_cast<AttentionOp>(op))
    return formAttention(attention, options);
  if (auto backward = dyn_cast<AttentionBackwardOp>(op))
    return formAttentionBackward(backward, options);
  return success();
}

LogicalResult memopt::formLibraryCalls(Block &block, const LibraryCallOptions &options) {
  // Collected first: folding erases users that stand further down.
  SmallVector<Operation *> ops;
  for (Operation &op : block)
    if (isa<MatmulOp, ConvolutionOp, ConvolutionBackwardDataOp, ConvolutionBackwardWeightsOp,
            AttentionOp, AttentionBackwardOp>(op))
      ops.push_back(&op);
  for (Operation *op : ops)
    if (failed(form(op, options)))
      return failure();
  return success();
}
