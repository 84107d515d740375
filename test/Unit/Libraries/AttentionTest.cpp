//===- AttentionTest.cpp - attention calls against plain loops --------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LibraryCallTesting.h"
#include "memopt-runtime/numbers/Philox.h"
#include <array>
#include <cmath>
#include <limits>

using namespace memopt;
using namespace memopt::libraries;
using namespace memopt::librarytest;
using nlohmann::json;

namespace {

using Strides = std::vector<int64_t>;

enum class Mask { None, Boolean, Number };

struct Case {
  const char *name;
  int64_t batch, heads, kvHeads, queries, keys, headSize, valueSize;
  bool causal = false;
  Mask mask = Mask::None;
  double dropout = -1; ///< negative: none
  bool fused = false;  ///< q, k and v are views of one [batch, tokens, 3, heads, features]
  /// Which of batches, heads, queries and keys share a mask of numbers.
  std::array<bool, 4> shares{true, false, true, false};
  bool maskGradient = false;
};

constexpr int64_t seed = 0x123456789abcdef, step = 41, dropoutId = 7;
constexpr double infinity = std::numeric_limits<double>::infinity();

const Case cases[] = {
    {"one of each", 1, 1, 1, 1, 1, 1, 1},
    {"one tile", 2, 2, 2, 20, 30, 16, 16},
    {"causal", 2, 3, 3, 50, 50, 64, 64, true},
    {"causal, many tiles", 1, 2, 2, 200, 200, 32, 32, true},
    {"causal, whole heads", 4, 4, 4, 130, 130, 16, 16, true},
    {"causal, fewer keys", 1, 2, 2, 150, 100, 16, 16, true},
    {"causal, more keys", 1, 2, 2, 100, 250, 16, 16, true},
    {"odd sizes", 2, 3, 3, 97, 101, 5, 7},
    {"odd sizes, whole heads", 6, 3, 3, 97, 101, 5, 7},
    {"vision transformer", 1, 3, 3, 197, 197, 64, 64},
    {"one full tile of keys, two of queries", 2, 2, 2, 129, 128, 16, 16},
    {"two tiles, hardly more keys than one", 20, 1, 1, 128, 129, 16, 16},
    {"three tiles", 20, 1, 1, 257, 259, 24, 8},
    {"shared keys", 2, 6, 2, 40, 110, 24, 8, true},
    {"one key head for all, whole heads", 16, 4, 1, 40, 40, 8, 8, true},
    {"wide heads", 1, 1, 1, 33, 70, 160, 128},
    {"fused projection", 2, 4, 4, 100, 100, 32, 32, true, Mask::None, -1, true},
    {"boolean mask", 2, 2, 2, 40, 120, 16, 16, false, Mask::Boolean},
    {"boolean mask and causal", 5, 4, 4, 100, 100, 16, 16, true, Mask::Boolean},
    {"number mask", 2, 2, 2, 40, 120, 16, 16, false, Mask::Number},
    {"dropout", 2, 2, 2, 40, 120, 16, 16, false, Mask::None, 0.25},
    {"dropout, causal, shared keys", 8, 4, 2, 110, 110, 16, 16, true, Mask::None, 0.1},
    {"everything dropped", 1, 2, 2, 10, 10, 16, 16, false, Mask::None, 1.0},
    {"dropout of nothing", 1, 2, 2, 10, 10, 16, 16, false, Mask::Boolean, 0.0},
    {"trained mask",
     2,
     2,
     2,
     40,
     120,
     16,
     16,
     false,
     Mask::Number,
     -1,
     false,
     {false, false, false, false},
     true},
    {"trained positions",
     5,
     4,
     4,
     100,
     110,
     16,
     16,
     false,
     Mask::Number,
     -1,
     false,
     {true, false, false, false},
     true},
    {"trained keys, causal, shared keys",
     3,
     4,
     2,
     100,
     100,
     8,
     8,
     true,
     Mask::Number,
     -1,
     false,
     {false, true, true, false},
     true},
    {"trained queries, dropout",
     2,
     2,
     2,
     100,
     30,
     8,
     8,
     false,
     Mask::Number,
     0.25,
     false,
     {true, true, false, true},
     true},
    {"trained number",
     2,
     2,
     2,
     10,
     130,
     8,
     8,
     false,
     Mask::Number,
     -1,
     false,
     {true, true, true, true},
     true},
};

/// Offsets and lengths of the operands, in elements; dimensions are [batch, heads, tokens,
/// features].
struct Layout {
  Strides q, k, v, out;
  explicit Layout(const Case &c) {
    if (c.fused) {
      int64_t row = 3 * c.heads * c.headSize;
      q = k = v = {c.queries * row, c.headSize, row, 1};
    } else {
      q = {c.heads * c.queries * c.headSize, c.queries * c.headSize, c.headSize, 1};
      // Features before tokens, as a transposed key has them.
      k = {c.kvHeads * c.keys * c.headSize, c.keys * c.headSize, 1, c.keys};
      v = {c.kvHeads * c.keys * c.valueSize, c.valueSize, c.kvHeads * c.valueSize, 1};
    }
    out = {c.queries * c.heads * c.valueSize, c.valueSize, c.heads * c.valueSize, 1};
  }
};

int64_t at(const Strides &s, int64_t b, int64_t h, int64_t t, int64_t f) {
  return b * s[0] + h * s[1] + t * s[2] + f * s[3];
}

double scaleOf(const Case &c) { return 1 / std::sqrt(double(c.headSize)); }

bool masked(const Case &c, int64_t b, int64_t i, int64_t j) {
  // The first query of each batch entry sees nothing.
  return c.mask == Mask::Boolean && (i == 0 || (7 * i + 3 * j + b) % 5 == 0);
}

/// Strides of the mask of numbers over the scores.
Strides biasStrides(const Case &c) {
  Strides strides(4, 0);
  int64_t stride = 1;
  const int64_t extents[] = {c.batch, c.heads, c.queries, c.keys};
  for (int dim = 3; dim >= 0; --dim)
    if (!c.shares[dim] && extents[dim] > 1) {
      strides[dim] = stride;
      stride *= extents[dim];
    }
  return strides;
}
int64_t biasCount(const Case &c) {
  return at(biasStrides(c), c.batch - 1, c.heads - 1, c.queries - 1, c.keys - 1) + 1;
}
/// The number at a place of the mask.
double biasAt(int64_t place) { return place % 11 == 3 ? -infinity : 0.25 * double(place % 7 % 3); }
double bias(const Case &c, int64_t b, int64_t h, int64_t i, int64_t j) {
  return c.mask == Mask::Number ? biasAt(at(biasStrides(c), b, h, i, j)) : 0;
}

template <typename T> struct Data {
  std::vector<T> q, k, v, dOut;
  explicit Data(const Case &c) {
    int64_t count = c.batch * c.heads * c.queries * c.headSize;
    q = randomValues<T>(c.fused ? 3 * count : count, 1);
    int64_t keys = c.batch * c.kvHeads * c.keys;
    k = c.fused ? std::vector<T>(q.begin() + c.heads * c.headSize, q.end())
                : randomValues<T>(keys * c.headSize, 2);
    v = c.fused ? std::vector<T>(q.begin() + 2 * c.heads * c.headSize, q.end())
                : randomValues<T>(keys * c.valueSize, 3);
    dOut = randomValues<T>(c.batch * c.heads * c.queries * c.valueSize, 4);
    for (auto *values : {&q, &k})
      for (T &value : *values)
        value = static_cast<T>(value * 2);
  }
};

/// Everything in double, with matrices of scores.
struct Expected {
  std::vector<double> out, lse, dq, dk, dv, dMask;
};

template <typename T> Expected attend(const Case &c, const Data<T> &data) {
  Layout l(c);
  Expected e;
  e.out.assign(data.dOut.size(), 0);
  e.lse.assign(c.batch * c.heads * c.queries, infinity);
  e.dq.assign(data.q.size(), 0);
  e.dk.assign(data.k.size(), 0);
  e.dv.assign(data.v.size(), 0);
  e.dMask.assign(biasCount(c), 0);
  uint64_t threshold = dropoutThreshold(std::max(c.dropout, 0.0));
  std::vector<double> p(c.keys), keep(c.keys), dp(c.keys);
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < c.queries; ++i) {
        int64_t g = h / (c.heads / c.kvHeads), row = (b * c.heads + h) * c.queries + i;
        double maximum = -infinity, sum = 0, delta = 0;
        for (int64_t j = 0; j < c.keys; ++j) {
          p[j] = 0;
          for (int64_t f = 0; f < c.headSize; ++f)
            p[j] += double(data.q[at(l.q, b, h, i, f)]) * data.k[at(l.k, b, g, j, f)];
          p[j] = p[j] * scaleOf(c) + bias(c, b, h, i, j);
          if ((c.causal && j > i) || masked(c, b, i, j))
            p[j] = -infinity;
          maximum = std::max(maximum, p[j]);
        }
        if (maximum == -infinity)
          continue;
        for (int64_t j = 0; j < c.keys; ++j)
          sum += p[j] = std::exp(p[j] - maximum);
        e.lse[row] = maximum + std::log(sum);
        for (int64_t j = 0; j < c.keys; ++j) {
          p[j] /= sum;
          keep[j] = c.dropout < 0 ? 1
                    : philoxWord(row * c.keys + j, step, dropoutId, seed) >= threshold
                        ? 1 / (1 - c.dropout)
                        : 0;
          dp[j] = 0;
          for (int64_t f = 0; f < c.valueSize; ++f) {
            double dOut = data.dOut[at(l.out, b, h, i, f)], v = data.v[at(l.v, b, g, j, f)];
            e.out[at(l.out, b, h, i, f)] += p[j] * keep[j] * v;
            e.dv[at(l.v, b, g, j, f)] += p[j] * keep[j] * dOut;
            dp[j] += keep[j] * dOut * v;
          }
          delta += p[j] * dp[j];
        }
        for (int64_t j = 0; j < c.keys; ++j)
          e.dMask[at(biasStrides(c), b, h, i, j)] += p[j] * (dp[j] - delta);
        for (int64_t j = 0; j < c.keys; ++j)
          for (int64_t f = 0; f < c.headSize; ++f) {
            double ds = p[j] * (dp[j] - delta) * scaleOf(c);
            e.dq[at(l.q, b, h, i, f)] += ds * data.k[at(l.k, b, g, j, f)];
            e.dk[at(l.k, b, g, j, f)] += ds * data.q[at(l.q, b, h, i, f)];
          }
      }
  return e;
}

