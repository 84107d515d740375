//===- Json.cpp - checked access to JSON from outside ---------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/Json.h"
#include <cmath>
#include <limits>
#include <set>

using namespace memopt;
using nlohmann::json;

std::string memopt::quote(std::string_view text) {
  constexpr size_t limit = 200;
  std::string quoted = "'";
  for (char c : text.substr(0, limit)) {
    static const char digits[] = "0123456789abcdef";
    auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f)
      quoted += c;
    else
      quoted += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
  }
  return quoted + (text.size() > limit ? "…'" : "'");
}

StatusOr<json> memopt::parseJson(std::string_view text, int maxDepth) {
  std::vector<std::set<std::string>> keys;
  std::string problem;
  // The parser itself does not recurse, and what is refused here is not stored.
  auto callback = [&](int depth, json::parse_event_t event, json &parsed) {
    if (!problem.empty())
      return false;
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      if (depth >= maxDepth)
        problem = "values nest deeper than " + std::to_string(maxDepth);
      keys.emplace_back();
    } else if (event == json::parse_event_t::object_end ||
               event == json::parse_event_t::array_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key) {
      const auto &key = parsed.get_ref<const std::string &>();
      if (!keys.back().insert(key).second)
        problem = "key " + quote(key) + " is given twice";
    }
    return problem.empty();
  };
  try {
    json value = json::parse(text.begin(), text.end(), callback);
    if (!problem.empty())
      return badInput("not valid JSON: " + problem);
    return value;
  } catch (const json::exception &error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ...": the number helps
    // nobody.
    std::string message = error.what();
    if (size_t end = message.find("] "); end != std::string::npos)
      message = message.substr(end + 2);
    return badInput("not valid JSON: " + message.substr(0, 300));
  } catch (const std::bad_alloc &) {
    return environmentError("out of memory while reading JSON");
  }
}

Status JsonView::fail(const std::string &message) const {
  return badInput((path.empty() ? std::string("the document") : quote(path)) + " " + message);
}

Status JsonView::failExpected(const std::string &what) const {
  std::string found = value->dump(-1, ' ', false, json::error_handler_t::replace);
  return fail("must be " + what + ", found " +
              (found.size() > 60 ? std::string(value->type_name()) : found));
}

StatusOr<JsonView> JsonView::get(const std::string &key) const {
  if (!value->is_object())
    return failExpected("an object");
  auto found = value->find(key);
  if (found == value->end())
    return fail("lacks " + quote(key));
  return JsonView(*found, path.empty() ? key : path + "." + key);
}

StatusOr<int64_t> JsonView::asInteger() const {
  if (value->is_number_unsigned() &&
      value->get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max()))
    return failExpected("an integer below 2^63");
  if (!value->is_number_integer())
    return failExpected("an integer");
  return value->get<int64_t>();
}

StatusOr<double> JsonView::asNumber() const {
  if (!value->is_number())
    return failExpected("a number");
  return value->get<double>();
}

StatusOr<std::string> JsonView::asString() const {
  if (!value->is_string())
    return failExpected("a string");
  return value->get<std::string>();
}

StatusOr<bool> JsonView::asBool() const {
  if (!value->is_boolean())
    return failExpected("true or false");
  return value->get<bool>();
}

StatusOr<std::vector<JsonView>> JsonView::asArray() const {
  if (!value->is_array())
    return failExpected("an array");
  std::vector<JsonView> elements;
  elements.reserve(value->size());
  for (size_t i = 0; i < value->size(); ++i)
    elements.emplace_back((*value)[i], path + "[" + std::to_string(i) + "]");
  return elements;
}

template <typename T, typename Read>
static StatusOr<std::vector<T>> readAll(const JsonView &view, Read read) {
  MEMOPT_ASSIGN_OR_RETURN(std::vector<JsonView> elements, view.asArray());
  std::vector<T> values;
  values.reserve(elements.size());
  for (const JsonView &element : elements) {
    MEMOPT_ASSIGN_OR_RETURN(T value, (element.*read)());
    values.push_back(std::move(value));
  }
  return values;
}

StatusOr<std::vector<int64_t>> JsonView::asIntegers() const {
  return readAll<int64_t>(*this, &JsonView::asInteger);
}
StatusOr<std::vector<std::string>> JsonView::asStrings() const {
  return readAll<std::string>(*this, &JsonView::asString);
}

template <typename Read>
static auto readMember(const JsonView &view, const std::string &key, Read read)
    -> decltype((view.*read)()) {
  MEMOPT_ASSIGN_OR_RETURN(JsonView member, view.get(key));
  return (member.*read)();
}

StatusOr<int64_t> JsonView::getInteger(const std::string &key) const {
  return readMember(*this, key, &JsonView::asInteger);
}
StatusOr<double> JsonView::getNumber(const std::string &key) const {
  return readMember(*this, key, &JsonView::asNumber);
}
StatusOr<std::string> JsonView::getString(const std::string &key) const {
  return readMember(*this, key, &JsonView::asString);
}
StatusOr<bool> JsonView::getBool(const std::string &key) const {
  return readMember(*this, key, &JsonView::asBool);
}
StatusOr<std::vector<JsonView>> JsonView::getArray(const std::string &key) const {
  return readMember(*this, key, &JsonView::asArray);
}
