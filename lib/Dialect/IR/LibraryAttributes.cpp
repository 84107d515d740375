//===- LibraryAttributes.cpp - what libraries are asked to compute -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sizes, costs and descriptions of library calls. All of it follows from the attribute: verifiers
// here make sure that sums and products of its numbers fit 64 bits.
//
//===----------------------------------------------------------------------===//

#include "../Kernels/LibraryChecks.h"

#include <cmath>

using namespace mlir;
using namespace mlir::memopt;
namespace json = llvm::json;

/// How much of a vector register stays empty: work on `count` elements by work on whole registers.
static double getPadding(int64_t count) {
  auto elements = static_cast<double>(count);
  return std::ceil(elements / kWorkVector) * kWorkVector / elements;
}

/// Of weights in so many bytes, as one dimension.
static BufferView getPackedView(int64_t bytes, Type type) {
  return getContiguous({8 * bytes / type.getIntOrFloatBitWidth()}, type);
}

//===----------------------------------------------------------------------===//
// Matmul
//===----------------------------------------------------------------------===//

LogicalResult MatmulAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 ArrayRef<int64_t> batch, int64_t m, int64_t n, int64_t k,
                                 ArrayRef<int64_t> aStrides, ArrayRef<int64_t> bStrides,
                                 ArrayRef<int64_t> cStrides, bool bias, bool, Type type,
                                 Type accumulator, Type resultType, bool narrowBias,
                                 bool countsRows, bool countsTerms, int64_t packed) {
  Checks checks(emitError);
  checks.extents("batch", batch);
  checks.extents("m, n and k", {m, n, k});
  size_t rank = batch.size() + 2;
  checks.strides("a_strides", aStrides, rank);
  checks.strides("b_strides", bStrides, rank);
  checks.strides("c_strides", cStrides, rank);
  checks.types(type, accumulator);
  checks.resultType(resultType, type, accumulator);
  checks.require(!narrowBias || (bias && !resultType),
                 "narrow_bias takes a bias, and a result of the operands' type");
  checks.require(!(countsRows && countsTerms), "one mask counts rows or terms, not both");
  checks.require(!(countsRows || countsTerms) || batch.empty(), "a mask takes no batch");
  checks.require(!packed || batch.empty(), "packed weights take no batch");
  checks.elements("packed", packed, type);
  return checks.get();
}

/// Whether one more operand says which rows or terms count.
static bool hasMask(MatmulAttr matmul) { return matmul.getCountsRows() || matmul.getCountsTerms(); }

StringRef MatmulAttr::getKindName() const { return "matmul"; }
unsigned MatmulAttr::getNumOperands() const {
  return 2 + getBias() + hasMask(*this) + getAccumulate();
}
std::optional<unsigned> MatmulAttr::getAddend() const {
  return getAccumulate() ? std::optional(getNumOperands() - 1) : std::nullopt;
}
int64_t MatmulAttr::getPackedWeightBytes() const { return getPacked(); }

LibraryCallAttrInterface MatmulAttr::withPackedWeights(int64_t bytes) const {
  if (!getBatch().empty())
    return nullptr;
  return get(getContext(), getBatch(), getM(), getN(), getK(), getAStrides(), getBStrides(),
             getCStrides(), getBias(), getAccumulate(), getType(), getAccumulator(),
             getResultType(), getNarrowBias(), getCountsRows(), getCountsTerms(), bytes);
}

int64_t MatmulAttr::getFlops() const {
  return multiplyCounts({2, multiplyCounts(getBatch()), getM(), getN(), getK()});
}

Work MatmulAttr::getWork() const {
  Work work;
  work.workClass = WorkClass::Matmul;
  work.operations = static_cast<double>(getFlops()) * getPadding(getN());
  // How many rows will count is known to nobody here. Half is nearer than all: else what is cheap,
  // as each of many experts' products is, would be the last to run again.
  if (hasMask(*this))
    work.operations /= 2;
  return work;
}

