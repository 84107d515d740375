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

} // namespace memopt

#endif // MEMOPT_RUNTIME_BASE_CLOCK_H
