//===- Flight.h - what is on its way beside kernels ----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_EXECUTION_FLIGHT_H
#define MEMOPT_RUNTIME_EXECUTION_FLIGHT_H

#include "memopt-runtime/device/Device.h"
#include <memory>
#include <utility>

namespace memopt {

/// A transfer or a collective, from its start to its wait.
struct Flight {
  std::unique_ptr<Event> begin, end;
  bool isInFlight = false;
  bool isJoined = false; ///< in flight for the program, and yet waited for

  /// Lets the kernels' stream wait for the end; without one the host waits.
  Status finish(Stream *compute) {
    isInFlight = false;
    if (std::exchange(isJoined, false))
      return Status::ok();
    return compute ? compute->waitFor(*end) : end->synchronize();
  }

  /// The same here, and not where the program will wait.
  Status join(Stream *compute) {
    if (!isInFlight || isJoined)
      return Status::ok();
    MEMOPT_RETURN_IF_ERROR(finish(compute));
    isInFlight = isJoined = true;
    return Status::ok();
  }
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_EXECUTION_FLIGHT_H
