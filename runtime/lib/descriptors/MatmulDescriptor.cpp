//===- MatmulDescriptor.cpp - what a matmul call multiplies -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/descriptors/MatmulDescriptor.h"

using namespace memopt;
using namespace memopt::libraries;

ElementType libraries::readElementType(DescriptorReader &reader) {
  std::string name = reader.choice("dtype", {"f32", "f64", "bf16", "f16"});
  return name == "f64"    ? ElementType::F64
         : name == "bf16" ? ElementType::BF16
         : name == "f16"  ? ElementType::F16
                          : ElementType::F32;
}

bool libraries::readWideResult(DescriptorReader &reader, ElementType type) {
  std::string name = reader.choice("result_dtype", {"", "f32"}, /*optional=*/true);
  bool isHalf = type == ElementType::BF16 || type == ElementType::F16;
  reader.require(name.empty() || isHalf, "'result_dtype' belongs to 'dtype' bf16 and f16 only");
  return !name.empty();
}

static MatrixStrides readStrides(DescriptorReader &reader, const char *key, int64_t batchRank) {
  std::vector<int64_t> strides = reader.integers(key, batchRank + 2, 0);
  MatrixStrides result;
  result.batch.assign(strides.begin(), strides.end() - 2);
  result.row = strides[batchRank];
  result.column = strides[batchRank + 1];
  return result;
}

/// A result in which two elements share an address would depend on the order of the threads. Only
/// the common case is caught: a stride of zero in a dimension that has a second element.
static bool isInjective(const MatmulDescriptor &descriptor) {
  const MatrixStrides &c = descriptor.c;
  bool injective = (c.row != 0 || descriptor.m == 1) && (c.column != 0 || descriptor.n == 1);
  for (size_t i = 0; i < c.batch.size(); ++i)
    injective &= c.batch[i] != 0 || descriptor.batch[i] == 1;
  return injective;
}

StatusOr<MatmulDescriptor> MatmulDescriptor::parse(const nlohmann::json &json) {
  DescriptorReader reader(json, "library call 'matmul'");
  MatmulDescriptor d;
  d.type = readElementType(reader);
  d.wideResult = readWideResult(reader, d.type);
  d.batch = reader.integers("batch", -1, 1);
  d.m = reader.integer("m", 1);
  d.n = reader.integer("n", 1);
  d.k = reader.integer("k", 1);
  int64_t rank = static_cast<int64_t>(d.batch.size());
  d.a = readStrides(reader, "a_strides", rank);
  d.b = readStrides(reader, "b_strides", rank);
  d.c = readStrides(reader, "c_strides", rank);
  d.bias = reader.choice("bias", {"", "n"}, /*optional=*/true) == "n";
  d.narrowBias = reader.boolean("narrow_bias", false);
  d.accumulate = reader.boolean("accumulate", false);
  std::string counted = reader.choice("counted", {"", "m", "k"}, /*optional=*/true);
  d.counted = counted.empty() ? Counted::All : counted == "m" ? Counted::Rows : Counted::Terms;
  d.reference = reader.boolean("reference", false);
  d.packedBytes = reader.integer("packed", 0, 0);
  d.workspaceLimit = reader.integer("workspace_limit", 0, maxExtent);
  reader.choice("post", {""}, /*optional=*/true);
  for (auto [what, rows, columns] :
       {std::tuple("a", d.m, d.k), std::tuple("b", d.k, d.n), std::tuple("c", d.m, d.n)}) {
    std::vector<int64_t> extents = d.batch;
    extents.insert(extents.end(), {rows, columns});
    reader.requireProduct(what, extents);
  }
  reader.require(!d.narrowBias || (d.bias && getElementBytes(d.type) == 2 && !d.wideResult),
                 "'narrow_bias' takes a bias, and operands and a result of 16 bits");
  reader.require(counted.empty() || d.batch.empty(), "'counted' takes no batch");
  reader.require(isInjective(d), "'c_strides' put several elements of the result in one place");
  MEMOPT_RETURN_IF_ERROR(reader.takeStatus());
  d.simplify();
  return d;
}

int64_t MatmulDescriptor::batchCount() const {
  int64_t count = 1;
  for (int64_t extent : batch)
    count *= extent;
  return count;
}

void MatmulDescriptor::simplify() {
  MatrixStrides *operands[] = {&a, &b, &c};
  for (size_t i = batch.size(); i-- > 0;) {
    // A dimension of one index, or one that the next dimension continues in every operand.
    bool single = batch[i] == 1;
    bool continues = i + 1 < batch.size();
    for (MatrixStrides *strides : operands)
      continues = continues && strides->batch[i] == strides->batch[i + 1] * batch[i + 1];
    if (!single && !continues)
      continue;
    if (continues)
      batch[i + 1] *= batch[i];
    batch.erase(batch.begin() + i);
    for (MatrixStrides *strides : operands)
      strides->batch.erase(strides->batch.begin() + i);
  }
  // Linear layers on [batch, sequence, features]: one weight for all.
  while (!batch.empty() && b.batch.back() == 0 && a.batch.back() == a.row * m &&
         c.batch.back() == c.row * m) {
    m *= batch.back();
    batch.pop_back();
    for (MatrixStrides *strides : operands)
      strides->batch.pop_back();
  }
}
