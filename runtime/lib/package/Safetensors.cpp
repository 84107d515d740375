//===- Safetensors.cpp - named tensors in a file --------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/package/Safetensors.h"
#include "SafetensorsHeader.h"
#include "memopt-runtime/base/Json.h"
#include <algorithm>
#include <cassert>
#include <set>
#include <tuple>

using namespace memopt;
using nlohmann::json;

// The format's own limit on headers.
static constexpr uint64_t maxHeaderBytes = 100'000'000;

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Length and text of the header.
static StatusOr<std::string> readHeader(const InputFile &file) {
  if (file.size() < 8)
    return badInput("not a safetensors file: " + std::to_string(file.size()) +
                    " bytes, a header length takes 8");
  unsigned char bytes[8];
  MEMOPT_RETURN_IF_ERROR(file.read(0, bytes, sizeof bytes));
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | bytes[i];
  if (length > file.size() - 8)
    return badInput("the header claims " + std::to_string(length) + " bytes, " +
                    std::to_string(file.size() - 8) + " are left in the file");
  if (length > maxHeaderBytes)
    return badInput("the header claims " + std::to_string(length) + " bytes, at most " +
                    std::to_string(maxHeaderBytes) + " are allowed");
  std::string text(size_t(length), '\0');
  MEMOPT_RETURN_IF_ERROR(file.read(8, text.data(), text.size()));
  if (text.empty() || text[0] != '{')
    return badInput("not a safetensors file: the header does not begin with '{'");
  return text;
}

static StatusOr<SafetensorsFile::Table> readTable(const InputFile &file) {
  MEMOPT_ASSIGN_OR_RETURN(std::string header, readHeader(file));
  auto begin = int64_t(8 + header.size());
  return parseSafetensorsHeader(header, begin, int64_t(file.size()) - begin);
}

StatusOr<SafetensorsFile> SafetensorsFile::open(InputFile file) {
  SafetensorsFile result;
  StatusOr<Table> table = readTable(file);
  if (!table.isOk())
    return table.takeStatus().withContext(quote(file.getPath()));
  result.table = *std::move(table);
  result.file = std::move(file);
  return result;
}

StatusOr<SafetensorsFile> SafetensorsFile::open(const std::string &path) {
  MEMOPT_ASSIGN_OR_RETURN(InputFile file, InputFile::open(path));
  return open(std::move(file));
}

StatusOr<SafetensorsFile> SafetensorsFile::map(const std::string &path) {
  MEMOPT_ASSIGN_OR_RETURN(SafetensorsFile result, open(path));
  MEMOPT_ASSIGN_OR_RETURN(result.mapped, MappedFile::open(result.file));
  return result;
}

const SafetensorsEntry *SafetensorsFile::find(const std::string &name) const {
  auto found = std::lower_bound(
      table.entries.begin(), table.entries.end(), name,
      [](const auto &entry, const std::string &wanted) { return entry.first < wanted; });
  return found == table.entries.end() || found->first != name ? nullptr : &found->second;
}

Status SafetensorsFile::read(const SafetensorsEntry &entry, int64_t begin, void *target,
                             int64_t size) const {
  assert(begin >= 0 && size >= 0 && begin <= entry.bytes && size <= entry.bytes - begin);
  return file.read(uint64_t(entry.offset + begin), target, size_t(size));
}

