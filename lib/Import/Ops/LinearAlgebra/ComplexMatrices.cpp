//===- ComplexMatrices.cpp - decompositions of complex matrices ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program that memopt writes has complex numbers as pairs of real ones (complex_values in
// tools/python). What takes complex matrices apart stands in it as one operator, of tensors with a last
// dimension of two; gradients stand beside it, as formulas.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/OpTable.h"
#include "memopt/Import/Ops/LinearAlgebra/Matrices.h"

#include "mlir/IR/Diagnostics.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::memopt::LinearAlgebraAttr;
using mlir::memopt::LinearAlgebraKind;

/// An operand's dimensions beside those of its batch: a matrix of pairs, factors, or numbers of rows.
static size_t countOwnDimensions(LinearAlgebraKind kind, size_t place) {
  if (place == 0)
    return 3;
  if (kind == LinearAlgebraKind::LuSolve)
    return place == 1 ? 1 : 3;
  return kind == LinearAlgebraKind::ReflectionProduct ? 2 : 3;
}
static size_t countOperands(LinearAlgebraKind kind) {
  switch (kind) {
  case LinearAlgebraKind::LuSolve:
    return 3;
  case LinearAlgebraKind::ReflectionProduct:
  case LinearAlgebraKind::TriangularSolve:
  case LinearAlgebraKind::TriangularProduct:
    return 2;
  default:
    return 1;
  }
}

/// `tensor` with its batch dimensions as one.
static Expected<Element> flattenBatch(OpContext &op, const Tensor &tensor, size_t own) {
  if (size_t(tensor.rank()) < own || tensor.getNumElements() == 0)
    return op.error("expected matrices with elements, found " + toString(tensor.sizes));
  ArrayRef<int64_t> last = ArrayRef(tensor.sizes).take_back(own);
  Shape sizes{tensor.getNumElements()};
  for (int64_t size : last)
    sizes[0] /= size;
  sizes.append(last.begin(), last.end());
  mlir::Value value = op.get(tensor);
  return Element(op.b, reshapeValue(op.b, value, sizes));
}

/// The operands of a call that a library can compute; archives say anything.
static Expected<Matrices> getOperands(OpContext &op, LinearAlgebraKind kind) {
  std::vector<std::optional<Tensor>> tensors = op.tensors("inputs");
  if (tensors.size() != countOperands(kind) || !isFloat(tensors.front()->dtype))
    return op.error("expected " + Twine(countOperands(kind)) + " tensors");
  Matrices inputs;
  for (const std::optional<Tensor> &tensor : tensors) {
    ASSIGN_OR_RETURN(Element input,
                     flattenBatch(op, *tensor, countOwnDimensions(kind, inputs.size())));
    inputs.push_back(input);
  }
  if (!hasLibrary(inputs.front()))
    return op.error("complex matrices are taken apart on processors alone; compute it outside of "
                    "the step and pass the result as an input or a buffer");
  ArrayRef<int64_t> sizes = sizesOf(inputs.front());
  std::string said;
  mlir::ScopedDiagnosticHandler handler(op.b.getContext(), [&](mlir::Diagnostic &diagnostic) {
    said = diagnostic.str();
    return mlir::success();
  });
  int64_t width = inputs.size() == 1 ? 0 : sizesOf(inputs.back()).drop_back().back();
  auto call = LinearAlgebraAttr::getChecked(
      [&] { return mlir::emitError(op.b.getLoc()); }, op.b.getContext(), kind, sizes[0], sizes[1],
      sizes[2], width, op.flag("upper"), op.flag("unit"), op.flag("transposed"), /*right=*/false,
      /*pairs=*/true, mlir::getElementTypeOrSelf(inputs.front().getType()));
  if (!call)
    return op.error(said);
  for (auto [input, view] : zip(inputs, call.getViews()))
    if (input.getType() != RankedTensorType::get(view.extents, view.elementType))
      return op.error("expected matrices that fit one another, with a last dimension of 2");
  return inputs;
}

static Error lowerPairs(OpContext &op) {
  StringRef name = op.text("kind");
  std::optional<LinearAlgebraKind> kind = mlir::memopt::symbolizeLinearAlgebraKind(name);
  if (!kind)
    return op.error("argument 'kind': '" + name + "' is none");
  ASSIGN_OR_RETURN(Matrices inputs, getOperands(op, *kind));
  SolveFlags flags;
  flags.upper = op.flag("upper");
  flags.unit = op.flag("unit");
  flags.transposed = op.flag("transposed");
  flags.pairs = true;
  Matrices results = compute(*kind, inputs, flags);
  if (results.size() != op.getNumResults())
    return op.error("expected " + Twine(results.size()) + " results, found " +
                    Twine(op.getNumResults()));
  for (auto [place, result] : enumerate(results)) {
    RETURN_IF_ERROR(setMatrices(op, place, result));
  }
  return Error::success();
}

void memopt::pt2::registerComplexMatrices(OpTable &table) {
  table.add("memopt.linear_algebra.default",
            "Tensor[] inputs, str kind, bool upper=False, bool unit=False, bool transposed=False",
            lowerPairs);
}
