//===- LibraryCallBenchmark.cpp - speed of library calls --------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Prints GFLOP/s, GB/s (operands and results once) and workspace bytes of calls at the shapes of
// ResNet-50, MobileNets and ViT-S/16 (batch 16) and GPT-2 (2 x 512 tokens). The label names the
// implementation. MEMOPT_THREADS sets the number of threads.

#include "memopt-runtime/descriptors/LibraryCalls.h"
#include "memopt-runtime/threads/ThreadPool.h"
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <vector>

using namespace memopt;
using nlohmann::json;

static int threadCount() {
  const char *text = std::getenv("MEMOPT_THREADS");
  return text ? std::max(1, std::atoi(text)) : 2;
}

template <typename T> static void fill(void *buffer, int64_t bytes) {
  auto *values = static_cast<T *>(buffer);
  for (int64_t i = 0; i < bytes / int64_t(sizeof(T)); ++i)
    values[i] = static_cast<T>(i % 13) * T(0.1) - T(0.6);
}

/// `elements`: of each operand and result.
static void run(benchmark::State &state, const json &descriptor,
                const std::vector<int64_t> &elements, double flops) {
  auto call = LibraryCall::create(descriptor, threadCount());
  auto pool = ThreadPool::create(threadCount(), call.isOk() ? (*call)->getTeam() : 1);
  if (!call.isOk() || !pool.isOk())
    return state.SkipWithError((call.getMessage() + pool.getMessage()).c_str());
  std::vector<std::unique_ptr<char, decltype(&std::free)>> storage;
  std::vector<void *> buffers;
  // In large pages, as the arena of a program is.
  auto add = [&](int64_t bytes) {
    constexpr int64_t page = int64_t(1) << 21;
    int64_t total = (bytes + page) / page * page;
    storage.emplace_back(static_cast<char *>(std::aligned_alloc(page, total)), &std::free);
    ::madvise(storage.back().get(), total, MADV_HUGEPAGE);
    buffers.push_back(storage.back().get());
    return buffers.back();
  };
  std::string type = descriptor["dtype"];
  int64_t width = type == "f64" ? 8 : type == "f32" ? 4 : 2;
  double bytes = 0;
  for (int64_t count : elements) {
    bytes += static_cast<double>(count * width);
    if (width == 8)
      fill<double>(add(count * width), count * width);
    else // halves of these numbers are numbers of 16 bits, too
      fill<float>(add(count * width), count * width);
  }
  add((*call)->workspaceBytes());
  for (auto _ : state)
    if (Status status = (*call)->run(buffers.data(), **pool); !status.isOk())
      return state.SkipWithError(status.getMessage().c_str());
  state.SetLabel((*call)->implementation());
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9 * double(state.iterations()), benchmark::Counter::kIsRate);
  state.counters["GB/s"] =
      benchmark::Counter(bytes * 1e-9 * double(state.iterations()), benchmark::Counter::kIsRate);
  state.counters["workspace"] = static_cast<double>((*call)->workspaceBytes());
}

