//===- CudnnGraph.cpp - a library call as cuDNN's operations --------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// cuDNN knows convolutions of two and of three spatial dimensions well: one dimension becomes the
// second of two. A bias and a relu are operations of their own on what is never stored.
//
//===----------------------------------------------------------------------===//

#include "CudnnGraph.h"
#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/descriptors/ConvolutionDescriptor.h"
#include <algorithm>

using namespace memopt;
using namespace memopt::cuda;
using libraries::ConvolutionDescriptor;
using libraries::ConvolutionDirection;
using libraries::ElementType;
using libraries::Spatial;

static cudnn::DataType toCudnnType(ElementType type) {
  switch (type) {
  case ElementType::F64:
    return cudnn::DOUBLE;
  case ElementType::BF16:
    return cudnn::BFLOAT16;
  case ElementType::F16:
    return cudnn::HALF;
  case ElementType::F32:
    break;
  }
  return cudnn::FLOAT;
}

/// Strides of a tensor [N, C, spatial...] that is packed in the order of its dimensions, or with
/// the channels last.
static std::vector<int64_t> getStrides(const std::vector<int64_t> &extents, bool channelsLast) {
  std::vector<int64_t> strides(extents.size());
  int64_t stride = 1;
  auto place = [&](size_t dim) {
    strides[dim] = stride;
    stride *= extents[dim];
  };
  if (channelsLast)
    place(1);
  for (size_t dim = extents.size(); dim-- > (channelsLast ? 2 : 1);)
    place(dim);
  place(0);
  return strides;
}

namespace memopt::cuda {

class ConvolutionGraph {
public:
  ConvolutionGraph(const Cudnn &library, const ConvolutionDescriptor &call)
      : library(library), call(call), rank(std::max(2, call.rank)), type(toCudnnType(call.type)),
        sumType(call.type == ElementType::F64 ? cudnn::DOUBLE : cudnn::FLOAT),
        resultType(call.wideResult ? cudnn::FLOAT : type), graph(std::make_unique<CudnnGraph>()) {}

  StatusOr<std::unique_ptr<CudnnGraph>> build() {
    MEMOPT_RETURN_IF_ERROR(addTensors());
    MEMOPT_RETURN_IF_ERROR(addConvolution());
    if (call.bias)
      MEMOPT_RETURN_IF_ERROR(addBias());
    if (call.relu)
      MEMOPT_RETURN_IF_ERROR(addRelu());
    CudnnObject &whole = add(cudnn::OPERATION_GRAPH);
    whole.link(cudnn::GRAPH_OPERATIONS, operations);
    MEMOPT_RETURN_IF_ERROR(whole.finish("operation graph"));
    return std::move(graph);
  }

private:
  CudnnObject &add(cudnn::DescriptorType kind) { return graph->parts.emplace_back(library, kind); }

  /// The last dimensions: those that are missing in front have an extent of 1.
  std::vector<int64_t> last(const Spatial &values) const {
    return {values.end() - rank, values.end()};
  }
  std::vector<int64_t> extents(int64_t first, int64_t second, const Spatial &spatial) const {
    std::vector<int64_t> all{first, second};
    for (int64_t extent : last(spatial))
      all.push_back(extent);
    return all;
  }

  StatusOr<CudnnObject *> addTensor(int64_t number, const std::vector<int64_t> &sizes,
                                    bool channelsLast, cudnn::DataType elements,
                                    bool isVirtual = false) {
    CudnnObject &tensor = add(cudnn::TENSOR);
    tensor.set(cudnn::TENSOR_ID, number)
        .set(cudnn::TENSOR_TYPE, cudnn::TYPE_DATA_TYPE, elements)
        .set(cudnn::TENSOR_ALIGNMENT, int64_t(16))
        .set(cudnn::TENSOR_EXTENTS, sizes)
        .set(cudnn::TENSOR_STRIDES, getStrides(sizes, channelsLast))
        .set(cudnn::TENSOR_IS_VIRTUAL, isVirtual);
    MEMOPT_RETURN_IF_ERROR(tensor.finish("tensor " + std::to_string(number)));
    return &tensor;
  }

  /// Buffers come in the orders x w y, dy w dx and x dy dw.
  Status addTensors() {
    bool isForward = call.direction == ConvolutionDirection::Forward;
    bool isData = call.direction == ConvolutionDirection::BackwardData;
    int64_t x = isData ? 2 : 0, y = isForward ? call.resultIndex() : isData ? 0 : 1;
    int64_t w = isForward || isData ? 1 : 2;
    int64_t result = call.resultIndex();
    auto typeOf = [&](int64_t number) { return number == result ? resultType : type; };
    // What is stored is what the last operation gives.
    bool isStored = !call.bias && !call.relu;
    int64_t convolved = isStored ? y : result + 1;
    MEMOPT_ASSIGN_OR_RETURN(input,
                            addTensor(x, extents(call.images, call.inputChannels, call.input),
                                      call.channelsLast, typeOf(x)));
    MEMOPT_ASSIGN_OR_RETURN(
        filter, addTensor(w, extents(call.outputChannels, call.groupInputs(), call.taps),
                          /*channelsLast=*/false, typeOf(w)));
    MEMOPT_ASSIGN_OR_RETURN(
        output, addTensor(convolved, extents(call.images, call.outputChannels, call.output),
                          call.channelsLast, isStored ? typeOf(y) : sumType, !isStored));
    return Status::ok();
  }