SmallVector<BufferView> MatmulAttr::getViews() const {
  auto matrix = [&](int64_t rows, int64_t columns, ArrayRef<int64_t> strides, Type type) {
    SmallVector<int64_t> extents(getBatch());
    extents.append({rows, columns});
    return getStrided(extents, strides, type);
  };
  SmallVector<BufferView> views{matrix(getM(), getK(), getAStrides(), getType()),
                                matrix(getK(), getN(), getBStrides(), getType())};
  if (getPacked())
    views[1] = getPackedView(getPacked(), getType());
  if (getBias())
    views.push_back(getContiguous({getN()}, getNarrowBias() ? getType() : getAccumulator()));
  if (hasMask(*this))
    views.push_back(
        getContiguous({getCountsRows() ? getM() : getK()}, IntegerType::get(getContext(), 1)));
  BufferView result =
      matrix(getM(), getN(), getCStrides(), getResultType() ? getResultType() : getType());
  views.append(getAccumulate() ? 2 : 1, result);
  return views;
}

json::Object MatmulAttr::toJson() const {
  json::Object object = describe(getKindName(), getType(), getAccumulator(), getResultType());
  object["batch"] = toArray(getBatch());
  object["m"] = getM();
  object["n"] = getN();
  object["k"] = getK();
  object["a_strides"] = toArray(getAStrides());
  object["b_strides"] = toArray(getBStrides());
  object["c_strides"] = toArray(getCStrides());
  if (getBias())
    object["bias"] = "n";
  if (getNarrowBias())
    object["narrow_bias"] = true;
  if (hasMask(*this))
    object["counted"] = getCountsRows() ? "m" : "k";
  if (getAccumulate())
    object["accumulate"] = true;
  if (getPacked())
    object["packed"] = getPacked();
  return object;
}

//===----------------------------------------------------------------------===//
// Convolution
//===----------------------------------------------------------------------===//

LogicalResult ConvolutionAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                      ConvolutionKind kind, Layout, ArrayRef<int64_t> input,
                                      ArrayRef<int64_t> weight, ArrayRef<int64_t> output,
                                      ArrayRef<int64_t> strides, ArrayRef<int64_t> paddingLower,
                                      ArrayRef<int64_t> paddingUpper, ArrayRef<int64_t> dilations,
                                      int64_t groups, bool bias, bool relu, bool accumulate,
                                      int64_t packed, Type type, Type accumulator,
                                      Type resultType) {
  Checks checks(emitError);
  checks.require(input.size() >= 3 && input.size() <= 5,
                 "input needs a batch, channels and one to three spatial dimensions");
  checks.extents("input", input);
  checks.extents("weight", weight);
  checks.extents("output", output);
  checks.count("weight", weight, input.size());
  checks.count("output", output, input.size());
  size_t spatial = input.size() < 2 ? 0 : input.size() - 2;
  checks.count("strides", strides, spatial);
  checks.count("padding_lower", paddingLower, spatial);
  checks.count("padding_upper", paddingUpper, spatial);
  checks.count("dilations", dilations, spatial);
  checks.atLeast("strides", strides, 1);
  checks.atLeast("padding_lower", paddingLower, 0);
  checks.atLeast("padding_upper", paddingUpper, 0);
  checks.atLeast("dilations", dilations, 1);
  checks.extent("groups", groups);
  checks.require(!bias || kind == ConvolutionKind::Forward, "only a forward call has a bias");
  checks.require(!relu || kind == ConvolutionKind::Forward, "only a forward call has a relu");
  checks.require(!accumulate || kind == ConvolutionKind::BackwardWeights,
                 "only a gradient of weights is accumulated");
  checks.require(!packed || kind != ConvolutionKind::BackwardWeights,
                 "a gradient of weights reads no packed ones");
  checks.types(type, accumulator);
  checks.elements("packed", packed, type);
  checks.resultType(resultType, type, accumulator);
  return checks.get();
}

StringRef ConvolutionAttr::getKindName() const {
  switch (getKind()) {
  case ConvolutionKind::Forward:
    return "convolution_forward";
  case ConvolutionKind::BackwardData:
    return "convolution_backward_data";
  case ConvolutionKind::BackwardWeights:
    return "convolution_backward_weights";
  }
  llvm_unreachable("a kind of its own");
}

unsigned ConvolutionAttr::getNumOperands() const { return 2 + getBias() + getAccumulate(); }
std::optional<unsigned> ConvolutionAttr::getAddend() const {
  return getAccumulate() ? std::optional(getNumOperands() - 1) : std::nullopt;
}

