//===- TwoLevelRanks.cpp - ranks of several hosts -------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All that crosses hosts goes in turns: in each one a rank sends to and receives from ranks of its
// place what the turn's number says, so that all of them agree without a word. A sum is a row of
// chunks, each of which is at one host in a turn: while a host adds its terms to a chunk, the one
// before is on its way to the next host, and the one behind it arrives.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/TwoLevelRanks.h"
#include "SharedCommunicator.h"
#include "memopt-runtime/ranks/RankSums.h"
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

using namespace memopt;

/// Of a chunk; shorter ones are all latency.
static constexpr int64_t mostChunkBytes = MessageCommunicator::mostMessageBytes,
                         fewestChunkBytes = 64 << 10;

class TwoLevelCommunicator::Elsewhere final : public Surroundings {
public:
  Elsewhere(MessageCommunicator &across, int64_t first) : across(across), first(first) {}
  Status look() override { return across.look(); }
  uint32_t countSigns() const override { return across.countSigns(); }
  int64_t getNumber(int64_t rank) const override { return first + rank; }

private:
  MessageCommunicator &across;
  const int64_t first;
};

TwoLevelCommunicator::TwoLevelCommunicator(MessageCommunicator &across, SharedRanks &group)
    : Communicator(across.getRank(), across.getRanks()), across(across),
      elsewhere(std::make_unique<Elsewhere>(across, rank - rank % group.getRanks())),
      inside(std::make_unique<SharedCommunicator>(group, rank % group.getRanks(), elsewhere.get())),
      hosts(ranks / group.getRanks()), places(group.getRanks()), host(rank / places),
      place(rank % places) {
  sent.reserve(size_t(hosts));
  received.reserve(size_t(hosts));
  for (std::vector<char> *buffer : {&arriving[0], &arriving[1], &leaving[0], &leaving[1]})
    buffer->resize(hosts > 1 ? mostChunkBytes : 0);
  if (places > 1)
    across.waitLonger(1);
}

TwoLevelCommunicator::~TwoLevelCommunicator() = default;

//===----------------------------------------------------------------------===//
// Turns
//===----------------------------------------------------------------------===//

void TwoLevelCommunicator::send(int64_t toHost, const char *bytes, int64_t count) {
  sent.push_back({getRank(toHost), bytes, count});
}

void TwoLevelCommunicator::receive(int64_t fromHost, char *bytes, int64_t count) {
  received.push_back({getRank(fromHost), bytes, count});
}

/// Sends and receives what was noted since the last turn, and does something else meanwhile.
template <typename Work> Status TwoLevelCommunicator::trade(const Work &meanwhile) {
  Status status = across.begin(sent, received);
  sent.clear();
  received.clear();
  MEMOPT_RETURN_IF_ERROR(std::move(status));
  meanwhile();
  inside->setAway(true);
  Status end = across.finish();
  inside->setAway(false);
  return end;
}

Status TwoLevelCommunicator::trade() {
  return trade([] {});
}

/// The ranks of this host. A rank that gives up says so to all.
Status TwoLevelCommunicator::meet() {
  Status status = inside->barrier();
  if (!status.isOk())
    across.leave(status);
  return status;
}

//===----------------------------------------------------------------------===//
// What is small
//===----------------------------------------------------------------------===//

/// Each rank's mailbox gets what those of its place have to say, by host.
Status TwoLevelCommunicator::post(const void *mine, int64_t bytes) {
  char *box = inside->turnMailbox();
  if (bytes)
    std::memcpy(box + host * bytes, mine, size_t(bytes));
  for (int64_t i = 1; i < hosts; ++i) {
    int64_t from = (host + hosts - i) % hosts, to = (host + i) % hosts;
    receive(from, box + from * bytes, bytes);
    send(to, box + host * bytes, bytes);
  }
  MEMOPT_RETURN_IF_ERROR(trade());
  return meet();
}

const char *TwoLevelCommunicator::getMail(int64_t of, int64_t bytes) const {
  return inside->getMail(of % places) + of / places * bytes;
}

Status TwoLevelCommunicator::barrier() { return post(nullptr, 0); }