json describe(const Case &c, bool backward, const char *type, bool reference) {
  Layout l(c);
  json descriptor = {{"kind", backward ? "attention_backward" : "attention_forward"},
                     {"dtype", type},
                     {"batch", c.batch},
                     {"heads", c.heads},
                     {"kv_heads", c.kvHeads},
                     {"query_length", c.queries},
                     {"key_length", c.keys},
                     {"head_dim", c.headSize},
                     {"value_dim", c.valueSize},
                     {"scale", scaleOf(c)},
                     {"causal", c.causal},
                     {"mask", nullptr},
                     {"dropout", nullptr},
                     {"q_strides", l.q},
                     {"k_strides", l.k},
                     {"v_strides", l.v},
                     {"o_strides", l.out},
                     {"reference", reference}};
  if (c.mask == Mask::Boolean) // [batch, 1, queries, keys]
    descriptor["mask"] = {{"dtype", "i1"}, {"strides", {c.queries * c.keys, 0, c.keys, 1}}};
  if (c.mask == Mask::Number)
    descriptor["mask"] = {{"dtype", c.maskGradient && std::string(type) == "f64" ? "f64" : "f32"},
                          {"strides", biasStrides(c)}};
  if (c.dropout >= 0)
    descriptor["dropout"] = {{"probability", c.dropout}, {"id", dropoutId}};
  if (backward) {
    descriptor["do_strides"] = l.out;
    descriptor["dq_strides"] = l.q;
    descriptor["dk_strides"] = l.k;
    descriptor["dv_strides"] = l.v;
    if (c.maskGradient)
      descriptor["dmask_strides"] = biasStrides(c);
  }
  return descriptor;
}

