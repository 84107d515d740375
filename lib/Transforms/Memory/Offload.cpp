//===- Offload.cpp - keep parameters and state off the device -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Idea:    Ren et al., ZeRO-Offload (USENIX ATC 2021), section 4: what an update touches lies on
// the
//          host, and so does the update; the device gets the parameters and gives the gradients.
//
//            %w = read @w                          %far = read @w : host
//            ... %w                                %w = wait (start %far to <device>) ; ... %w
//            %new, %m1 = kernel(%w, %g, %m)        %sent = wait (start %g to <host>)
//            write %new, @w                        %new, %m1 = kernel(%far, %sent, %m) : host
//                                                  write %new, @w : host
//
//          There is one parameter and no second copy of it: the new one travels to the device when
//          the next step first reads it.
// Input:   the kernel graph, where an update is a kernel and every value a buffer.
// Joined:  an evaluation that reads a training's state says of each variable where it lies
//          (StateForm.h).
// Which:   OffloadPlacement.h. Every value that is read in a space where it does not lie gets a
//          transfer, one for all readers of a space.
// Disk:    nothing computes there. What goes between the device and the disk lies on the host in
//          between, for as long as it takes (Rajbhandari et al., ZeRO-Infinity, SC 2021, section
//          5).
// Swapped: what the forward pass makes and the backward pass reads, where that is asked for.
// Order:   a transfer to the host starts where its value is made; of a value that was there before,
//          in front of the kernel on the host that runs before the reader. All others start in
//          front of their first reader. memopt-schedule moves them.
//
//===----------------------------------------------------------------------===//

#include "OffloadPlacement.h"
#include "OffloadUpdates.h"
#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Analysis/StateForm.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Transforms/Passes.h"
#include "memopt/Transforms/Utils/PlaceOps.h"
#include "memopt/Transforms/Utils/UserGroups.h"

#include "llvm/ADT/SetVector.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_OFFLOADPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// What all updates read
//===----------------------------------------------------------------------===//

/// Of a variable that no step writes.
static bool isHyperparameter(const StepModel &step, Operation *op) {
  auto read = dyn_cast_or_null<ReadOp>(op);
  return read &&
         step.getVariable(read.getVariableAttr().getAttr()).getRole() == Role::Hyperparameter;
}

/// Whether `op` makes single numbers of hyperparameters and such numbers alone: bias corrections,
/// say.
static bool makesNumbers(const StepModel &step, Operation *op,
                         const llvm::SmallPtrSetImpl<Operation *> &numbers) {
  auto isNumber = [](Type type) { return cast<RankedTensorType>(type).getNumElements() == 1; };
  auto isKnown = [&](Value operand) {
    Operation *maker = operand.getDefiningOp();
    return isNumber(operand.getType()) &&
           (isHyperparameter(step, maker) || numbers.contains(maker));
  };
  return isUpdate(op) && llvm::all_of(op->getResultTypes(), isNumber) &&
         llvm::all_of(op->getOperands(), isKnown);
}

/// Lets updates begin while the backward pass still runs: what all of them read and nothing holds
/// back comes first in the step.
static void moveNumbersToFront(const StepModel &step) {
  llvm::SmallPtrSet<Operation *, 8> numbers;
  llvm::SetVector<Operation *> moved;
  for (Operation &op : step.getBody())
    if (isInstruction(&op) && makesNumbers(step, &op, numbers)) {
      numbers.insert(&op);
      for (Value operand : op.getOperands())
        moved.insert(operand.getDefiningOp());
      moved.insert(&op);
    }
  Operation *front = &step.getBody().front();
  for (Operation *op : moved)
    if (op == front)
      front = op->getNextNode();
    else
      op->moveBefore(front);
}

//===----------------------------------------------------------------------===//
// Casts
//===----------------------------------------------------------------------===//

/// In front of its first reader, with its other shapes.
static void moveToReaders(Operation *op) {
  Operation *first = nullptr;
  for (Operation *user : op->getUsers()) {
    if (isReshape(user))
      moveToReaders(user);
    Operation *place = op->getBlock()->findAncestorOpInBlock(*user);
    if (!first || place->isBeforeInBlock(first))
      first = place;
  }
  if (first)
    putBefore(op, first);
}

/// The forward pass may begin with the casts of all parameters. On the host the result of one is
/// there to be sent.
static void moveCastsToReaders(const OffloadPlacement &placement) {
  for (Operation *kernel : llvm::reverse(placement.getKernels()))
    if (!isUpdate(kernel))
      moveToReaders(kernel);
}

