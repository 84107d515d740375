//===- KernelWork.cpp - what one kernel does, in counts ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Kernels/ScalarWeights.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

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
  GenericWork(linalg::GenericOp generic, Work &work)
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
    if (double weight = getScalarWeights(getScalarCost(op.getName())).exponentials)
      work.functions += weight * points;
    else
      work.operations += getOperationWeight(op) * points;
    for (Value result : op.getResults())
      loops[result] = used;
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
  Work &work;
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
static void addPasses(KernelOp kernel, Work &work) {
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

Work KernelOp::getWork() {
  Work work;
  if (getResource() == Resource::Host)
    work.workClass = WorkClass::HostKernel;
  work.bytes = getKernelBytes(*this);
  addPasses(*this, work);
  return work;
}
