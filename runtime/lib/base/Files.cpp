//===- Files.cpp - reading and writing files safely -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Names and reading; writing is in OutputFiles.cpp.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/base/Json.h"
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zlib.h>

using namespace memopt;

std::string memopt::describeErrno(const std::string &doing, const std::string &path, int error) {
  return doing + " " + quote(path) + ": " + std::strerror(error);
}

/// A failure to open or read: the user's, unless the machine ran out of something.
static Status explainReading(const std::string &doing, const std::string &path, int error) {
  static const int ofTheMachine[] = {EMFILE, ENFILE, ENOMEM, EIO, ESTALE};
  bool isMachine =
      std::find(std::begin(ofTheMachine), std::end(ofTheMachine), error) != std::end(ofTheMachine);
  if (error == EINTR)
    return Status(StatusCode::Cancelled, "stopped while " + doing + " " + quote(path));
  return Status(isMachine ? StatusCode::Environment : StatusCode::BadInput,
                describeErrno(doing, path, error));
}

Descriptor::~Descriptor() {
  if (number >= 0)
    ::close(number);
}

bool memopt::fileExists(const std::string &path) {
  struct stat facts;
  return ::stat(path.c_str(), &facts) == 0;
}

bool memopt::isFolder(const std::string &path) {
  struct stat facts;
  return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

bool memopt::isMountPoint(const std::string &path) {
  struct statx facts;
  return ::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, 0, &facts) == 0 &&
         facts.stx_attributes & STATX_ATTR_MOUNT_ROOT;
}

std::string memopt::getRealPath(const std::string &path) {
  std::unique_ptr<char, void (*)(void *)> real(::realpath(path.c_str(), nullptr), std::free);
  return real ? real.get() : "";
}

