//===- KernelGraph.cpp - buffers and live ranges of a kernel graph -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/KernelGraph.h"

#include "memopt/Analysis/StepModel.h"
#include "memopt/Dialect/DiskBlocks.h"
#include "memopt/Dialect/Program.h"

using namespace mlir;
using namespace mlir::memopt;

std::string Buffer::describe() const {
  VariableOp variable = this->variable; // MLIR's handles have no const accessors
  Value value = this->value;
  std::string text;
  llvm::raw_string_ostream out(text);
  if (kind == Kind::Variable) {
    out << stringifyRole(variable.getRole()) << " " << variable.getSymName();
    return text;
  }
  if (kind == Kind::Input) {
    unsigned number = cast<BlockArgument>(value).getArgNumber();
    auto function = cast<func::FuncOp>(value.getParentBlock()->getParentOp());
    auto name = function.getArgAttrOfType<StringAttr>(number, MemoptDialect::kNameAttr);
    out << "input ";
    name ? out << name.getValue() : out << number;
    return text;
  }
  out << (kind == Kind::Workspace ? "workspace of " : "result of ")
      << cast<InstructionOpInterface>(op).getKindName();
  StringRef path = getModulePath(op->getLoc());
  if (!path.empty())
    out << " in " << path;
  if (kind == Kind::Result)
    out << " : " << value.getType();
  return text;
}

//===----------------------------------------------------------------------===//
// What belongs in one
//===----------------------------------------------------------------------===//

static LogicalResult verifyBlock(Block &block, int64_t &bytes) {
  for (Operation &op : block) {
    auto instruction = dyn_cast<InstructionOpInterface>(op);
    if (!instruction && !isa<ReadOp, WriteOp, GradientOp, YieldOp, func::ReturnOp>(op) &&
        !isReshape(&op))
      return op.emitOpError() << "does not belong in a kernel graph: expected an instruction, a "
                                 "read, a write or a reshape of a buffer";
    bytes = addCounts(bytes, getOperandAndResultBytes(&op));
    if (!instruction)
      continue;
    for (const Workspace &workspace : instruction.getWorkspaces())
      bytes = addCounts(bytes, workspace.bytes);
    for (Block *body : instruction.getBodies())
      if (failed(verifyBlock(*body, bytes)))
        return failure();
  }
  return success();
}

LogicalResult mlir::memopt::verifyKernelGraph(const StepModel &step) {
  int64_t bytes = 0;
  if (failed(step.verifyAccesses()) || failed(verifyTensorGraph(step.getFunction())) ||
      failed(verifyBlock(step.getBody(), bytes)))
    return failure();
  for (auto variable : step.getModule().getOps<VariableOp>())
    if (!variable.liesInUnit())
      bytes = addCounts(bytes, getTensorBytes(variable.getTensorType()));
  if (bytes < kMaxCount)
    return success();
  return emitError(step.getFunction().getLoc())
         << "the step's tensors and workspaces have 2^56 bytes or more in all";
}

//===----------------------------------------------------------------------===//
// Instructions and buffers
//===----------------------------------------------------------------------===//

KernelGraph::KernelGraph(func::FuncOp function)
    : mayTakeRows(getTarget(function).mayWriteOverRows()) {
  numberInstructions(function.getBody().front());
  for (auto commit : function.getOps<CommitOp>())
    commitTime = times[commit];
  addVariables(function);
  addInputs(function);
  addResults();
  extendToUses(function);
  bindWrites(function);
  bindYields();
  roundToBlocks();
  align(getTarget(function).getLeastAlignment());
}

void KernelGraph::numberInstructions(Block &block) {
  for (Operation &op : block) {
    auto instruction = dyn_cast<InstructionOpInterface>(op);
    if (!instruction)
      continue;
    instructions.push_back(&op);
    times[&op] = static_cast<int64_t>(instructions.size());
    SmallVector<Block *> bodies = instruction.getBodies();
    if (bodies.empty())
      continue;
    unsigned number = loops.size();
    loopOf[&op] = number;
    loops.push_back({&op, getExitTime(), 0, instruction.getRepeatCount()});
    for (Block *body : bodies)
      numberInstructions(*body);
    loops[number].end = getExitTime();
  }
}

