//===- DnnlConvolution.cpp - convolution by oneDNN --------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Activations stay channels-last, the layout that oneDNN's fast convolutions take from others; the
// weights are asked as `any` and packed in the workspace from their plain home, or unpacked to it,
// unless the caller has them packed.
// Plain weights beside channels-last activations would give reference code. Channels-first
// activations are copied to channels-last in the workspace: oneDNN takes them as they are only
// through its GEMM, which allocates behind the plan.

#include "memopt-runtime/descriptors/ConvolutionDescriptor.h"
#include "memopt-runtime/kernels/onednn/DnnlSupport.h"
#include <cstring>

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
  memory::desc homeX, homeY; ///< activations as the caller has them
  memory::desc x, y, plainWeights, anyWeights, bias;

  /// Activations and weights have these types, a bias is f32.
  Geometry(const ConvolutionDescriptor &d, memory::data_type xType, memory::data_type weightType,
           memory::data_type yType)
      : strides(lastDimensions(d.strides, d.rank)), dilations(lastDimensions(d.dilations, d.rank)),
        paddingLower(lastDimensions(d.paddingLower, d.rank)),
        paddingUpper(lastDimensions(d.paddingUpper, d.rank)) {
    // oneDNN counts the gaps between taps.
    for (memory::dim &dilation : dilations)
      --dilation;
    memory::dims input = lastDimensions(d.input, d.rank), output = lastDimensions(d.output, d.rank);
    x = activation(d.images, d.inputChannels, input, xType);
    y = activation(d.images, d.outputChannels, output, yType);
    homeX = d.channelsLast ? x : contiguous(d.images, d.inputChannels, input, xType);
    homeY = d.channelsLast ? y : contiguous(d.images, d.outputChannels, output, yType);
    memory::dims weights = lastDimensions(d.taps, d.rank);
    weights.insert(weights.begin(), {d.groupOutputs(), d.groupInputs()});
    if (d.groups > 1)
      weights.insert(weights.begin(), d.groups);
    plainWeights = contiguous(weights, weightType);
    anyWeights = memory::desc(weights, weightType, memory::format_tag::any);
    if (d.bias)
      bias = memory::desc({d.outputChannels}, memory::data_type::f32, memory::format_tag::a);
  }

  /// The types of what a call of this direction reads and writes.
  static Geometry ofCall(const ConvolutionDescriptor &d) {
    memory::data_type type = getDataType(d.type), result = getResultType(d.type, d.wideResult);
    auto of = [&](ConvolutionDirection made) { return d.direction == made ? result : type; };
    return Geometry(d, of(ConvolutionDirection::BackwardData),
                    of(ConvolutionDirection::BackwardWeights), of(ConvolutionDirection::Forward));
  }

private:
  static memory::desc contiguous(const memory::dims &extents, memory::data_type type) {
    memory::dims steps(extents.size(), 1);
    for (size_t i = extents.size() - 1; i-- > 0;)
      steps[i] = steps[i + 1] * extents[i + 1];
    return memory::desc(extents, type, steps);
  }

  static memory::desc contiguous(int64_t images, int64_t channels, memory::dims extents,
                                 memory::data_type type) {
    extents.insert(extents.begin(), {images, channels});
    return contiguous(extents, type);
  }

  static memory::desc activation(int64_t images, int64_t channels, const memory::dims &extents,
                                 memory::data_type type) {
    memory::dims all = {images, channels}, steps(extents.size() + 2, 1);
    all.insert(all.end(), extents.begin(), extents.end());
    int64_t step = channels;
    for (size_t i = all.size(); i-- > 2; step *= all[i])
      steps[i] = step;
    steps[0] = step;
    return memory::desc(all, type, steps);
  }
};

/// Whether a tap of the filter meets padding alone, wherever the filter stands.
bool hasIdleTap(const Geometry &g) {
  memory::dims input = g.x.get_dims(), output = g.y.get_dims(), weights = g.anyWeights.get_dims();
  size_t extents = g.strides.size();
  for (size_t i = 0; i < extents; ++i) {
    int64_t size = input[2 + i], count = output[2 + i],
            taps = weights[weights.size() - extents + i];
    for (int64_t tap = 0; tap < taps; ++tap) {
      bool isIdle = true;
      for (int64_t at = 0; at < count && isIdle; ++at) {
        int64_t met = at * g.strides[i] - g.paddingLower[i] + tap * (g.dilations[i] + 1);
        isIdle = met < 0 || met >= size;
      }
      if (isIdle)
        return true;
    }
  }
  return false;
}

