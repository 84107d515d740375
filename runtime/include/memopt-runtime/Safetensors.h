//===- Safetensors.h - named tensors in a file ------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The safetensors format (https://huggingface.co/docs/safetensors): 8 bytes with the header's
// length, a JSON header {name: {dtype, shape, data_offsets}}, then the tensors' bytes without
// holes. The reader maps the file and trusts nothing in it: lengths, offsets, overlaps, dtypes,
// names and nesting are checked before any tensor is handed out, so a later access cannot leave the
// file.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_SAFETENSORS_H
#define MEMOPT_RUNTIME_SAFETENSORS_H

#include "memopt-runtime/DType.h"
#include "memopt-runtime/Files.h"
#include <map>
#include <string>
#include <vector>

namespace memopt {

/// A tensor in a mapped file: row-major and contiguous, at any alignment (use memcpy).
struct SafetensorsEntry {
  DType dtype;
  Shape shape;
  const unsigned char *data;
  int64_t bytes;
};

class SafetensorsFile {
public:
  static StatusOr<SafetensorsFile> open(const std::string &path);

  const std::string &getPath() const { return path; }
  const std::map<std::string, SafetensorsEntry> &entries() const { return tensors; }

  /// The tensor of that name, or null.
  const SafetensorsEntry *find(const std::string &name) const;

private:
  std::string path;
  MappedFile file;
  std::map<std::string, SafetensorsEntry> tensors;
};

/// A tensor to be written; `data` must stay in place until writeSafetensors returns.
struct TensorToWrite {
  std::string name;
  DType dtype;
  Shape shape;
  const void *data;
};

/// Writes all tensors to one file, atomically. Names must differ.
Status writeSafetensors(const std::string &path, const std::vector<TensorToWrite> &tensors);

} // namespace memopt

#endif // MEMOPT_RUNTIME_SAFETENSORS_H
