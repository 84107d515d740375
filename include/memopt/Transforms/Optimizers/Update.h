//===- Update.h - formulas of an optimizer's update ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rule writes its update as formulas over whole tensors. Terms are recorded, not computed: what
// spans the parameter becomes one linalg.generic in the end, so an update is one pass over
// parameter, gradient and state; a reduction is a generic of its own that computes its operand
// anew. Terms of scalars alone are computed in f64, as generics of rank 0 that CSE makes one for
// all parameters.
//
// State in 8 bits has one scale for each block of 256 elements, so the parameter is seen as
// [blocks, 256] then: a block's scale is a reduction of its row. A parameter whose size is no
// multiple of 256 is padded in the reductions, and the elements are computed over the plain vector.
//
// State in 4 bits has blocks of 128, seen as [blocks, 2, 64]: byte j of a block has elements j and
// 64 + j, so that packing is a sum over two elements, and neighbours lie beside each other. What
// fills up the last block is computed, too, and cut off.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_OPTIMIZERS_UPDATE_H
#define MEMOPT_TRANSFORMS_OPTIMIZERS_UPDATE_H

#include "memopt/Transforms/Optimizers/Optimizer.h"
#include "memopt/Transforms/Utils/GenericBuilder.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::memopt {

class Update;
struct StateCode;

enum class TermKind {
  Add,
  Sub,
  Mul,
  Div,
  Max,
  Min,
  Pow,
  Sqrt,
  Abs,
  Floor,
  SelectLess,
  Decode,
  Encode,
  Leaf
};

/// A number, or a formula that an Update has recorded.
class Quantity {
public:
  Quantity(double number) : number(number) {}

  /// One op on terms, folded where all are numbers.
  static Quantity make(TermKind kind, ArrayRef<Quantity> operands);

private:
  friend class Update;
  Quantity(Update *owner, unsigned id) : owner(owner), id(id) {}

  Update *owner = nullptr; ///< null: a number
  unsigned id = 0;
  double number = 0;
};

Quantity operator+(Quantity a, Quantity b);
Quantity operator-(Quantity a, Quantity b);
Quantity operator*(Quantity a, Quantity b);
Quantity operator/(Quantity a, Quantity b);
Quantity sqrt(Quantity x);
Quantity abs(Quantity x);
Quantity floor(Quantity x);
/// -1, 0 or 1.
Quantity sign(Quantity x);
Quantity pow(Quantity x, Quantity y);
/// A NaN wins.
Quantity max(Quantity a, Quantity b);
Quantity min(Quantity a, Quantity b);
/// x < y ? a : b
Quantity selectLess(Quantity x, Quantity y, Quantity a, Quantity b);
/// a + weight (b - a), as (1 - weight) a + weight b
Quantity lerp(Quantity a, Quantity b, Quantity weight);

/// `value` in a shape of as many elements.
Value reshapeTo(ImplicitLocOpBuilder &b, Value value, ArrayRef<int64_t> shape);

class Update {
public:
  static constexpr int64_t kBlock = 256, kHalvedBlock = 128;
  /// Elements of state in so many bits that share a scale, and bytes of a block.
  static int64_t getBlock(unsigned bits) { return bits == 4 ? kHalvedBlock : kBlock; }
  static int64_t getBlockBytes(unsigned bits) { return getBlock(bits) * bits / 8; }
  /// The setting that tells 4 bits from 8.
  static constexpr StringLiteral kStateBits = "state-bits";

  Update(OptimizerStepOp op, const Optimizer &optimizer, ImplicitLocOpBuilder &b);

  const OptimizerSettings settings;

  /// Shape under which the rule sees the parameter.
  ArrayRef<int64_t> getShape() const { return shape; }
  int64_t getNumElements() const { return ShapedType::getNumElements(shape); }
  /// Sees the parameter, which is packed, under another shape; before anything is read.
  void cut(ArrayRef<int64_t> newShape) { shape.assign(newShape.begin(), newShape.end()); }

  Quantity parameter() { return readFull(op.getParameter()); }
  Quantity gradient() { return readFull(op.getGradient()); }
  Quantity rate() { return readScalar(op.getLearningRate()); }
  /// The value of an option, of a pair's place: a number, or an input of the program.
  Quantity hyperparameter(StringRef option, unsigned place = 0);
  /// Whether the option can be other than 0.
  bool uses(StringRef option) {
    return op.getInput(getInputName(option)) || settings.getNumber(option) != 0;
  }
  /// From 1.
  Quantity step() { return readScalar(op.getStep()); }
  /// As declared by the rule's getState: `dims` are those of its slot.
  Quantity state(StringRef name) { return state(name, allDims()); }
  Quantity state(StringRef name, ArrayRef<int64_t> dims);

