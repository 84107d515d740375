//===- OpContext.h - one operator being lowered -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a lowering sees: its arguments, already checked against the operator's row; a builder; and
// where to put results, which are checked against the shapes and types that the file claims.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_GRAPH_OPCONTEXT_H
#define MEMOPT_IMPORT_GRAPH_OPCONTEXT_H

#include "memopt/Import/Archive/AssignOrReturn.h"
#include "memopt/Import/Archive/ConstantTensor.h"
#include "memopt/Import/Graph/OpTable.h"

#include "memopt/Dialect/Memopt.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/TypeUtilities.h"

#include <variant>

namespace memopt::pt2 {

using Shape = llvm::SmallVector<int64_t, 4>;

/// A tensor of the graph while importing. It is either known (`constant`) or computed (`value`).
/// The value's type has the rank of `sizes` and may have size 1 where `sizes` has more:
/// broadcasting waits until somebody needs all the elements, so that masks and repeated heads stay
/// small.
///
/// `storage` and `view` are for in-place operators: tensors of one storage share memory in PyTorch,
/// and those of one view too are the same tensor under two names. Views of a tensor keep its
/// storage.
struct Tensor {
  DType dtype = DType::F32;
  Shape sizes;
  mlir::Value value;
  Constant constant;
  int64_t storage = -1, view = -1;

  int64_t rank() const { return sizes.size(); }
  int64_t getNumElements() const;
  /// Sizes that exist: those of the value or of the constant's stored elements.
  llvm::ArrayRef<int64_t> extents() const;
};

/// A Python number: arithmetic with it does not change a tensor's kind of type unless it must.
struct Scalar {
  bool isFloat = false, isBool = false;
  double real = 0;
  int64_t integer = 0;
  double asDouble() const { return isFloat ? real : double(integer); }
};
using Operand = std::variant<Tensor, Scalar>;

class GraphImporter;

class OpContext {
public:
  /// With `widensHalves`, tensors of half precision look like f32 to whoever asks for them.
  OpContext(GraphImporter &importer, mlir::ImplicitLocOpBuilder &builder, const Node &node,
            const Graph &graph, bool widensHalves = false);

  /// Matches the node's arguments with the parameters.
  llvm::Error bind(const std::vector<Parameter> &parameters);

  // Arguments by parameter name. The parameter's type says which of these may be asked.
  bool has(llvm::StringRef name) const; ///< not None
  bool hasParameter(llvm::StringRef name) const { return arguments.contains(name); }
  bool isTensor(llvm::StringRef name) const;
  Tensor tensor(llvm::StringRef name);
  Tensor original(llvm::StringRef name) const; ///< halves as such
  std::optional<Tensor> optionalTensor(llvm::StringRef name);
  std::vector<std::optional<Tensor>> tensors(llvm::StringRef name);
  Operand operand(llvm::StringRef name);
  int64_t integer(llvm::StringRef name) const;
  std::optional<int64_t> optionalInteger(llvm::StringRef name) const;
  llvm::ArrayRef<int64_t> integers(llvm::StringRef name) const;
  double number(llvm::StringRef name) const;
  llvm::ArrayRef<double> numbers(llvm::StringRef name) const;
  Scalar scalar(llvm::StringRef name) const;
  bool flag(llvm::StringRef name) const;
  llvm::StringRef text(llvm::StringRef name) const;
  std::optional<DType> dtype(llvm::StringRef name) const;
  /// The tensor's dimensions in the order in which the file says that its elements lie, the last one next to each other; nothing
  /// where there are gaps, or elements of others in front.
  std::optional<Shape> getStorageOrder(llvm::StringRef name) const;
  /// A dimension counted from the front, from one that may count from the back; checked.
  llvm::Expected<int64_t> dimension(llvm::StringRef name, int64_t rank) const;
  llvm::Expected<int64_t> dimension(llvm::StringRef name, int64_t value, int64_t rank) const;
  llvm::Expected<Shape> dimensions(llvm::StringRef name, int64_t rank) const;
  /// A list for `count` spatial dimensions, where one entry stands for all.
  llvm::Expected<Shape> perDimension(llvm::StringRef name, int64_t count) const;

  // Results. Those never set do not exist; using one later is an error.
  size_t getNumResults() const { return results.size(); }
  const TensorMeta &resultMeta(size_t i) const { return metas[i]; }
  bool isUsed(size_t i) const; ///< whether anybody reads result i
  mlir::RankedTensorType resultType(size_t i) const;
  void setResult(size_t i, Tensor tensor) { results[i] = std::move(tensor); }
  void setResult(size_t i, mlir::Value value);
  /// Gives the results memory of their own.
  void copyResults();
  std::vector<std::optional<Tensor>> takeResults() { return std::move(results); }
  /// Rounds what the row computed in f32 back to halves, and compares what was set with the file's
  /// claims.
  llvm::Error finishResults();
  /// Gives the tensor of this argument the value `to`: what an in-place operator does.
  llvm::Error mutate(llvm::StringRef name, Tensor to);

