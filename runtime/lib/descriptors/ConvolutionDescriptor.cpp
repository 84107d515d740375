//===- ConvolutionDescriptor.cpp - geometry of a convolution call -----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/descriptors/ConvolutionDescriptor.h"
#include "memopt-runtime/descriptors/DescriptorReader.h"

using namespace memopt;
using namespace memopt::libraries;

std::optional<ConvolutionDirection> libraries::findDirection(std::string_view kind) {
  if (kind == "convolution_forward")
    return ConvolutionDirection::Forward;
  if (kind == "convolution_backward_data")
    return ConvolutionDirection::BackwardData;
  if (kind == "convolution_backward_weights")
    return ConvolutionDirection::BackwardWeights;
  return std::nullopt;
}

/// The last `rank` entries of `values`, behind entries of `fill`.
static Spatial spatial(const std::vector<int64_t> &values, int rank, int64_t fill) {
  Spatial result{fill, fill, fill};
  for (int i = 0; i < rank; ++i)
    result[3 - rank + i] = values[values.size() - rank + i];
  return result;
}

static void checkOutput(DescriptorReader &reader, const ConvolutionDescriptor &d) {
  for (int i = 0; i < 3 && reader.isOk(); ++i) {
    // Each term is at most 2^48, and taps times dilation is checked before it is used.
    int64_t reach;
    reader.require(!__builtin_mul_overflow(d.dilations[i], d.taps[i] - 1, &reach) &&
                       reach <= maxExtent,
                   "'dilations' times the taps of 'weight' is too large");
    if (!reader.isOk())
      return;
    int64_t span = d.input[i] + d.paddingLower[i] + d.paddingUpper[i] - reach - 1;
    int64_t expected = span < 0 ? 0 : span / d.strides[i] + 1;
    reader.require(expected == d.output[i], "spatial dimension " + std::to_string(i - 3 + d.rank) +
                                                " of 'output' must be " + std::to_string(expected) +
                                                ", found " + std::to_string(d.output[i]));
  }
}

StatusOr<ConvolutionDescriptor> ConvolutionDescriptor::parse(const nlohmann::json &json,
                                                             ConvolutionDirection direction) {
  const char *names[] = {"forward", "backward_data", "backward_weights"};
  DescriptorReader reader(json, std::string("library call 'convolution_") +
                                    names[static_cast<int>(direction)] + "'");
  ConvolutionDescriptor d;
  d.direction = direction;
  d.type = readElementType(reader);
  d.wideResult = readWideResult(reader, d.type);
  d.channelsLast = reader.choice("layout", {"nhwc", "nchw"}) == "nhwc";
  d.reference = reader.boolean("reference", false);
  d.bias = reader.boolean("bias", false);
  reader.require(!d.bias || direction == ConvolutionDirection::Forward,
                 "'bias' belongs to convolution_forward only");
  d.relu = reader.choice("post", {"", "relu"}, /*optional=*/true) == "relu";
  reader.require(!d.relu || direction == ConvolutionDirection::Forward,
                 "'post' belongs to convolution_forward only");
  d.accumulate = reader.boolean("accumulate", false);
  reader.require(!d.accumulate || direction == ConvolutionDirection::BackwardWeights,
                 "'accumulate' belongs to convolution_backward_weights only");
  d.packedBytes = reader.integer("packed", 0, 0);
  d.workspaceLimit = reader.integer("workspace_limit", 0, maxExtent);
  reader.require(!d.packedBytes || direction != ConvolutionDirection::BackwardWeights,
                 "'packed' belongs to calls that read weights only");
  std::vector<int64_t> input = reader.integers("input", -1, 1);
  reader.require(input.size() >= 3 && input.size() <= 5,
                 "'input' must have 1 to 3 spatial dimensions behind batch and channels, found " +
                     std::to_string(input.size()) + " dimensions in all");
  MEMOPT_RETURN_IF_ERROR(reader.takeStatus());
  d.rank = static_cast<int>(input.size()) - 2;
  std::vector<int64_t> output = reader.integers("output", d.rank + 2, 1);
  std::vector<int64_t> weight = reader.integers("weight", d.rank + 2, 1);
  d.groups = reader.integer("groups", 1);
  d.strides = spatial(reader.integers("strides", d.rank, 1), d.rank, 1);
  d.dilations = spatial(reader.integers("dilations", d.rank, 1), d.rank, 1);
  d.paddingLower = spatial(reader.integers("padding_lower", d.rank, 0), d.rank, 0);
  d.paddingUpper = spatial(reader.integers("padding_upper", d.rank, 0), d.rank, 0);
  MEMOPT_RETURN_IF_ERROR(reader.takeStatus());
  d.images = input[0];
  d.inputChannels = input[1];
  d.outputChannels = output[1];
  d.input = spatial(input, d.rank, 1);
  d.output = spatial(output, d.rank, 1);
  d.taps = spatial(weight, d.rank, 1);
  reader.requireProduct("'input'", input);
  reader.requireProduct("'output'", output);
  reader.requireProduct("'weight'", weight);
  reader.require(output[0] == d.images, "'input' has a batch of " + std::to_string(d.images) +
                                            ", 'output' of " + std::to_string(output[0]));
  reader.require(d.inputChannels % d.groups == 0 && d.outputChannels % d.groups == 0,
                 "'groups' must divide the channels of 'input' and 'output'");
  reader.require(weight[0] == d.outputChannels && weight[1] == d.inputChannels / d.groups,
                 "'weight' must begin with " + std::to_string(d.outputChannels) + ", " +
                     std::to_string(d.inputChannels / d.groups) + ", found " +
                     std::to_string(weight[0]) + ", " + std::to_string(weight[1]));
  checkOutput(reader, d);
  MEMOPT_RETURN_IF_ERROR(reader.takeStatus());
  return d;
}
