//===- LinearAlgebra.cpp - decompositions of matrices -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The op and the library call that it becomes, which says its shapes, types and costs.
//
//===----------------------------------------------------------------------===//

#include "../Loops/IterationBuilder.h"
#include "LibraryChecks.h"
#include "memopt/Dialect/ApartOps.h"

#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace mlir::memopt;
namespace json = llvm::json;

#define GET_OP_CLASSES
#include "memopt/Dialect/LinearAlgebraOps.cpp.inc"

//===----------------------------------------------------------------------===//
// The call
//===----------------------------------------------------------------------===//

static bool isOfTriangle(LinearAlgebraKind kind) {
  return kind == LinearAlgebraKind::TriangularSolve || kind == LinearAlgebraKind::TriangularProduct;
}

LogicalResult LinearAlgebraAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                        LinearAlgebraKind kind, int64_t batch, int64_t rows,
                                        int64_t columns, int64_t width, bool upper, bool unit,
                                        bool transposed, bool right, bool pairs, Type type) {
  Checks checks(emitError);
  checks.extents("batch, rows and columns", {batch, rows, columns});
  bool isTriangular = isOfTriangle(kind),
       isSolve = isTriangular || kind == LinearAlgebraKind::LuSolve,
       isProduct = kind == LinearAlgebraKind::ReflectionProduct;
  if (isSolve || isProduct)
    checks.extents("batch, rows and width", {batch, rows, width});
  else
    checks.require(width == 0,
                   "width is of solves and products of triangles and reflections, found " +
                       Twine(width));
  bool isSquare =
      isSolve || kind == LinearAlgebraKind::Cholesky || kind == LinearAlgebraKind::Eigenvectors;
  checks.require(!isSquare || rows == columns,
                 "expects square matrices, found " + Twine(rows) + " x " + Twine(columns));
  checks.require(!isProduct || (rows >= columns && columns >= width),
                 "expects no more columns than rows and no more factors than columns, found " +
                     Twine(width) + " factors of " + Twine(rows) + " x " + Twine(columns));
  checks.require(isTriangular || !(upper || unit || right),
                 "upper, unit and right are of triangles");
  checks.require(isSolve || !transposed, "transposed is of solves and triangles");
  checks.require(type.isF32() || type.isF64(), "expects f32 or f64, found " + getTypeName(type));
  int64_t least = std::min(rows, columns), most = std::max({rows, columns, width});
  checks.require(least <= kMaxMatrixSquare && most <= kMaxMatrixExtent,
                 "matrices have at most " + Twine(kMaxMatrixSquare) + " rows and " +
                     Twine(kMaxMatrixExtent) + " columns, or the other way, found " + Twine(rows) +
                     " x " + Twine(columns) + " and width " + Twine(width));
  return checks.get();
}

StringRef LinearAlgebraAttr::getKindName() const { return stringifyEnum(getKind()); }

unsigned LinearAlgebraAttr::getNumOperands() const {
  if (getKind() == LinearAlgebraKind::LuSolve)
    return 3;
  return getWidth() ? 2 : 1;
}

/// As LAPACK counts (working note 41), but for iterations, of which there are a few for each value.
static int64_t countRealFlops(LinearAlgebraAttr call) {
  int64_t m = std::max(call.getRows(), call.getColumns()),
          n = std::min(call.getRows(), call.getColumns());
  switch (call.getKind()) {
  case LinearAlgebraKind::Cholesky:
    return multiplyCounts({call.getBatch(), n, n, n}) / 3;
  case LinearAlgebraKind::Eigenvectors:
    return multiplyCounts({6, call.getBatch(), n, n, n});
  case LinearAlgebraKind::SingularVectors:
    return multiplyCounts({12, call.getBatch(), m, n, n});
  case LinearAlgebraKind::Reflections:
    return multiplyCounts({2, call.getBatch(), m, n, n});
  case LinearAlgebraKind::ReflectionProduct:
    return multiplyCounts({4, call.getBatch(), m, n, call.getWidth()});
  case LinearAlgebraKind::Lu:
    return multiplyCounts({call.getBatch(), m, n, n});
  case LinearAlgebraKind::LuSolve:
    return multiplyCounts({2, call.getBatch(), n, n, call.getWidth()});
  case LinearAlgebraKind::TriangularSolve:
  case LinearAlgebraKind::TriangularProduct:
    return multiplyCounts({call.getBatch(), n, n, call.getWidth()});
  }
  llvm_unreachable("a kind of its own");
}

/// A product of complex numbers is four of real ones.
int64_t LinearAlgebraAttr::getFlops() const {
  return getPairs() ? multiplyCounts({4, countRealFlops(*this)}) : countRealFlops(*this);
}

/// A matrix is one thread's, and half of the operations are no products of matrices.
Work LinearAlgebraAttr::getWork() const {
  constexpr double kSlowness = 8;
  Work work;
  work.workClass = WorkClass::Matmul;
  work.operations = kSlowness * static_cast<double>(getFlops());
  return work;
}

