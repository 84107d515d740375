//===- Einsum.cpp - sums of products by index letters -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/OpContext.h"

#include "llvm/ADT/StringExtras.h"

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

/// "ij,jk->ik": lower- and upper-case letters, each at most once in an operand, an explicit result.
static Error lowerEinsum(OpContext &op) {
  std::string equation;
  for (char c : op.text("equation"))
    if (c != ' ')
      equation += c;
  auto [inputs, output] = StringRef(equation).split("->");
  SmallVector<StringRef> parts;
  inputs.split(parts, ',');
  std::vector<std::optional<Tensor>> tensors = op.tensors("tensors");
  if (!StringRef(equation).contains("->") || parts.size() != tensors.size() || tensors.empty())
    return op.error("expected an equation with a result and " + Twine(tensors.size()) +
                    " operands, found '" + equation + "'");
  std::vector<Lettered> operands;
  for (auto [part, tensor] : zip_equal(parts, tensors)) {
    bool isPlain = all_of(enumerate(part), [&, text = part](auto letter) {
      return isAlpha(letter.value()) &&
             text.find(letter.value(), letter.index() + 1) == StringRef::npos;
    });
    if (!isPlain || int64_t(part.size()) != tensor->rank() || !isFloat(tensor->dtype) ||
        tensor->dtype != tensors.front()->dtype || tensor->getNumElements() == 0)
      return op.error("operand '" + part + "' of shape " + toString(tensor->sizes) +
                      " is not supported");
    operands.push_back({*tensor, part.str()});
  }
  Lettered result = operands.front();
  for (size_t i = 1; i != operands.size(); ++i) {
    std::string kept = output.str(); // what the result and the operands to come still need
    for (size_t j = i + 1; j != operands.size(); ++j)
      kept += operands[j].letters;
    ASSIGN_OR_RETURN(result, contract(op, result, operands[i], kept));
  }
  result = sumOthers(op, result, output);
  if (result.letters.size() != output.size() ||
      !all_of(output, [&](char letter) { return StringRef(result.letters).contains(letter); }))
    return op.error("the result '" + output + "' of '" + equation + "' is not supported");
  ASSIGN_OR_RETURN(Tensor arranged, arrange(op, result, output));
  return setResult(op, op.copy(arranged));
}

void memopt::pt2::registerEinsum(OpTable &table) {
  table.add("aten.einsum.default", "str equation, Tensor[] tensors, ignored path", lowerEinsum);
}
