//===- ConstantTensor.cpp - integer and boolean tensors known at import -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Archive/ConstantTensor.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

using namespace llvm;
using namespace memopt::pt2;

static int64_t product(ArrayRef<int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t(1), std::multiplies<>());
}

/// Steps a row-major index; false after the last one.
static bool increment(MutableArrayRef<int64_t> index, ArrayRef<int64_t> sizes) {
  for (size_t dim = sizes.size(); dim-- > 0;) {
    if (++index[dim] < sizes[dim])
      return true;
    index[dim] = 0;
  }
  return false;
}

int64_t memopt::pt2::wrapTo(DType type, int64_t value) {
  switch (type) {
  case DType::Bool:
    return value != 0;
  case DType::U8:
    return uint8_t(value);
  case DType::I8:
    return int8_t(value);
  case DType::I16:
    return int16_t(value);
  case DType::I32:
    return int32_t(value);
  default:
    return value;
  }
}

ConstantTensor::ConstantTensor(DType type, ArrayRef<int64_t> sizes, ArrayRef<int64_t> extents)
    : type(type), sizes(sizes), extents(extents) {
  if (type == DType::Bool)
    bits.resize(product(extents));
  else
    words.resize(product(extents));
}

void ConstantTensor::setStored(int64_t i, int64_t value) {
  if (type == DType::Bool)
    bits[i] = value != 0;
  else
    words[i] = wrapTo(type, value);
}

int64_t ConstantTensor::getNumStored() const { return product(extents); }

int64_t ConstantTensor::at(ArrayRef<int64_t> index) const {
  int64_t position = 0;
  for (size_t dim = 0; dim != extents.size(); ++dim)
    position = position * extents[dim] + (extents[dim] == 1 ? 0 : index[dim]);
  return getStored(position);
}

std::optional<int64_t> ConstantTensor::getSplat() const {
  if (getNumStored() != 1)
    return std::nullopt;
  return getStored(0);
}

Constant ConstantTensor::splat(DType type, ArrayRef<int64_t> sizes, int64_t value) {
  Shape extents(sizes);
  for (int64_t &extent : extents)
    extent = std::min<int64_t>(extent, 1); // keeps empty tensors empty
  std::shared_ptr<ConstantTensor> result(new ConstantTensor(type, sizes, extents));
  if (result->getNumStored())
    result->setStored(0, value);
  return result;
}

Constant ConstantTensor::iota(DType type, int64_t start, int64_t step, int64_t count) {
  return generate(type, {count}, [&](ArrayRef<int64_t> index) {
    return int64_t(uint64_t(start) + uint64_t(step) * uint64_t(index[0]));
  });
}

Constant ConstantTensor::dense(DType type, ArrayRef<int64_t> sizes, ArrayRef<int64_t> elements) {
  std::shared_ptr<ConstantTensor> result(new ConstantTensor(type, sizes, sizes));
  for (auto [i, element] : enumerate(elements))
    result->setStored(i, element);
  return compact(std::move(result));
}

Constant ConstantTensor::generate(DType type, ArrayRef<int64_t> sizes,
                                  function_ref<int64_t(ArrayRef<int64_t>)> element) {
  std::shared_ptr<ConstantTensor> result(new ConstantTensor(type, sizes, sizes));
  Shape index(sizes.size(), 0);
  for (int64_t i = 0, n = result->getNumStored(); i != n; ++i, increment(index, sizes))
    result->setStored(i, element(index));
  return compact(std::move(result));
}