template <typename T> std::vector<Buffer> operands(const Case &c, const Data<T> &data) {
  std::vector<Buffer> list;
  for (const auto *values : {&data.q, &data.k, &data.v})
    list.push_back(Buffer::of(*values));
  if (c.mask == Mask::Boolean) {
    std::vector<uint8_t> mask;
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t i = 0; i < c.queries; ++i)
        for (int64_t j = 0; j < c.keys; ++j)
          mask.push_back(!masked(c, b, i, j));
    list.push_back(Buffer::of(mask));
  }
  if (c.mask == Mask::Number) {
    std::vector<Wide<T>> mask(biasCount(c));
    for (size_t place = 0; place < mask.size(); ++place)
      mask[place] = static_cast<Wide<T>>(biasAt(place));
    list.push_back(c.maskGradient ? Buffer::of(mask)
                                  : Buffer::of(std::vector<float>(mask.begin(), mask.end())));
  }
  if (c.dropout >= 0) {
    list.push_back(Buffer::of(std::vector<int64_t>{seed}));
    list.push_back(Buffer::of(std::vector<int64_t>{step}));
  }
  return list;
}

template <typename T>
void expectNear(const std::vector<double> &expected, Buffer &buffer, double tolerance,
                const char *what) {
  std::vector<T> found = buffer.values<T>();
  double largest = 1;
  for (double value : expected)
    largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : largest;
  for (size_t i = 0; i < found.size(); ++i)
    if (!(std::abs(found[i] - expected[i]) <= tolerance * largest) && found[i] != expected[i]) {
      ADD_FAILURE() << what << " element " << i << ": expected " << expected[i] << ", found "
                    << found[i];
      return;
    }
}