/// State that several programs share is stacked in its order, whatever else they have: what fills
/// whole units of all alignments leaves no gaps that a planner could fill in one program and not in
/// the other.
static int64_t getPlannedBytes(VariableOp variable, bool isShared) {
  int64_t bytes = getTensorBytes(variable.getTensorType());
  return isShared && variable.isState() && !variable->hasAttr(kOwnAttr)
             ? llvm::alignTo(bytes, getTarget(variable).getWorkspaceAlignment())
             : bytes;
}

void KernelGraph::addVariables(func::FuncOp function) {
  auto module = function->getParentOfType<ModuleOp>();
  bool isShared = module->hasAttr(kSharesStateAttr);
  for (auto variable : module.getOps<VariableOp>()) {
    if (variable.liesInUnit())
      continue;
    variableBuffer[variable.getSymNameAttr()] = buffers.size();
    buffers.push_back({Buffer::Kind::Variable, variable.getPlacement(),
                       getPlannedBytes(variable, isShared), 0, getExitTime() + 1, variable,
                       Value()});
  }
  function.walk([&](ReadOp read) {
    bufferOf[read.getResult()] = variableBuffer.lookup(read.getVariableAttr().getAttr());
  });
}

void KernelGraph::addInputs(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments()) {
    bufferOf[argument] = buffers.size();
    buffers.push_back({Buffer::Kind::Input, Space::Device, getTensorBytes(argument.getType()), 0, 1,
                       nullptr, argument});
  }
}

void KernelGraph::addResults() {
  for (Operation *op : instructions) {
    int64_t time = times[op];
    // What is waited for has been on its way since its start.
    Operation *start = getStart(op);
    int64_t begin = start ? times[start] : time;
    for (OpResult result : op->getResults()) {
      if (!isa<RankedTensorType>(result.getType()))
        continue;
      if (auto scan = dyn_cast<ScanOp>(op);
          scan && result.getResultNumber() < scan.getCarried().size()) {
        bufferOf[result] = getBufferOf(scan.getCarried()[result.getResultNumber()]);
        continue;
      }
      if (auto wait = dyn_cast<CollectiveWaitOp>(op))
        if (Value taken = wait.getTakenOperand()) {
          bufferOf[result] = getBufferOf(taken);
          continue;
        }
      bufferOf[result] = buffers.size();
      buffers.push_back({Buffer::Kind::Result, getSpace(result.getType()),
                         getTensorBytes(result.getType()), begin, time + 1, nullptr, result, op,
                         result.getResultNumber()});
    }
    for (auto [number, workspace] :
         llvm::enumerate(cast<InstructionOpInterface>(op).getWorkspaces())) {
      workspacesOf[op].push_back(buffers.size());
      buffers.push_back({Buffer::Kind::Workspace, workspace.space, workspace.bytes, time, time + 1,
                         nullptr, Value(), op, static_cast<unsigned>(number)});
    }
  }
}

//===----------------------------------------------------------------------===//
// Lives
//===----------------------------------------------------------------------===//

void KernelGraph::extendToUses(func::FuncOp function) {
  for (Operation *op : instructions) {
    for (Value operand : op->getOperands())
      if (isa<RankedTensorType>(operand.getType()))
        extendToUse(operand, op, times[op]);
    if (Operation *start = getStart(op))
      extendFlight(start, times[op]);
  }
  Operation *end = function.getBody().front().getTerminator();
  for (Value returned : end->getOperands())
    extendToUse(returned, end, getExitTime());
}

void KernelGraph::extendToUse(Value value, Operation *user, int64_t time) {
  Value root = getBufferRoot(value);
  time = stretchOverLoops(root, user, time);
  int64_t &last = lastUse[root];
  last = std::max(last, time);
  Buffer &buffer = buffers[bufferOf[root]];
  buffer.end = std::max(buffer.end, time + 1);
}

/// What is in flight owns the bytes that it comes from until somebody has waited for it.
void KernelGraph::extendFlight(Operation *start, int64_t waitTime) {
  for (Value operand : start->getOperands())
    if (isa<RankedTensorType>(operand.getType()))
      extendToUse(operand, start, waitTime);
  for (unsigned workspace : workspacesOf[start])
    buffers[workspace].end = std::max(buffers[workspace].end, waitTime + 1);
}

