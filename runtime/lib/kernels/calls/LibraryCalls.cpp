//===- LibraryCalls.cpp - from a descriptor to a call -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/descriptors/LibraryCalls.h"
#include "memopt-runtime/descriptors/AttentionDescriptor.h"
#include "memopt-runtime/descriptors/ConvolutionDescriptor.h"
#include "memopt-runtime/descriptors/DescriptorReader.h"
#include "memopt-runtime/descriptors/MatmulDescriptor.h"
#include "memopt-runtime/kernels/lapack/LinearAlgebra.h"
#include "memopt-runtime/kernels/onednn/DnnlSupport.h"

using namespace memopt;
using namespace memopt::libraries;

/// What a call made from a descriptor touches is the descriptor's to say.
template <typename Descriptor>
static std::unique_ptr<LibraryCall> withBuffers(const Descriptor &descriptor,
                                                std::unique_ptr<LibraryCall> call) {
  call->setBuffers(descriptor.getBuffers());
  return call;
}

/// oneDNN where it may and can, our own kernels for the rest.
static std::unique_ptr<LibraryCall> chooseMatmul(const MatmulDescriptor &descriptor, int threads) {
  std::unique_ptr<LibraryCall> call;
  if (!descriptor.reference && descriptor.counted == Counted::All)
    call = createDnnlMatmul(descriptor, threads);
  return call ? std::move(call) : createOwnMatmul(descriptor, threads);
}

/// Whether a call that reads packed weights, or packs them, has them in the bytes that `plain` says,
/// the call that packs for itself.
static Status checkPacked(int64_t bytes, const LibraryCall &plain) {
  int64_t expected = plain.packedWeightBytes();
  if (expected == 0 || bytes != expected)
    return badInput("library call: 'packed' must be the bytes of the weights as the library reads "
                    "them here, " +
                    std::to_string(expected) + ", found " + std::to_string(bytes));
  return Status::ok();
}

static StatusOr<std::unique_ptr<LibraryCall>> createMatmul(const nlohmann::json &json, int threads,
                                                           bool packs = false) {
  MEMOPT_ASSIGN_OR_RETURN(MatmulDescriptor descriptor, MatmulDescriptor::parse(json));
  if (descriptor.narrowBias)
    return badInput("library call 'matmul' has a bias of 16 bits, which a processor does not add");
  if (packs || descriptor.packedBytes) {
    MatmulDescriptor plain = descriptor;
    plain.packedBytes = 0;
    MEMOPT_RETURN_IF_ERROR(checkPacked(descriptor.packedBytes, *chooseMatmul(plain, threads)));
  }
  descriptor.packs = packs;
  return withBuffers(descriptor, chooseMatmul(descriptor, threads));
}

/// Whether oneDNN's `code`, which is for AVX2, is slower than ours: that of gradients of filters, but
/// for images of few channels, and that of filters of one tap, where these are products. Ours take
/// 0.65 to 1.03 of their time.
static bool isSlow(const ConvolutionDescriptor &d, const std::string &code) {
  constexpr int64_t fewChannels = 16;
  if (d.groups != 1 || !d.channelsLast)
    return false;
  if (d.direction != ConvolutionDirection::BackwardWeights) // also brgconv_1x1
    return code.find("1x1:avx2") != std::string::npos && isProduct(d);
  return code == "jit_1x1:avx2" || (code == "jit:avx2" && d.inputChannels >= fewChannels);
}

/// oneDNN's code for depthwise convolutions (`jit_dw`, `brgdmm_dw`) keeps up with the memory, if
/// the activations lie as it reads them. It has none for the gradient of filters of more than 3 x 3
/// taps, for groups of several channels, and on processors that do not multiply the type: what runs
/// instead takes groups as small dense convolutions, several times slower than our own kernels, and
/// makes copies of activations with channels that fill its vectors. Its relu takes NaN for 0. Dense
/// filters of 3 x 3 taps are faster by tiles than by any code for plain sums.
static std::unique_ptr<LibraryCall> chooseConvolution(const ConvolutionDescriptor &descriptor,
                                                      int threads) {
  if (auto call = createWinogradConvolution(descriptor, threads))
    return call;
  if (descriptor.reference || descriptor.relu)
    return createOwnConvolution(descriptor, threads);
  std::unique_ptr<LibraryCall> call = createDnnlConvolution(descriptor, threads);
  bool isDepthwiseCode = call && call->implementation().find("dw") != std::string::npos;
  if (isDepthwiseCode && descriptor.channelsLast)
    return call;
  // From 8 channels in a group on oneDNN's dense code is the faster one, ours with 16 still faster
  // than products of each group.
  if (auto own = createGroupConvolution(descriptor, call ? 4 : 16, threads))
    return own;
  if (!call || isSlow(descriptor, call->implementation()))
    return createOwnConvolution(descriptor, threads);
  return call;
}

