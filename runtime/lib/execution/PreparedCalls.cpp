//===- PreparedCalls.cpp - the library calls of a session -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/execution/PreparedCalls.h"
#include "memopt-runtime/threads/FloatControls.h"
#include <algorithm>

using namespace memopt;

/// Operands and results of the calls that there are are fewer.
static constexpr int64_t maxBuffers = 64;

static std::string nameCall(int64_t call) { return "library_calls[" + std::to_string(call) + "]"; }

StatusOr<PreparedCalls::PreparedCall> PreparedCalls::prepare(const JsonView &view,
                                                             const Maker &make) {
  PreparedCall prepared;
  MEMOPT_ASSIGN_OR_RETURN(prepared.workspaceBytes, view.getInteger("workspace_bytes"));
  MEMOPT_ASSIGN_OR_RETURN(prepared.bufferCount, view.getInteger("buffers"));
  if (view.has("flush_denormals")) {
    MEMOPT_ASSIGN_OR_RETURN(prepared.flushesDenormals, view.getBool("flush_denormals"));
  }
  // Kernels of the package, which the program launches, use what they declare to the byte.
  bool isLaunched = view.raw().contains("launched");
  if (prepared.workspaceBytes < 0 || (!isLaunched && prepared.workspaceBytes % 64))
    return view.fail("has a workspace of " + std::to_string(prepared.workspaceBytes) +
                     " bytes, expected a multiple of 64");
  if (prepared.bufferCount < 1 || prepared.bufferCount > maxBuffers)
    return view.fail("has " + std::to_string(prepared.bufferCount) + " buffers, expected 1 to " +
                     std::to_string(maxBuffers));
  if (isLaunched)
    return prepared;
  StatusOr<int64_t> needed = make(view.raw(), prepared);
  if (!needed.isOk())
    return needed.takeStatus().withContext(view.getPath());
  if (*needed > prepared.workspaceBytes)
    return badInput(view.getPath() + " was planned with a workspace of " +
                    std::to_string(prepared.workspaceBytes) + " bytes, but needs " +
                    std::to_string(*needed) + " on this machine; compile the model here");
  return prepared;
}

StatusOr<PreparedCalls> PreparedCalls::createAll(const Manifest &manifest, const Maker &make) {
  PreparedCalls prepared;
  for (size_t i = 0; i < manifest.libraryCalls.size(); ++i) {
    JsonView view(manifest.libraryCalls[i], nameCall(int64_t(i)));
    MEMOPT_ASSIGN_OR_RETURN(PreparedCall call, prepare(view, make));
    prepared.calls.push_back(std::move(call));
  }
  return prepared;
}

StatusOr<PreparedCalls> PreparedCalls::create(const Manifest &manifest,
                                              const LibraryCallFactory &create) {
  return createAll(
      manifest, [&](const nlohmann::json &descriptor, PreparedCall &prepared) -> StatusOr<int64_t> {
        MEMOPT_ASSIGN_OR_RETURN(prepared.call, create(descriptor, int(manifest.threads)));
        return prepared.call->workspaceBytes();
      });
}

StatusOr<PreparedCalls> PreparedCalls::create(const Manifest &manifest,
                                              const LibraryCallFactory &create, Device &device,
                                              ComputeStream &stream) {
  auto make = [&](const nlohmann::json &descriptor, PreparedCall &prepared) -> StatusOr<int64_t> {
    MEMOPT_ASSIGN_OR_RETURN(prepared.deviceCall,
                            device.createCall(descriptor, int(manifest.threads), create));
    return prepared.deviceCall->workspaceBytes();
  };
  MEMOPT_ASSIGN_OR_RETURN(PreparedCalls calls, createAll(manifest, make));
  calls.stream = &stream;
  return calls;
}

int PreparedCalls::getTeam() const {
  int team = 1;
  for (const PreparedCall &prepared : calls)
    if (prepared.isMade())
      team =
          std::max(team, prepared.call ? prepared.call->getTeam() : prepared.deviceCall->getTeam());
  return team;
}

/// In the plan a call's buffers lie apart in one arena, and its workspace begins and ends at
/// multiples of 64 bytes. So behind a workspace at the arena's begin there is room for the largest
/// of the others, where all of them can lie: what they hold means nothing. Only the workspace must
/// not be written over, for libraries keep counters of threads there.
Status PreparedCalls::warmUp(const Arenas &arenas, ThreadPool &pool) {
  const Arena &arena = arenas[MEMOPT_SPACE_DEVICE];
  for (size_t i = 0; i < calls.size(); ++i) {
    const PreparedCall &prepared = calls[i];
    if (!prepared.isMade())
      continue;
    if (prepared.workspaceBytes > arena.size())
      return badInput(nameCall(int64_t(i)) + " has a workspace larger than the arena");
    void *buffers[maxBuffers + 1];
    std::fill(buffers, buffers + prepared.bufferCount, arena.base() + prepared.workspaceBytes);
    buffers[prepared.bufferCount] = arena.base();
    Status status = prepared.call ? prepared.call->warmUp(buffers, pool)
                                  : prepared.deviceCall->warmUp(*stream, buffers, pool);
    if (!status.isOk())
      return std::move(status).withContext(nameCall(int64_t(i)));
  }
  return Status::ok();
}

Status PreparedCalls::run(int64_t number, void *const *buffers, ThreadPool &pool) {
  if (number < 0 || number >= int64_t(calls.size()))
    return badInput("the program makes library call " + std::to_string(number) + " of " +
                    std::to_string(calls.size()));
  PreparedCall &prepared = calls[size_t(number)];
  if (!prepared.isMade())
    return badInput(nameCall(number) + " is called, but is to be launched");
  FloatControls controls = FloatControls::get();
  if (prepared.flushesDenormals)
    controls.withoutDenormals().set();
  Status status = prepared.call ? prepared.call->run(buffers, pool)
                                : prepared.deviceCall->start(*stream, buffers, pool);
  if (prepared.flushesDenormals)
    controls.set();
  return status.isOk() ? Status::ok() : std::move(status).withContext(nameCall(number));
}

void PreparedCalls::noteWorkspace(int64_t number, void *const *buffers, Arenas &arenas) const {
  if (number < 0 || number >= int64_t(calls.size()))
    return;
  const PreparedCall &call = calls[size_t(number)];
  if (call.workspaceBytes)
    arenas.noteHandedOut(buffers[call.bufferCount], call.workspaceBytes);
}