  /// The tensor with all its elements, as a value.
  mlir::Value get(const Tensor &tensor);
  /// Without broadcasting: sizes are those of extents().
  mlir::Value getCompact(const Tensor &tensor);
  /// A tensor around a value that nothing else shares memory with.
  Tensor wrap(DType dtype, mlir::Value value) const;
  Tensor wrap(DType dtype, llvm::ArrayRef<int64_t> sizes, mlir::Value value) const;
  Tensor wrap(Constant constant) const;
  /// The same elements in memory of their own.
  Tensor copy(Tensor tensor) const;

  mlir::Type elementType(DType dtype) const;
  mlir::RankedTensorType tensorType(DType dtype, llvm::ArrayRef<int64_t> sizes) const;
  /// An error at this node.
  llvm::Error error(const llvm::Twine &message) const;
  /// Refuses an operator whose result has a type that is no floating-point one.
  llvm::Error checkReal(DType result) const;
  /// Refuses unsigned bytes, whose sums and differences PyTorch lets wrap around.
  llvm::Error checkNoBytes(llvm::ArrayRef<llvm::StringRef> names);

  GraphImporter &importer;
  mlir::ImplicitLocOpBuilder &b;
  const Node &node;

private:
  const Argument &argument(llvm::StringRef name) const;
  Tensor lookup(llvm::StringRef value);
  llvm::Error check(const Parameter &parameter, const Argument &value) const;

