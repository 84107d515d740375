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

#ifndef MEMOPT_RUNTIME_PACKAGE_SAFETENSORS_H
#define MEMOPT_RUNTIME_PACKAGE_SAFETENSORS_H

#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/numbers/DType.h"
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

/// A tensor to be written; `data` must stay in place until it is.
struct TensorToWrite {
  std::string name;
  DType dtype;
  Shape shape;
  const void *data;
};

/// Where tensors lie in a file. It follows from their names, types and shapes alone, so that
/// several writers of one file agree without talking.
struct SafetensorsLayout {
  /// A BadInput when two tensors have one name, or one has a name that the format keeps for itself
  /// or cannot write.
  static StatusOr<SafetensorsLayout> plan(const std::vector<TensorToWrite> &tensors);

  struct Place {
    int64_t offset; ///< from the file's begin
    int64_t bytes;
  };
  std::string head;          ///< the bytes before the first tensor
  std::vector<Place> places; ///< by tensor
  std::vector<size_t> order; ///< tensors by place
  int64_t bytes = 0;         ///< of the whole file
};

/// Writes all tensors to what `path` names, a regular file atomically.
Status writeSafetensors(const std::string &path, const std::vector<TensorToWrite> &tensors);

/// A new file whose room is taken before anything is written, so that a full disk is known at once.
/// Ranges may be written in any order; until finish() nothing is promised of the file.
class SafetensorsWriter {
public:
  static StatusOr<SafetensorsWriter> create(const std::string &path, SafetensorsLayout layout);

  /// Writes bytes [begin, begin + size) of a tensor.
  Status write(size_t tensor, int64_t begin, const void *data, int64_t size);

  /// Flushes to the disk.
  Status finish();

private:
  SafetensorsWriter(std::string path, SafetensorsLayout layout, Descriptor file)
      : path(std::move(path)), layout(std::move(layout)), file(std::move(file)) {}

  std::string path;
  SafetensorsLayout layout;
  Descriptor file;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_PACKAGE_SAFETENSORS_H
