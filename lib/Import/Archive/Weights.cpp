//===- Weights.cpp - tensors stored in an archive -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Archive/Weights.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/Support/CheckedArithmetic.h"

#include <cstring>
#include <set>
#include <tuple>

using namespace llvm;
using namespace memopt::pt2;

/// One past the last element that the view reaches, in elements from the start of its storage.
static std::optional<int64_t> getExtent(const TensorMeta &meta) {
  if (meta.getNumElements() == 0)
    return meta.storageOffset;
  int64_t last = meta.storageOffset;
  for (auto [size, stride] : zip_equal(meta.sizes, meta.strides)) {
    auto reach = stride < 0 ? std::nullopt : checkedMul(size - 1, stride);
    auto sum = reach ? checkedAdd(last, *reach) : std::nullopt;
    if (!sum)
      return std::nullopt;
    last = *sum;
  }
  return checkedAdd<int64_t>(last, 1);
}

/// Sufficient, and exact for what slicing and transposing a packed tensor gives: by growing stride,
/// each dimension steps over all that the smaller ones reach.
static bool isInjective(const TensorMeta &meta) {
  SmallVector<std::pair<int64_t, int64_t>> dims; // stride, size
  for (auto [size, stride] : zip_equal(meta.sizes, meta.strides))
    if (size > 1)
      dims.emplace_back(stride, size);
  sort(dims);
  int64_t reach = 0;
  for (auto [stride, size] : dims) {
    if (stride <= reach)
      return false;
    reach += stride * (size - 1); // cannot overflow: getExtent has passed
  }
  return true;
}

static bool isPacked(const TensorMeta &meta) {
  int64_t stride = 1;
  for (size_t i = meta.sizes.size(); i-- > 0;) {
    if (meta.sizes[i] > 1 && meta.strides[i] != stride)
      return false;
    stride *= meta.sizes[i];
  }
  return true;
}

Expected<Weights> Weights::open(const Archive &archive) {
  if (archive.contains("data/weights/model.pt"))
    return makeError(archive.getPath() +
                     ": written by PyTorch 2.8, whose weights are pickles; export it "
                     "again with PyTorch 2.9 or newer");
  Weights weights(archive);
  if (Error err = weights.readConfig("data/weights/", "model_weights_config.json"))
    return std::move(err);
  if (Error err = weights.readConfig("data/constants/", "model_constants_config.json"))
    return std::move(err);
  if (Error err = weights.findAliases())
    return std::move(err);
  return weights;
}

Error Weights::readConfig(StringRef folder, StringRef config) {
  std::string member = (folder + config).str();
  if (!archive->contains(member))
    return Error::success();
  auto text = archive->read(member);
  if (!text)
    return text.takeError();
  std::string place = (archive->getPath() + ": " + member).str();
  auto json = parseJson(*text, place);
  if (!json)
    return json.takeError();
  JsonCursor root(*json, place);
  auto entries = root.field("config");
  if (!entries)
    return entries.takeError();
  return entries->forEachField(
      [&](StringRef name, const JsonCursor &entry) { return addRecord(folder, name, entry); });
}

