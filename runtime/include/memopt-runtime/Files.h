//===- Files.h - reading and writing files safely ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Files come from outside and disks are full: reading checks sizes before it allocates, and writing
// goes beside the target, is flushed to the disk and then renamed, so that at every moment either
// the old content or the new one stands there whole.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_FILES_H
#define MEMOPT_RUNTIME_FILES_H

#include "memopt-runtime/Status.h"
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace memopt {

/// A regular file mapped for reading. Move-only; the bytes live as long as it does.
class MappedFile {
public:
  static StatusOr<MappedFile> open(const std::string &path);

  MappedFile() = default;
  MappedFile(MappedFile &&other) noexcept { *this = std::move(other); }
  MappedFile &operator=(MappedFile &&other) noexcept;
  ~MappedFile();

  const unsigned char *data() const { return bytes; }
  size_t size() const { return length; }
  std::string_view text() const { return {reinterpret_cast<const char *>(bytes), length}; }

private:
  unsigned char *bytes = nullptr;
  size_t length = 0;
};

/// The whole content of a file, unpacked when it is gzip. An error beyond `limit` unpacked bytes.
StatusOr<std::vector<unsigned char>> readMaybeGzip(const std::string &path, size_t limit);

/// Writes one file, beside `path` at first. Until commit() succeeds `path` is untouched; a writer
/// that is destroyed before removes what it wrote. Errors are of code Environment (a full disk, a
/// missing folder).
class AtomicFileWriter {
public:
  static StatusOr<AtomicFileWriter> create(const std::string &path);

  AtomicFileWriter(AtomicFileWriter &&other) noexcept;
  AtomicFileWriter &operator=(AtomicFileWriter &&) = delete;
  ~AtomicFileWriter();

  Status write(const void *data, size_t size);

  /// Flushes to the disk and renames.
  Status commit();

private:
  AtomicFileWriter(std::string path, std::string temporary, int descriptor)
      : path(std::move(path)), temporary(std::move(temporary)), descriptor(descriptor) {}

  std::string path, temporary;
  int descriptor;
};

Status writeFileAtomically(const std::string &path, std::string_view content);

/// Flushes a folder's entries to the disk, so that a rename in it outlives a power cut.
Status syncFolder(const std::string &path);

bool fileExists(const std::string &path);
bool isFolder(const std::string &path);

/// Names in a folder, sorted, without "." and "..".
StatusOr<std::vector<std::string>> listFolder(const std::string &path);

/// "opening 'a/b': No such file or directory", from errno.
std::string describeErrno(const std::string &doing, const std::string &path, int error);

} // namespace memopt

#endif // MEMOPT_RUNTIME_FILES_H
