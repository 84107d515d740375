//===- Archive.cpp - reading a .pt2 container -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Archive/Archive.h"
#include "memopt/Import/Archive/Limits.h"
#include "memopt/Support/InputFile.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CRC.h"
#include "llvm/Support/Endian.h"

#include <algorithm>

using namespace llvm;
using namespace memopt::pt2;

// Sizes and signatures of the records, from the specification.
static constexpr uint64_t endRecordBytes = 22, zip64LocatorBytes = 20, zip64RecordBytes = 56,
                          centralBytes = 46, localBytes = 30;
static constexpr uint32_t endSignature = 0x06054b50, zip64LocatorSignature = 0x07064b50,
                          zip64RecordSignature = 0x06064b50, centralSignature = 0x02014b50,
                          localSignature = 0x04034b50;
static constexpr uint32_t in64 = 0xffffffff;

template <typename T> T Archive::load(uint64_t offset) const {
  return support::endian::read<T, endianness::little>(buffer->getBufferStart() + offset);
}

Error Archive::error(const Twine &message) const { return makeError(getPath() + ": " + message); }

Expected<Archive> Archive::open(StringRef path) {
  auto file = readInputFile(path, /*isText=*/false);
  if (file)
    return fromBuffer(std::move(*file));
  std::error_code code;
  std::string message;
  handleAllErrors(file.takeError(), [&](const StringError &error) {
    code = error.convertToErrorCode();
    message = error.getMessage();
  });
  return createStringError(code, path + ": cannot be read: " + message);
}

Expected<Archive> Archive::fromBuffer(std::shared_ptr<MemoryBuffer> buffer) {
  Archive archive(std::move(buffer));
  auto directory = archive.findDirectory();
  if (!directory)
    return directory.takeError();
  if (Error err = archive.readDirectory(*directory))
    return std::move(err);
  if (Error err = archive.checkDisjoint())
    return std::move(err);
  if (Error err = archive.enterRoot())
    return std::move(err);
  return archive;
}

/// The end record must close the file: bytes after it would be data that no reader agrees on.
Expected<Archive::Directory> Archive::findDirectory() const {
  uint64_t size = buffer->getBufferSize();
  if (size < 4 || (load<uint32_t>(0) != localSignature && load<uint32_t>(0) != endSignature))
    return error("not a .pt2 file: expected a zip archive, found other bytes at its start");
  if (size < endRecordBytes)
    return error("truncated zip archive: " + Twine(size) + " bytes");
  uint64_t lowest = size - std::min<uint64_t>(size, endRecordBytes + 0xffff);
  for (uint64_t at = size - endRecordBytes + 1; at-- > lowest;) {
    if (load<uint32_t>(at) != endSignature || at + endRecordBytes + load<uint16_t>(at + 20) != size)
      continue;
    if (load<uint16_t>(at + 4) != 0 || load<uint16_t>(at + 6) != 0)
      return error("the zip archive spans several disks");
    Directory directory;
    directory.entries = load<uint16_t>(at + 10);
    directory.bytes = load<uint32_t>(at + 12);
    directory.offset = load<uint32_t>(at + 16);
    return readZip64(at, directory);
  }
  return error(
      "damaged zip archive: no end record closes it; it is cut off, or other bytes follow");
}

