//===- Matmuls.cpp - matrix products -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Formula.h"
#include "memopt/Import/Graph/GraphImporter.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringSwitch.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::memopt::ReduceKind;
using Elements = ArrayRef<Element>;

namespace {
/// A matrix operand and whether the product reads it transposed.
struct Matrix {
  Value value;
  bool transposed = false;

  ArrayRef<int64_t> sizes() const { return cast<RankedTensorType>(value.getType()).getShape(); }
  int64_t size(unsigned fromBack) const {
    unsigned index = transposed ? 1 - fromBack : fromBack;
    return sizes()[sizes().size() - 1 - index];
  }
  int64_t rows() const { return size(1); }
  int64_t columns() const { return size(0); }
};
} // namespace

/// Reads through a transpose of the last two dimensions: the product does it for free.
static Matrix getMatrix(Value value) {
  auto transpose = value.getDefiningOp<mlir::memopt::TransposeOp>();
  if (!transpose)
    return {value, false};
  auto expected = to_vector(seq<int64_t>(0, transpose.getPermutation().size()));
  if (expected.size() < 2)
    return {value, false};
  std::swap(expected[expected.size() - 1], expected[expected.size() - 2]);
  if (transpose.getPermutation() != ArrayRef(expected))
    return {value, false};
  return {transpose.getInput(), true};
}

/// Integers have no library: every product of the two, then their sums.
static Value multiplyIntegers(OpContext &op, const Matrix &a, const Matrix &b,
                              ArrayRef<int64_t> batch) {
  int64_t rank = batch.size() + 3; // batch, rows, terms, columns
  auto sizes = Shape(batch);
  sizes.append({a.rows(), a.columns(), b.columns()});
  auto place = [&](const Matrix &matrix, int64_t missing) {
    Value value = matrix.value;
    if (matrix.transposed) {
      SmallVector<int64_t> permutation = to_vector(seq<int64_t>(0, rank - 1));
      std::swap(permutation[rank - 2], permutation[rank - 3]);
      value = transposeValue(op.b, value, permutation);
    }
    Shape expanded(cast<RankedTensorType>(value.getType()).getShape());
    expanded.insert(expanded.begin() + missing, 1);
    return Element(op.b, broadcastValue(op.b, reshapeValue(op.b, value, expanded), sizes));
  };
  Element products = place(a, rank - 1) * place(b, rank - 3);
  return reduceValue(op.b, products, ReduceKind::Add, rank - 2);
}

static Expected<Value> multiplyMatrices(OpContext &op, const Matrix &a, const Matrix &b) {
  Shape sizes(a.sizes().drop_back(2)), batch(sizes);
  if (ArrayRef(sizes) != b.sizes().drop_back(2) || a.columns() != b.rows())
    return op.error("cannot multiply " + toString(a.sizes()) +
                    (a.transposed ? " (transposed)" : "") + " by " + toString(b.sizes()) +
                    (b.transposed ? " (transposed)" : ""));
  mlir::Type element = mlir::getElementTypeOrSelf(a.value);
  mlir::Type other = mlir::getElementTypeOrSelf(b.value);
  if (element.isInteger(1) || other != element)
    return op.error("expected operands of one type, which is not bool, found " +
                    mlir::memopt::getDtypeName(element) + " and " +
                    mlir::memopt::getDtypeName(other) + ": convert one of them");
  sizes.append({a.rows(), b.columns()});
  RETURN_IF_ERROR(countElements(op, sizes).takeError());
  if (!isa<mlir::FloatType>(element))
    return multiplyIntegers(op, a, b, batch);
  return mlir::memopt::MatmulOp::create(op.b, RankedTensorType::get(sizes, element), a.value,
                                        b.value, a.transposed, b.transposed)
      .getResult();
}

/// x [.., K] times a matrix: all leading dimensions become rows.
static Expected<Value> multiplyRows(OpContext &op, Value x, const Matrix &matrix) {
  Shape sizes(cast<RankedTensorType>(x.getType()).getShape());
  int64_t rows = 1;
  for (int64_t size : ArrayRef(sizes).drop_back())
    rows *= size;
  ASSIGN_OR_RETURN(Value product,
                   multiplyMatrices(op, {reshapeValue(op.b, x, {rows, sizes.back()})}, matrix));
  sizes.back() = matrix.columns();
  return reshapeValue(op.b, product, sizes);
}

