//===- Files.cpp - reading and writing files safely -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/Files.h"
#include "memopt-runtime/Json.h"
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

using namespace memopt;

std::string memopt::describeErrno(const std::string &doing, const std::string &path, int error) {
  return doing + " " + quote(path) + ": " + std::strerror(error);
}

bool memopt::fileExists(const std::string &path) {
  struct stat facts;
  return ::stat(path.c_str(), &facts) == 0;
}

bool memopt::isFolder(const std::string &path) {
  struct stat facts;
  return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

StatusOr<std::vector<std::string>> memopt::listFolder(const std::string &path) {
  DIR *folder = ::opendir(path.c_str());
  if (!folder)
    return badInput(describeErrno("reading folder", path, errno));
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

StatusOr<MappedFile> MappedFile::open(const std::string &path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    return badInput(describeErrno("opening", path, errno));
  struct stat facts;
  if (::fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    ::close(descriptor);
    return badInput("opening " + quote(path) + ": not a regular file");
  }
  MappedFile file;
  file.length = size_t(facts.st_size);
  if (file.length) {
    void *address = ::mmap(nullptr, file.length, PROT_READ, MAP_PRIVATE, descriptor, 0);
    int error = errno;
    ::close(descriptor);
    if (address == MAP_FAILED) {
      file.length = 0;
      return environmentError(describeErrno("mapping", path, error));
    }
    file.bytes = static_cast<unsigned char *>(address);
  } else {
    ::close(descriptor);
  }
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

StatusOr<std::vector<unsigned char>> memopt::readMaybeGzip(const std::string &path, size_t limit) {
  gzFile file = ::gzopen(path.c_str(), "rb"); // reads plain files as they are
  if (!file)
    return badInput(describeErrno("opening", path, errno ? errno : ENOMEM));
  ::gzbuffer(file, 1 << 18);
  std::vector<unsigned char> content;
  Status status;
  for (;;) {
    constexpr size_t piece = 1 << 20;
    size_t old = content.size();
    // A small file can unpack to anything: the limit holds for what comes out.
    if (old > limit) {
      status = badInput("reading " + quote(path) + ": more than " + std::to_string(limit) +
                        " bytes once unpacked");
      break;
    }
    content.resize(old + piece);
    int count = ::gzread(file, content.data() + old, unsigned(piece));
    content.resize(old + size_t(std::max(0, count)));
    if (count == 0 || count < 0) {
      int code = Z_OK;
      const char *message = ::gzerror(file, &code);
      if (code != Z_OK && code != Z_STREAM_END)
        status = badInput("reading " + quote(path) + ": " +
                          (code == Z_ERRNO       ? std::strerror(errno)
                           : code == Z_BUF_ERROR ? "the gzip stream ends too early"
                                                 : message));
      break;
    }
  }
  // A stream cut off between two blocks is only noticed here.
  if (::gzclose(file) == Z_BUF_ERROR && status.isOk())
    status = badInput("reading " + quote(path) + ": the gzip stream ends too early");
  if (!status.isOk())
    return status;
  return content;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

static std::string getFolder(const std::string &path) {
  size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

StatusOr<AtomicFileWriter> AtomicFileWriter::create(const std::string &path) {
  std::string temporary = path + ".writing-" + std::to_string(::getpid());
  int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0)
    return environmentError(describeErrno("creating", temporary, errno));
  return AtomicFileWriter(path, std::move(temporary), descriptor);
}

AtomicFileWriter::AtomicFileWriter(AtomicFileWriter &&other) noexcept
    : path(std::move(other.path)), temporary(std::move(other.temporary)),
      descriptor(std::exchange(other.descriptor, -1)) {}

AtomicFileWriter::~AtomicFileWriter() {
  if (descriptor < 0)
    return;
  ::close(descriptor);
  ::unlink(temporary.c_str());
}

Status AtomicFileWriter::write(const void *data, size_t size) {
  const char *next = static_cast<const char *>(data);
  while (size) {
    ssize_t count = ::write(descriptor, next, size);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return environmentError(describeErrno("writing", path, errno));
    next += count;
    size -= size_t(count);
  }
  return Status::ok();
}

Status AtomicFileWriter::commit() {
  int error = ::fsync(descriptor) == 0 ? 0 : errno;
  if (::close(std::exchange(descriptor, -1)) != 0 && !error)
    error = errno;
  if (!error && ::rename(temporary.c_str(), path.c_str()) != 0)
    error = errno;
  if (error) {
    ::unlink(temporary.c_str());
    return environmentError(describeErrno("writing", path, error));
  }
  return syncFolder(getFolder(path));
}

Status memopt::writeFileAtomically(const std::string &path, std::string_view content) {
  MEMOPT_ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::create(path));
  MEMOPT_RETURN_IF_ERROR(writer.write(content.data(), content.size()));
  return writer.commit();
}

Status memopt::syncFolder(const std::string &path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    return environmentError(describeErrno("opening folder", path, errno));
  // Some file systems cannot sync folders and say EINVAL; their renames need no help.
  int error = ::fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
  ::close(descriptor);
  if (error)
    return environmentError(describeErrno("flushing folder", path, error));
  return Status::ok();
}
