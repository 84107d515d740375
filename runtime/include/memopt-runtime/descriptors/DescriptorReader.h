//===- DescriptorReader.h - checked reading of call descriptors ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads the keys of one JSON object and remembers the first thing that is wrong, so that a reader
// is a list of keys and one check at its end. After a failure every getter gives a harmless value.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DESCRIPTORS_DESCRIPTORREADER_H
#define MEMOPT_RUNTIME_DESCRIPTORS_DESCRIPTORREADER_H

#include "memopt-runtime/base/Status.h"
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace memopt::libraries {

/// No extent, stride or number of elements may exceed this: sums and byte counts of a few of them
/// then fit 64 bits.
constexpr int64_t maxExtent = int64_t(1) << 48;

class DescriptorReader {
public:
  /// `path` leads error messages ("library call 'matmul'").
  DescriptorReader(const nlohmann::json &object, std::string path);

  /// An integer in [least, maxExtent].
  int64_t integer(const char *key, int64_t least);
  int64_t integer(const char *key, int64_t least, int64_t fallback);
  double number(const char *key);
  bool boolean(const char *key, bool fallback);
  /// A string that is one of `choices`; the first choice stands for an absent key or null if
  /// `optional`.
  std::string choice(const char *key, std::initializer_list<const char *> choices,
                     bool optional = false);
  /// A list of `count` integers (of any length when count is -1), each in [least, maxExtent].
  std::vector<int64_t> integers(const char *key, int64_t count, int64_t least);
  /// The object at `key`, or null when it is absent or null.
  const nlohmann::json *object(const char *key);

  /// Refuses when `condition` is false.
  void require(bool condition, const std::string &message);
  /// Refuses a product of extents beyond maxExtent.
  void requireProduct(const char *what, const std::vector<int64_t> &extents);

  bool isOk() const { return message.empty(); }
  Status takeStatus() const { return isOk() ? Status::ok() : badInput(path + ": " + message); }

private:
  const nlohmann::json *find(const char *key);
  bool isExtent(const nlohmann::json &value, int64_t least) const;

  const nlohmann::json &source;
  std::string path, message;
};

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_DESCRIPTORS_DESCRIPTORREADER_H
