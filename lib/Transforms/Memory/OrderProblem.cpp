//===- OrderProblem.cpp - a kernel graph as a problem of order and recomputation -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Memory/OrderProblem.h"

#include "ModuleBlocks.h"
#include "OrderConstraints.h"
#include "memopt/Transforms/Passes.h"
#include "memopt/Transforms/Utils/UserGroups.h"

#include "memopt/Dialect/DiskBlocks.h"
#include "memopt/Support/Cache.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

FailureOr<::memopt::Cache *> mlir::memopt::openCache(ModuleOp module, StringRef folder) {
  if (folder.empty())
    return nullptr;
  llvm::Expected<::memopt::Cache *> cache = ::memopt::Cache::open(folder);
  if (!cache)
    return module.emitError(llvm::toString(cache.takeError()));
  return *cache;
}

//===----------------------------------------------------------------------===//
// Arena problem
//===----------------------------------------------------------------------===//

static planning::PlanBuffer getPlanBuffer(const Buffer &buffer) {
  return {buffer.bytes, buffer.alignment, static_cast<int32_t>(buffer.space)};
}

SpaceProblem::SpaceProblem(const KernelGraph &graph, Space space) {
  ArrayRef<int32_t> inPlaceOf = graph.getBuffersInPlace();
  SmallVector<int32_t> itemOf(graph.getBuffers().size(), -1);
  for (auto [number, buffer] : llvm::enumerate(graph.getBuffers())) {
    if (buffer.space != space)
      continue;
    itemOf[number] = static_cast<int32_t>(buffers.size());
    buffers.push_back(number);
  }
  for (unsigned number : buffers) {
    const Buffer &buffer = graph.getBuffers()[number];
    planning::ArenaBuffer item = getArenaBuffer(buffer);
    item.inPlaceOf = inPlaceOf[number] < 0 ? -1 : itemOf[inPlaceOf[number]];
    problem.buffers.push_back(item);
  }
  for (const Loop &loop : graph.getLoops())
    problem.loops.push_back({loop.begin, loop.end});
}

std::string SpaceProblem::describeBinding(const KernelGraph &graph) const {
  constexpr size_t kShown = 10;
  std::string list;
  std::vector<int32_t> binding = planning::arenaBindingBuffers(problem);
  for (int32_t index : ArrayRef<int32_t>(binding).take_front(kShown)) {
    const Buffer &buffer = graph.getBuffers()[buffers[index]];
    list += llvm::formatv("\n  {0} bytes: {1}", buffer.bytes, buffer.describe()).str();
  }
  return list;
}

FailureOr<int64_t> mlir::memopt::getArenaBytes(const StepModel &step, ::memopt::Cache *cache) {
  KernelGraph graph(step.getFunction());
  SpaceProblem device(graph, Space::Device);
  planning::ArenaOptions options;
  options.iterations = kArenaIterations;
  options.cache = cache;
  auto solution = planning::solveArena(device.problem, options);
  if (solution)
    return solution->height;
  return emitError(step.getModule().getLoc())
         << "memory planning failed: " << llvm::toString(solution.takeError());
}

int64_t mlir::memopt::getMostArenaBytes(int64_t before, int64_t budget) {
  constexpr int64_t kPartForGaps = 50;
  return budget < 0 ? before + before / kPartForGaps : std::max(before, budget);
}

//===----------------------------------------------------------------------===//
// Problem of order
//===----------------------------------------------------------------------===//

SmallVector<Block *> OrderProblem::getLoopBodies(const StepModel &step) {
  return llvm::map_to_vector(step.getBody().getOps<RepeatOp>(),
                             [](RepeatOp loop) { return &loop.getBody().front(); });
}

Block &OrderProblem::getMainBlock(const StepModel &step) {
  SmallVector<Block *> bodies = getLoopBodies(step);
  return bodies.empty() ? step.getBody() : *bodies.back();
}

/// What an instruction takes, its bodies as often as they run.
static int64_t getNanoseconds(const CostModel &costs, Operation *op) {
  auto instruction = cast<InstructionOpInterface>(op);
  int64_t inside = 0;
  for (Block *body : instruction.getBodies())
    for (Operation &inner : *body)
      if (isInstruction(&inner))
        inside = addCounts(inside, getNanoseconds(costs, &inner));
  return addCounts(costs.getNanoseconds(op),
                   multiplyCounts({inside, instruction.getRepeatCount()}));
}

