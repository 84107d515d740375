//===- Einsum.cpp - sums of products by index letters -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/OpContext.h"

#include "llvm/ADT/StringExtras.h"

#include <map>

using namespace llvm;
using namespace memopt::pt2;
using mlir::Value;

namespace {
/// A tensor whose dimensions have letters.
struct Lettered {
  Tensor tensor;
  std::string letters;
};
} // namespace

/// The dimensions in the order of `wanted`; those that `lettered` lacks get size 1.
static Expected<Tensor> arrange(OpContext &op, const Lettered &lettered, StringRef wanted) {
  Shape permutation, sizes;
  for (char letter : wanted) {
    size_t at = lettered.letters.find(letter);
    sizes.push_back(at == std::string::npos ? 1 : lettered.tensor.sizes[at]);
    if (at != std::string::npos)
      permutation.push_back(at);
  }
  return reshape(op, permute(op, lettered.tensor, permutation), sizes);
}

/// Adds up dimensions whose letters nobody else has.
static Lettered sumOthers(OpContext &op, Lettered lettered, StringRef kept) {
  SmallVector<int64_t> dims;
  std::string letters;
  for (auto [dim, letter] : enumerate(lettered.letters))
    if (kept.contains(letter))
      letters += letter;
    else
      dims.push_back(dim);
  if (dims.empty())
    return lettered;
  Value sum = reduceValue(op.b, op.get(lettered.tensor), mlir::memopt::ReduceKind::Add, dims);
  return {op.wrap(lettered.tensor.dtype, sum), letters};
}

/// Two operands as one batched product: letters in both and in the result are batch dimensions,
/// those in both only are contracted, the others are rows and columns.
static Expected<Lettered> contract(OpContext &op, Lettered a, Lettered b, StringRef kept) {
  a = sumOthers(op, a, (kept + b.letters).str());
  b = sumOthers(op, b, (kept + a.letters).str());
  std::string batch, inner, rows, columns;
  StringMap<int64_t> size;
  for (auto [letter, n] : zip_equal(a.letters, a.tensor.sizes)) {
    bool shared = StringRef(b.letters).contains(letter);
    (shared ? kept.contains(letter) ? batch : inner : rows) += letter;
    size[StringRef(&letter, 1)] = n;
  }
  for (auto [letter, n] : zip_equal(b.letters, b.tensor.sizes)) {
    auto [it, isNew] = size.try_emplace(StringRef(&letter, 1), n);
    if (isNew)
      columns += letter;
    else if (it->second != n)
      return op.error("index '" + Twine(letter) + "' has sizes " + Twine(it->second) + " and " +
                      Twine(n));
  }
  auto product = [&](StringRef letters) {
    int64_t count = 1;
    for (char letter : letters)
      count *= size[StringRef(&letter, 1)];
    return count;
  };
  ASSIGN_OR_RETURN(Tensor left, arrange(op, a, batch + rows + inner));
  ASSIGN_OR_RETURN(Tensor right, arrange(op, b, batch + columns + inner));
  ASSIGN_OR_RETURN(left, reshape(op, left, {product(batch), product(rows), product(inner)}));
  ASSIGN_OR_RETURN(right, reshape(op, right, {product(batch), product(columns), product(inner)}));
  Value value = mlir::memopt::MatmulOp::create(
      op.b, op.tensorType(a.tensor.dtype, {product(batch), product(rows), product(columns)}),
      op.get(left), op.get(right), /*transpose_a=*/false, /*transpose_b=*/true);
  Lettered result{op.wrap(a.tensor.dtype, value), batch + rows + columns};
  Shape sizes;
  for (char letter : result.letters)
    sizes.push_back(size[StringRef(&letter, 1)]);
  ASSIGN_OR_RETURN(result.tensor, reshape(op, result.tensor, sizes));
  return result;
}

/// The first of two dimensions of one letter, of which only the diagonal counts; the letter comes last.
static Expected<Lettered> takeDiagonals(OpContext &op, Lettered lettered) {
  for (size_t i = 0; i != lettered.letters.size(); ++i) {
    char letter = lettered.letters[i];
    size_t j = lettered.letters.find(letter, i + 1);
    if (j == std::string::npos)
      continue;
    int64_t n = lettered.tensor.sizes[i];
    if (lettered.tensor.sizes[j] != n)
      return op.error("index '" + Twine(letter) + "' has sizes " + Twine(n) + " and " +
                      Twine(lettered.tensor.sizes[j]));
    Shape order, flat;
    std::string letters;
    for (size_t dim = 0; dim != lettered.letters.size(); ++dim) {
      if (dim == i || dim == j)
        continue;
      order.push_back(dim);
      flat.push_back(lettered.tensor.sizes[dim]);
      letters += lettered.letters[dim];
    }
    order.append({int64_t(i), int64_t(j)});
    flat.push_back(n * n);
    ASSIGN_OR_RETURN(Tensor row, reshape(op, permute(op, lettered.tensor, order), flat));
    ASSIGN_OR_RETURN(lettered.tensor, slice(op, row, flat.size() - 1, 0, n + 1, n));
    lettered.letters = letters + letter;
    i = -1; // a letter may come more than twice
  }
  return lettered;
}

