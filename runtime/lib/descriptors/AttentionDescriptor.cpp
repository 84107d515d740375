//===- AttentionDescriptor.cpp - what an attention call computes ------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/descriptors/AttentionDescriptor.h"
#include "memopt-runtime/descriptors/DescriptorReader.h"

using namespace memopt;
using namespace memopt::libraries;

static HeadStrides readStrides(DescriptorReader &reader, const char *key) {
  std::vector<int64_t> strides = reader.integers(key, 4, 0);
  return {strides[0], strides[1], strides[2], strides[3]};
}

/// A result must not put two elements in one place (as far as strides of zero show it).
static HeadStrides readResultStrides(DescriptorReader &reader, const char *key,
                                     const std::array<int64_t, 4> &extents) {
  HeadStrides strides = readStrides(reader, key);
  for (int i = 0; i < 4; ++i)
    reader.require(strides[i] != 0 || extents[i] == 1,
                   "'" + std::string(key) + "' put several elements of the result in one place");
  return strides;
}

static void readMask(DescriptorReader &reader, AttentionDescriptor &d) {
  d.mask = MaskType::None;
  d.maskStrides = {};
  const nlohmann::json *json = reader.object("mask");
  if (!json)
    return;
  DescriptorReader mask(*json, "'mask'");
  std::string type = mask.choice("dtype", {"i1", "f32", "f64"});
  d.mask = type == "i1" ? MaskType::Boolean : type == "f32" ? MaskType::F32 : MaskType::F64;
  d.maskStrides = readStrides(mask, "strides");
  reader.require(mask.isOk(), mask.takeStatus().getMessage());
}

static void readDropout(DescriptorReader &reader, AttentionDescriptor &d) {
  d.dropout = false;
  d.dropoutProbability = 0;
  d.dropoutId = 0;
  d.dropoutFirst = false;
  const nlohmann::json *json = reader.object("dropout");
  if (!json)
    return;
  DescriptorReader dropout(*json, "'dropout'");
  d.dropout = true;
  d.dropoutProbability = dropout.number("probability");
  d.dropoutId = dropout.integer("id", 0);
  d.dropoutFirst = dropout.boolean("first", false);
  dropout.require(d.dropoutProbability >= 0 && d.dropoutProbability <= 1,
                  "'probability' must lie between 0 and 1");
  dropout.require(d.dropoutId <= int64_t(UINT32_MAX), "'id' must be below 2^32");
  reader.require(dropout.isOk(), dropout.takeStatus().getMessage());
}

/// Only numbers that are added have a gradient, of the sums' type; it fills its buffer.
static void readMaskGradient(DescriptorReader &reader, const nlohmann::json &json,
                             AttentionDescriptor &d) {
  d.maskGradient = d.backward && json.contains("dmask_strides");
  d.dMask = {};
  if (!d.maskGradient)
    return;
  d.dMask = readStrides(reader, "dmask_strides");
  MaskType expected = d.type == ElementType::F64 ? MaskType::F64 : MaskType::F32;
  reader.require(d.mask == expected, "'dmask_strides' need a mask of the sums' type");
  int64_t packed = 1;
  const int64_t extents[] = {d.batch, d.heads, d.queries, d.keys};
  for (int i = 3; i >= 0; --i)
    if (d.dMask[i] != 0) {
      reader.require(d.dMask[i] == packed, "'dmask_strides' must be those of a packed tensor");
      packed *= extents[i];
    }
}

StatusOr<AttentionDescriptor> AttentionDescriptor::parse(const nlohmann::json &json,
                                                         bool backward) {
  DescriptorReader reader(json, std::string("library call 'attention_") +
                                    (backward ? "backward'" : "forward'"));
  AttentionDescriptor d;
  d.backward = backward;
  d.type = readElementType(reader);
  d.batch = reader.integer("batch", 1);
  d.heads = reader.integer("heads", 1);
  d.kvHeads = reader.integer("kv_heads", 1);
  d.queries = reader.integer("query_length", 1);
  d.keys = reader.integer("key_length", 1);
  d.headSize = reader.integer("head_dim", 1);
  d.valueSize = reader.integer("value_dim", 1);
  d.scale = reader.number("scale");
  d.causal = reader.boolean("causal", false);
  d.reference = reader.boolean("reference", false);
  readMask(reader, d);
  readDropout(reader, d);
  d.q = readStrides(reader, "q_strides");
  d.k = readStrides(reader, "k_strides");
  d.v = readStrides(reader, "v_strides");
  if (backward) {
    d.out = readStrides(reader, "o_strides");
    d.dOut = readStrides(reader, "do_strides");
    d.dq = readResultStrides(reader, "dq_strides", {d.batch, d.heads, d.queries, d.headSize});
    d.dk = readResultStrides(reader, "dk_strides", {d.batch, d.kvHeads, d.keys, d.headSize});
    d.dv = readResultStrides(reader, "dv_strides", {d.batch, d.kvHeads, d.keys, d.valueSize});
  } else {
    d.out = readResultStrides(reader, "o_strides", {d.batch, d.heads, d.queries, d.valueSize});
  }
  readMaskGradient(reader, json, d);
  // Dropout numbers the scores, so they must be countable though they are never stored.
  reader.requireProduct("the scores", {d.batch, d.heads, d.queries, d.keys});
  reader.requireProduct("q", {d.batch, d.heads, d.queries, d.headSize});
  reader.requireProduct("v", {d.batch, d.kvHeads, d.keys, d.valueSize});
  reader.requireProduct("a tile", {d.headSize, d.valueSize, 4096});
  reader.require(d.heads % d.kvHeads == 0, "'kv_heads' (" + std::to_string(d.kvHeads) +
                                               ") must divide 'heads' (" + std::to_string(d.heads) +
                                               ")");
  MEMOPT_RETURN_IF_ERROR(reader.takeStatus());
  return d;
}
