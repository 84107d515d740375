//===- Package.cpp - a compiled program, loaded ---------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/package/Package.h"
#include <algorithm>
#include <atomic>
#include <cstring>
#include <dlfcn.h>

using namespace memopt;

/// What a device's image was assembled from.
static constexpr const char *sourceFile = "kernels.ptx";

//===----------------------------------------------------------------------===//
// The program
//===----------------------------------------------------------------------===//

/// A path of an open file that no other file has had in this process. The loader knows programs by
/// their paths: it would take a new file at an old path for what it has loaded before, and numbers
/// of descriptors come again. So the path has a number in it, in ways to write a slash.
static std::string getOpenPath(const InputFile &file) {
  static std::atomic<uint64_t> count{0};
  std::string path = "/proc/self/fd";
  for (uint64_t number = ++count; number; number /= 2)
    path += number % 2 ? "/." : "/";
  return path + "/" + std::to_string(file.getDescriptor().get());
}

static std::string replaceAll(std::string text, const std::string &what, const std::string &with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

static Status explainLoader(const OpenFolder &folder, const std::string &path) {
  const char *message = ::dlerror(); // there is one after a failure
  std::string reason = message ? message : "no reason given";
  if (std::string text = explainNoExec(folder.getPath()); !text.empty())
    return environmentError("'program.so' does not load: " + text);
  if (!fileExists("/proc/self/fd"))
    return environmentError("'program.so' does not load: it is opened by way of /proc, which is "
                            "not mounted here");
  return badInput("'program.so' does not load: " +
                  replaceAll(reason, path, folder.getPath() + "/program.so"));
}

PackageCode::~PackageCode() {
  if (program)
    ::dlclose(program);
}

Status Package::loadCode(const OpenFolder &opened, size_t number) {
  code = std::make_shared<PackageCode>();
  if (!manifest.target.image.empty()) {
    MEMOPT_ASSIGN_OR_RETURN(code->image, opened.openFile(manifest.target.image));
    if (opened.has(sourceFile)) {
      MEMOPT_ASSIGN_OR_RETURN(code->source, opened.openFile(sourceFile));
    }
  }
  std::string name = getProgramFile(number, programFile);
  if (!opened.has(name))
    return badInput("the package has no " + quote(name));
  MEMOPT_ASSIGN_OR_RETURN(code->programFile, opened.openFile(name));
  std::string path = getOpenPath(code->programFile);
  code->program = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  return code->program ? Status::ok() : explainLoader(opened, path);
}

/// Of the program with this number in its code.
Status Package::findStep(size_t number) {
  enum {
#define MEMOPT_ENTRY_POINT(CamelName, symbol) CamelName,
#include "memopt-runtime/interface/ProgramEntryPoints.def"
  };
  std::string names[] = {
#define MEMOPT_ENTRY_POINT(CamelName, symbol) symbol,
#include "memopt-runtime/interface/ProgramEntryPoints.def"
  };
  names[Step] += getStepSuffix(number);
  void *symbols[std::size(names)];
  for (size_t i = 0; i < std::size(names); ++i)
    if (symbols[i] = ::dlsym(code->program, names[i].c_str()); !symbols[i])
      return badInput("'program.so' does not export " + quote(names[i]));
  uint32_t version = *static_cast<const uint32_t *>(symbols[Version]);
  if (version < MEMOPT_PROGRAM_INTERFACE_OLDEST || version > MEMOPT_PROGRAM_INTERFACE_VERSION)
    return badInput("'program.so' was compiled for interface version " + std::to_string(version) +
                    ", this runtime offers versions " +
                    std::to_string(MEMOPT_PROGRAM_INTERFACE_OLDEST) + " to " +
                    std::to_string(MEMOPT_PROGRAM_INTERFACE_VERSION));
  stepEntry = reinterpret_cast<decltype(stepEntry)>(symbols[Step]);
  return checkDigest();
}

//===----------------------------------------------------------------------===//
// What belongs together
//===----------------------------------------------------------------------===//

static Status compareDigests(const std::string &file, const std::string &own,
                             const std::string &manifest) {
  auto name = [](const std::string &digest) {
    return digest.empty() ? "a package without a digest" : "package " + digest;
  };
  if (own == manifest)
    return Status::ok();
  return badInput(quote(file) + " is of " + name(own) + ", but 'manifest.json' is of " +
                  name(manifest) +
                  ": the folder mixes files of two packages; compile the model "
                  "again");
}

Status Package::checkDigest() const {
  const auto *own = static_cast<const char *>(::dlsym(code->program, MEMOPT_PROGRAM_DIGEST_SYMBOL));
  return compareDigests(memopt::programFile,
                        own ? std::string(own, ::strnlen(own, digestLetters)) : "",
                        manifest.digest);
}

StatusOr<SafetensorsFile> Package::openWeights() const {
  auto open = [this]() -> StatusOr<SafetensorsFile> {
    if (weights.getDescriptor().get() < 0)
      return badInput("it has no 'weights.safetensors'");
    MEMOPT_ASSIGN_OR_RETURN(InputFile copy, weights.duplicate());
    MEMOPT_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(std::move(copy)));
    MEMOPT_RETURN_IF_ERROR(compareDigests(weightsFile, file.getPackage(), manifest.digest));
    return file;
  };
  StatusOr<SafetensorsFile> file = open();
  if (!file.isOk())
    return file.takeStatus().withContext("package " + quote(folder));
  return file;
}

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

