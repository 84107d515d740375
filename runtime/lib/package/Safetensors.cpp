//===- Safetensors.cpp - named tensors in a file --------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/package/Safetensors.h"
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

namespace {
/// Where a tensor claims to lie, relative to the end of the header.
struct Extent {
  int64_t begin, end;
  const std::string *name;
};
} // namespace

static StatusOr<uint64_t> readHeaderLength(const MappedFile &file) {
  if (file.size() < 8)
    return badInput("not a safetensors file: " + std::to_string(file.size()) +
                    " bytes, a header length takes 8");
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | file.data()[i];
  if (length > file.size() - 8)
    return badInput("the header claims " + std::to_string(length) + " bytes, " +
                    std::to_string(file.size() - 8) + " are left in the file");
  if (length > maxHeaderBytes)
    return badInput("the header claims " + std::to_string(length) + " bytes, at most " +
                    std::to_string(maxHeaderBytes) + " are allowed");
  if (length == 0 || file.data()[8] != '{')
    return badInput("not a safetensors file: the header does not begin with '{'");
  return length;
}

static StatusOr<SafetensorsEntry> readEntry(const JsonView &view, int64_t dataBytes,
                                            Extent &extent) {
  SafetensorsEntry entry;
  MEMOPT_ASSIGN_OR_RETURN(std::string dtype, view.getString("dtype"));
  std::optional<DType> parsed = parseSafetensorsDType(dtype);
  if (!parsed)
    return view.fail("has the unknown dtype " + quote(dtype));
  entry.dtype = *parsed;
  MEMOPT_ASSIGN_OR_RETURN(JsonView shape, view.get("shape"));
  MEMOPT_ASSIGN_OR_RETURN(entry.shape, shape.asIntegers());
  StatusOr<int64_t> bytes = getTensorBytes(entry.dtype, entry.shape);
  if (!bytes.isOk())
    return shape.fail("is wrong: " + bytes.getMessage());
  entry.bytes = *bytes;
  MEMOPT_ASSIGN_OR_RETURN(JsonView place, view.get("data_offsets"));
  MEMOPT_ASSIGN_OR_RETURN(std::vector<int64_t> offsets, place.asIntegers());
  if (offsets.size() != 2 || offsets[0] < 0 || offsets[1] < offsets[0] || offsets[1] > dataBytes)
    return place.failExpected("two offsets in order within " + std::to_string(dataBytes) +
                              " bytes of data");
  if (offsets[1] - offsets[0] != entry.bytes)
    return view.fail("has " + std::to_string(offsets[1] - offsets[0]) + " bytes, but " +
                     toString(entry.dtype, entry.shape) + " takes " + std::to_string(entry.bytes));
  extent.begin = offsets[0];
  extent.end = offsets[1];
  return entry;
}

/// The tensors must fill the data without overlap and without holes.
static Status checkExtents(std::vector<Extent> &extents, int64_t dataBytes) {
  std::sort(extents.begin(), extents.end(), [](const Extent &a, const Extent &b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  int64_t filled = 0;
  for (const Extent &extent : extents) {
    if (extent.begin < filled)
      return badInput("tensor " + quote(*extent.name) + " begins at byte " +
                      std::to_string(extent.begin) + ", inside the one before it");
    if (extent.begin > filled)
      return badInput("bytes " + std::to_string(filled) + " to " + std::to_string(extent.begin) +
                      " belong to no tensor");
    filled = extent.end;
  }
  if (filled != dataBytes)
    return badInput("the tensors end at byte " + std::to_string(filled) +
                    " of the data, which has " + std::to_string(dataBytes));
  return Status::ok();
}

static Status readTensors(const MappedFile &file,
                          std::map<std::string, SafetensorsEntry> &tensors) {
  MEMOPT_ASSIGN_OR_RETURN(uint64_t headerBytes, readHeaderLength(file));
  MEMOPT_ASSIGN_OR_RETURN(json header,
                          parseJson(file.text().substr(8, size_t(headerBytes)), /*maxDepth=*/4));
  if (!header.is_object())
    return badInput("the header is not an object");
  int64_t dataBytes = int64_t(file.size() - 8 - headerBytes);
  std::vector<Extent> extents;
  for (const auto &[name, value] : header.items()) {
    if (name == "__metadata__")
      continue;
    Extent extent;
    MEMOPT_ASSIGN_OR_RETURN(SafetensorsEntry entry,
                            readEntry(JsonView(value, name), dataBytes, extent));
    entry.data = file.data() + 8 + headerBytes + extent.begin;
    extent.name = &tensors.emplace(name, std::move(entry)).first->first;
    extents.push_back(extent);
  }
  return checkExtents(extents, dataBytes);
}

StatusOr<SafetensorsFile> SafetensorsFile::open(const std::string &path) {
  SafetensorsFile result;
  result.path = path;
  MEMOPT_ASSIGN_OR_RETURN(result.file, MappedFile::open(path));
  if (Status status = readTensors(result.file, result.tensors); !status.isOk())
    return status.withContext(quote(path));
  return result;
}

const SafetensorsEntry *SafetensorsFile::find(const std::string &name) const {
  auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// The text of a header from the tensors in the order of their places.
static StatusOr<std::string> printHeader(const std::vector<TensorToWrite> &tensors,
                                         const SafetensorsLayout &layout) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
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

StatusOr<SafetensorsLayout> SafetensorsLayout::plan(const std::vector<TensorToWrite> &tensors) {
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
  MEMOPT_ASSIGN_OR_RETURN(std::string header, printHeader(tensors, layout));
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

Status memopt::writeSafetensors(const std::string &path,
                                const std::vector<TensorToWrite> &tensors) {
  StatusOr<SafetensorsLayout> layout = SafetensorsLayout::plan(tensors);
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