/// One look at each dimension, dense elements are compared with those at index 0 of it.
Constant ConstantTensor::compact(std::shared_ptr<ConstantTensor> tensor) {
  for (size_t dim = 0; dim != tensor->extents.size(); ++dim) {
    int64_t extent = tensor->extents[dim];
    if (extent <= 1)
      continue;
    ArrayRef<int64_t> extents = tensor->extents;
    int64_t inner = product(extents.drop_front(dim + 1)), outer = product(extents.take_front(dim));
    auto isUniform = [&] {
      for (int64_t o = 0; o != outer; ++o)
        for (int64_t k = 1; k != extent; ++k)
          for (int64_t i = 0; i != inner; ++i)
            if (tensor->getStored((o * extent + k) * inner + i) !=
                tensor->getStored(o * extent * inner + i))
              return false;
      return true;
    };
    if (!isUniform())
      continue;
    Shape smaller(extents);
    smaller[dim] = 1;
    std::shared_ptr<ConstantTensor> result(
        new ConstantTensor(tensor->type, tensor->sizes, smaller));
    for (int64_t o = 0; o != outer; ++o)
      for (int64_t i = 0; i != inner; ++i)
        result->setStored(o * inner + i, tensor->getStored(o * extent * inner + i));
    tensor = std::move(result);
  }
  return tensor;
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

Constant ConstantTensor::reshape(const Constant &from, ArrayRef<int64_t> sizes) {
  if (auto value = from->getSplat())
    return splat(from->type, sizes, *value);
  // Dimensions of size 1 come and go without touching the others.
  auto withoutOnes = [](ArrayRef<int64_t> shape) {
    Shape result;
    copy_if(shape, std::back_inserter(result), [](int64_t size) { return size != 1; });
    return result;
  };
  if (withoutOnes(from->sizes) == withoutOnes(sizes)) {
    auto result = std::make_shared<ConstantTensor>(*from);
    result->sizes.assign(sizes.begin(), sizes.end());
    result->extents.assign(sizes.size(), 1);
    size_t source = 0;
    for (auto [dim, size] : enumerate(sizes)) {
      if (size == 1)
        continue;
      while (from->sizes[source] == 1)
        ++source;
      result->extents[dim] = from->extents[source++];
    }
    return result;
  }
  Shape index(from->sizes.size(), 0);
  return generate(from->type, sizes, [&](ArrayRef<int64_t>) {
    int64_t value = from->at(index);
    increment(index, from->sizes);
    return value;
  });
}

Constant ConstantTensor::permute(const Constant &from, ArrayRef<int64_t> permutation) {
  Shape sizes, extents;
  for (int64_t dim : permutation) {
    sizes.push_back(from->sizes[dim]);
    extents.push_back(from->extents[dim]);
  }
  std::shared_ptr<ConstantTensor> result(new ConstantTensor(from->type, sizes, extents));
  Shape index(sizes.size(), 0), source(sizes.size(), 0);
  for (int64_t i = 0, n = result->getNumStored(); i != n; ++i, increment(index, extents)) {
    for (auto [to, dim] : enumerate(permutation))
      source[dim] = index[to];
    result->setStored(i, from->at(source));
  }
  return result;
}

Constant ConstantTensor::expand(const Constant &from, ArrayRef<int64_t> sizes) {
  auto result = std::make_shared<ConstantTensor>(*from);
  result->sizes.assign(sizes.begin(), sizes.end());
  for (auto [extent, size] : zip_equal(result->extents, sizes))
    extent = std::min(extent, size); // an empty dimension stores nothing
  return result;
}

Constant ConstantTensor::slice(const Constant &from, int64_t dim, int64_t begin, int64_t step,
                               int64_t count) {
  Shape sizes(from->sizes), extents(from->extents);
  sizes[dim] = count;
  bool uniform = extents[dim] == 1;
  extents[dim] = uniform ? std::min<int64_t>(count, 1) : count;
  std::shared_ptr<ConstantTensor> result(new ConstantTensor(from->type, sizes, extents));
  Shape index(sizes.size(), 0);
  for (int64_t i = 0, n = result->getNumStored(); i != n; ++i, increment(index, extents)) {
    Shape source(index);
    source[dim] = begin + step * index[dim];
    result->setStored(i, from->at(source));
  }
  return compact(std::move(result));
}

Constant ConstantTensor::concat(ArrayRef<Constant> parts, int64_t dim) {
  Shape sizes(parts.front()->sizes);
  sizes[dim] = 0;
  for (const Constant &part : parts)
    sizes[dim] += part->sizes[dim];
  return generate(parts.front()->type, sizes, [&](ArrayRef<int64_t> index) {
    Shape source(index);
    const Constant *part = parts.begin();
    for (; source[dim] >= (*part)->sizes[dim]; ++part)
      source[dim] -= (*part)->sizes[dim];
    return (*part)->at(source);
  });
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

Constant ConstantTensor::cumsum(const Constant &from, int64_t dim, DType type) {
  if (from->getSplat() == 0)
    return splat(type, from->sizes, 0);
  Shape extents(from->extents);
  extents[dim] = from->sizes[dim];
  std::shared_ptr<ConstantTensor> result(new ConstantTensor(type, from->sizes, extents));
  int64_t inner = product(ArrayRef(extents).drop_front(dim + 1));
  Shape index(extents.size(), 0);
  for (int64_t i = 0, n = result->getNumStored(); i != n; ++i, increment(index, extents)) {
    uint64_t before = index[dim] ? uint64_t(result->getStored(i - inner)) : 0;
    result->setStored(i, int64_t(before + uint64_t(from->at(index))));
  }
  return compact(std::move(result));
}

Constant ConstantTensor::map(DType type, ArrayRef<Constant> operands,
                             function_ref<int64_t(ArrayRef<int64_t>)> combine) {
  ArrayRef<int64_t> sizes = operands.front()->sizes;
  Shape extents(sizes);
  for (auto [dim, extent] : enumerate(extents))
    if (extent > 1 && all_of(operands, [dim = dim](const Constant &operand) {
          return operand->extents[dim] == 1;
        }))
      extent = 1;
  std::shared_ptr<ConstantTensor> result(new ConstantTensor(type, sizes, extents));
  Shape index(sizes.size(), 0);
  SmallVector<int64_t, 4> values(operands.size());
  for (int64_t i = 0, n = result->getNumStored(); i != n; ++i, increment(index, extents)) {
    for (auto [value, operand] : zip_equal(values, operands))
      value = operand->at(index);
    result->setStored(i, combine(values));
  }
  return compact(std::move(result));
}
