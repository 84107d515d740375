//===- OrderArena.cpp - the arena that an order of instructions leaves -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Memory/OrderArena.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

planning::ArenaBuffer mlir::memopt::getArenaBuffer(const Buffer &buffer) {
  planning::ArenaBuffer item;
  item.size = buffer.bytes;
  item.lower = buffer.begin;
  item.upper = buffer.end;
  item.alignment = buffer.alignment;
  item.pinnedAtBottom = buffer.kind == Buffer::Kind::Variable;
  return item;
}

//===----------------------------------------------------------------------===//
// What the problem of order does not know
//===----------------------------------------------------------------------===//

OrderArena::OrderArena(const KernelGraph &graph, Block &block, ArrayRef<Operation *> ops,
                       bool isWhole)
    : begin(0), end(graph.getExitTime()), instructions(ops.size()) {
  DenseMap<Operation *, unsigned> numbers;
  for (auto [number, op] : llvm::enumerate(ops)) {
    numbers[op] = number;
    instructions[number].numWorkspaces = graph.getWorkspacesOf(op).size();
    if (auto scan = dyn_cast<ScanOp>(op))
      instructions[number].numCarried = scan.getCarried().size();
  }
  for (const Loop &loop : graph.getLoops()) {
    int64_t time = graph.getTime(loop.op);
    if (loop.op == block.getParentOp())
      std::tie(begin, end) = std::tuple(time, loop.end);
    if (auto found = numbers.find(loop.op); found != numbers.end())
      instructions[found->second].span = loop.end - time;
  }
  addBuffers(graph, block, numbers, isWhole);
}

void OrderArena::addBuffers(const KernelGraph &graph, Block &block,
                            const DenseMap<Operation *, unsigned> &numbers, bool isWhole) {
  ArrayRef<int32_t> inPlaceOf = graph.getBuffersInPlace();
  std::vector<std::pair<planning::ArenaProblem *, int32_t>> places(graph.getBuffers().size());
  for (auto [number, buffer] : llvm::enumerate(graph.getBuffers())) {
    Operation *instruction = buffer.op ? block.findAncestorOpInBlock(*buffer.op) : nullptr;
    Value value = buffer.value; // MLIR's handles have no const accessors
    bool isInput = buffer.kind == Buffer::Kind::Input && value.getParentBlock() == &block;
    bool isThere = isWhole || (buffer.begin < end && buffer.end > begin);
    if (isInput || !isThere || (instruction && instruction == buffer.op))
      continue;
    int64_t start = instruction ? graph.getTime(instruction) : 0;
    Arenas &arenas = instruction ? instructions[numbers.lookup(instruction)].bodies : outside;
    planning::ArenaProblem &arena = arenas[static_cast<size_t>(buffer.space)];
    places[number] = {&arena, static_cast<int32_t>(arena.buffers.size())};
    planning::ArenaBuffer item = getArenaBuffer(buffer);
    item.lower -= start;
    item.upper -= start;
    if (int32_t old = inPlaceOf[number]; old >= 0 && places[old].first == &arena)
      item.inPlaceOf = places[old].second;
    arena.buffers.push_back(item);
  }
}

int64_t OrderArena::getBytesOfBodies(size_t instruction, Space space, int64_t &alignment) const {
  planning::ArenaProblem bodies = instructions[instruction].bodies[static_cast<size_t>(space)];
  alignment = 1;
  for (planning::ArenaBuffer &buffer : bodies.buffers) {
    buffer.size = llvm::alignTo(buffer.size, buffer.alignment);
    alignment = std::max(alignment, buffer.alignment);
  }
  return planning::arenaLoad(bodies);
}

//===----------------------------------------------------------------------===//
// With it
//===----------------------------------------------------------------------===//

/// The problem without what stands for bodies and surroundings.
planning::PlanProblem OrderArena::getInstructionsAlone(planning::PlanProblem problem) const {
  problem.residents.clear();
  for (auto [number, instruction] : llvm::enumerate(instructions))
    problem.ops[number + 1].workspaces.resize(instruction.numWorkspaces);
  return problem;
}

const OrderArena::Instruction *OrderArena::findInstruction(planning::PlanAction action) const {
  bool isOne = action.kind == planning::PlanAction::Run && action.index > 0 &&
               action.index <= static_cast<int32_t>(instructions.size());
  return isOne ? &instructions[action.index - 1] : nullptr;
}

static bool takesOver(const planning::ArenaProblem &byPosition, size_t heir) {
  const planning::ArenaBuffer &buffer = byPosition.buffers[heir];
  return buffer.inPlaceOf >= 0 && byPosition.buffers[buffer.inPlaceOf].upper - 1 == buffer.lower;
}

