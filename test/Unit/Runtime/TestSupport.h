//===- TestSupport.h - packages and files for runtime tests -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TEST_RUNTIME_TESTSUPPORT_H
#define MEMOPT_TEST_RUNTIME_TESTSUPPORT_H

#include "Inputs/TinyLoop.h"
#include "Inputs/TinyModel.h"
#include "memopt-runtime/package/Safetensors.h"
#include "memopt-runtime/session/Session.h"
#include <csignal>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace memopt::testing {

/// A folder that is removed with all it holds.
class TemporaryFolder {
public:
  TemporaryFolder();
  ~TemporaryFolder();
  std::string operator/(const std::string &name) const { return path + "/" + name; }
  std::string path;
};

std::string readFile(const std::string &path);
void writeFile(const std::string &path, const std::string &content);
void writeGzip(const std::string &path, const std::string &content);

/// The manifest of TinyModel.c, to be changed by a test.
nlohmann::json getTinyManifest();
/// The manifest of TinyEval.c.
nlohmann::json getEvalManifest();
/// The manifest of TinyLoop.c.
nlohmann::json getLoopManifest();

/// Writes a package: the manifest, a program made from Inputs (its target's name) and first values
/// for the tiny model.
std::string writePackage(const TemporaryFolder &folder, const nlohmann::json &manifest,
                         const std::string &program = "TinyModel");

/// The same for a GPU: the manifest of a package whose kernels are those of TinyKernels.cu, and the
/// package with them, whose program is made from TinyCuda.c. Their kernels are LLVM IR.
nlohmann::json forCuda(nlohmann::json manifest);
std::string writeCudaPackage(const TemporaryFolder &folder, const nlohmann::json &manifest,
                             const std::string &program = "TinyCuda");

/// `count` batches for the tiny model as safetensors; labels differ from batch to batch.
std::string writeBatches(const TemporaryFolder &folder, int count);

/// A file with one safetensors header and data as they are given.
void writeRawSafetensors(const std::string &path, const std::string &header,
                         const std::string &data);

/// An IDX file of bytes.
std::string makeIdx(const std::vector<int> &shape, const std::string &content);

/// A factory for packages without library calls.
StatusOr<std::unique_ptr<LibraryCall>> refuseCalls(const nlohmann::json &, int);

Device &getCpu();

/// A session on a package just written.
std::unique_ptr<Session> openSession(const std::string &package, const SessionOptions &options = {},
                                     const LibraryCallFactory &factory = refuseCalls);

/// What a process said and how it ended.
struct ProcessResult {
  int exitCode; ///< or -signal
  std::string output, errors;
};

struct ProcessOptions {
  std::map<int, long> limits; ///< by resource of setrlimit(2)
  std::string waitFor;        ///< once stdout holds this ...
  std::function<void(pid_t)> then = [](pid_t child) { ::kill(child, SIGINT); }; ///< ... do that
  int ignoredSignal = 0;   ///< as nohup ignores SIGHUP
  std::string environment; ///< NAME=VALUE
};

ProcessResult runProcess(const std::vector<std::string> &command,
                         const ProcessOptions &options = {});

/// Expects a failure whose message holds all of these.
void expectMessage(const std::string &message, const std::vector<std::string> &parts);

} // namespace memopt::testing

#endif // MEMOPT_TEST_RUNTIME_TESTSUPPORT_H
