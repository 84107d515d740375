//===- Cudnn.h - cuDNN's backend, found at run time -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part of cuDNN 9's backend interface that memopt uses, so that it builds where cuDNN is not:
// types and numbers as cudnn_graph.h has them, and a table of functions that is filled at run time.
// NVIDIA's "cuDNN Backend API" says what each does.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DEVICE_CUDA_CUDNN_H
#define MEMOPT_RUNTIME_DEVICE_CUDA_CUDNN_H

#include "memopt-runtime/base/Status.h"
#include "memopt-runtime/device/cuda/CudaDriver.h"
#include <initializer_list>
#include <string>
#include <vector>

namespace memopt::cuda {

using CudnnHandle = struct cudnnContext *;
using CudnnDescriptor = void *;

namespace cudnn {

enum DescriptorType : int {
  POINTWISE = 0,
  CONVOLUTION = 1,
  ENGINE = 2,
  ENGINE_CONFIG = 3,
  HEURISTICS = 4,
  EXECUTION_PLAN = 5,
  KNOB_CHOICE = 7,
  OPERATION_CONVOLUTION_FORWARD = 10,
  OPERATION_CONVOLUTION_WEIGHTS = 11,
  OPERATION_CONVOLUTION_DATA = 12,
  OPERATION_POINTWISE = 13,
  OPERATION_GRAPH = 15,
  VARIANT_PACK = 16,
  TENSOR = 17,
  DEVICE_PROPERTIES = 38,
};

enum AttributeName : int {
  POINTWISE_MODE = 0,
  POINTWISE_PRECISION = 1,
  POINTWISE_NAN_PROPAGATION = 2,
  CONVOLUTION_COMPUTE_TYPE = 100,
  CONVOLUTION_MODE = 101,
  CONVOLUTION_DILATIONS = 102,
  CONVOLUTION_STRIDES = 103,
  CONVOLUTION_PADDING_UPPER = 104,
  CONVOLUTION_PADDING_LOWER = 105,
  CONVOLUTION_SPATIAL_DIMS = 106,
  HEURISTICS_MODE = 200,
  HEURISTICS_GRAPH = 201,
  HEURISTICS_RESULTS = 202,
  HEURISTICS_DEVICE = 204,
  CONFIG_ENGINE = 300,
  CONFIG_KNOBS = 302,
  PLAN_HANDLE = 400,
  PLAN_CONFIG = 401,
  PLAN_WORKSPACE = 402,
  PLAN_JSON = 405,
  KNOB_TYPE = 600,
  KNOB_VALUE = 601,
  FORWARD_ALPHA = 700, // then beta, convolution, w, x, y
  DATA_ALPHA = 706,    // then beta, convolution, w, dx, dy
  WEIGHTS_ALPHA = 712, // then beta, convolution, dw, x, dy
  OPERATION_POINTWISE_MODE = 750,
  OPERATION_POINTWISE_X = 751,
  OPERATION_POINTWISE_B = 752,
  OPERATION_POINTWISE_Y = 753,
  GRAPH_OPERATIONS = 801,
  TENSOR_ALIGNMENT = 900,
  TENSOR_TYPE = 901,
  TENSOR_EXTENTS = 902,
  TENSOR_STRIDES = 903,
  TENSOR_ID = 906,
  TENSOR_IS_VIRTUAL = 907,
  PACK_IDS = 1000,
  PACK_POINTERS = 1001,
  PACK_WORKSPACE = 1003,
  ENGINE_INDEX = 1301,
  ENGINE_NUMERICAL_NOTES = 1303,
  ENGINE_BEHAVIOR_NOTES = 1305,
  DEVICE_JSON = 2702,
};

enum AttributeType : int {
  TYPE_HANDLE = 0,
  TYPE_DATA_TYPE = 1,
  TYPE_BOOLEAN = 2,
  TYPE_INT64 = 3,
  TYPE_FLOAT = 4,
  TYPE_DOUBLE = 5,
  TYPE_VOID_PTR = 6,
  TYPE_CONVOLUTION_MODE = 7,
  TYPE_HEURISTICS_MODE = 8,
  TYPE_KNOB_TYPE = 9,
  TYPE_NAN_PROPAGATION = 10,
  TYPE_NUMERICAL_NOTE = 11,
  TYPE_POINTWISE_MODE = 14,
  TYPE_DESCRIPTOR = 15,
  TYPE_BEHAVIOR_NOTE = 19,
  TYPE_CHAR = 24,
};

enum DataType : int { FLOAT = 0, DOUBLE = 1, HALF = 2, BFLOAT16 = 9 };
enum ConvolutionMode : int { CROSS_CORRELATION = 1 };
enum PointwiseMode : int { ADD = 0, RELU = 100 };
enum NanPropagation : int { PROPAGATE_NAN = 1 };
enum HeuristicsMode : int { FALLBACK = 2, MODE_A = 3 };
enum NumericalNote : int {
  TENSOR_CORE = 0,
  DOWN_CONVERT_INPUTS = 1,
  REDUCED_PRECISION_REDUCTION = 2,
  NONDETERMINISTIC = 4,
};
enum BehaviorNote : int { RUNTIME_COMPILATION = 0 };

} // namespace cudnn

/// The library, loaded. It stays until the process ends: its threads and caches outlive handles.
class Cudnn {
public:
  /// Loads the file `path`, or what the loader finds under that name. An Environment error says
  /// what is missing: the library, a function, or a version that plans from descriptions (9.8).
  static StatusOr<std::unique_ptr<Cudnn>> load(const std::string &path);

