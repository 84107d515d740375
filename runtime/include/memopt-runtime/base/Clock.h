//===- Clock.h - the time that waits are measured by ----------------- -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_BASE_CLOCK_H
#define MEMOPT_RUNTIME_BASE_CLOCK_H

#include <cstdint>

namespace memopt {

/// Nanoseconds of the steady clock.
int64_t getTime();

/// How long somebody has waited who looks again and again. Between two looks a tenth of a second
/// counts at most: the clock goes on while a job is suspended as a whole (Ctrl-Z, a batch system, a
/// paused container), and nobody was late then.
class Waiting {
public:
  /// Looks, and says the seconds up to now. To be called several times in a tenth of a second.
  double getSeconds();

private:
  int64_t last = getTime(), counted = 0;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_BASE_CLOCK_H
