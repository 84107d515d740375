//===- InputFile.cpp - files that users name --------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Support/InputFile.h"

#include "llvm/ADT/Twine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;

Expected<std::unique_ptr<MemoryBuffer>> memopt::readInputFile(StringRef path, bool isText) {
  sys::fs::file_status status;
  std::error_code code = sys::fs::status(path, status);
  if (!code && is_directory(status))
    code = std::make_error_code(std::errc::is_a_directory);
  if (!code && !is_regular_file(status))
    return createStringError(std::make_error_code(std::errc::invalid_argument),
                             "not a regular file");
  if (!code) {
    auto buffer = MemoryBuffer::getFile(path, isText, /*RequiresNullTerminator=*/isText);
    if (buffer)
      return std::move(*buffer);
    code = buffer.getError();
  }
  return createStringError(code, code.message());
}

bool memopt::isMachineError(std::error_code code) {
  return code == std::errc::too_many_files_open || code == std::errc::not_enough_memory ||
         code == std::errc::too_many_files_open_in_system || code == std::errc::io_error ||
         code == std::errc::no_space_on_device;
}

/// Depth and number of tokens of JSON text, without recursion. Brackets inside strings do not
/// count.
static Error checkShape(StringRef text) {
  unsigned depth = 0;
  uint64_t tokens = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
    case '"':
      for (++i; i < text.size() && text[i] != '"'; ++i)
        if (text[i] == '\\')
          ++i;
      break;
    case '[':
    case '{':
      if (++depth > memopt::limits::jsonNesting)
        return createStringError("nested deeper than " + Twine(memopt::limits::jsonNesting) +
                                 " levels at byte " + Twine(i));
      ++tokens;
      break;
    case ']':
    case '}':
      if (depth)
        --depth;
      break;
    case ',':
      ++tokens;
      break;
    default:
      break;
    }
    if (tokens > memopt::limits::jsonTokens)
      return createStringError("more than " + Twine(memopt::limits::jsonTokens) + " values");
  }
  return Error::success();
}

Expected<json::Value> memopt::parseInputJson(StringRef text) {
  if (Error error = checkShape(text))
    return std::move(error);
  return json::parse(text);
}

std::optional<int64_t> memopt::getInteger(const json::Value *value) {
  // Of the whole numbers that are written as such one is near enough to be equal.
  if (!value || (value->getAsNumber() == 0x1p63 && !value->getAsUINT64()))
    return std::nullopt;
  return value->getAsInteger();
}

Error memopt::makeJsonError(const Twine &key, const Twine &what, const json::Value *found) {
  constexpr size_t shown = 40;
  std::string text = found ? formatv("{0}", *found).str() : "nothing";
  if (text.size() > shown)
    text = text.substr(0, shown) + "...";
  return createStringError(inconvertibleErrorCode(),
                           key + ": expected " + what + ", found " + text);
}