static void addMatmul(const std::string &name, int64_t m, int64_t n, int64_t k, bool transposeA,
                      bool transposeB, const char *type = "f32", bool reference = false,
                      bool own = false) {
  using List = std::vector<int64_t>;
  // Our own f32 kernels run what oneDNN cannot: a result whose columns are strided.
  int64_t step = own ? 2 : 1;
  json descriptor = {{"kind", "matmul"},
                     {"dtype", type},
                     {"batch", json::array()},
                     {"m", m},
                     {"n", n},
                     {"k", k},
                     {"a_strides", transposeA ? List{1, m} : List{k, 1}},
                     {"b_strides", transposeB ? List{1, k} : List{n, 1}},
                     {"c_strides", List{n * step, step}},
                     {"reference", reference}};
  benchmark::RegisterBenchmark(("matmul/" + name).c_str(),
                               [=](benchmark::State &state) {
                                 run(state, descriptor, {m * k, k * n, m * n * step},
                                     2.0 * double(m) * double(n) * double(k));
                               })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

struct Convolution {
  const char *name;
  int64_t images, inputs, size, outputs, taps, stride, padding, groups;
};

static void addConvolution(const Convolution &c, int direction, const char *layout,
                           const char *type = "f32") {
  const char *names[] = {"convolution_forward", "convolution_backward_data",
                         "convolution_backward_weights"};
  using List = std::vector<int64_t>;
  int64_t output = (c.size + 2 * c.padding - c.taps) / c.stride + 1;
  json descriptor = {{"kind", names[direction]},
                     {"dtype", type},
                     {"layout", layout},
                     {"input", List{c.images, c.inputs, c.size, c.size}},
                     {"output", List{c.images, c.outputs, output, output}},
                     {"weight", List{c.outputs, c.inputs / c.groups, c.taps, c.taps}},
                     {"strides", List{c.stride, c.stride}},
                     {"padding_lower", List{c.padding, c.padding}},
                     {"padding_upper", List{c.padding, c.padding}},
                     {"dilations", List{1, 1}},
                     {"groups", c.groups},
                     {"bias", false}};
  int64_t x = c.images * c.inputs * c.size * c.size, y = c.images * c.outputs * output * output;
  int64_t w = c.outputs * (c.inputs / c.groups) * c.taps * c.taps;
  std::vector<int64_t> elements = direction == 0   ? List{x, w, y}
                                  : direction == 1 ? List{y, w, x}
                                                   : List{x, y, w};
  double flops = 2.0 * double(y) * double(c.inputs / c.groups * c.taps * c.taps);
  std::string name = std::string(names[direction]) + "/" + layout + "/" + type + "/" + c.name;
  benchmark::RegisterBenchmark(
      name.c_str(), [=](benchmark::State &state) { run(state, descriptor, elements, flops); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

struct Attention {
  const char *name;
  int64_t batch, heads, tokens, features;
  bool causal;
  double dropout;
  bool tokensFirst = false; ///< samples lie within tokens, as in torch.nn.MultiheadAttention
};

static void addAttention(const Attention &a, bool backward) {
  using List = std::vector<int64_t>;
  // Views of one [batch, tokens, 3, heads, features]; results the same but one at a time.
  int64_t row = a.heads * a.features;
  auto lines = [&](int64_t line) {
    return a.tokensFirst ? List{line, a.features, a.batch * line, 1}
                         : List{a.tokens * line, a.features, line, 1};
  };
  List fused = lines(3 * row), single = lines(row);
  json descriptor = {{"kind", backward ? "attention_backward" : "attention_forward"},
                     {"dtype", "f32"},
                     {"batch", a.batch},
                     {"heads", a.heads},
                     {"kv_heads", a.heads},
                     {"query_length", a.tokens},
                     {"key_length", a.tokens},
                     {"head_dim", a.features},
                     {"value_dim", a.features},
                     {"scale", 0.125},
                     {"causal", a.causal},
                     {"q_strides", fused},
                     {"k_strides", fused},
                     {"v_strides", fused},
                     {"o_strides", single},
                     {"do_strides", single},
                     {"dq_strides", fused},
                     {"dk_strides", fused},
                     {"dv_strides", fused}};
  int64_t view = a.batch * a.tokens * 3 * row, whole = a.batch * a.tokens * row;
  List elements = {view, view, view};
  if (a.dropout > 0) {
    descriptor["dropout"] = {{"probability", a.dropout}, {"id", 1}};
    elements.insert(elements.end(), {2, 2});
  }
  elements.insert(elements.end(), {whole, a.batch * a.heads * a.tokens});
  if (backward)
    elements.insert(elements.end(), {whole, view, view, view});
  double scores =
      double(a.batch * a.heads) * double(a.tokens) * double(a.tokens) * (a.causal ? 0.5 : 1.0);
  double flops = scores * double(a.features) * 2 * (backward ? 5 : 2);
  std::string name = std::string(backward ? "attention_backward/" : "attention_forward/") + a.name;
  benchmark::RegisterBenchmark(
      name.c_str(), [=](benchmark::State &state) { run(state, descriptor, elements, flops); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

int main(int argc, char **argv) {
  addMatmul("gpt2_qkv", 1024, 2304, 768, false, true);
  addMatmul("gpt2_qkv_dx", 1024, 768, 2304, false, false);
  addMatmul("gpt2_qkv_dw", 2304, 768, 1024, true, false);
  addMatmul("gpt2_mlp", 1024, 3072, 768, false, true);
  addMatmul("gpt2_mlp_dx", 1024, 768, 3072, false, false);
  addMatmul("gpt2_head", 1024, 50257, 768, false, true);
  addMatmul("gpt2_head_tile", 64, 50257, 768, false, true);
  addMatmul("gpt2_head_tile_dx", 64, 768, 50257, false, false);
  addMatmul("gpt2_head_tile_dw", 50257, 768, 64, true, false);
  addMatmul("vit_qkv", 3152, 1152, 384, false, true);
  addMatmul("vit_mlp", 3152, 1536, 384, false, true);
  addMatmul("vit_mlp_dx", 3152, 384, 1536, false, false);
  addMatmul("vit_mlp_dw", 1536, 384, 3152, true, false);
  addMatmul("vit_mlp_out_dw", 384, 1536, 3152, true, false);
  addMatmul("vit_qkv_dw", 1152, 384, 3152, true, false);
  addMatmul("vit_out_dw", 384, 384, 3152, true, false);
  addMatmul("recurrent_turn", 32, 1024, 256, false, true);
  addMatmul("recurrent_turn_dx", 32, 256, 1024, false, false);
  addMatmul("small", 64, 64, 64, false, true);
  addMatmul("tiny", 8, 8, 8, false, true);
  addMatmul("row", 1, 768, 768, false, true);
  addMatmul("own/gpt2_mlp", 1024, 3072, 768, false, true, "f32", false, true);
  addMatmul("own/gpt2_mlp_dx", 1024, 768, 3072, false, false, "f32", false, true);
  addMatmul("f64/gpt2_mlp", 1024, 3072, 768, false, true, "f64");
  addMatmul("reference/gpt2_mlp", 1024, 3072, 768, false, true, "f32", true);
  const Convolution convolutions[] = {{"stem", 16, 3, 224, 64, 7, 2, 3, 1},
                                      {"1x1_64_256", 16, 64, 56, 256, 1, 1, 0, 1},
                                      {"1x1_256_64", 16, 256, 56, 64, 1, 1, 0, 1},
                                      {"1x1_128_512", 16, 128, 28, 512, 1, 1, 0, 1},
                                      {"1x1_1024_256", 16, 1024, 14, 256, 1, 1, 0, 1},
                                      {"1x1_512_2048", 16, 512, 7, 2048, 1, 1, 0, 1},
                                      {"3x3_16", 16, 16, 56, 16, 3, 1, 1, 1},
                                      {"3x3_64", 16, 64, 56, 64, 3, 1, 1, 1},
                                      {"3x3_128", 16, 128, 28, 128, 3, 1, 1, 1},
                                      {"3x3_128_s2", 16, 128, 56, 128, 3, 2, 1, 1},
                                      {"3x3_256", 16, 256, 14, 256, 3, 1, 1, 1},
                                      {"1x1_512_1024_s2", 16, 512, 28, 1024, 1, 2, 0, 1},
                                      {"3x3_512", 16, 512, 7, 512, 3, 1, 1, 1},
                                      {"depthwise_32", 16, 32, 112, 32, 3, 1, 1, 32},
                                      {"depthwise_144", 16, 144, 56, 144, 3, 1, 1, 144},
                                      {"depthwise_144_s2", 16, 144, 56, 144, 3, 2, 1, 144},
                                      {"depthwise_384", 16, 384, 14, 384, 3, 1, 1, 384},
                                      {"depthwise_5x5_120", 16, 120, 28, 120, 5, 1, 2, 120},
                                      {"depthwise_5x5_672", 16, 672, 14, 672, 5, 1, 2, 672},
                                      {"depthwise_7x7_96", 16, 96, 56, 96, 7, 1, 3, 96},
                                      {"groups_of_4", 16, 128, 56, 128, 3, 1, 1, 32},
                                      {"patch_384", 16, 3, 224, 384, 16, 16, 0, 1}};
  for (int direction = 0; direction < 3; ++direction)
    for (const char *layout : {"nhwc", "nchw"})
      for (const Convolution &convolution : convolutions)
        addConvolution(convolution, direction, layout);
  // Types that no processor multiplies, or few.
  for (int direction = 0; direction < 3; ++direction)
    for (const char *type : {"f64", "bf16"})
      addConvolution({"depthwise_144", 16, 144, 56, 144, 3, 1, 1, 144}, direction, "nhwc", type);
  const Attention attentions[] = {{"gpt2", 2, 12, 512, 64, true, 0},
                                  {"gpt2_dropout", 2, 12, 512, 64, true, 0.1},
                                  {"vit", 16, 6, 197, 64, false, 0},
                                  {"vit_tokens_first", 16, 6, 197, 64, false, 0, true},
                                  {"long", 1, 12, 4096, 64, true, 0}};
  for (bool backward : {false, true})
    for (const Attention &attention : attentions)
      addAttention(attention, backward);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
