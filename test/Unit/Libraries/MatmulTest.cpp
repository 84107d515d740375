//===- MatmulTest.cpp - matmul calls against plain loops --------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LibraryCallTesting.h"
#include "memopt-runtime/descriptors/MatmulDescriptor.h"
#include "memopt-runtime/threads/ThreadPool.h"
#include <cmath>
#include <limits>

using namespace memopt;
using namespace memopt::libraries;
using namespace memopt::librarytest;
using nlohmann::json;

namespace {

using Extents = std::vector<int64_t>;

struct Case {
  const char *name;
  Extents batch;
  int64_t m, n, k;
  Extents a, b, c; ///< strides
  bool bias = false, accumulate = false;
  const char *counted = ""; ///< "m" or "k"
  int64_t every = 3;        ///< lines of which one is not counted, or 1 for none that is

  bool isCounted(const char *lines, int64_t line) const {
    return counted != std::string(lines) || line % every != every / 2;
  }
};

int64_t lengthOf(Extents extents, const Extents &strides) {
  int64_t last = 0;
  for (size_t i = 0; i < extents.size(); ++i)
    last += (extents[i] - 1) * strides[i];
  return last + 1;
}

Extents append(Extents batch, int64_t rows, int64_t columns) {
  batch.insert(batch.end(), {rows, columns});
  return batch;
}

json describe(const Case &c, const char *type, bool reference) {
  json descriptor = {{"kind", "matmul"},
                     {"dtype", type},
                     {"batch", c.batch},
                     {"m", c.m},
                     {"n", c.n},
                     {"k", c.k},
                     {"a_strides", c.a},
                     {"b_strides", c.b},
                     {"c_strides", c.c},
                     {"bias", nullptr},
                     {"accumulate", c.accumulate},
                     {"post", nullptr},
                     {"reference", reference}};
  if (c.bias)
    descriptor["bias"] = "n";
  if (*c.counted)
    descriptor["counted"] = c.counted;
  return descriptor;
}

/// The result has elements of type R.
template <typename T, typename R = T> struct Data {
  std::vector<T> a, b;
  std::vector<Wide<T>> bias;
  std::vector<uint8_t> mask;
  std::vector<R> addend, c;
  explicit Data(const Case &k)
      : a(randomValues<T>(lengthOf(append(k.batch, k.m, k.k), k.a), 1)),
        b(randomValues<T>(lengthOf(append(k.batch, k.k, k.n), k.b), 2)),
        bias(randomValues<Wide<T>>(k.n, 3)),
        addend(randomValues<R>(lengthOf(append(k.batch, k.m, k.n), k.c), 5)),
        c(randomValues<R>(lengthOf(append(k.batch, k.m, k.n), k.c), 4)) {
    for (int64_t i = 0, length = *k.counted == 'm' ? k.m : k.k; i < length; ++i)
      mask.push_back(k.isCounted(k.counted, i));
  }

  std::vector<Buffer> buffers(const Case &k) const {
    std::vector<Buffer> list = {Buffer::of(a), Buffer::of(b)};
    if (k.bias)
      list.push_back(Buffer::of(bias));
    if (*k.counted)
      list.push_back(Buffer::of(mask));
    if (k.accumulate)
      list.push_back(Buffer::of(addend));
    list.push_back(Buffer::of(c));
    return list;
  }
};

/// The result in double and, for each element, the sum of magnitudes that errors are relative to.
template <typename T, typename R>
void multiply(const Case &c, const Data<T, R> &data, std::vector<double> &result,
              std::vector<double> &scale) {
  result.assign(data.c.begin(), data.c.end());
  scale.assign(result.size(), 0);
  int64_t batches = 1;
  for (int64_t extent : c.batch)
    batches *= extent;
  size_t rank = c.batch.size();
  for (int64_t index = 0; index < batches; ++index) {
    int64_t a = 0, b = 0, target = 0, rest = index;
    for (size_t i = rank; i-- > 0; rest /= c.batch[i]) {
      a += rest % c.batch[i] * c.a[i];
      b += rest % c.batch[i] * c.b[i];
      target += rest % c.batch[i] * c.c[i];
    }
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < c.n; ++j) {
        double sum = c.bias ? data.bias[j] : 0, magnitude = std::abs(sum);
        for (int64_t k = 0; k < c.k; ++k) {
          if (!c.isCounted("m", i) || !c.isCounted("k", k))
            continue;
          double term = double(data.a[a + i * c.a[rank] + k * c.a[rank + 1]]) *
                        double(data.b[b + k * c.b[rank] + j * c.b[rank + 1]]);
          sum += term;
          magnitude += std::abs(term);
        }
        int64_t place = target + i * c.c[rank] + j * c.c[rank + 1];
        if (c.accumulate)
          sum += data.addend[place];
        result[place] = sum;
        scale[place] = magnitude + 1;
      }
  }
}