Error Weights::addRecord(StringRef folder, StringRef name, const JsonCursor &json) {
  if (auto pickled = json.optionalField("use_pickle")) {
    auto flag = pickled->boolean();
    if (!flag)
      return flag.takeError();
    if (*flag)
      return pickled->error(
          "the tensor is pickled (a tensor subclass?); pickles are never executed");
  }
  auto path = json.field("path_name");
  if (!path)
    return path.takeError();
  auto file = path->string();
  if (!file)
    return file.takeError();
  if (file->empty() || StringRef(*file).find_first_of("/\\") != StringRef::npos || *file == "..")
    return path->expected("a file name without path separators");
  auto metaJson = json.field("tensor_meta");
  if (!metaJson)
    return metaJson.takeError();
  auto meta = parseTensorMeta(*metaJson);
  if (!meta)
    return meta.takeError();

  Record record;
  record.meta = std::move(*meta);
  record.payload = (folder + *file).str();
  auto bytes = archive->read(record.payload);
  if (!bytes)
    return path->error("refers to a storage that cannot be read: " + toString(bytes.takeError()));
  record.bytes = bytes->size();
  std::optional<int64_t> extent = getExtent(record.meta);
  if (!extent)
    return metaJson->error("expected strides from 0 up whose reach fits 64 bits");
  if (!isInjective(record.meta))
    return metaJson->error("the strides make elements of '" + name + "' overlap");
  uint64_t width = getByteWidth(record.meta.dtype);
  if (record.bytes % width)
    return path->error("expected a length divisible by " + Twine(width) + ", found " +
                       Twine(record.bytes) + " bytes");
  if (record.bytes && uint64_t(*extent) > record.bytes / width)
    return metaJson->error("sizes, strides and offset reach element " + Twine(*extent) +
                           ", but the storage '" + *file + "' has " + Twine(record.bytes / width));
  if (!records.insert({name.str(), std::move(record)}).second)
    return json.error("'" + name + "' is among the weights too");
  return Error::success();
}

namespace {
/// A tensor of weights in its storage.
struct View {
  uint64_t begin, end; ///< the bytes that it reaches over
  size_t order;        ///< by name
  StringRef name;
  const TensorMeta *meta;
};
} // namespace

/// Whether one of the bytes of a view that `test` is asked for, element by element, passes.
static bool anyByte(const View &view, function_ref<bool(uint64_t)> test) {
  const TensorMeta &meta = *view.meta;
  uint64_t width = getByteWidth(meta.dtype);
  SmallVector<int64_t> index(meta.sizes.size(), 0);
  int64_t element = meta.storageOffset;
  for (int64_t i = 0, n = meta.getNumElements(); i != n; ++i) {
    for (uint64_t byte = 0; byte != width; ++byte)
      if (test(element * width + byte))
        return true;
    for (size_t dim = index.size(); dim-- > 0;) {
      element += meta.strides[dim];
      if (++index[dim] != meta.sizes[dim])
        break;
      element -= meta.strides[dim] * meta.sizes[dim];
      index[dim] = 0;
    }
  }
  return false;
}

/// Two of the views that share a byte, the first by name in front; null where none do. Views whose
/// reaches overlap may be interleaved, as columns of one matrix are, and share nothing.
static std::pair<const View *, const View *> findOverlap(MutableArrayRef<View> views) {
  sort(views, [](const View &a, const View &b) {
    return std::tie(a.begin, a.order) < std::tie(b.begin, b.order);
  });
  for (size_t first = 0, last; first != views.size(); first = last) {
    uint64_t begin = views[first].begin, end = views[first].end;
    for (last = first + 1; last != views.size() && views[last].begin < end; ++last)
      end = std::max(end, views[last].end);
    if (last == first + 1)
      continue;
    MutableArrayRef<View> group = views.slice(first, last - first);
    sort(group, [](const View &a, const View &b) { return a.order < b.order; });
    BitVector taken(end - begin);
    for (const View &later : group) {
      std::optional<uint64_t> shared;
      anyByte(later, [&](uint64_t byte) {
        if (taken.test(byte - begin))
          shared = byte;
        taken.set(byte - begin);
        return shared.has_value();
      });
      if (!shared)
        continue;
      const View *earlier = find_if(group, [&](const View &view) {
        return anyByte(view, [&](uint64_t b) { return b == *shared; });
      });
      return {earlier, &later};
    }
  }
  return {};
}