const unsigned char *SafetensorsFile::getData(const SafetensorsEntry &entry) const {
  assert(uint64_t(entry.offset + entry.bytes) <= mapped.size());
  return mapped.data() + entry.offset;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// The text of a header from the tensors in the order of their places.
static StatusOr<std::string> printHeader(const std::vector<TensorToWrite> &tensors,
                                         const SafetensorsLayout &layout,
                                         const std::string &package) {
  std::string text = R"({"__metadata__":{"format":"pt")";
  if (!package.empty())
    text += R"(,"memopt_package":)" + json(package).dump();
  text += "}";
  std::set<std::string_view> names = {"__metadata__"};
  for (size_t i : layout.order) {
    const TensorToWrite &tensor = tensors[i];
    if (!names.insert(tensor.name).second)
      return badInput(tensor.name == "__metadata__"
                          ? "a tensor is named '__metadata__', which the format keeps for itself"
                          : "there are two tensors named " + quote(tensor.name));
    const SafetensorsLayout::Place &place = layout.places[i];
    nlohmann::ordered_json entry = {{"dtype", getSafetensorsName(tensor.dtype)},
                                    {"shape", tensor.shape},
                                    {"data_offsets", {place.offset, place.offset + place.bytes}}};
    try {
      text += "," + json(tensor.name).dump() + ":" + entry.dump();
    } catch (const json::exception &) {
      return badInput("the name " + quote(tensor.name) + " is not valid UTF-8");
    }
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > maxHeaderBytes)
    return badInput("names and shapes take " + std::to_string(text.size()) +
                    " bytes, the format allows " + std::to_string(maxHeaderBytes));
  return text;
}

StatusOr<SafetensorsLayout> SafetensorsLayout::plan(const std::vector<TensorToWrite> &tensors,
                                                    const std::string &package) {
  SafetensorsLayout layout;
  for (size_t i = 0; i < tensors.size(); ++i)
    layout.order.push_back(i);
  // Wide elements first: behind a padded header every tensor is then aligned.
  std::sort(layout.order.begin(), layout.order.end(), [&](size_t a, size_t b) {
    return std::make_tuple(-getByteSize(tensors[a].dtype), a) <
           std::make_tuple(-getByteSize(tensors[b].dtype), b);
  });
  layout.places.resize(tensors.size());
  for (size_t i : layout.order) {
    MEMOPT_ASSIGN_OR_RETURN(int64_t bytes, getTensorBytes(tensors[i].dtype, tensors[i].shape));
    layout.places[i] = {layout.bytes, bytes};
    if (__builtin_add_overflow(layout.bytes, bytes, &layout.bytes))
      return badInput("the tensors' bytes together do not fit 64 bits");
  }
  MEMOPT_ASSIGN_OR_RETURN(std::string header, printHeader(tensors, layout, package));
  for (int i = 0; i < 8; ++i)
    layout.head += char(uint64_t(header.size()) >> 8 * i & 255);
  layout.head += header;
  auto headBytes = int64_t(layout.head.size());
  for (Place &place : layout.places)
    place.offset += headBytes;
  if (__builtin_add_overflow(layout.bytes, headBytes, &layout.bytes))
    return badInput("the tensors' bytes together do not fit 64 bits");
  return layout;
}

Status memopt::writeSafetensors(const std::string &path, const std::vector<TensorToWrite> &tensors,
                                const std::string &package) {
  StatusOr<SafetensorsLayout> layout = SafetensorsLayout::plan(tensors, package);
  if (!layout.isOk())
    return layout.takeStatus().withContext(quote(path));
  MEMOPT_ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::create(path));
  MEMOPT_RETURN_IF_ERROR(writer.write(layout->head.data(), layout->head.size()));
  for (size_t i : layout->order)
    MEMOPT_RETURN_IF_ERROR(writer.write(tensors[i].data, size_t(layout->places[i].bytes)));
  return writer.commit();
}

StatusOr<SafetensorsWriter> SafetensorsWriter::create(const std::string &path,
                                                      SafetensorsLayout layout) {
  MEMOPT_ASSIGN_OR_RETURN(Descriptor file, createNewFile(path));
  MEMOPT_RETURN_IF_ERROR(reserveSpace(file, path, layout.bytes));
  MEMOPT_RETURN_IF_ERROR(writeAt(file, path, layout.head.data(), layout.head.size(), 0));
  return SafetensorsWriter(path, std::move(layout), std::move(file));
}

Status SafetensorsWriter::write(size_t tensor, int64_t begin, const void *data, int64_t size) {
  const SafetensorsLayout::Place &place = layout.places[tensor];
  assert(begin >= 0 && size >= 0 && begin <= place.bytes && size <= place.bytes - begin);
  return writeAt(file, path, data, size_t(size), place.offset + begin);
}

Status SafetensorsWriter::finish() { return syncAndClose(std::move(file), path); }