template <typename T> struct Results {
  std::vector<Buffer> forward, backward;
};

/// Forward, then backward on what forward gave.
template <typename T>
Results<T> runBoth(const Case &c, const char *type, bool reference, int threads) {
  Data<T> data(c);
  Results<T> results;
  results.forward = operands(c, data);
  results.forward.push_back(Buffer::of(data.dOut)); // overwritten by out
  results.forward.push_back(Buffer::of(std::vector<Wide<T>>(c.batch * c.heads * c.queries, 1)));
  runCall(describe(c, false, type, reference), results.forward, 2, threads);
  results.backward = operands(c, data);
  results.backward.push_back(results.forward[results.forward.size() - 2]);
  results.backward.push_back(results.forward.back());
  results.backward.push_back(Buffer::of(data.dOut));
  for (const auto *like : {&data.q, &data.k, &data.v})
    results.backward.push_back(Buffer::of(std::vector<T>(like->size(), T(0.0f))));
  if (c.maskGradient)
    results.backward.push_back(Buffer::of(std::vector<Wide<T>>(biasCount(c), 9)));
  runCall(describe(c, true, type, reference), results.backward, 2, threads);
  return results;
}

template <typename T>
void check(const Case &c, const char *type, bool reference, double tolerance) {
  SCOPED_TRACE(std::string(c.name) + " " + type + (reference ? " reference" : ""));
  Expected expected = attend(c, Data<T>(c));
  Results<T> results = runBoth<T>(c, type, reference, 2);
  size_t forward = results.forward.size(), backward = results.backward.size() - c.maskGradient;
  expectNear<T>(expected.out, results.forward[forward - 2], tolerance, "out");
  expectNear<Wide<T>>(expected.lse, results.forward[forward - 1], tolerance, "lse");
  expectNear<T>(expected.dq, results.backward[backward - 3], 4 * tolerance, "dq");
  expectNear<T>(expected.dk, results.backward[backward - 2], 4 * tolerance, "dk");
  expectNear<T>(expected.dv, results.backward[backward - 1], 4 * tolerance, "dv");
  if (c.maskGradient)
    expectNear<Wide<T>>(expected.dMask, results.backward[backward], 4 * tolerance, "dmask");
}

} // namespace

TEST(Attention, AgreesWithPlainLoops) {
  for (const Case &c : cases) {
    check<float>(c, "f32", false, 1e-6);
    check<float>(c, "f32", true, 3e-7);
    check<double>(c, "f64", false, 2e-15);
  }
}

/// Tiles of halves are computed in f32; what is stored is rounded, and so is the output that the
/// backward pass takes `delta` from.
TEST(Attention, RoundsHalves) {
  for (const Case &c : cases) {
    check<BFloat16>(c, "bf16", false, 4e-3);
    check<Float16>(c, "f16", false, 5e-4);
    check<Float16>(c, "f16", true, 5e-4);
  }
}