  /// Over all dimensions when none are given.
  Quantity sum(Quantity x, ArrayRef<int64_t> dims = {}) { return reduce(ReduceKind::Add, x, dims); }
  Quantity largest(Quantity x, ArrayRef<int64_t> dims) { return reduce(ReduceKind::Max, x, dims); }
  Quantity mean(Quantity x, ArrayRef<int64_t> dims);
  /// Computes the term once, into a buffer of its own.
  Quantity materialize(Quantity x);
  /// A tensor of the parameter's shape, and one as a term: for what no formula says.
  Value toTensor(Quantity x) { return reshapeTo(b, compute(x, computeType), shape); }
  Quantity fromTensor(Value value) { return readFull(value); }
  /// A tensor with the sizes of these dimensions of the parameter.
  Quantity fromTensor(Value value, ArrayRef<int64_t> dims) { return addLeaf(value, dims); }
  /// A formula of scalars as a tensor without dimensions.
  Value toScalar(Quantity x);
  ImplicitLocOpBuilder &getBuilder() { return b; }
  Type getNumberType() const { return computeType; }
  Value getStepNumber() { return op.getStep(); }
  /// State of a shape of its own, as it was and as it will be.
  Value getStateTensor(StringRef name) { return findState(name); }
  void setStateTensor(StringRef name, Value value) { newStateTensors[name] = value; }

  void setParameter(Quantity value) { newParameter = value; }
  void setState(StringRef name, Quantity value);

  /// One value for each result of the op.
  SmallVector<Value> finish();

private:
  friend class Quantity;
  struct Node {
    TermKind kind;
    SmallVector<Quantity, 4> operands{};
    /// Leaf: a tensor with the sizes of `dims`, or a vector where the parameter is padded. Decode:
    /// the table of codes.
    Value value{};
    bool isSigned = false; ///< Decode, Encode
    /// Dimensions of the parameter that it varies with.
    SmallVector<int64_t> dims{};
  };
  /// What a generic reads: tensors, and scalars that are computed before it.
  struct Inputs {
    llvm::SmallSetVector<unsigned, 8> leaves, scalars;
  };
  struct Output {
    Quantity value;
    Type type;
  };

  SmallVector<int64_t> allDims() const;
  ArrayRef<int64_t> getDims(Quantity x) const;
  bool isFull(ArrayRef<int64_t> dims) const { return dims.size() == shape.size(); }
  Quantity addNode(Node node);
  Quantity addLeaf(Value value, ArrayRef<int64_t> dims);
  Quantity readFull(Value value);
  Quantity readScalar(Value value) { return addLeaf(value, {}); }
  Quantity reduce(ReduceKind kind, Quantity x, ArrayRef<int64_t> dims);
  Value findState(StringRef name);

  void collect(Quantity x, bool isScalar, Inputs &inputs) const;
  Value emit(Quantity x, Type compute, llvm::DenseMap<unsigned, Value> &known,
             ImplicitLocOpBuilder &b);
  Value codeTable(bool isSigned);
  StateCode getCode(bool isSigned) const;
  Value getHalf(ImplicitLocOpBuilder &b) const;
  Quantity pack(Quantity codes);
  /// Calls `build` with the domain of `dims`, of which formulas read the place in a block.
  template <typename Builder> auto withDims(ArrayRef<int64_t> dims, Builder build);
  Value cutPadding(Value value, int64_t elements);
  Value computeScalar(unsigned id);
  Read readAt(unsigned leaf, ArrayRef<int64_t> dims, bool isFlat);
  SmallVector<Read> readInputs(const Inputs &inputs, ArrayRef<int64_t> dims, unsigned rank,
                               bool isFlat);
  static llvm::DenseMap<unsigned, Value> nameInputs(const Inputs &inputs, Type compute,
                                                    ValueRange x, ImplicitLocOpBuilder &inner);
  SmallVector<Value> compute(ArrayRef<Output> outputs, ArrayRef<int64_t> dims);
  Value compute(Quantity x, Type type);

  OptimizerStepOp op;
  const Optimizer &optimizer;
  ImplicitLocOpBuilder &b;
  Type element, computeType;
  SmallVector<int64_t> shape;
  bool isPadded = false;           ///< full leaves are vectors that end within the last block
  bool isHalved = false;           ///< state is in 4 bits
  SmallVector<int64_t> domainDims; ///< of the generic that is being built
  std::vector<Node> nodes;
  llvm::DenseMap<Value, unsigned> leafOf;
  llvm::StringMap<unsigned> stateNumbers;
  Value codeTables[2];
  Quantity newParameter = 0.0;
  llvm::StringMap<Quantity> newState;
  llvm::StringMap<Value> newStateTensors;
};

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_OPTIMIZERS_UPDATE_H
