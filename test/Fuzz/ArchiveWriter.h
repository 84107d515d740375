//===- ArchiveWriter.h - archives made in memory -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For tests and fuzzers: a .pt2 file around a graph's JSON, checksums right, so that what is wrong
// with the JSON is what the importer meets.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TEST_UNIT_IMPORT_ARCHIVEWRITER_H
#define MEMOPT_TEST_UNIT_IMPORT_ARCHIVEWRITER_H

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CRC.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MemoryBuffer.h"

#include <string>
#include <utility>
#include <vector>

namespace memopt::pt2::testing {

using Members = std::vector<std::pair<std::string, std::string>>; ///< name and bytes

template <typename T> void append(std::string &out, T value) {
  char bytes[sizeof(T)];
  llvm::support::endian::write<T, llvm::endianness::little>(bytes, value);
  out.append(bytes, sizeof(T));
}

/// A zip of stored members.
inline std::string writeArchive(const Members &members) {
  std::string file, directory;
  for (const auto &member : members) {
    const std::string &name = member.first, &bytes = member.second;
    uint32_t crc = llvm::crc32(llvm::arrayRefFromStringRef(bytes)), size = bytes.size(),
             at = file.size();
    auto describe = [&](std::string &out) {
      for (uint16_t field : {20, 0x800, 0, 0, 0}) // version, flags, stored, time, date
        append<uint16_t>(out, field);
      for (uint32_t field : {crc, size, size})
        append<uint32_t>(out, field);
      append<uint16_t>(out, name.size());
      append<uint16_t>(out, 0);
    };
    append<uint32_t>(file, 0x04034b50);
    describe(file);
    file += name + bytes;
    append<uint32_t>(directory, 0x02014b50);
    append<uint16_t>(directory, 20);
    describe(directory);
    for (int i = 0; i != 3; ++i) // comment length, disk, internal attributes
      append<uint16_t>(directory, 0);
    append<uint32_t>(directory, 0);
    append<uint32_t>(directory, at);
    directory += name;
  }
  uint32_t begin = file.size(), size = directory.size();
  file += directory;
  append<uint32_t>(file, 0x06054b50);
  append<uint32_t>(file, 0);
  append<uint16_t>(file, members.size());
  append<uint16_t>(file, members.size());
  append<uint32_t>(file, size);
  append<uint32_t>(file, begin);
  append<uint16_t>(file, 0);
  return file;
}

inline std::shared_ptr<llvm::MemoryBuffer> makeBuffer(llvm::StringRef bytes) {
  return llvm::MemoryBuffer::getMemBufferCopy(bytes, "test.pt2");
}

} // namespace memopt::pt2::testing

#endif // MEMOPT_TEST_UNIT_IMPORT_ARCHIVEWRITER_H