//===----------------------------------------------------------------------===//
// One fetch for a whole step
//===----------------------------------------------------------------------===//

namespace {
/// Brings the value of one read into the bodies of loops that read the same variable.
class ReadJoiner {
public:
  explicit ReadJoiner(Block &step) : step(step) {}

  /// All reads give what the earliest of them gives.
  void join(ArrayRef<ReadOp> reads);

private:
  Value bringInto(Block *block);

  Block &step;
  DenseMap<Block *, Value> values;
};
} // namespace

void ReadJoiner::join(ArrayRef<ReadOp> reads) {
  auto isInside = [&](ReadOp read) { return read->getBlock() != &step; };
  if (llvm::none_of(reads, isInside))
    return;
  Operation *first = step.getTerminator();
  for (ReadOp read : reads)
    if (Operation *place = step.findAncestorOpInBlock(*read); place->isBeforeInBlock(first))
      first = place;
  OpBuilder builder(first);
  values[&step] = builder.clone(*ReadOp(reads.front()))->getResult(0);
  for (ReadOp read : reads) {
    read.getResult().replaceAllUsesWith(bringInto(read->getBlock()));
    read->erase();
  }
}

/// What is outside of a loop comes in as one more operand.
Value ReadJoiner::bringInto(Block *block) {
  if (Value known = values.lookup(block))
    return known;
  auto repeat = cast<RepeatOp>(block->getParentOp());
  Value outside = bringInto(repeat->getBlock());
  repeat.getInputsMutable().append(outside);
  return values[block] = block->addArgument(outside.getType(), outside.getLoc());
}

//===----------------------------------------------------------------------===//
// Transfers
//===----------------------------------------------------------------------===//

namespace {
/// Gives every reader its value where it needs it.
class Connector {
public:
  Connector(const OffloadPlacement &placement, bool fetchesAgain)
      : placement(placement), fetchesAgain(fetchesAgain) {}

  /// Sends `value` to readers in other spaces.
  void connect(Value value);
  /// Sends what the forward pass makes to `home`, and back for the backward pass.
  void swap(Value value, Space home);
  int64_t getNumTransfers() const { return transfers; }

private:
  /// A transfer of `value` to another space that starts in front of `begin` and is waited for in
  /// front of `end`, as a part of the phase of `end`.
  Value send(Value value, Space to, Operation *begin, Operation *end, Phase phase,
             int64_t clone = 0);
  void connect(Value value, Space to);
  void store(Value value);
  Operation *getPlaceOfStart(Value root, Operation *user) const;

  const OffloadPlacement &placement;
  bool fetchesAgain;
  int64_t transfers = 0;
};
} // namespace

/// Uses of `value`, reshapes looked through, that are wanted.
static void collectUses(Value value, function_ref<bool(OpOperand &)> isWanted,
                        SmallVectorImpl<OpOperand *> &uses) {
  for (OpOperand &use : value.getUses()) {
    if (isReshape(use.getOwner()))
      collectUses(use.getOwner()->getResult(0), isWanted, uses);
    else if (isWanted(use))
      uses.push_back(&use);
  }
}

/// A value with its marks and other names: what stands behind them sees it as it is.
static Operation *getPlaceBehind(Operation *maker) {
  Operation *place = maker->getNextNode();
  while (isa<GradientOp>(place) || isReshape(place))
    place = place->getNextNode();
  return place;
}

Operation *Connector::getPlaceOfStart(Value root, Operation *user) const {
  Operation *maker = root.getDefiningOp();
  if (isInstruction(maker))
    return getPlaceBehind(maker);
  if (getSpace(root.getType()) !=
      Space::Device) { // all that one reader wants is on its way at once
    while (isa_and_nonnull<TransferWaitOp>(user->getPrevNode()))
      user = user->getPrevNode();
    return user;
  }
  // There before: sent while the kernel before the reader runs.
  for (Operation *op = user->getPrevNode(); op && op != maker; op = op->getPrevNode())
    if (placement.has(op) ||
        (isInstruction(op) && !cast<InstructionOpInterface>(op).getBodies().empty()))
      return placement.has(op) ? op : op->getNextNode();
  return user;
}