/// Whether oneDNN 3.2's implementation `name` of such a gradient of weights reads or writes beside
/// its buffers, or leaves a part of its result unwritten.
bool isWrong(const Geometry &g, std::string_view name) {
  auto isAny = [](const memory::dims &values, memory::dim usual) {
    return values != memory::dims(values.size(), usual);
  };
  // The pixels that a strided filter of one tap meets are brought together in whole vectors. Of
  // fewer channels than a vector has, these are written behind a thread's part of the scratchpad,
  // into that of the next thread or into what follows it, and the sums hold what lies there.
  if (name == "jit_1x1:avx2" || name == "jit_1x1:avx512_core")
    return isAny(g.strides, 1) && g.x.get_dims()[1] < (name == "jit_1x1:avx2" ? 8 : 16);
  // The gradient of a tap that meets nothing is what lay in the scratchpad, not zero.
  if (g.x.get_data_type() != memory::data_type::f32 && hasIdleTap(g))
    return true;
  // Rows that dilated taps meet are looked for in front of the scratchpad and behind it.
  return name == "jit_bf16:avx512_core_bf16" && isAny(g.dilations, 0);
}

Forward::primitive_desc describeForward(const dnnl::engine &engine, const Geometry &g) {
  return Forward::primitive_desc(engine, dnnl::prop_kind::forward_training,
                                 dnnl::algorithm::convolution_direct, g.x, g.anyWeights, g.bias,
                                 g.y, g.strides, g.dilations, g.paddingLower, g.paddingUpper,
                                 plannedScratchpad(), /*allow_empty=*/true);
}

class DnnlConvolution final : public DnnlCall {
public:
  /// Where gradients of weights add up what each thread has summed its threads meet.
  DnnlConvolution(const ConvolutionDescriptor &d, int threads)
      : DnnlCall(threads, d.direction == ConvolutionDirection::BackwardWeights), d(d) {}

  /// What a result is added to is in its buffer.
  Status run(void *const *buffers, ThreadPool &pool) override {
    auto *result = static_cast<char *>(buffers[d.resultIndex()]);
    auto *addend = static_cast<const char *>(buffers[d.addendIndex()]);
    if (addend != result)
      pool.parallelFor(addendBytes, 1 << 16, [&](int64_t begin, int64_t end) {
        std::memcpy(result + begin, addend + begin, end - begin);
      });
    return DnnlCall::run(buffers, pool);
  }

  bool build() {
    Geometry g = Geometry::ofCall(d);
    // The forward call that a gradient belongs to rounds what it stores.
    memory::data_type type = getDataType(d.type);
    bool isForward = d.direction == ConvolutionDirection::Forward;
    Forward::primitive_desc forward =
        describeForward(engine, isForward ? g : Geometry(d, type, type, type));
    if (!forward)
      return false;
    bool built = d.direction == ConvolutionDirection::Forward        ? buildForward(g, forward)
                 : d.direction == ConvolutionDirection::BackwardData ? buildData(g, forward)
                                                                     : buildWeights(g, forward);
    if (built)
      finish(name, d.resultIndex() + 1);
    return built;
  }

  int64_t packedWeightBytes() const override { return d.packedBytes ? 0 : packedBytes; }

private:
  /// The caller's buffer in the layout that the primitive reads.
  memory operand(const memory::desc &home, const memory::desc &wanted, int buffer) {
    memory plain = callerBuffer(home, buffer);
    if (wanted == home)
      return plain;
    memory packed = workspaceBuffer(wanted);
    appendReorder(plain, packed);
    return packed;
  }

  /// The weights as the primitive reads them.
  memory weights(const Geometry &g, const memory::desc &wanted) {
    packedBytes = wanted == g.plainWeights ? 0 : static_cast<int64_t>(wanted.get_size());
    return d.packedBytes ? callerBuffer(wanted, 1) : operand(g.plainWeights, wanted, 1);
  }

