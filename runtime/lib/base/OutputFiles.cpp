//===- OutputFiles.cpp - writing files safely -----------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A path that a user gives for an output may lead anywhere: through links, to a device, to this
// process's own standard output. Replacing by rename is right for a regular file alone, and there
// at the end of all links. Temporary names are random and opened with O_EXCL and O_NOFOLLOW, so
// that in a folder shared with others nobody can have put a link in their place.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/base/Json.h"
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

using namespace memopt;

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

/// Letters that nobody can foresee.
static StatusOr<std::string> drawName() {
  unsigned char bytes[randomLetters / 2];
  if (::getrandom(bytes, sizeof bytes, 0) != ssize_t(sizeof bytes))
    return environmentError("the system gives no random bytes");
  std::string name;
  for (unsigned char byte : bytes)
    for (int digit : {byte >> 4, byte & 15})
      name += char(digit < 10 ? '0' + digit : 'a' + digit - 10);
  return name;
}

namespace {
/// Where the bytes for a path go.
struct OutputPlace {
  std::string path;    ///< with the links at its end followed
  struct stat facts{}; ///< of what is there
  bool isThere = false;
  int ownDescriptor = -1; ///< the path is a name of this open file of ours

  /// Whether a new file takes the place of what is there.
  bool isReplaced() const {
    return ownDescriptor < 0 && (!isThere || (S_ISREG(facts.st_mode) && !isMountPoint(path)));
  }
};
} // namespace

/// Follows the links at a path's end; those of /proc/self/fd are names of our own open files, which
/// share their position with us.
static StatusOr<OutputPlace> findOutput(const std::string &path) {
  OutputPlace place;
  place.path = path;
  for (int links = 0; links < 40; ++links) {
    place.isThere = ::lstat(place.path.c_str(), &place.facts) == 0;
    if (!place.isThere && errno != ENOENT)
      return environmentError(describeErrno("writing", path, errno));
    if (!place.isThere || !S_ISLNK(place.facts.st_mode))
      return place;
    std::string folder = getFolder(place.path);
    if (getRealPath(folder) == getRealPath("/proc/self/fd")) {
      place.ownDescriptor = std::atoi(place.path.c_str() + place.path.find_last_of('/') + 1);
      return place;
    }
    char target[PATH_MAX];
    ssize_t length = ::readlink(place.path.c_str(), target, sizeof target);
    if (length <= 0 || length == ssize_t(sizeof target))
      return environmentError(describeErrno("following the link", place.path, errno));
    std::string next(target, size_t(length));
    place.path = next[0] == '/' ? next : folder + "/" + next;
  }
  return environmentError(describeErrno("writing", path, ELOOP));
}

Descriptor memopt::openOwnFile(const std::string &path, int flags, unsigned mode) {
  return openUninterrupted(AT_FDCWD, path, flags | O_NOFOLLOW, mode);
}