/// `value`, a shape of `root`, of `copy` instead.
static Value reshapeCopy(OpBuilder &builder, Value value, Value root, Value copy) {
  if (value == root)
    return copy;
  Operation *reshape = value.getDefiningOp();
  Value source = reshapeCopy(builder, reshape->getOperand(0), root, copy);
  Operation *made = builder.clone(*reshape);
  made->setOperand(0, source);
  made->getResult(0).setType(inSpace(tensorType(value), getSpace(copy.getType())));
  return made->getResult(0);
}

Value Connector::send(Value value, Space to, Operation *begin, Operation *end, Phase phase,
                      int64_t clone) {
  bool isFar = to != Space::Host && getSpace(value.getType()) != Space::Host;
  if (isFar) // between the device and the disk, through a window
    value = send(value, Space::Host, begin, begin, phase, clone);
  OpBuilder builder(begin);
  auto start = TransferStartOp::create(builder, value.getLoc(), value, to);
  builder.setInsertionPoint(end);
  auto wait = TransferWaitOp::create(builder, value.getLoc(), start.getToken());
  for (InstructionOpInterface op : {InstructionOpInterface(start), InstructionOpInterface(wait)}) {
    op.setPhase(phase);
    op.setClone(clone);
  }
  ++transfers;
  return wait.getResult();
}

/// Lets the uses by `users` read `copy`, in the shapes in which they read `root`.
static void replaceUses(ArrayRef<OpOperand *> uses, ArrayRef<Operation *> users, Value root,
                        Value copy) {
  OpBuilder builder(copy.getContext());
  builder.setInsertionPointAfterValue(copy);
  for (OpOperand *use : uses)
    if (llvm::is_contained(users, use->getOwner()))
      use->set(reshapeCopy(builder, use->get(), root, copy));
}

