//===- ArenaProblem.cpp - checks arena problems and judges layouts -----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The validator sweeps over time with the live buffers ordered by offset. It uses nothing of the
// solver but the reading of loops.
//
//===----------------------------------------------------------------------===//

#include "ArenaModel.h"
#include "memopt/Planning/Utils/Failure.h"

#include "llvm/ADT/Twine.h"

#include <map>

using namespace memopt::planning;
using namespace memopt::planning::arena;

static llvm::Error buffersError(size_t index, const llvm::Twine &message) {
  return failure("arena buffer " + llvm::Twine(index) + ": " + message);
}

static llvm::Error checkBuffer(const ArenaProblem &problem, size_t i) {
  constexpr int64_t limit = int64_t(1) << 62, alignmentLimit = int64_t(1) << 30;
  const ArenaBuffer &buffer = problem.buffers[i];
  if (buffer.size < 0)
    return buffersError(i, "size is " + llvm::Twine(buffer.size) + ", expected at least 0");
  if (buffer.lower < -limit || buffer.lower > limit || buffer.upper < -limit ||
      buffer.upper > limit)
    return buffersError(i, "times must fit 62 bits");
  if (buffer.lower > buffer.upper)
    return buffersError(i, "lower " + llvm::Twine(buffer.lower) + " is above upper " +
                               llvm::Twine(buffer.upper));
  if (buffer.alignment < 1 || buffer.alignment > alignmentLimit)
    return buffersError(i,
                        "alignment is " + llvm::Twine(buffer.alignment) + ", expected 1 to 2^30");
  if (buffer.fixedOffset < -1 || buffer.fixedOffset > limit)
    return buffersError(i, "fixed offset is " + llvm::Twine(buffer.fixedOffset) +
                               ", expected 0 to 2^62, or -1 for none");
  if (buffer.fixedOffset > 0 && buffer.fixedOffset % buffer.alignment)
    return buffersError(i, "fixed offset " + llvm::Twine(buffer.fixedOffset) +
                               " is no multiple of its alignment " + llvm::Twine(buffer.alignment));
  int64_t from = buffer.inPlaceOf, count = problem.buffers.size();
  if (from < -1 || from >= count || from == int64_t(i))
    return buffersError(i, "in place of buffer " + llvm::Twine(from) + ", expected another of " +
                               llvm::Twine(count) + " buffers, or -1 for none");
  return llvm::Error::success();
}

/// Fixed buffers that live at once must not share a byte.
static llvm::Error checkFixed(const ArenaProblem &problem) {
  ArenaProblem fixed;
  ArenaSolution layout;
  std::vector<size_t> original;
  auto ranges = effectiveRanges(problem);
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    if (problem.buffers[i].fixedOffset < 0)
      continue;
    ArenaBuffer buffer = problem.buffers[i];
    std::tie(buffer.lower, buffer.upper) = ranges[i];
    buffer.inPlaceOf = -1;
    buffer.pinnedAtBottom = false;
    layout.offsets.push_back(buffer.fixedOffset);
    if (buffer.size && buffer.lower < buffer.upper)
      layout.height = std::max(layout.height, buffer.fixedOffset + buffer.size);
    fixed.buffers.push_back(buffer);
    original.push_back(i);
  }
  if (llvm::Error error = verifyArena(fixed, layout)) {
    llvm::consumeError(std::move(error));
    return failure("arena buffers with fixed offsets share bytes");
  }
  return llvm::Error::success();
}

llvm::Error memopt::planning::checkArena(const ArenaProblem &problem) {
  constexpr int64_t limit = int64_t(1) << 62;
  if (problem.buffers.size() > size_t(1) << 27)
    return failure("arena: more than 2^27 buffers");
  std::vector<int32_t> heirs(problem.buffers.size(), -1);
  int64_t total = 0;
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    if (llvm::Error error = checkBuffer(problem, i))
      return error;
    const ArenaBuffer &buffer = problem.buffers[i];
    int64_t padded = 0;
    if (__builtin_add_overflow(buffer.size, buffer.alignment, &padded) ||
        __builtin_add_overflow(total, padded, &total) || total > limit ||
        (buffer.fixedOffset > 0 && buffer.fixedOffset > limit - buffer.size))
      return buffersError(i, "the bytes of all buffers up to here do not fit 62 bits");
    if (buffer.inPlaceOf < 0)
      continue;
    int32_t &heir = heirs[buffer.inPlaceOf];
    if (heir >= 0)
      return buffersError(i, "in place of buffer " + llvm::Twine(buffer.inPlaceOf) +
                                 ", whose bytes buffer " + llvm::Twine(heir) + " may take already");
    heir = i;
  }
  for (const ArenaLoop &loop : problem.loops)
    if (loop.lower >= loop.upper || loop.lower < -limit || loop.upper > limit)
      return failure("arena loop [" + llvm::Twine(loop.lower) + ", " + llvm::Twine(loop.upper) +
                     ") is empty or too large");
  return checkFixed(problem);
}

namespace {

/// The bytes in use at the time that the sweep has reached.
class LiveBytes {
public:
  explicit LiveBytes(const ArenaProblem &problem, llvm::ArrayRef<int64_t> offsets)
      : problem(problem), offsets(offsets) {}