SmallVector<BufferView> LinearAlgebraAttr::getViews() const {
  int64_t batch = getBatch(), rows = getRows(), columns = getColumns(),
          least = std::min(rows, columns);
  auto real = [&](ArrayRef<int64_t> extents) { return getContiguous(extents, getType()); };
  auto view = [&](ArrayRef<int64_t> extents) {
    SmallVector<int64_t> both(extents);
    if (getPairs())
      both.push_back(2);
    return real(both);
  };
  auto numbers = [&](ArrayRef<int64_t> extents) {
    return getContiguous(extents, IntegerType::get(getContext(), 64));
  };
  BufferView whole = view({batch, rows, columns});
  BufferView sides = getRight() ? view({batch, getWidth(), rows}) : view({batch, rows, getWidth()});
  switch (getKind()) {
  case LinearAlgebraKind::Cholesky:
    return {whole, whole};
  case LinearAlgebraKind::Eigenvectors:
    return {whole, real({batch, rows}), whole};
  case LinearAlgebraKind::SingularVectors:
    return {whole, view({batch, rows, least}), real({batch, least}), view({batch, least, columns})};
  case LinearAlgebraKind::Reflections:
    return {whole, whole, view({batch, least})};
  case LinearAlgebraKind::ReflectionProduct:
    return {whole, view({batch, getWidth()}), whole};
  case LinearAlgebraKind::Lu:
    return {whole, whole, numbers({batch, least}), numbers({batch, rows})};
  case LinearAlgebraKind::LuSolve:
    return {whole, numbers({batch, rows}), sides, sides};
  case LinearAlgebraKind::TriangularSolve:
  case LinearAlgebraKind::TriangularProduct:
    return {whole, sides, sides};
  }
  llvm_unreachable("a kind of its own");
}

/// Each matrix has been read when its results are written: solves work in their right side, everything
/// else in a copy, or element by element.
std::optional<unsigned> LinearAlgebraAttr::getReplaced(unsigned result) const {
  SmallVector<BufferView> views = getViews();
  unsigned replaced =
      getWidth() && getKind() != LinearAlgebraKind::ReflectionProduct ? getNumOperands() - 1 : 0;
  bool isAlike = views[replaced].extents == views[getNumOperands() + result].extents &&
                 views[replaced].elementType == views[getNumOperands() + result].elementType;
  return isAlike ? std::optional(replaced) : std::nullopt;
}

json::Object LinearAlgebraAttr::toJson() const {
  json::Object object = describe(getKindName(), getType(), getType());
  object["batch"] = getBatch();
  object["rows"] = getRows();
  object["columns"] = getColumns();
  if (getWidth())
    object["width"] = getWidth();
  for (auto [key, flag] : {std::pair("upper", getUpper()), std::pair("unit", getUnit()),
                           std::pair("transposed", getTransposed()), std::pair("right", getRight()),
                           std::pair("pairs", getPairs())})
    if (flag)
      object[key] = true;
  return object;
}

//===----------------------------------------------------------------------===//
// The op
//===----------------------------------------------------------------------===//

/// Operands: right sides are the last of them, or factors of reflections.
static unsigned countOperands(LinearAlgebraKind kind) {
  switch (kind) {
  case LinearAlgebraKind::TriangularSolve:
  case LinearAlgebraKind::TriangularProduct:
  case LinearAlgebraKind::ReflectionProduct:
    return 2;
  case LinearAlgebraKind::LuSolve:
    return 3;
  default:
    return 1;
  }
}

LinearAlgebraAttr LinearAlgebraOp::getCall(function_ref<InFlightDiagnostic()> emitError) {
  RankedTensorType matrices = tensorType(getInputs().front());
  ArrayRef<int64_t> sizes = matrices.getShape();
  int64_t width = 0;
  if (countOperands(getKind()) > 1) {
    ArrayRef<int64_t> last = tensorType(getInputs().back()).getShape().drop_back(getPairs());
    width = getRight() ? last[last.size() - 2] : last.back();
  }
  return LinearAlgebraAttr::getChecked(emitError, getContext(), getKind(), sizes[0], sizes[1],
                                       sizes[2], width, getUpper(), getUnit(), getTransposed(),
                                       getRight(), getPairs(), matrices.getElementType());
}

LogicalResult LinearAlgebraOp::verify() {
  unsigned operands = countOperands(getKind());
  if (getInputs().size() != operands)
    return emitOpError() << "has " << getInputs().size() << " operands, expected " << operands;
  if (tensorType(getInputs().front()).getRank() != 3 + getPairs())
    return emitOpError() << "expects matrices [batch, rows, columns" << (getPairs() ? ", 2" : "")
                         << "], found " << getInputs().front().getType();
  if (tensorType(getInputs().back()).getRank() < 1 + getRight() + getPairs())
    return emitOpError("expects a last operand with dimensions");
  LinearAlgebraAttr call = getCall([&] { return emitOpError(); });
  if (!call)
    return failure();
  SmallVector<BufferView> views = call.getViews();
  if (getNumResults() != views.size() - operands)
    return emitOpError() << "has " << getNumResults() << " results, expected "
                         << views.size() - operands;
  SmallVector<Value> values(getInputs());
  values.append(getOutputs().begin(), getOutputs().end());
  for (auto [number, value, view] : llvm::enumerate(values, views)) {
    auto expected = RankedTensorType::get(view.extents, view.elementType);
    if (value.getType() != expected)
      return emitOpError() << (number < operands ? "operand " : "result ")
                           << (number < operands ? number : number - operands) << " has type "
                           << value.getType() << ", expected " << expected;
  }
  return success();
}

int64_t LinearAlgebraOp::getFlops() {
  return getCall([&] { return emitOpError(); }).getFlops();
}

/// Matrices are taken apart one by one, each as a whole.
IterationSpace LinearAlgebraOp::getIterationSpace() {
  IterationBuilder b(*this);
  auto batch = b.addLoop(tensorType(getInputs().front()).getDimSize(0));
  auto readWhole = [&](Value value) {
    Exprs loops{batch};
    for (int64_t size : tensorType(value).getShape().drop_front())
      loops.push_back(b.addLoop(size, LoopKind::Mix));
    b.set(value, loops);
  };
  for (Value input : getInputs())
    readWhole(input);
  for (Value output : getOutputs())
    readWhole(output);
  return b.take();
}
