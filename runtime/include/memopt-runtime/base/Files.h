//===- Files.h - reading and writing files safely ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Files come from outside and disks are full: reading checks kinds and sizes before it allocates,
// and writing goes beside the target, is flushed to the disk and then renamed, so that at every
// moment either the old content or the new one stands there whole. What is no regular file (a
// terminal, a pipe, a device) is never replaced.
//
// A failure to read is BadInput, unless the machine is at fault (no descriptors, no memory, a
// broken disk): that, and every failure to write, is of code Environment. Reading that waits for a
// pipe ends as Cancelled when a signal handler without SA_RESTART ran.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_BASE_FILES_H
#define MEMOPT_RUNTIME_BASE_FILES_H

#include "memopt-runtime/base/Status.h"
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace memopt {

/// An open file, closed with this object. Move-only.
class Descriptor {
public:
  explicit Descriptor(int number = -1) : number(number) {}
  Descriptor(Descriptor &&other) noexcept : number(other.release()) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    std::swap(number, other.number);
    return *this;
  }
  ~Descriptor();

  /// Negative: none.
  int get() const { return number; }
  /// Gives the file away; the caller closes it.
  int release() { return std::exchange(number, -1); }

private:
  int number;
};

/// A regular file that is open for reading. Bytes are read when they are asked for: a file that
/// becomes shorter meanwhile is a failure, and no signal. Move-only.
class InputFile {
public:
  static StatusOr<InputFile> open(const std::string &path);

  InputFile() = default;

  const std::string &getPath() const { return path; }
  const Descriptor &getDescriptor() const { return file; }
  uint64_t size() const { return bytes; }

  /// Reads bytes [begin, begin + size).
  Status read(uint64_t begin, void *target, size_t size) const;
  StatusOr<InputFile> duplicate() const;
  /// The whole content, of at most `limit` bytes.
  StatusOr<std::string> readWhole(size_t limit) const;

private:
  friend class OpenFolder;
  static StatusOr<InputFile> openIn(int folder, const std::string &name, const std::string &path);

  std::string path; ///< for messages
  Descriptor file;
  uint64_t bytes = 0;
};

/// A regular file mapped for reading. Move-only; the bytes live as long as it does. When somebody
/// makes the file shorter meanwhile, reading beyond its end raises SIGBUS: what is read once
/// belongs to InputFile.
class MappedFile {
public:
  static StatusOr<MappedFile> open(const std::string &path);
  static StatusOr<MappedFile> open(const InputFile &file);

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

/// A folder that stays the same one when its name goes to another. Move-only.
class OpenFolder {
public:
  static StatusOr<OpenFolder> open(const std::string &path);

  const std::string &getPath() const { return path; }
  StatusOr<InputFile> openFile(const std::string &name) const;
  /// Whether something of that name is in it.
  bool has(const std::string &name) const;
  /// Whether it is still the folder that its path leads to.
  bool isCurrent() const;
  /// Waits for a lock (flock) that ends with this object. Where the file system has none nothing
  /// happens.
  void lock(bool isShared) const;
  /// Takes the lock if nobody holds it.
  bool tryLock() const;

private:
  std::string path;
  Descriptor folder;
};

/// The path of the file that is mapped at an address, or null. For signal handlers: it allocates
/// nothing, and the text stays in place until the next call.
const char *findMappedFile(const void *address);

/// The whole content of a regular file of at most `limit` bytes.
StatusOr<std::string> readFile(const std::string &path, size_t limit);

/// The whole content of a file or pipe, unpacked when it is gzip. An error beyond `limit` unpacked
/// bytes.
StatusOr<std::vector<unsigned char>> readMaybeGzip(const std::string &path, size_t limit);

/// The same for a format whose first bytes say how many there are: `findEnd` gets those that are
/// read first, up to a megabyte. Reading stops behind that end, whatever else there is to unpack.
StatusOr<std::vector<unsigned char>>
readMaybeGzip(const std::string &path, size_t limit,
              const std::function<size_t(const std::vector<unsigned char> &begin)> &findEnd);

/// Writes to what `path` names, as a shell's `>` does. A regular file is written beside its place,
/// which is where symbolic links lead: until commit() succeeds the old one is untouched, and a
/// writer that is destroyed before removes what it wrote. A file that is there keeps its
/// permissions, and its owner where that is allowed. Anything else (a device, a pipe, /dev/stdout,
/// a mount point) is written to directly.
class AtomicFileWriter {
public:
  static StatusOr<AtomicFileWriter> create(const std::string &path);

