//===- MpiMessages.cpp - messages over MPI --------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Point to point alone: such calls allocate nothing, and what is summed in which order stays ours.
// They go through a communicator of their own. Errors are returned where MPI lets them be.
//
// This is a library of its own, for each MPI has a binary interface of its own. It is built with
// any C++17 compiler against the MPI that starts the processes (tools/package/build-plugin.sh).
//
//===----------------------------------------------------------------------===//

// The C interface alone: that of C++ is gone from newer releases.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include "memopt-runtime/ranks/Messages.h"
#include <cstdlib>
#include <mpi.h>
#include <mutex>
#include <unistd.h>
#include <vector>

using namespace memopt;

static Status check(int code, const char *doing) {
  if (code == MPI_SUCCESS)
    return Status::ok();
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return environmentError("MPI, " + std::string(doing) + ": " + std::string(text, size_t(length)));
}

namespace {
/// A process is part of MPI once, and may open messages several times, as all ranks do.
struct Membership {
  MPI_Comm communicator = MPI_COMM_NULL;
  int opened = 0, open = 0;
  bool isOurs = false; ///< to be ended here
  pid_t process = 0;
  std::mutex turn; ///< MPI takes calls of one thread at a time; those of each object already are

  void end() {
    if (isOurs)
      MPI_Finalize();
    isOurs = false;
  }
};
Membership membership;

class MpiMessages final : public Messages {
public:
  MpiMessages(int rank, int ranks)
      : Messages(rank, ranks), communicator(membership.communicator),
        firstTag(membership.opened++ % mostOpened * channels) {
    ++membership.open;
    for (std::vector<MPI_Request> *requests : {&receives[0], &receives[1], &sends[0], &sends[1]})
      requests->assign(size_t(ranks), MPI_REQUEST_NULL);
  }
  ~MpiMessages() override { close(); }

  Status receive(Channel channel, int64_t from, char *to, int64_t bytes) override {
    std::lock_guard<std::mutex> mine(membership.turn);
    return check(MPI_Irecv(to, int(bytes), MPI_BYTE, int(from), getTag(channel), communicator,
                           &receives[int(channel)][size_t(from)]),
                 "receiving");
  }
  StatusOr<bool> hasReceived(Channel channel, int64_t from) override {
    return test(receives[int(channel)][size_t(from)], "receiving");
  }
  Status send(Channel channel, int64_t to, const char *from, int64_t bytes) override {
    std::lock_guard<std::mutex> mine(membership.turn);
    return check(MPI_Isend(from, int(bytes), MPI_BYTE, int(to), getTag(channel), communicator,
                           &sends[int(channel)][size_t(to)]),
                 "sending");
  }
  StatusOr<bool> hasSent(Channel channel, int64_t to) override {
    return test(sends[int(channel)][size_t(to)], "sending");
  }

  void cancelReceives() override {
    std::lock_guard<std::mutex> mine(membership.turn);
    for (MPI_Request &request : receives[int(Channel::Data)])
      if (request != MPI_REQUEST_NULL)
        MPI_Cancel(&request);
  }

  void finish() override {
    close();
    membership.end();
  }
  void abort(int code) override { MPI_Abort(MPI_COMM_WORLD, code); }

private:
  static constexpr int channels = 2;
  /// Tags go to 32,767 at least.
  static constexpr int mostOpened = 32'768 / channels;

  int getTag(Channel channel) const { return firstTag + int(channel); }
  /// Takes back what nobody has sent, goodbyes too.
  void close() {
    if (!isOpen)
      return;
    std::lock_guard<std::mutex> mine(membership.turn);
    isOpen = false;
    --membership.open;
    for (std::vector<MPI_Request> &requests : receives)
      for (MPI_Request &request : requests)
        if (request != MPI_REQUEST_NULL && MPI_Cancel(&request) == MPI_SUCCESS)
          MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Waitall(int(ranks), sends[int(Channel::Control)].data(), MPI_STATUSES_IGNORE);
  }
  static StatusOr<bool> test(MPI_Request &request, const char *doing) {
    std::lock_guard<std::mutex> mine(membership.turn);
    int isDone = 0;
    MPI_Status facts;
    if (Status status = check(MPI_Test(&request, &isDone, &facts), doing); !status.isOk())
      return status;
    return isDone != 0;
  }

  const MPI_Comm communicator;
  const int firstTag;
  bool isOpen = true;
  std::vector<MPI_Request> receives[2], sends[2]; ///< by channel and rank
};
} // namespace

/// Open MPI's TCP waits for an answer before it sends what is larger than 64 KiB, and the answer
/// stands in line behind what goes the other way: collectives then take twice as long. Chunks are
/// no longer than this. What the user has said stays.
static void sendAtOnce() { setenv("OMPI_MCA_btl_tcp_eager_limit", "1049600", /*overwrite=*/0); }

/// A process that stays without ending its part is taken for dead by its launcher. Where messages
/// are still open then, they could not be closed, and the others may wait for this rank.
static void endAtExit() {
  if (membership.process != ::getpid() || !membership.isOurs)
    return;
  if (membership.open)
    MPI_Abort(MPI_COMM_WORLD, int(StatusCode::Environment));
  membership.end();
}

static Status join() {
  int level = 0, isThere = 0;
  MPI_Initialized(&isThere);
  if (isThere)
    MPI_Query_thread(&level);
  else
    MEMOPT_RETURN_IF_ERROR(
        check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "starting"));
  membership.isOurs = !isThere;
  membership.process = ::getpid();
  std::atexit(endAtExit);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (level < MPI_THREAD_SERIALIZED)
    return environmentError("this MPI takes calls of one thread only");
  MPI_Comm own;
  MEMOPT_RETURN_IF_ERROR(check(MPI_Comm_dup(MPI_COMM_WORLD, &own), "starting"));
  MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  membership.communicator = own;
  return Status::ok();
}

static StatusOr<Messages *> open() {
  int rank = 0, ranks = 0;
  sendAtOnce();
  if (membership.communicator == MPI_COMM_NULL)
    MEMOPT_RETURN_IF_ERROR(join());
  MPI_Comm_rank(membership.communicator, &rank);
  MPI_Comm_size(membership.communicator, &ranks);
  return new MpiMessages(rank, ranks);
}

extern "C" Messages *memoptOpenMessages(int64_t version, Status *failure) {
  if (version != messagesVersion)
    return nullptr;
  StatusOr<Messages *> opened = open();
  if (opened.isOk())
    return *opened;
  *failure = opened.takeStatus();
  return nullptr;
}
