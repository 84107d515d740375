//===- FakeCudnn.cpp - a cuDNN that computes nothing ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Descriptors hold what they are given. For any graph there are six configurations, of which the
// first differs from run to run, the second would be compiled, and the third is refused when it is
// planned; the others need workspaces of 1000, 2000 and 10 bytes. A plan's text names its
// configuration and the multiprocessors that it is for. $FAKE_CUDNN in the environment:
//
//   abort      the process ends where heuristics are asked
//   none       no configurations
//   VERSION    as cudnnGetVersion counts, in place of 92600
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/Cudnn.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>

using namespace memopt::cuda;

namespace {
struct Descriptor {
  int type;
  bool isFinal = false;
  int64_t config = -1; ///< of configurations, engines and plans
  std::map<int, std::vector<char>> attributes;

  template <typename T> std::vector<T> get(int name) const {
    auto found = attributes.find(name);
    std::vector<T> values(found == attributes.end() ? 0 : found->second.size() / sizeof(T));
    if (!values.empty())
      std::memcpy(values.data(), found->second.data(), found->second.size());
    return values;
  }
  std::string getText(int name) const {
    std::vector<char> text = get<char>(name);
    return {text.begin(), text.end()};
  }
};

enum : int { SUCCESS = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, ARCH_MISMATCH = 3007 };

struct Config {
  int64_t engine, workspace; ///< a workspace below 0 is refused
  std::vector<int> numericalNotes, behaviorNotes;
};
} // namespace

static const Config configs[] = {{20, 0, {cudnn::NONDETERMINISTIC}, {}},
                                 {30, 0, {}, {cudnn::RUNTIME_COMPILATION}},
                                 {40, -1, {}, {}},
                                 {50, 1000, {0}, {}},
                                 {60, 2000, {0}, {}},
                                 {70, 10, {}, {}}};

static std::string log, lastError;
static size_t version = 92600;

static size_t getSize(int type) {
  switch (type) {
  case cudnn::TYPE_BOOLEAN:
  case cudnn::TYPE_CHAR:
    return 1;
  case cudnn::TYPE_INT64:
  case cudnn::TYPE_DOUBLE:
  case cudnn::TYPE_HANDLE:
  case cudnn::TYPE_VOID_PTR:
  case cudnn::TYPE_DESCRIPTOR:
    return 8;
  default:
    return 4;
  }
}

static int refuse(int status, const std::string &text) {
  lastError = text;
  return status;
}

static bool isWished(const char *what) {
  const char *wish = std::getenv("FAKE_CUDNN");
  return wish && !std::strcmp(wish, what);
}