/// A value from outside of a loop is there for every iteration: to the end of the outermost loop
/// that its home does not lie in.
int64_t KernelGraph::stretchOverLoops(Value root, Operation *user, int64_t time) const {
  Block *home = root.getParentBlock();
  for (Operation *op = user; op && op->getBlock() != home; op = op->getParentOp())
    if (auto found = loopOf.find(op->getParentOp()); found != loopOf.end())
      time = std::max(time, loops[found->second].end - 1);
  return time;
}

//===----------------------------------------------------------------------===//
// Results in the bytes of others
//===----------------------------------------------------------------------===//

bool KernelGraph::canTake(ArrayRef<InPlaceOperand> allowed, unsigned operand) const {
  return llvm::any_of(allowed, [&](const InPlaceOperand &entry) {
    return entry.operand == operand && (mayTakeRows || !entry.byRow);
  });
}

/// The operands whose bytes a result may take, as its maker says.
static SmallVector<InPlaceOperand> getAllowed(OpResult result) {
  auto inPlace = dyn_cast<InPlaceOpInterface>(result.getOwner());
  return inPlace ? inPlace.getInPlaceOperands(result.getResultNumber())
                 : SmallVector<InPlaceOperand>();
}

/// When the bytes of the results of `producer` are taken: from its start on, where it waits.
int64_t KernelGraph::getBeginTime(Operation *producer) const {
  Operation *start = getStart(producer);
  return times.lookup(start ? start : producer);
}

FailureOr<int64_t> KernelGraph::getOffset(Value value) const {
  auto read = getBufferRoot(value).getDefiningOp<ReadOp>();
  if (!read)
    return getPlannedOffset(value);
  auto found = variableBuffer.find(read.getVariableAttr().getAttr());
  if (found == variableBuffer.end())
    return failure();
  VariableOp variable = buffers[found->second].variable;
  if (IntegerAttr offset = variable.getOffsetAttr())
    return offset.getInt();
  return failure();
}

/// State is written behind the commit, and so is what lies in its bytes.
bool KernelGraph::isBeforeCommit(Operation *producer, WriteOp write) const {
  if (getBeginTime(producer) >= commitTime)
    return false;
  VariableOp variable = buffers[variableBuffer.lookup(write.getVariableAttr().getAttr())].variable;
  return variable.isState();
}

/// The producer may write into the variable's bytes when nobody uses afterwards what was read
/// before the write, the producer itself only reads it as it writes, and nobody uses the value once
/// another of the variable's writes (in a loop, say) has followed.
bool KernelGraph::canStoreDirectly(WriteOp write, ArrayRef<ReadOp> reads,
                                   ArrayRef<WriteOp> all) const {
  Value value = write.getValue();
  Operation *producer = value.getDefiningOp();
  if (!isInstruction(producer) || producer->getBlock() != write->getBlock() ||
      isBeforeCommit(producer, write))
    return false;
  if (auto wait = dyn_cast<CollectiveWaitOp>(producer); wait && wait.getTakenOperand())
    return false;
  int64_t time = getBeginTime(producer);
  for (WriteOp other : all) {
    Operation *next = getBufferRoot(other.getValue()).getDefiningOp();
    int64_t nextTime = next ? getBeginTime(next) : 0;
    if (nextTime > time && lastUse.lookup(value) > nextTime)
      return false;
  }
  auto isUsedLater = [&](ReadOp read) { return lastUse.lookup(read.getResult()) > time; };
  if (llvm::any_of(reads, isUsedLater))
    return false;
  SmallVector<InPlaceOperand> allowed = getAllowed(cast<OpResult>(value));
  for (ReadOp read : reads) {
    Value old = const_cast<ReadOp &>(read).getResult();
    for (OpOperand &operand : producer->getOpOperands())
      if (getBufferRoot(operand.get()) == old && !canTake(allowed, operand.getOperandNumber()))
        return false;
  }
  return true;
}