/// The operator's result, which has the sizes that the file says.
static Error setShaped(OpContext &op, Value value) {
  const TensorMeta &meta = op.resultMeta(0);
  ASSIGN_OR_RETURN(Tensor shaped, reshape(op, op.wrap(meta.dtype, value), meta.sizes));
  return setResult(op, op.copy(shaped));
}

static Error checkElements(OpContext &op, ArrayRef<Tensor> tensors) {
  for (const Tensor &tensor : tensors)
    if (tensor.rank() < 1 || tensor.getNumElements() == 0)
      return op.error("expected operands with elements and dimensions, found " +
                      toString(tensor.sizes));
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Products of vectors and matrices
//===----------------------------------------------------------------------===//

/// A weight that is a vector is a matrix of one row whose result loses its dimension.
static Error lowerLinear(OpContext &op) {
  Tensor input = op.tensor("input"), weight = op.tensor("weight");
  RETURN_IF_ERROR(checkElements(op, {input, weight}));
  if (weight.rank() == 1) {
    ASSIGN_OR_RETURN(weight, reshape(op, weight, {1, weight.sizes[0]}));
  }
  if (weight.rank() != 2)
    return op.error("expected a matrix as weight, found " + toString(weight.sizes));
  ASSIGN_OR_RETURN(Value product, multiplyRows(op, op.get(input), {op.get(weight), true}));
  std::optional<Tensor> bias = op.optionalTensor("bias");
  if (!bias)
    return setShaped(op, product);
  op.importer.suggestInitial(*bias, 0);
  // One row for each vector, so that the sum is a broadcast along one dimension.
  int64_t rows = input.getNumElements() / input.sizes.back();
  if (bias->rank() != 1 || bias->sizes[0] != weight.sizes[0] || bias->dtype != input.dtype) {
    Tensor shaped = op.wrap(input.dtype, product);
    ASSIGN_OR_RETURN(shaped, reshape(op, shaped, op.resultMeta(0).sizes));
    DType type = op.resultMeta(0).dtype;
    return setResult(op, elementwise(op, {shaped, *bias}, type, type,
                                     inBuild([](Elements v) { return v[0] + v[1]; })));
  }
  Element flat(op.b, reshapeValue(op.b, product, {rows, weight.sizes[0]}));
  Element spread(op.b, broadcastAlong(op.b, op.get(*bias), 1, {rows, weight.sizes[0]}));
  return setShaped(op, flat + spread);
}

// Vectors become matrices for the moment.
Expected<Value> memopt::pt2::matmulOf(OpContext &op, Tensor a, Tensor b) {
  RETURN_IF_ERROR(checkElements(op, {a, b}));
  if (b.rank() == 1) {
    ASSIGN_OR_RETURN(b, reshape(op, b, {b.sizes[0], 1}));
  }
  if (b.rank() == 2)
    return multiplyRows(op, op.get(a), getMatrix(op.get(b)));
  if (a.rank() == 1) {
    ASSIGN_OR_RETURN(a, reshape(op, a, {1, a.sizes[0]}));
  }
  ASSIGN_OR_RETURN(Shape batch, broadcastShapes(op, ArrayRef(a.sizes).drop_back(2),
                                                ArrayRef(b.sizes).drop_back(2)));
  auto withBatch = [&](const Tensor &tensor) {
    Shape sizes(batch);
    append_range(sizes, ArrayRef(tensor.sizes).take_back(2));
    return expand(op, tensor, sizes);
  };
  ASSIGN_OR_RETURN(a, withBatch(a));
  ASSIGN_OR_RETURN(b, withBatch(b));
  return multiplyMatrices(op, getMatrix(op.get(a)), getMatrix(op.get(b)));
}

static Error lowerMatmul(OpContext &op) {
  Tensor b = op.tensor(StringSwitch<StringRef>(op.node.target)
                           .Case("aten.matmul.default", "other")
                           .Case("aten.mv.default", "vec")
                           .Case("aten.dot.default", "tensor")
                           .Default("mat2"));
  ASSIGN_OR_RETURN(Value product, matmulOf(op, op.tensor("self"), b));
  return setShaped(op, product);
}

/// beta * self + alpha * product; PyTorch ignores self when beta is 0, NaNs included.
static Error addProduct(OpContext &op, Value product) {
  Scalar alpha = op.scalar("alpha"), beta = op.scalar("beta");
  DType type = op.resultMeta(0).dtype;
  auto scale = [](Element x, const Scalar &by) {
    if (by.asDouble() == 1)
      return x;
    return x * Element(x.getBuilder(), splat(x.getBuilder(), x.getType(), by));
  };
  return setResult(op, elementwise(op, {op.tensor("self"), op.wrap(type, product)}, type, type,
                                   inBuild([&](Elements v) {
                                     Element scaled = scale(v[1], alpha);
                                     return beta.asDouble() == 0 ? scaled
                                                                 : scaled + scale(v[0], beta);
                                   })));
}

static Error lowerAddProduct(OpContext &op, const Tensor &first, const Tensor &second,
                             ArrayRef<int64_t> ranks) {
  if (first.rank() != ranks[0] || second.rank() != ranks[1])
    return op.error("expected factors of rank " + Twine(ranks[0]) + " and " + Twine(ranks[1]) +
                    ", found " + toString(first.sizes) + " and " + toString(second.sizes));
  ASSIGN_OR_RETURN(Value product, matmulOf(op, first, second));
  if (ranks[1] == 1) // the column of a vector
    product = reshapeValue(op.b, product, {first.sizes[0]});
  return addProduct(op, product);
}

static Error lowerAddmm(OpContext &op) {
  return lowerAddProduct(op, op.tensor("mat1"), op.tensor("mat2"), {2, 2});
}
static Error lowerBaddbmm(OpContext &op) {
  return lowerAddProduct(op, op.tensor("batch1"), op.tensor("batch2"), {3, 3});
}
static Error lowerAddmv(OpContext &op) {
  return lowerAddProduct(op, op.tensor("mat"), op.tensor("vec"), {2, 1});
}

/// The sum over a batch of products is one product, with batch and inner dimension as its terms.
static Error lowerAddbmm(OpContext &op) {
  Tensor a = op.tensor("batch1"), b = op.tensor("batch2");
  if (a.rank() != 3 || b.rank() != 3 || a.sizes[0] != b.sizes[0] || a.sizes[2] != b.sizes[1])
    return op.error("expected batches of matrices, found " + toString(a.sizes) + " and " +
                    toString(b.sizes));
  int64_t terms = a.sizes[0] * a.sizes[2];
  ASSIGN_OR_RETURN(Tensor left, reshape(op, permute(op, a, {1, 0, 2}), {a.sizes[1], terms}));
  ASSIGN_OR_RETURN(Tensor right, reshape(op, b, {terms, b.sizes[2]}));
  ASSIGN_OR_RETURN(Value product, matmulOf(op, left, right));
  return addProduct(op, product);
}

//===----------------------------------------------------------------------===//
// Products of elements
//===----------------------------------------------------------------------===//

/// Every product of an element of `x` and one of `y`, as a matrix.
static Expected<Tensor> outerProduct(OpContext &op, Tensor x, const Tensor &y) {
  if (x.rank() != 1 || y.rank() != 1)
    return op.error("expected vectors, found " + toString(x.sizes) + " and " + toString(y.sizes));
  ASSIGN_OR_RETURN(x, reshape(op, x, {x.sizes[0], 1}));
  DType type = op.resultMeta(0).dtype;
  return elementwise(op, {x, y}, type, type, inBuild([](Elements v) { return v[0] * v[1]; }),
                     [](ArrayRef<int64_t> v) { return int64_t(uint64_t(v[0]) * uint64_t(v[1])); });
}

static Error lowerOuter(OpContext &op) {
  return setResult(op, outerProduct(op, op.tensor("self"), op.tensor("vec2")));
}

static Error lowerAddr(OpContext &op) {
  ASSIGN_OR_RETURN(Tensor product, outerProduct(op, op.tensor("vec1"), op.tensor("vec2")));
  return addProduct(op, op.get(product));
}

/// The sum of products of elements along a dimension.
static Error sumProducts(OpContext &op, const Tensor &x, const Tensor &y, StringRef dimension) {
  DType type = op.resultMeta(0).dtype;
  ASSIGN_OR_RETURN(Tensor products, elementwise(op, {x, y}, type, type,
                                                inBuild([](Elements v) { return v[0] * v[1]; })));
  if (products.rank() == 0 || products.getNumElements() == 0)
    return op.error("expected tensors with dimensions and elements");
  int64_t dim = 0;
  if (!dimension.empty()) {
    ASSIGN_OR_RETURN(dim, op.dimension(dimension, products.rank()));
  }
  return setShaped(op, reduceValue(op.b, op.get(products), ReduceKind::Add, dim));
}

static Error lowerVdot(OpContext &op) {
  return sumProducts(op, op.tensor("self"), op.tensor("other"), "");
}
static Error lowerVecdot(OpContext &op) {
  return sumProducts(op, op.tensor("x"), op.tensor("y"), "dim");
}

/// Each element of one tensor times the whole other.
static Error lowerKron(OpContext &op) {
  Tensor a = op.tensor("self"), b = op.tensor("other");
  int64_t rank = std::max(a.rank(), b.rank());
  auto interleave = [&](const Tensor &tensor, bool isOuter) {
    Shape sizes;
    for (int64_t dim = 0; dim != rank; ++dim) {
      int64_t own = dim - (rank - tensor.rank()), size = own < 0 ? 1 : tensor.sizes[own];
      sizes.append({isOuter ? size : 1, isOuter ? 1 : size});
    }
    return reshape(op, tensor, sizes);
  };
  ASSIGN_OR_RETURN(a, interleave(a, true));
  ASSIGN_OR_RETURN(b, interleave(b, false));
  DType type = op.resultMeta(0).dtype;
  ASSIGN_OR_RETURN(Tensor products, elementwise(op, {a, b}, type, type,
                                                inBuild([](Elements v) { return v[0] * v[1]; })));
  return setShaped(op, op.get(products));
}

/// a x b along a dimension of three.
static Error lowerCross(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  Tensor a = castTo(op, op.tensor("self"), type), b = castTo(op, op.tensor("other"), type);
  ASSIGN_OR_RETURN(Shape sizes, broadcastShapes(op, a.sizes, b.sizes));
  ASSIGN_OR_RETURN(a, expand(op, a, sizes));
  ASSIGN_OR_RETURN(b, expand(op, b, sizes));
  int64_t dim = -1;
  if (op.has("dim")) {
    ASSIGN_OR_RETURN(dim, op.dimension("dim", sizes.size()));
  } else {
    dim = find(sizes, 3) - sizes.begin();
  }
  if (dim >= int64_t(sizes.size()) || sizes[dim] != 3)
    return op.error("expected a dimension of size 3, found " + toString(sizes));
  // The tensor whose element i is element i + by.
  auto turn = [&](const Tensor &tensor, int64_t by) -> Expected<Element> {
    SmallVector<Value> parts;
    for (auto [begin, count] : {std::pair(by, 3 - by), std::pair<int64_t, int64_t>(0, by)}) {
      ASSIGN_OR_RETURN(Tensor part, slice(op, tensor, dim, begin, 1, count));
      parts.push_back(op.get(part));
    }
    return Element(op.b, mlir::tensor::ConcatOp::create(op.b, dim, parts));
  };
  ASSIGN_OR_RETURN(Element a1, turn(a, 1));
  ASSIGN_OR_RETURN(Element a2, turn(a, 2));
  ASSIGN_OR_RETURN(Element b1, turn(b, 1));
  ASSIGN_OR_RETURN(Element b2, turn(b, 2));
  return setResult(op, op.wrap(type, a1 * b2 - a2 * b1));
}

//===----------------------------------------------------------------------===//
// Products of several tensors, and over several dimensions
//===----------------------------------------------------------------------===//

/// The tensor as a matrix whose columns are `contracted`, in this order.
static Expected<Tensor> asMatrix(OpContext &op, const Tensor &tensor,
                                 ArrayRef<int64_t> contracted) {
  Shape permutation;
  int64_t columns = 1;
  for (int64_t dim = 0; dim != tensor.rank(); ++dim)
    if (!is_contained(contracted, dim))
      permutation.push_back(dim);
  for (int64_t dim : contracted) {
    permutation.push_back(dim);
    columns *= tensor.sizes[dim];
  }
  return reshape(op, permute(op, tensor, permutation),
                 {tensor.getNumElements() / columns, columns});
}

static Expected<Shape> getContracted(OpContext &op, StringRef name, int64_t rank) {
  Shape result;
  for (int64_t value : op.integers(name)) {
    ASSIGN_OR_RETURN(int64_t dim, op.dimension(name, value, rank));
    if (is_contained(result, dim) || dim >= rank)
      return op.error("argument '" + name + "': expected distinct dimensions below " + Twine(rank));
    result.push_back(dim);
  }
  return result;
}

/// Sums over pairs of dimensions; what is left of the first tensor comes before that of the second.
static Expected<Value> contract(OpContext &op, const Tensor &a, ArrayRef<int64_t> ofA,
                                const Tensor &b, ArrayRef<int64_t> ofB) {
  if (a.getNumElements() == 0 || b.getNumElements() == 0)
    return op.error("tensors without elements are not supported");
  ASSIGN_OR_RETURN(Tensor left, asMatrix(op, a, ofA));
  ASSIGN_OR_RETURN(Tensor right, asMatrix(op, b, ofB));
  return multiplyMatrices(op, {op.get(left)}, {op.get(right), true});
}

static Error lowerTensordot(OpContext &op) {
  Tensor a = op.tensor("self"), b = op.tensor("other");
  ASSIGN_OR_RETURN(Shape ofA, getContracted(op, "dims_self", a.rank()));
  ASSIGN_OR_RETURN(Shape ofB, getContracted(op, "dims_other", b.rank()));
  if (ofA.size() != ofB.size())
    return op.error("expected as many dimensions of one tensor as of the other");
  ASSIGN_OR_RETURN(Value product, contract(op, a, ofA, b, ofB));
  return setShaped(op, product);
}

/// Over the last dimension of both; a scalar multiplies.
static Error lowerInner(OpContext &op) {
  Tensor a = op.tensor("self"), b = op.tensor("other");
  if (a.rank() && b.rank()) {
    ASSIGN_OR_RETURN(Value product, contract(op, a, a.rank() - 1, b, b.rank() - 1));
    return setShaped(op, product);
  }
  return mapElements(op, {a, b}, [](Elements v) { return v[0] * v[1]; });
}

namespace {
/// The order of a chain of products that takes the fewest multiplications: split[i][j] is where the
/// factors i to j are parted (Cormen et al., Introduction to Algorithms, section 14.2).
struct ChainOrder {
  std::vector<std::vector<size_t>> split;

  explicit ChainOrder(ArrayRef<Tensor> factors)
      : split(factors.size(), std::vector<size_t>(factors.size())) {
    size_t count = factors.size();
    std::vector<std::vector<double>> cost(count, std::vector<double>(count, 0));
    for (size_t length = 2; length <= count; ++length)
      for (size_t i = 0; i + length <= count; ++i) {
        size_t j = i + length - 1;
        cost[i][j] = std::numeric_limits<double>::infinity();
        for (size_t k = i; k != j; ++k) {
          double total = cost[i][k] + cost[k + 1][j] +
                         double(factors[i].sizes[0]) * double(factors[k].sizes[1]) *
                             double(factors[j].sizes[1]);
          if (total < cost[i][j]) {
            cost[i][j] = total;
            split[i][j] = k;
          }
        }
      }
  }
};
} // namespace

static Expected<Value> multiplyChain(OpContext &op, ArrayRef<Tensor> factors,
                                     const ChainOrder &order, size_t first, size_t last) {
  if (first == last)
    return op.get(factors[first]);
  size_t split = order.split[first][last];
  ASSIGN_OR_RETURN(Value left, multiplyChain(op, factors, order, first, split));
  ASSIGN_OR_RETURN(Value right, multiplyChain(op, factors, order, split + 1, last));
  return multiplyMatrices(op, getMatrix(left), getMatrix(right));
}

/// Matrices; the first may be a row and the last a column.
static Error multiplyAll(OpContext &op, StringRef name) {
  SmallVector<Tensor> factors;
  for (const std::optional<Tensor> &tensor : op.tensors(name))
    factors.push_back(*tensor);
  constexpr size_t most = 1024;
  if (factors.empty() || factors.size() > most)
    return op.error("expected from 1 to " + Twine(most) + " matrices, found " +
                    Twine(factors.size()));
  for (auto [i, factor] : enumerate(factors)) {
    bool isRow = i == 0, isColumn = i + 1 == factors.size() && i != 0;
    if (factor.rank() == 1 && (isRow || isColumn)) {
      ASSIGN_OR_RETURN(
          factor,
          reshape(op, factor, isRow ? Shape{1, factor.sizes[0]} : Shape{factor.sizes[0], 1}));
    }
    if (factor.rank() != 2 || factor.getNumElements() == 0)
      return op.error("expected matrices with elements, found " + toString(factor.sizes));
  }
  ChainOrder order(factors);
  ASSIGN_OR_RETURN(Value product, multiplyChain(op, factors, order, 0, factors.size() - 1));
  return setShaped(op, product);
}
static Error lowerMultiDot(OpContext &op) { return multiplyAll(op, "tensors"); }
static Error lowerChainMatmul(OpContext &op) { return multiplyAll(op, "matrices"); }

static Error lowerMatrixPower(OpContext &op) {
  Tensor self = op.tensor("self");
  int64_t n = op.integer("n");
  constexpr int64_t most = 1 << 16;
  if (n < 0 || n > most)
    return op.error("argument 'n': expected a power from 0 to " + Twine(most) + ", found " +
                    Twine(n) + "; inverses are not supported");
  if (self.rank() < 2 || self.sizes[self.rank() - 1] != self.sizes[self.rank() - 2])
    return op.error("expected square matrices, found " + toString(self.sizes));
  if (n == 0) {
    auto indices = RankedTensorType::get(self.sizes, op.b.getI32Type());
    Element row(op.b, mlir::memopt::IotaOp::create(op.b, indices, self.rank() - 2));
    Element column(op.b, mlir::memopt::IotaOp::create(op.b, indices, self.rank() - 1));
    return setResult(
        op, op.wrap(self.dtype, convert(op.b, equals(row, column), DType::Bool, self.dtype)));
  }
  std::optional<Tensor> result;
  for (Tensor base = self; n; n /= 2) {
    if (n % 2 && result) {
      ASSIGN_OR_RETURN(Value product, matmulOf(op, base, *result));
      result = op.wrap(self.dtype, product);
    } else if (n % 2) {
      result = base;
    }
    if (n > 1) {
      ASSIGN_OR_RETURN(Value square, matmulOf(op, base, base));
      base = op.wrap(self.dtype, square);
    }
  }
  return setShaped(op, op.get(*result));
}

/// y[.., k] = x1[.., i] w[k, i, j] x2[.., j] + b[k]: first all sums over i, then those over j.
static Error lowerBilinear(OpContext &op) {
  Tensor x = op.tensor("input1"), y = op.tensor("input2"), weight = op.tensor("weight");
  RETURN_IF_ERROR(checkElements(op, {x, y, weight}));
  if (weight.rank() != 3 || x.sizes.back() != weight.sizes[1] ||
      y.sizes.back() != weight.sizes[2] || x.rank() != y.rank())
    return op.error("expected a weight [out, " + Twine(x.sizes.back()) + ", " +
                    Twine(y.sizes.back()) + "], found " + toString(weight.sizes));
  int64_t rows = x.getNumElements() / x.sizes.back(), out = weight.sizes[0],
          second = weight.sizes[2];
  Tensor table = permute(op, weight, {1, 0, 2});
  ASSIGN_OR_RETURN(table, reshape(op, table, {weight.sizes[1], out * second}));
  ASSIGN_OR_RETURN(Value first, multiplyRows(op, op.get(x), {op.get(table)}));
  Shape sizes{rows, out, second};
  Element sums(op.b, reshapeValue(op.b, first, sizes));
  Value flat = reshapeValue(op.b, op.get(y), {rows, 1, second});
  Element products = sums * Element(op.b, broadcastValue(op.b, flat, sizes));
  Element result(op.b, reduceValue(op.b, products, ReduceKind::Add, 2));
  if (std::optional<Tensor> bias = op.optionalTensor("bias")) {
    if (bias->rank() != 1 || bias->sizes[0] != out)
      return op.error("expected a bias of shape [" + Twine(out) + "], found " +
                      toString(bias->sizes));
    result = result + Element(op.b, broadcastAlong(op.b, op.get(*bias), 1, {rows, out}));
  }
  return setShaped(op, result);
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerMatmuls(OpTable &table) {
  table.add("aten.linear.default", "Tensor input, Tensor weight, Tensor? bias=None", lowerLinear);
  table.add("aten.matmul.default", "Tensor self, Tensor other", lowerMatmul);
  table.add("aten.mm.default", "Tensor self, Tensor mat2", lowerMatmul);
  table.add("aten.bmm.default", "Tensor self, Tensor mat2", lowerMatmul);
  table.add("aten.mv.default", "Tensor self, Tensor vec", lowerMatmul);
  table.add("aten.dot.default", "Tensor self, Tensor tensor", lowerMatmul);
  for (auto [name, parameters, lower] :
       {std::tuple<StringLiteral, StringLiteral, Lowering>(
            "aten.addmm.default",
            "Tensor self, Tensor mat1, Tensor mat2, Scalar beta=1, Scalar alpha=1", lowerAddmm),
        {"aten.baddbmm.default",
         "Tensor self, Tensor batch1, Tensor batch2, Scalar beta=1, Scalar alpha=1", lowerBaddbmm},
        {"aten.addbmm.default",
         "Tensor self, Tensor batch1, Tensor batch2, Scalar beta=1, Scalar alpha=1", lowerAddbmm},
        {"aten.addmv.default", "Tensor self, Tensor mat, Tensor vec, Scalar beta=1, Scalar alpha=1",
         lowerAddmv},
        {"aten.addr.default",
         "Tensor self, Tensor vec1, Tensor vec2, Scalar beta=1, Scalar alpha=1", lowerAddr}})
    table.add(name, parameters, lower);
  table.add("aten.outer.default", "Tensor self, Tensor vec2", lowerOuter);
  table.add("aten.ger.default", "Tensor self, Tensor vec2", lowerOuter);
  table.add("aten.inner.default", "Tensor self, Tensor other", lowerInner);
  table.add("aten.vdot.default", "Tensor self, Tensor other", lowerVdot);
  table.add("aten.linalg_vecdot.default", "Tensor x, Tensor y, int dim=-1", lowerVecdot);
  table.add("aten.kron.default", "Tensor self, Tensor other", lowerKron);
  table.add("aten.cross.default", "Tensor self, Tensor other, int? dim=None", lowerCross);
  table.add("aten.linalg_cross.default", "Tensor self, Tensor other, int dim=-1", lowerCross);
  table.add("aten.tensordot.default",
            "Tensor self, Tensor other, int[] dims_self, int[] dims_other", lowerTensordot);
  table.add("aten.linalg_multi_dot.default", "Tensor[] tensors", lowerMultiDot);
  table.add("aten.chain_matmul.default", "Tensor[] matrices", lowerChainMatmul);
  table.add("aten.linalg_matrix_power.default", "Tensor self, int n", lowerMatrixPower);
  table.add("aten.matrix_power.default", "Tensor self, int n", lowerMatrixPower);
  table.add("aten.bilinear.default",
            "Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None", lowerBilinear);
}
