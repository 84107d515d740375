//===- JsonCursor.cpp - JSON with a place in every error -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Archive/JsonCursor.h"
#include "memopt/Support/InputFile.h"

#include <cmath>
#include <limits>

using namespace llvm;
using namespace memopt::pt2;

Expected<json::Value> memopt::pt2::parseJson(StringRef text, StringRef file) {
  if (text.size() > limits::jsonBytes)
    return makeError(file + ": " + Twine(text.size()) + " bytes of JSON, more than the limit of " +
                     Twine(limits::jsonBytes));
  auto value = parseInputJson(text);
  if (!value)
    return makeError(file + ": not JSON: " + toString(value.takeError()));
  return value;
}

void JsonCursor::print(raw_ostream &os) const {
  if (!parent) {
    os << name << ": ";
    return;
  }
  parent->print(os);
  if (index)
    os << '[' << *index << ']';
  else
    os << (parent->parent ? "." : "") << name;
}

Error JsonCursor::error(const Twine &message) const {
  std::string place;
  raw_string_ostream os(place);
  print(os);
  return makeError((parent ? place + ": " : place) + message);
}

static std::string describe(const json::Value &value) {
  switch (value.kind()) {
  case json::Value::Null:
    return "null";
  case json::Value::Boolean:
    return *value.getAsBoolean() ? "true" : "false";
  case json::Value::Number:
    return formatv("{0}", value).str();
  case json::Value::String: {
    StringRef text = *value.getAsString();
    return ("'" + text.take_front(40) + (text.size() > 40 ? "...'" : "'")).str();
  }
  case json::Value::Array:
    return formatv("an array of {0}", value.getAsArray()->size());
  case json::Value::Object: {
    const json::Object &object = *value.getAsObject();
    if (object.size() == 1)
      return formatv("an object with key '{0}'", StringRef(object.begin()->first));
    return formatv("an object with {0} keys", object.size());
  }
  }
  llvm_unreachable("all kinds are named");
}

Error JsonCursor::expected(const Twine &what) const {
  return error("expected " + what + ", found " + describe(*value));
}

Expected<JsonCursor> JsonCursor::field(StringRef key) const {
  const json::Object *object = value->getAsObject();
  if (!object)
    return expected("an object");
  const json::Value *found = object->get(key);
  if (!found)
    return error("expected key '" + key + "', which is missing");
  return JsonCursor(*found, *this, key);
}

std::optional<JsonCursor> JsonCursor::optionalField(StringRef key) const {
  const json::Object *object = value->getAsObject();
  const json::Value *found = object ? object->get(key) : nullptr;
  if (!found || found->kind() == json::Value::Null)
    return std::nullopt;
  return JsonCursor(*found, *this, key);
}

Expected<int64_t> JsonCursor::integer() const {
  if (auto result = getInteger(value))
    return *result;
  return expected("an integer");
}

Expected<bool> JsonCursor::boolean() const {
  if (auto result = value->getAsBoolean())
    return *result;
  return expected("true or false");
}

Expected<std::string> JsonCursor::string() const {
  if (auto result = value->getAsString())
    return result->str();
  return expected("a string");
}

Expected<double> JsonCursor::number() const {
  if (auto result = value->getAsNumber())
    return *result;
  if (auto text = value->getAsString()) {
    if (*text == "Infinity")
      return std::numeric_limits<double>::infinity();
    if (*text == "-Infinity")
      return -std::numeric_limits<double>::infinity();
    if (*text == "NaN")
      return std::numeric_limits<double>::quiet_NaN();
  }
  return expected("a number");
}

Expected<std::pair<StringRef, JsonCursor>> JsonCursor::variant() const {
  const json::Object *object = value->getAsObject();
  if (!object || object->size() != 1)
    return expected("an object with one key, its tag");
  const auto &entry = *object->begin();
  return std::make_pair(StringRef(entry.first), JsonCursor(entry.second, *this, entry.first));
}

Error JsonCursor::forEachElement(function_ref<Error(const JsonCursor &)> visit) const {
  const json::Array *array = value->getAsArray();
  if (!array)
    return expected("an array");
  for (size_t i = 0; i != array->size(); ++i)
    if (Error err = visit(JsonCursor((*array)[i], *this, i)))
      return err;
  return Error::success();
}

Error JsonCursor::forEachField(function_ref<Error(StringRef, const JsonCursor &)> visit) const {
  const json::Object *object = value->getAsObject();
  if (!object)
    return expected("an object");
  // json::Object is a hash map: visit in the order of the keys, so that results are reproducible.
  std::vector<const json::Object::value_type *> entries;
  for (const auto &entry : *object)
    entries.push_back(&entry);
  sort(entries, [](auto *a, auto *b) { return a->first < b->first; });
  for (const auto *entry : entries)
    if (Error err = visit(entry->first, JsonCursor(entry->second, *this, entry->first)))
      return err;
  return Error::success();
}
