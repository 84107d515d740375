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
  Elsewhere(MessageCommunicator &across, const std::vector<int64_t> &here)
      : across(across), here(here) {}
  Status look() override { return across.look(); }
  uint32_t countSigns() const override { return across.countSigns(); }
  int64_t getNumber(int64_t rank) const override { return here[size_t(rank)]; }

private:
  MessageCommunicator &across;
  const std::vector<int64_t> &here;
};

/// Ranks of another host that one of the smallest host meets at most.
static int64_t countMet(const Placement &placement) {
  return (placement.countMost() + placement.countFewest() - 1) / placement.countFewest();
}

TwoLevelCommunicator::TwoLevelCommunicator(MessageCommunicator &across, SharedRanks &group,
                                           Placement where)
    : Communicator(across.getRank(), across.getRanks()), across(across),
      placement(std::move(where)), hosts(placement.countHosts()), host(placement.getHost(rank)),
      place(placement.getPlace(rank)), carriers(placement.countFewest()),
      elsewhere(std::make_unique<Elsewhere>(across, placement.getRanks(host))),
      inside(std::make_unique<SharedCommunicator>(group, place, elsewhere.get())) {
  for (int64_t of = 0; of < ranks; ++of)
    if (placement.getPlace(of) % carriers == place % carriers)
      fed.push_back(of);
  sent.reserve(size_t(hosts + 1));
  received.reserve(size_t(hosts * countMet(placement) + 1));
  for (std::vector<char> *buffer : {&arriving[0], &arriving[1], &leaving[0], &leaving[1]})
    buffer->resize(hosts > 1 ? mostChunkBytes : 0);
  if (countPlaces() > 1)
    across.waitLonger(1);
}

TwoLevelCommunicator::~TwoLevelCommunicator() = default;

Communicator *TwoLevelCommunicator::getInside() {
  bool areAlike = placement.isInOrder() && placement.countFewest() == placement.countMost();
  return areAlike && hosts > 1 && countPlaces() > 1 ? inside.get() : nullptr;
}

Status TwoLevelCommunicator::findClosed() const {
  MEMOPT_RETURN_IF_ERROR(inside->findClosed());
  return across.findClosed();
}

bool TwoLevelCommunicator::close() { return inside->close() && across.close(); }

//===----------------------------------------------------------------------===//
// Turns
//===----------------------------------------------------------------------===//

