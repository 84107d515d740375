//===- InstructionWork.cpp - what one instruction does, in counts -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/InstructionWork.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include <cmath>

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Operations of a kernel
//===----------------------------------------------------------------------===//

namespace {
/// Counts a linalg.generic's operations. What depends on some of the loops only is computed once
/// for all iterations of the others: the bias correction of Adam once, not for each weight.
class GenericWork {
public:
  GenericWork(linalg::GenericOp generic, InstructionWork &work)
      : sizes(generic.getStaticLoopRanges()), work(work) {
    Block *body = generic.getBody();
    for (OpOperand &operand : generic->getOpOperands()) {
      bool isResult = generic.isDpsInit(&operand);
      loops[generic.getMatchingBlockArgument(&operand)] =
          isResult ? llvm::SmallBitVector(sizes.size(), true)
                   : loopsOf(generic.getMatchingIndexingMap(&operand));
    }
    for (Operation &op : body->without_terminator())
      visit(op);
  }

private:
  llvm::SmallBitVector loopsOf(AffineMap map) const {
    llvm::SmallBitVector used(sizes.size());
    for (unsigned loop = 0; loop < sizes.size(); ++loop)
      if (map.isFunctionOfDim(loop))
        used.set(loop);
    return used;
  }

  void visit(Operation &op) {
    llvm::SmallBitVector used(sizes.size());
    if (auto index = dyn_cast<linalg::IndexOp>(op))
      used.set(index.getDim());
    for (Value operand : op.getOperands())
      if (auto it = loops.find(operand); it != loops.end())
        used |= it->second;
    double points = 1;
    for (unsigned loop : used.set_bits())
      points *= static_cast<double>(sizes[loop]);
    if (double weight = getFunctionWeight(op))
      work.functions += weight * points;
    else
      work.operations += getOperationWeight(op) * points;
    for (Value result : op.getResults())
      loops[result] = used;
  }

  /// In exponentials, as generated code computes them; 0 when the op is a cheap one.
  static double getFunctionWeight(Operation &op) {
    if (isa<arith::DivFOp, arith::RemFOp, arith::DivSIOp, arith::RemSIOp, math::SqrtOp>(op))
      return 0.25;
    if (isa<math::ExpOp, math::LogOp, math::TanhOp, math::ErfOp>(op))
      return 1;
    bool isCheap = !isa_and_nonnull<math::MathDialect>(op.getDialect()) ||
                   isa<math::AbsFOp, math::AbsIOp, math::FmaOp, math::CopySignOp>(op);
    return isCheap ? 0 : 2;
  }

  /// A vector holds the more elements the smaller they are: operations count in those of 32 bits.
  /// Addresses and masks are free beside the elements that they belong to.
  static double getOperationWeight(Operation &op) {
    unsigned bits = 0;
    if (!isa<arith::ConstantOp>(op))
      for (TypeRange types : {TypeRange(op.getOperandTypes()), TypeRange(op.getResultTypes())})
        for (Type type : types)
          if (type.isIntOrFloat() && !type.isInteger(1))
            bits = std::max(bits, type.getIntOrFloatBitWidth());
    return bits / 32.0;
  }

  SmallVector<int64_t> sizes;
  InstructionWork &work;
  /// The loops that a value varies in; constants have no entry.
  llvm::DenseMap<Value, llvm::SmallBitVector> loops;
};
} // namespace

static bool isReduction(Operation *op) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  return generic && generic.getNumReductionLoops() > 0;
}

/// What is inside of a kernel is computed where it is read. Each reduction is a pass of its own
/// over what it reads, and so are the results: a pointwise value that several of them need is
/// computed in each, a reduction once.
static void addPasses(KernelOp kernel, InstructionWork &work) {
  SmallVector<Operation *> passes{kernel.getYield()};
  for (auto generic : kernel.getBody().front().getOps<linalg::GenericOp>())
    if (isReduction(generic))
      passes.push_back(generic);
  for (Operation *pass : passes) {
    llvm::SetVector<Operation *> needed;
    needed.insert(pass);
    for (size_t i = 0; i < needed.size(); ++i) {
      if (auto generic = dyn_cast<linalg::GenericOp>(needed[i]))
        GenericWork(generic, work);
      for (Value operand : needed[i]->getOperands())
        if (Operation *maker = operand.getDefiningOp(); maker && !isReduction(maker))
          needed.insert(maker);
    }
  }
}

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

/// Elements that one use of a buffer reads: a slice its own size, a lookup one for each iteration.
static double getBytesRead(OpOperand &use) {
  double whole = static_cast<double>(getTensorBytes(use.get().getType()));
  Operation *user = use.getOwner();
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(user))
    return std::min(whole, static_cast<double>(getTensorBytes(slice.getType())));
  auto generic = dyn_cast<linalg::GenericOp>(user->getParentOp());
  if (!isa<tensor::ExtractOp>(user) || !generic)
    return whole;
  double read = static_cast<double>(getTensorBytes(use.get().getType())) /
                static_cast<double>(cast<RankedTensorType>(use.get().getType()).getNumElements());
  for (int64_t size : generic.getStaticLoopRanges())
    read *= static_cast<double>(size);
  return std::min(whole, read);
}

