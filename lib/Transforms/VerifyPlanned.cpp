//===- VerifyPlanned.cpp - reject a planned program that clobbers itself -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs the program in the abstract: a map from bytes to the value that was last written there. Each
// instruction must find all bytes of its operands still theirs; then its results take their bytes
// over. At the end every variable holds what was written to it, and no byte lies outside the arena.
// Nothing here uses the planner's live ranges, so a mistake there cannot hide here.
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Transforms/Passes.h"

#include <map>

namespace mlir::memopt {
#define GEN_PASS_DEF_VERIFYPLANNEDPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

namespace {
struct Interval {
  int64_t begin, end;
  bool overlaps(Interval other) const { return begin < other.end && other.begin < end; }
};

/// Who wrote each byte of the arena last.
class Ownership {
public:
  void claim(Interval bytes, const void *owner) {
    cutAt(bytes.begin);
    cutAt(bytes.end);
    pieces.erase(pieces.lower_bound(bytes.begin), pieces.lower_bound(bytes.end));
    if (bytes.begin < bytes.end)
      pieces[bytes.begin] = {bytes.end, owner};
  }

  bool owns(Interval bytes, const void *owner) const {
    int64_t at = bytes.begin;
    auto it = pieces.upper_bound(at);
    if (it != pieces.begin())
      --it;
    for (; at < bytes.end; ++it) {
      if (it == pieces.end() || it->first > at || it->second.first <= at ||
          it->second.second != owner)
        return false;
      at = it->second.first;
    }
    return true;
  }

private:
  void cutAt(int64_t at) {
    auto it = pieces.lower_bound(at);
    if (it == pieces.begin())
      return;
    --it;
    if (it->second.first <= at)
      return;
    pieces[at] = it->second;
    it->second.first = at;
  }

  std::map<int64_t, std::pair<int64_t, const void *>> pieces;
};

class Simulation {
public:
  Simulation(ModuleOp module, func::FuncOp function) : module(module), function(function) {}

  LogicalResult run() {
    if (failed(placeVariables()) || failed(placeInputs()))
      return failure();
    for (Operation &op : function.getBody().front())
      if (failed(step(&op)))
        return failure();
    return success(succeeded(checkVariables()) && succeeded(checkHeight()));
  }

private:
  LogicalResult placeVariables() {
    for (auto variable : module.getOps<VariableOp>()) {
      auto offset = variable->getAttrOfType<IntegerAttr>(MemoptDialect::kOffsetAttr);
      if (!offset)
        return variable.emitOpError("has no offset in the planned program");
      Interval bytes{offset.getInt(), offset.getInt() + getTensorBytes(variable.getTensorType())};
      claim(bytes, variable);
      current[variable.getSymNameAttr()] = variable;
    }
    for (auto variable : module.getOps<VariableOp>())
      if (!ownership.owns(places[variable], variable))
        return variable.emitOpError("shares bytes with another variable");
    return success();
  }

  LogicalResult placeInputs() {
    for (BlockArgument argument : function.getArguments()) {
      auto offset = function.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(),
                                                           MemoptDialect::kOffsetAttr);
      if (!offset)
        return function.emitOpError() << "argument " << argument.getArgNumber() << " has no offset";
      place(argument, offset.getInt(), getTensorBytes(argument.getType()));
    }
    return success();
  }

  void place(Value value, int64_t offset, int64_t bytes) {
    claim({offset, offset + bytes}, value.getAsOpaquePointer());
  }

  void claim(Interval bytes, const void *owner) {
    places[owner] = bytes;
    ownership.claim(bytes, owner);
    lowest = std::min(lowest, bytes.begin);
    highest = std::max(highest, bytes.end);
  }

  LogicalResult step(Operation *op) {
    if (auto read = dyn_cast<ReadOp>(op)) {
      const void *owner = current[read.getVariableAttr().getAttr()];
      aliases[read.getResult()] = owner;
      return success();
    }
    for (Value operand : op->getOperands())
      if (failed(checkAlive(op, operand)))
        return failure();
    if (auto write = dyn_cast<WriteOp>(op))
      return checkStored(write);
    return isInstruction(op) ? placeResults(op) : success();
  }

  const void *ownerOf(Value value) const {
    Value root = getBufferRoot(value);
    auto it = aliases.find(root);
    return it == aliases.end() ? root.getAsOpaquePointer() : it->second;
  }

  LogicalResult checkAlive(Operation *op, Value operand) {
    const void *owner = ownerOf(operand);
    auto it = places.find(owner);
    if (it != places.end() && ownership.owns(it->second, owner))
      return success();
    return op->emitOpError() << "uses a value of type " << operand.getType()
                             << " whose bytes were overwritten or never placed";
  }

