//===- Signals.cpp - requests to stop, and faults -------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A handler may only call what is safe in one (signal-safety(7)): nothing here allocates or locks
// once a fault has happened. Handlers of faults run on a stack of their own, one a thread, for the
// usual one may be what ran out.
//
//===----------------------------------------------------------------------===//

#include "memopt-run/Signals.h"
#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/session/Session.h"
#include "memopt-runtime/threads/ThreadPool.h"
#include <csignal>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace memopt;

//===----------------------------------------------------------------------===//
// Requests to stop
//===----------------------------------------------------------------------===//

static volatile std::sig_atomic_t interrupted = 0;

/// The first one is a request; any after it ends the process as if nobody had listened.
static void onInterrupt(int signal) {
  if (!interrupted) {
    interrupted = signal;
    return;
  }
  ::signal(signal, SIG_DFL);
  ::raise(signal); // when the handler has returned
}

void memopt::catchInterrupts() {
  struct sigaction action, old;
  std::memset(&action, 0, sizeof action);
  action.sa_handler = onInterrupt;
  for (int signal : {SIGINT, SIGTERM, SIGHUP})
    if (::sigaction(signal, nullptr, &old) == 0 && old.sa_handler != SIG_IGN)
      ::sigaction(signal, &action, nullptr);
  // A write to a closed pipe, or beyond a limit on file sizes, is a failure of that write, not the
  // end of a training run.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
}

bool memopt::isInterrupted() { return interrupted != 0; }

void memopt::endByInterrupt() {
  if (int signal = interrupted) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
}

//===----------------------------------------------------------------------===//
// Faults
//===----------------------------------------------------------------------===//

static const Session *watched = nullptr;

/// The end of this thread's stack; an access just below ran off it.
static thread_local const char *stackEnd = nullptr;
/// How far below: no function here has a larger frame.
static constexpr ptrdiff_t largestFrame = 16 << 20;

/// For whole lines: threads may fault at once.
static char line[4096];

static void appendText(const char *text) {
  size_t length = std::strlen(line);
  std::strncat(line, text, sizeof line - 1 - length);
}

static void appendInstruction(const Session *session) {
  if (!session)
    return;
  const std::vector<InstructionSpec> &instructions = session->getManifest().instructions;
  int64_t running = session->getRunningInstruction();
  if (running < 0 || running >= int64_t(instructions.size()))
    return;
  appendText(" in instruction '");
  appendText(instructions[size_t(running)].name.c_str());
  appendText("' of module '");
  appendText(instructions[size_t(running)].module.c_str());
  appendText("'");
}

/// Says what happened; the exit code, or 0 where the fault keeps its usual end.
static int describeFault(int signal, const siginfo_t &facts) {
  auto *address = static_cast<const char *>(facts.si_addr);
  bool isAccess = signal == SIGSEGV || signal == SIGBUS;
  if (isAccess && Session::findGuarding(address)) {
    appendText("the program left its arena");
    return 1;
  }
  if (signal == SIGFPE) {
    appendText("an integer was divided by zero, or the quotient does not fit");
    return 1;
  }
  if (signal == SIGILL) {
    appendText("the package uses what this processor lacks; compile the model here: the program "
               "stopped");
    return 3;
  }
  if (isAccess && stackEnd && address < stackEnd && stackEnd - address < largestFrame) {
    appendText("a thread's stack is too small (see ulimit -s and OMP_STACKSIZE)");
    return 3;
  }
  if (signal == SIGBUS)
    if (const char *file = findMappedFile(address)) {
      appendText("reading '");
      appendText(file);
      appendText("': it became shorter meanwhile, or its disk failed");
      return 1;
    }
  appendText(signal == SIGBUS ? "bus error" : "segmentation fault");
  return 0;
}

static void onFault(int signal, siginfo_t *facts, void *) {
  static volatile std::sig_atomic_t isReported = 0;
  if (__atomic_exchange_n(&isReported, 1, __ATOMIC_RELAXED))
    for (;;)
      ::pause(); // another thread is about to end the process
  line[0] = 0;
  appendText("memopt-run: error: ");
  int code = describeFault(signal, *facts);
  const Session *guarding = Session::findGuarding(facts->si_addr);
  appendInstruction(guarding ? guarding : watched);
  appendText("\n");
  (void)!::write(STDERR_FILENO, line, std::strlen(line));
  if (code)
    ::_exit(code);
  ::signal(signal, SIG_DFL); // the repeated access ends the process
}

/// Gives the calling thread a stack for its handlers, for as long as the process lives.
void memopt::catchFaultsOfThread() {
  constexpr size_t bytes = 64 << 10;
  pthread_attr_t attributes;
  void *low = nullptr;
  size_t size = 0;
  if (stackEnd || ::pthread_getattr_np(::pthread_self(), &attributes) != 0)
    return;
  ::pthread_attr_getstack(&attributes, &low, &size);
  ::pthread_attr_destroy(&attributes);
  void *memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = bytes;
  if (memory != MAP_FAILED && ::sigaltstack(&stack, nullptr) == 0)
    stackEnd = static_cast<const char *>(low);
}

void memopt::catchFaults() {
  catchFaultsOfThread();
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_sigaction = onFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL})
    ::sigaction(signal, &action, nullptr);
}

void memopt::explainFaults(const Session &session) { watched = &session; }
