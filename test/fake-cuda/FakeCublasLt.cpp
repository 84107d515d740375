//===- FakeCublasLt.cpp - a cuBLASLt that computes nothing ----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Its one kernel needs 4096 bytes of workspace. What NVIDIA's documentation demands is held: sizes
// of attributes, the alignment of the workspace, and that operands begin where heuristics were
// told.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/CublasLt.h"
#include <algorithm>
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

enum : int { INVALID_VALUE = 7 };

/// Notes why a call is refused, for tests to see.
static int refuse(const std::string &reason) {
  log += "refused: " + reason + "\n";
  return INVALID_VALUE;
}

/// Of attributes with 8 bytes; the others have 4.
static int set(void *object, int name, const void *value, size_t bytes,
               std::initializer_list<int> wide) {
  size_t expected = std::find(wide.begin(), wide.end(), name) == wide.end() ? 4 : 8;
  if (bytes != expected)
    return refuse("attribute " + std::to_string(name) + " has " + std::to_string(expected) +
                  " bytes, not " + std::to_string(bytes));
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
  return set(descriptor, name, value, bytes, {cublaslt::DESC_BIAS_POINTER});
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
  return set(layout, name, value, bytes, {cublaslt::LAYOUT_BATCH_STRIDE});
}

int cublasLtMatmulPreferenceCreate(void **preference) {
  *preference = new Object{"preference", {}};
  return 0;
}
int cublasLtMatmulPreferenceDestroy(void *preference) { return destroy(preference); }
int cublasLtMatmulPreferenceSetAttribute(void *preference, int name, const void *value,
                                         size_t bytes) {
  return set(preference, name, value, bytes, {cublaslt::PREFERENCE_WORKSPACE});
}

/// What heuristics were told of matrix a, b, c or d; 256 where they were not.
static uint64_t getAlignment(const Object &preference, int matrix) {
  auto told = preference.attributes.find(cublaslt::PREFERENCE_ALIGNMENT_A + matrix);
  return told == preference.attributes.end() ? 256 : told->second;
}

/// What is wrong with the places of a product; empty where nothing is.
static std::string findMisplaced(const Object &descriptor, const CublasLtAlgorithm &algorithm,
                                 std::initializer_list<const void *> matrices,
                                 const void *workspace, size_t workspaceBytes) {
  auto at = [](const void *address) { return reinterpret_cast<uintptr_t>(address); };
  int number = 0;
  for (const void *matrix : matrices)
    if (uint64_t told = algorithm.data[1 + number++]; at(matrix) % told)
      return "matrix " + std::string(1, char('a' + number - 1)) + " begins at no multiple of " +
             std::to_string(told);
  if (workspaceBytes && at(workspace) % 256)
    return "the workspace begins at no multiple of 256";
  auto bias = descriptor.attributes.find(cublaslt::DESC_BIAS_POINTER);
  if (bias != descriptor.attributes.end() && bias->second % 16)
    return "the bias begins at no multiple of 16";
  return "";
}

int cublasLtMatmulAlgoGetHeuristic(CublasLtHandle, void *descriptor, void *a, void *b, void *c,
                                   void *d, void *preference, int, CublasLtHeuristic *results,
                                   int *count) {
  const auto &wanted = *static_cast<Object *>(preference);
  for (void *object : {descriptor, a, b, d, preference})
    log += print(*static_cast<Object *>(object)) + "\n";
  *count = c == d && wanted.attributes.at(cublaslt::PREFERENCE_WORKSPACE) >= 4096;
  *results = {{{42}}, 4096, 0, 1.0f, {}};
  for (int i = 0; i < 4; ++i)
    results->algorithm.data[1 + i] = getAlignment(wanted, i);
  return *count ? 0 : 15; // not supported
}

int cublasLtMatmul(CublasLtHandle, void *descriptor, const void *alpha, const void *a, void *,
                   const void *b, void *, const void *beta, const void *c, void *, void *d, void *,
                   const CublasLtAlgorithm *algorithm, void *workspace, size_t workspaceBytes,
                   CUstream stream) {
  std::string wrong = findMisplaced(*static_cast<Object *>(descriptor), *algorithm, {a, b, c, d},
                                    workspace, workspaceBytes);
  if (!wrong.empty())
    return refuse(wrong);
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
