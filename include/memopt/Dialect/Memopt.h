//===- Memopt.h - the memopt dialect ----------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_MEMOPT_H
#define MEMOPT_DIALECT_MEMOPT_H

#include "memopt/Interfaces/MemoptInterfaces.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"

#include "memopt/Dialect/MemoptDialect.h.inc"

#define GET_ATTRDEF_CLASSES
#include "memopt/Dialect/MemoptAttributes.h.inc"

#define GET_TYPEDEF_CLASSES
#include "memopt/Dialect/MemoptTypes.h.inc"

namespace mlir::OpTrait {
template <typename OpTy> class ComputedByLibrary : public TraitBase<OpTy, ComputedByLibrary> {};
template <typename OpTy> class ComputedInFull : public TraitBase<OpTy, ComputedInFull> {};
template <typename OpTy> class FillsKernel : public TraitBase<OpTy, FillsKernel> {};
template <typename OpTy> class ReadsStrides : public TraitBase<OpTy, ReadsStrides> {};
template <typename OpTy> class ReadsShapeOnly : public TraitBase<OpTy, ReadsShapeOnly> {};
} // namespace mlir::OpTrait

namespace mlir::memopt {
/// The space in which a value of the kernel graph lies: what the encoding of its type says, or the
/// device.
Space getSpace(Type type);
/// `type` with its values in `space`; the device has no encoding.
RankedTensorType inSpace(RankedTensorType type, Space space);
} // namespace mlir::memopt

#define GET_OP_CLASSES
#include "memopt/Dialect/MemoptOps.h.inc"

namespace mlir::memopt {
/// The phase of an op of any stage: an instruction's own, or what `memopt.phase` says. Whatever
/// says nothing belongs to the forward pass.
Phase getPhase(Operation *op);
void setPhase(Operation *op, Phase phase);

/// The number of a result that may wait for the backward pass in fewer bits
/// (MemoptDialect::kActivationsAttr), or -1.
int64_t getActivationNumber(OpResult value);

/// The name of an element type in packages and checkpoints ("f32", "i1"); empty for types that no
/// package holds.
StringRef getDtypeName(Type elementType);

/// The type in which floating-point values of `type` are computed, sums of products too: f64 for
/// f64, else f32.
Type getComputeType(Type type);

//===----------------------------------------------------------------------===//
// The kernel graph
//===----------------------------------------------------------------------===//

/// Whether `op` runs at run time. Reads, writes, marks and reshapes do not.
inline bool isInstruction(Operation *op) { return isa_and_nonnull<InstructionOpInterface>(op); }

/// The block of a step, and those of the instructions in it, each in front of its own.
SmallVector<Block *> getProgramBlocks(Block &step);

/// Whether `op` gives its operand another shape and nothing else, so that both are one buffer.
bool isReshape(Operation *op);

/// The value whose buffer `value` lies in: reshapes and the borders of loops looked through, those
/// between a slice and the whole too.
Value getBufferRoot(Value value);

/// The uses of the buffer whose root is `root`, reshapes looked through. What a loop does with it
/// counts as a use by the loop.
SmallVector<OpOperand *> getUsesOfBuffer(Value root);

/// Where the iteration of a scan that makes `root` yields it, or null. In the planned program each
/// value is yielded once, and lies in the bytes of what it becomes.
OpOperand *findYield(Value root);

/// In iteration i of `scan` a value begins `first + i * step` bytes behind its buffer.
struct SliceAddress {
  ScanOp scan;
  int64_t first, step;
};

/// The slices that `value` is of its buffer, inner loops first; of a planned program.
SmallVector<SliceAddress> getSliceAddresses(Value value);

/// The instruction that started what `wait` waits for; null of an instruction that waits for
/// nothing.
Operation *getStart(Operation *wait);

/// The byte offset that memory planning gave to the buffer of `value`, in the arena of its space;
/// fails where it gave none.
FailureOr<int64_t> getPlannedOffset(Value value);

//===----------------------------------------------------------------------===//
// Modules
//===----------------------------------------------------------------------===//

/// The machine that a module is compiled for: its attribute `memopt.target`, or two threads of the
/// processor at hand.
TargetAttrInterface getTarget(Operation *op);

/// The variable in which a program reports what memopt.check finds; null where there is none.
VariableOp findIndexFault(ModuleOp module);

/// Attaches the differentiate, batch dimension and recompute interfaces to the arith, math and
/// tensor ops that training graphs use.
void registerUpstreamInterfaces(DialectRegistry &registry);
} // namespace mlir::memopt

#endif // MEMOPT_DIALECT_MEMOPT_H