/// The product, element by element, with what errors are relative to.
template <typename T, typename R = T> struct Product {
  std::vector<double> expected, scale;
  Product(const Case &c, const Data<T, R> &data) { multiply(c, data, expected, scale); }

  void expectIn(Buffer &buffer, double tolerance) const {
    std::vector<R> found = buffer.template values<R>();
    for (size_t i = 0; i < found.size(); ++i)
      // An element that no index reaches keeps its value: its scale is zero.
      ASSERT_LE(std::abs(found[i] - expected[i]),
                scale[i] == 0 ? 0 : withRounding<R>(tolerance * scale[i], expected[i]))
          << "element " << i;
  }
};

template <typename T, typename R = T>
void check(const Case &c, const char *type, bool reference, double tolerance) {
  SCOPED_TRACE(std::string(c.name) + " " + type + (reference ? " reference" : ""));
  if (c.bias || c.accumulate) // the product is rounded before it is added
    tolerance += double(std::numeric_limits<Wide<T>>::epsilon());
  Data<T, R> data(c);
  std::vector<Buffer> buffers = data.buffers(c);
  json descriptor = describe(c, type, reference);
  if (!std::is_same_v<T, R>)
    descriptor["result_dtype"] = "f32";
  std::string implementation = runCall(descriptor, buffers);
  SCOPED_TRACE(implementation);
  Product<T, R>(c, data).expectIn(buffers.back(), tolerance);
}

