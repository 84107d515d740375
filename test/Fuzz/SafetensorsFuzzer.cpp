//===- SafetensorsFuzzer.cpp - any bytes may be a safetensors file ---------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every byte of every tensor that is handed out is read, and the file can be written again. Headers
// are mutated as JSON, with their length kept right.
//
//===----------------------------------------------------------------------===//

#include "Fuzzing.h"
#include "memopt-runtime/package/Safetensors.h"

using namespace memopt;
using namespace memopt::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  MemoryFile bytes(toText(data, size));
  StatusOr<SafetensorsFile> file = SafetensorsFile::map(bytes.getPath());
  if (!file.isOk()) {
    require(!file.getMessage().empty());
    return 0;
  }
  std::vector<TensorToWrite> tensors;
  unsigned sum = 0;
  for (const auto &[name, entry] : file->entries()) {
    for (int64_t i = 0; i < entry.bytes; ++i)
      sum += file->getData(entry)[i];
    (void)findNonFinite(entry.dtype, file->getData(entry), entry.bytes / getByteSize(entry.dtype));
    tensors.push_back({name, entry.dtype, entry.shape, file->getData(entry)});
  }
  volatile unsigned used = sum;
  (void)used;
  require(SafetensorsLayout::plan(tensors).isOk());
  return 0;
}

/// The length of the header as the first eight bytes say it, or -1 when there are fewer bytes.
static int64_t readLength(std::string_view file) {
  uint64_t length = 0;
  for (int i = 7; i >= 0 && file.size() >= 8; --i)
    length = length << 8 | uint8_t(file[size_t(i)]);
  return file.size() < 8 || length > file.size() - 8 ? -1 : int64_t(length);
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                                          unsigned seed) {
  std::string_view file = toText(data, size);
  int64_t length = readLength(file);
  if (seed % 2 == 0 || length < 0)
    return LLVMFuzzerMutate(data, size, maxSize);
  std::string header =
      mutateJson(llvm::StringRef(file.substr(8, size_t(length))).rtrim(), seed / 2);
  std::string mutated;
  for (int i = 0; i < 8; ++i)
    mutated += char(uint64_t(header.size()) >> 8 * i & 255);
  return giveBack(mutated + header + std::string(file.substr(8 + size_t(length))), data, maxSize);
}
