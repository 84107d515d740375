//===- Messages.h - bytes from rank to rank ---------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What carries bytes between processes that share no memory: one that is sent to by another, and no
// more. Sums, their order, meetings and time limits are MessageCommunicator's.
//
// Implementations are plugins, for MPI has no binary interface in common: one is built against the
// MPI at hand and loaded where ranks need it. A plugin needs this header and Status.h alone.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_RANKS_MESSAGES_H
#define MEMOPT_RUNTIME_RANKS_MESSAGES_H

#include "memopt-runtime/base/Status.h"
#include <cstdint>

namespace memopt {

/// One rank's end. Threads use it one at a time. A channel holds at most one message in progress
/// from, and one to, each other rank; messages of one channel between two ranks arrive in the order
/// in which they were sent, and fill what was made ready for them exactly. Nothing waits, and
/// nothing but the failures allocates.
class Messages {
public:
  enum class Channel { Data, Control };
  /// What a message has at most.
  static constexpr int64_t mostBytes = int64_t(1) << 30;

  virtual ~Messages() = default;

  int64_t getRank() const { return rank; }
  int64_t getRanks() const { return ranks; }

  /// Makes room for the next message of a rank. The bytes stay in place until it is there.
  virtual Status receive(Channel channel, int64_t from, char *to, int64_t bytes) = 0;
  virtual StatusOr<bool> hasReceived(Channel channel, int64_t from) = 0;

  /// Sends what must stay as it is until it is gone.
  virtual Status send(Channel channel, int64_t to, const char *from, int64_t bytes) = 0;
  virtual StatusOr<bool> hasSent(Channel channel, int64_t to) = 0;

  /// Takes back the room for data that has not begun to arrive; hasReceived() is true then, too.
  virtual void cancelReceives() = 0;

  /// The end of an orderly run, to be called by all ranks: waits for them.
  virtual void finish() = 0;
  /// Ends the processes of all ranks, this one too, with an exit code.
  virtual void abort(int code) = 0;
  /// Whether it does; otherwise this process alone, and the others see that.
  virtual bool abortsAll() const { return true; }

protected:
  Messages(int64_t rank, int64_t ranks) : rank(rank), ranks(ranks) {}

  const int64_t rank, ranks;
};

/// Counts changes of the class above: a plugin of another version is refused.
constexpr int64_t messagesVersion = 2;

/// What a plugin exports under this name: a new object, or null and a failure. Null without one: it
/// was built for another version.
constexpr const char *messagesFactory = "memoptOpenMessages";
using MessagesFactory = Messages *(*)(int64_t version, Status *failure);

} // namespace memopt

#endif // MEMOPT_RUNTIME_RANKS_MESSAGES_H