const Case cases[] = {
    {"plain", {}, 37, 29, 53, {53, 1}, {29, 1}, {29, 1}},
    {"one element", {}, 1, 1, 1, {1, 1}, {1, 1}, {1, 1}},
    {"row times matrix", {}, 1, 70, 33, {33, 1}, {70, 1}, {70, 1}},
    {"matrix times column", {}, 70, 1, 33, {33, 1}, {1, 1}, {1, 1}},
    {"outer product", {}, 40, 50, 1, {1, 1}, {50, 1}, {50, 1}},
    {"linear layer", {}, 200, 192, 128, {128, 1}, {1, 128}, {192, 1}, true},
    {"linear layer, weight [in, out]", {}, 200, 192, 128, {128, 1}, {192, 1}, {192, 1}, true},
    {"gradient of weights", {}, 96, 130, 300, {1, 96}, {130, 1}, {130, 1}},
    {"both transposed", {}, 45, 67, 89, {1, 45}, {1, 89}, {67, 1}},
    {"padded rows", {}, 45, 67, 89, {100, 1}, {70, 1}, {80, 1}},
    {"accumulating", {}, 64, 64, 40, {40, 1}, {64, 1}, {64, 1}, false, true},
    {"accumulating many blocks", {}, 301, 283, 40, {40, 1}, {283, 1}, {290, 1}, false, true},
    {"accumulating deep", {}, 101, 83, 600, {600, 1}, {83, 1}, {83, 1}, false, true},
    {"accumulating with bias", {}, 33, 65, 40, {40, 1}, {1, 40}, {65, 1}, true, true},
    {"accumulating beside gaps",
     {2},
     33,
     65,
     40,
     {0, 40, 1},
     {0, 65, 1},
     {2400, 70, 1},
     false,
     true},
    {"accumulating transposed", {}, 50, 60, 70, {70, 1}, {60, 1}, {1, 50}, false, true},
    {"batch", {3}, 20, 24, 16, {320, 16, 1}, {384, 24, 1}, {480, 24, 1}},
    {"sequence of one weight", {4}, 32, 48, 16, {512, 16, 1}, {0, 48, 1}, {1536, 48, 1}, true},
    {"one left operand for all", {4}, 32, 48, 16, {0, 16, 1}, {768, 48, 1}, {1536, 48, 1}},
    {"two batch dimensions, outer broadcast",
     {2, 3},
     9,
     10,
     11,
     {297, 99, 11, 1},
     {0, 110, 10, 1},
     {270, 90, 10, 1}},
    {"two batch dimensions, inner broadcast",
     {2, 3},
     9,
     10,
     11,
     {99, 0, 11, 1},
     {330, 110, 10, 1},
     {270, 90, 10, 1}},
    {"heads inside a fused projection",
     {2, 3},
     17,
     17,
     8,
     {17 * 72, 8, 72, 1},
     {17 * 72, 8, 1, 72},
     {3 * 289, 289, 17, 1}},
    {"result is a view",
     {2, 3},
     17,
     8,
     17,
     {3 * 289, 289, 17, 1},
     {17 * 72, 8, 72, 1},
     {17 * 24, 8, 24, 1}},
    {"no unit stride", {}, 50, 60, 70, {210, 3}, {240, 4}, {120, 2}},
    {"transposed result", {}, 50, 60, 70, {70, 1}, {60, 1}, {1, 50}},
    {"every row the same", {}, 20, 30, 40, {0, 1}, {30, 1}, {30, 1}},
    {"deep", {}, 12, 20, 5000, {1, 12}, {20, 1}, {20, 1}},
    {"many blocks", {}, 300, 280, 600, {600, 1}, {1, 600}, {280, 1}},
    {"many blocks with edges", {}, 301, 283, 600, {600, 1}, {1, 600}, {304, 1}, true},
    {"many blocks of a transposed operand", {}, 301, 283, 600, {1, 301}, {283, 1}, {288, 1}},
    {"rows that count", {}, 300, 280, 600, {600, 1}, {1, 600}, {280, 1}, false, false, "m"},
    {"rows that count, biased", {}, 70, 50, 90, {1, 70}, {50, 1}, {50, 1}, true, false, "m", 2},
    {"rows that count, added", {}, 70, 50, 90, {90, 1}, {50, 1}, {1, 70}, false, true, "m", 5},
    {"few rows, deep", {}, 12, 20, 5000, {1, 12}, {20, 1}, {20, 1}, false, false, "m"},
    {"no row that counts", {}, 20, 30, 40, {40, 1}, {30, 1}, {30, 1}, true, false, "m", 1},
    {"terms that count", {}, 96, 130, 300, {1, 96}, {130, 1}, {130, 1}, false, false, "k"},
    {"terms that count, added", {}, 50, 60, 700, {700, 1}, {1, 700}, {60, 1}, false, true, "k", 2},
    {"terms that count, deep", {}, 12, 20, 5000, {1, 12}, {20, 1}, {20, 1}, false, false, "k"},
    {"no term that counts", {}, 20, 30, 40, {40, 1}, {30, 1}, {30, 1}, true, true, "k", 1},
};

} // namespace

TEST(Matmul, AgreesWithPlainLoops) {
  for (const Case &c : cases) {
    check<float>(c, "f32", false, 1e-6);
    check<float>(c, "f32", true, 6e-8);
    check<double>(c, "f64", false, 2e-15);
  }
}

/// Sums of 16-bit numbers are as exact as those of others; what is stored is rounded once.
TEST(Matmul, RoundsHalvesOnce) {
  for (const Case &c : cases) {
    check<BFloat16>(c, "bf16", false, 1e-6);
    check<BFloat16, float>(c, "bf16", false, 1e-6);
    check<BFloat16, float>(c, "bf16", true, 6e-8);
    check<Float16>(c, "f16", false, 1e-6);
    check<Float16, float>(c, "f16", false, 1e-6);
    check<Float16>(c, "f16", true, 6e-8);
  }
}

template <typename T> static void compareThreads(const Case &c, const char *type, bool reference) {
  std::vector<std::vector<char>> results;
  for (int threads : {1, 2, 5}) {
    std::vector<Buffer> buffers = Data<T>(c).buffers(c);
    runCall(describe(c, type, reference), buffers, 4, threads);
    results.push_back(buffers.back().values<char>());
  }
  EXPECT_TRUE(results[0] == results[1] && results[0] == results[2]) << c.name << " " << type;
}

/// What is added to may lie where the sum goes.
TEST(Matmul, AddsInPlace) {
  for (const Case &c : cases) {
    if (!c.accumulate)
      continue;
    SCOPED_TRACE(c.name);
    Data<float> data(c);
    data.c = data.addend;
    Product<float> product(c, data);
    std::vector<Buffer> buffers = data.buffers(c);
    buffers.pop_back();
    runInPlace(describe(c, "f32", false), buffers);
    product.expectIn(buffers.back(), 1e-6);
  }
}

