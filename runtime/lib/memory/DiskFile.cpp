//===- DiskFile.cpp - room on a disk --------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/memory/DiskFile.h"
#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/base/Json.h"
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <liburing.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

using namespace memopt;

/// From 256 KiB at a depth of two up a disk is at its speed; larger pieces cost less of a
/// processor.
static constexpr int64_t pieceBytes = 1 << 20;
static constexpr unsigned depth = 8;

//===----------------------------------------------------------------------===//
// io_uring
//===----------------------------------------------------------------------===//

/// Keeps several pieces in flight.
class DiskFile::Ring {
public:
  /// A negative errno where the kernel forbids it.
  int open() { return isOpen ? 0 : accept(::io_uring_queue_init(depth, &ring, 0)); }
  ~Ring() {
    if (isOpen)
      ::io_uring_queue_exit(&ring);
  }

  Status move(const DiskFile &file, bool isWrite, Piece whole);

private:
  int accept(int result) {
    isOpen = result == 0;
    return result;
  }
  void submit(const DiskFile &file, bool isWrite, unsigned slot);
  /// Takes one answer; the slot's piece is what is left.
  Status complete(const DiskFile &file, bool isWrite, unsigned &slot);

  io_uring ring{};
  bool isOpen = false;
  std::array<Piece, depth> pieces{};
};

void DiskFile::Ring::submit(const DiskFile &file, bool isWrite, unsigned slot) {
  const Piece &piece = pieces[slot];
  io_uring_sqe *entry =
      ::io_uring_get_sqe(&ring); // there is one: no more than `depth` are in flight
  if (isWrite)
    ::io_uring_prep_write(entry, file.descriptor, piece.memory, unsigned(piece.bytes),
                          uint64_t(piece.offset));
  else
    ::io_uring_prep_read(entry, file.descriptor, piece.memory, unsigned(piece.bytes),
                         uint64_t(piece.offset));
  ::io_uring_sqe_set_data64(entry, slot);
}

Status DiskFile::Ring::complete(const DiskFile &file, bool isWrite, unsigned &slot) {
  io_uring_cqe *answer = nullptr;
  int code;
  do
    code = ::io_uring_submit_and_wait(&ring, 1);
  while (code == -EINTR || code == -EAGAIN);
  if (code >= 0)
    do
      code = ::io_uring_wait_cqe(&ring, &answer);
    while (code == -EINTR || code == -EAGAIN);
  if (code < 0)
    return environmentError("io_uring: " + std::string(std::strerror(-code)));
  slot = unsigned(::io_uring_cqe_get_data64(answer));
  int result = answer->res;
  ::io_uring_cqe_seen(&ring, answer);
  Piece &piece = pieces[slot];
  if (result == -EINTR || result == -EAGAIN)
    return Status::ok();
  if (result <= 0)
    return file.describeFailure(isWrite, piece, result);
  piece.memory += result;
  piece.offset += result;
  piece.bytes -= result;
  return Status::ok();
}

/// After a failure nothing more is begun, and what is in flight is waited for.
Status DiskFile::Ring::move(const DiskFile &file, bool isWrite, Piece whole) {
  Status failure;
  unsigned flying = 0, used = 0;
  auto begin = [&](unsigned free) {
    int64_t bytes = std::min(pieceBytes, whole.bytes);
    pieces[free] = {whole.memory, whole.offset, bytes};
    whole = {whole.memory + bytes, whole.offset + bytes, whole.bytes - bytes};
    submit(file, isWrite, free);
    ++flying;
  };
  while (used < depth && whole.bytes)
    begin(used++);
  while (flying) {
    unsigned slot = depth;
    Status status = complete(file, isWrite, slot);
    if (slot == depth)
      return status; // the ring itself is broken
    --flying;
    if (!status.isOk() && failure.isOk())
      failure = std::move(status);
    if (!failure.isOk())
      continue;
    if (pieces[slot].bytes) {
      submit(file, isWrite, slot);
      ++flying;
    } else if (whole.bytes) {
      begin(slot);
    }
  }
  return failure;
}

//===----------------------------------------------------------------------===//
// The file
//===----------------------------------------------------------------------===//

DiskFile::DiskFile(std::string folder) : folder(std::move(folder)) {}

DiskFile::~DiskFile() {
  ring.reset();
  if (descriptor >= 0)
    ::close(descriptor);
}

StatusOr<std::unique_ptr<DiskFile>> DiskFile::create(const std::string &folder, int64_t bytes,
                                                     DiskFileLimits limits) {
  std::unique_ptr<DiskFile> file(new DiskFile(folder));
  MEMOPT_RETURN_IF_ERROR(file->open(limits.hasDirect));
  MEMOPT_RETURN_IF_ERROR(file->takeRoom(bytes, limits.hasFallocate));
  file->ring = std::make_unique<Ring>();
  int code = limits.hasRing ? file->ring->open() : -ENOSYS;
  if (code == 0)
    return file;
  file->ring.reset();
  file->notices.push_back("io_uring is not to be had (" + std::string(std::strerror(-code)) +
                          "): the file in " + quote(folder) +
                          " is read and written piece by piece by one thread");
  return file;
}