int64_t ConvolutionAttr::getPackedWeightBytes() const { return getPacked(); }

LibraryCallAttrInterface ConvolutionAttr::withPackedWeights(int64_t bytes) const {
  if (getKind() == ConvolutionKind::BackwardWeights)
    return nullptr;
  return get(getContext(), getKind(), getLayout(), getInput(), getWeight(), getOutput(),
             getStrides(), getPaddingLower(), getPaddingUpper(), getDilations(), getGroups(),
             getBias(), getRelu(), getAccumulate(), bytes, getType(), getAccumulator(),
             getResultType());
}

/// Each element of the output is a sum over the channels and the window of one filter.
int64_t ConvolutionAttr::getFlops() const {
  return multiplyCounts({2, multiplyCounts(getOutput()), multiplyCounts(getWeight().drop_front())});
}

Work ConvolutionAttr::getWork() const {
  Work work;
  bool isData = getKind() == ConvolutionKind::BackwardData;
  bool isWeight = getKind() == ConvolutionKind::BackwardWeights;
  if (multiplyCounts(getWeight().drop_front(2)) == 1)
    work.workClass =
        isWeight ? WorkClass::PointwiseConvolutionWeight : WorkClass::PointwiseConvolution;
  else
    work.workClass = isWeight ? WorkClass::ConvolutionWeight : WorkClass::Convolution;
  work.operations = static_cast<double>(getFlops()) * getPadding(getWeight()[isData ? 1 : 0]);
  // Vectors hold channels of neighbouring groups.
  if (getGroups() > 1) {
    work.workClass = WorkClass::GroupConvolution;
    work.operations =
        static_cast<double>(getFlops()) * getPadding(isData ? getInput()[1] : getOutput()[1]);
  }
  if (!getPacked())
    work.weights = static_cast<double>(multiplyCounts(getWeight()));
  return work;
}

SmallVector<BufferView> ConvolutionAttr::getViews() const {
  ConvolutionKind kind = getKind();
  auto view = [&](ArrayRef<int64_t> extents, ConvolutionKind resultOf) {
    bool isResult = kind == resultOf && getResultType();
    return getContiguous(extents, isResult ? getResultType() : getType());
  };
  BufferView input = view(getInput(), ConvolutionKind::BackwardData);
  BufferView output = view(getOutput(), ConvolutionKind::Forward);
  BufferView weight = view(getWeight(), ConvolutionKind::BackwardWeights);
  if (getPacked())
    weight = getPackedView(getPacked(), getType());
  switch (kind) {
  case ConvolutionKind::Forward:
    if (getBias())
      return {input, weight, getContiguous({getWeight().front()}, getAccumulator()), output};
    return {input, weight, output};
  case ConvolutionKind::BackwardData:
    return {output, weight, input};
  case ConvolutionKind::BackwardWeights:
    if (getAccumulate())
      return {input, output, weight, weight};
    return {input, output, weight};
  }
  llvm_unreachable("a kind of its own");
}

json::Object ConvolutionAttr::toJson() const {
  json::Object object = describe(getKindName(), getType(), getAccumulator(), getResultType());
  object["layout"] = getLayout() == Layout::ChannelsLast ? "nhwc" : "nchw";
  object["input"] = toArray(getInput());
  object["output"] = toArray(getOutput());
  object["weight"] = toArray(getWeight());
  object["strides"] = toArray(getStrides());
  object["padding_lower"] = toArray(getPaddingLower());
  object["padding_upper"] = toArray(getPaddingUpper());
  object["dilations"] = toArray(getDilations());
  object["groups"] = getGroups();
  if (getKind() == ConvolutionKind::Forward)
    object["bias"] = getBias();
  if (getRelu())
    object["post"] = "relu";
  if (getAccumulate())
    object["accumulate"] = true;
  if (getPacked())
    object["packed"] = getPacked();
  return object;
}

LogicalResult PackWeightsAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                      LibraryCallAttrInterface call) {
  Checks checks(emitError);
  checks.require(call && call.getPackedWeightBytes() > 0,
                 "expects a call that reads packed weights");
  return checks.get();
}

StringRef PackWeightsAttr::getKindName() const { return "pack_weights"; }
unsigned PackWeightsAttr::getNumOperands() const { return 1; }
int64_t PackWeightsAttr::getFlops() const { return 0; }