TEST(Matmul, SameBitsOnAnyNumberOfThreads) {
  for (const Case &c : cases) {
    compareThreads<float>(c, "f32", false);
    compareThreads<float>(c, "f32", true);
    compareThreads<BFloat16>(c, "bf16", false);
    compareThreads<Float16>(c, "f16", false);
  }
}

/// So that a turn of a recurrent layer has tasks for all threads. f64: our own product everywhere.
TEST(Matmul, CutsFewRowsIntoNarrowerBlocksForMoreThreads) {
  const Case c{"few rows", {}, 40, 500, 300, {300, 1}, {1, 300}, {504, 1}};
  std::vector<char> first;
  std::vector<int64_t> bytes;
  for (int threads : {1, 2, 8}) {
    std::vector<Buffer> buffers = Data<double>(c).buffers(c);
    runCall(describe(c, "f64", false), buffers, threads, threads);
    std::vector<char> result = buffers.back().values<char>();
    if (first.empty())
      first = result;
    EXPECT_TRUE(result == first) << threads << " threads";
    bytes.push_back((*LibraryCall::create(describe(c, "f64", false), threads))->workspaceBytes());
  }
  EXPECT_LT(bytes[1], 2 * bytes[0]);
  EXPECT_GT(bytes[2], bytes[1]);
}

/// What lies as the inner loops would have it is read and written in place, else it is copied.
TEST(Matmul, SameBitsWhereverOperandsLie) {
  constexpr int64_t m = 301, n = 283, k = 600, lines = 288;
  const Case places[] = {{"in place", {}, m, n, k, {k, 1}, {n, 1}, {lines, 1}, true},
                         {"packed", {}, m, n, k, {2 * k, 2}, {n, 1}, {lines, 1}, true},
                         {"stored", {}, m, n, k, {k, 1}, {n, 1}, {2 * n, 2}, true},
                         {"copied", {}, m, n, k, {2 * k, 2}, {n, 1}, {2 * n, 2}, true}};
  std::vector<double> a = randomValues<double>(m * k, 1), first;
  for (const Case &c : places) {
    Data<double> data(c); // b and the bias are those of all
    for (int64_t i = 0; i < m * k; ++i)
      data.a[i * c.a[1]] = a[i];
    std::vector<Buffer> buffers = data.buffers(c);
    runCall(describe(c, "f64", false), buffers, 4, 2);
    std::vector<double> stored = buffers.back().values<double>(), result;
    for (int64_t i = 0; i < m * n; ++i)
      result.push_back(stored[i / n * c.c[0] + i % n * c.c[1]]);
    if (first.empty())
      first = result;
    EXPECT_TRUE(result == first) << c.name;
  }
}

TEST(Matmul, NeverRunsReferenceOrGemmCode) {
  for (const Case &c : cases) {
    std::vector<Buffer> buffers = Data<float>(c).buffers(c);
    std::string implementation = runCall(describe(c, "f32", false), buffers);
    EXPECT_EQ(implementation.find("ref"), std::string::npos) << c.name << ": " << implementation;
    EXPECT_EQ(implementation.find("gemm:"), std::string::npos) << c.name << ": " << implementation;
  }
}

/// Each way to read b, whichever this processor would choose: of so many columns that b and c are
/// cut in both directions, and of a transposed a, whose rows are not cut.
TEST(Matmul, PacksWholeAndInPieces) {
  const Case large[] = {{"wide", {}, 260, 21000, 100, {100, 1}, {21000, 1}, {21000, 1}, true, true},
                        {"transposed", {}, 130, 21000, 100, {1, 130}, {21000, 1}, {21000, 1}},
                        {"deep", {}, 130, 70, 5000, {5000, 1}, {70, 1}, {70, 1}, false, true}};
  for (const Case &c : large) {
    SCOPED_TRACE(c.name);
    Data<float> data(c);
    Product<float> product(c, data);
    auto descriptor = MatmulDescriptor::parse(describe(c, "f32", false));
    ASSERT_TRUE(descriptor.isOk());
    if (!createDnnlMatmul(*descriptor, 2, Packing::None))
      GTEST_SKIP() << "oneDNN's products without its GEMM need AVX-512";
    for (auto [packing, ending] : {std::pair{Packing::None, ""},
                                   {Packing::Whole, "+packed"},
                                   {Packing::Pieces, "+pieces"},
                                   {Packing::Exchanged, "+exchanged"}}) {
      if (packing == Packing::Exchanged && c.bias)
        continue;
      std::unique_ptr<LibraryCall> call = createDnnlMatmul(*descriptor, 2, packing);
      ASSERT_TRUE(call) << ending;
      EXPECT_EQ(call->implementation().find("brg"), 0u) << call->implementation();
      EXPECT_NE(call->implementation().find(ending), std::string::npos);
      std::vector<Buffer> buffers = data.buffers(c);
      runCall(*call, buffers);
      product.expectIn(buffers.back(), 1e-6);
    }
  }
}

