//===- CSession.h - a session of the C interface ------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the files of the C interface share. A session of this interface is also at a place in its
// training, which checkpoints keep.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_CAPI_CSESSION_H
#define MEMOPT_RUNTIME_CAPI_CSESSION_H

#include "RankMember.h"
#include "memopt-runtime/CInterface.h"
#include "memopt-runtime/checkpoint/Checkpoint.h"
#include "memopt-runtime/numbers/TensorView.h"
#include "memopt-runtime/session/ProgramSet.h"
#include <map>
#include <set>

namespace memopt::capi {
/// What the caller has said of one program.
struct ProgramInputs {
  std::vector<InputSpec> inputs; ///< those of a whole batch
  double rate = 0;
  std::map<const VariableSpec *, double> rates; ///< of groups, and other numbers
};
} // namespace memopt::capi

struct memopt_session {
  std::unique_ptr<memopt::RankMember> member; ///< null of a process alone
  std::unique_ptr<memopt::Device> device;
  std::unique_ptr<memopt::ProgramSet> programs;
  std::vector<memopt::capi::ProgramInputs> said; ///< by program
  size_t chosen = 0;
  std::map<size_t, std::unique_ptr<memopt::Trace>>
      traces; ///< by program: of timelines that are recorded
  memopt::TrainingState state;
  /// Variables without a value as yet; every one before there are first values.
  std::set<std::string> missing;
  /// Of the step that runs: the inputs of one batch after those of another.
  std::vector<memopt::TensorView> batches;
  memopt::Status unreadable; ///< why there are none

  /// The program that was chosen.
  memopt::Session &getProgram() const { return (*programs)[chosen]; }
  memopt::capi::ProgramInputs &getSaid() { return said[chosen]; }
  const memopt::capi::ProgramInputs &getSaid() const { return said[chosen]; }
  const memopt::Manifest &getManifest() const { return getProgram().getManifest(); }
  /// The one whose manifest has all of the state.
  memopt::Session &getFirst() const { return programs->first(); }
  const memopt::Manifest &getState() const { return getFirst().getManifest(); }
};

namespace memopt::capi {

/// The code of `status`, which `error`, if there is one, tells too.
int32_t report(const Status &status, memopt_error *error);

/// Runs what may fail; a failure of the machine's that throws is one like others.
template <typename Body> int32_t guard(memopt_error *error, Body body) {
  try {
    return report(body(), error);
  } catch (const std::bad_alloc &) {
    return report(environmentError("this machine is out of memory"), error);
  } catch (const std::exception &exception) {
    return report(environmentError(exception.what()), error);
  }
}

/// What has no values cannot run. Checkpoints leave out what is frozen in codes, so that stays.
void forgetValues(memopt_session &session);

/// Copies the inputs of a part of the step's batches to where the program reads them.
Status fillBatch(const memopt_session &session, int64_t part, const std::vector<char *> &targets);

/// Writes the rates and other numbers that were said into the program that steps run.
void writeNumbers(memopt_session &session);

/// The caller's numbers, which must have this shape and no wider type.
StatusOr<TensorView> readView(const memopt_view &view, DType expected, const Shape &shape);

} // namespace memopt::capi

#endif // MEMOPT_RUNTIME_CAPI_CSESSION_H
