//===- FakeNccl.cpp - an NCCL that sends nothing --------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Calls are in progress for a while, as those of a communicator that does not block are. An answer
// that a test wants is given from then on.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/Nccl.h"
#include <cstdio>
#include <cstring>

using namespace memopt::cuda;

static std::string log;
static int asyncError = 0, inProgress = 0, version = 23203;
static bool isStuck = false;

template <typename... Arguments> static int note(const char *format, Arguments... arguments) {
  char text[256];
  std::snprintf(text, sizeof text, format, arguments...);
  log += std::string(text) + "\n";
  inProgress = 2;
  return nccl::IN_PROGRESS;
}

/// As texts have it: an address, or how far behind an address that a test knows.
static unsigned long long toNumber(const void *address) {
  return reinterpret_cast<unsigned long long>(address);
}

extern "C" {

/// What was noted since the last call.
const char *fakeNcclTakeLog() {
  static std::string taken;
  taken = std::move(log);
  log.clear();
  return taken.c_str();
}
void fakeNcclSetError(int result) { asyncError = result; }
/// Whether what is in progress stays so, as if other ranks did not do the same.
void fakeNcclSetStuck(bool stuck) { isStuck = stuck; }
void fakeNcclSetVersion(int number) { version = number; }

const char *ncclGetErrorString(int) { return "this is a fake"; }
int ncclGetVersion(int *number) {
  *number = version;
  return 0;
}
int ncclGetUniqueId(NcclUniqueId *id) {
  std::strcpy(id->bytes, "the first rank's");
  return 0;
}
int ncclCommInitRankConfig(NcclComm *communicator, int ranks, NcclUniqueId id, int rank,
                           NcclConfig *config) {
  *communicator = reinterpret_cast<NcclComm>(0x9000);
  return note("init %d of %d with %s, version %u, blocking %d, at most %d blocks", rank, ranks,
              id.bytes, config->version, config->blocking, config->mostBlocks);
}
int ncclCommGetAsyncError(NcclComm, int *result) {
  *result = asyncError ? asyncError : inProgress > 0 ? nccl::IN_PROGRESS : nccl::SUCCESS;
  inProgress -= inProgress > 0 && !isStuck;
  return 0;
}
int ncclCommFinalize(NcclComm) { return note("finalize"); }
int ncclCommDestroy(NcclComm) { return note("destroy"); }
int ncclCommAbort(NcclComm) { return note("abort"); }
int ncclCommRegister(NcclComm, void *memory, size_t bytes, void **handle) {
  *handle = memory;
  return note("register %zu", bytes);
}
int ncclCommDeregister(NcclComm, void *) { return note("deregister"); }
int ncclCommMemStats(NcclComm, int statistic, uint64_t *bytes) {
  *bytes = statistic == nccl::MEMORY_TOTAL ? 4096 : 1;
  return 0;
}
int ncclGroupStart() { return note("group"); }
int ncclGroupEnd() { return note("end"); }
int ncclSend(const void *from, size_t count, int type, int peer, NcclComm, CUstream) {
  return note("send 0x%llx %zu of type %d to %d", toNumber(from), count, type, peer);
}
int ncclRecv(void *to, size_t count, int type, int peer, NcclComm, CUstream) {
  return note("receive 0x%llx %zu of type %d from %d", toNumber(to), count, type, peer);
}
int ncclAllGather(const void *from, void *to, size_t count, int type, NcclComm, CUstream) {
  return note("all_gather 0x%llx to 0x%llx %zu of type %d", toNumber(from), toNumber(to), count,
              type);
}
int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, NcclComm,
                  CUstream) {
  return note("all_reduce 0x%llx to 0x%llx %zu of type %d by %d", toNumber(from), toNumber(to),
              count, type, operation);
}
int ncclReduceScatter(const void *from, void *to, size_t count, int type, int operation, NcclComm,
                      CUstream) {
  return note("reduce_scatter 0x%llx to 0x%llx %zu of type %d by %d", toNumber(from), toNumber(to),
              count, type, operation);
}
}