void KernelGraph::bindWrites(func::FuncOp function) {
  llvm::MapVector<StringAttr, SmallVector<ReadOp>> readsBefore;
  llvm::MapVector<StringAttr, SmallVector<WriteOp>> writes;
  function.walk([&](WriteOp write) { writes[write.getVariableAttr().getAttr()].push_back(write); });
  llvm::SmallPtrSet<void *, 16> bound;
  auto bind = [&](WriteOp write) {
    Value value = write.getValue();
    StringAttr name = write.getVariableAttr().getAttr();
    unsigned own = bufferOf[getBufferRoot(value)], home = variableBuffer.lookup(name);
    if (own == home) // a scan that began with what the variable holds
      return;
    bool isAlone = buffers[own].op == value.getDefiningOp(); // no scan's, which its start made
    if (isAlone && canStoreDirectly(write, readsBefore.lookup(name), writes[name]) &&
        bound.insert(value.getAsOpaquePointer()).second) {
      buffers[own].bytes = 0; // lives inside the variable from now on
      bufferOf[value] = home;
      return;
    }
    // The copy stands at the end of the write's block.
    copies.push_back(write);
    auto loop = loopOf.find(write->getParentOp());
    int64_t end = loop == loopOf.end() ? getExitTime() : loops[loop->second].end;
    Buffer &buffer = buffers[bufferOf[getBufferRoot(value)]];
    buffer.end = std::max(buffer.end, end);
  };
  function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (auto read = dyn_cast<ReadOp>(op))
      readsBefore[read.getVariableAttr().getAttr()].push_back(read);
    else if (auto write = dyn_cast<WriteOp>(op))
      bind(write);
  });
}

/// Nobody reads the carried value once the next one is made, and its maker reads it only as it
/// writes.
bool KernelGraph::canReplaceCarried(OpResult value, OpOperand &yield) const {
  auto scan = cast<ScanOp>(yield.getOwner()->getParentOp());
  Operation *maker = value.getOwner();
  int64_t time = getBeginTime(maker);
  SmallVector<InPlaceOperand> allowed = getAllowed(value);
  Value carried = scan.getCarriedArguments()[yield.getOperandNumber()];
  return llvm::all_of(getUsesOfBuffer(carried), [&](OpOperand *use) {
    if (use->getOwner() == maker)
      return canTake(allowed, use->getOperandNumber());
    return isInstruction(use->getOwner()) && times.lookup(use->getOwner()) < time;
  });
}

/// Puts what is yielded where it belongs: into the carried value's buffer, or into a slice of the
/// result's.
bool KernelGraph::bindYield(OpOperand &yield) {
  auto scan = cast<ScanOp>(yield.getOwner()->getParentOp());
  unsigned number = yield.getOperandNumber();
  bool isCarried = number < scan.getCarried().size();
  unsigned home = getBufferOf(scan->getResult(number));
  buffers[home].end = std::max(buffers[home].end, loops[loopOf.lookup(scan)].end);
  auto value = dyn_cast<OpResult>(getBufferRoot(yield.get()));
  Operation *maker = value ? value.getOwner() : nullptr;
  if (!isInstruction(maker) || maker->getBlock() != yield.getOwner()->getBlock() ||
      findYield(value) != &yield || buffers[bufferOf[value]].op != maker ||
      (isCarried && !canReplaceCarried(value, yield)))
    return false;
  buffers[bufferOf[value]].bytes = 0; // lives inside the other from now on
  bufferOf[value] = home;
  return true;
}

void KernelGraph::bindYields() {
  for (Operation *op : instructions)
    if (auto scan = dyn_cast<ScanOp>(op))
      for (OpOperand &yield : scan.getYield()->getOpOperands())
        if (!bindYield(yield)) {
          yieldCopies.push_back(&yield);
          Buffer &buffer = buffers[getBufferOf(yield.get())];
          buffer.end = std::max(buffer.end, loops[loopOf.lookup(scan)].end);
        }
}

