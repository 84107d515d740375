//===- Archive.h - reading a .pt2 container -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A .pt2 file is a zip whose members are all STORED (torch.export.save, PyTorch 2.9 and newer).
// This reader walks the central directory itself: members are then plain ranges of the mapped file,
// weights need no copy, and every offset is checked once, here.
//
// What it refuses: anything but one zip that fills the file exactly; compressed or encrypted
// members; names with path separators that could leave the archive; two members of one name or
// sharing bytes; a local header that contradicts the directory; a checksum that does not fit.
//
// Format: PKWARE APPNOTE 6.3.10, sections 4.3.7, 4.3.12, 4.3.14-16, 4.5.3.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_ARCHIVE_ARCHIVE_H
#define MEMOPT_IMPORT_ARCHIVE_ARCHIVE_H

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>
#include <string>
#include <vector>

namespace memopt::pt2 {

class Archive {
public:
  /// Maps the file and checks its directory. Errors start with `path`.
  static llvm::Expected<Archive> open(llvm::StringRef path);
  /// The same over bytes in memory; the buffer's identifier names it in errors.
  static llvm::Expected<Archive> fromBuffer(std::shared_ptr<llvm::MemoryBuffer> buffer);

  /// Whether the member is there; names are relative to the archive's root folder
  /// ("models/model.json").
  bool contains(llvm::StringRef member) const { return members.count(member) != 0; }
  /// The bytes of a member, checksum verified (once, however often it is read). They live as long
  /// as getBuffer().
  llvm::Expected<llvm::StringRef> read(llvm::StringRef member) const;
  /// Names of all members below `folder` ("models/"), sorted.
  std::vector<std::string> list(llvm::StringRef folder) const;

  const std::shared_ptr<llvm::MemoryBuffer> &getBuffer() const { return buffer; }
  llvm::StringRef getPath() const { return buffer->getBufferIdentifier(); }

private:
  struct Member {
    uint64_t offset = 0; ///< of the payload, in bytes from the start of the file
    uint64_t bytes = 0;
    uint32_t crc = 0;
    uint16_t method = 0;
    mutable bool isVerified = false; ///< the checksum fits
  };

  explicit Archive(std::shared_ptr<llvm::MemoryBuffer> buffer) : buffer(std::move(buffer)) {}

  struct Directory {
    uint64_t offset = 0, bytes = 0, entries = 0;
  };
  llvm::Expected<Directory> findDirectory() const;
  llvm::Expected<Directory> readZip64(uint64_t endRecord, Directory directory) const;
  llvm::Error readDirectory(const Directory &directory);
  llvm::Expected<uint64_t> readEntry(uint64_t at, uint64_t end);
  llvm::Error locatePayload(llvm::StringRef name, Member &member, uint64_t localHeader,
                            uint64_t directoryOffset) const;
  llvm::Error checkDisjoint() const;
  llvm::Error enterRoot();

  template <typename T> T load(uint64_t offset) const;
  llvm::Error error(const llvm::Twine &message) const;

  std::shared_ptr<llvm::MemoryBuffer> buffer;
  llvm::StringMap<Member> members;
};

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_ARCHIVE_ARCHIVE_H
