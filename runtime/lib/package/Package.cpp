//===- Package.cpp - a compiled program, loaded ---------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/package/Package.h"
#include "memopt-runtime/base/Files.h"
#include <cstdlib>
#include <dlfcn.h>

using namespace memopt;

/// Far above what a program of many thousand instructions needs.
static constexpr size_t maxManifestBytes = size_t(256) << 20;

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
#include "memopt-runtime/interface/ProgramEntryPoints.def"
  };
  static const char *const names[] = {
#define MEMOPT_ENTRY_POINT(CamelName, symbol) symbol,
#include "memopt-runtime/interface/ProgramEntryPoints.def"
  };
  for (size_t i = 0; i < std::size(symbols); ++i)
    if (!symbols[i])
      return badInput("'program.so' does not export " + quote(names[i]));
  enum {
#define MEMOPT_ENTRY_POINT(CamelName, symbol) CamelName,
#include "memopt-runtime/interface/ProgramEntryPoints.def"
  };
  uint32_t version = *static_cast<const uint32_t *>(symbols[Version]);
  if (version != MEMOPT_PROGRAM_INTERFACE_VERSION)
    return badInput("'program.so' was compiled for interface version " + std::to_string(version) +
                    ", this runtime offers version " +
                    std::to_string(MEMOPT_PROGRAM_INTERFACE_VERSION));
  stepEntry = reinterpret_cast<decltype(stepEntry)>(symbols[Step]);
  return Status::ok();
}

StatusOr<std::shared_ptr<const Package>> Package::load(const std::string &folder) {
  auto loadAll = [&](Package &package) -> Status {
    if (!isFolder(folder))
      return badInput("not a folder; a package is a folder NAME.memopt written by memopt-compile");
    MEMOPT_ASSIGN_OR_RETURN(package.manifestText,
                            readFile(folder + "/manifest.json", maxManifestBytes));
    StatusOr<Manifest> manifest = parseManifest(package.manifestText);
    if (!manifest.isOk())
      return manifest.takeStatus().withContext("'manifest.json'");
    package.manifest = *std::move(manifest);
    return package.loadProgram();
  };
  std::shared_ptr<Package> package(new Package());
  package->folder = folder;
  if (Status status = loadAll(*package); !status.isOk())
    return status.withContext("package " + quote(folder));
  return std::shared_ptr<const Package>(std::move(package));
}

Package::~Package() {
  if (program)
    ::dlclose(program);
}