Status Package::loadFrom(const OpenFolder &opened, size_t number) {
  std::string name = getProgramFile(number, manifestFile);
  MEMOPT_ASSIGN_OR_RETURN(InputFile text, opened.openFile(name));
  MEMOPT_ASSIGN_OR_RETURN(manifestText, text.readWhole(maxManifestBytes));
  StatusOr<Manifest> parsed = parseManifest(manifestText);
  if (!parsed.isOk())
    return parsed.takeStatus().withContext(quote(name));
  manifest = *std::move(parsed);
  if (opened.has(weightsFile)) {
    MEMOPT_ASSIGN_OR_RETURN(weights, opened.openFile(weightsFile));
  }
  if (code) { // the first program's, which has those of all
    MEMOPT_RETURN_IF_ERROR(findStep(number));
  } else {
    MEMOPT_RETURN_IF_ERROR(loadCode(opened, number));
    MEMOPT_RETURN_IF_ERROR(findStep(0));
  }
  return number == 0 ? loadOthers(opened) : Status::ok();
}

/// Whether two programs have the same state at the same places.
static Status checkSharedState(const Manifest &first, const Manifest &other) {
  for (const VariableSpec &variable : first.variables) {
    if (!variable.isState())
      continue;
    const VariableSpec *theirs = other.findVariable(variable.name);
    bool isSame = theirs && theirs->isState() && theirs->dtype == variable.dtype &&
                  theirs->shape == variable.shape && theirs->space == variable.space &&
                  theirs->offset == variable.offset;
    if (!isSame)
      return badInput("variable " + quote(variable.name) +
                      " is not where the first program has it; compile the models together");
  }
  BytesBySpace ends = first.getStateEnds();
  for (const VariableSpec &variable : other.variables)
    if (variable.isState() && !first.findVariable(variable.name))
      return badInput("variable " + quote(variable.name) +
                      " is unknown to the first program; compile the models together");
    else if (!variable.isState() && variable.bytes &&
             variable.offset < ends[size_t(variable.space)])
      return badInput("variable " + quote(variable.name) + " lies among the shared state");
  for (const InputSpec &input : other.inputs)
    if (input.bytes && input.offset < ends[size_t(input.space)])
      return badInput("input " + quote(input.name) + " lies among the shared state");
  return Status::ok();
}

Status Package::checkJoins(const Package &first) const {
  return checkSharedState(first.manifest, manifest)
      .withContext("program " + quote(programName.empty() ? folder : programName));
}

BytesBySpace Package::getArenaBytes() const {
  BytesBySpace bytes = manifest.arenaBytes;
  for (const auto &other : others)
    for (size_t space = 0; space < bytes.size(); ++space)
      bytes[space] = std::max(bytes[space], other->manifest.arenaBytes[space]);
  return bytes;
}

Status Package::loadOthers(const OpenFolder &opened) {
  if (!manifest.programs.empty())
    programName = manifest.programs[0].name;
  for (size_t number = 1; number < manifest.programs.size(); ++number) {
    std::shared_ptr<Package> other(new Package());
    other->folder = folder;
    other->programName = manifest.programs[number].name;
    if (manifest.version != separateCodeVersion)
      other->code = code;
    if (Status status = other->loadFrom(opened, number); !status.isOk())
      return std::move(status).withContext("program " + quote(other->programName));
    if (other->manifest.digest != manifest.digest)
      return badInput("program " + quote(other->programName) +
                      " is of another package: the folder mixes files of two; compile the model "
                      "again");
    MEMOPT_RETURN_IF_ERROR(other->checkJoins(*this));
    others.push_back(std::move(other));
  }
  return Status::ok();
}

StatusOr<std::shared_ptr<const Package>> Package::load(const std::string &folder,
                                                       const std::string &name) {
  constexpr int mostTries = 100; // of which one is enough unless somebody compiles all the time
  if (!isFolder(folder))
    return badInput("package " + quote(name) +
                    ": not a folder; a package is a folder "
                    "NAME.memopt written by memopt-compile");
  Status status;
  for (int tries = 0; tries < mostTries; ++tries) {
    std::shared_ptr<Package> package(new Package());
    package->folder = name;
    MEMOPT_ASSIGN_OR_RETURN(OpenFolder opened, OpenFolder::open(folder));
    opened.lock(/*isShared=*/true);
    status = package->loadFrom(opened, 0);
    if (status.isOk())
      return std::shared_ptr<const Package>(std::move(package));
    if (opened.isCurrent())
      break; // else another package took its place meanwhile
  }
  return status.withContext("package " + quote(name));
}
