//===- MessageRanks.cpp - ranks that share no memory ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A vector is summed in pieces, one a rank: each rank sends the others its terms of their pieces,
// chunk by chunk, and adds up the terms of its own from staging, whose size does not depend on the
// vector. Everything else goes from arena to arena.
//
// A wait looks at all messages in turn: for a moment without a pause, as answers of ranks in step
// come within microseconds, and then with one, which leaves the processor to others. It sleeps, for
// a thread that yields on a busy machine comes back after the others' turns, milliseconds later.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/MessageRanks.h"
#include "memopt-runtime/base/Clock.h"
#include "memopt-runtime/ranks/KeepAlive.h"
#include "memopt-runtime/ranks/RankSums.h"
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

using namespace memopt;

using Channel = Messages::Channel;

/// Of all ranks together; a rank's part is no less than what goes without staging in one message.
static constexpr int64_t stagingBytes = 8 << 20;
/// How long others may take to say goodbye.
static constexpr double graceSeconds = 5;

static int64_t getChunkBytes(int64_t ranks) {
  int64_t share = stagingBytes / ranks / 64 * 64;
  return std::clamp(share, Communicator::mostExchangedBytes, MessageCommunicator::mostMessageBytes);
}

MessageCommunicator::MessageCommunicator(std::unique_ptr<Messages> transport, double seconds)
    : Communicator(transport->getRank(), transport->getRanks()), messages(std::move(transport)),
      seconds(seconds), chunkBytes(getChunkBytes(ranks)), staging(size_t(ranks * chunkBytes)),
      isReceiving(size_t(ranks)), isSending(size_t(ranks)), goodbyes(size_t(ranks)),
      hasSaid(size_t(ranks)), isDone(size_t(ranks)), missing(ranks - 1),
      isSignSending(size_t(ranks)) {}

StatusOr<std::unique_ptr<MessageCommunicator>>
MessageCommunicator::create(std::unique_ptr<Messages> messages, double seconds) {
  std::unique_ptr<MessageCommunicator> communicator(
      new MessageCommunicator(std::move(messages), seconds));
  MEMOPT_RETURN_IF_ERROR(communicator->listenForGoodbyes());
  return communicator;
}

Status MessageCommunicator::listenForGoodbyes() {
  for (int64_t other = 0; other < ranks; ++other)
    if (other != rank)
      MEMOPT_RETURN_IF_ERROR(listenTo(other));
  return Status::ok();
}

Status MessageCommunicator::listenTo(int64_t other) {
  return messages->receive(Channel::Control, other,
                           reinterpret_cast<char *>(&goodbyes[size_t(other)]), sizeof(Goodbye));
}

//===----------------------------------------------------------------------===//
// The step that all is made of
//===----------------------------------------------------------------------===//

/// Sends and receives what the functions say for each other rank.
template <typename Outgoing, typename Incoming>
Status MessageCommunicator::trade(const Outgoing &outgoing, const Incoming &incoming) {
  MEMOPT_RETURN_IF_ERROR(look());
  Status status = post(outgoing, incoming);
  return status.isOk() ? wait() : fail(std::move(status));
}

/// Each rank begins with the one behind it, so that not all send to one at a time.
template <typename Outgoing, typename Incoming>
Status MessageCommunicator::post(const Outgoing &outgoing, const Incoming &incoming) {
  std::lock_guard<std::mutex> mine(turn);
  for (int64_t i = 1; i < ranks; ++i) {
    int64_t other = (rank + ranks - i) % ranks;
    if (Part<char *> part = incoming(other); part.count >= 0)
      MEMOPT_RETURN_IF_ERROR(receive(other, part.bytes, part.count));
  }
  for (int64_t i = 1; i < ranks; ++i) {
    int64_t other = (rank + i) % ranks;
    if (Part<const char *> part = outgoing(other); part.count >= 0)
      MEMOPT_RETURN_IF_ERROR(send(other, part.bytes, part.count));
  }
  return Status::ok();
}

Status MessageCommunicator::receive(int64_t from, char *to, int64_t count) {
  MEMOPT_RETURN_IF_ERROR(messages->receive(Channel::Data, from, to, count));
  isReceiving[size_t(from)] = true;
  return Status::ok();
}