/// A scan's carried value that does not take over the bytes of its start has a copy of it, made by
/// an instruction in front of the scan (createPlannableStep).
OrderArena::Times OrderArena::getTimes(const planning::PlanProblem &problem,
                                       ArrayRef<int32_t> order,
                                       const planning::ArenaProblem &byPosition,
                                       Space space) const {
  Times times;
  int64_t now = begin;
  size_t made = 0; // the first buffer of the position
  for (auto [position, number] : llvm::enumerate(order)) {
    while (made < byPosition.buffers.size() &&
           byPosition.buffers[made].lower < static_cast<int64_t>(position))
      ++made;
    const Instruction *instruction = findInstruction(planning::getAction(problem, number));
    times.begins.push_back(now);
    size_t numCarried = instruction && space == Space::Device ? instruction->numCarried : 0;
    for (size_t carried = 0; carried < numCarried; ++carried) {
      bool isTaken = takesOver(byPosition, made + carried);
      times.carried.push_back({made + carried, isTaken ? -1 : now});
      now += !isTaken;
    }
    times.runs.push_back(now);
    now += instruction ? instruction->span : 1;
  }
  times.begins.push_back(now);
  return times;
}

/// Puts what takes over bytes and has them to itself, as carried values do, into one buffer with
/// what it takes over; the others give up their bytes at the beginning of the heir's time, before
/// any body runs.
static planning::ArenaProblem putInPlace(const planning::ArenaProblem &byPosition,
                                         std::vector<planning::ArenaBuffer> byTime,
                                         const BitVector &isOne) {
  std::vector<int32_t> place(byTime.size(), -1);
  planning::ArenaProblem problem;
  for (size_t number = 0; number < byTime.size(); ++number) {
    planning::ArenaBuffer &buffer = byTime[number];
    bool takes = takesOver(byPosition, number);
    int32_t old = buffer.inPlaceOf < 0 ? -1 : place[buffer.inPlaceOf];
    if (takes && isOne[number]) {
      problem.buffers[old].upper = buffer.upper;
      place[number] = old;
      continue;
    }
    if (takes)
      problem.buffers[old].upper = buffer.lower + 1;
    buffer.inPlaceOf = old;
    place[number] = static_cast<int32_t>(problem.buffers.size());
    problem.buffers.push_back(buffer);
  }
  return problem;
}

/// The buffers of an order with its times for positions.
static planning::ArenaProblem setTimes(const planning::ArenaProblem &byPosition,
                                       const OrderArena::Times &times) {
  std::vector<planning::ArenaBuffer> buffers = byPosition.buffers;
  for (planning::ArenaBuffer &buffer : buffers) {
    buffer.lower = times.runs[buffer.lower];
    buffer.upper = times.begins[buffer.upper];
  }
  BitVector isCarried(buffers.size());
  for (auto [number, copied] : times.carried) {
    isCarried.set(number);
    if (copied >= 0)
      buffers[number].lower = copied;
  }
  return putInPlace(byPosition, std::move(buffers), isCarried);
}

/// Adds the buffers of one more arena with its own times.
template <typename TimeOf>
static void append(planning::ArenaProblem &whole, const planning::ArenaProblem &part,
                   TimeOf timeOf) {
  auto base = static_cast<int32_t>(whole.buffers.size());
  for (planning::ArenaBuffer buffer : part.buffers) {
    buffer.lower = timeOf(buffer.lower);
    buffer.upper = timeOf(buffer.upper);
    if (buffer.inPlaceOf >= 0)
      buffer.inPlaceOf += base;
    whole.buffers.push_back(buffer);
  }
}

llvm::Expected<planning::ArenaProblem> OrderArena::build(const planning::PlanProblem &problem,
                                                         ArrayRef<int32_t> order,
                                                         Space space) const {
  auto number = static_cast<size_t>(space);
  llvm::Expected<planning::ArenaProblem> own = planning::buildArenaProblem(
      getInstructionsAlone(problem), order, static_cast<int32_t>(number));
  if (!own)
    return own.takeError();
  Times times = getTimes(problem, order, *own, space);
  int64_t later = times.runs.back() - end; // the last position is the end of the block
  planning::ArenaProblem whole;
  append(whole, outside[number], [&](int64_t time) { return time < end ? time : time + later; });
  append(whole, setTimes(*own, times), [](int64_t time) { return time; });
  for (size_t position = 0; position < order.size(); ++position)
    if (const Instruction *instruction =
            findInstruction(planning::getAction(problem, order[position])))
      append(whole, instruction->bodies[number],
             [&](int64_t time) { return times.runs[position] + time; });
  return whole;
}