/// What lies on disk, and the windows of the host through which it comes and goes.
void KernelGraph::roundToBlocks() {
  auto round = [&](Buffer &buffer) {
    buffer.hasBlocks = true;
    buffer.bytes = roundUpToDiskBlocks(buffer.bytes);
  };
  for (Buffer &buffer : buffers)
    if (buffer.space == Space::Disk)
      round(buffer);
  for (Operation *op : instructions)
    if (auto wait = dyn_cast<TransferWaitOp>(op)) {
      auto start = cast<TransferStartOp>(getStart(op));
      if (start.getResource() == Resource::Disk)
        for (Value end : {Value(start.getSource()), Value(wait.getResult())})
          round(buffers[getBufferOf(end)]);
    }
}

void KernelGraph::align(int64_t least) {
  for (Buffer &buffer : buffers) {
    buffer.alignment = buffer.hasBlocks ? kDiskBlock : getBufferAlignment(buffer.bytes, least);
    if (buffer.kind == Buffer::Kind::Workspace) {
      auto instruction = cast<InstructionOpInterface>(buffer.op);
      buffer.alignment =
          std::max(buffer.alignment, instruction.getWorkspaces()[buffer.number].alignment);
    }
  }
}

SmallVector<unsigned> KernelGraph::getTakeableBuffers(unsigned number) const {
  const Buffer &buffer = buffers[number];
  SmallVector<unsigned> takeable;
  if (buffer.kind != Buffer::Kind::Result || buffer.bytes == 0)
    return takeable;
  auto inPlace = dyn_cast<InPlaceOpInterface>(buffer.op);
  if (!inPlace)
    return takeable;
  SmallVector<InPlaceOperand> allowed = inPlace.getInPlaceOperands(buffer.number);
  for (const InPlaceOperand &entry : allowed) {
    unsigned candidate = getBufferOf(buffer.op->getOperand(entry.operand));
    const Buffer &old = buffers[candidate];
    // One buffer may come in as several operands; all of them must bear being written over.
    bool isReadOtherwise = llvm::any_of(buffer.op->getOpOperands(), [&](OpOperand &other) {
      return isa<RankedTensorType>(other.get().getType()) &&
             getBufferOf(other.get()) == candidate && !canTake(allowed, other.getOperandNumber());
    });
    if (old.kind == Buffer::Kind::Variable)
      continue;
    // What lives outside of a loop is there for the next iteration.
    Value home = old.value; // MLIR's handles have no const accessors
    bool isOutside = buffer.op->getBlock() != home.getParentBlock();
    if (old.space == buffer.space && !isOutside && old.bytes >= buffer.bytes &&
        old.hasBlocks >= buffer.hasBlocks && !isReadOtherwise &&
        !llvm::is_contained(takeable, candidate))
      takeable.push_back(candidate);
  }
  return takeable;
}

ArrayRef<int32_t> KernelGraph::getBuffersInPlace() const {
  if (!inPlaceOf.empty())
    return inPlaceOf;
  inPlaceOf.assign(buffers.size(), -1);
  DenseSet<unsigned> taken;
  for (auto [number, buffer] : llvm::enumerate(buffers))
    for (unsigned candidate : getTakeableBuffers(number))
      if (buffers[candidate].end - 1 == buffer.begin && taken.insert(candidate).second) {
        inPlaceOf[number] = static_cast<int32_t>(candidate);
        break;
      }
  return inPlaceOf;
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

int64_t KernelGraph::getVariableBytes(Space space) const {
  int64_t bytes = 0;
  for (const Buffer &buffer : buffers)
    if (buffer.kind == Buffer::Kind::Variable && buffer.space == space)
      bytes += buffer.bytes;
  return bytes;
}

SmallVector<int64_t> KernelGraph::getLiveBytes(Space space) const {
  SmallVector<int64_t> live(getExitTime() + 3);
  for (const Buffer &buffer : buffers) {
    if (buffer.space != space)
      continue;
    live[buffer.begin] += buffer.bytes;
    live[std::min<int64_t>(buffer.end, live.size() - 1)] -= buffer.bytes;
  }
  for (auto [number, replaced] : llvm::enumerate(getBuffersInPlace()))
    if (replaced >= 0 && buffers[number].space == space) {
      live[buffers[number].begin] -= buffers[number].bytes;
      live[buffers[number].begin + 1] += buffers[number].bytes;
    }
  for (size_t time = 1; time < live.size(); ++time)
    live[time] += live[time - 1];
  return live;
}