  /// "9.26.0".
  const std::string &getVersion() const { return version; }

  /// Success, or an Environment error with what cuDNN says of its last failure.
  Status explain(int status, const std::string &what) const;

#define MEMOPT_CUDNN_FUNCTION(field, symbol, parameters) int(*field) parameters = nullptr;
#include "memopt-runtime/device/cuda/Cudnn.def"

private:
  Status find(void *library);

  size_t (*versionNumber)() = nullptr;
  void (*lastError)(char *text, size_t bytes) = nullptr;
  std::string version;
};

/// A descriptor of the backend. Setters go on after a failure, which finish() tells.
class CudnnObject {
public:
  CudnnObject(const Cudnn &library, cudnn::DescriptorType type);
  CudnnObject(CudnnObject &&other) noexcept;
  CudnnObject &operator=(CudnnObject &&) = delete;
  ~CudnnObject();

  CudnnObject &set(cudnn::AttributeName name, cudnn::AttributeType type, int64_t count,
                   const void *elements);
  CudnnObject &set(cudnn::AttributeName name, cudnn::AttributeType type, int value);
  CudnnObject &set(cudnn::AttributeName name, bool value);
  CudnnObject &set(cudnn::AttributeName name, int64_t value);
  CudnnObject &set(cudnn::AttributeName name, const std::vector<int64_t> &values);
  CudnnObject &set(cudnn::AttributeName name, const std::string &text);
  CudnnObject &link(cudnn::AttributeName name, const CudnnObject &other);
  CudnnObject &link(cudnn::AttributeName name, const std::vector<const CudnnObject *> &others);
  /// No more is set; `what` names it in errors.
  Status finish(const std::string &what);

  StatusOr<int64_t> getInteger(cudnn::AttributeName name) const;
  StatusOr<std::string> getText(cudnn::AttributeName name) const;
  /// At most 32 of them.
  StatusOr<std::vector<int>> getEnumerators(cudnn::AttributeName name,
                                            cudnn::AttributeType type) const;
  /// Objects of `type` that cuDNN made, which are as they should be.
  StatusOr<std::vector<CudnnObject>> getObjects(cudnn::AttributeName name,
                                                cudnn::DescriptorType type) const;

  CudnnDescriptor get() const { return descriptor; }

private:
  const Cudnn *library;
  CudnnDescriptor descriptor = nullptr;
  int failure = 0;
};

} // namespace memopt::cuda

#endif // MEMOPT_RUNTIME_DEVICE_CUDA_CUDNN_H