/// Leaves out dimensions of size 1 that are as long as another operand's of the same letter.
static Error dropBroadcast(OpContext &op, MutableArrayRef<Lettered> operands) {
  std::map<char, int64_t> longest;
  for (const Lettered &operand : operands)
    for (auto [letter, size] : zip_equal(operand.letters, operand.tensor.sizes))
      longest[letter] = std::max(longest[letter], size);
  for (Lettered &operand : operands) {
    Shape sizes;
    std::string letters;
    for (auto [letter, size] : zip_equal(operand.letters, operand.tensor.sizes)) {
      if (size == 1 && longest[letter] != 1)
        continue;
      sizes.push_back(size);
      letters += letter;
    }
    ASSIGN_OR_RETURN(operand.tensor, reshape(op, operand.tensor, sizes));
    operand.letters = letters;
  }
  return Error::success();
}

namespace {
/// "...ij,jk->...ik": the dimensions of an ellipsis have letters, too, which no equation has; they are
/// numbered from the last on, as they are broadcast.
struct Ellipsis {
  int64_t most = 0;

  static std::string getLetters(int64_t count) {
    std::string letters;
    for (int64_t number = count; number != 0; --number)
      letters += char(number);
    return letters;
  }
  /// One for each dimension; none if there are more or fewer.
  std::optional<std::string> expand(StringRef part, int64_t rank) {
    auto [front, back] = part.split("...");
    int64_t count = rank - int64_t(front.size() + back.size());
    bool isThere = part.contains("...");
    if (!all_of(front, isAlpha) || !all_of(back, isAlpha) || count < 0 || count > 31 ||
        (!isThere && count != 0))
      return std::nullopt;
    most = std::max(most, count);
    return (front + getLetters(count) + back).str();
  }
};
} // namespace

/// What an equation without a result means: letters that come once, in order, behind the ellipsis.
static std::string findOutput(ArrayRef<Lettered> operands, const Ellipsis &ellipsis) {
  std::map<char, int> count;
  for (const Lettered &operand : operands)
    for (char letter : operand.letters)
      ++count[letter];
  std::string output = Ellipsis::getLetters(ellipsis.most);
  for (auto [letter, times] : count)
    if (times == 1 && isAlpha(letter))
      output += letter;
  return output;
}

/// "ij,jk->ik": lower- and upper-case letters.
static Error lowerEinsum(OpContext &op) {
  std::string equation;
  for (char c : op.text("equation"))
    if (c != ' ')
      equation += c;
  auto [inputs, given] = StringRef(equation).split("->");
  SmallVector<StringRef> parts;
  inputs.split(parts, ',');
  std::vector<std::optional<Tensor>> tensors = op.tensors("tensors");
  if (parts.size() != tensors.size() || tensors.empty())
    return op.error("expected " + Twine(tensors.size()) + " operands, found '" + equation + "'");
  std::vector<Lettered> operands;
  Ellipsis ellipsis;
  for (auto [part, tensor] : zip_equal(parts, tensors)) {
    std::optional<std::string> letters = ellipsis.expand(part, tensor->rank());
    if (!letters || !isFloat(tensor->dtype) || tensor->dtype != tensors.front()->dtype ||
        tensor->getNumElements() == 0)
      return op.error("operand '" + part + "' of shape " + toString(tensor->sizes) +
                      " is not supported");
    operands.push_back({*tensor, *letters});
  }
  std::string output = findOutput(operands, ellipsis);
  if (StringRef(equation).contains("->")) {
    auto [front, back] = given.split("...");
    bool isThere = given.contains("...");
    output = (front + Ellipsis::getLetters(isThere ? ellipsis.most : 0) + back).str();
  }
  for (Lettered &operand : operands) {
    ASSIGN_OR_RETURN(operand, takeDiagonals(op, operand));
  }
  RETURN_IF_ERROR(dropBroadcast(op, operands));
  Lettered result = operands.front();
  for (size_t i = 1; i != operands.size(); ++i) {
    std::string kept = output; // what the result and the operands to come still need
    for (size_t j = i + 1; j != operands.size(); ++j)
      kept += operands[j].letters;
    ASSIGN_OR_RETURN(result, contract(op, result, operands[i], kept));
  }
  result = sumOthers(op, result, output);
  if (result.letters.size() != output.size() ||
      !all_of(output, [&](char letter) { return StringRef(result.letters).contains(letter); }))
    return op.error("the result of '" + equation + "' is not supported");
  ASSIGN_OR_RETURN(Tensor arranged, arrange(op, result, output));
  return setResult(op, op.copy(arranged));
}

void memopt::pt2::registerEinsum(OpTable &table) {
  table.add("aten.einsum.default", "str equation, Tensor[] tensors, ignored path", lowerEinsum);
}
