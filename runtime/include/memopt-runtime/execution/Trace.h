//===- Trace.h - a timeline of instructions ---------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Records when each instruction began, in memory that is set aside before the steps, and writes the
// JSON that Perfetto and chrome://tracing read: an event for each instruction and a counter of live
// bytes for each space.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_EXECUTION_TRACE_H
#define MEMOPT_RUNTIME_EXECUTION_TRACE_H

#include "memopt-runtime/execution/Collectives.h"
#include "memopt-runtime/package/Manifest.h"
#include <cstdint>
#include <string>
#include <vector>

namespace memopt {

class Trace {
public:
  /// Room for `steps` whole steps, but for no more than maxEvents instructions; later ones are left
  /// out.
  Trace(const Manifest &manifest, int64_t steps);

  static constexpr int64_t maxEvents = 4'000'000;

  /// The instruction `index` begins now, which ends the one before it; the number of instructions
  /// ends the step.
  void beginInstruction(int64_t index);

  /// A collective that ran beside instructions, which has just been waited for.
  void addFlight(int64_t collective, Collectives::Times times);

  /// Writes all events, atomically.
  Status write(const std::string &path) const;

private:
  struct Event {
    int64_t instruction; ///< the number of instructions at the end of a step
    int64_t nanoseconds; ///< since the trace began
  };

  struct FlightEvent {
    int64_t collective, begin, end; ///< nanoseconds since the trace began
  };

  const Manifest &manifest;
  int64_t begin;
  std::vector<Event> events;
  std::vector<FlightEvent> flights;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_EXECUTION_TRACE_H