  const Graph &graph;
  bool widensHalves;
  llvm::StringMap<const Argument *> arguments;
  std::vector<std::unique_ptr<Argument>> owned; ///< defaults and resolved sizes
  std::vector<std::string> resultNames;
  std::vector<TensorMeta> claims; ///< of the file
  std::vector<TensorMeta> metas;  ///< of what the row is to set
  std::vector<std::optional<Tensor>> results;
};

//===----------------------------------------------------------------------===//
// Building blocks that several families use
//===----------------------------------------------------------------------===//

std::string toString(llvm::ArrayRef<int64_t> shape);
std::string toString(double number);
/// Integers have no sign in MLIR: U8 and I8 are one type.
mlir::Type getElementType(mlir::Builder &b, DType type);

// Shapes (Shapes.cpp). Known tensors stay known, broadcasts stay implicit where they can.
mlir::Value reshapeValue(mlir::ImplicitLocOpBuilder &b, mlir::Value value,
                         llvm::ArrayRef<int64_t> sizes);
mlir::Value transposeValue(mlir::ImplicitLocOpBuilder &b, mlir::Value value,
                           llvm::ArrayRef<int64_t> permutation);
/// Right-aligned, as PyTorch broadcasts. Sizes must be compatible.
mlir::Value broadcastValue(mlir::ImplicitLocOpBuilder &b, mlir::Value value,
                           llvm::ArrayRef<int64_t> sizes);
/// Along one dimension of the result, as a bias is: value has rank 1.
mlir::Value broadcastAlong(mlir::ImplicitLocOpBuilder &b, mlir::Value value, int64_t dim,
                           llvm::ArrayRef<int64_t> sizes);
/// A tensor without elements: known, for there is nothing to compute.
Tensor makeEmpty(OpContext &op, DType dtype, llvm::ArrayRef<int64_t> sizes);
llvm::Expected<Tensor> reshape(OpContext &op, const Tensor &from, llvm::ArrayRef<int64_t> sizes);
/// The tensor itself, or a view of one element where it has no dimension.
llvm::Expected<Tensor> withDimension(OpContext &op, const Tensor &tensor);
Tensor permute(OpContext &op, const Tensor &from, llvm::ArrayRef<int64_t> permutation);
llvm::Expected<Tensor> expand(OpContext &op, const Tensor &from, llvm::ArrayRef<int64_t> sizes);
/// Every `step`-th of the elements from `begin` on, `count` of them; all inside.
llvm::Expected<Tensor> slice(OpContext &op, const Tensor &from, int64_t dim, int64_t begin,
                             int64_t step, int64_t count);
/// The order of elements turned around along dimensions.
Tensor flip(OpContext &op, const Tensor &from, llvm::ArrayRef<int64_t> dims);
/// Zeros before and after each dimension.
Tensor padZeros(OpContext &op, const Tensor &self, llvm::ArrayRef<int64_t> low,
                llvm::ArrayRef<int64_t> high);
/// Joins tensors that agree in all dimensions but `dim`; their element types are promoted.
llvm::Expected<Tensor> concatenate(OpContext &op, llvm::ArrayRef<Tensor> parts, int64_t dim);
/// The product; fails beyond the limits and on negative sizes.
llvm::Expected<int64_t> countElements(OpContext &op, llvm::ArrayRef<int64_t> sizes);
/// Fails when there are too many elements to evaluate while importing.
llvm::Error checkFoldable(OpContext &op, llvm::ArrayRef<int64_t> sizes);
llvm::Expected<Shape> broadcastShapes(OpContext &op, llvm::ArrayRef<int64_t> a,
                                      llvm::ArrayRef<int64_t> b);

// Arithmetic (Elementwise.cpp).
mlir::Value splat(mlir::ImplicitLocOpBuilder &b, mlir::Type type, double value);
mlir::Value splat(mlir::ImplicitLocOpBuilder &b, mlir::Type type, const Scalar &value);
mlir::Value convert(mlir::ImplicitLocOpBuilder &b, mlir::Value value, DType from, DType to);
/// Of floating-point values.
mlir::Value multiply(mlir::ImplicitLocOpBuilder &b, mlir::Value x, mlir::Value y);
Tensor castTo(OpContext &op, const Tensor &from, DType to);
/// PyTorch's promotion: tensors with dimensions decide over those without, these over numbers.
DType promote(llvm::ArrayRef<Operand> operands);
using Build = llvm::function_ref<mlir::Value(mlir::ImplicitLocOpBuilder &, mlir::ValueRange)>;
using Evaluate = llvm::function_ref<int64_t(llvm::ArrayRef<int64_t>)>;
/// Brings the operands to one element type (`compute`) and shape and applies `build`, which must
/// give elements of type `result`. Known integer operands are evaluated instead, when `evaluate` is
/// given.
llvm::Expected<Tensor> elementwise(OpContext &op, llvm::ArrayRef<Operand> operands, DType compute,
                                   DType result, Build build, Evaluate evaluate = nullptr);
/// The same with an element type for each operand.
llvm::Expected<Tensor> elementwise(OpContext &op, llvm::ArrayRef<Operand> operands,
                                   llvm::ArrayRef<DType> compute, DType result, Build build,
                                   Evaluate evaluate = nullptr);
/// Elements of `yes` where the condition holds, of `no` elsewhere, all of them as `type`.
llvm::Expected<Tensor> select(OpContext &op, const Tensor &condition, const Operand &yes,
                              const Operand &no, DType type);
/// torch.matmul: batch dimensions broadcast (Matmuls.cpp). The dimension that a vector lacks stays.
llvm::Expected<mlir::Value> matmulOf(OpContext &op, Tensor a, Tensor b);
/// elementwise() of one tensor with a floating-point result, which becomes the operator's.
llvm::Error mapFloat(OpContext &op, Build build, llvm::StringRef parameter = "self");
/// The same by one op.
template <typename OpTy> llvm::Error lowerFloat(OpContext &op) {
  return mapFloat(op, [](mlir::ImplicitLocOpBuilder &b, mlir::ValueRange v) -> mlir::Value {
    return OpTy::create(b, v[0]);
  });
}

/// What `lower` does, with results that share no memory with the operands.
template <Lowering lower> llvm::Error lowerCopied(OpContext &op) {
  if (llvm::Error failed = lower(op))
    return failed;
  op.copyResults();
  return llvm::Error::success();
}

/// The operator's only result.
llvm::Error setResult(OpContext &op, llvm::Expected<Tensor> result);

/// Combines over dimensions, which stay with size 1 when `keep` says so.
mlir::Value reduceValue(mlir::ImplicitLocOpBuilder &b, mlir::Value value,
                        mlir::memopt::ReduceKind kind, llvm::ArrayRef<int64_t> dimensions,
                        bool keep = false);
/// The number of elements along dimensions, as a scalar of the value's type: what a mean divides
/// by. It follows the batch where a constant would not.
mlir::Value countAlong(mlir::ImplicitLocOpBuilder &b, mlir::Value value,
                       llvm::ArrayRef<int64_t> dimensions);
/// Whether any of the booleans along `dimensions` is true.
mlir::Value anyOf(mlir::ImplicitLocOpBuilder &b, mlir::Value booleans,
                  llvm::ArrayRef<int64_t> dimensions, bool keep = false);
/// What losses do with per-element losses: 0 nothing, 1 mean, 2 sum.
llvm::Expected<mlir::Value> applyReduction(OpContext &op, mlir::Value losses, int64_t reduction);
/// input times random zeros and 1 / (1 - p).
Tensor dropout(OpContext &op, const Tensor &input, double probability, mlir::Value *mask = nullptr);
/// Whether this import keeps dropout: not for evaluation, not when the user turned it off.
bool dropoutIsOn(OpContext &op);
/// Whether batch norms use running statistics whatever the file says.
bool isEvaluation(OpContext &op);
/// The seed and step that random ops take, and the number of the next one.
struct RandomState {
  mlir::Value seed, step;
  int64_t id;
};
RandomState nextRandomState(OpContext &op);

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_GRAPH_OPCONTEXT_H
