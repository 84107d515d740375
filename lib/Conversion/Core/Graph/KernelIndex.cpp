//===- KernelIndex.cpp - integer arithmetic on loop variables -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Graph/KernelIndex.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <numeric>

using namespace mlir::memopt;
using llvm::ArrayRef;
using llvm::SmallVector;
using llvm::SmallVectorImpl;

void IndexExpr::encode(std::vector<int64_t> &key) const {
  key.push_back(constant);
  key.push_back(terms.size());
  for (auto [atom, coefficient] : terms) {
    key.push_back(atom);
    key.push_back(coefficient);
  }
}

void mlir::memopt::mergeVariables(SmallVectorImpl<AtomId> &into, ArrayRef<AtomId> from) {
  for (AtomId atom : from) {
    auto *place = llvm::lower_bound(into, atom);
    if (place == into.end() || *place != atom)
      into.insert(place, atom);
  }
}

static int64_t floorDivide(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }

//===----------------------------------------------------------------------===//
// Atoms
//===----------------------------------------------------------------------===//

AtomId IndexTable::addVariable(int64_t size) {
  AtomId id = atoms.size();
  IndexAtom atom{IndexAtom::Variable, {0, size - 1}, {}, 1, 0, {}};
  atom.variables.push_back(id);
  atoms.push_back(std::move(atom));
  return id;
}

IndexExpr IndexTable::getDatum(unsigned node, int64_t size, ArrayRef<AtomId> variables) {
  std::vector<int64_t> key{IndexAtom::Datum, int64_t(node), size};
  auto [entry, isNew] = known.try_emplace(std::move(key), atoms.size());
  if (isNew) {
    IndexAtom atom{IndexAtom::Datum, {0, size - 1}, {}, 1, node, {}};
    atom.variables.assign(variables.begin(), variables.end());
    atoms.push_back(std::move(atom));
  }
  return get(entry->second);
}

