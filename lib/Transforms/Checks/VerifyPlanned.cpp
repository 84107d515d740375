//===- VerifyPlanned.cpp - reject a planned program that clobbers itself -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs the program in the abstract: for each space a map from bytes to the value that was last
// written there. Each instruction must find all bytes of its operands still theirs; then its
// results take their bytes over. What is in flight takes its destination when it starts, and both
// ends must still be whole when it is waited for. Bodies of loops run twice. At the end every
// variable holds what was written to it, and no byte lies outside its arena. Nothing here uses the
// planner's live ranges, so a mistake there cannot hide here.
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Dialect/DiskBlocks.h"
#include "memopt/Transforms/Passes.h"

#include "llvm/ADT/StringMap.h"

#include <map>
#include <set>

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

/// Bytes of one space.
struct Place {
  Space space = Space::Device;
  Interval bytes{0, 0};
  bool overlaps(const Place &other) const {
    return space == other.space && bytes.overlaps(other.bytes);
  }
};

class Simulation {
public:
  explicit Simulation(const StepModel &step) : step(step) {}

  LogicalResult run() {
    if (failed(placeVariables()) || failed(placeInputs()) || failed(runBlock(step.getBody())))
      return failure();
    return success(succeeded(checkVariables()) && succeeded(checkHeights()) &&
                   succeeded(checkNumbers()));
  }

private:
  //===--------------------------------------------------------------------===//
  // What is there before the step
  //===--------------------------------------------------------------------===//

  /// Those that have bytes of their own.
  auto getVariables() {
    return llvm::make_filter_range(step.getModule().getOps<VariableOp>(),
                                   [](VariableOp variable) { return !variable.liesInUnit(); });
  }

  LogicalResult placeVariables() {
    for (VariableOp variable : getVariables()) {
      if (!variable.getOffset())
        return variable.emitOpError("has no offset in the planned program");
      claim(getHome(variable), variable);
      current[variable.getSymNameAttr()] = variable;
      variables[variable.getSymNameAttr()] = variable;
    }
    for (VariableOp variable : getVariables())
      if (!owns(places[variable], variable))
        return variable.emitOpError("shares bytes with another variable");
    for (VariableOp variable : getVariables())
      if (Place home = getHome(variable); variable.isState() && home.bytes.begin < home.bytes.end)
        stateHomes[static_cast<size_t>(home.space)][home.bytes.begin] = variable;
    return success();
  }

  static Place getHome(VariableOp variable) {
    int64_t offset = variable.getOffsetAttr().getInt(),
            bytes = getTensorBytes(variable.getTensorType());
    bool isOnDisk = variable.getPlacement() == Space::Disk;
    return {variable.getPlacement(),
            {offset, offset + (isOnDisk ? roundUpToDiskBlocks(bytes) : bytes)}};
  }

