//===- ProgramSet.cpp - several programs over one state -------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/session/ProgramSet.h"
#include <algorithm>
#include <utility>

using namespace memopt;

static void widen(BytesBySpace &bytes, const BytesBySpace &other) {
  for (size_t space = 0; space < bytes.size(); ++space)
    bytes[space] = std::max(bytes[space], other[space]);
}

StatusOr<std::unique_ptr<ProgramSet>> ProgramSet::create(std::shared_ptr<const Package> package,
                                                         Device &device,
                                                         const LibraryCallFactory &createCall,
                                                         const SessionOptions &options) {
  std::unique_ptr<ProgramSet> set(new ProgramSet(device, createCall, options));
  std::vector<std::shared_ptr<const Package>> packages{package};
  packages.insert(packages.end(), package->getOthers().begin(), package->getOthers().end());
  MEMOPT_RETURN_IF_ERROR(set->open(packages));
  return set;
}

Status ProgramSet::open(const std::vector<std::shared_ptr<const Package>> &packages) {
  for (const auto &package : packages)
    widen(arenaBytes, package->getManifest().arenaBytes);
  for (const auto &package : packages)
    MEMOPT_RETURN_IF_ERROR(addSession(package));
  current.reset();
  return Status::ok();
}

Status ProgramSet::addSession(std::shared_ptr<const Package> package) {
  SessionOptions own = options;
  own.partner = sessions.empty() ? nullptr : &first();
  own.leastBytes = arenaBytes;
  if (package->getManifest().mode != "train" && package->getManifest().ranks == 1)
    own.communicator = nullptr; // each rank evaluates alone
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                          Session::create(std::move(package), device, createCall, own));
  sessions.push_back(std::move(session));
  return Status::ok();
}

StatusOr<DeviceOverhead> ProgramSet::measureDeviceOverhead() const {
  MEMOPT_ASSIGN_OR_RETURN(DeviceOverhead whole, first().measureDeviceOverhead());
  for (size_t number = 1; number < sessions.size(); ++number)
    sessions[number]->addPreparationTo(whole);
  return whole;
}

std::optional<size_t> ProgramSet::find(const std::string &name) const {
  for (size_t number = 0; number < sessions.size(); ++number)
    if (sessions[number]->getPackage().getName() == name)
      return number;
  return std::nullopt;
}

StatusOr<bool> ProgramSet::enter(size_t number) {
  if (current == number)
    return false;
  bool isNew = sessions.size() > 1;
  current.reset(); // of what fails half-way a part is there
  if (isNew)
    MEMOPT_RETURN_IF_ERROR(sessions[number]->comeBack());
  current = number;
  return isNew;
}

Status ProgramSet::readState(State &state) const {
  BytesBySpace ends = first().getManifest().getStateEnds();
  for (int space = 0; space < countedSpaces; ++space) {
    std::vector<char> &bytes = state[size_t(space)];
    bytes.resize(size_t(ends[size_t(space)]));
    MEMOPT_RETURN_IF_ERROR(first().getArenas()[space].read(0, bytes.data(), int64_t(bytes.size())));
  }
  return Status::ok();
}

Status ProgramSet::writeState(const State &state) const {
  for (int space = 0; space < countedSpaces; ++space)
    MEMOPT_RETURN_IF_ERROR(first().getArenas()[space].write(0, state[size_t(space)].data(),
                                                            int64_t(state[size_t(space)].size())));
  return Status::ok();
}

/// Opens all programs and another one in arenas that are large enough; where that fails, those that
/// there were.
Status ProgramSet::enlarge(std::shared_ptr<const Package> package) {
  std::vector<std::shared_ptr<const Package>> packages;
  for (const auto &session : sessions)
    packages.push_back(session->sharePackage());
  auto reopen = [&] {
    while (!sessions.empty()) // the first comes last: the others use its arenas
      sessions.pop_back();
    return open(packages);
  };
  BytesBySpace before = arenaBytes;
  packages.push_back(std::move(package));
  Status status = reopen();
  if (status.isOk())
    return Status::ok();
  packages.pop_back();
  arenaBytes = before;
  MEMOPT_RETURN_IF_ERROR(reopen());
  return status;
}

/// Sessions warm their library calls up wherever there is room, which is in the state: so that is
/// kept meanwhile.
Status ProgramSet::add(std::shared_ptr<const Package> package) {
  MEMOPT_RETURN_IF_ERROR(package->checkJoins(first().getPackage()));
  State state;
  MEMOPT_RETURN_IF_ERROR(readState(state));
  BytesBySpace wanted = arenaBytes;
  widen(wanted, package->getManifest().arenaBytes);
  current.reset();
  Status status =
      wanted == arenaBytes ? addSession(std::move(package)) : enlarge(std::move(package));
  MEMOPT_RETURN_IF_ERROR(writeState(state));
  return status;
}
