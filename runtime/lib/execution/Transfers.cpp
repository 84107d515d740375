//===- Transfers.cpp - bytes in flight ------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/execution/Transfers.h"
#include "memopt-runtime/device/DiskArena.h"
#include "memopt-runtime/device/HostEvent.h"
#include <map>
#include <utility>

using namespace memopt;

StatusOr<std::unique_ptr<Transfers>> Transfers::create(const Manifest &manifest, Arenas &arenas,
                                                       Device &device, Stream *compute) {
  std::unique_ptr<Transfers> transfers(new Transfers(manifest, arenas, compute));
  MEMOPT_RETURN_IF_ERROR(transfers->createStreams(device));
  return transfers;
}

static bool isOnDisk(const TransferSpec &transfer) {
  return transfer.fromSpace == diskSpace || transfer.toSpace == diskSpace;
}

StatusOr<std::unique_ptr<Stream>> Transfers::createStream(Device &device, const StreamKey &key,
                                                          int64_t capacity) {
  auto stream = key.first ? createDiskStream(static_cast<DiskArena &>(arenas[diskSpace]), capacity)
                          : device.createStream(capacity);
  if (!stream.isOk())
    return stream.takeStatus().withContext("transfers by " + quote(key.second));
  return stream;
}

Status Transfers::createStreams(Device &device) {
  // A transfer is one copy and one record, behind a wait where kernels have a stream, and is waited
  // for before it begins again.
  std::map<StreamKey, std::pair<int64_t, Stream *>> resources;
  for (const TransferSpec &transfer : manifest.transfers)
    resources[{isOnDisk(transfer), transfer.resource}].first += compute ? 3 : 2;
  for (auto &[key, entry] : resources) {
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, createStream(device, key, entry.first));
    entry.second = stream.get();
    streams.push_back(std::move(stream));
  }
  for (const TransferSpec &transfer : manifest.transfers) {
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Event> begin, device.createEvent());
    std::unique_ptr<Event> end;
    if (isOnDisk(transfer)) {
      end = std::make_unique<HostEvent>();
    } else {
      MEMOPT_ASSIGN_OR_RETURN(end, device.createEvent());
    }
    flights.push_back({{std::move(begin), std::move(end)},
                       resources[{isOnDisk(transfer), transfer.resource}].second,
                       isOnDisk(transfer)});
  }
  return Status::ok();
}

/// A disk's transfer reads or writes all bytes of its window, which so are used.
void Transfers::noteWindow(const TransferSpec &spec) {
  bool isWrite = spec.toSpace == diskSpace;
  int space = isWrite ? spec.fromSpace : spec.toSpace;
  int64_t offset = isWrite ? spec.fromOffset : spec.toOffset;
  arenas.noteHandedOut(arenas[space].base() + offset, spec.bytes);
}

Status Transfers::checkNumber(int64_t transfer) const {
  if (transfer >= 0 && transfer < int64_t(flights.size()))
    return Status::ok();
  return badInput("the program names transfer " + std::to_string(transfer) + " of " +
                  std::to_string(flights.size()));
}

Status Transfers::start(int64_t number) {
  MEMOPT_RETURN_IF_ERROR(checkNumber(number));
  Transfer &flight = flights[size_t(number)];
  if (flight.isInFlight)
    return badInput("the program starts transfer " + std::to_string(number) +
                    " again before its wait");
  const TransferSpec &spec = manifest.transfers[size_t(number)];
  if (compute) {
    MEMOPT_RETURN_IF_ERROR(compute->record(*flight.begin));
    MEMOPT_RETURN_IF_ERROR(flight.stream->waitFor(*flight.begin));
  }
  if (flight.isOnDisk)
    noteWindow(spec);
  MEMOPT_RETURN_IF_ERROR(flight.stream->copy(arenas[spec.toSpace], spec.toOffset,
                                             arenas[spec.fromSpace], spec.fromOffset, spec.bytes));
  flight.isInFlight = true;
  return flight.stream->record(*flight.end);
}

Status Transfers::wait(int64_t number) {
  MEMOPT_RETURN_IF_ERROR(checkNumber(number));
  Transfer &flight = flights[size_t(number)];
  if (!flight.isInFlight)
    return badInput("the program waits for transfer " + std::to_string(number) +
                    ", which it did not start");
  return flight.finish(compute).withContext("transfer " + std::to_string(number) + " by " +
                                            quote(manifest.transfers[size_t(number)].resource));
}

Status Transfers::join() {
  for (Flight &flight : flights)
    MEMOPT_RETURN_IF_ERROR(flight.join(compute));
  return Status::ok();
}

void Transfers::abandon() {
  for (Flight &flight : flights)
    if (flight.isInFlight)
      (void)flight.finish(compute);
}