Status MessageCommunicator::send(int64_t to, const char *from, int64_t count) {
  MEMOPT_RETURN_IF_ERROR(messages->send(Channel::Data, to, from, count));
  isSending[size_t(to)] = true;
  return Status::ok();
}

Status MessageCommunicator::look() {
  hearGoodbyes();
  return getFailure();
}

Status MessageCommunicator::begin(const std::vector<Sent> &sent,
                                  const std::vector<Received> &received) {
  MEMOPT_RETURN_IF_ERROR(look());
  auto post = [&]() -> Status {
    std::lock_guard<std::mutex> mine(turn);
    for (const Received &message : received)
      MEMOPT_RETURN_IF_ERROR(receive(message.other, message.bytes, message.count));
    for (const Sent &message : sent)
      MEMOPT_RETURN_IF_ERROR(send(message.other, message.bytes, message.count));
    return Status::ok();
  };
  Status status = post();
  return status.isOk() ? std::move(status) : fail(std::move(status));
}

/// Whether all that was posted is done.
StatusOr<bool> MessageCommunicator::advance() {
  std::lock_guard<std::mutex> mine(turn);
  bool isDone = true;
  for (size_t other = 0; other < size_t(ranks); ++other) {
    if (isReceiving[other]) {
      MEMOPT_ASSIGN_OR_RETURN(bool done, messages->hasReceived(Channel::Data, int64_t(other)));
      isReceiving[other] = !done;
    }
    if (isSending[other]) {
      MEMOPT_ASSIGN_OR_RETURN(bool done, messages->hasSent(Channel::Data, int64_t(other)));
      isSending[other] = !done;
    }
    isDone &= !isReceiving[other] && !isSending[other];
  }
  return isDone;
}

static void rest(double waited) {
  constexpr double moment = 20e-6;
  if (waited >= moment)
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}

Status MessageCommunicator::wait() {
  for (Patience patience(seconds + extraSeconds);;) {
    StatusOr<bool> done = advance();
    if (done.isOk() && *done)
      return Status::ok();
    hearGoodbyes();
    if (hasLeft)
      return fail(getReason());
    // Its last messages may come behind its goodbye.
    constexpr double moment = 1;
    if (Status end = findAwaitedClosed();
        !end.isOk() && (!done.isOk() || patience.getWaited() > moment))
      return fail(std::move(end));
    if (!done.isOk())
      return fail(done.takeStatus());
    if (patience.isOver(countSigns()))
      return giveUp();
    rest(patience.getWaited());
  }
}

static Status explainClosed(size_t other) {
  return environmentError("waits for rank " + std::to_string(other) +
                          ", which has closed its session");
}

Status MessageCommunicator::findClosed() const {
  for (size_t other = 0; other < size_t(ranks); ++other)
    if (isDone[other])
      return explainClosed(other);
  return Status::ok();
}

/// Of ranks that are waited for.
Status MessageCommunicator::findAwaitedClosed() const {
  for (size_t other = 0; other < size_t(ranks); ++other)
    if (isDone[other] && (isReceiving[other] || isSending[other]))
      return explainClosed(other);
  return Status::ok();
}

Status MessageCommunicator::giveUp() {
  std::string late;
  for (size_t other = 0; other < size_t(ranks); ++other)
    if (isReceiving[other] || isSending[other])
      late += (late.empty() ? "" : ", ") + std::to_string(other);
  return fail(environmentError("waited " + std::to_string(int64_t(seconds)) + " s for rank " +
                               late + "; --rank-timeout=SECONDS gives it longer"));
}