  Status addConvolution() {
    CudnnObject &shape = add(cudnn::CONVOLUTION);
    shape.set(cudnn::CONVOLUTION_COMPUTE_TYPE, cudnn::TYPE_DATA_TYPE, sumType)
        .set(cudnn::CONVOLUTION_MODE, cudnn::TYPE_CONVOLUTION_MODE, cudnn::CROSS_CORRELATION)
        .set(cudnn::CONVOLUTION_SPATIAL_DIMS, int64_t(rank))
        .set(cudnn::CONVOLUTION_PADDING_LOWER, last(call.paddingLower))
        .set(cudnn::CONVOLUTION_PADDING_UPPER, last(call.paddingUpper))
        .set(cudnn::CONVOLUTION_DILATIONS, last(call.dilations))
        .set(cudnn::CONVOLUTION_STRIDES, last(call.strides));
    MEMOPT_RETURN_IF_ERROR(shape.finish("convolution"));
    auto [kind, first] = getOperation();
    auto attribute = [first = first](int number) { return cudnn::AttributeName(first + number); };
    double one = 1, zero = 0;
    CudnnObject &operation = add(kind);
    operation.set(attribute(0), cudnn::TYPE_DOUBLE, 1, &one)
        .set(attribute(1), cudnn::TYPE_DOUBLE, 1, &zero)
        .link(attribute(2), shape)
        .link(attribute(3), *filter)
        .link(attribute(4), *input)
        .link(attribute(5), *output);
    MEMOPT_RETURN_IF_ERROR(operation.finish("convolution's operation"));
    operations.push_back(&operation);
    return Status::ok();
  }

  /// The operation and the first of its attributes.
  std::pair<cudnn::DescriptorType, cudnn::AttributeName> getOperation() const {
    switch (call.direction) {
    case ConvolutionDirection::BackwardData:
      return {cudnn::OPERATION_CONVOLUTION_DATA, cudnn::DATA_ALPHA};
    case ConvolutionDirection::BackwardWeights:
      return {cudnn::OPERATION_CONVOLUTION_WEIGHTS, cudnn::WEIGHTS_ALPHA};
    case ConvolutionDirection::Forward:
      break;
    }
    return {cudnn::OPERATION_CONVOLUTION_FORWARD, cudnn::FORWARD_ALPHA};
  }

  Status addBias() {
    std::vector<int64_t> sizes(size_t(rank) + 2, 1);
    sizes[1] = call.outputChannels;
    MEMOPT_ASSIGN_OR_RETURN(CudnnObject * bias, addTensor(2, sizes, call.channelsLast, sumType));
    CudnnObject &addition = add(cudnn::POINTWISE);
    addition.set(cudnn::POINTWISE_MODE, cudnn::TYPE_POINTWISE_MODE, cudnn::ADD)
        .set(cudnn::POINTWISE_PRECISION, cudnn::TYPE_DATA_TYPE, sumType);
    MEMOPT_RETURN_IF_ERROR(addition.finish("addition"));
    return addPointwise(addition, bias, call.relu);
  }

  Status addRelu() {
    CudnnObject &relu = add(cudnn::POINTWISE);
    int nan = cudnn::PROPAGATE_NAN;
    relu.set(cudnn::POINTWISE_MODE, cudnn::TYPE_POINTWISE_MODE, cudnn::RELU)
        .set(cudnn::POINTWISE_PRECISION, cudnn::TYPE_DATA_TYPE, sumType)
        .set(cudnn::POINTWISE_NAN_PROPAGATION, cudnn::TYPE_NAN_PROPAGATION, 1, &nan);
    MEMOPT_RETURN_IF_ERROR(relu.finish("relu"));
    return addPointwise(relu, /*other=*/nullptr, /*isVirtual=*/false);
  }

  /// An operation on the elements of `output`, which its result takes the place of: stored, or read
  /// by the next operation where it `isVirtual`.
  Status addPointwise(const CudnnObject &kind, const CudnnObject *other, bool isVirtual) {
    std::vector<int64_t> sizes = extents(call.images, call.outputChannels, call.output);
    int64_t number = call.resultIndex() + (isVirtual ? 2 : 0);
    MEMOPT_ASSIGN_OR_RETURN(
        CudnnObject * result,
        addTensor(number, sizes, call.channelsLast, isVirtual ? sumType : resultType, isVirtual));
    CudnnObject &operation = add(cudnn::OPERATION_POINTWISE);
    operation.link(cudnn::OPERATION_POINTWISE_MODE, kind)
        .link(cudnn::OPERATION_POINTWISE_X, *output);
    if (other)
      operation.link(cudnn::OPERATION_POINTWISE_B, *other);
    operation.link(cudnn::OPERATION_POINTWISE_Y, *result);
    MEMOPT_RETURN_IF_ERROR(operation.finish("operation on elements"));
    operations.push_back(&operation);
    output = result;
    return Status::ok();
  }

  const Cudnn &library;
  const ConvolutionDescriptor &call;
  int rank;
  cudnn::DataType type, sumType, resultType;
  std::unique_ptr<CudnnGraph> graph;
  CudnnObject *input = nullptr, *filter = nullptr, *output = nullptr;
  std::vector<const CudnnObject *> operations;
};

} // namespace memopt::cuda

StatusOr<std::unique_ptr<CudnnGraph>> CudnnGraph::create(const Cudnn &library,
                                                         const nlohmann::json &descriptor) {
  MEMOPT_ASSIGN_OR_RETURN(std::string kind, JsonView(descriptor).getString("kind"));
  std::optional<ConvolutionDirection> direction = libraries::findDirection(kind);
  if (!direction)
    return environmentError("cuDNN is asked for convolutions alone, not for " + quote(kind));
  MEMOPT_ASSIGN_OR_RETURN(ConvolutionDescriptor call,
                          ConvolutionDescriptor::parse(descriptor, *direction));
  return ConvolutionGraph(library, call).build();
}