/// Something of this rank for one rank of each other host, and of theirs for this one, if the
/// pointers and counts that the functions give say so.
template <typename GetOwn, typename GetTheirs>
void TwoLevelCommunicator::callHosts(const GetOwn &getOwn, const GetTheirs &getTheirs) {
  for (int64_t i = 1; i < hosts; ++i) {
    for (int64_t from : placement.getRanks((host + hosts - i) % hosts))
      if (getMeeting(from) == place)
        if (auto [bytes, count] = getTheirs(from); count >= 0)
          receive(from, bytes, count);
    const std::vector<int64_t> &targets = placement.getRanks((host + i) % hosts);
    if (auto [bytes, count] = getOwn(); count >= 0)
      send(targets[size_t(place) % targets.size()], bytes, count);
  }
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

/// Where a rank's mail is in the mailbox of the one that meets it.
int64_t TwoLevelCommunicator::getSlot(int64_t ofRank) const {
  return placement.getHost(ofRank) * countMet(placement) +
         placement.getPlace(ofRank) / countPlaces();
}

int64_t TwoLevelCommunicator::countPostedBytes() const {
  return mailboxBytes / (hosts * countMet(placement));
}

/// Each rank's mailbox gets what those that it meets have to say.
Status TwoLevelCommunicator::post(const void *mine, int64_t bytes) {
  char *box = inside->turnMailbox(), *own = box + getSlot(rank) * bytes;
  if (bytes)
    std::memcpy(own, mine, size_t(bytes));
  callHosts(
      [&] { return std::pair<const char *, int64_t>(own, bytes); },
      [&](int64_t from) { return std::pair<char *, int64_t>(box + getSlot(from) * bytes, bytes); });
  MEMOPT_RETURN_IF_ERROR(trade());
  return meet();
}

const char *TwoLevelCommunicator::getMail(int64_t of, int64_t bytes) const {
  return inside->getMail(getMeeting(of)) + getSlot(of) * bytes;
}

Status TwoLevelCommunicator::barrier() { return post(nullptr, 0); }

Status TwoLevelCommunicator::exchange(const void *mine, int64_t bytes, void *all) {
  if (bytes < 0 || bytes > getPieceBytes())
    return badInput("ranks exchange at most " + std::to_string(getPieceBytes()) + " bytes, not " +
                    std::to_string(bytes));
  const int64_t most = countPostedBytes();
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
  addRanks(type, countPlaces() + isBehind, source, 0, chunk.count, to, pool);
}

/// The rank that adds the terms of a host. Of a scattered sum that is the owner on the last host.
int64_t TwoLevelCommunicator::getStation(const Chunk &chunk, bool isForAll, int64_t ofHost) const {
  bool isOwners = !isForAll && ofHost == hosts - 1 && placement.getHost(chunk.owner) == hosts - 1;
  return isOwners ? chunk.owner : getCarrier(ofHost);
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
  // The same, on the rank that adds this host's terms to it.
  auto atStation = [&](int64_t number, const auto &use) {
    with(number, [&](const Chunk &chunk, size_t half) {
      if (getStation(chunk, isForAll, host) == rank)
        use(chunk, half);
    });
  };
  for (int64_t turn = 0; turn < turns; ++turn) {
    int64_t added = turn - 2 * host;
    if (host > 0)
      atStation(added + 1, [&](const Chunk &chunk, size_t half) {
        receive(getStation(chunk, isForAll, host - 1), arriving[half].data(), chunk.count * size);
      });
    if (host < last)
      atStation(added - 1, [&](const Chunk &chunk, size_t half) {
        send(getStation(chunk, isForAll, host + 1), leaving[half].data(), chunk.count * size);
      });
    int64_t back = turn - 3 * last + host;
    if (isForAll && host < last)
      with(back, [&](const Chunk &chunk, size_t) {
        receive(getCarrier(host + 1), chunk.to, chunk.count * size);
      });
    if (isForAll && host > 0)
      with(back - 1, [&](const Chunk &chunk, size_t) {
        send(getCarrier(host - 1), chunk.to, chunk.count * size);
      });
    if (!isForAll)
      with(turn - 2 * last - 1, [&](const Chunk &chunk, size_t half) {
        int64_t source = getStation(chunk, isForAll, last);
        if (source == chunk.owner)
          return;
        if (rank == source)
          send(chunk.owner, leaving[half].data(), chunk.count * size);
        else if (rank == chunk.owner)
          receive(source, chunk.to, chunk.count * size);
      });
    MEMOPT_RETURN_IF_ERROR(trade([&] {
      atStation(added, [&](const Chunk &chunk, size_t half) {
        bool isKept = host == last && (isForAll || chunk.owner == rank);
        addOwn(type, from, chunk, arriving[half].data(), isKept ? chunk.to : leaving[half].data(),
               pool);
      });
    }));
  }
  return Status::ok();
}

Status TwoLevelCommunicator::allReduce(DType type, const char *from, char *to, int64_t count,
                                       ThreadPool &pool) {
  int64_t size = getByteSize(type), line = 64 / size;
  if (count * size <= std::min(mostExchangedBytes, countPostedBytes())) {
    MEMOPT_RETURN_IF_ERROR(post(from, count * size));
    addRanks(
        type, ranks, [&](int64_t of) { return getMail(of, count * size); }, 0, count, to, pool);
    return Status::ok();
  }
  if (!placement.isInOrder())
    return across.allReduce(type, from, to, count, pool);
  // Each carrier has a piece, which it fetches for all of its host.
  int64_t piece = (count + carriers * line - 1) / (carriers * line) * line,
          step = countChunkElements(size, piece);
  auto begin = [&](int64_t of) { return std::min(count, of * piece); };
  int64_t first = begin(place), end = place < carriers ? begin(place + 1) : first;
  MEMOPT_RETURN_IF_ERROR(meet());
  MEMOPT_RETURN_IF_ERROR(addUp(
      type, from, (end - first + step - 1) / step, /*isForAll=*/true,
      [&](int64_t number) -> Chunk {
        int64_t at = first + number * step;
        return {at, std::min(step, end - at), 0, to + at * size};
      },
      pool));
  MEMOPT_RETURN_IF_ERROR(meet());
  for (int64_t other = 0; other < carriers; ++other)
    if (other != place)
      SharedCommunicator::copy(inside->getPeer(to, other) + begin(other) * size,
                               to + begin(other) * size, (begin(other + 1) - begin(other)) * size,
                               pool);
  return meet();
}

Status TwoLevelCommunicator::reduceScatter(DType type, const char *from, int64_t count, char *to,
                                           int64_t shard, ThreadPool &pool) {
  if (!placement.isInOrder())
    return across.reduceScatter(type, from, count, to, shard, pool);
  auto shards = int64_t(fed.size());
  int64_t size = getByteSize(type), step = countChunkElements(size, shard * shards),
          real = std::clamp<int64_t>(count - rank * shard, 0, shard);
  MEMOPT_RETURN_IF_ERROR(meet());
  // The shards of a carrier, a chunk of each one in turn.
  MEMOPT_RETURN_IF_ERROR(addUp(
      type, from, (shard + step - 1) / step * shards, /*isForAll=*/false,
      [&](int64_t number) -> Chunk {
        int64_t owner = fed[size_t(number % shards)], offset = number / shards * step,
                begin = owner * shard + offset;
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
  if (shardBytes <= std::min(mostExchangedBytes, countPostedBytes())) {
    MEMOPT_RETURN_IF_ERROR(post(from, shardBytes));
    for (int64_t of = 0; of < ranks; ++of)
      std::memcpy(to + begin(of), getMail(of, shardBytes), size_t(size(of)));
    return Status::ok();
  }
  auto copyOwn = [&] { SharedCommunicator::copy(from, to + begin(rank), size(rank), pool); };
  for (int64_t offset = 0; offset < shardBytes; offset += mostChunkBytes) {
    auto left = [&](int64_t of) {
      int64_t count = std::min(mostChunkBytes, size(of) - offset);
      return count > 0 ? count : -1;
    };
    callHosts([&] { return std::pair(from + offset, left(rank)); },
              [&](int64_t other) { return std::pair(to + begin(other) + offset, left(other)); });
    MEMOPT_RETURN_IF_ERROR(offset ? trade() : trade(copyOwn));
  }
  MEMOPT_RETURN_IF_ERROR(meet());
  for (int64_t of = 0; of < ranks; ++of)
    if (int64_t fetcher = getMeeting(of); fetcher != place)
      SharedCommunicator::copy(inside->getPeer(to, fetcher) + begin(of), to + begin(of), size(of),
                               pool);
  return meet();
}

//===----------------------------------------------------------------------===//
// Before the run
//===----------------------------------------------------------------------===//

/// An MPI makes its buffers when they are first needed, also for messages that come before they
/// are waited for: so the ranks of even and those of odd hosts are late in turn.
Status TwoLevelCommunicator::warmUp() {
  for (int64_t bytes = mostChunkBytes; bytes > 0 && place < carriers; bytes /= 2)
    for (int64_t late : {0, 1}) {
      if (host % 2 == late)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      for (int64_t i = 1; i < hosts; ++i) {
        receive(getCarrier((host + hosts - i) % hosts), arriving[0].data(), bytes);
        send(getCarrier((host + i) % hosts), leaving[0].data(), bytes);
        MEMOPT_RETURN_IF_ERROR(trade());
      }
    }
  return Status::ok();
}