IndexExpr IndexTable::get(AtomId atom) const {
  IndexExpr result;
  if (atoms[atom].range.low == atoms[atom].range.high) {
    result.constant = atoms[atom].range.low;
    return result;
  }
  result.terms.push_back({atom, 1});
  return result;
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

IndexExpr IndexTable::add(const IndexExpr &a, const IndexExpr &b, int64_t scaleOfB) {
  IndexExpr result(a.constant + scaleOfB * b.constant);
  const auto *x = a.terms.begin(), *y = b.terms.begin();
  while (x != a.terms.end() || y != b.terms.end()) {
    if (y == b.terms.end() || (x != a.terms.end() && x->first < y->first)) {
      result.terms.push_back(*x++);
      continue;
    }
    int64_t coefficient = scaleOfB * y->second;
    if (x != a.terms.end() && x->first == y->first)
      coefficient += (x++)->second;
    if (coefficient)
      result.terms.push_back({y->first, coefficient});
    ++y;
  }
  return result;
}

IndexExpr IndexTable::scale(const IndexExpr &a, int64_t factor) { return add({}, a, factor); }

IndexExpr IndexTable::floorDiv(const IndexExpr &a, int64_t divisor) {
  if (divisor == 1)
    return a;
  // Whole multiples of the divisor leave the quotient.
  IndexExpr whole(floorDivide(a.constant, divisor));
  IndexExpr rest(a.constant - whole.constant * divisor);
  for (auto [atom, coefficient] : a.terms)
    if (coefficient % divisor == 0)
      whole.terms.push_back({atom, coefficient / divisor});
    else
      rest.terms.push_back({atom, coefficient});
  IndexRange range = getRange(rest);
  int64_t least = floorDivide(range.low, divisor);
  if (least == floorDivide(range.high, divisor))
    return add(whole, IndexExpr(least));

  // (g e + k) / (g c) = e / c for 0 <= k < g.
  int64_t common = divisor;
  for (auto [atom, coefficient] : rest.terms)
    common = std::gcd(common, coefficient);
  if (common > 1) {
    IndexExpr reduced(floorDivide(rest.constant, common));
    for (auto [atom, coefficient] : rest.terms)
      reduced.terms.push_back({atom, coefficient / common});
    return add(whole, floorDiv(reduced, divisor / common));
  }
  // (e / b) / c = e / (b c).
  if (rest.constant == 0 && rest.terms.size() == 1 && rest.terms[0].second == 1) {
    const IndexAtom &atom = atoms[rest.terms[0].first];
    if (atom.kind == IndexAtom::Quotient) {
      IndexExpr dividend = atom.dividend;
      return add(whole, floorDiv(dividend, atom.divisor * divisor));
    }
  }
  std::vector<int64_t> key{IndexAtom::Quotient, divisor};
  rest.encode(key);
  auto [entry, isNew] = known.try_emplace(std::move(key), atoms.size());
  if (isNew) {
    IndexAtom atom{IndexAtom::Quotient, {least, floorDivide(range.high, divisor)}, rest, divisor, 0,
                   getVariables(rest)};
    atoms.push_back(std::move(atom));
  }
  return add(whole, get(entry->second));
}

IndexExpr IndexTable::mod(const IndexExpr &a, int64_t divisor) {
  return add(a, floorDiv(a, divisor), -divisor);
}

IndexExpr IndexTable::linearize(ArrayRef<IndexExpr> indices, ArrayRef<int64_t> sizes) {
  IndexExpr result;
  for (auto [index, size] : llvm::zip_equal(indices, sizes))
    result = add(index, result, size);
  return result;
}

SmallVector<IndexExpr> IndexTable::delinearize(const IndexExpr &a, ArrayRef<int64_t> sizes) {
  SmallVector<IndexExpr> result(sizes.size());
  IndexExpr rest = a;
  for (size_t i = sizes.size(); i-- > 1;) {
    IndexExpr quotient = floorDiv(rest, sizes[i]);
    result[i] = add(rest, quotient, -sizes[i]);
    rest = quotient;
  }
  if (!sizes.empty())
    result[0] = rest;
  return result;
}

//===----------------------------------------------------------------------===//
// Facts
//===----------------------------------------------------------------------===//

/// Recognizes k * (d / b) - k * (c / b) * (d / c), that is k * ((d / b) mod (c / b)), for a
/// quotient d / c with a negative coefficient; removes it from `a` and returns its range.
static std::optional<IndexRange> takeRemainder(const std::vector<IndexAtom> &atoms, IndexExpr &a) {
  for (const std::pair<AtomId, int64_t> &term : a.terms) {
    AtomId id = term.first;
    int64_t coefficient = term.second;
    const IndexAtom &quotient = atoms[id];
    if (quotient.kind != IndexAtom::Quotient || coefficient >= 0)
      continue;
    auto take = [&](const IndexExpr &minuend, int64_t base) -> std::optional<IndexRange> {
      if (quotient.divisor % base || -coefficient % (quotient.divisor / base))
        return std::nullopt;
      int64_t size = quotient.divisor / base, factor = -coefficient / size;
      for (auto [atom, c] : minuend.terms)
        if (!llvm::is_contained(a.terms, std::make_pair(atom, c * factor)))
          return std::nullopt;
      IndexExpr taken;
      taken.terms.push_back({id, coefficient});
      a = IndexTable::add(IndexTable::add(a, taken, -1), minuend, -factor);
      return IndexRange{0, factor * (size - 1)};
    };
    if (auto range = take(quotient.dividend, 1))
      return range;
    for (auto [other, c] : a.terms) {
      const IndexAtom &finer = atoms[other];
      if (other == id || finer.kind != IndexAtom::Quotient ||
          !(finer.dividend == quotient.dividend))
        continue;
      IndexExpr minuend;
      minuend.terms.push_back({other, 1});
      if (auto range = take(minuend, finer.divisor))
        return range;
    }
  }
  return std::nullopt;
}

IndexRange IndexTable::getRange(const IndexExpr &a) const {
  IndexExpr rest = a;
  IndexRange result{0, 0};
  while (auto range = takeRemainder(atoms, rest)) {
    result.low += range->low;
    result.high += range->high;
  }
  result.low += rest.constant;
  result.high += rest.constant;
  for (auto [atom, coefficient] : rest.terms) {
    IndexRange range = atoms[atom].range;
    result.low += coefficient * (coefficient > 0 ? range.low : range.high);
    result.high += coefficient * (coefficient > 0 ? range.high : range.low);
  }
  return result;
}

SmallVector<AtomId, 4> IndexTable::getVariables(const IndexExpr &a) const {
  SmallVector<AtomId, 4> result;
  for (auto [atom, coefficient] : a.terms)
    mergeVariables(result, atoms[atom].variables);
  return result;
}

std::optional<int64_t> IndexTable::getStride(const IndexExpr &a, AtomId variable) const {
  int64_t stride = 0;
  for (auto [atom, coefficient] : a.terms) {
    if (atom == variable)
      stride = coefficient;
    else if (llvm::is_contained(atoms[atom].variables, variable))
      return std::nullopt;
  }
  return stride;
}

/// By lane, floor((n + lane) / divisor) - floor(n / divisor), where n is what the dividend is in the
/// first lane; nothing where that differs from block to block of lanes.
static std::optional<SmallVector<int64_t>>
divideLanes(const IndexTable &table, const IndexAtom &quotient, const Lanes &lanes) {
  if (table.getStride(quotient.dividend, lanes.variable) != 1)
    return std::nullopt;
  // What divides n and the divisor.
  int64_t common = std::gcd(quotient.divisor, quotient.dividend.constant);
  for (auto [atom, coefficient] : quotient.dividend.terms)
    common = std::gcd(common, atom == lanes.variable ? lanes.step : coefficient);
  if (common != quotient.divisor && common < lanes.count)
    return std::nullopt;
  SmallVector<int64_t> result;
  for (int64_t lane = 0; lane < lanes.count; ++lane)
    result.push_back(common == quotient.divisor ? lane / quotient.divisor : 0);
  return result;
}

std::optional<SmallVector<int64_t>> IndexTable::getOffsets(const IndexExpr &a,
                                                           const Lanes &lanes) const {
  SmallVector<int64_t> result(lanes.count, 0);
  for (auto [id, coefficient] : a.terms) {
    const IndexAtom &atom = atoms[id];
    if (!llvm::is_contained(atom.variables, lanes.variable))
      continue;
    std::optional<SmallVector<int64_t>> steps;
    if (atom.kind == IndexAtom::Variable)
      steps = llvm::to_vector(llvm::seq<int64_t>(0, lanes.count));
    else if (atom.kind == IndexAtom::Quotient)
      steps = divideLanes(*this, atom, lanes);
    if (!steps)
      return std::nullopt;
    for (auto [offset, step] : llvm::zip_equal(result, *steps))
      offset += coefficient * step;
  }
  return result;
}

void IndexTable::print(const IndexExpr &a, llvm::raw_ostream &os) const {
  bool first = true;
  for (auto [id, coefficient] : a.terms) {
    if (!first)
      os << " + ";
    first = false;
    if (coefficient != 1)
      os << coefficient << "*";
    const IndexAtom &atom = atoms[id];
    if (atom.kind == IndexAtom::Variable) {
      os << "i" << id;
    } else if (atom.kind == IndexAtom::Datum) {
      os << "n" << atom.node;
    } else {
      os << "((";
      print(atom.dividend, os);
      os << ") / " << atom.divisor << ")";
    }
  }
  if (first || a.constant)
    os << (first ? "" : " + ") << a.constant;
}