  AtomicFileWriter(AtomicFileWriter &&) = default;
  AtomicFileWriter &operator=(AtomicFileWriter &&) = delete;
  ~AtomicFileWriter();

  Status write(const void *data, size_t size);

  /// Flushes to the disk and renames.
  Status commit();

private:
  AtomicFileWriter(std::string path, std::string temporary, Descriptor file)
      : path(std::move(path)), temporary(std::move(temporary)), file(std::move(file)) {}

  std::string path;
  std::string temporary; ///< empty when `path` itself is written
  Descriptor file;
};

Status writeFileAtomically(const std::string &path, std::string_view content);

/// Whether AtomicFileWriter could write to `path` now, found out without a change to what is there.
/// To be asked before hours of work whose result goes there.
Status checkWritable(const std::string &path);

/// Bytes that this process may still write to the file system of a folder; nothing where that does
/// not say.
std::optional<int64_t> getFreeBytes(const std::string &folder);

/// A copy of a regular file, on the disk when this returns; nothing may be there yet. File systems
/// that can let both share their bytes until one of them is written.
Status copyToNewFile(const std::string &from, const std::string &to);

/// Opens a regular file, or makes it, through no link. A signal does not keep it from that.
Descriptor openOwnFile(const std::string &path, int flags, unsigned mode);

/// As ::openat; a signal that comes meanwhile is no failure. Not for pipes: who waits for the other
/// end may be told to stop.
Descriptor openUninterrupted(int folder, const std::string &path, int flags, unsigned mode = 0);

/// A new file for writing: nothing may be there yet, no link either.
StatusOr<Descriptor> createNewFile(const std::string &path);

/// Creates a folder whose name begins with `prefix` and ends in letters that nobody can foresee.
StatusOr<std::string> createNewFolder(const std::string &prefix, unsigned mode = 0777);
constexpr size_t randomLetters = 16; ///< how many

/// Why no program runs from a folder, and what to do, where its file system is mounted noexec;
/// empty where it is not.
std::string explainNoExec(const std::string &folder);

/// Takes room on the disk for a new file of so many bytes. File systems that cannot do so before
/// bytes are written only learn its size.
Status reserveSpace(const Descriptor &file, const std::string &path, int64_t bytes);

/// Writes all of it where the file stands; `path` is for messages.
Status writeAll(const Descriptor &file, const std::string &path, const void *data, size_t size);

/// Writes all of it at an offset; `path` is for messages.
Status writeAt(const Descriptor &file, const std::string &path, const void *data, size_t size,
               int64_t offset);

/// Flushes a file's bytes to the disk and closes it.
Status syncAndClose(Descriptor file, const std::string &path);

/// Flushes a folder's entries to the disk, so that a rename in it outlives a power cut.
Status syncFolder(const std::string &path);

/// Whether a file or pipe can be opened for reading, as far as that can be told without opening a
/// pipe, whose writer would take it for the reader.
Status checkReadable(const std::string &path);

bool fileExists(const std::string &path);
bool isFolder(const std::string &path);

/// Whether something is mounted there, which can then be neither renamed nor replaced.
bool isMountPoint(const std::string &path);

/// The absolute path without links, or nothing when there is no such file.
std::string getRealPath(const std::string &path);

/// Names in a folder, sorted, without "." and "..".
StatusOr<std::vector<std::string>> listFolder(const std::string &path);

/// The folder that a path's last name stands in.
std::string getFolder(const std::string &path);

/// "opening 'a/b': No such file or directory", from errno.
std::string describeErrno(const std::string &doing, const std::string &path, int error);

} // namespace memopt

#endif // MEMOPT_RUNTIME_BASE_FILES_H
