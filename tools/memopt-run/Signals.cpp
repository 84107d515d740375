//===- Signals.cpp - Ctrl-C and wild accesses -----------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Signals.h"
#include "memopt-runtime/Session.h"
#include <csignal>
#include <cstring>
#include <unistd.h>

using namespace memopt;

static volatile std::sig_atomic_t interrupted = 0;

static void onInterrupt(int) { interrupted = 1; }

void memopt::catchInterrupts() {
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_handler = onInterrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  // A write to a closed pipe is a failure of that write, not the end of a training run.
  action.sa_handler = SIG_IGN;
  action.sa_flags = 0;
  ::sigaction(SIGPIPE, &action, nullptr);
  // So is one beyond a limit on file sizes.
  ::sigaction(SIGXFSZ, &action, nullptr);
}

bool memopt::isInterrupted() { return interrupted != 0; }

/// Only calls that are safe in a signal handler.
static void printText(const char *text) { (void)!::write(STDERR_FILENO, text, std::strlen(text)); }

static void onFault(int signal, siginfo_t *facts, void *) {
  if (const Session *watched = Session::findGuarding(facts->si_addr)) {
    printText("memopt-run: error: the program left its arena");
    const std::vector<InstructionSpec> &instructions = watched->getManifest().instructions;
    int64_t running = watched->getRunningInstruction();
    if (running >= 0 && running < int64_t(instructions.size())) {
      printText(" in instruction '");
      printText(instructions[size_t(running)].name.c_str());
      printText("' of module '");
      printText(instructions[size_t(running)].module.c_str());
      printText("'");
    }
    printText("\n");
    ::_exit(1);
  }
  // Back to the usual end, which the repeated access reaches.
  ::signal(signal, SIG_DFL);
}

void memopt::explainFaults() {
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_sigaction = onFault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
  ::sigaction(SIGBUS, &action, nullptr);
}