/// The end of a step that was begun: its buffers are the caller's again, or nobody's.
Status MessageCommunicator::fail(Status reason) {
  leave(reason);
  {
    std::lock_guard<std::mutex> mine(turn);
    messages->cancelReceives();
  }
  settle();
  return reason;
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

/// Adds up this rank's piece of `piece` elements; `to` may be where `from` has it.
Status MessageCommunicator::reducePieces(DType type, const char *from, int64_t count, int64_t piece,
                                         char *to, ThreadPool &pool) {
  int64_t size = getByteSize(type), most = chunkBytes / size;
  for (int64_t offset = 0; offset < piece; offset += most) {
    auto getBegin = [&](int64_t owner) { return std::min(count, owner * piece + offset); };
    auto getElements = [&](int64_t owner) {
      return std::min(count, owner * piece + std::min(piece, offset + most)) - getBegin(owner);
    };
    int64_t elements = getElements(rank);
    auto getBytes = [&](int64_t elements) { return elements > 0 ? elements * size : -1; };
    MEMOPT_RETURN_IF_ERROR(trade(
        [&](int64_t other) -> Part<const char *> {
          return {from + getBegin(other) * size, getBytes(getElements(other))};
        },
        [&](int64_t other) -> Part<char *> {
          return {staging.data() + other * chunkBytes, getBytes(elements)};
        }));
    const char *own = from + getBegin(rank) * size;
    addRanks(
        type, ranks, [this, own](int64_t other) { return getTerm(other, own); }, 0,
        std::max<int64_t>(0, elements), to + offset * size, pool);
  }
  return Status::ok();
}

/// Sends `mine` to all, and puts theirs one behind the other, `bytes` in all; this rank's own piece
/// is there. In chunks, too: of messages that are longer the halves of an MPI's handshake stand in
/// line behind the other direction's data.
Status MessageCommunicator::gatherPieces(const char *mine, int64_t pieceBytes, char *to,
                                         int64_t bytes) {
  for (int64_t offset = 0; offset < pieceBytes; offset += mostMessageBytes) {
    auto getBegin = [&](int64_t owner) { return std::min(bytes, owner * pieceBytes + offset); };
    auto getCount = [&](int64_t owner) {
      int64_t end = owner * pieceBytes + std::min(pieceBytes, offset + mostMessageBytes);
      int64_t count = std::min(bytes, end) - getBegin(owner);
      return count > 0 ? count : -1;
    };
    MEMOPT_RETURN_IF_ERROR(trade(
        [&](int64_t) -> Part<const char *> { return {mine + offset, getCount(rank)}; },
        [&](int64_t other) -> Part<char *> { return {to + getBegin(other), getCount(other)}; }));
  }
  return Status::ok();
}

Status MessageCommunicator::allReduce(DType type, const char *from, char *to, int64_t count,
                                      ThreadPool &pool) {
  int64_t size = getByteSize(type), line = 64 / size;
  if (count * size > mostExchangedBytes) {
    int64_t piece = (count + ranks * line - 1) / (ranks * line) * line,
            begin = std::min(count, rank * piece) * size;
    MEMOPT_RETURN_IF_ERROR(reducePieces(type, from, count, piece, to + begin, pool));
    return gatherPieces(to + begin, piece * size, to, count * size);
  }
  MEMOPT_RETURN_IF_ERROR(trade([&](int64_t) -> Part<const char *> { return {from, count * size}; },
                               [&](int64_t other) -> Part<char *> {
                                 return {staging.data() + other * chunkBytes, count * size};
                               }));
  addRanks(
      type, ranks, [this, from](int64_t other) { return getTerm(other, from); }, 0, count, to,
      pool);
  return Status::ok();
}

Status MessageCommunicator::reduceScatter(DType type, const char *from, int64_t count, char *to,
                                          int64_t shard, ThreadPool &pool) {
  int64_t size = getByteSize(type), begin = std::min(count, rank * shard),
          real = std::min(count - begin, shard);
  MEMOPT_RETURN_IF_ERROR(reducePieces(type, from, count, shard, to, pool));
  std::memset(to + real * size, 0, size_t((shard - real) * size));
  return Status::ok();
}

Status MessageCommunicator::allGather(const char *from, int64_t shardBytes, char *to, int64_t bytes,
                                      ThreadPool &pool) {
  int64_t begin = std::min(bytes, rank * shardBytes), own = std::min(bytes - begin, shardBytes);
  constexpr int64_t grain = 256 << 10;
  pool.parallelFor(own, grain, [&](int64_t low, int64_t high) {
    std::memcpy(to + begin + low, from + low, size_t(high - low));
  });
  return gatherPieces(from, shardBytes, to, bytes);
}

int64_t MessageCommunicator::getPieceBytes() const { return mostMessageBytes; }

Status MessageCommunicator::barrier() { return exchange(nullptr, 0, nullptr); }

Status MessageCommunicator::exchange(const void *mine, int64_t bytes, void *all) {
  if (bytes < 0 || bytes > mostMessageBytes)
    return badInput("ranks exchange at most " + std::to_string(mostMessageBytes) + " bytes, not " +
                    std::to_string(bytes));
  auto *to = static_cast<char *>(all);
  if (bytes)
    std::memcpy(to + rank * bytes, mine, size_t(bytes));
  return trade(
      [&](int64_t) -> Part<const char *> { return {static_cast<const char *>(mine), bytes}; },
      [&](int64_t other) -> Part<char *> { return {bytes ? to + other * bytes : nullptr, bytes}; });
}

Status MessageCommunicator::collect(const char *mine, int64_t bytes, char *all) {
  if (rank == 0)
    std::memcpy(all, mine, size_t(bytes));
  for (int64_t begin = 0; begin < bytes; begin += Messages::mostBytes) {
    int64_t count = std::min(Messages::mostBytes, bytes - begin);
    MEMOPT_RETURN_IF_ERROR(trade(
        [&](int64_t other) -> Part<const char *> {
          return {mine + begin, other == 0 ? count : -1};
        },
        [&](int64_t other) -> Part<char *> {
          return {rank == 0 ? all + other * bytes + begin : nullptr, rank == 0 ? count : -1};
        }));
  }
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Leaving
//===----------------------------------------------------------------------===//

void MessageCommunicator::leave(const Status &reason) {
  hearGoodbyes();
  if (hasLeft)
    return;
  hasLeft = true;
  Goodbye &mine = goodbyes[size_t(rank)];
  mine.origin = rank;
  mine.code = int32_t(reason.getCode());
  std::strncpy(mine.reason, reason.getMessage().c_str(), sizeof mine.reason - 1);
  sayGoodbye();
}

/// Failures to do so are not looked at: who does not hear it waits no longer than anybody does.
void MessageCommunicator::sayGoodbye() {
  std::lock_guard<std::mutex> mine(turn);
  for (int64_t other = 0; other < ranks; ++other)
    if (other != rank && waitForSign(other))
      (void)messages->send(Channel::Control, other,
                           reinterpret_cast<const char *>(&goodbyes[size_t(rank)]),
                           sizeof(Goodbye));
}

/// Whether nothing is on its way to a rank any more, after a moment at most.
bool MessageCommunicator::waitForSign(int64_t other) {
  for (Waiting waiting; isSignSending[size_t(other)]; rest(waiting.getSeconds())) {
    StatusOr<bool> sent = messages->hasSent(Channel::Control, other);
    isSignSending[size_t(other)] = sent.isOk() && !*sent;
    if (waiting.getSeconds() > 1)
      return false;
  }
  return true;
}

/// One sign at a time is on its way to each rank: who does not listen gets no more.
void MessageCommunicator::keepAlive() {
  std::lock_guard<std::mutex> mine(turn);
  for (int64_t other = 0; other < ranks && !hasLeft; ++other) {
    char &isSending = isSignSending[size_t(other)];
    if (other == rank)
      continue;
    if (isSending) {
      StatusOr<bool> sent = messages->hasSent(Channel::Control, other);
      isSending = sent.isOk() && !*sent;
    }
    if (!isSending)
      isSending =
          messages
              ->send(Channel::Control, other, reinterpret_cast<const char *>(&sign), sizeof sign)
              .isOk();
  }
}

/// Whether a rank's goodbye is there. What it says before, that it is at work, is counted.
bool MessageCommunicator::hasHeard(int64_t other) {
  std::lock_guard<std::mutex> mine(turn);
  for (;;) {
    StatusOr<bool> there = messages->hasReceived(Channel::Control, other);
    const Goodbye &heard = goodbyes[size_t(other)];
    if (!there.isOk() || !*there || heard.origin != noOrigin || heard.code != 0)
      return there.isOk() && *there;
    ++signs;
    if (!listenTo(other).isOk())
      return false;
  }
}

/// Takes over the first reason that comes from elsewhere.
void MessageCommunicator::hearGoodbyes() {
  for (size_t other = 0; missing && other < size_t(ranks); ++other) {
    if (int64_t(other) == rank || hasSaid[other] || !hasHeard(int64_t(other)))
      continue;
    hasSaid[other] = true;
    --missing;
    Goodbye &heard = goodbyes[other];
    heard.reason[sizeof heard.reason - 1] = 0;
    if (heard.origin == int64_t(other) && heard.code == 0) {
      isDone[other] = true;
      continue;
    }
    if (heard.origin < 0 || heard.origin >= ranks || heard.code < 1 || heard.code > 255)
      heard = Goodbye{int64_t(other), int32_t(StatusCode::Environment), "left without a reason"};
    if (hasLeft.exchange(true))
      continue;
    goodbyes[size_t(rank)] = heard;
    sayGoodbye();
  }
}

Status MessageCommunicator::getReason() const {
  const Goodbye &mine = goodbyes[size_t(rank)];
  if (!*mine.reason) // it has been said
    return Status(StatusCode(mine.code), "");
  return Status(StatusCode(mine.code), "rank " + std::to_string(mine.origin) + ": " + mine.reason);
}

/// Waits until everybody has said goodbye and nothing is on the way any more, for a moment at most.
/// Afterwards nothing moves: buffers of what is still to be sent may be gone.
void MessageCommunicator::settle() {
  if (std::exchange(hasSettled, true))
    return;
  double limit = std::min(graceSeconds, seconds);
  for (Patience patience(limit); !isSettled;) {
    hearGoodbyes();
    StatusOr<bool> done = advance();
    isSettled = missing == 0 && done.isOk() && *done;
    // Somebody may leave a checkpoint before it goes.
    bool isOver = patience.isOver(countSigns());
    double waited = patience.getWaited();
    if (isOver || waited > limit)
      return;
    // What somebody takes no more never leaves.
    constexpr double last = 0.2;
    if (missing == 0 && std::count(isReceiving.begin(), isReceiving.end(), 1) == 0)
      limit = std::min(limit, waited + last);
    rest(waited);
  }
}

/// Of several ranks that left on their own account, the same one everywhere.
const MessageCommunicator::Goodbye &MessageCommunicator::findFirst() const {
  const Goodbye *first = &goodbyes[size_t(rank)];
  for (size_t other = 0; other < size_t(ranks); ++other)
    if (hasSaid[other] && !isDone[other] && goodbyes[other].origin < first->origin)
      first = &goodbyes[other];
  return *first;
}

Status MessageCommunicator::conclude(const Status &own) {
  if (own.isOk() && barrier().isOk())
    return Status::ok();
  leave(own);
  settle();
  const Goodbye &first = findFirst();
  return first.origin == rank ? getReason() : Status(StatusCode(first.code), "");
}

void MessageCommunicator::end() {
  if (!hasLeft || isSettled)
    return messages->finish();
  // Whoever has something to say does so first, and ends all.
  if (findFirst().origin != rank && messages->abortsAll())
    std::this_thread::sleep_for(std::chrono::duration<double>(graceSeconds + 1));
  messages->abort(findFirst().code);
}

bool MessageCommunicator::close() {
  hearGoodbyes();
  if (hasLeft) {
    settle();
    return isSettled;
  }
  goodbyes[size_t(rank)].origin = rank;
  sayGoodbye();
  // What the transport has not taken at once it takes now.
  for (Waiting waiting; waiting.getSeconds() < graceSeconds; rest(waiting.getSeconds())) {
    std::lock_guard<std::mutex> mine(turn);
    bool areSent = true;
    for (int64_t other = 0; other < ranks; ++other) {
      StatusOr<bool> sent =
          other == rank ? StatusOr<bool>(true) : messages->hasSent(Channel::Control, other);
      areSent &= !sent.isOk() || *sent;
    }
    if (areSent)
      return true;
  }
  return false;
}
