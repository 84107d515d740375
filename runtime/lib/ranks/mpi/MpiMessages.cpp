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
// any C++17 compiler against the MPI that starts the processes:
//
//   mpicxx -std=c++17 -shared -fPIC -I runtime/include runtime/lib/ranks/mpi/MpiMessages.cpp
//       -o libmemopt-mpi.so
//
//===----------------------------------------------------------------------===//

// The C interface alone: that of C++ is gone from newer releases.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include "memopt-runtime/ranks/Messages.h"
#include <cstdlib>
#include <mpi.h>
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
class MpiMessages final : public Messages {
public:
  MpiMessages(MPI_Comm communicator, int rank, int ranks)
      : Messages(rank, ranks), communicator(communicator) {
    for (std::vector<MPI_Request> *requests : {&receives[0], &receives[1], &sends[0], &sends[1]})
      requests->assign(size_t(ranks), MPI_REQUEST_NULL);
  }

  Status receive(Channel channel, int64_t from, char *to, int64_t bytes) override {
    return check(MPI_Irecv(to, int(bytes), MPI_BYTE, int(from), int(channel), communicator,
                           &receives[int(channel)][size_t(from)]),
                 "receiving");
  }
  StatusOr<bool> hasReceived(Channel channel, int64_t from) override {
    return test(receives[int(channel)][size_t(from)], "receiving");
  }
  Status send(Channel channel, int64_t to, const char *from, int64_t bytes) override {
    return check(MPI_Isend(from, int(bytes), MPI_BYTE, int(to), int(channel), communicator,
                           &sends[int(channel)][size_t(to)]),
                 "sending");
  }
  StatusOr<bool> hasSent(Channel channel, int64_t to) override {
    return test(sends[int(channel)][size_t(to)], "sending");
  }

  void cancelReceives() override {
    for (MPI_Request &request : receives[int(Channel::Data)])
      if (request != MPI_REQUEST_NULL)
        MPI_Cancel(&request);
  }

  void finish() override {
    // Those for goodbyes that nobody has said.
    for (MPI_Request &request : receives[int(Channel::Control)])
      if (request != MPI_REQUEST_NULL && MPI_Cancel(&request) == MPI_SUCCESS)
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Waitall(int(ranks), sends[int(Channel::Control)].data(), MPI_STATUSES_IGNORE);
    MPI_Comm_free(&communicator);
    MPI_Finalize();
  }
  void abort(int code) override { MPI_Abort(MPI_COMM_WORLD, code); }

private:
  static StatusOr<bool> test(MPI_Request &request, const char *doing) {
    int isDone = 0;
    MPI_Status facts;
    if (Status status = check(MPI_Test(&request, &isDone, &facts), doing); !status.isOk())
      return status;
    return isDone != 0;
  }

  MPI_Comm communicator;
  std::vector<MPI_Request> receives[2], sends[2]; ///< by channel and rank
};
} // namespace

/// Open MPI's TCP waits for an answer before it sends what is larger than 64 KiB, and the answer
/// stands in line behind what goes the other way: collectives then take twice as long. Chunks are
/// no longer than this. What the user has said stays.
static void sendAtOnce() { setenv("OMPI_MCA_btl_tcp_eager_limit", "1049600", /*overwrite=*/0); }

static StatusOr<Messages *> open() {
  int level = 0, rank = 0, ranks = 0;
  sendAtOnce();
  MEMOPT_RETURN_IF_ERROR(
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "starting"));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (level < MPI_THREAD_SERIALIZED)
    return environmentError("this MPI takes calls of one thread only");
  MPI_Comm own;
  MEMOPT_RETURN_IF_ERROR(check(MPI_Comm_dup(MPI_COMM_WORLD, &own), "starting"));
  MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  MPI_Comm_rank(own, &rank);
  MPI_Comm_size(own, &ranks);
  return new MpiMessages(own, rank, ranks);
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
