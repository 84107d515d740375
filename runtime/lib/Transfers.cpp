//===- Transfers.cpp - bytes in flight ------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Transfers.h"
#include <map>

using namespace memopt;

StatusOr<std::unique_ptr<Transfers>>
Transfers::create(const Manifest &manifest, const Arenas &arenas, Device &device, Stream *compute) {
  std::unique_ptr<Transfers> transfers(new Transfers(manifest, arenas, compute));
  MEMOPT_RETURN_IF_ERROR(transfers->createStreams(device));
  return transfers;
}

Status Transfers::createStreams(Device &device) {
  // A transfer is one copy and one record, behind a wait where kernels have a stream, and is waited
  // for before it begins again.
  std::map<std::string, std::pair<int64_t, Stream *>> resources;
  for (const TransferSpec &transfer : manifest.transfers)
    resources[transfer.resource].first += compute ? 3 : 2;
  for (auto &[name, entry] : resources) {
    auto stream = device.createStream(entry.first);
    if (!stream.isOk())
      return stream.takeStatus().withContext("transfers by " + quote(name));
    entry.second = stream->get();
    streams.push_back(*std::move(stream));
  }
  for (const TransferSpec &transfer : manifest.transfers) {
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Event> begin, device.createEvent());
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Event> end, device.createEvent());
    flights.push_back(
        {resources[transfer.resource].second, std::move(begin), std::move(end), false});
  }
  return Status::ok();
}

Status Transfers::checkNumber(int64_t transfer) const {
  if (transfer >= 0 && transfer < int64_t(flights.size()))
    return Status::ok();
  return badInput("the program names transfer " + std::to_string(transfer) + " of " +
                  std::to_string(flights.size()));
}

Status Transfers::start(int64_t number) {
  MEMOPT_RETURN_IF_ERROR(checkNumber(number));
  Flight &flight = flights[size_t(number)];
  if (flight.isInFlight)
    return badInput("the program starts transfer " + std::to_string(number) +
                    " again before its wait");
  const TransferSpec &spec = manifest.transfers[size_t(number)];
  if (compute) {
    MEMOPT_RETURN_IF_ERROR(compute->record(*flight.begin));
    MEMOPT_RETURN_IF_ERROR(flight.stream->waitFor(*flight.begin));
  }
  MEMOPT_RETURN_IF_ERROR(flight.stream->copy(arenas[spec.toSpace], spec.toOffset,
                                             arenas[spec.fromSpace], spec.fromOffset, spec.bytes));
  flight.isInFlight = true;
  return flight.stream->record(*flight.end);
}

Status Transfers::finish(Flight &flight) {
  flight.isInFlight = false;
  return compute ? compute->waitFor(*flight.end) : flight.end->synchronize();
}

Status Transfers::wait(int64_t number) {
  MEMOPT_RETURN_IF_ERROR(checkNumber(number));
  Flight &flight = flights[size_t(number)];
  if (!flight.isInFlight)
    return badInput("the program waits for transfer " + std::to_string(number) +
                    ", which it did not start");
  return finish(flight).withContext("transfer " + std::to_string(number) + " by " +
                                    quote(manifest.transfers[size_t(number)].resource));
}

void Transfers::abandon() {
  for (Flight &flight : flights)
    if (flight.isInFlight)
      (void)finish(flight);
}
