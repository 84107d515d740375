//===- DescriptorReader.cpp - checked reading of call descriptors -----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/descriptors/DescriptorReader.h"

using namespace memopt::libraries;

/// For messages; text that is not UTF-8 is shown with replacements.
static std::string show(const nlohmann::json &value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

DescriptorReader::DescriptorReader(const nlohmann::json &object, std::string path)
    : source(object), path(std::move(path)) {
  require(object.is_object(), "expected an object, found " + std::string(object.type_name()));
}

void DescriptorReader::require(bool condition, const std::string &text) {
  if (!condition && message.empty())
    message = text;
}

const nlohmann::json *DescriptorReader::find(const char *key) {
  if (!source.is_object())
    return nullptr;
  auto entry = source.find(key);
  return entry == source.end() || entry->is_null() ? nullptr : &*entry;
}

bool DescriptorReader::isExtent(const nlohmann::json &value, int64_t least) const {
  return value.is_number_integer() &&
         (!value.is_number_unsigned() ||
          value.get<uint64_t>() <= static_cast<uint64_t>(maxExtent)) &&
         value.get<int64_t>() >= least && value.get<int64_t>() <= maxExtent;
}

int64_t DescriptorReader::integer(const char *key, int64_t least) {
  const auto *value = find(key);
  require(value, "the key '" + std::string(key) + "' is missing");
  return integer(key, least, least);
}

int64_t DescriptorReader::integer(const char *key, int64_t least, int64_t fallback) {
  const auto *value = find(key);
  if (!value)
    return fallback;
  if (isExtent(*value, least))
    return value->get<int64_t>();
  require(false, "'" + std::string(key) + "' must be an integer from " + std::to_string(least) +
                     " to 2^48, found " + show(*value));
  return least;
}

double DescriptorReader::number(const char *key) {
  const auto *value = find(key);
  if (value && value->is_number())
    return value->get<double>();
  require(false, "'" + std::string(key) + "' must be a number, found " +
                     (value ? show(*value) : "nothing"));
  return 0;
}

bool DescriptorReader::boolean(const char *key, bool fallback) {
  const auto *value = find(key);
  if (!value)
    return fallback;
  if (value->is_boolean())
    return value->get<bool>();
  require(false, "'" + std::string(key) + "' must be true or false, found " + show(*value));
  return fallback;
}

std::string DescriptorReader::choice(const char *key, std::initializer_list<const char *> choices,
                                     bool optional) {
  const auto *value = find(key);
  if (!value && optional)
    return *choices.begin();
  std::string expected;
  for (const char *name : choices) {
    if (value && value->is_string() && value->get_ref<const std::string &>() == name)
      return name;
    expected += (expected.empty() ? "'" : ", '") + std::string(name) + "'";
  }
  require(false, "'" + std::string(key) + "' must be one of " + expected + ", found " +
                     (value ? show(*value) : "nothing"));
  return *choices.begin();
}

std::vector<int64_t> DescriptorReader::integers(const char *key, int64_t count, int64_t least) {
  const auto *value = find(key);
  bool good =
      value && value->is_array() && (count < 0 || value->size() == static_cast<size_t>(count));
  if (good)
    for (const auto &element : *value)
      good &= isExtent(element, least);
  if (good)
    return value->get<std::vector<int64_t>>();
  require(false, "'" + std::string(key) + "' must be a list of " +
                     (count < 0 ? std::string() : std::to_string(count) + " ") + "integers from " +
                     std::to_string(least) + " to 2^48, found " +
                     (value ? show(*value) : "nothing"));
  return std::vector<int64_t>(std::max<int64_t>(count, 0), least);
}

const nlohmann::json *DescriptorReader::object(const char *key) {
  const auto *value = find(key);
  if (value && !value->is_object()) {
    require(false, "'" + std::string(key) + "' must be an object or null, found " + show(*value));
    return nullptr;
  }
  return value;
}

void DescriptorReader::requireProduct(const char *what, const std::vector<int64_t> &extents) {
  int64_t product = 1;
  for (int64_t extent : extents) {
    if (__builtin_mul_overflow(product, extent, &product) || product > maxExtent)
      return require(false, std::string(what) + " has more than 2^48 elements");
  }
}
