//===- Collectives.cpp - what a program does with other ranks -------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/execution/Collectives.h"
#include "memopt-runtime/base/Clock.h"
#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

using namespace memopt;

Status Collectives::prepare(std::function<void()> toStart) {
  auto isInFlight = [](const CollectiveSpec &spec) { return spec.isInFlight; };
  const std::vector<CollectiveSpec> &all = manifest.collectives;
  if (!communicator || std::none_of(all.begin(), all.end(), isInFlight))
    return Status::ok();
  onStart = std::move(toStart);
  flights = std::vector<Flight>(all.size());
  MEMOPT_ASSIGN_OR_RETURN(pool, ThreadPool::create(1, 1));
  try {
    thread = std::make_unique<TaskThread<Task>>(int64_t(all.size()),
                                                [this](const Task &task) { carry(task); });
  } catch (const std::system_error &error) {
    return environmentError(std::string("a thread for collectives cannot be started: ") +
                            error.what());
  }
  thread->push({-1, 0}); // which may allocate, as no step may
  thread->synchronize();
  return Status::ok();
}

Status Collectives::checkNumber(int64_t number) const {
  auto count = int64_t(manifest.collectives.size());
  if (number >= 0 && number < count && communicator)
    return Status::ok();
  return badInput("the program names collective " + std::to_string(number) + " of " +
                  std::to_string(communicator ? count : 0));
}

/// On the thread.
void Collectives::carry(const Task &task) {
  if (task.collective < 0)
    return onStart ? onStart() : void();
  Flight &flight = flights[size_t(task.collective)];
  flight.times.begin = getTime();
  Status status = run(manifest.collectives[size_t(task.collective)], *pool);
  flight.times.end = getTime();
  flight.landed.reach(task.number, status);
}

Status Collectives::start(int64_t number) {
  MEMOPT_RETURN_IF_ERROR(checkNumber(number));
  if (!manifest.collectives[size_t(number)].isInFlight)
    return badInput("the program starts collective " + std::to_string(number) +
                    ", which is not one that starts and is waited for");
  Flight &flight = flights[size_t(number)];
  if (std::exchange(flight.isInFlight, true))
    return badInput("the program starts collective " + std::to_string(number) +
                    " again before its wait");
  thread->push({number, flight.landed.record()});
  return Status::ok();
}

Status Collectives::wait(int64_t number) {
  MEMOPT_RETURN_IF_ERROR(checkNumber(number));
  if (flights.empty() || !std::exchange(flights[size_t(number)].isInFlight, false))
    return badInput("the program waits for collective " + std::to_string(number) +
                    ", which it did not start");
  return flights[size_t(number)].landed.synchronize();
}

void Collectives::land() {
  if (thread)
    thread->synchronize();
}

void Collectives::abandon() {
  land();
  for (Flight &flight : flights)
    flight.isInFlight = false;
}

Status Collectives::run(int64_t number, ThreadPool &ofAll) {
  MEMOPT_RETURN_IF_ERROR(checkNumber(number));
  const CollectiveSpec &spec = manifest.collectives[size_t(number)];
  if (spec.kind != CollectiveKind::OwnShard) // which asks nobody
    land();
  return run(spec, ofAll);
}

Status Collectives::run(const CollectiveSpec &spec, ThreadPool &pool) {
  char *base = arenas[MEMOPT_SPACE_DEVICE].base();
  const char *from = base + spec.fromOffset;
  char *to = base + spec.toOffset;
  int64_t size = getByteSize(spec.dtype);
  switch (spec.kind) {
  case CollectiveKind::AllReduce:
    return communicator->allReduce(spec.dtype, from, to, spec.elements, pool);
  case CollectiveKind::ReduceScatter:
    return communicator->reduceScatter(spec.dtype, from, spec.elements, to, spec.resultElements,
                                       pool);
  case CollectiveKind::AllGather:
    return communicator->allGather(from, spec.elements * size, to, spec.resultElements * size,
                                   pool);
  case CollectiveKind::AllToAll:
    return badInput("a program for the cpu sends no terms of sums: its ranks read each other's");
  case CollectiveKind::OwnShard:
    break;
  }
  int64_t begin = std::min(spec.elements, communicator->getRank() * spec.resultElements),
          own = std::min(spec.elements - begin, spec.resultElements);
  std::memcpy(to, from + begin * size, size_t(own * size));
  std::memset(to + own * size, 0, size_t((spec.resultElements - own) * size));
  return Status::ok();
}
