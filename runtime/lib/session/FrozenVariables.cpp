//===- FrozenVariables.cpp - variables that are kept in codes -------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/numbers/Random.h"
#include "memopt-runtime/session/Session.h"
#include <algorithm>
#include <cstdio>
#include <cstring>

using namespace memopt;

namespace {
/// The variables that hold a frozen tensor: codes, scales, scales of scales; null where there are
/// none.
struct EncodedParts {
  std::array<const VariableSpec *, 3> variables{};

  EncodedParts(const Manifest &manifest, const VariableSpec &codes) {
    const EncodingSpec &encoding = *codes.encoding;
    variables[0] = &codes;
    if (!encoding.scales.empty())
      variables[1] = manifest.findVariable(encoding.scales);
    if (!encoding.scaleScales.empty())
      variables[2] = manifest.findVariable(encoding.scaleScales);
  }
};
} // namespace

/// The parts as encoder and decoder take them.
template <typename Byte, typename Float>
static BlockParts<Byte, Float> arrange(const std::array<Byte *, 3> &parts) {
  BlockParts<Byte, Float> arranged{parts[0]};
  if (parts[2]) {
    arranged.scaleBytes = parts[1];
    arranged.scaleScales = reinterpret_cast<Float *>(parts[2]);
  } else {
    arranged.scales = reinterpret_cast<Float *>(parts[1]);
  }
  return arranged;
}

Status Session::encode(const VariableSpec &variable, const float *whole) {
  EncodedParts parts(getManifest(), variable);
  std::array<std::vector<char>, 3> storage;
  std::array<uint8_t *, 3> targets{};
  for (size_t i = 0; i < storage.size(); ++i)
    if (parts.variables[i]) {
      storage[i].resize(size_t(parts.variables[i]->bytes));
      targets[i] = reinterpret_cast<uint8_t *>(storage[i].data());
    }
  encodeBlocks(variable.encoding->code, whole, getElementCount(variable.encoding->shape),
               arrange<uint8_t, float>(targets));
  for (size_t i = 0; i < storage.size(); ++i)
    if (parts.variables[i])
      MEMOPT_RETURN_IF_ERROR(writeTensor(*parts.variables[i], storage[i].data()));
  encoded.insert(variable.name);
  baseDigest.reset();
  return Status::ok();
}

StatusOr<BlockParts<const uint8_t, const float>>
Session::viewParts(const VariableSpec &variable, std::array<std::vector<char>, 3> &storage) const {
  EncodedParts parts(getManifest(), variable);
  std::array<const uint8_t *, 3> found{};
  for (size_t i = 0; i < storage.size(); ++i)
    if (parts.variables[i]) {
      MEMOPT_ASSIGN_OR_RETURN(const char *data, arenas.view(*parts.variables[i], storage[i]));
      found[i] = reinterpret_cast<const uint8_t *>(data);
    }
  return arrange<const uint8_t, const float>(found);
}

Status Session::decode(const VariableSpec &variable, float *whole) const {
  std::array<std::vector<char>, 3> storage;
  StatusOr<BlockParts<const uint8_t, const float>> parts = viewParts(variable, storage);
  if (!parts.isOk())
    return parts.takeStatus();
  decodeBlocks(variable.encoding->code, *parts, getElementCount(variable.encoding->shape), whole);
  return Status::ok();
}

Status Session::encodeFrom(const VariableSpec &variable, const SafetensorsFile &file,
                           const SafetensorsEntry &entry) {
  auto elements = size_t(getElementCount(variable.encoding->shape));
  std::vector<float> values(elements);
  auto bytes = int64_t(elements) * getByteSize(entry.dtype);
  if (entry.dtype == DType::F32) {
    MEMOPT_RETURN_IF_ERROR(file.read(entry, 0, reinterpret_cast<char *>(values.data()), bytes));
    return encode(variable, values.data());
  }
  std::vector<char> source(static_cast<size_t>(bytes));
  MEMOPT_RETURN_IF_ERROR(file.read(entry, 0, source.data(), bytes));
  MEMOPT_RETURN_IF_ERROR(
      convertElements(entry.dtype, source.data(), DType::F32, values.data(), int64_t(elements)));
  return encode(variable, values.data());
}

/// Eight bytes at a time: bases have many.
static uint64_t addToHash(uint64_t hash, const char *data, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data + i, size_t(std::min<int64_t>(8, bytes - i)));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

StatusOr<std::string> Session::getBaseDigest() const {
  if (baseDigest)
    return *baseDigest;
  uint64_t hash = 0;
  bool hasBase = false;
  for (const VariableSpec &variable : getManifest().variables) {
    if (!variable.encoding)
      continue;
    hasBase = true;
    hash ^= hashName(variable.name);
    for (const VariableSpec *part : EncodedParts(getManifest(), variable).variables) {
      if (!part)
        continue;
      std::vector<char> storage;
      MEMOPT_ASSIGN_OR_RETURN(const char *data, arenas.view(*part, storage));
      hash = addToHash(hash, data, part->bytes);
    }
  }
  char text[17] = "";
  if (hasBase)
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  baseDigest = text;
  return *baseDigest;
}