/// A call that reads packed weights, or packs them: of the library that chooseConvolution takes for
/// the call that packs for itself.
static StatusOr<std::unique_ptr<LibraryCall>> createPacked(const ConvolutionDescriptor &descriptor,
                                                           int threads) {
  ConvolutionDescriptor plain = descriptor;
  plain.packs = false;
  plain.packedBytes = 0;
  MEMOPT_RETURN_IF_ERROR(checkPacked(descriptor.packedBytes, *chooseConvolution(plain, threads)));
  auto call = createWinogradConvolution(descriptor, threads);
  return withBuffers(descriptor,
                     call ? std::move(call) : createDnnlConvolution(descriptor, threads));
}

static StatusOr<std::unique_ptr<LibraryCall>> createConvolution(const nlohmann::json &json,
                                                                ConvolutionDirection direction,
                                                                int threads, bool packs = false) {
  MEMOPT_ASSIGN_OR_RETURN(ConvolutionDescriptor descriptor,
                          ConvolutionDescriptor::parse(json, direction));
  descriptor.packs = packs;
  if (packs || descriptor.packedBytes)
    return createPacked(descriptor, threads);
  return withBuffers(descriptor, chooseConvolution(descriptor, threads));
}

/// Packs weights for a call, which the description is of but for its kind.
static StatusOr<std::unique_ptr<LibraryCall>> createWeightPacking(const nlohmann::json &json,
                                                                  int threads) {
  DescriptorReader reader(json, "library call 'pack_weights'");
  std::string reads =
      reader.choice("for", {"convolution_forward", "convolution_backward_data", "matmul"});
  MEMOPT_RETURN_IF_ERROR(reader.takeStatus());
  if (reads == "matmul")
    return createMatmul(json, threads, /*packs=*/true);
  return createConvolution(json, *findDirection(reads), threads, /*packs=*/true);
}

static StatusOr<std::unique_ptr<LibraryCall>> createAttention(const nlohmann::json &json,
                                                              bool backward, int threads) {
  MEMOPT_ASSIGN_OR_RETURN(AttentionDescriptor descriptor,
                          AttentionDescriptor::parse(json, backward));
  return withBuffers(descriptor, backward ? createAttentionBackward(descriptor, threads)
                                          : createAttentionForward(descriptor, threads));
}

static StatusOr<std::unique_ptr<LibraryCall>> createAlgebra(const nlohmann::json &json,
                                                            LinearAlgebraKind kind, int threads) {
  MEMOPT_ASSIGN_OR_RETURN(LinearAlgebraDescriptor descriptor,
                          LinearAlgebraDescriptor::parse(json, kind));
  return withBuffers(descriptor, createLinearAlgebra(descriptor, threads));
}

static StatusOr<std::unique_ptr<LibraryCall>> createKind(const std::string &kind,
                                                         const nlohmann::json &json, int threads) {
  if (kind == "matmul")
    return createMatmul(json, threads);
  if (std::optional<ConvolutionDirection> direction = findDirection(kind))
    return createConvolution(json, *direction, threads);
  if (kind == "pack_weights")
    return createWeightPacking(json, threads);
  if (std::optional<LinearAlgebraKind> algebra = findLinearAlgebra(kind))
    return createAlgebra(json, *algebra, threads);
  return createAttention(json, kind == "attention_backward", threads);
}

/// A call of any kind, which keeps to the limit of its workspace.
static StatusOr<std::unique_ptr<LibraryCall>> createWithin(const nlohmann::json &descriptor,
                                                           int threads) {
  DescriptorReader reader(descriptor, "library call");
  std::string kind = reader.choice(
      "kind", {"matmul", "convolution_forward", "convolution_backward_data",
               "convolution_backward_weights", "pack_weights", "attention_forward",
               "attention_backward", "cholesky", "eigenvectors", "singular_vectors", "reflections",
               "reflection_product", "lu", "lu_solve", "triangular_solve", "triangular_product"});
  int64_t limit = reader.integer("workspace_limit", 0, maxExtent);
  reader.require(threads >= 1,
                 "the number of threads must be at least 1, found " + std::to_string(threads));
  MEMOPT_RETURN_IF_ERROR(reader.takeStatus());
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<LibraryCall> call, createKind(kind, descriptor, threads));
  if (call->workspaceBytes() > limit)
    return badInput("library call '" + kind + "': no way that gives the same bits has a " +
                    "workspace of at most 'workspace_limit', " + std::to_string(limit) + " bytes");
  return call;
}

StatusOr<std::unique_ptr<LibraryCall>> LibraryCall::create(const nlohmann::json &descriptor,
                                                           int threads) {
  try {
    MEMOPT_RETURN_IF_ERROR(limitInstructions());
    static const bool isOurs = isOnOurTeam();
    if (!isOurs)
      return environmentError("library call: oneDNN runs on another OpenMP than this program's; "
                              "it needs the build for GNU OpenMP, and a program that shows its own "
                              "GOMP_parallel_start to libraries, or opens libmemopt_runtime.so "
                              "with RTLD_DEEPBIND before others bring their oneDNN");
    return createWithin(descriptor, threads);
  } catch (const std::exception &error) {
    return environmentError(std::string("library call: ") + error.what());
  }
}