static std::string printNumbers(const Descriptor &descriptor, int name) {
  std::string text;
  for (int64_t number : descriptor.get<int64_t>(name))
    text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

/// A line for each tensor, function other than a sum, and operation that becomes part of a graph.
static void note(const Descriptor &descriptor) {
  if (descriptor.type == cudnn::TENSOR)
    log += "tensor " + printNumbers(descriptor, cudnn::TENSOR_ID) + " type " +
           std::to_string(descriptor.get<int>(cudnn::TENSOR_TYPE).at(0)) + " [" +
           printNumbers(descriptor, cudnn::TENSOR_EXTENTS) + "] strides [" +
           printNumbers(descriptor, cudnn::TENSOR_STRIDES) + "]" +
           (descriptor.get<char>(cudnn::TENSOR_IS_VIRTUAL).at(0) ? " virtual\n" : "\n");
  if (descriptor.type == cudnn::CONVOLUTION)
    log += "convolution padding [" + printNumbers(descriptor, cudnn::CONVOLUTION_PADDING_LOWER) +
           "] [" + printNumbers(descriptor, cudnn::CONVOLUTION_PADDING_UPPER) + "] strides [" +
           printNumbers(descriptor, cudnn::CONVOLUTION_STRIDES) + "] dilations [" +
           printNumbers(descriptor, cudnn::CONVOLUTION_DILATIONS) + "]\n";
  if (descriptor.type == cudnn::POINTWISE &&
      descriptor.get<int>(cudnn::POINTWISE_MODE).at(0) != cudnn::ADD) {
    std::vector<int> nan = descriptor.get<int>(cudnn::POINTWISE_NAN_PROPAGATION);
    log += "pointwise " + std::to_string(descriptor.get<int>(cudnn::POINTWISE_MODE).at(0)) +
           (nan == std::vector<int>{cudnn::PROPAGATE_NAN} ? " keeps NaN\n" : "\n");
  }
  if (descriptor.type >= cudnn::OPERATION_CONVOLUTION_FORWARD &&
      descriptor.type <= cudnn::OPERATION_POINTWISE)
    log += "operation " + std::to_string(descriptor.type) + "\n";
}

static int64_t getDeviceSms(const std::string &properties) {
  size_t place = properties.find("\"multiProcessorCount\":");
  return place == std::string::npos ? 0 : std::atoll(properties.c_str() + place + 22);
}

static int driver = 13000;
/// What plans with large workspaces need beyond these once a device has loaded them.
static int64_t loadedExtra = 0;

/// A plan of a configuration, or one from text: "config 3, 132 multiprocessors", which may go on
/// with
/// ", driver 13000", whose major version the driver here has at least (status 3007).
static int finishPlan(Descriptor &plan) {
  if (plan.attributes.count(cudnn::PLAN_JSON)) {
    int config, sms, planned = 0;
    if (std::sscanf(plan.getText(cudnn::PLAN_JSON).c_str(),
                    "config %d, %d multiprocessors, driver %d", &config, &sms, &planned) < 2 ||
        config < 3 || config > 5)
      return refuse(BAD_PARAM, "this is no plan");
    if (planned / 1000 > driver / 1000)
      return refuse(ARCH_MISMATCH, "planned for a newer driver");
    if (!plan.attributes.count(cudnn::PLAN_HANDLE))
      return refuse(BAD_PARAM, "a plan from text needs a handle");
    plan.config = config;
    return SUCCESS;
  }
  plan.config = static_cast<Descriptor *>(plan.get<void *>(cudnn::PLAN_CONFIG).at(0))->config;
  return configs[plan.config].workspace < 0 ? refuse(NOT_SUPPORTED, "not this shape") : SUCCESS;
}

static int64_t knownSms = 0;

template <typename T>
static int give(const std::vector<T> &values, int64_t room, int64_t *count, void *elements) {
  *count = room ? std::min<int64_t>(room, int64_t(values.size())) : int64_t(values.size());
  if (room)
    std::memcpy(elements, values.data(), size_t(*count) * sizeof(T));
  return SUCCESS;
}

/// As cuDNN does, counts one more than it fills.
static int giveConfigs(int64_t room, int64_t *count, void *elements) {
  if (isWished("abort"))
    std::abort();
  int64_t there = isWished("none") ? 0 : int64_t(std::size(configs));
  *count = room ? there : there + 1;
  for (int64_t i = 0; room && i < there; ++i)
    static_cast<Descriptor *>(static_cast<void **>(elements)[i])->config = i;
  return SUCCESS;
}

extern "C" {

/// What was noted since the last call.
const char *fakeCudnnTakeLog() {
  static std::string taken;
  taken = std::move(log);
  log.clear();
  return taken.c_str();
}
void fakeCudnnSetVersion(size_t number) { version = number; }
void fakeCudnnSetDriver(int number) { driver = number; }
void fakeCudnnSetLoadedExtra(int64_t bytes) { loadedExtra = bytes; }

size_t cudnnGetVersion() {
  const char *wish = std::getenv("FAKE_CUDNN");
  return wish && std::atoll(wish) ? size_t(std::atoll(wish)) : version;
}
void cudnnGetLastErrorString(char *text, size_t bytes) {
  std::snprintf(text, bytes, "%s", lastError.c_str());
}

int cudnnCreate(CudnnHandle *handle) {
  *handle = reinterpret_cast<CudnnHandle>(0x9000);
  return SUCCESS;
}
int cudnnDestroy(CudnnHandle) {
  log += "destroy\n";
  return SUCCESS;
}
int cudnnSetStream(CudnnHandle, CUstream stream) {
  char text[64];
  std::snprintf(text, sizeof text, "stream %p\n", static_cast<void *>(stream));
  log += text;
  return SUCCESS;
}

int cudnnBackendCreateDescriptor(int type, CudnnDescriptor *descriptor) {
  *descriptor = new Descriptor{type, false, -1, {}};
  return SUCCESS;
}
int cudnnBackendDestroyDescriptor(CudnnDescriptor descriptor) {
  delete static_cast<Descriptor *>(descriptor);
  return SUCCESS;
}

/// Final, or one that cuDNN itself has filled.
static bool isUsable(const void *object) {
  const auto &descriptor = *static_cast<const Descriptor *>(object);
  return descriptor.isFinal || descriptor.config >= 0;
}

int cudnnBackendSetAttribute(CudnnDescriptor object, int name, int type, int64_t count,
                             const void *elements) {
  auto &descriptor = *static_cast<Descriptor *>(object);
  if (descriptor.isFinal)
    return refuse(BAD_PARAM, "it is final");
  if (count < 1 || !elements)
    return refuse(BAD_PARAM, "attribute " + std::to_string(name) + " has no elements");
  if (type == cudnn::TYPE_DESCRIPTOR)
    for (int64_t i = 0; i < count; ++i)
      if (!isUsable(static_cast<void *const *>(elements)[i]))
        return refuse(BAD_PARAM,
                      "a descriptor of attribute " + std::to_string(name) + " is not final");
  const char *bytes = static_cast<const char *>(elements);
  descriptor.attributes[name].assign(bytes, bytes + size_t(count) * getSize(type));
  return SUCCESS;
}

int cudnnBackendFinalize(CudnnDescriptor object) {
  auto &descriptor = *static_cast<Descriptor *>(object);
  descriptor.isFinal = true;
  note(descriptor);
  if (descriptor.type == cudnn::DEVICE_PROPERTIES) {
    knownSms = getDeviceSms(descriptor.getText(cudnn::DEVICE_JSON));
    return knownSms ? SUCCESS : refuse(BAD_PARAM, "multiProcessorCount is missing");
  }
  return descriptor.type == cudnn::EXECUTION_PLAN ? finishPlan(descriptor) : SUCCESS;
}

int cudnnBackendGetAttribute(CudnnDescriptor object, int name, int, int64_t room, int64_t *count,
                             void *elements) {
  const auto &descriptor = *static_cast<Descriptor *>(object);
  const Config *config = descriptor.config < 0 ? nullptr : &configs[descriptor.config];
  switch (name) {
  case cudnn::HEURISTICS_RESULTS:
    return giveConfigs(room, count, elements);
  case cudnn::CONFIG_ENGINE:
    *count = 1;
    if (room)
      static_cast<Descriptor *>(*static_cast<void **>(elements))->config = descriptor.config;
    return SUCCESS;
  case cudnn::CONFIG_KNOBS:
    *count = 0;
    return SUCCESS;
  case cudnn::ENGINE_INDEX:
    return give(std::vector<int64_t>{config->engine}, room, count, elements);
  case cudnn::ENGINE_NUMERICAL_NOTES:
    return give(config->numericalNotes, room, count, elements);
  case cudnn::ENGINE_BEHAVIOR_NOTES:
    return give(config->behaviorNotes, room, count, elements);
  case cudnn::PLAN_WORKSPACE:
    return give(
        std::vector<int64_t>{config->workspace + (descriptor.attributes.count(cudnn::PLAN_JSON) &&
                                                          config->workspace >= 1000
                                                      ? loadedExtra
                                                      : 0)},
        room, count, elements);
  case cudnn::PLAN_JSON: {
    std::string text = "config " + std::to_string(descriptor.config) + ", " +
                       std::to_string(knownSms) + " multiprocessors";
    return give(std::vector<char>(text.begin(), text.end()), room, count, elements);
  }
  default:
    return refuse(BAD_PARAM, "attribute " + std::to_string(name) + " is not known");
  }
}

int cudnnBackendExecute(CudnnHandle, CudnnDescriptor plan, CudnnDescriptor pack) {
  const auto &what = *static_cast<Descriptor *>(plan), &with = *static_cast<Descriptor *>(pack);
  if (!what.isFinal || !with.isFinal)
    return refuse(BAD_PARAM, "the plan or its pack is not final");
  if (reinterpret_cast<uintptr_t>(with.get<void *>(cudnn::PACK_WORKSPACE).at(0)) % 256)
    return refuse(BAD_PARAM, "the workspace begins at no multiple of 256");
  for (const void *pointer : with.get<void *>(cudnn::PACK_POINTERS))
    if (reinterpret_cast<uintptr_t>(pointer) % 16) // what tensors were said to begin at
      return refuse(BAD_PARAM, "a tensor begins at no multiple of 16");
  log += "execute " + what.getText(cudnn::PLAN_JSON) + " on";
  char text[64];
  std::vector<int64_t> numbers = with.get<int64_t>(cudnn::PACK_IDS);
  std::vector<void *> pointers = with.get<void *>(cudnn::PACK_POINTERS);
  for (size_t i = 0; i < numbers.size(); ++i) {
    std::snprintf(text, sizeof text, " %d=%p", int(numbers[i]), pointers.at(i));
    log += text;
  }
  std::snprintf(text, sizeof text, " workspace %p\n",
                with.get<void *>(cudnn::PACK_WORKSPACE).at(0));
  log += text;
  return SUCCESS;
}
}