/// Takes the 64-bit record where there is one (PyTorch writes it at times for small files too) and
/// checks that directory and end records leave no gap.
Expected<Archive::Directory> Archive::readZip64(uint64_t endRecord, Directory directory) const {
  uint64_t end = endRecord;
  if (endRecord >= zip64LocatorBytes &&
      load<uint32_t>(endRecord - zip64LocatorBytes) == zip64LocatorSignature) {
    uint64_t locator = endRecord - zip64LocatorBytes;
    uint64_t record = load<uint64_t>(locator + 8);
    if (locator < zip64RecordBytes || record > locator - zip64RecordBytes ||
        load<uint32_t>(record) != zip64RecordSignature)
      return error("the zip64 end record lies outside the file or is damaged");
    directory.entries = load<uint64_t>(record + 32);
    directory.bytes = load<uint64_t>(record + 40);
    directory.offset = load<uint64_t>(record + 48);
    end = record;
  }
  if (directory.offset > end || directory.bytes != end - directory.offset)
    return error("the zip directory is said to take bytes " + Twine(directory.offset) + " to +" +
                 Twine(directory.bytes) + ", but its end record stands at " + Twine(end));
  if (directory.entries > limits::archiveMembers ||
      directory.entries * centralBytes > directory.bytes)
    return error("the zip directory claims " + Twine(directory.entries) + " members in " +
                 Twine(directory.bytes) + " bytes");
  return directory;
}

Error Archive::readDirectory(const Directory &directory) {
  uint64_t at = directory.offset, end = directory.offset + directory.bytes;
  for (uint64_t i = 0; i != directory.entries; ++i) {
    auto next = readEntry(at, end);
    if (!next)
      return next.takeError();
    at = *next;
  }
  if (at != end)
    return error("the zip directory holds " + Twine(end - at) + " bytes more than its " +
                 Twine(directory.entries) + " members");
  return Error::success();
}

static bool isSafeName(StringRef name) {
  if (name.empty() || name.size() > limits::memberNameBytes || name.starts_with("/") ||
      name.find_first_of(StringRef("\\:\0", 3)) != StringRef::npos)
    return false;
  SmallVector<StringRef> parts;
  name.split(parts, '/');
  return none_of(parts, [](StringRef part) { return part.empty() || part == "." || part == ".."; });
}

Expected<uint64_t> Archive::readEntry(uint64_t at, uint64_t end) {
  if (end - at < centralBytes || load<uint32_t>(at) != centralSignature)
    return error("the zip directory is damaged at byte " + Twine(at));
  Member member;
  uint16_t flags = load<uint16_t>(at + 8);
  member.method = load<uint16_t>(at + 10);
  member.crc = load<uint32_t>(at + 16);
  uint64_t packed = load<uint32_t>(at + 20), bytes = load<uint32_t>(at + 24);
  uint64_t nameBytes = load<uint16_t>(at + 28), extraBytes = load<uint16_t>(at + 30);
  uint64_t commentBytes = load<uint16_t>(at + 32), header = load<uint32_t>(at + 42);
  if (end - at - centralBytes < nameBytes + extraBytes + commentBytes)
    return error("the zip directory is cut off at byte " + Twine(at));
  StringRef name(buffer->getBufferStart() + at + centralBytes, nameBytes);
  if (!isSafeName(name))
    return error("the zip member at byte " + Twine(at) + " has an unsafe name");

  // Extra field 1 holds those of size, packed size and offset that do not fit 32 bits, in this
  // order.
  uint64_t extra = at + centralBytes + nameBytes, extraEnd = extra + extraBytes;
  while (extraEnd - extra >= 4) {
    uint64_t tag = load<uint16_t>(extra), size = load<uint16_t>(extra + 2);
    extra += 4;
    if (size > extraEnd - extra)
      return error("the extra field of member '" + name + "' is cut off");
    if (tag == 1) {
      uint64_t field = extra, fieldEnd = extra + size;
      for (uint64_t *value : {&bytes, &packed, &header}) {
        if (*value != in64)
          continue;
        if (fieldEnd - field < 8)
          return error("the zip64 field of member '" + name + "' is too short");
        *value = load<uint64_t>(field);
        field += 8;
      }
    }
    extra += size;
  }
  if (flags & 1)
    return error("member '" + name + "' is encrypted");
  if (member.method == 0 && packed != bytes)
    return error("member '" + name + "' is stored with " + Twine(packed) + " bytes but has " +
                 Twine(bytes));
  member.bytes = packed;
  if (Error err = locatePayload(name, member, header, end))
    return std::move(err);
  if (!members.try_emplace(name, member).second)
    return error("two members are named '" + name + "'");
  return at + centralBytes + nameBytes + extraBytes + commentBytes;
}