static SmallVector<Operation *> getInstructionsOf(const KernelGraph &graph, Block &block) {
  return llvm::to_vector(llvm::make_filter_range(
      graph.getInstructions(), [&](Operation *op) { return op->getBlock() == &block; }));
}

OrderProblem::OrderProblem(const StepModel &step, const CostModel &costs, HostRoom room)
    : OrderProblem(step, KernelGraph(step.getFunction()), getMainBlock(step), costs, room) {}

OrderProblem::OrderProblem(const StepModel &step, const KernelGraph &graph, Block &block,
                           const CostModel &costs, HostRoom room)
    : block(block), instructions(getInstructionsOf(graph, block)),
      arena(graph, block, instructions, &block == &getMainBlock(step)) {
  if (auto loop = dyn_cast<InstructionOpInterface>(block.getParentOp()))
    repeats = loop.getRepeatCount();
  addInputs(graph, costs);
  addSpacesAndResources(graph, room);
  for (Operation *op : instructions)
    addInstruction(graph, op, costs);
  addBlocks();
  OrderConstraints(block, numbers, problem).add(step);
  addEnd();
  if (room.swaps)
    addWays(graph, costs);
}

/// Whether a value is made in the block, or comes with it.
bool OrderProblem::isOwn(Value root) const {
  return root.getParentBlock() == &block && !root.getDefiningOp<ReadOp>();
}

/// What is there before the block: inputs of the step, or for a loop over micro-batches all that
/// lives through it. What a scan's body needs is scratch of the scan, whatever lives around it.
void OrderProblem::addInputs(const KernelGraph &graph, const CostModel &costs) {
  planning::PlanOp &inputs = problem.ops.emplace_back();
  inputs.pinned = true;
  Operation *parent = block.getParentOp();
  if (isa<ScanOp>(parent))
    return;
  for (const Buffer &buffer : graph.getBuffers())
    if (buffer.kind == Buffer::Kind::Variable)
      problem.residents.push_back(getPlanBuffer(buffer));
  if (!isInstruction(parent)) {
    for (BlockArgument argument : block.getArguments())
      inputs.results.push_back(getPlanBuffer(graph.getBuffers()[graph.getBufferOf(argument)]));
    return;
  }
  int64_t time = graph.getTime(parent) + 1;
  for (const Buffer &buffer : graph.getBuffers())
    if (buffer.kind != Buffer::Kind::Variable && buffer.begin < time && buffer.end > time)
      problem.residents.push_back(getPlanBuffer(buffer));
  for (Operation *op : graph.getInstructions())
    if (op->getBlock() == parent->getBlock())
      inputs.cost += op == parent ? costs.getNanoseconds(op) : getNanoseconds(costs, op);
}

void OrderProblem::addEnd() {
  planning::PlanOp last;
  last.pinned = true;
  for (Value returned : block.getTerminator()->getOperands())
    if (Value root = getBufferRoot(returned); isOwn(root))
      last.inputs.push_back(valueOf(root));
  for (size_t i = 0; i < problem.ops.size(); ++i)
    last.after.push_back(static_cast<int32_t>(i));
  problem.ops.push_back(std::move(last));
}

LogicalResult OrderProblem::write(StringRef path) const {
  if (path.empty())
    return success();
  if (llvm::Error error = planning::writePlanProblem(path, problem))
    return emitError(block.getParentOp()->getLoc())
           << "cannot write the planning problem: " << llvm::toString(std::move(error));
  return success();
}

planning::PlanValue OrderProblem::valueOf(Value root) const {
  if (auto argument = dyn_cast<BlockArgument>(root))
    return {0, static_cast<int32_t>(argument.getArgNumber())};
  return {numbers.lookup(getMaker(root.getDefiningOp())),
          static_cast<int32_t>(cast<OpResult>(root).getResultNumber())};
}

/// In a graph that uses the first of each alone, solvers make the cheaper moves.
void OrderProblem::addSpacesAndResources(const KernelGraph &graph, HostRoom room) {
  unsigned spaces = 1, resources = 1;
  for (const Buffer &buffer : graph.getBuffers())
    spaces = std::max(spaces, static_cast<unsigned>(buffer.space) + 1);
  for (Operation *op : instructions)
    resources = std::max(resources,
                         static_cast<unsigned>(cast<InstructionOpInterface>(op).getResource()) + 1);
  if (room.swaps) {
    spaces = std::max(spaces, static_cast<unsigned>(Space::Host) + 1);
    resources = std::max(resources, static_cast<unsigned>(Resource::CopyOut) + 1);
  }
  problem.spaces.clear();
  for (unsigned number = 0; number < spaces; ++number)
    problem.spaces.push_back({stringifySpace(static_cast<Space>(number)).str()});
  if (spaces > static_cast<unsigned>(Space::Host))
    problem.spaces[static_cast<size_t>(Space::Host)].budget = room.budget;
  problem.resources.clear();
  for (unsigned number = 0; number < resources; ++number)
    problem.resources.push_back(stringifyResource(static_cast<Resource>(number)).str());
}