std::string memopt::getFolder(const std::string &path) {
  size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

StatusOr<std::vector<std::string>> memopt::listFolder(const std::string &path) {
  DIR *folder = ::opendir(path.c_str());
  if (!folder)
    return explainReading("reading folder", path, errno);
  std::vector<std::string> names;
  while (const dirent *entry = ::readdir(folder))
    if (std::string name = entry->d_name; name != "." && name != "..")
      names.push_back(std::move(name));
  ::closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

Descriptor memopt::openUninterrupted(int folder, const std::string &path, int flags,
                                     unsigned mode) {
  int file;
  do
    file = ::openat(folder, path.c_str(), flags | O_CLOEXEC, mode);
  while (file < 0 && errno == EINTR);
  return Descriptor(file);
}

/// Never waits: a pipe without a writer would block.
StatusOr<InputFile> InputFile::openIn(int folder, const std::string &name,
                                      const std::string &path) {
  InputFile result;
  result.path = path;
  result.file = openUninterrupted(folder, name, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  struct stat facts;
  if (result.file.get() < 0 || ::fstat(result.file.get(), &facts) != 0)
    return explainReading("opening", path, errno);
  if (!S_ISREG(facts.st_mode))
    return badInput("opening " + quote(path) + ": not a regular file");
  result.bytes = uint64_t(facts.st_size);
  return result;
}

StatusOr<InputFile> InputFile::open(const std::string &path) {
  return openIn(AT_FDCWD, path, path);
}

Status InputFile::read(uint64_t begin, void *target, size_t size) const {
  for (size_t done = 0; done < size;) {
    ssize_t count =
        ::pread(file.get(), static_cast<char *>(target) + done, size - done, off_t(begin + done));
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return explainReading("reading", path, errno);
    if (count == 0)
      return badInput("reading " + quote(path) + ": it became shorter meanwhile");
    done += size_t(count);
  }
  return Status::ok();
}

StatusOr<InputFile> InputFile::duplicate() const {
  InputFile copy;
  copy.path = path;
  copy.bytes = bytes;
  copy.file = Descriptor(::fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
  if (copy.file.get() < 0)
    return explainReading("opening", path, errno);
  return copy;
}

StatusOr<std::string> InputFile::readWhole(size_t limit) const {
  if (bytes > limit)
    return badInput("reading " + quote(path) + ": " + std::to_string(bytes) + " bytes, at most " +
                    std::to_string(limit) + " are allowed");
  std::string content(size_t(bytes), '\0');
  MEMOPT_RETURN_IF_ERROR(read(0, content.data(), content.size()));
  return content;
}

StatusOr<std::string> memopt::readFile(const std::string &path, size_t limit) {
  MEMOPT_ASSIGN_OR_RETURN(InputFile file, InputFile::open(path));
  return file.readWhole(limit);
}

StatusOr<OpenFolder> OpenFolder::open(const std::string &path) {
  OpenFolder result;
  result.path = path;
  result.folder = openUninterrupted(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
  if (result.folder.get() < 0)
    return explainReading("opening folder", path, errno);
  return result;
}

StatusOr<InputFile> OpenFolder::openFile(const std::string &name) const {
  return InputFile::openIn(folder.get(), name, path + "/" + name);
}

bool OpenFolder::has(const std::string &name) const {
  struct stat facts;
  return ::fstatat(folder.get(), name.c_str(), &facts, 0) == 0;
}

bool OpenFolder::isCurrent() const {
  struct stat ours, there;
  return ::fstat(folder.get(), &ours) == 0 && ::stat(path.c_str(), &there) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

void OpenFolder::lock(bool isShared) const {
  while (::flock(folder.get(), isShared ? LOCK_SH : LOCK_EX) != 0 && errno == EINTR)
    ;
}

bool OpenFolder::tryLock() const { return ::flock(folder.get(), LOCK_EX | LOCK_NB) == 0; }

std::string memopt::explainNoExec(const std::string &folder) {
  struct statvfs facts;
  if (::statvfs(folder.c_str(), &facts) != 0 || !(facts.f_flag & ST_NOEXEC))
    return "";
  return quote(folder) + " is on a file system that is mounted noexec, so no program runs from "
                         "there; give a folder on another one (TMPDIR names the one for temporary "
                         "packages, MEMOPT_CACHE the one for those of Python), or "
                         "mount it with exec";
}

StatusOr<MappedFile> MappedFile::open(const std::string &path) {
  MEMOPT_ASSIGN_OR_RETURN(InputFile source, InputFile::open(path));
  return open(source);
}

StatusOr<MappedFile> MappedFile::open(const InputFile &source) {
  MappedFile file;
  file.length = size_t(source.size());
  if (file.length == 0)
    return file;
  void *address =
      ::mmap(nullptr, file.length, PROT_READ, MAP_PRIVATE, source.getDescriptor().get(), 0);
  if (address == MAP_FAILED)
    return environmentError(describeErrno("mapping", source.getPath(), errno));
  file.bytes = static_cast<unsigned char *>(address);
  return file;
}

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
  std::swap(bytes, other.bytes);
  std::swap(length, other.length);
  return *this;
}

MappedFile::~MappedFile() {
  if (bytes)
    ::munmap(bytes, length);
}

/// Takes lines "begin-end permissions offset device inode path" of the kernel's, as they come.
static const char *findInMap(char *line, const void *address) {
  char *next = line;
  auto begin = std::strtoul(next, &next, 16), end = std::strtoul(next + 1, &next, 16);
  auto place = reinterpret_cast<unsigned long>(address);
  const char *path = std::strchr(next, '/');
  return place >= begin && place < end ? path : nullptr;
}

const char *memopt::findMappedFile(const void *address) {
  static char text[2 * PATH_MAX];
  size_t filled = 0;
  int file = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  for (;;) {
    ssize_t count = file < 0 ? 0 : ::read(file, text + filled, sizeof text - 1 - filled);
    if (count <= 0)
      break;
    filled += size_t(count);
    text[filled] = 0;
    char *line = text;
    while (char *end = std::strchr(line, '\n')) {
      *end = 0;
      if (const char *path = findInMap(line, address)) {
        ::close(file);
        return path;
      }
      line = end + 1;
    }
    filled -= size_t(line - text);
    std::memmove(text, line, filled);
  }
  ::close(file);
  return nullptr;
}

/// A device would never end.
Status memopt::checkReadable(const std::string &path) {
  struct stat facts;
  if (::stat(path.c_str(), &facts) != 0 || ::access(path.c_str(), R_OK) != 0)
    return explainReading("opening", path, errno);
  if (!S_ISREG(facts.st_mode) && !S_ISFIFO(facts.st_mode))
    return badInput("opening " + quote(path) + ": neither a regular file nor a pipe");
  return Status::ok();
}

/// Opens a file or pipe; waits for the writer of a pipe.
static StatusOr<Descriptor> openStream(const std::string &path) {
  MEMOPT_RETURN_IF_ERROR(checkReadable(path));
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (file.get() < 0)
    return explainReading("opening", path, errno);
  return file;
}

/// Reads up to `size` bytes, as many as there are; -1 with a failure in `status`.
static int readGzipPiece(gzFile file, const std::string &path, unsigned char *target, size_t size,
                         Status &status) {
  int count = ::gzread(file, target, unsigned(size));
  int code = Z_OK;
  const char *message = ::gzerror(file, &code);
  if (code == Z_ERRNO)
    status = explainReading("reading", path, errno);
  else if (code != Z_OK && code != Z_STREAM_END)
    status = badInput("reading " + quote(path) + ": " +
                      (code == Z_BUF_ERROR ? "the gzip stream ends too early" : message));
  return status.isOk() ? count : -1;
}

StatusOr<std::vector<unsigned char>> memopt::readMaybeGzip(const std::string &path, size_t limit) {
  return readMaybeGzip(path, limit, [limit](const auto &) { return limit; });
}

StatusOr<std::vector<unsigned char>> memopt::readMaybeGzip(
    const std::string &path, size_t limit,
    const std::function<size_t(const std::vector<unsigned char> &begin)> &findEnd) {
  MEMOPT_ASSIGN_OR_RETURN(Descriptor descriptor, openStream(path));
  gzFile file = ::gzdopen(descriptor.get(), "rb"); // reads plain files as they are
  if (!file)
    return environmentError(describeErrno("reading", path, ENOMEM));
  descriptor.release(); // gzclose closes it
  ::gzbuffer(file, 1 << 18);
  std::vector<unsigned char> content;
  Status status;
  size_t end = limit;
  for (int count = 1; count > 0;) {
    constexpr size_t piece = 1 << 20;
    size_t old = content.size();
    content.resize(old + piece);
    count = readGzipPiece(file, path, content.data() + old, piece, status);
    content.resize(old + size_t(std::max(0, count)));
    // A small file can unpack to anything: the limit holds for what comes out.
    if (status.isOk() && content.size() > limit) {
      status = badInput("reading " + quote(path) + ": more than " + std::to_string(limit) +
                        " bytes once unpacked");
      break;
    }
    if (old == 0)
      end = findEnd(content);
    if (content.size() > end)
      break;
  }
  // A stream cut off between two blocks is only noticed here.
  if (::gzclose(file) == Z_BUF_ERROR && status.isOk())
    status = badInput("reading " + quote(path) + ": the gzip stream ends too early");
  if (!status.isOk())
    return status;
  return content;
}