Status TwoLevelCommunicator::exchange(const void *mine, int64_t bytes, void *all) {
  if (bytes < 0 || bytes > getPieceBytes())
    return badInput("ranks exchange at most " + std::to_string(getPieceBytes()) + " bytes, not " +
                    std::to_string(bytes));
  const int64_t most = mailboxBytes / hosts;
  int64_t begin = 0;
  do {
    int64_t piece = std::min(most, bytes - begin);
    MEMOPT_RETURN_IF_ERROR(post(static_cast<const char *>(mine) + begin, piece));
    for (int64_t of = 0; of < ranks && piece; ++of)
      std::memcpy(static_cast<char *>(all) + of * bytes + begin, getMail(of, piece), size_t(piece));
    begin += piece;
  } while (begin < bytes);
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

/// So many that a row of chunks is long beside the row of hosts.
int64_t TwoLevelCommunicator::countChunkElements(int64_t size, int64_t elements) const {
  int64_t bytes = elements * size / (8 * hosts) / 64 * 64;
  return std::clamp(bytes, fewestChunkBytes, mostChunkBytes) / size;
}

/// The terms of this host's ranks, behind the sum of the hosts before.
void TwoLevelCommunicator::addOwn(DType type, const char *from, const Chunk &chunk,
                                  const char *before, char *to, ThreadPool &pool) {
  const char *own = from + chunk.begin * getByteSize(type);
  const bool isBehind = host > 0;
  auto source = [&](int64_t term) {
    return isBehind && term == 0 ? before : inside->getPeer(own, term - isBehind);
  };
  addRanks(type, places + isBehind, source, 0, chunk.count, to, pool);
}

/// Host h adds its terms to chunk c in turn c + 2 h: in the turn between two hosts the chunk
/// travels. The last host has the sum in turn c + 2 last, and sends it to its owner in the next
/// one; or, if all get it, to the host before, from which it goes on host by host.
template <typename GetChunk>
Status TwoLevelCommunicator::addUp(DType type, const char *from, int64_t chunks, bool isForAll,
                                   const GetChunk &get, ThreadPool &pool) {
  const int64_t size = getByteSize(type), last = hosts - 1,
                turns = chunks + (isForAll ? 3 : 2) * last + !isForAll;
  // Calls `use` with the chunk of a number, where there is one with elements.
  auto with = [&](int64_t number, const auto &use) {
    if (number < 0 || number >= chunks)
      return;
    if (Chunk chunk = get(number); chunk.count > 0)
      use(chunk, size_t(number % 2));
  };
  auto isKept = [&](const Chunk &chunk) {
    return host == last && (isForAll || chunk.owner == last);
  };
  for (int64_t turn = 0; turn < turns; ++turn) {
    int64_t added = turn - 2 * host;
    if (host > 0)
      with(added + 1, [&](const Chunk &chunk, size_t half) {
        receive(host - 1, arriving[half].data(), chunk.count * size);
      });
    if (host < last)
      with(added - 1, [&](const Chunk &chunk, size_t half) {
        send(host + 1, leaving[half].data(), chunk.count * size);
      });
    int64_t back = turn - 3 * last + host;
    if (isForAll && host < last)
      with(back,
           [&](const Chunk &chunk, size_t) { receive(host + 1, chunk.to, chunk.count * size); });
    if (isForAll && host > 0)
      with(back - 1,
           [&](const Chunk &chunk, size_t) { send(host - 1, chunk.to, chunk.count * size); });
    if (!isForAll)
      with(turn - 2 * last - 1, [&](const Chunk &chunk, size_t half) {
        if (chunk.owner == last)
          return;
        if (host == last)
          send(chunk.owner, leaving[half].data(), chunk.count * size);
        else if (host == chunk.owner)
          receive(last, chunk.to, chunk.count * size);
      });
    MEMOPT_RETURN_IF_ERROR(trade([&] {
      with(added, [&](const Chunk &chunk, size_t half) {
        addOwn(type, from, chunk, arriving[half].data(),
               isKept(chunk) ? chunk.to : leaving[half].data(), pool);
      });
    }));
  }
  return Status::ok();
}

Status TwoLevelCommunicator::allReduce(DType type, const char *from, char *to, int64_t count,
                                       ThreadPool &pool) {
  int64_t size = getByteSize(type), line = 64 / size;
  if (count * size <= std::min(mostExchangedBytes, mailboxBytes / hosts)) {
    MEMOPT_RETURN_IF_ERROR(post(from, count * size));
    addRanks(
        type, ranks, [&](int64_t of) { return getMail(of, count * size); }, 0, count, to, pool);
    return Status::ok();
  }
  // Each place has a piece, which its rank of each host fetches for all of them.
  int64_t piece = (count + places * line - 1) / (places * line) * line,
          step = countChunkElements(size, piece);
  auto begin = [&](int64_t of) { return std::min(count, of * piece); };
  int64_t first = begin(place), end = begin(place + 1);
  MEMOPT_RETURN_IF_ERROR(meet());
  MEMOPT_RETURN_IF_ERROR(addUp(
      type, from, (end - first + step - 1) / step, /*isForAll=*/true,
      [&](int64_t number) -> Chunk {
        int64_t at = first + number * step;
        return {at, std::min(step, end - at), 0, to + at * size};
      },
      pool));
  MEMOPT_RETURN_IF_ERROR(meet());
  for (int64_t other = 0; other < places; ++other)
    if (other != place)
      SharedCommunicator::copy(inside->getPeer(to, other) + begin(other) * size,
                               to + begin(other) * size, (begin(other + 1) - begin(other)) * size,
                               pool);
  return meet();
}

Status TwoLevelCommunicator::reduceScatter(DType type, const char *from, int64_t count, char *to,
                                           int64_t shard, ThreadPool &pool) {
  int64_t size = getByteSize(type), step = countChunkElements(size, shard * hosts),
          real = std::clamp<int64_t>(count - rank * shard, 0, shard);
  MEMOPT_RETURN_IF_ERROR(meet());
  // The shards of this place, one host's chunk after the other's.
  MEMOPT_RETURN_IF_ERROR(addUp(
      type, from, (shard + step - 1) / step * hosts, /*isForAll=*/false,
      [&](int64_t number) -> Chunk {
        int64_t owner = number % hosts, offset = number / hosts * step,
                begin = getRank(owner) * shard + offset;
        return {begin, std::min({step, shard - offset, count - begin}), owner, to + offset * size};
      },
      pool));
  std::memset(to + real * size, 0, size_t((shard - real) * size));
  return meet();
}

//===----------------------------------------------------------------------===//
// Gathers
//===----------------------------------------------------------------------===//

Status TwoLevelCommunicator::allGather(const char *from, int64_t shardBytes, char *to,
                                       int64_t bytes, ThreadPool &pool) {
  auto begin = [&](int64_t of) { return std::min(bytes, of * shardBytes); };
  auto size = [&](int64_t of) { return begin(of + 1) - begin(of); };
  if (shardBytes <= std::min(mostExchangedBytes, mailboxBytes / hosts)) {
    MEMOPT_RETURN_IF_ERROR(post(from, shardBytes));
    for (int64_t of = 0; of < ranks; ++of)
      std::memcpy(to + begin(of), getMail(of, shardBytes), size_t(size(of)));
    return Status::ok();
  }
  auto copyOwn = [&] { SharedCommunicator::copy(from, to + begin(rank), size(rank), pool); };
  for (int64_t offset = 0; offset < shardBytes; offset += mostChunkBytes) {
    auto left = [&](int64_t of) { return std::min(mostChunkBytes, size(of) - offset); };
    for (int64_t i = 1; i < hosts; ++i) {
      int64_t source = (host + hosts - i) % hosts, target = (host + i) % hosts;
      if (int64_t count = left(getRank(source)); count > 0)
        receive(source, to + begin(getRank(source)) + offset, count);
      if (int64_t count = left(rank); count > 0)
        send(target, from + offset, count);
    }
    MEMOPT_RETURN_IF_ERROR(offset ? trade() : trade(copyOwn));
  }
  MEMOPT_RETURN_IF_ERROR(meet());
  for (int64_t of = 0; of < ranks; ++of)
    if (of % places != place)
      SharedCommunicator::copy(inside->getPeer(to, of % places) + begin(of), to + begin(of),
                               size(of), pool);
  return meet();
}

//===----------------------------------------------------------------------===//
// Before the run
//===----------------------------------------------------------------------===//

/// An MPI makes its buffers when they are first needed, also for messages that come before they
/// are waited for: so the ranks of even and those of odd hosts are late in turn.
Status TwoLevelCommunicator::warmUp() {
  for (int64_t bytes = mostChunkBytes; bytes > 0; bytes /= 2)
    for (int64_t late : {0, 1}) {
      if (host % 2 == late)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      for (int64_t i = 1; i < hosts; ++i) {
        receive((host + hosts - i) % hosts, arriving[0].data(), bytes);
        send((host + i) % hosts, leaving[0].data(), bytes);
        MEMOPT_RETURN_IF_ERROR(trade());
      }
    }
  return Status::ok();
}