/// The value whose bytes a sum in place has taken over; null where `root` is none.
static Value getTakenRoot(Value root) {
  auto wait = root.getDefiningOp<CollectiveWaitOp>();
  Value taken = wait ? wait.getTakenOperand() : Value();
  return taken ? getBufferRoot(taken) : Value();
}

void OrderProblem::addInstruction(const KernelGraph &graph, Operation *op, const CostModel &costs) {
  auto instruction = cast<InstructionOpInterface>(op);
  numbers[op] = static_cast<int32_t>(problem.ops.size());
  planning::PlanOp &item = problem.ops.emplace_back();
  item.cost = multiplyCounts({getNanoseconds(costs, op), repeats});
  item.resource = static_cast<int32_t>(instruction.getResource());
  item.after.push_back(0);
  item.pinned = !instruction.isRecomputable();
  for (unsigned workspace : graph.getWorkspacesOf(op))
    item.workspaces.push_back(getPlanBuffer(graph.getBuffers()[workspace]));
  addBodies(numbers[op] - 1, item);
  for (Value operand : op->getOperands())
    for (Value root = getBufferRoot(operand); root; root = getTakenRoot(root))
      if (isa<RankedTensorType>(root.getType()) && isOwn(root))
        item.inputs.push_back(valueOf(root));
  for (OpResult result : op->getResults())
    if (isa<RankedTensorType>(result.getType()))
      addResult(graph, result);
  if (Operation *start = getStart(op)) {
    item.waitsFor = numbers.lookup(start);
    bool isPinned = item.pinned || problem.ops[item.waitsFor].pinned;
    item.pinned = problem.ops[item.waitsFor].pinned = isPinned;
  }
}

/// What the bodies of an instruction need at their peaks is scratch of the instruction.
void OrderProblem::addBodies(size_t number, planning::PlanOp &item) {
  for (unsigned space = 0; space < kNumSpaces; ++space) {
    int64_t alignment;
    if (int64_t bytes = arena.getBytesOfBodies(number, static_cast<Space>(space), alignment))
      item.workspaces.push_back({bytes, alignment, static_cast<int32_t>(space)});
  }
}

/// The root of the operand of `op` that lies in `buffer`, which a scan's carried value may have had
/// before; of a sum in place the value that the buffer was made for.
static Value findOperandIn(const KernelGraph &graph, Operation *op, unsigned buffer) {
  Value root = getBufferRoot(*llvm::find_if(op->getOperands(), [&](Value operand) {
    return isa<RankedTensorType>(operand.getType()) && graph.getBufferOf(operand) == buffer;
  }));
  while (Value taken = getTakenRoot(root))
    root = taken;
  return root;
}

void OrderProblem::addResult(const KernelGraph &graph, OpResult result) {
  planning::PlanOp &maker = problem.ops[numbers.lookup(getMaker(result.getOwner()))];
  unsigned number = graph.getBufferOf(result);
  const Buffer &buffer = graph.getBuffers()[number];
  auto scan = dyn_cast<ScanOp>(result.getOwner());
  bool isCarried = scan && result.getResultNumber() < scan.getCarried().size();
  bool isTaken = getTakenRoot(result) != nullptr;
  Value home = buffer.value; // none of a variable
  bool isElsewhere = !home || (home != result && !isTaken && !isCarried);
  maker.pinned |= isElsewhere;
  maker.results.push_back(getPlanBuffer(buffer));
  if (isElsewhere || isTaken)
    maker.results.back().bytes = 0; // who reads it reads the value that has the bytes, too
  if (isCarried) {
    Value start = getBufferRoot(scan.getCarried()[result.getResultNumber()]);
    if (isOwn(start))
      maker.inPlace.push_back({static_cast<int32_t>(result.getResultNumber()), valueOf(start)});
    return;
  }
  if (!isElsewhere && !isTaken)
    for (unsigned taken : graph.getTakeableBuffers(number))
      if (Value root = findOperandIn(graph, result.getOwner(), taken); isOwn(root))
        maker.inPlace.push_back({static_cast<int32_t>(result.getResultNumber()), valueOf(root)});
}