  /// The buffer that stands in the way of [offset, offset + size), or -1.
  int64_t blocker(int64_t offset, int64_t size) const {
    auto after = live.lower_bound(offset);
    if (after != live.end() && after->first < offset + size)
      return after->second.buffer;
    if (after != live.begin() && std::prev(after)->second.end > offset)
      return std::prev(after)->second.buffer;
    return -1;
  }
  void add(size_t i) { live[offsets[i]] = {offsets[i] + problem.buffers[i].size, int64_t(i)}; }
  void remove(size_t i) {
    auto at = live.find(offsets[i]);
    if (at == live.end())
      return;
    if (at->second.buffer == int64_t(i))
      live.erase(at);
    else // an heir in place holds it since the step before
      at->second.end = offsets[i] + problem.buffers[at->second.buffer].size;
  }
  /// Hands the bytes at its offset to the heir `i`; until the former owner ends, the larger of both
  /// is taken.
  void inherit(size_t i) {
    Range &range = live[offsets[i]];
    range.end = std::max(range.end, offsets[i] + problem.buffers[i].size);
    range.buffer = i;
  }
  bool holds(size_t i) const {
    auto at = live.find(offsets[i]);
    return at != live.end() && at->second.buffer == int64_t(i);
  }

private:
  struct Range {
    int64_t end, buffer;
  };
  const ArenaProblem &problem;
  llvm::ArrayRef<int64_t> offsets;
  std::map<int64_t, Range> live; ///< by offset
};

struct Event {
  int64_t time;
  int kind; ///< deaths, births, births in place: in this order at one time
  size_t buffer;
  bool operator<(const Event &other) const {
    return std::tie(time, kind, buffer) < std::tie(other.time, other.kind, other.buffer);
  }
};

} // namespace

static llvm::Error verifyEach(const ArenaProblem &problem, const ArenaSolution &solution,
                              llvm::ArrayRef<std::pair<int64_t, int64_t>> ranges) {
  int64_t height = 0;
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const ArenaBuffer &buffer = problem.buffers[i];
    int64_t offset = solution.offsets[i];
    if (offset < 0 || offset > std::numeric_limits<int64_t>::max() - buffer.size)
      return buffersError(i, "offset is " + llvm::Twine(offset));
    if (!buffer.size || ranges[i].first >= ranges[i].second)
      continue;
    if (offset % buffer.alignment)
      return buffersError(i, "offset " + llvm::Twine(offset) + " is no multiple of " +
                                 llvm::Twine(buffer.alignment));
    if (buffer.fixedOffset >= 0 && offset != buffer.fixedOffset)
      return buffersError(i, "moved from its fixed offset " + llvm::Twine(buffer.fixedOffset) +
                                 " to " + llvm::Twine(offset));
    height = std::max(height, offset + buffer.size);
  }
  if (height != solution.height)
    return failure("arena height is " + llvm::Twine(height) + ", the layout says " +
                   llvm::Twine(solution.height));
  if (solution.lowerBound > height)
    return failure("arena height " + llvm::Twine(height) + " is below its lower bound " +
                   llvm::Twine(solution.lowerBound));
  return llvm::Error::success();
}

llvm::Error memopt::planning::verifyArena(const ArenaProblem &problem,
                                          const ArenaSolution &solution) {
  if (solution.offsets.size() != problem.buffers.size())
    return failure("arena layout has " + llvm::Twine(solution.offsets.size()) + " offsets for " +
                   llvm::Twine(problem.buffers.size()) + " buffers");
  auto ranges = effectiveRanges(problem);
  if (llvm::Error error = verifyEach(problem, solution, ranges))
    return error;
  std::vector<Event> events;
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    auto [lower, upper] = ranges[i];
    if (!problem.buffers[i].size || lower >= upper)
      continue;
    int32_t from = problem.buffers[i].inPlaceOf;
    bool inPlace = from >= 0 && size_t(from) < ranges.size() && ranges[from].second - 1 == lower &&
                   ranges[from].first < lower && solution.offsets[from] == solution.offsets[i] &&
                   problem.buffers[from].fixedOffset < 0 && problem.buffers[i].fixedOffset < 0 &&
                   !problem.buffers[from].pinnedAtBottom && !problem.buffers[i].pinnedAtBottom;
    events.push_back({lower, inPlace ? 2 : 1, i});
    events.push_back({upper, 0, i});
  }
  llvm::sort(events);
  LiveBytes live(problem, solution.offsets);
  for (const Event &event : events) {
    size_t i = event.buffer;
    if (event.kind == 0) {
      live.remove(i);
      continue;
    }
    int64_t offset = solution.offsets[i], size = problem.buffers[i].size, blocker = -1;
    if (event.kind == 1) {
      blocker = live.blocker(offset, size);
    } else {
      // Only what reaches beyond the inherited bytes can be in somebody's way.
      size_t from = problem.buffers[i].inPlaceOf;
      if (!live.holds(from))
        blocker = live.blocker(offset, size);
      else if (size > problem.buffers[from].size)
        blocker =
            live.blocker(offset + problem.buffers[from].size, size - problem.buffers[from].size);
      if (blocker < 0) {
        live.inherit(i);
        continue;
      }
    }
    if (blocker >= 0)
      return failure("arena buffers " + llvm::Twine(blocker) + " and " + llvm::Twine(i) +
                     " share bytes at time " + llvm::Twine(event.time));
    live.add(i);
  }
  return llvm::Error::success();
}
