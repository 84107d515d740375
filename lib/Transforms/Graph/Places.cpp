//===- Places.cpp - some of the indices along dimensions --------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Places.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Factors
//===----------------------------------------------------------------------===//

int64_t Factor::count() const {
  int64_t number = 0;
  for (auto [begin, end] : runs)
    number += end - begin;
  return number;
}

static Factor uniteFactors(const Factor &a, const Factor &b) {
  SmallVector<Run> runs(a.runs.begin(), a.runs.end());
  llvm::append_range(runs, b.runs);
  llvm::sort(runs);
  Factor both{a.size, {}};
  for (Run run : runs) {
    if (both.runs.empty() || run.first > both.runs.back().second)
      both.runs.push_back(run);
    else
      both.runs.back().second = std::max(both.runs.back().second, run.second);
  }
  return both;
}

static Factor intersectFactors(const Factor &a, const Factor &b) {
  Factor both{a.size, {}};
  for (auto [begin, end] : a.runs)
    for (auto [otherBegin, otherEnd] : b.runs)
      if (std::max(begin, otherBegin) < std::min(end, otherEnd))
        both.runs.emplace_back(std::max(begin, otherBegin), std::min(end, otherEnd));
  return both;
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

Places::Places(SmallVector<Factor, 1> parts) {
  int64_t size = 1;
  for (const Factor &part : parts)
    size *= part.size;
  if (llvm::any_of(parts, [](const Factor &part) { return part.runs.empty(); })) {
    factors.push_back({size, {}});
    return;
  }
  for (Factor &part : parts) {
    if (part.size == 1)
      continue;
    if (!factors.empty() && part.isAll() && factors.back().isAll())
      factors.back() = Factor::all(factors.back().size * part.size);
    else
      factors.push_back(std::move(part));
  }
  if (factors.empty())
    factors.push_back(Factor::all(1));
}

int64_t Places::getSize() const {
  int64_t size = 1;
  for (const Factor &factor : factors)
    size *= factor.size;
  return size;
}

int64_t Places::count() const {
  int64_t number = 1;
  for (const Factor &factor : factors)
    number *= factor.count();
  return number;
}

bool Places::isAlignedWith(const Places &other) const {
  auto isWhole = [](const Places &places) { return places.isAll() || places.isNone(); };
  auto getSizeOf = [](const Factor &factor) { return factor.size; };
  return isWhole(*this) || isWhole(other) ||
         llvm::equal(llvm::map_range(factors, getSizeOf),
                     llvm::map_range(other.factors, getSizeOf));
}

SmallVector<Factor, 1> Places::splitAs(const Places &other) const {
  if (!isAll() && !isNone())
    return factors;
  SmallVector<Factor, 1> split;
  for (const Factor &factor : other.factors)
    split.push_back(isAll() ? Factor::all(factor.size) : Factor{factor.size, {}});
  return split;
}

Places Places::unite(const Places &other) const {
  if (isNone() || other.isAll())
    return other;
  if (other.isNone() || isAll())
    return *this;
  if (!isAlignedWith(other))
    return all(getSize());
  SmallVector<Factor, 1> both;
  for (auto [a, b] : llvm::zip_equal(factors, other.factors))
    both.push_back(uniteFactors(a, b));
  return Places(std::move(both));
}

Places Places::intersect(const Places &other) const {
  if (isNone() || other.isAll())
    return *this;
  if (other.isNone() || isAll())
    return other;
  if (!isAlignedWith(other))
    return *this;
  SmallVector<Factor, 1> both;
  for (auto [a, b] : llvm::zip_equal(factors, other.factors))
    both.push_back(intersectFactors(a, b));
  return Places(std::move(both));
}

Places Places::cut(int64_t begin, int64_t end) const {
  assert(factors.size() == 1 && "of one factor");
  Factor part{end - begin, {}};
  for (auto [first, last] : factors.front().runs)
    if (std::max(first, begin) < std::min(last, end))
      part.runs.emplace_back(std::max(first, begin) - begin, std::min(last, end) - begin);
  return Places({std::move(part)});
}

Places Places::shift(int64_t offset, int64_t size) const {
  assert(factors.size() == 1 && "of one factor");
  Factor moved{size, {}};
  for (auto [begin, end] : factors.front().runs)
    moved.runs.emplace_back(begin + offset, end + offset);
  return Places({std::move(moved)});
}

std::optional<Box> Places::expand(ArrayRef<int64_t> sizes) const {
  Box dims;
  if (isNone()) {
    for (int64_t size : sizes)
      dims.push_back(none(size));
    return dims;
  }
  // From the fastest on; a factor with all indices is split where a dimension ends.
  SmallVector<Factor, 1> waiting(factors);
  for (int64_t size : llvm::reverse(sizes)) {
    SmallVector<Factor, 1> parts;
    for (int64_t missing = size; missing > 1;) {
      Factor &next = waiting.back();
      if (missing % next.size == 0) {
        missing /= next.size;
        parts.insert(parts.begin(), waiting.pop_back_val());
      } else if (next.isAll() && next.size % missing == 0) {
        next = Factor::all(next.size / missing);
        parts.insert(parts.begin(), Factor::all(missing));
        missing = 1;
      } else {
        return std::nullopt;
      }
    }
    dims.insert(dims.begin(), Places(std::move(parts)));
  }
  return dims;
}

Places Places::collapse(ArrayRef<Places> dims) {
  SmallVector<Factor, 1> parts;
  for (const Places &places : dims)
    llvm::append_range(parts, places.factors);
  return Places(std::move(parts));
}

//===----------------------------------------------------------------------===//
// Boxes
//===----------------------------------------------------------------------===//

Box mlir::memopt::getWholeBox(ArrayRef<int64_t> shape) {
  return llvm::to_vector<0>(llvm::map_range(shape, Places::all));
}

Box mlir::memopt::getEmptyBox(ArrayRef<int64_t> shape) {
  return llvm::to_vector<0>(llvm::map_range(shape, Places::none));
}

bool mlir::memopt::isWhole(ArrayRef<Places> box) {
  return llvm::all_of(box, [](const Places &places) { return places.isAll(); });
}

bool mlir::memopt::isEmpty(ArrayRef<Places> box) {
  return llvm::any_of(box, [](const Places &places) { return places.isNone(); });
}

SmallVector<int64_t> mlir::memopt::getCounts(ArrayRef<Places> box) {
  return llvm::map_to_vector(box, [](const Places &places) { return places.count(); });
}

Box mlir::memopt::unite(ArrayRef<Places> a, ArrayRef<Places> b) {
  if (isEmpty(a))
    return Box(b);
  if (isEmpty(b))
    return Box(a);
  Box both;
  for (auto [x, y] : llvm::zip_equal(a, b))
    both.push_back(x.unite(y));
  return both;
}
