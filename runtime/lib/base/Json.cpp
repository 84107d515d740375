//===- Json.cpp - checked access to JSON from outside ---------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/Json.h"
#include <algorithm>
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

std::string memopt::describeJsonError(const json::exception &error) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: ...": the number helps
  // nobody.
  std::string text = error.what();
  if (size_t end = text.find("] "); end != std::string::npos)
    text = text.substr(end + 2);
  text.resize(std::min<size_t>(text.size(), 300));
  return text;
}

namespace {
/// Looks through a text before a document is made of it: for what JSON is not, for values that nest
/// too deep, and for keys given twice, of which a document keeps one.
class JsonScan : public nlohmann::json_sax<json> {
public:
  explicit JsonScan(int maxDepth) : maxDepth(size_t(maxDepth)) {}

  /// What was found, as the end of a sentence; empty for a good text.
  std::string problem;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t &) override { return true; }
  bool string(string_t &) override { return true; }
  bool binary(binary_t &) override { return true; }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t &name) override {
    if (!keys.back().insert(name).second)
      problem = "key " + quote(name) + " is given twice";
    return problem.empty();
  }

  bool parse_error(size_t, const std::string &, const json::exception &error) override {
    problem = describeJsonError(error);
    return false;
  }

private:
  bool open() {
    if (keys.size() >= maxDepth)
      problem = "values nest deeper than " + std::to_string(maxDepth);
    keys.emplace_back();
    return problem.empty();
  }
  bool close() {
    keys.pop_back();
    return true;
  }

  size_t maxDepth;
  std::vector<std::set<std::string>> keys; ///< of the objects that are open; none of arrays
};
} // namespace

// The parser itself does not recurse. Its own callbacks would look through an object again for each
// that ends in it, so large ones would take time in proportion to the square of their size.
StatusOr<json> memopt::parseJson(std::string_view text, int maxDepth) {
  try {
    JsonScan scan(maxDepth);
    if (!json::sax_parse(text.begin(), text.end(), &scan))
      return badInput("not valid JSON: " + scan.problem);
    return json::parse(text.begin(), text.end());
  } catch (const json::exception &error) {
    return badInput(std::string("not valid JSON: ") + error.what());
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
StatusOr<int64_t> JsonView::getCount(const std::string &key) const {
  constexpr int64_t most = int64_t(1) << 53;
  MEMOPT_ASSIGN_OR_RETURN(int64_t value, getInteger(key));
  if (value < 0 || value > most)
    return badInput(quote(key) + " is " + std::to_string(value) + ", expected 0 to " +
                    std::to_string(most));
  return value;
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
