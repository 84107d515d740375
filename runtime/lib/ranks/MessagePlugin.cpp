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
#include <dlfcn.h>

using namespace memopt;

static std::string findPlugin() {
  std::string tools = getFolder(getRealPath("/proc/self/exe"));
  std::string beside = tools + "/libmemopt-mpi.so";
  return fileExists(beside) ? beside : getFolder(tools) + "/lib/libmemopt-mpi.so";
}

StatusOr<std::unique_ptr<Messages>> memopt::openMessages(const std::string &plugin) {
  std::string path = plugin.empty() ? findPlugin() : plugin;
  void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    const char *reason = ::dlerror();
    return environmentError("ranks over MPI need a library that is built against it (" +
                            std::string(reason ? reason : "no reason given") +
                            "); build memopt where MPI is installed, or name the library by the "
                            "environment variable MEMOPT_MPI_PLUGIN");
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