/// Few threads take whole heads, and many take tiles.
template <typename T> void checkBitsOverThreads(const char *type) {
  for (const Case &c : cases) {
    std::vector<std::vector<std::vector<char>>> results;
    for (int threads : {1, 2, 3, 7}) {
      Results<T> both = runBoth<T>(c, type, false, threads);
      results.emplace_back();
      for (auto *list : {&both.forward, &both.backward})
        for (Buffer &buffer : *list)
          results.back().push_back(buffer.values<char>());
      EXPECT_TRUE(results.back() == results.front()) << c.name << ", " << type << ", " << threads;
    }
  }
}

TEST(Attention, SameBitsOnAnyNumberOfThreads) {
  checkBitsOverThreads<float>("f32");
  checkBitsOverThreads<BFloat16>("bf16");
}

TEST(Attention, KeepsNaN) {
  // The only key that the first query sees has a score that is not a number.
  Case c{"nan", 1, 1, 1, 40, 40, 16, 16, true};
  Data<float> data(c);
  data.q[3] = std::numeric_limits<float>::quiet_NaN();
  std::vector<Buffer> buffers = operands(c, data);
  buffers.push_back(Buffer::of(data.dOut));
  buffers.push_back(Buffer::of(std::vector<float>(40)));
  runCall(describe(c, false, "f32", false), buffers);
  std::vector<float> out = buffers[3].values<float>(), lse = buffers[4].values<float>();
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(lse[0]));
  EXPECT_FALSE(std::isnan(out[16]) || std::isnan(lse[1]));
}

TEST(Attention, NeedsNoMatrixOfScores) {
  Case c{"long", 1, 4, 4, 16384, 16384, 64, 64, true};
  for (bool backward : {false, true}) {
    auto call = LibraryCall::create(describe(c, backward, "f32", false), 2);
    ASSERT_TRUE(call.isOk()) << call.getMessage();
    EXPECT_LT((*call)->workspaceBytes(), 1 << 20);
  }
}

TEST(Attention, RefusesBadDescriptors) {
  json good = describe(cases[17], false, "f32", false);
  EXPECT_EQ(refusal(good), "");
  auto with = [&](const char *key, const json &value) {
    json changed = good;
    changed[key] = value;
    std::string message = refusal(changed), prefix = "library call 'attention_forward': ";
    EXPECT_EQ(message.substr(0, prefix.size()), prefix);
    return message.substr(std::min(message.size(), prefix.size()));
  };
  EXPECT_EQ(with("kv_heads", 3), "'kv_heads' (3) must divide 'heads' (2)");
  EXPECT_EQ(with("dropout", {{"probability", 1.5}, {"id", 1}}),
            "'dropout': 'probability' must lie between 0 and 1");
  EXPECT_EQ(with("dropout", {{"probability", 0.5}}), "'dropout': the key 'id' is missing");
  EXPECT_EQ(with("mask", {{"dtype", "i8"}, {"strides", {0, 0, 0, 1}}}),
            "'mask': 'dtype' must be one of 'i1', 'f32', 'f64', found \"i8\"");
  EXPECT_EQ(with("mask", "causal"), "'mask' must be an object or null, found \"causal\"");
  EXPECT_EQ(with("scale", nullptr), "'scale' must be a number, found nothing");
  EXPECT_EQ(with("o_strides", {0, 0, 0, 1}),
            "'o_strides' put several elements of the result in one place");
  EXPECT_EQ(with("query_length", int64_t(1) << 47), "the scores has more than 2^48 elements");
}

TEST(Attention, RefusesBadGradientsOfMasks) {
  Case c{"mask", 2, 2, 2, 40, 120, 16, 16, false, Mask::Number};
  c.maskGradient = true;
  json good = describe(c, true, "f32", false);
  EXPECT_EQ(refusal(good), "");
  auto with = [&](const char *key, const json &value) {
    json changed = good;
    changed[key] = value;
    return refusal(changed);
  };
  EXPECT_EQ(with("mask", nullptr),
            "library call 'attention_backward': 'dmask_strides' need a mask of the sums' type");
  EXPECT_EQ(with("dmask_strides", {0, 121, 0, 1}),
            "library call 'attention_backward': "
            "'dmask_strides' must be those of a packed tensor");
}