void OrderProblem::addBlocks() {
  SmallVector<Operation *> forward;
  for (Operation *op : instructions)
    if (getPhase(op) == Phase::Forward)
      forward.push_back(op);
  SmallVector<StringRef> paths =
      llvm::map_to_vector(forward, [](Operation *op) { return getModulePath(op->getLoc()); });
  for (auto [op, number] : llvm::zip_equal(forward, numberBlocks(paths)))
    problem.ops[numbers.lookup(op)].block = number;
}

/// What the forward pass makes on the device, in bytes of its own, and the backward pass reads.
bool OrderProblem::isSwappable(const KernelGraph &graph, OpResult value) const {
  Operation *maker = value.getOwner();
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && getSpace(type) == Space::Device && getPhase(maker) == Phase::Forward &&
         !getStart(maker) && getTensorBytes(type) >= kLeastSwapped &&
         graph.getBuffers()[graph.getBufferOf(value)].kind == Buffer::Kind::Result &&
         hasBackwardUser(value);
}

void OrderProblem::addWays(const KernelGraph &graph, const CostModel &costs) {
  for (Operation *op : instructions)
    for (OpResult result : op->getResults()) {
      if (!isSwappable(graph, result))
        continue;
      int64_t bytes = getTensorBytes(result.getType());
      int64_t cost = costs.getTransferNanoseconds(bytes) * repeats;
      planning::PlanWay &way = problem.ways.emplace_back();
      way.value = valueOf(result);
      way.store = planning::PlanTransfer{static_cast<int32_t>(Resource::CopyOut), cost, {}};
      way.fetch = planning::PlanTransfer{static_cast<int32_t>(Resource::CopyIn), cost, {}};
      way.copy = getPlanBuffer(graph.getBuffers()[graph.getBufferOf(result)]);
      way.copy.space = static_cast<int32_t>(Space::Host);
      swapped.push_back(result);
    }
}

//===----------------------------------------------------------------------===//
// Rewriting
//===----------------------------------------------------------------------===//

/// `operand` as seen through the latest instances: its reshapes are made again at the builder's
/// position.
static Value followReshapes(OpBuilder &builder, Value operand, const IRMapping &latest) {
  if (!isReshape(operand.getDefiningOp()))
    return latest.lookupOrDefault(operand);
  Value source = followReshapes(builder, operand.getDefiningOp()->getOperand(0), latest);
  Operation *copy = builder.clone(*operand.getDefiningOp());
  copy->setOperand(0, source);
  return copy->getResult(0);
}

namespace {
/// Values on their way to the host and back.
class Swaps {
public:
  explicit Swaps(ArrayRef<Value> values)
      : values(values), tokens(values.size()), copies(values.size()) {}

  /// Makes the op of a transfer; what is fetched becomes the latest instance of its value.
  void apply(planning::PlanAction action, OpBuilder &builder, IRMapping &latest);

private:
  Value start(OpBuilder &builder, Value value, Space to, Phase phase) {
    auto op = TransferStartOp::create(builder, value.getLoc(), value, to);
    op.setPhase(phase);
    return op.getToken();
  }
  Value wait(OpBuilder &builder, Value token, Phase phase) {
    auto op = TransferWaitOp::create(builder, token.getLoc(), token);
    op.setPhase(phase);
    return op.getResult();
  }

  ArrayRef<Value> values;
  SmallVector<Value> tokens, copies; ///< by way
};
} // namespace

void Swaps::apply(planning::PlanAction action, OpBuilder &builder, IRMapping &latest) {
  int32_t way = action.index;
  Value value = values[way];
  switch (action.kind) {
  case planning::PlanAction::StoreStart:
    tokens[way] = start(builder, latest.lookupOrDefault(value), Space::Host, Phase::Forward);
    return;
  case planning::PlanAction::StoreWait:
    copies[way] = wait(builder, tokens[way], Phase::Forward);
    return;
  case planning::PlanAction::FetchStart:
    tokens[way] = start(builder, copies[way], Space::Device, Phase::Backward);
    return;
  case planning::PlanAction::FetchWait:
    latest.map(value, wait(builder, tokens[way], Phase::Backward));
    return;
  default:
    llvm_unreachable("no transfer");
  }
}