  LogicalResult placeInputs() {
    func::FuncOp function = step.getFunction();
    for (BlockArgument argument : function.getArguments()) {
      auto offset = function.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(),
                                                           MemoptDialect::kOffsetAttr);
      if (!offset)
        return function.emitOpError() << "argument " << argument.getArgNumber() << " has no offset";
      claim(getPlace(argument, offset.getInt()), argument.getAsOpaquePointer());
    }
    return success();
  }

  static Place getPlace(Value value, int64_t offset) {
    return {getSpace(value.getType()), {offset, offset + getTensorBytes(value.getType())}};
  }

  void claim(const Place &place, const void *owner) {
    auto space = static_cast<size_t>(place.space);
    places[owner] = place;
    ownership[space].claim(place.bytes, owner);
    lowest[space] = std::min(lowest[space], place.bytes.begin);
    highest[space] = std::max(highest[space], place.bytes.end);
  }

  bool owns(const Place &place, const void *owner) const {
    return ownership[static_cast<size_t>(place.space)].owns(place.bytes, owner);
  }

  //===--------------------------------------------------------------------===//
  // The step
  //===--------------------------------------------------------------------===//

  LogicalResult runBlock(Block &block) {
    for (Operation &op : block)
      if (failed(runOp(&op)))
        return failure();
    return success();
  }

  LogicalResult runOp(Operation *op) {
    if (auto read = dyn_cast<ReadOp>(op)) {
      aliases[read.getResult()] = current[read.getVariableAttr().getAttr()];
      return success();
    }
    for (Value operand : op->getOperands())
      if (isa<RankedTensorType>(operand.getType()) && failed(checkAlive(op, operand)))
        return failure();
    if (auto write = dyn_cast<WriteOp>(op))
      return checkStored(write);
    isCommitted |= isa<CommitOp>(op);
    auto instruction = dyn_cast<InstructionOpInterface>(op);
    return instruction ? runInstruction(instruction) : success();
  }

  LogicalResult runInstruction(InstructionOpInterface instruction) {
    if (failed(makeBuffers(instruction)))
      return failure();
    if (Operation *start = getStart(instruction))
      if (failed(land(start, instruction)))
        return failure();
    // A second iteration finds what the first left behind.
    for (int64_t turn = 0; turn < std::min<int64_t>(2, instruction.getRepeatCount()); ++turn) {
      for (Block *body : instruction.getBodies())
        if (failed(runBlock(*body)))
          return failure();
      if (auto scan = dyn_cast<ScanOp>(instruction.getOperation()); scan && failed(handOn(scan)))
        return failure();
    }
    return success();
  }

  /// What an iteration yielded lies where it belongs, and is the next iteration's from now on.
  LogicalResult handOn(ScanOp scan) {
    for (OpOperand &yield : scan.getYield()->getOpOperands()) {
      const void *home = getOwner(scan->getResult(yield.getOperandNumber()));
      const Place &found = places[getOwner(yield.get())], &expected = places[home];
      if (found.space != expected.space || found.bytes.begin != expected.bytes.begin)
        return scan.emitOpError() << "yields value " << yield.getOperandNumber() << " at "
                                  << found.bytes.begin << ", expected " << expected.bytes.begin;
      if (yield.getOperandNumber() < scan.getCarried().size())
        claim(expected, home);
    }
    return success();
  }

  /// Who owns the bytes that `result` is made in before it is made: of the last value of a carried
  /// one what it began with, of a slice the whole. Null where the result takes bytes of its own.
  const void *getSharedOwner(OpResult result) const {
    if (auto scan = dyn_cast<ScanOp>(result.getOwner());
        scan && result.getResultNumber() < scan.getCarried().size())
      return getOwner(scan.getCarried()[result.getResultNumber()]);
    OpOperand *yield = findYield(result);
    auto scan = yield ? cast<ScanOp>(yield->getOwner()->getParentOp()) : ScanOp();
    bool isSlice = yield && yield->getOperandNumber() >= scan.getCarried().size();
    return isSlice ? getOwner(scan->getResult(yield->getOperandNumber())) : nullptr;
  }

  LogicalResult share(OpResult result, const Place &place, const void *owner) {
    const Place &home = places[owner];
    bool isInside = home.space == place.space && home.bytes.begin == place.bytes.begin &&
                    place.bytes.end <= home.bytes.end;
    if (!isInside || !owns(home, owner))
      return result.getOwner()->emitOpError()
             << "makes result " << result.getResultNumber() << " at " << place.bytes.begin
             << ", which belongs to no value that it is a part of";
    aliases[result] = owner;
    return success();
  }

  const void *getOwner(Value value) const {
    Value root = getBufferRoot(value);
    auto it = aliases.find(root);
    return it == aliases.end() ? root.getAsOpaquePointer() : it->second;
  }

  LogicalResult checkAlive(Operation *op, Value operand) {
    const void *owner = getOwner(operand);
    auto it = places.find(owner);
    if (it != places.end() && owns(it->second, owner))
      return success();
    return op->emitOpError() << "uses a value of type " << operand.getType()
                             << " whose bytes were overwritten or never placed";
  }

  LogicalResult checkStored(WriteOp write) {
    VariableOp variable = variables.lookup(write.getVariableAttr().getAttr());
    Place home = getHome(variable), found = places[getOwner(write.getValue())];
    if (home.space != found.space || home.bytes.begin != found.bytes.begin ||
        home.bytes.end != found.bytes.end)
      return write.emitOpError() << "writes a value that lies at " << found.bytes.begin
                                 << ", expected the variable's " << home.bytes.begin;
    current[variable.getSymNameAttr()] = getOwner(write.getValue());
    return success();
  }

  //===--------------------------------------------------------------------===//
  // Instructions
  //===--------------------------------------------------------------------===//

  LogicalResult makeBuffers(InstructionOpInterface instruction) {
    FailureOr<SmallVector<Place>> made = collectPlaces(instruction);
    if (failed(made))
      return failure();
    SmallVector<OpResult> tensors = getTensors(instruction);
    for (auto [index, place] : llvm::enumerate(*made)) {
      for (const Place &other : ArrayRef<Place>(*made).drop_front(index + 1))
        if (place.overlaps(other))
          return instruction->emitOpError() << "makes two buffers at " << place.bytes.begin
                                            << " and " << other.bytes.begin << " that overlap";
      OpResult result = index < tensors.size() ? tensors[index] : OpResult();
      if (const void *owner = result ? getSharedOwner(result) : nullptr) {
        if (failed(share(result, place, owner)))
          return failure();
        continue;
      }
      if (failed(checkInPlace(instruction, result, place)) ||
          failed(checkCommitted(instruction, place)))
        return failure();
    }
    // The results of a wait were taken when what it waits for was started.
    bool isWait = getStart(instruction);
    for (auto [index, place] : llvm::enumerate(*made))
      if (index >= tensors.size())
        claim(place, getWorkspaceOwner(instruction, index - tensors.size()));
      else if (!isWait && !getSharedOwner(tensors[index]))
        claim(place, tensors[index].getAsOpaquePointer());
    return takeOff(instruction);
  }

  /// The results that are buffers; a token is none.
  static SmallVector<OpResult> getTensors(Operation *op) {
    return llvm::filter_to_vector(
        op->getResults(), [](OpResult result) { return isa<RankedTensorType>(result.getType()); });
  }

  /// Of the results that are tensors, then of the workspaces.
  FailureOr<SmallVector<Place>> collectPlaces(InstructionOpInterface instruction) {
    SmallVector<Place> places;
    SmallVector<Workspace> workspaces = instruction.getWorkspaces();
    DenseI64ArrayAttr offsets = instruction.getOffsetsAttr();
    if (!offsets)
      return instruction->emitOpError("has no offsets in the planned program");
    ArrayRef<int64_t> left = offsets.asArrayRef();
    for (OpResult result : getTensors(instruction)) {
      places.push_back(getPlace(result, left.front()));
      left = left.drop_front();
    }
    for (auto [workspace, offset] : llvm::zip_equal(workspaces, left)) {
      if (offset % workspace.alignment != 0)
        return instruction->emitOpError() << "has a workspace at " << offset
                                          << ", expected a multiple of " << workspace.alignment;
      places.push_back({workspace.space, {offset, offset + workspace.bytes}});
    }
    return places;
  }

  /// Something to own the bytes of a workspace: an address inside of the op, which no value has.
  static const void *getWorkspaceOwner(Operation *op, size_t index) {
    return reinterpret_cast<const char *>(op) + index + 1;
  }

  /// A result may meet an operand's bytes only where the op allows it, and then begins where the
  /// operand begins. A workspace, which is no result, may meet none.
  LogicalResult checkInPlace(Operation *op, OpResult result, const Place &made) {
    SmallVector<InPlaceOperand> allowed;
    if (auto inPlace = dyn_cast<InPlaceOpInterface>(op); inPlace && result)
      allowed = inPlace.getInPlaceOperands(result.getResultNumber());
    for (OpOperand &operand : op->getOpOperands()) {
      if (!isa<RankedTensorType>(operand.get().getType()))
        continue;
      Place place = places[getOwner(operand.get())];
      if (!place.overlaps(made))
        continue;
      bool isAllowed = llvm::any_of(allowed, [&](const InPlaceOperand &entry) {
        return entry.operand == operand.getOperandNumber();
      });
      if (isAllowed && place.bytes.begin == made.bytes.begin)
        continue;
      InFlightDiagnostic error = op->emitOpError() << "writes ";
      result ? error << "result " << result.getResultNumber() : error << "a workspace";
      return error << " over operand " << operand.getOperandNumber() << ", which it does not allow";
    }
    return success();
  }

  /// State keeps its bytes until the loss was committed.
  LogicalResult checkCommitted(Operation *op, const Place &made) {
    if (isCommitted || !step.getCommit())
      return success();
    // Homes do not overlap: only the last one that begins before our end may reach into us.
    const auto &homes = stateHomes[static_cast<size_t>(made.space)];
    auto next = homes.lower_bound(made.bytes.end);
    if (next == homes.begin())
      return success();
    VariableOp variable = std::prev(next)->second;
    if (!getHome(variable).overlaps(made))
      return success();
    return op->emitOpError() << "writes into '" << variable.getSymName()
                             << "' before the loss was committed";
  }

  //===--------------------------------------------------------------------===//
  // What is in flight
  //===--------------------------------------------------------------------===//

  static Operation *getWait(Operation *start) {
    for (Value result : start->getResults())
      if (isa<TokenType>(result.getType()) && result.hasOneUse())
        return *result.user_begin();
    return nullptr;
  }

  /// The destination belongs to what is in flight from now on.
  LogicalResult takeOff(InstructionOpInterface start) {
    if (llvm::none_of(start->getResultTypes(), llvm::IsaPred<TokenType>))
      return success();
    auto wait = dyn_cast_or_null<InstructionOpInterface>(getWait(start));
    if (!wait || wait->getBlock() != start->getBlock())
      return start->emitOpError("starts something that its block does not wait for once");
    FailureOr<SmallVector<Place>> destinations = collectPlaces(wait);
    if (failed(destinations))
      return failure();
    for (auto [result, place] : llvm::zip(getTensors(wait), *destinations)) {
      if (start.getResource() == Resource::Disk && failed(roundToBlocks(start, place)))
        return failure();
      for (Value operand : start->getOperands())
        if (isa<RankedTensorType>(operand.getType()) && failed(checkEnds(start, operand, place)))
          return failure();
      if (failed(checkCommitted(start, place)))
        return failure();
      claim(place, result.getAsOpaquePointer());
    }
    return success();
  }

  /// Both ends are apart, but where the start says that they are the same bytes.
  LogicalResult checkEnds(Operation *start, Value operand, const Place &destination) {
    const Place &source = places[getOwner(operand)];
    if (!isInPlace(start)) {
      if (source.overlaps(destination))
        return start->emitOpError("goes to bytes that it comes from");
      return success();
    }
    if (source.space != destination.space || source.bytes.begin != destination.bytes.begin)
      return start->emitOpError() << "goes to byte " << destination.bytes.begin
                                  << ", expected its operand's " << source.bytes.begin;
    return success();
  }

  static bool isInPlace(Operation *start) {
    auto collective = dyn_cast<CollectiveStartOp>(start);
    return collective && collective.getInPlace();
  }

  /// A disk is read and written in whole blocks.
  LogicalResult roundToBlocks(InstructionOpInterface start, Place &destination) {
    Place source = places[getOwner(start->getOperand(0))];
    for (const Place &end : {source, destination})
      if (end.bytes.begin % kDiskBlock != 0)
        return start->emitOpError()
               << "has an end at byte " << end.bytes.begin << " of " << stringifySpace(end.space)
               << " memory, expected a multiple of " << kDiskBlock;
    destination.bytes.end = destination.bytes.begin +
                            roundUpToDiskBlocks(destination.bytes.end - destination.bytes.begin);
    return success();
  }

  /// Nobody has touched the destination, the source or the staging since the start.
  LogicalResult land(Operation *start, Operation *wait) {
    for (Value result : getTensors(wait))
      if (!owns(places[result.getAsOpaquePointer()], result.getAsOpaquePointer()))
        return wait->emitOpError("waits for bytes that were written while they were in flight");
    for (Value operand : start->getOperands())
      if (isa<RankedTensorType>(operand.getType()) && !isInPlace(start) &&
          !owns(places[getOwner(operand)], getOwner(operand)))
        return wait->emitOpError("waits for bytes whose source was written while in flight");
    for (size_t index = 0; index < cast<InstructionOpInterface>(start).getWorkspaces().size();
         ++index) {
      const void *owner = getWorkspaceOwner(start, index);
      if (!owns(places[owner], owner))
        return wait->emitOpError("waits for bytes whose staging was written while in flight");
    }
    return success();
  }

  //===--------------------------------------------------------------------===//
  // What the step leaves
  //===--------------------------------------------------------------------===//

  /// What the next step begins with.
  LogicalResult checkVariables() {
    for (VariableOp variable : getVariables())
      if (!owns(getHome(variable), current[variable.getSymNameAttr()]))
        return variable.emitOpError("is overwritten by a value that is not written to it");
    return success();
  }

  LogicalResult checkHeights() {
    ModuleOp module = step.getModule();
    auto planned = module->getAttrOfType<PlannedAttr>(MemoptDialect::kPlannedAttr);
    if (!planned)
      return emitError(module.getLoc())
             << "has no '" << MemoptDialect::kPlannedAttr << "' in the planned program";
    for (unsigned space = 0; space < kNumSpaces; ++space)
      if (int64_t height = planned.getArenaBytes()[space];
          lowest[space] < 0 || highest[space] > height)
        return emitError(module.getLoc())
               << "places buffers from byte " << lowest[space] << " to " << highest[space] << " of "
               << stringifySpace(static_cast<Space>(space)) << " memory, expected 0 to " << height;
    return success();
  }

  /// Each list's instructions are numbered from 0 without gaps.
  LogicalResult checkNumbers() {
    llvm::StringMap<std::set<uint64_t>> lists;
    WalkResult result = step.getFunction().walk([&](ListedOpInterface listed) {
      std::optional<uint64_t> number = listed.getNumber();
      if (number && lists[listed.getListName()].insert(*number).second)
        return WalkResult::advance();
      listed->emitOpError("has no number of its own in the planned program");
      return WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      return failure();
    for (const auto &list : lists)
      if (*list.second.rbegin() + 1 != list.second.size())
        return emitError(step.getModule().getLoc())
               << "numbers the " << list.second.size() << " entries of '" << list.first()
               << "' up to " << *list.second.rbegin();
    return success();
  }

  const StepModel &step;
  bool isCommitted = false;
  std::map<int64_t, VariableOp> stateHomes[kNumSpaces]; ///< by first byte
  Ownership ownership[kNumSpaces];
  DenseMap<const void *, Place> places;
  DenseMap<Value, const void *> aliases;
  DenseMap<StringAttr, VariableOp> variables;                ///< by name
  DenseMap<StringAttr, const void *> current;                ///< by variable: who holds its value
  int64_t lowest[kNumSpaces] = {}, highest[kNumSpaces] = {}; ///< bytes that any buffer touches
};

struct VerifyPlannedPass : public mlir::memopt::impl::VerifyPlannedPassBase<VerifyPlannedPass> {
  void runOnOperation() override {
    FailureOr<StepModel> step = StepModel::create(getOperation());
    if (failed(step) || failed(verifyKernelGraph(*step)) || failed(Simulation(*step).run()))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