/// Without a name where the file system can do that, else the name is taken away at once. Direct
/// transfers are asked for afterwards: a file system that refuses them at the opening may have made
/// the file by then.
Status DiskFile::open(bool isDirect) {
  descriptor = openUninterrupted(AT_FDCWD, folder, O_TMPFILE | O_RDWR, 0600).release();
  if (descriptor < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    std::string path = folder + "/memopt-XXXXXX";
    descriptor = ::mkostemp(path.data(), O_CLOEXEC);
    if (descriptor >= 0)
      ::unlink(path.c_str());
  }
  if (descriptor < 0)
    return environmentError(describeErrno("making a file in folder", folder, errno) +
                            "; --disk=DIR:N names a folder that exists and may be written");
  if (!isDirect || ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_DIRECT) != 0)
    notices.push_back("the file system of " + quote(folder) +
                      " refuses direct transfers: what lies there goes through the system's "
                      "cache, which takes memory beside the plan's");
  return Status::ok();
}

/// Takes room by writing all of it, in blocks that direct transfers can be made of; an errno, or 0.
int DiskFile::writeZeros(int64_t bytes) {
  std::unique_ptr<char, decltype(&std::free)> zeros(
      static_cast<char *>(std::aligned_alloc(4096, size_t(pieceBytes))), &std::free);
  if (!zeros)
    return ENOMEM;
  std::memset(zeros.get(), 0, size_t(pieceBytes));
  for (int64_t offset = 0; offset < bytes;) {
    ssize_t written =
        ::pwrite(descriptor, zeros.get(), size_t(std::min(pieceBytes, bytes - offset)), offset);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return written < 0 ? errno : ENOSPC;
    offset += written;
  }
  return 0;
}

/// A file system that cannot take room beforehand (FAT, NFS before 4.2) gets it by being written:
/// what `ftruncate` would promise is none. The C library would do so byte by byte, which no direct
/// transfer is.
Status DiskFile::takeRoom(int64_t bytes, bool hasFallocate) {
  int error;
  do
    error = !hasFallocate ? EOPNOTSUPP : ::fallocate(descriptor, 0, 0, bytes) == 0 ? 0 : errno;
  while (error == EINTR);
  if (error == EOPNOTSUPP || error == ENOSYS)
    error = writeZeros(bytes);
  if (error == 0)
    return Status::ok();
  struct statvfs room{};
  std::string available;
  if (::fstatvfs(descriptor, &room) == 0)
    available = ", which has " + std::to_string(uint64_t(room.f_bavail) * room.f_frsize) + " free";
  return environmentError("taking " + std::to_string(bytes) + " bytes of disk in " + quote(folder) +
                          available + ": " + std::strerror(error) +
                          "; make room, or name another folder with --disk=DIR:N");
}

//===----------------------------------------------------------------------===//
// Transfers
//===----------------------------------------------------------------------===//

/// `result`: a negative errno, or 0 where the file ended.
Status DiskFile::describeFailure(bool isWrite, const Piece &piece, int64_t result) const {
  return environmentError(std::string(isWrite ? "writing " : "reading ") +
                          std::to_string(piece.bytes) + " bytes at offset " +
                          std::to_string(piece.offset) + " of the file in " + quote(folder) + ": " +
                          (result ? std::strerror(int(-result)) : "it ends there"));
}

Status DiskFile::moveInOrder(bool isWrite, Piece piece) {
  while (piece.bytes) {
    auto bytes = size_t(std::min(pieceBytes, piece.bytes));
    ssize_t moved = isWrite ? ::pwrite(descriptor, piece.memory, bytes, piece.offset)
                            : ::pread(descriptor, piece.memory, bytes, piece.offset);
    if (moved < 0 && errno == EINTR)
      continue;
    if (moved <= 0)
      return describeFailure(isWrite, piece, moved < 0 ? -errno : 0);
    piece = {piece.memory + moved, piece.offset + moved, piece.bytes - moved};
  }
  return Status::ok();
}

Status DiskFile::move(bool isWrite, Piece whole) {
  return ring ? ring->move(*this, isWrite, whole) : moveInOrder(isWrite, whole);
}

Status DiskFile::read(int64_t offset, char *to, int64_t bytes) {
  return move(false, {to, offset, bytes});
}

Status DiskFile::write(int64_t offset, const char *from, int64_t bytes) {
  return move(true, {const_cast<char *>(from), offset, bytes}); // it is only read
}