  LogicalResult checkStored(WriteOp write) {
    auto variable =
        SymbolTable::lookupNearestSymbolFrom<VariableOp>(write, write.getVariableAttr());
    Interval home = homes(variable), found = places[ownerOf(write.getValue())];
    if (home.begin != found.begin || home.end != found.end)
      return write.emitOpError() << "writes a value that lies at " << found.begin
                                 << ", expected the variable's " << home.begin;
    current[variable.getSymNameAttr()] = ownerOf(write.getValue());
    return success();
  }

  /// What the next step begins with.
  LogicalResult checkVariables() {
    for (auto variable : module.getOps<VariableOp>())
      if (!ownership.owns(homes(variable), current[variable.getSymNameAttr()]))
        return variable.emitOpError("is overwritten by a value that is not written to it");
    return success();
  }

  LogicalResult checkHeight() {
    auto height = module->getAttrOfType<IntegerAttr>(MemoptDialect::kArenaBytesAttr);
    if (!height)
      return emitError(module.getLoc())
             << "has no '" << MemoptDialect::kArenaBytesAttr << "' in the planned program";
    if (lowest < 0 || highest > height.getInt())
      return emitError(module.getLoc()) << "places buffers from byte " << lowest << " to "
                                        << highest << ", expected 0 to " << height.getInt();
    return success();
  }

  Interval homes(VariableOp variable) {
    int64_t offset = variable->getAttrOfType<IntegerAttr>(MemoptDialect::kOffsetAttr).getInt();
    return {offset, offset + getTensorBytes(variable.getTensorType())};
  }

  LogicalResult placeResults(Operation *op) {
    auto offsets = op->getAttrOfType<DenseI64ArrayAttr>(MemoptDialect::kOffsetsAttr);
    int64_t workspace = 0;
    if (auto cost = dyn_cast<CostOpInterface>(op))
      workspace = cost.getWorkspaceBytes();
    size_t expected = op->getNumResults() + (workspace > 0);
    if (!offsets || offsets.size() != static_cast<int64_t>(expected))
      return op->emitOpError() << "expects " << expected << " offsets";
    SmallVector<Interval> made;
    for (auto [result, offset] : llvm::zip(op->getResults(), offsets.asArrayRef()))
      made.push_back({offset, offset + getTensorBytes(result.getType())});
    if (workspace > 0)
      made.push_back({offsets.asArrayRef().back(), offsets.asArrayRef().back() + workspace});
    for (auto [index, bytes] : llvm::enumerate(made)) {
      for (Interval other : ArrayRef<Interval>(made).drop_front(index + 1))
        if (bytes.overlaps(other))
          return op->emitOpError() << "makes two buffers at " << bytes.begin << " and "
                                   << other.begin << " that overlap";
      if (failed(checkInPlace(op, index, bytes)))
        return failure();
    }
    for (auto [result, bytes] : llvm::zip(op->getResults(), made))
      place(result, bytes.begin, bytes.end - bytes.begin);
    if (workspace > 0)
      claim(made.back(), op);
    return success();
  }

  /// A result may meet an operand's bytes only where the op allows it, and then begins where the
  /// operand begins.
  LogicalResult checkInPlace(Operation *op, unsigned index, Interval bytes) {
    SmallVector<unsigned> allowed;
    if (auto inPlace = dyn_cast<InPlaceOpInterface>(op); inPlace && index < op->getNumResults())
      allowed = inPlace.getInPlaceOperands(index);
    for (OpOperand &operand : op->getOpOperands()) {
      Interval place = places[ownerOf(operand.get())];
      if (!place.overlaps(bytes))
        continue;
      if (!llvm::is_contained(allowed, operand.getOperandNumber()) || place.begin != bytes.begin)
        return op->emitOpError() << "writes result " << index << " over operand "
                                 << operand.getOperandNumber() << ", which it does not allow";
    }
    return success();
  }

  ModuleOp module;
  func::FuncOp function;
  Ownership ownership;
  DenseMap<const void *, Interval> places;
  DenseMap<Value, const void *> aliases;
  DenseMap<StringAttr, const void *> current; ///< by variable: who holds its value
  int64_t lowest = 0, highest = 0;            ///< bytes that any buffer touches
};

struct VerifyPlannedPass : public mlir::memopt::impl::VerifyPlannedPassBase<VerifyPlannedPass> {
  void runOnOperation() override {
    func::FuncOp function = getStepFunction(getOperation());
    if (function && failed(Simulation(getOperation(), function).run()))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