/// Names are tied when they are the same view of the same storage. Other views of one storage may
/// only stand side by side, else writing one variable would have to change another.
Error Weights::findAliases() {
  std::map<StringRef, std::vector<View>> storages;
  using Sizes = SmallVector<int64_t, 4>;
  using Key = std::tuple<StringRef, DType, int64_t, Sizes, Sizes>;
  std::map<Key, StringRef> first;
  // Storages of a type, of weights and of constants apart: one for all is written for each of them.
  std::map<std::pair<StringRef, DType>, std::set<StringRef>> withoutData;
  auto getAlike = [&](const Record &record) -> std::set<StringRef> & {
    return withoutData[{StringRef(record.payload).rsplit('/').first, record.meta.dtype}];
  };
  // Tensors of several shapes in one place are told apart by it alone: it holds none of them.
  std::map<std::pair<StringRef, int64_t>, std::set<Sizes>> shapes;
  std::set<StringRef> placeholders;
  for (auto &[name, record] : records) {
    if (record.bytes != 0)
      continue;
    getAlike(record).insert(record.payload);
    const TensorMeta &meta = record.meta;
    std::set<Sizes> &here = shapes[{record.payload, meta.storageOffset}];
    here.insert(Sizes(meta.sizes.begin(), meta.sizes.end()));
    if (here.size() > 1)
      placeholders.insert(record.payload);
  }
  size_t order = 0;
  for (auto &[name, record] : records) {
    const TensorMeta &meta = record.meta;
    record.alias = name;
    record.knowsTies =
        record.bytes != 0 || (getAlike(record).size() > 1 && !placeholders.count(record.payload));
    if (!record.knowsTies || meta.getNumElements() == 0)
      continue;
    auto [tied, isNew] = first.try_emplace(
        Key(record.payload, meta.dtype, meta.storageOffset, meta.sizes, meta.strides), name);
    if (!isNew) {
      record.alias = tied->second.str();
      continue;
    }
    if (record.bytes == 0)
      continue;
    uint64_t width = getByteWidth(meta.dtype);
    storages[record.payload].push_back(
        {meta.storageOffset * width, *getExtent(meta) * width, order++, name, &meta});
  }
  for (auto &[payload, views] : storages)
    if (auto [earlier, later] = findOverlap(views); earlier)
      return makeError(archive->getPath() + ": '" + later->name + "' and '" + earlier->name +
                       "' share bytes of " + payload + " but are not the same tensor");
  return Error::success();
}

const TensorMeta *Weights::getMeta(StringRef name) const {
  auto it = records.find(name.str());
  return it == records.end() ? nullptr : &it->second.meta;
}

bool Weights::hasData(StringRef name) const {
  auto it = records.find(name.str());
  return it != records.end() && it->second.bytes != 0;
}

bool Weights::knowsTies(StringRef name) const {
  auto it = records.find(name.str());
  return it != records.end() && it->second.knowsTies;
}

StringRef Weights::getAlias(StringRef name) const {
  auto it = records.find(name.str());
  return it == records.end() ? name : StringRef(it->second.alias);
}

/// Copies a strided view row by row of its last dimension.
static void pack(const TensorMeta &meta, const char *storage, char *out) {
  size_t width = getByteWidth(meta.dtype), rank = meta.sizes.size();
  SmallVector<int64_t> index(rank, 0);
  int64_t element = meta.storageOffset;
  for (int64_t i = 0, n = meta.getNumElements(); i != n; ++i, out += width) {
    std::memcpy(out, storage + element * width, width);
    for (size_t dim = rank; dim-- > 0;) {
      element += meta.strides[dim];
      if (++index[dim] != meta.sizes[dim])
        break;
      element -= meta.strides[dim] * meta.sizes[dim];
      index[dim] = 0;
    }
  }
}

Expected<std::optional<TensorData>> Weights::load(StringRef name) const {
  auto it = records.find(name.str());
  if (it == records.end())
    return makeError(archive->getPath() + ": no tensor '" + name + "' among the weights");
  const Record &record = it->second;
  size_t length = record.meta.getNumElements() * getByteWidth(record.meta.dtype);
  if (record.bytes == 0 && length != 0)
    return std::optional<TensorData>();
  auto storage = archive->read(record.payload);
  if (!storage)
    return storage.takeError();
  if (isPacked(record.meta)) {
    size_t begin = record.meta.storageOffset * getByteWidth(record.meta.dtype);
    return TensorData{ArrayRef(storage->data() + begin, length), archive->getBuffer()};
  }
  auto copy = std::make_shared<std::vector<char>>(length);
  pack(record.meta, storage->data(), copy->data());
  return TensorData{*copy, copy};
}
