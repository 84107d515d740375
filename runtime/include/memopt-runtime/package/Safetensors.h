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
// holes. The reader trusts nothing in a file: lengths, offsets, overlaps, dtypes, names and nesting
// are checked before any tensor is handed out, so a later access cannot leave the file. Memory for
// the table of tensors is a few times the header's size, whatever the header says.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_PACKAGE_SAFETENSORS_H
#define MEMOPT_RUNTIME_PACKAGE_SAFETENSORS_H

#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/numbers/DType.h"
#include <deque>
#include <string>
#include <vector>

namespace memopt {

/// A tensor in a file: row-major and contiguous.
struct SafetensorsEntry {
  DType dtype;
  Shape shape;
  int64_t offset; ///< from the file's begin
  int64_t bytes;
};

class SafetensorsFile {
public:
  /// By name.
  using Entries = std::deque<std::pair<std::string, SafetensorsEntry>>;

  /// For tensors that are read once.
  static StatusOr<SafetensorsFile> open(const std::string &path);
  static StatusOr<SafetensorsFile> open(InputFile file);
  /// For tensors that are looked at in place; see MappedFile.
  static StatusOr<SafetensorsFile> map(const std::string &path);

  const std::string &getPath() const { return file.getPath(); }
  const Entries &entries() const { return table.entries; }
  /// The digest of the package that the file says to belong to; empty where it says none.
  const std::string &getPackage() const { return table.package; }

  /// The tensor of that name, or null.
  const SafetensorsEntry *find(const std::string &name) const;

  /// Reads bytes [begin, begin + size) of a tensor.
  Status read(const SafetensorsEntry &entry, int64_t begin, void *target, int64_t size) const;
  /// A tensor of a file that was mapped, at any alignment (use memcpy).
  const unsigned char *getData(const SafetensorsEntry &entry) const;

  /// What a header says.
  struct Table {
    Entries entries; ///< sorted
    std::string package;
  };

private:
  InputFile file;
  MappedFile mapped; ///< empty unless asked for
  Table table;
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
  /// `package`: as SafetensorsFile::getPackage() will say.
  static StatusOr<SafetensorsLayout> plan(const std::vector<TensorToWrite> &tensors,
                                          const std::string &package = "");

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
Status writeSafetensors(const std::string &path, const std::vector<TensorToWrite> &tensors,
                        const std::string &package = "");

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
