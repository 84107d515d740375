//===- MessagePlugin.cpp - the transport between hosts, loaded ------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loaded where ranks need it and never unloaded: an MPI leaves threads and handlers behind. Its
// names are visible to what is loaded later, for an MPI loads parts of its own, which use them.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/ranks/MessageRanks.h"
#include <cstdlib>
#include <dlfcn.h>
#include <link.h>

using namespace memopt;

namespace {
struct PluginSpec {
  const char *name, *file, *variable, *word;
};
} // namespace

static PluginSpec getSpec(Transport transport) {
  if (transport == Transport::Mpi)
    return {"MPI", "libmemopt-mpi.so", "MEMOPT_MPI_PLUGIN", "mpi"};
  return {"UCX", "libmemopt-ucx.so", "MEMOPT_UCX_PLUGIN", "ucx"};
}

/// The file of this code: a tool's, or the library of other languages.
static std::string getOwnFile() {
  Dl_info facts{};
  link_map *map = nullptr;
  int found = ::dladdr1(reinterpret_cast<const void *>(&getOwnFile), &facts,
                        reinterpret_cast<void **>(&map), RTLD_DL_LINKMAP);
  // A process's own program has no name there.
  return getRealPath(found && map && *map->l_name ? map->l_name : "/proc/self/exe");
}

static std::string findPlugin(const PluginSpec &spec) {
  if (const char *given = std::getenv(spec.variable); given && *given)
    return given;
  std::string folder = getFolder(getOwnFile()), beside = folder + "/" + spec.file;
  return fileExists(beside) ? beside : getFolder(folder) + "/lib/" + spec.file;
}

/// How to come by a plugin: an installation has its source and a script.
static std::string explainBuilding(const PluginSpec &spec) {
  constexpr const char *script = "memopt/plugins/build.sh";
  std::string folder = getFolder(getOwnFile());
  for (const std::string &libraries : {folder, getFolder(folder) + "/lib"})
    if (std::string path = libraries + "/" + script; fileExists(path))
      return "build it by 'sh " + path + " " + spec.word + "' where " + spec.name + " is installed";
  return "build memopt where " + std::string(spec.name) + " is installed";
}

/// UCX looks at these when it is loaded: what fails we say, and faults are ours. What the user has
/// said stays.
static void keepQuiet() {
  ::setenv("UCX_LOG_LEVEL", "fatal", /*overwrite=*/0);
  ::setenv("UCX_HANDLE_ERRORS", "none", /*overwrite=*/0);
  ::setenv("UCX_WARN_UNUSED_ENV_VARS", "n", /*overwrite=*/0);
}

StatusOr<std::unique_ptr<Messages>> memopt::openMessages(Transport transport) {
  PluginSpec spec = getSpec(transport);
  std::string path = findPlugin(spec);
  if (transport == Transport::Ucx)
    keepQuiet();
  void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    const char *reason = ::dlerror();
    return environmentError("ranks over " + std::string(spec.name) +
                            " need a library that is built against it (" +
                            (reason ? reason : "no reason given") + "); " + explainBuilding(spec) +
                            ", or name the library by the environment variable " + spec.variable);
  }
  auto open = reinterpret_cast<MessagesFactory>(::dlsym(library, messagesFactory));
  if (!open)
    return environmentError(quote(path) + " has no function " + messagesFactory);
  Status failure = environmentError(quote(path) + " is of another version than " +
                                    std::to_string(messagesVersion) + "; build it again");
  std::unique_ptr<Messages> messages(open(messagesVersion, &failure));
  if (!messages)
    return failure;
  return messages;
}