void OrderProblem::noteProgramOrder(ModuleOp module, ArrayRef<int32_t> order) const {
  auto isInstruction = [&](int32_t number) {
    return number > 0 && number <= static_cast<int32_t>(instructions.size());
  };
  SmallVector<int32_t> numbers = llvm::filter_to_vector(order, isInstruction);
  module->setAttr(MemoptDialect::kProgramOrderAttr,
                  DenseI32ArrayAttr::get(module.getContext(), numbers));
}

std::optional<std::vector<int32_t>> OrderProblem::getProgramOrder(ModuleOp module) const {
  auto numbers = module->getAttrOfType<DenseI32ArrayAttr>(MemoptDialect::kProgramOrderAttr);
  if (!numbers || numbers.size() != static_cast<int64_t>(instructions.size()) ||
      !problem.regions.empty())
    return std::nullopt;
  std::vector<int32_t> order(problem.ops.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin() + 1, order.end() - 1,
            [&](int32_t a, int32_t b) { return numbers[a - 1] < numbers[b - 1]; });
  return order;
}

/// By read of what the block, or a loop in it, has written: the last to write. Such a read stands
/// right behind that, all others in front.
static llvm::MapVector<Operation *, Operation *> findWriters(Block &block) {
  DenseMap<StringAttr, Operation *> last;
  llvm::MapVector<Operation *, Operation *> writers;
  for (Operation &op : block) {
    if (auto read = dyn_cast<ReadOp>(op)) {
      if (Operation *writer = last.lookup(read.getVariableAttr().getAttr()))
        writers[read] = writer;
    } else {
      op.walk([&](WriteOp write) { last[write.getVariableAttr().getAttr()] = &op; });
    }
  }
  return writers;
}

void OrderProblem::apply(ArrayRef<int32_t> order) {
  Swaps swaps(swapped);
  llvm::MapVector<Operation *, Operation *> writers = findWriters(block);
  Operation *terminator = block.getTerminator();
  OpBuilder builder(terminator);
  IRMapping latest;
  DenseMap<Operation *, SmallVector<Value>> operands;
  DenseMap<Operation *, int64_t> instances;
  SmallVector<Operation *> oldReshapes, followers;
  for (Operation &op : block) {
    if (isInstruction(&op))
      operands[&op] = llvm::to_vector(op.getOperands());
    else if (isReshape(&op))
      oldReshapes.push_back(&op);
    else if (isa<WriteOp, GradientOp, YieldOp, func::ReturnOp>(op))
      followers.push_back(&op);
  }
  auto rewire = [&](Operation *op, ArrayRef<Value> values) {
    builder.setInsertionPoint(op);
    for (auto [number, value] : llvm::enumerate(values))
      op->setOperand(number, followReshapes(builder, value, latest));
  };
  for (int32_t number : order) {
    planning::PlanAction action = planning::getAction(problem, number);
    if (action.kind != planning::PlanAction::Run) {
      builder.setInsertionPoint(terminator);
      swaps.apply(action, builder, latest);
      continue;
    }
    if (number == 0 || number > static_cast<int32_t>(instructions.size()))
      continue; // the inputs, and the end
    Operation *original = instructions[number - 1], *op = original;
    builder.setInsertionPoint(terminator);
    int64_t instance = instances[original]++;
    if (instance == 0) {
      op->moveBefore(terminator);
    } else {
      op = builder.clone(*original);
      cast<InstructionOpInterface>(op).setClone(instance);
    }
    rewire(op, operands[original]);
    for (auto [from, to] : llvm::zip(original->getResults(), op->getResults()))
      latest.map(from, to);
  }
  // What is no instruction sees the latest instances. A mark of a gradient stands where the
  // gradient is made, for its bytes may be overwritten later, and so does a write whose variable a
  // loop may read; the others stand at the end.
  auto getMakerNow = [&](Operation *op) {
    return latest.lookupOrDefault(getBufferRoot(op->getOperand(0))).getDefiningOp();
  };
  bool hasLoops = !block.getOps<RepeatOp>().empty();
  for (Operation *op : followers)
    if (isa<WriteOp>(op)) {
      Operation *maker = hasLoops ? getMakerNow(op) : nullptr;
      maker ? op->moveAfter(maker) : op->moveBefore(terminator);
    }
  for (auto [read, writer] : writers)
    read->moveAfter(writer);
  for (Operation *op : followers) {
    if (isa<GradientOp>(op)) {
      Operation *maker = getMakerNow(op);
      maker ? op->moveAfter(maker) : op->moveBefore(&block.front()); // an input's
    }
    rewire(op, llvm::to_vector(op->getOperands()));
  }
  for (Operation *op : llvm::reverse(oldReshapes))
    op->erase();
}
