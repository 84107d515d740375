//===- Weights.h - tensors stored in an archive -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Parameters, buffers and constants lie in the archive as whole untyped storages. A config maps
// each fully qualified name to a storage and a strided view of it. Views are checked against the
// storage's real length before a byte is touched, and given out packed and row-major.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_ARCHIVE_WEIGHTS_H
#define MEMOPT_IMPORT_ARCHIVE_WEIGHTS_H

#include "memopt/Import/Archive/Archive.h"
#include "memopt/Import/Archive/Schema.h"

#include "llvm/ADT/MapVector.h"

namespace memopt::pt2 {

/// Packed row-major elements. `owner` keeps them alive: the mapped file, or a copy.
struct TensorData {
  llvm::ArrayRef<char> bytes;
  std::shared_ptr<const void> owner;
};

class Weights {
public:
  /// Reads both configs (weights and constants) of the model and checks every view.
  static llvm::Expected<Weights> open(const Archive &archive);

  /// Null when the archive has no tensor of this name.
  const TensorMeta *getMeta(llvm::StringRef name) const;
  /// Whether the archive has elements for it, not only a shape.
  bool hasData(llvm::StringRef name) const;
  /// No value when the archive was exported without data (the meta device).
  llvm::Expected<std::optional<TensorData>> load(llvm::StringRef name) const;
  /// The first name, in order of names, of the tensor that `name` shares its storage with: names of
  /// one tensor have the same alias.
  llvm::StringRef getAlias(llvm::StringRef name) const;
  /// Whether names that share a storage are one tensor. Without data they need not be: all tensors
  /// of the meta device have one storage for each type. Where there are more, data was left out
  /// later, and the storages are those that were.
  bool knowsTies(llvm::StringRef name) const;

private:
  struct Record {
    TensorMeta meta;
    std::string payload; ///< member of the archive
    std::string alias;
    uint64_t bytes = 0; ///< of the whole storage
    bool knowsTies = true;
  };

  explicit Weights(const Archive &archive) : archive(&archive) {}
  llvm::Error readConfig(llvm::StringRef folder, llvm::StringRef config);
  llvm::Error addRecord(llvm::StringRef folder, llvm::StringRef name, const JsonCursor &json);
  llvm::Error findAliases();

  const Archive *archive;
  llvm::MapVector<std::string, Record, std::map<std::string, unsigned>> records;
};

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_ARCHIVE_WEIGHTS_H
