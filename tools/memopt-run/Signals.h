//===- Signals.h - Ctrl-C and wild accesses ---------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUN_SIGNALS_H
#define MEMOPT_RUN_SIGNALS_H

namespace memopt {

/// From now on the first Ctrl-C (or SIGTERM) only asks to stop; a second one ends the process at
/// once.
void catchInterrupts();
bool isInterrupted();

/// From now on an access to a guard page of a session's arenas ends the process with exit code 1
/// and a line that names the instruction. Any other fault keeps its usual end.
void explainFaults();

} // namespace memopt

#endif // MEMOPT_RUN_SIGNALS_H
