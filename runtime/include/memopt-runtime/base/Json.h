//===- Json.h - checked access to JSON from outside -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// JSON that a user, or an attacker, may have written. Reading never throws: each access says by
// path
// ("variables[3].offset") what was expected and what was found.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_BASE_JSON_H
#define MEMOPT_RUNTIME_BASE_JSON_H

#include "memopt-runtime/base/Status.h"
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace memopt {

/// `text` for a message: control characters escaped, cut after about 200 characters, in single
/// quotes.
std::string quote(std::string_view text);

/// Parses one JSON value that fills `text`. Refuses a key given twice and nesting beyond
/// `maxDepth`.
StatusOr<nlohmann::json> parseJson(std::string_view text, int maxDepth);

/// What is wrong with a text, from the parser's exception.
std::string describeJsonError(const nlohmann::json::exception &error);

/// A place in a parsed document. It refers to the document, which must outlive it.
class JsonView {
public:
  explicit JsonView(const nlohmann::json &value, std::string path = "")
      : value(&value), path(std::move(path)) {}

  const nlohmann::json &raw() const { return *value; }
  const std::string &getPath() const { return path; }

  /// True when this is an object with such a key.
  bool has(const char *key) const { return value->is_object() && value->contains(key); }

  /// The member `key`; an error when this is no object or has no such key.
  StatusOr<JsonView> get(const std::string &key) const;

  /// The value itself, when it is of that kind.
  StatusOr<int64_t> asInteger() const;
  StatusOr<double> asNumber() const;
  StatusOr<std::string> asString() const;
  StatusOr<bool> asBool() const;
  StatusOr<std::vector<JsonView>> asArray() const;
  StatusOr<std::vector<int64_t>> asIntegers() const;
  StatusOr<std::vector<std::string>> asStrings() const;

  /// The member `key`, of that kind.
  StatusOr<int64_t> getInteger(const std::string &key) const;
  /// From 0 to 2^53: every reader of JSON gets that right, and no sum in a run overflows with it.
  StatusOr<int64_t> getCount(const std::string &key) const;
  StatusOr<double> getNumber(const std::string &key) const;
  StatusOr<std::string> getString(const std::string &key) const;
  StatusOr<bool> getBool(const std::string &key) const;
  StatusOr<std::vector<JsonView>> getArray(const std::string &key) const;

  /// A badInput that names this place.
  Status fail(const std::string &message) const;
  Status failExpected(const std::string &what) const;

private:
  const nlohmann::json *value;
  std::string path;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_BASE_JSON_H