/// What a call of its own packs gives the bits of a call that packs for itself; how many there were.
template <typename T> int checkPackingAhead(const Case &c, const char *type, int threads) {
  SCOPED_TRACE(std::string(c.name) + " " + type + " by " + std::to_string(threads));
  json descriptor = describe(c, type, false);
  auto call = LibraryCall::create(descriptor, threads);
  EXPECT_TRUE(call.isOk()) << call.getMessage();
  int64_t bytes = (*call)->packedWeightBytes();
  if (bytes == 0)
    return 0;
  Data<T> data(c);
  std::vector<Buffer> plain = data.buffers(c), ready = plain;
  runCall(**call, plain, threads);
  descriptor["packed"] = bytes;
  json packing = descriptor;
  packing["for"] = packing["kind"];
  packing["kind"] = "pack_weights";
  std::vector<Buffer> weights = {Buffer::of(data.b), Buffer(bytes)};
  runCall(packing, weights, threads, threads);
  ready[1] = std::move(weights[1]);
  runCall(descriptor, ready, threads, threads);
  EXPECT_EQ(plain.back().template values<char>(), ready.back().template values<char>());
  auto reader = LibraryCall::create(descriptor, threads);
  EXPECT_TRUE(reader.isOk()) << reader.getMessage();
  EXPECT_EQ((*reader)->packedWeightBytes(), 0);
  EXPECT_LE((*reader)->workspaceBytes(), (*call)->workspaceBytes());
  descriptor["packed"] = bytes + 4;
  EXPECT_EQ(LibraryCall::create(descriptor, threads).getMessage(),
            "library call: 'packed' must be the bytes of the weights as the library reads them "
            "here, " +
                std::to_string(bytes) + ", found " + std::to_string(bytes + 4));
  return 1;
}

TEST(Matmul, ReadsPackedWeights) {
  const Case few[] = {
      {"turn", {}, 32, 1024, 256, {256, 1}, {1, 256}, {1024, 1}},
      {"its gradient", {}, 32, 256, 1024, {1024, 1}, {256, 1}, {256, 1}, false, true},
      {"deep", {}, 7, 70, 5000, {5000, 1}, {1, 5000}, {70, 1}, true},
      {"power", {}, 20, 2048, 512, {512, 1}, {2048, 1}, {2048, 1}, true},
      {"odd", {}, 33, 301, 283, {283, 1}, {301, 1}, {301, 1}},
      {"one row", {}, 1, 640, 640, {640, 1}, {1, 640}, {640, 1}},
  };
  int packed = 0;
  for (const Case &c : few)
    for (int threads : {1, 2, 5}) {
      packed += checkPackingAhead<float>(c, "f32", threads);
      packed += checkPackingAhead<double>(c, "f64", threads);
      packed += checkPackingAhead<BFloat16>(c, "bf16", threads);
    }
  EXPECT_GT(packed, 0);
  json many = describe({"many", {}, 500, 64, 64, {64, 1}, {64, 1}, {64, 1}}, "f32", false);
  EXPECT_EQ((*LibraryCall::create(many, 2))->packedWeightBytes(), 0);
  many["packed"] = 64;
  EXPECT_EQ(refusal(many), "library call: 'packed' must be the bytes of the weights as the library "
                           "reads them here, 0, found 64");
}

