//===- Text.h - parts of texts ----------------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_BASE_TEXT_H
#define MEMOPT_RUNTIME_BASE_TEXT_H

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace memopt {

inline bool startsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

inline bool endsWith(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

/// What stands between commas; of an empty text one empty word.
inline std::vector<std::string> splitList(const std::string &text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

} // namespace memopt

#endif // MEMOPT_RUNTIME_BASE_TEXT_H
