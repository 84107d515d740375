//===- memopt-compile.cpp - training graph in, package out -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PackageCompilation.h"

#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/threads/ThreadPool.h"
#include "memopt/Pipelines/Pipelines.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/ThreadPool.h"
#include "llvm/Support/raw_ostream.h"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/prctl.h>
#include <unistd.h>

#ifdef MEMOPT_TEST_DIALECT
#include "TestDialect.h"
#endif

using namespace mlir;
using namespace ::memopt::tool;

using ::memopt::StatusCode;

//===----------------------------------------------------------------------===//
// The process
//===----------------------------------------------------------------------===//

/// Ends the process with a line; only what is safe in a signal handler.
[[noreturn]] static void leave(std::initializer_list<const char *> texts, StatusCode code) {
  (void)!::write(STDERR_FILENO, "memopt-compile: error: ", 23);
  for (const char *text : texts)
    (void)!::write(STDERR_FILENO, text, std::strlen(text));
  (void)!::write(STDERR_FILENO, "\n", 1);
  ::_exit(static_cast<int>(code));
}

static void onBusError(int signal, siginfo_t *facts, void *) {
  if (const char *file = ::memopt::findMappedFile(facts->si_addr))
    leave({"reading '", file, "': it became shorter meanwhile, or its disk failed"},
          StatusCode::BadInput);
  ::signal(signal, SIG_DFL); // the repeated access ends the process
}

/// MEMOPT_PARENT=PROCESS: who has started this process wants it to end with it, even when it is
/// killed.
static void endWithParent() {
  const char *parent = std::getenv("MEMOPT_PARENT");
  if (!parent)
    return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != std::atoi(parent))
    ::_exit(static_cast<int>(StatusCode::Environment)); // it died before the line above
  ::unsetenv("MEMOPT_PARENT");                          // it is meant for this process alone
}

/// What the machine may refuse ends with a message and exit code 3, not with a signal.
static void prepareProcess() {
  endWithParent();
  auto onNoMemory = [] { leave({"this machine is out of memory"}, StatusCode::Environment); };
  std::set_new_handler(onNoMemory);
  llvm::install_bad_alloc_error_handler(
      [](void *, const char *, bool) {
        leave({"this machine is out of memory"}, StatusCode::Environment);
      },
      nullptr);
  ::signal(SIGXFSZ, SIG_IGN); // a file beyond the limit is a failed write
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_sigaction = onBusError;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

/// As many threads as asked for, or as the system gives: passes and code generation each have some.
static int countThreads(int wanted) {
  if (wanted == 0)
    wanted = ::memopt::countProcessors();
  return wanted == 1 ? 1 : std::max(1, ::memopt::countStartableThreads(2 * wanted) / 2);
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  prepareProcess();
  DialectRegistry registry;
  mlir::memopt::registerMemoptDialects(registry);
#ifdef MEMOPT_TEST_DIALECT
  memopt_test::registerTestDialect(registry);
#endif
  llvm::Expected<CompileRequest> request = parseRequest(argc, argv);
  if (!request) {
    llvm::errs() << "memopt-compile: error: " << llvm::toString(request.takeError()) << "\n";
    return static_cast<int>(StatusCode::BadInput);
  }
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  CompileOptions *options = request->single.get();
  int threads =
      countThreads((options ? options : request->programs[0].options.get())->compilerThreads);
  for (ProgramRequest &program : request->programs)
    program.options->compilerThreads = threads;
  if (options)
    options->compilerThreads = threads;
  std::unique_ptr<llvm::ThreadPoolInterface> pool;
  if (threads != 1) {
    pool = std::make_unique<llvm::DefaultThreadPool>(llvm::hardware_concurrency(threads));
    context.setThreadPool(*pool);
  }
  // Messages go to people: they name the place, and leave out the text of a whole module.
  context.printOpOnDiagnostic(false);
  context.loadAllAvailableDialects();
  if (!options)
    return PackageCompilation(context, *request).run();
  Compilation compilation(context, *options);
  return options->isCalibration ? compilation.calibrate(argv[0]) : compilation.run();
}