  /// All that a call does which packs weights for others.
  void appendPacking(const Geometry &g, const memory::desc &wanted) {
    appendReorder(callerBuffer(g.plainWeights, 0), callerBuffer(wanted, d.resultIndex()));
  }

  /// Appends the primitive with a result that it writes as `wanted` and the caller gets as `home`.
  /// oneDNN adds nothing to gradients of weights: the copy to their home does.
  void appendWithResult(const dnnl::primitive &primitive, const memory::desc &scratchpad,
                        Arguments arguments, int argument, const memory::desc &home,
                        const memory::desc &wanted) {
    memory plain = callerBuffer(home, d.resultIndex());
    bool isCopied = wanted != home || d.accumulate;
    memory result = isCopied ? workspaceBuffer(wanted) : plain;
    arguments.insert({argument, result});
    append(primitive, scratchpad, std::move(arguments));
    if (isCopied)
      appendReorder(result, plain, d.accumulate);
  }

  bool buildForward(const Geometry &g, Forward::primitive_desc description) {
    if (!selectImplementation(description))
      return false;
    name = description.impl_info_str();
    if (d.packs) {
      appendPacking(g, description.weights_desc());
      return true;
    }
    bool bias = !g.bias.is_zero();
    Arguments arguments = {{DNNL_ARG_SRC, operand(g.homeX, g.x, 0)},
                           {DNNL_ARG_WEIGHTS, weights(g, description.weights_desc())}};
    if (bias)
      arguments.insert({DNNL_ARG_BIAS, callerBuffer(g.bias, 2)});
    appendWithResult(Forward(description), description.scratchpad_desc(), std::move(arguments),
                     DNNL_ARG_DST, g.homeY, g.y);
    return true;
  }

  bool buildData(const Geometry &g, const Forward::primitive_desc &hint) {
    BackwardData::primitive_desc description(
        engine, dnnl::algorithm::convolution_direct, g.x, g.anyWeights, g.y, g.strides, g.dilations,
        g.paddingLower, g.paddingUpper, hint, plannedScratchpad(),
        /*allow_empty=*/true);
    if (!description || !selectImplementation(description))
      return false;
    name = description.impl_info_str();
    if (d.packs) {
      appendPacking(g, description.weights_desc());
      return true;
    }
    appendWithResult(BackwardData(description), description.scratchpad_desc(),
                     {{DNNL_ARG_DIFF_DST, operand(g.homeY, g.y, 0)},
                      {DNNL_ARG_WEIGHTS, weights(g, description.weights_desc())}},
                     DNNL_ARG_DIFF_SRC, g.homeX, g.x);
    return true;
  }

  bool buildWeights(const Geometry &g, const Forward::primitive_desc &hint) {
    BackwardWeights::primitive_desc description(
        engine, dnnl::algorithm::convolution_direct, g.x, g.anyWeights, g.y, g.strides, g.dilations,
        g.paddingLower, g.paddingUpper, hint, plannedScratchpad(),
        /*allow_empty=*/true);
    auto isRefused = [&](std::string_view name) { return isWrong(g, name); };
    if (!description || !selectImplementation(description, isRefused))
      return false;
    name = description.impl_info_str();
    addendBytes = static_cast<int64_t>(g.plainWeights.get_size());
    appendWithResult(
        BackwardWeights(description), description.scratchpad_desc(),
        {{DNNL_ARG_SRC, operand(g.homeX, g.x, 0)}, {DNNL_ARG_DIFF_DST, operand(g.homeY, g.y, 1)}},
        DNNL_ARG_DIFF_WEIGHTS, g.plainWeights, description.diff_weights_desc());
    return true;
  }

  ConvolutionDescriptor d;
  int64_t addendBytes = 0;
  int64_t packedBytes = 0; ///< of weights as the primitive reads them; 0: as they lie at home
  std::string name;
};

} // namespace

std::unique_ptr<LibraryCall> libraries::createDnnlConvolution(const ConvolutionDescriptor &d,
                                                              int threads) {
  if (!isNative(d.type))
    return nullptr;
  OpenMpScope scope(threads, /*pool=*/nullptr, /*waitForEachOther=*/false);
  auto call = std::make_unique<DnnlConvolution>(d, threads);
  if (!call->build())
    return nullptr;
  return call;
}