static SmallVector<Operation *> getOwners(ArrayRef<OpOperand *> uses) {
  llvm::SetVector<Operation *> owners;
  for (OpOperand *use : uses)
    owners.insert(use->getOwner());
  SmallVector<Operation *> users = owners.takeVector();
  llvm::sort(users, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return users;
}

void Connector::connect(Value value) {
  for (Space to : {Space::Device, Space::Host})
    if (to != getSpace(value.getType()))
      connect(value, to);
  if (getSpace(value.getType()) != Space::Disk)
    store(value);
}

/// What comes from the disk for the host comes anew for each pass that reads it: a window is short.
void Connector::connect(Value value, Space to) {
  SmallVector<OpOperand *> uses;
  collectUses(value, [&](OpOperand &use) { return placement.getSpaceOf(use) == to; }, uses);
  bool isWindow = to == Space::Host && getSpace(value.getType()) == Space::Disk;
  bool again = value.getDefiningOp<ReadOp>() && (fetchesAgain || isWindow);
  for (auto [number, users] : llvm::enumerate(groupUsers(getOwners(uses), again))) {
    Operation *first = users.front();
    Value copy = send(value, to, getPlaceOfStart(value, first), first, getPhase(first), number);
    replaceUses(uses, users, value, copy);
  }
}

/// What is written on disk goes there in the shape in which it is written, for nothing can be made
/// of it there, and at once: no window stays for the write.
void Connector::store(Value value) {
  SmallVector<OpOperand *> uses;
  collectUses(
      value, [&](OpOperand &use) { return placement.getSpaceOf(use) == Space::Disk; }, uses);
  for (OpOperand *use : uses) {
    Operation *maker = use->get().getDefiningOp();
    Operation *begin =
        isReshape(maker) ? maker->getNextNode() : getPlaceOfStart(value, use->getOwner());
    Operation *source = value.getDefiningOp(); // the write is a part of its phase
    Phase phase = getPhase(isInstruction(source) ? source : use->getOwner());
    use->set(send(use->get(), Space::Disk, begin, begin, phase));
  }
}

void Connector::swap(Value value, Space home) {
  Operation *maker = value.getDefiningOp();
  if (!isInstruction(maker) || getPhase(maker) != Phase::Forward || getStart(maker) ||
      getSpace(value.getType()) != Space::Device || getTensorBytes(value.getType()) < kLeastSwapped)
    return;
  SmallVector<OpOperand *> uses;
  collectUses(
      value,
      [&](OpOperand &use) {
        return getPhase(use.getOwner()) == Phase::Backward && !isa<GradientOp>(use.getOwner()) &&
               placement.getSpaceOf(use) == Space::Device;
      },
      uses);
  if (uses.empty())
    return;
  SmallVector<Operation *> users = getOwners(uses);
  Operation *behind = getPlaceBehind(maker);
  Value far = send(value, home, behind, behind, Phase::Forward);
  Value back = send(far, Space::Device, users.front(), users.front(), Phase::Backward);
  replaceUses(uses, users, value, back);
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

/// `value` and its other shapes lie in `space`.
static void moveTo(Space space, Value value) {
  value.setType(inSpace(tensorType(value), space));
  for (Operation *user : value.getUsers())
    if (isReshape(user))
      moveTo(space, user->getResult(0));
}

/// Of what lies in another tier than the device.
static Space getSpaceOf(OffloadTier tier) {
  return tier == OffloadTier::Disk ? Space::Disk : Space::Host;
}

/// What a value may be made by: reshapes give what they are given.
static SmallVector<Value> getRoots(const StepModel &step) {
  SmallVector<Value> roots;
  for (Block *block : getProgramBlocks(step.getBody())) {
    llvm::append_range(roots, block->getArguments());
    for (Operation &op : *block)
      if (!isReshape(&op))
        llvm::copy_if(op.getResults(), std::back_inserter(roots),
                      [](Value result) { return isa<RankedTensorType>(result.getType()); });
  }
  return roots;
}

namespace {
struct OffloadPass : mlir::memopt::impl::OffloadPassBase<OffloadPass> {
  using OffloadPassBase::OffloadPassBase;

  void runOnOperation() override {
    bool movesUpdates = optimizer != OffloadTier::None,
         movesParameters = parameters != OffloadTier::None;
    bool isJoined = llvm::any_of(getOperation().getOps<VariableOp>(), [](VariableOp variable) {
      return getStateSpace(variable).has_value();
    });
    if (!movesUpdates && !movesParameters && !isJoined && activations == OffloadTier::None)
      return;
    FailureOr<StepModel> step = StepModel::create(getOperation());
    if (failed(step) || failed(verifyKernelGraph(*step)))
      return signalPassFailure();
    OffloadPlacement placement(*step, leastElements);
    placement.addJoined();
    if (movesParameters)
      placement.addParameters(getSpaceOf(parameters));
    if (movesUpdates)
      placement.addUpdates(getSpaceOf(optimizer));
    if (!movesParameters)
      joinReads(*step, placement);
    step = StepModel::create(getOperation()); // reads have gone
    placement.addKernels(movesUpdates);
    if (movesUpdates)
      moveNumbersToFront(*step);
    moveCastsToReaders(placement);
    move(*step, placement);
    Connector connector(placement, movesParameters && fetchesAgain);
    SmallVector<Value> roots = getRoots(*step);
    llvm::for_each(roots, [&](Value root) { connector.connect(root); });
    moveUpdatesToGradients(*step, placement);
    if (activations != OffloadTier::None)
      llvm::for_each(roots, [&](Value root) { connector.swap(root, getSpaceOf(activations)); });
    report(placement, connector.getNumTransfers());
  }

  /// What is kept on the device for the whole step is fetched in front of its loops.
  static void joinReads(const StepModel &step, const OffloadPlacement &placement) {
    for (Operation *variable : llvm::make_first_range(placement.getVariables()))
      ReadJoiner(step.getBody()).join(step.getReads(cast<VariableOp>(variable).getSymNameAttr()));
  }

  static void move(const StepModel &step, const OffloadPlacement &placement) {
    for (auto [op, home] : placement.getVariables()) {
      auto variable = cast<VariableOp>(op);
      variable.setPlacement(home);
      for (ReadOp read : step.getReads(variable.getSymNameAttr()))
        moveTo(home, read.getResult());
    }
    for (Operation *kernel : placement.getKernels())
      for (Value result : kernel->getResults())
        moveTo(Space::Host, result);
  }

  void report(const OffloadPlacement &placement, int64_t transfers) {
    std::string moved;
    for (Space space : {Space::Host, Space::Disk}) {
      int64_t count = 0, bytes = 0;
      for (auto [op, home] : placement.getVariables())
        if (home == space) {
          bytes = addCounts(bytes, getTensorBytes(cast<VariableOp>(op).getTensorType()));
          ++count;
        }
      if (count || (space == Space::Host && placement.getVariables().empty()))
        moved += (moved.empty() ? "" : " and ") + std::to_string(count) + " variables of " +
                 std::to_string(bytes) + " bytes to the " + stringifySpace(space).str();
    }
    emitRemark(getOperation().getLoc())
        << "offloaded " << moved << "; " << placement.getKernels().size()
        << " kernels run on the host, " << transfers << " values are sent";
  }
};
} // namespace
