//===- Package.cpp - a compiled program, loaded ---------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/Package.h"
#include "memopt-runtime/Files.h"
#include "memopt-runtime/ThreadPool.h"
#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>

using namespace memopt;

namespace {
struct FreeString {
  void operator()(char *text) const { std::free(text); }
};
} // namespace

/// dlerror's text; there is one after a failure.
static std::string takeLoaderError() {
  const char *message = ::dlerror();
  return message ? message : "no reason given";
}

Status Package::loadProgram() {
  // An absolute path: the loader would search its own folders for a name without a slash.
  std::string path = folder + "/program.so";
  std::unique_ptr<char, FreeString> absolute(::realpath(path.c_str(), nullptr));
  if (!absolute)
    return badInput("the package has no 'program.so'");
  program = ::dlopen(absolute.get(), RTLD_NOW | RTLD_LOCAL);
  if (!program)
    return badInput("'program.so' does not load: " + takeLoaderError());
  void *symbols[] = {
#define MEMOPT_ENTRY_POINT(CamelName, symbol) ::dlsym(program, symbol),
#include "memopt-runtime/ProgramEntryPoints.def"
  };
  static const char *const names[] = {
#define MEMOPT_ENTRY_POINT(CamelName, symbol) symbol,
#include "memopt-runtime/ProgramEntryPoints.def"
  };
  for (size_t i = 0; i < std::size(symbols); ++i)
    if (!symbols[i])
      return badInput("'program.so' does not export " + quote(names[i]));
  enum {
#define MEMOPT_ENTRY_POINT(CamelName, symbol) CamelName,
#include "memopt-runtime/ProgramEntryPoints.def"
  };
  uint32_t version = *static_cast<const uint32_t *>(symbols[Version]);
  if (version != MEMOPT_PROGRAM_INTERFACE_VERSION)
    return badInput("'program.so' was compiled for interface version " + std::to_string(version) +
                    ", this runtime offers version " +
                    std::to_string(MEMOPT_PROGRAM_INTERFACE_VERSION));
  bindEntry = reinterpret_cast<decltype(bindEntry)>(symbols[Bind]);
  stepEntry = reinterpret_cast<decltype(stepEntry)>(symbols[Step]);
  return Status::ok();
}

static StatusOr<PreparedCall> prepareCall(const JsonView &view, const LibraryCallFactory &create,
                                          int threads) {
  PreparedCall prepared{nullptr, 0, 0};
  if (view.has("workspace_bytes")) {
    MEMOPT_ASSIGN_OR_RETURN(prepared.workspaceBytes, view.getInteger("workspace_bytes"));
  }
  if (prepared.workspaceBytes != 0) {
    MEMOPT_ASSIGN_OR_RETURN(prepared.bufferCount, view.getInteger("buffers"));
    if (prepared.workspaceBytes < 0 || prepared.bufferCount < 0)
      return view.fail("has a negative size");
  }
  StatusOr<std::unique_ptr<LibraryCall>> call = create(view.raw(), threads);
  if (!call.isOk())
    return call.takeStatus().withContext(view.getPath());
  prepared.call = *std::move(call);
  if (prepared.call->workspaceBytes() > prepared.workspaceBytes)
    return badInput(view.getPath() + " was planned with a workspace of " +
                    std::to_string(prepared.workspaceBytes) + " bytes, but needs " +
                    std::to_string(prepared.call->workspaceBytes()) +
                    " on this machine; compile the model here");
  return prepared;
}

Status Package::prepareCalls(const LibraryCallFactory &createCall) {
  // What the process may use (OMP_NUM_THREADS, its processors), before we ask for what was planned.
  static const int allowed = getThreadCount();
  int planned = int(manifest.threads);
  setThreadCount(planned);
  calls.reserve(manifest.libraryCalls.size());
  for (size_t i = 0; i < manifest.libraryCalls.size(); ++i) {
    JsonView view(manifest.libraryCalls[i], "library_calls[" + std::to_string(i) + "]");
    MEMOPT_ASSIGN_OR_RETURN(PreparedCall call, prepareCall(view, createCall, planned));
    calls.push_back(std::move(call));
  }
  setThreadCount(std::min(planned, allowed));
  // The pool's threads and their stacks come with the first loop: not during a step.
  parallelFor(getThreadCount(), 1, [](int64_t, int64_t) {});
  return Status::ok();
}

StatusOr<std::unique_ptr<Package>> Package::load(const std::string &folder,
                                                 const LibraryCallFactory &createCall) {
  auto loadAll = [&](Package &package) -> Status {
    if (!isFolder(folder))
      return badInput("not a folder; a package is a folder NAME.memopt written by memopt-compile");
    MEMOPT_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(folder + "/manifest.json"));
    StatusOr<Manifest> manifest = parseManifest(file.text());
    if (!manifest.isOk())
      return manifest.takeStatus().withContext("'manifest.json'");
    package.manifest = *std::move(manifest);
    MEMOPT_RETURN_IF_ERROR(package.loadProgram());
    return package.prepareCalls(createCall);
  };
  std::unique_ptr<Package> package(new Package());
  package->folder = folder;
  if (Status status = loadAll(*package); !status.isOk())
    return status.withContext("package " + quote(folder));
  return package;
}

Package::~Package() {
  calls.clear();
  if (program)
    ::dlclose(program);
}