static double getKernelBytes(KernelOp kernel) {
  double bytes = 0;
  for (BlockArgument argument : kernel.getBody().getArguments()) {
    double whole = static_cast<double>(getTensorBytes(argument.getType())), read = 0;
    for (OpOperand &use : argument.getUses())
      read += getBytesRead(use);
    bytes += std::min(whole, read);
  }
  for (Type type : kernel.getResultTypes())
    bytes += static_cast<double>(getTensorBytes(type));
  return bytes;
}

//===----------------------------------------------------------------------===//
// Library calls
//===----------------------------------------------------------------------===//

namespace {
/// What a library call's descriptor says.
class Descriptor {
public:
  explicit Descriptor(LibraryCallOp call) : dictionary(call.getDescriptor()) {}

  StringRef getKind() const { return dictionary.getAs<StringAttr>("kind").getValue(); }
  /// An absent count is one.
  double getCount(StringRef key) const {
    auto attribute = dictionary.getAs<IntegerAttr>(key);
    return attribute ? static_cast<double>(attribute.getInt()) : 1;
  }
  double getExtent(StringRef key, size_t dim) const {
    auto attribute = dictionary.getAs<DenseI64ArrayAttr>(key);
    return attribute && dim < static_cast<size_t>(attribute.size())
               ? static_cast<double>(attribute[dim])
               : 1;
  }
  bool isSet(StringRef key) const {
    auto attribute = dictionary.getAs<BoolAttr>(key);
    return attribute && attribute.getValue();
  }

private:
  DictionaryAttr dictionary;
};
} // namespace

/// How much of a vector register stays empty: work on `count` elements by work on whole registers.
static double getPadding(double count) {
  constexpr double kLanes = 16;
  return std::ceil(count / kLanes) * kLanes / count;
}

static InstructionWork getConvolutionWork(const Descriptor &descriptor, double flops) {
  InstructionWork work;
  bool isData = descriptor.getKind() == "convolution_backward_data";
  work.workClass = descriptor.getKind() == "convolution_backward_weights"
                       ? WorkClass::ConvolutionWeight
                       : WorkClass::Convolution;
  work.operations = flops * getPadding(descriptor.getExtent("weight", isData ? 1 : 0));
  if (descriptor.getCount("groups") > 1) {
    work.workClass = WorkClass::GroupConvolution;
    work.operations = flops;
  }
  return work;
}

/// Attention goes tile by tile of queries and keys, and leaves out tiles that a causal mask hides.
/// Beside the two products of each score (five in the gradient) it passes over the scores to scale,
/// mask and exponentiate them.
static InstructionWork getAttentionWork(const Descriptor &descriptor, bool isForward) {
  constexpr double kTile = 96;
  double queries = descriptor.getCount("query_length"), keys = descriptor.getCount("key_length");
  double head = descriptor.getCount("head_dim"), value = descriptor.getCount("value_dim");
  double scores = descriptor.getCount("batch") * descriptor.getCount("heads") * queries * keys *
                  getPadding(keys);
  if (descriptor.isSet("causal"))
    scores *= std::min(1.0, queries <= keys ? (queries + kTile) / (2 * keys)
                                            : 1 - (keys - kTile) / (2 * queries));
  InstructionWork work;
  work.workClass = isForward ? WorkClass::AttentionForward : WorkClass::AttentionBackward;
  double paddedHead = head * getPadding(head), paddedValue = value * getPadding(value);
  work.operations =
      2 * scores * (isForward ? head + paddedValue : head + value + 2 * paddedHead + paddedValue);
  work.functions = scores * (isForward ? 2 : 3);
  return work;
}

static InstructionWork getCallWork(LibraryCallOp call) {
  Descriptor descriptor(call);
  double flops = static_cast<double>(call.getFlops());
  InstructionWork work;
  if (descriptor.getKind().starts_with("attention")) {
    work = getAttentionWork(descriptor, descriptor.getKind() == "attention_forward");
  } else if (descriptor.getKind().starts_with("convolution")) {
    work = getConvolutionWork(descriptor, flops);
  } else {
    work.workClass = WorkClass::Matmul;
    work.operations = flops * getPadding(descriptor.getCount("n"));
  }
  work.bytes = static_cast<double>(call.getBytesMoved());
  return work;
}

InstructionWork InstructionWork::of(Operation *instruction) {
  InstructionWork work;
  if (auto call = dyn_cast<LibraryCallOp>(instruction))
    return getCallWork(call);
  if (auto kernel = dyn_cast<KernelOp>(instruction)) {
    work.bytes = getKernelBytes(kernel);
    addPasses(kernel, work);
  }
  return work;
}
