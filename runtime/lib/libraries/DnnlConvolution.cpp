//===- DnnlConvolution.cpp - convolution by oneDNN --------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Activations stay channels-last, the layout that oneDNN's fast convolutions take from others; the
// weights are asked as `any` and packed in the workspace from their plain home, or unpacked to it.
// Plain weights beside channels-last activations would give reference code.

#include "ConvolutionDescriptor.h"
#include "DnnlSupport.h"

using namespace memopt;
using namespace memopt::libraries;
using dnnl::memory;

namespace {

using Forward = dnnl::convolution_forward;
using BackwardData = dnnl::convolution_backward_data;
using BackwardWeights = dnnl::convolution_backward_weights;

memory::dims lastDimensions(const Spatial &values, int rank) {
  return memory::dims(values.end() - rank, values.end());
}

struct Geometry {
  memory::dims strides, dilations, paddingLower, paddingUpper;
  memory::desc x, y, plainWeights, anyWeights, bias;

  explicit Geometry(const ConvolutionDescriptor &d)
      : strides(lastDimensions(d.strides, d.rank)), dilations(lastDimensions(d.dilations, d.rank)),
        paddingLower(lastDimensions(d.paddingLower, d.rank)),
        paddingUpper(lastDimensions(d.paddingUpper, d.rank)) {
    // oneDNN counts the gaps between taps.
    for (memory::dim &dilation : dilations)
      --dilation;
    constexpr auto f32 = memory::data_type::f32;
    x = activation(d.images, d.inputChannels, lastDimensions(d.input, d.rank));
    y = activation(d.images, d.outputChannels, lastDimensions(d.output, d.rank));
    memory::dims weights = lastDimensions(d.taps, d.rank);
    weights.insert(weights.begin(), {d.groupOutputs(), d.groupInputs()});
    if (d.groups > 1)
      weights.insert(weights.begin(), d.groups);
    memory::dims steps(weights.size(), 1);
    for (size_t i = weights.size() - 1; i-- > 0;)
      steps[i] = steps[i + 1] * weights[i + 1];
    plainWeights = memory::desc(weights, f32, steps);
    anyWeights = memory::desc(weights, f32, memory::format_tag::any);
    if (d.bias)
      bias = memory::desc({d.outputChannels}, f32, memory::format_tag::a);
  }

private:
  static memory::desc activation(int64_t images, int64_t channels, const memory::dims &extents) {
    memory::dims all = {images, channels}, steps(extents.size() + 2, 1);
    all.insert(all.end(), extents.begin(), extents.end());
    int64_t step = channels;
    for (size_t i = all.size(); i-- > 2; step *= all[i])
      steps[i] = step;
    steps[0] = step;
    return memory::desc(all, memory::data_type::f32, steps);
  }
};

Forward::primitive_desc describeForward(const Geometry &g) {
  return Forward::primitive_desc(dnnlEngine(), dnnl::prop_kind::forward_training,
                                 dnnl::algorithm::convolution_direct, g.x, g.anyWeights, g.bias,
                                 g.y, g.strides, g.dilations, g.paddingLower, g.paddingUpper,
                                 plannedScratchpad(), /*allow_empty=*/true);
}

class DnnlConvolution final : public DnnlCall {
public:
  using DnnlCall::DnnlCall;

  bool build(const ConvolutionDescriptor &d) {
    Geometry g(d);
    Forward::primitive_desc forward = describeForward(g);
    if (!forward)
      return false;
    bool built = d.direction == ConvolutionDirection::Forward        ? buildForward(g, forward)
                 : d.direction == ConvolutionDirection::BackwardData ? buildData(g, forward)
                                                                     : buildWeights(g, forward);
    if (built)
      finish(name, d.resultIndex() + 1);
    return built;
  }

private:
  /// The weights at `buffer` in the layout that the primitive reads.
  memory packedWeights(const Geometry &g, const memory::desc &wanted, int buffer) {
    memory plain = callerBuffer(g.plainWeights, buffer);
    if (wanted == g.plainWeights)
      return plain;
    memory packed = workspaceBuffer(wanted);
    appendReorder(plain, packed);
    return packed;
  }

  bool buildForward(const Geometry &g, Forward::primitive_desc description) {
    if (!selectImplementation(description))
      return false;
    name = description.impl_info_str();
    bool bias = !g.bias.is_zero();
    Arguments arguments = {{DNNL_ARG_SRC, callerBuffer(g.x, 0)},
                           {DNNL_ARG_WEIGHTS, packedWeights(g, description.weights_desc(), 1)},
                           {DNNL_ARG_DST, callerBuffer(g.y, bias ? 3 : 2)}};
    if (bias)
      arguments.insert({DNNL_ARG_BIAS, callerBuffer(g.bias, 2)});
    append(Forward(description), description.scratchpad_desc(), std::move(arguments));
    return true;
  }

  bool buildData(const Geometry &g, const Forward::primitive_desc &hint) {
    BackwardData::primitive_desc description(
        dnnlEngine(), dnnl::algorithm::convolution_direct, g.x, g.anyWeights, g.y, g.strides,
        g.dilations, g.paddingLower, g.paddingUpper, hint, plannedScratchpad(),
        /*allow_empty=*/true);
    if (!description || !selectImplementation(description))
      return false;
    name = description.impl_info_str();
    append(BackwardData(description), description.scratchpad_desc(),
           {{DNNL_ARG_DIFF_DST, callerBuffer(g.y, 0)},
            {DNNL_ARG_WEIGHTS, packedWeights(g, description.weights_desc(), 1)},
            {DNNL_ARG_DIFF_SRC, callerBuffer(g.x, 2)}});
    return true;
  }

  bool buildWeights(const Geometry &g, const Forward::primitive_desc &hint) {
    BackwardWeights::primitive_desc description(
        dnnlEngine(), dnnl::algorithm::convolution_direct, g.x, g.anyWeights, g.y, g.strides,
        g.dilations, g.paddingLower, g.paddingUpper, hint, plannedScratchpad(),
        /*allow_empty=*/true);
    if (!description || !selectImplementation(description))
      return false;
    name = description.impl_info_str();
    bool plain = description.diff_weights_desc() == g.plainWeights;
    memory home = callerBuffer(g.plainWeights, 2);
    memory result = plain ? home : workspaceBuffer(description.diff_weights_desc());
    append(BackwardWeights(description), description.scratchpad_desc(),
           {{DNNL_ARG_SRC, callerBuffer(g.x, 0)},
            {DNNL_ARG_DIFF_DST, callerBuffer(g.y, 1)},
            {DNNL_ARG_DIFF_WEIGHTS, result}});
    if (!plain)
      appendReorder(result, home);
    return true;
  }

  std::string name;
};

} // namespace

std::unique_ptr<LibraryCall> libraries::createDnnlConvolution(const ConvolutionDescriptor &d,
                                                              int threads) {
  if (!d.channelsLast)
    return nullptr;
  ThreadCountScope scope(threads);
  auto call = std::make_unique<DnnlConvolution>(threads);
  if (!call->build(d))
    return nullptr;
  return call;
}