/// The payload starts behind the *local* header, whose extra field differs from the directory's
/// (PyTorch pads it so that payloads begin at multiples of 64).
Error Archive::locatePayload(StringRef name, Member &member, uint64_t header, uint64_t end) const {
  uint64_t size = std::min<uint64_t>(end, buffer->getBufferSize());
  if (size < localBytes || header > size - localBytes)
    return error("the header of member '" + name + "' lies at byte " + Twine(header) +
                 ", outside the file");
  uint64_t nameBytes = load<uint16_t>(header + 26), extraBytes = load<uint16_t>(header + 28);
  if (load<uint32_t>(header) != localSignature || nameBytes != name.size() ||
      size - header - localBytes < nameBytes + extraBytes ||
      StringRef(buffer->getBufferStart() + header + localBytes, nameBytes) != name ||
      load<uint16_t>(header + 8) != member.method)
    return error("the header of member '" + name + "' contradicts the zip directory");
  member.offset = header + localBytes + nameBytes + extraBytes;
  if (member.bytes > size - member.offset)
    return error("member '" + name + "' is said to have " + Twine(member.bytes) +
                 " bytes, but the file has " + Twine(size - member.offset) + " from there on");
  return Error::success();
}

Error Archive::checkDisjoint() const {
  std::vector<std::pair<const Member *, StringRef>> order;
  for (const auto &entry : members)
    if (entry.second.bytes)
      order.emplace_back(&entry.second, entry.first());
  sort(order, [](auto &a, auto &b) { return a.first->offset < b.first->offset; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i].first->offset - order[i - 1].first->offset < order[i - 1].first->bytes)
      return error("members '" + order[i - 1].second + "' and '" + order[i].second +
                   "' share bytes of the file");
  return Error::success();
}

/// Drops the root folder from all names. It is the one that holds `archive_format`.
Error Archive::enterRoot() {
  if (members.count("serialized_exported_program.json"))
    return error("written by PyTorch 2.8 or older, whose weights are pickles; export it again with "
                 "PyTorch 2.9 or newer");
  std::string root;
  for (const auto &entry : members) {
    StringRef name = entry.first();
    if (!name.consume_back("/archive_format") || name.contains('/'))
      continue;
    if (!root.empty())
      return error("two roots in one archive: '" + root + "' and '" + name + "'");
    root = name.str();
  }
  if (root.empty())
    return error(
        "not a .pt2 file: no member ROOT/archive_format (did torch.export.save write it?)");
  StringMap<Member> inside;
  for (const auto &entry : members) {
    StringRef name = entry.first();
    if (!name.consume_front(root + "/"))
      return error("member '" + name + "' lies outside the root '" + root + "'");
    inside.try_emplace(name, entry.second);
  }
  members = std::move(inside);
  return Error::success();
}

Expected<StringRef> Archive::read(StringRef member) const {
  auto it = members.find(member);
  if (it == members.end())
    return error("no member '" + member + "'");
  const Member &found = it->second;
  if (found.method != 0)
    return error("member '" + member + "' is compressed (method " + Twine(found.method) +
                 "); expected it stored, as torch.export.save writes it");
  StringRef bytes = buffer->getBuffer().substr(found.offset, found.bytes);
  if (found.isVerified)
    return bytes;
  uint32_t crc = crc32(arrayRefFromStringRef(bytes));
  if (crc != found.crc)
    return error("member '" + member + "' is damaged: expected checksum " + utohexstr(found.crc) +
                 ", found " + utohexstr(crc));
  found.isVerified = true;
  return bytes;
}

std::vector<std::string> Archive::list(StringRef folder) const {
  std::vector<std::string> names;
  for (const auto &entry : members)
    if (entry.first().starts_with(folder))
      names.push_back(entry.first().str());
  sort(names);
  return names;
}