StatusOr<Descriptor> memopt::createNewFile(const std::string &path) {
  Descriptor file = openOwnFile(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (file.get() < 0)
    return environmentError(describeErrno("creating", path, errno));
  return file;
}

StatusOr<std::string> memopt::createNewFolder(const std::string &prefix, unsigned mode) {
  MEMOPT_ASSIGN_OR_RETURN(std::string name, drawName());
  std::string path = prefix + name;
  if (::mkdir(path.c_str(), mode) != 0)
    return environmentError(describeErrno("creating folder", path, errno));
  return path;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// What cannot be replaced is opened as it is.
static StatusOr<Descriptor> openInPlace(const OutputPlace &place) {
  std::fflush(nullptr); // what was printed to the same file comes before
  Descriptor file(place.ownDescriptor >= 0
                      ? ::fcntl(place.ownDescriptor, F_DUPFD_CLOEXEC, 0)
                      : ::open(place.path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY));
  if (file.get() < 0)
    return environmentError(describeErrno("opening", place.path, errno));
  return file;
}

StatusOr<AtomicFileWriter> AtomicFileWriter::create(const std::string &path) {
  MEMOPT_ASSIGN_OR_RETURN(OutputPlace place, findOutput(path));
  if (!place.isReplaced()) {
    MEMOPT_ASSIGN_OR_RETURN(Descriptor file, openInPlace(place));
    return AtomicFileWriter(place.path, "", std::move(file));
  }
  if (place.isThere && ::faccessat(AT_FDCWD, place.path.c_str(), W_OK, AT_EACCESS) != 0)
    return environmentError(describeErrno("writing", place.path, errno));
  MEMOPT_ASSIGN_OR_RETURN(std::string name, drawName());
  std::string temporary = getFolder(place.path) + "/.memopt-writing-" + name;
  StatusOr<Descriptor> file = createNewFile(temporary);
  if (!file.isOk())
    return file.takeStatus().withContext(quote(path));
  if (place.isThere) {
    // No reason to fail: who may not give files away keeps them.
    (void)!::fchown(file->get(), place.facts.st_uid, place.facts.st_gid);
    (void)!::fchmod(file->get(), place.facts.st_mode & 0777);
  }
  return AtomicFileWriter(place.path, std::move(temporary), *std::move(file));
}

AtomicFileWriter::~AtomicFileWriter() {
  if (file.get() >= 0 && !temporary.empty())
    ::unlink(temporary.c_str());
}

/// Calls a system function that writes some of the bytes until all are written.
template <typename WriteSome>
static Status repeatWrites(const std::string &path, const void *data, size_t size, WriteSome some) {
  const char *next = static_cast<const char *>(data);
  for (size_t done = 0; done < size;) {
    ssize_t count = some(next + done, size - done, done);
    if (count < 0 && errno != EINTR)
      return environmentError(describeErrno("writing", path, errno));
    done += size_t(std::max<ssize_t>(0, count));
  }
  return Status::ok();
}

Status memopt::writeAll(const Descriptor &file, const std::string &path, const void *data,
                        size_t size) {
  return repeatWrites(path, data, size, [&](const char *bytes, size_t count, size_t) {
    return ::write(file.get(), bytes, count);
  });
}

Status AtomicFileWriter::write(const void *data, size_t size) {
  return writeAll(file, path, data, size);
}

Status memopt::writeAt(const Descriptor &file, const std::string &path, const void *data,
                       size_t size, int64_t offset) {
  return repeatWrites(path, data, size, [&](const char *bytes, size_t count, size_t done) {
    return ::pwrite(file.get(), bytes, count, off_t(offset) + off_t(done));
  });
}

Status memopt::reserveSpace(const Descriptor &file, const std::string &path, int64_t bytes) {
  int error = 0;
  while (bytes && ::fallocate(file.get(), 0, 0, off_t(bytes)) != 0 && (error = errno) == EINTR)
    error = 0;
  if (error == EOPNOTSUPP || error == ENOSYS)
    error = ::ftruncate(file.get(), off_t(bytes)) != 0 ? errno : 0;
  if (error)
    return environmentError(describeErrno("writing", path, error));
  return Status::ok();
}

Status memopt::syncAndClose(Descriptor file, const std::string &path) {
  int error = 0;
  while (::fsync(file.get()) != 0 && (error = errno) == EINTR)
    error = 0;
  if (error == EINVAL)
    error = 0; // pipes and devices, and file systems that have nothing to flush
  if (::close(file.release()) != 0 && !error)
    error = errno;
  if (error)
    return environmentError(describeErrno("writing", path, error));
  return Status::ok();
}

Status AtomicFileWriter::commit() {
  Status status = syncAndClose(std::move(file), path);
  if (temporary.empty())
    return status;
  if (status.isOk() && ::rename(temporary.c_str(), path.c_str()) != 0)
    status = environmentError(describeErrno("writing", path, errno));
  if (!status.isOk()) {
    ::unlink(temporary.c_str());
    return status;
  }
  return syncFolder(getFolder(path));
}

/// A device or a pipe is not opened: that may wait for a reader, or do something.
static Status checkInPlace(const OutputPlace &place) {
  int error = 0;
  if (place.ownDescriptor >= 0) {
    int flags = ::fcntl(place.ownDescriptor, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
      error = EBADF;
  } else if (S_ISDIR(place.facts.st_mode)) {
    error = EISDIR;
  } else if (::faccessat(AT_FDCWD, place.path.c_str(), W_OK, AT_EACCESS) != 0) {
    error = errno;
  }
  return error ? environmentError(describeErrno("writing", place.path, error)) : Status::ok();
}

Status memopt::checkWritable(const std::string &path) {
  MEMOPT_ASSIGN_OR_RETURN(OutputPlace place, findOutput(path));
  // Beside a file that is to be replaced its successor is made, and goes again.
  return place.isReplaced() ? AtomicFileWriter::create(path).takeStatus() : checkInPlace(place);
}

std::optional<int64_t> memopt::getFreeBytes(const std::string &folder) {
  struct statvfs facts{};
  if (::statvfs(folder.c_str(), &facts) != 0 || facts.f_blocks == 0)
    return std::nullopt;
  int64_t bytes;
  if (__builtin_mul_overflow(facts.f_bavail, facts.f_frsize, &bytes))
    return std::nullopt;
  return bytes;
}

/// Copies what two files do not share.
static Status copyBytes(const Descriptor &source, const std::string &from, const Descriptor &target,
                        const std::string &to) {
  std::vector<char> piece(size_t(4) << 20);
  for (;;) {
    ssize_t count = ::read(source.get(), piece.data(), piece.size());
    if (count == 0)
      return Status::ok();
    if (count < 0 && errno != EINTR)
      return environmentError(describeErrno("reading", from, errno));
    if (count > 0)
      MEMOPT_RETURN_IF_ERROR(writeAll(target, to, piece.data(), size_t(count)));
  }
}

Status memopt::copyToNewFile(const std::string &from, const std::string &to) {
  Descriptor source = openOwnFile(from, O_RDONLY, 0);
  struct stat facts{};
  if (source.get() < 0 || ::fstat(source.get(), &facts) != 0)
    return environmentError(describeErrno("opening", from, errno));
  MEMOPT_ASSIGN_OR_RETURN(Descriptor target, createNewFile(to));
  if (::ioctl(target.get(), FICLONE, source.get()) != 0) {
    MEMOPT_RETURN_IF_ERROR(reserveSpace(target, to, facts.st_size));
    MEMOPT_RETURN_IF_ERROR(copyBytes(source, from, target, to));
  }
  return syncAndClose(std::move(target), to);
}

Status memopt::writeFileAtomically(const std::string &path, std::string_view content) {
  MEMOPT_ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::create(path));
  MEMOPT_RETURN_IF_ERROR(writer.write(content.data(), content.size()));
  return writer.commit();
}

Status memopt::syncFolder(const std::string &path) {
  Descriptor folder = openUninterrupted(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
  // A folder may be for writing alone; its entries then reach the disk in their own time.
  if (folder.get() < 0)
    return errno == EACCES ? Status::ok()
                           : environmentError(describeErrno("opening folder", path, errno));
  return syncAndClose(std::move(folder), path);
}