/// Whatever the limit of the workspace, as long as there is an implementation.
TEST(Matmul, KeepsBitsInLessWorkspace) {
  const Case packed[] = {
      {"plain", {}, 256, 1000, 300, {300, 1}, {1000, 1}, {1000, 1}},
      {"biased", {}, 256, 1000, 300, {300, 1}, {1000, 1}, {1000, 1}, true},
      {"added", {}, 300, 700, 250, {1, 300}, {700, 1}, {700, 1}, false, true},
      {"deep", {}, 128, 640, 5000, {5000, 1}, {640, 1}, {640, 1}},
  };
  for (const Case &c : packed) {
    SCOPED_TRACE(c.name);
    Data<float> data(c);
    json descriptor = describe(c, "f32", false);
    std::vector<char> first;
    for (int64_t workspace = 1; workspace > 0;) {
      auto call = LibraryCall::create(descriptor, 2);
      if (!call.isOk()) {
        EXPECT_EQ(call.getMessage(), "library call 'matmul': no way that gives the same bits has a "
                                     "workspace of at most 'workspace_limit', " +
                                         std::to_string(workspace - 1) + " bytes");
        break;
      }
      std::vector<Buffer> buffers = data.buffers(c);
      runCall(**call, buffers);
      EXPECT_TRUE(first.empty() || first == buffers.back().values<char>())
          << (*call)->implementation();
      EXPECT_EQ((*call)->getSlowdown() > 1, !first.empty());
      first = buffers.back().values<char>();
      EXPECT_TRUE(!descriptor.contains("workspace_limit") || (*call)->workspaceBytes() < workspace);
      workspace = (*call)->workspaceBytes();
      descriptor["workspace_limit"] = workspace - 1;
    }
  }
}

TEST(Matmul, RefusesBadDescriptors) {
  json good = describe(cases[0], "f32", false);
  EXPECT_EQ(refusal(good), "");
  auto with = [&](const char *key, const json &value) {
    json changed = good;
    changed[key] = value;
    return refusal(changed);
  };
  EXPECT_EQ(with("m", 0), "library call 'matmul': 'm' must be an integer from 1 to 2^48, found 0");
  EXPECT_EQ(with("k", "7"),
            "library call 'matmul': 'k' must be an integer from 1 to 2^48, found \"7\"");
  EXPECT_EQ(with("n", 18446744073709551615u),
            "library call 'matmul': 'n' must be an integer from 1 to 2^48, found "
            "18446744073709551615");
  EXPECT_EQ(with("k", nullptr), "library call 'matmul': the key 'k' is missing");
  EXPECT_EQ(with("dtype", "i8"), "library call 'matmul': 'dtype' must be one of 'f32', 'f64', "
                                 "'bf16', 'f16', found \"i8\"");
  EXPECT_EQ(with("result_dtype", "f32"),
            "library call 'matmul': 'result_dtype' belongs to 'dtype' bf16 and f16 only");
  EXPECT_EQ(with("result_dtype", "f16"),
            "library call 'matmul': 'result_dtype' must be one of '', 'f32', found \"f16\"");
  EXPECT_EQ(with("a_strides", {1}),
            "library call 'matmul': 'a_strides' must be a list of 2 integers from 0 to 2^48, found "
            "[1]");
  EXPECT_EQ(with("c_strides", {0, 1}),
            "library call 'matmul': 'c_strides' put several elements of the result in one place");
  EXPECT_EQ(with("post", "gelu_tanh"),
            "library call 'matmul': 'post' must be one of '', found \"gelu_tanh\"");
  EXPECT_EQ(with("bias", "m"), "library call 'matmul': 'bias' must be one of '', 'n', found \"m\"");
  EXPECT_EQ(with("batch", {int64_t(1) << 40, 4}),
            "library call 'matmul': 'a_strides' must be a list of 4 integers from 0 to 2^48, found "
            "[53,1]");
  EXPECT_EQ(with("counted", "n"),
            "library call 'matmul': 'counted' must be one of '', 'm', 'k', found \"n\"");
  json batched = describe({"", {2}, 3, 4, 5, {15, 5, 1}, {20, 4, 1}, {12, 4, 1}}, "f32", false);
  batched["counted"] = "m";
  EXPECT_EQ(refusal(batched), "library call 'matmul': 'counted' takes no batch");
  EXPECT_NE(with("kind", "matmull").find("'kind' must be one of 'matmul'"), std::string::npos);
  EXPECT_EQ(refusal(json::array()), "library call: expected an object, found array");
  json huge = good;
  huge["m"] = huge["k"] = int64_t(1) << 40;
  EXPECT_EQ(refusal(huge), "library call 'matmul': a has more than 2^48 elements");
}