Work PackWeightsAttr::getWork() const {
  Work work;
  work.workClass = WorkClass::Copy;
  return work;
}

SmallVector<BufferView> PackWeightsAttr::getViews() const {
  LibraryCallAttrInterface plain = getCall().withPackedWeights(0);
  return {plain.getViews()[kPackedOperand], getCall().getViews()[kPackedOperand]};
}

json::Object PackWeightsAttr::toJson() const {
  json::Object object = getCall().toJson();
  object["for"] = getCall().getKindName();
  object["kind"] = getKindName();
  return object;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

LogicalResult AttentionAttr::verify(
    function_ref<InFlightDiagnostic()> emitError, AttentionKind kind, int64_t batch, int64_t heads,
    int64_t kvHeads, int64_t queryLength, int64_t keyLength, int64_t headDim, int64_t valueDim,
    FloatAttr, bool, ArrayRef<int64_t> q, ArrayRef<int64_t> k, ArrayRef<int64_t> v,
    ArrayRef<int64_t> o, ArrayRef<int64_t> dO, ArrayRef<int64_t> dq, ArrayRef<int64_t> dk,
    ArrayRef<int64_t> dv, Type maskType, ArrayRef<int64_t> mask, ArrayRef<int64_t> dMask,
    FloatAttr dropout, int64_t, bool first, Type type, Type accumulator) {
  Checks checks(emitError);
  checks.extents("batch, heads and lengths", {batch, heads, queryLength, keyLength});
  checks.extents("key_length, head_dim and value_dim", {keyLength, headDim, valueDim});
  checks.extent("kv_heads", kvHeads);
  checks.require(kvHeads < 1 || heads % kvHeads == 0, "kv_heads must divide heads");
  for (auto [name, strides] : {std::pair("q_strides", q), std::pair("k_strides", k),
                               std::pair("v_strides", v), std::pair("o_strides", o)})
    checks.strides(name, strides, 4);
  size_t backward = kind == AttentionKind::Backward ? 4 : 0;
  for (auto [name, strides] : {std::pair("do_strides", dO), std::pair("dq_strides", dq),
                               std::pair("dk_strides", dk), std::pair("dv_strides", dv)})
    checks.strides(name, strides, backward);
  checks.strides("mask_strides", mask, maskType ? 4 : 0);
  checks.require(!maskType || maskType.isInteger(1) || isa<FloatType>(maskType),
                 "mask_type must be i1 or a floating-point type");
  checks.strides("dmask_strides", dMask, dMask.empty() ? 0 : 4);
  checks.require(dMask.empty() || (backward && maskType == accumulator),
                 "dmask_strides need a mask of " + getTypeName(accumulator) +
                     " and kind = backward");
  double probability = dropout ? dropout.getValueAsDouble() : 0;
  checks.require(probability >= 0 && probability < 1, "dropout must lie in [0, 1)");
  checks.require(!first || dropout, "first needs a dropout");
  checks.types(type, accumulator);
  return checks.get();
}

StringRef AttentionAttr::getKindName() const {
  return getKind() == AttentionKind::Forward ? "attention_forward" : "attention_backward";
}

unsigned AttentionAttr::getNumOperands() const {
  return 3 + (getMaskType() ? 1 : 0) + (getDropout() ? 2 : 0) + (getFirst() ? 1 : 0) +
         (getKind() == AttentionKind::Backward ? 3 : 0);
}

/// Two products of each score, five in the gradient, two more in that of a mask.
int64_t AttentionAttr::getFlops() const {
  int64_t scores = multiplyCounts({getBatch(), getHeads(), getQueryLength(), getKeyLength()});
  int64_t head = getHeadDim(), value = getValueDim();
  if (getKind() == AttentionKind::Forward)
    return multiplyCounts({2, scores, head + value});
  bool givesMask = !getDmaskStrides().empty();
  return multiplyCounts({2, scores, givesMask ? 4 * head + 3 * value : 3 * head + 2 * value});
}

/// Attention goes tile by tile of queries and keys, and leaves out tiles that a causal mask hides.
/// Beside the products it passes over the scores to scale, mask and exponentiate them.
Work AttentionAttr::getWork() const {
  double queries = static_cast<double>(getQueryLength()),
         keys = static_cast<double>(getKeyLength());
  double head = static_cast<double>(getHeadDim()), value = static_cast<double>(getValueDim());
  double scores =
      static_cast<double>(getBatch() * getHeads()) * queries * keys * getPadding(getKeyLength());
  if (getCausal())
    scores *= std::min(1.0, queries <= keys ? (queries + kWorkAttentionTile) / (2 * keys)
                                            : 1 - (keys - kWorkAttentionTile) / (2 * queries));
  bool isForward = getKind() == AttentionKind::Forward;
  Work work;
  work.workClass = isForward ? WorkClass::AttentionForward : WorkClass::AttentionBackward;
  double paddedHead = head * getPadding(getHeadDim());
  double paddedValue = value * getPadding(getValueDim());
  work.operations =
      2 * scores * (isForward ? head + paddedValue : head + value + 2 * paddedHead + paddedValue);
  work.functions = scores * (isForward ? 2 : 3);
  if (!getDmaskStrides().empty()) {
    work.operations += 2 * scores * (head + value);
    work.functions += scores;
  }
  return work;
}

SmallVector<BufferView> AttentionAttr::getViews() const {
  auto heads = [&](int64_t count, int64_t tokens, int64_t features, ArrayRef<int64_t> strides) {
    return getStrided({getBatch(), count, tokens, features}, strides, getType());
  };
  auto query = [&](int64_t features, ArrayRef<int64_t> strides) {
    return heads(getHeads(), getQueryLength(), features, strides);
  };
  auto key = [&](int64_t features, ArrayRef<int64_t> strides) {
    return heads(getKvHeads(), getKeyLength(), features, strides);
  };
  BufferView logsumexp =
      getContiguous({getBatch(), getHeads(), getQueryLength()}, getAccumulator());
  BufferView output = query(getValueDim(), getOStrides());
  SmallVector<BufferView> views{query(getHeadDim(), getQStrides()),
                                key(getHeadDim(), getKStrides()),
                                key(getValueDim(), getVStrides())};
  auto scores = [&](ArrayRef<int64_t> strides) {
    return getStrided({getBatch(), getHeads(), getQueryLength(), getKeyLength()}, strides,
                      getMaskType());
  };
  if (getMaskType())
    views.push_back(scores(getMaskStrides()));
  if (getDropout())
    views.append(getFirst() ? 3 : 2, getContiguous({}, IntegerType::get(getContext(), 64)));
  views.append({output, logsumexp});
  if (getKind() == AttentionKind::Backward)
    views.append({query(getValueDim(), getDoStrides()), query(getHeadDim(), getDqStrides()),
                  key(getHeadDim(), getDkStrides()), key(getValueDim(), getDvStrides())});
  if (!getDmaskStrides().empty())
    views.push_back(scores(getDmaskStrides()));
  return views;
}

json::Object AttentionAttr::toJson() const {
  json::Object object = describe(getKindName(), getType(), getAccumulator());
  for (auto [key, value] :
       {std::pair("batch", getBatch()), std::pair("heads", getHeads()),
        std::pair("kv_heads", getKvHeads()), std::pair("query_length", getQueryLength()),
        std::pair("key_length", getKeyLength()), std::pair("head_dim", getHeadDim()),
        std::pair("value_dim", getValueDim())})
    object[key] = value;
  object["scale"] = getScale().getValueAsDouble();
  object["causal"] = getCausal();
  for (auto [key, strides] :
       {std::pair("q_strides", getQStrides()), std::pair("k_strides", getKStrides()),
        std::pair("v_strides", getVStrides()), std::pair("o_strides", getOStrides()),
        std::pair("do_strides", getDoStrides()), std::pair("dq_strides", getDqStrides()),
        std::pair("dk_strides", getDkStrides()), std::pair("dv_strides", getDvStrides()),
        std::pair("dmask_strides", getDmaskStrides())})
    if (!strides.empty())
      object[key] = toArray(strides);
  if (getMaskType())
    object["mask"] =
        json::Object{{"dtype", getTypeName(getMaskType())}, {"strides", toArray(getMaskStrides())}};
  if (getDropout())
    object["dropout"] = json::Object{
        {"probability", getDropout().getValueAsDouble()}, {"id", getId()}, {"first", getFirst()}};
  return object;
}
