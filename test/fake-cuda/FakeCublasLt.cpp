//===- FakeCublasLt.cpp - a cuBLASLt that computes nothing ----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Its one kernel needs 4096 bytes of workspace.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/CublasLt.h"
#include <cstdio>
#include <cstring>
#include <map>

using namespace memopt::cuda;

namespace {
struct Object {
  std::string text;
  std::map<int, uint64_t> attributes;
};
} // namespace

static std::string log;

static std::string print(const Object &object) {
  std::string text = object.text;
  for (auto [name, value] : object.attributes)
    text += " " + std::to_string(name) + "=" + std::to_string(value);
  return text;
}

static int set(void *object, int name, const void *value, size_t bytes) {
  uint64_t number = 0;
  std::memcpy(&number, value, bytes);
  static_cast<Object *>(object)->attributes[name] = number;
  return 0;
}

static int destroy(void *object) {
  delete static_cast<Object *>(object);
  return 0;
}

extern "C" {

/// What was noted since the last call.
const char *fakeCublasTakeLog() {
  static std::string taken;
  taken = std::move(log);
  log.clear();
  return taken.c_str();
}

const char *cublasLtGetStatusString(int) { return "this is a fake"; }
int cublasLtCreate(CublasLtHandle *handle) {
  *handle = reinterpret_cast<CublasLtHandle>(0x7000);
  return 0;
}
int cublasLtDestroy(CublasLtHandle) { return 0; }

int cublasLtMatmulDescCreate(void **descriptor, int computeType, int scaleType) {
  *descriptor = new Object{
      "compute " + std::to_string(computeType) + " scale " + std::to_string(scaleType), {}};
  return 0;
}
int cublasLtMatmulDescDestroy(void *descriptor) { return destroy(descriptor); }
int cublasLtMatmulDescSetAttribute(void *descriptor, int name, const void *value, size_t bytes) {
  return set(descriptor, name, value, bytes);
}

int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns,
                               int64_t leadingDimension) {
  *layout = new Object{"type " + std::to_string(type) + " " + std::to_string(rows) + "x" +
                           std::to_string(columns) + " by " + std::to_string(leadingDimension),
                       {}};
  return 0;
}
int cublasLtMatrixLayoutDestroy(void *layout) { return destroy(layout); }
int cublasLtMatrixLayoutSetAttribute(void *layout, int name, const void *value, size_t bytes) {
  return set(layout, name, value, bytes);
}

int cublasLtMatmulPreferenceCreate(void **preference) {
  *preference = new Object{"preference", {}};
  return 0;
}
int cublasLtMatmulPreferenceDestroy(void *preference) { return destroy(preference); }
int cublasLtMatmulPreferenceSetAttribute(void *preference, int name, const void *value,
                                         size_t bytes) {
  return set(preference, name, value, bytes);
}

int cublasLtMatmulAlgoGetHeuristic(CublasLtHandle, void *descriptor, void *a, void *b, void *c,
                                   void *d, void *preference, int, CublasLtHeuristic *results,
                                   int *count) {
  const auto &wanted = *static_cast<Object *>(preference);
  for (void *object : {descriptor, a, b, d, preference})
    log += print(*static_cast<Object *>(object)) + "\n";
  *count = c == d && wanted.attributes.at(cublaslt::PREFERENCE_WORKSPACE) >= 4096;
  *results = {{{42}}, 4096, 0, 1.0f, {}};
  return *count ? 0 : 15; // not supported
}

int cublasLtMatmul(CublasLtHandle, void *descriptor, const void *alpha, const void *a, void *,
                   const void *b, void *, const void *beta, const void *, void *, void *d, void *,
                   const CublasLtAlgorithm *algorithm, void *workspace, size_t workspaceBytes,
                   CUstream stream) {
  char text[256];
  std::snprintf(text, sizeof text,
                "multiply %p %p to %p kernel %d alpha %g beta %g workspace %p of %zu stream %p\n",
                a, b, d, int(algorithm->data[0]), double(*static_cast<const float *>(alpha)),
                double(*static_cast<const float *>(beta)), workspace, workspaceBytes,
                static_cast<void *>(stream));
  log += text;
  auto &attributes = static_cast<Object *>(descriptor)->attributes;
  if (auto bias = attributes.find(cublaslt::DESC_BIAS_POINTER); bias != attributes.end()) {
    std::snprintf(text, sizeof text, "bias 0x%llx\n", (unsigned long long)bias->second);
    log += text;
  }
  return 0;
}
}
