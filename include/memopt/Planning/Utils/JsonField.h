//===- JsonField.h - checked access to JSON files ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_UTILS_JSONFIELD_H
#define MEMOPT_PLANNING_UTILS_JSONFIELD_H

#include "memopt/Support/InputFile.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/JSON.h"

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace memopt::planning {

/// A value in the file and where it stands. The first thing that is wrong anywhere stands in
/// `error`; from then on everything reads as nothing.
class JsonField {
public:
  JsonField(const llvm::json::Value *value, std::string place, std::string *error)
      : value(value), place(std::move(place)), error(error) {}

  bool isThere() const { return value; }
  void fail(const llvm::Twine &what) const {
    if (error->empty())
      *error = (place + ": " + what).str();
  }
  /// A key of an object.
  JsonField operator[](llvm::StringRef key) const {
    const llvm::json::Object *object = value ? value->getAsObject() : nullptr;
    if (!object)
      fail("expected an object");
    return JsonField(object ? object->get(key) : nullptr, place + separator() + key.str(), error);
  }
  /// Refuses keys that are none of these.
  void expectOnly(llvm::ArrayRef<llvm::StringRef> keys) const {
    if (const llvm::json::Object *object = value ? value->getAsObject() : nullptr)
      for (const auto &entry : *object)
        if (!llvm::is_contained(keys, llvm::StringRef(entry.first)))
          fail("unknown key \"" + llvm::StringRef(entry.first) + "\"");
  }
  bool isList() const { return value && value->getAsArray(); }
  bool isObject() const { return value && value->getAsObject(); }
  /// Calls each(item) for the items of a list, which must be there.
  template <typename Each> void forEach(Each each) const {
    const llvm::json::Array *list = value ? value->getAsArray() : nullptr;
    if (!list)
      return fail("expected a list");
    for (size_t i = 0; i < list->size(); ++i)
      each(JsonField(&(*list)[i], place + "[" + std::to_string(i) + "]", error));
  }
  /// The items of a list of so many; fewer or more are an error.
  std::vector<JsonField> items(size_t count, const char *expected) const {
    std::vector<JsonField> result;
    if (isList())
      forEach([&](JsonField item) { result.push_back(item); });
    if (result.size() != count) {
      fail(expected);
      result.assign(count, JsonField(nullptr, place, error));
    }
    return result;
  }
  /// All of them.
  std::vector<JsonField> items() const {
    std::vector<JsonField> result;
    forEach([&](const JsonField &item) { result.push_back(item); });
    return result;
  }
  /// Calls each(key, value) for the keys of an object, which must be there, in their order.
  template <typename Each> void forEachKey(Each each) const {
    const llvm::json::Object *object = value ? value->getAsObject() : nullptr;
    if (!object)
      return fail("expected an object");
    std::vector<llvm::StringRef> keys;
    for (const auto &entry : *object)
      keys.push_back(entry.first);
    llvm::sort(keys);
    for (llvm::StringRef key : keys)
      each(key, (*this)[key]);
  }
  int64_t integer(int64_t least = 0) const {
    if (!value) {
      fail("is missing");
      return 0;
    }
    std::optional<int64_t> number = getInteger(value);
    if (!number || *number < least)
      fail("expected an integer of at least " + llvm::Twine(least));
    return number.value_or(0);
  }
  double number() const {
    std::optional<double> real = value ? value->getAsNumber() : std::nullopt;
    if (!real || !(*real >= 0) || *real > std::numeric_limits<double>::max())
      fail("expected a number of at least 0");
    return real.value_or(0);
  }
  int32_t index() const {
    int64_t number = integer();
    if (number > std::numeric_limits<int32_t>::max())
      fail("is too large for an index");
    return static_cast<int32_t>(number);
  }
  bool flag() const {
    std::optional<bool> set = value ? value->getAsBoolean() : std::nullopt;
    if (!set)
      fail("expected true or false");
    return set.value_or(false);
  }
  std::string text() const {
    std::optional<llvm::StringRef> string = value ? value->getAsString() : std::nullopt;
    if (!string)
      fail("expected a string");
    return string.value_or("").str();
  }

private:
  const char *separator() const { return place.empty() || place.back() == ' ' ? "" : "."; }

  const llvm::json::Value *value;
  std::string place;
  std::string *error;
};

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_UTILS_JSONFIELD_H
