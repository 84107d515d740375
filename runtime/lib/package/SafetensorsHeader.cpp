//===- SafetensorsHeader.cpp - the table of tensors -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The header becomes a table while it is read: a document of all of it would take many times its
// size, and a file may have 100 MB of it.
//
//===----------------------------------------------------------------------===//

#include "SafetensorsHeader.h"
#include "memopt-runtime/base/Json.h"
#include <algorithm>
#include <limits>
#include <tuple>

using namespace memopt;
using nlohmann::json;

/// Far above what a tensor has; without a limit a file could ask for much memory.
static constexpr size_t mostDimensions = 64;
/// Longer values of the package's digest are no digests.
static constexpr size_t mostDigestBytes = 256;
static constexpr const char *fieldNames[] = {"dtype", "shape", "data_offsets"};

namespace {
/// Follows the parser: the document is at depth 1, a tensor at 2, its lists at 3.
class HeaderReader : public nlohmann::json_sax<json> {
public:
  HeaderReader(int64_t dataBegin, int64_t dataBytes) : dataBegin(dataBegin), dataBytes(dataBytes) {}

  SafetensorsFile::Table table;
  std::string problem; ///< empty for a good text

  bool null() override { return takeOther("null"); }
  bool boolean(bool value) override { return takeOther(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return takeInteger(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= uint64_t(std::numeric_limits<int64_t>::max()))
      return takeInteger(int64_t(value));
    return fail("must be an integer below 2^63, found " + std::to_string(value));
  }
  bool number_float(number_float_t, const string_t &text) override {
    return takeOther(text.substr(0, 60));
  }
  bool string(string_t &text) override;
  bool binary(binary_t &) override { return takeOther("bytes"); }
  bool start_object(size_t) override;
  bool start_array(size_t) override;
  bool key(string_t &name) override;
  bool end_object() override;
  bool end_array() override;
  bool parse_error(size_t, const std::string &, const json::exception &error) override {
    problem = "not valid JSON: " + describeJsonError(error);
    return false;
  }

private:
  enum class Field { Dtype, Shape, Offsets, Other };

  bool fail(const std::string &what) {
    bool hasField = depth > 1 && field != Field::Other;
    problem = quote(hasField ? name + "." + fieldNames[size_t(field)] : name) + " " + what;
    return false;
  }
  /// Whether what comes is in no tensor, or in a part of one that the format does not know.
  bool isSkipped() const {
    return depth == 0 || isMetadata || (depth > 1 && field == Field::Other);
  }
  bool open();
  bool takeInteger(int64_t value);
  bool takeOther(const std::string &value);
  /// The end of a tensor's object.
  bool addTensor();

  const int64_t dataBegin, dataBytes;
  int depth = 0;
  bool isMetadata = false, isPackage = false; ///< what the last keys were
  Field field = Field::Other;
  std::string name; ///< of the tensor
  bool has[std::size(fieldNames)] = {};
  SafetensorsEntry entry{};
  std::vector<int64_t> offsets;
};
} // namespace

bool HeaderReader::takeOther(const std::string &value) {
  if (isSkipped())
    return true;
  const char *expected = depth == 1              ? "an object"
                         : depth > 2             ? "an integer"
                         : field == Field::Dtype ? "a string"
                                                 : "an array";
  return fail(std::string("must be ") + expected + ", found " + value);
}

bool HeaderReader::takeInteger(int64_t value) {
  if (depth != 3 || isSkipped())
    return takeOther(std::to_string(value));
  std::vector<int64_t> &list = field == Field::Shape ? entry.shape : offsets;
  if (list.size() == mostDimensions)
    return fail("has more than " + std::to_string(mostDimensions) + " numbers");
  list.push_back(value);
  return true;
}

bool HeaderReader::string(string_t &text) {
  if (isPackage && depth == 2 && text.size() <= mostDigestBytes)
    table.package = text;
  if (depth != 2 || isSkipped() || field != Field::Dtype)
    return takeOther(quote(text));
  std::optional<DType> parsed = parseSafetensorsDType(text);
  if (!parsed)
    return fail("is the unknown dtype " + quote(text));
  entry.dtype = *parsed;
  return true;
}

bool HeaderReader::open() {
  ++depth;
  if (depth > 4)
    problem = "not valid JSON: values nest deeper than 4";
  return problem.empty();
}

bool HeaderReader::start_object(size_t) {
  if (depth > 1 && !isSkipped())
    return takeOther("an object");
  if (depth == 1) {
    std::fill(std::begin(has), std::end(has), false);
    entry = {};
    offsets.clear();
    field = Field::Other;
  }
  return open();
}

bool HeaderReader::start_array(size_t) {
  bool isList = depth > 2 || (depth == 2 && field != Field::Dtype);
  return isList || isSkipped() ? open() : takeOther("an array");
}

bool HeaderReader::end_array() {
  bool isNested = depth > 3 && !isSkipped();
  --depth;
  return !isNested || takeOther("an array");
}

bool HeaderReader::key(string_t &text) {
  if (depth == 1) {
    isMetadata = text == "__metadata__";
    name = text;
  } else if (depth == 2 && isMetadata) {
    isPackage = text == "memopt_package";
  } else if (depth == 2) {
    auto found =
        std::find(std::begin(fieldNames), std::end(fieldNames), text) - std::begin(fieldNames);
    field = Field(found);
    if (field != Field::Other && std::exchange(has[size_t(found)], true))
      problem = "key " + quote(text) + " is given twice";
  }
  return problem.empty();
}

bool HeaderReader::end_object() {
  bool isEntry = depth == 2 && !isMetadata;
  isPackage = false;
  --depth;
  return !isEntry || addTensor();
}

bool HeaderReader::addTensor() {
  field = Field::Other; // for messages
  for (size_t i = 0; i < std::size(fieldNames); ++i)
    if (!has[i])
      return fail("lacks " + quote(fieldNames[i]));
  StatusOr<int64_t> bytes = getTensorBytes(entry.dtype, entry.shape);
  if (!bytes.isOk())
    return fail("has a wrong shape: " + bytes.getMessage());
  entry.bytes = *bytes;
  if (offsets.size() != 2 || offsets[0] < 0 || offsets[1] < offsets[0] || offsets[1] > dataBytes)
    return fail("must have two offsets in order within " + std::to_string(dataBytes) +
                " bytes of data");
  if (offsets[1] - offsets[0] != entry.bytes)
    return fail("has " + std::to_string(offsets[1] - offsets[0]) + " bytes, but " +
                toString(entry.dtype, entry.shape) + " takes " + std::to_string(entry.bytes));
  entry.offset = dataBegin + offsets[0];
  entry.shape.shrink_to_fit();
  table.entries.emplace_back(std::move(name), std::move(entry));
  return true;
}

/// Sorts by name.
static Status checkNames(SafetensorsFile::Entries &entries) {
  auto byName = [](const auto &a, const auto &b) { return a.first < b.first; };
  if (!std::is_sorted(entries.begin(), entries.end(), byName))
    std::sort(entries.begin(), entries.end(), byName);
  auto twice = std::adjacent_find(entries.begin(), entries.end(),
                                  [](const auto &a, const auto &b) { return a.first == b.first; });
  return twice == entries.end() ? Status::ok()
                                : badInput("key " + quote(twice->first) + " is given twice");
}

static Status checkExtents(const SafetensorsFile::Entries &entries, int64_t dataBegin,
                           int64_t dataBytes) {
  std::vector<const SafetensorsFile::Entries::value_type *> byPlace;
  byPlace.reserve(entries.size());
  for (const auto &entry : entries)
    byPlace.push_back(&entry);
  std::sort(byPlace.begin(), byPlace.end(), [](const auto *a, const auto *b) {
    return std::tie(a->second.offset, a->second.bytes) <
           std::tie(b->second.offset, b->second.bytes);
  });
  int64_t filled = 0;
  for (const auto *named : byPlace) {
    const auto &[name, entry] = *named;
    int64_t begin = entry.offset - dataBegin;
    if (begin < filled)
      return badInput("tensor " + quote(name) + " begins at byte " + std::to_string(begin) +
                      ", inside the one before it");
    if (begin > filled)
      return badInput("bytes " + std::to_string(filled) + " to " + std::to_string(begin) +
                      " belong to no tensor");
    filled = begin + entry.bytes;
  }
  if (filled != dataBytes)
    return badInput("the tensors end at byte " + std::to_string(filled) +
                    " of the data, which has " + std::to_string(dataBytes));
  return Status::ok();
}

StatusOr<SafetensorsFile::Table>
memopt::parseSafetensorsHeader(std::string_view text, int64_t dataBegin, int64_t dataBytes) {
  HeaderReader reader(dataBegin, dataBytes);
  if (!json::sax_parse(text.begin(), text.end(), &reader))
    return badInput(reader.problem);
  MEMOPT_RETURN_IF_ERROR(checkNames(reader.table.entries));
  MEMOPT_RETURN_IF_ERROR(checkExtents(reader.table.entries, dataBegin, dataBytes));
  return std::move(reader.table);
}
