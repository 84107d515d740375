//===- Signals.h - requests to stop, and faults -----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUN_SIGNALS_H
#define MEMOPT_RUN_SIGNALS_H

namespace memopt {

class Session;

/// From now on the first Ctrl-C (or SIGTERM, or SIGHUP) only asks to stop; a second one, of
/// whichever kind, ends the process by that signal. A call that waits is interrupted. What was
/// ignored at the start (nohup, a job in the background) stays so.
void catchInterrupts();
bool isInterrupted();

/// From now on a fault ends the process with a line that says what happened, and where. An access
/// to a guard page, a division without a result and a file that became shorter end with exit code
/// 1, a stack that is too small and an instruction that the processor lacks with 3. Any other fault
/// keeps its usual end.
void catchFaults();

/// Lets the calling thread report its faults too.
void catchFaultsOfThread();

/// Names the instruction that was running. The session must outlive all steps.
void explainFaults(const Session &session);

} // namespace memopt

#endif // MEMOPT_RUN_SIGNALS_H
