//===- SchemaPieces.h - what the readers of the schema share -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The schema of torch.export is read in three parts: types and tensors (SchemaPieces.cpp),
// arguments and graphs (Schema.cpp), the program with its signature (Signature.cpp). All of it
// comes from a file: whatever does not hold is an error that names its place in the JSON.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_IMPORT_ARCHIVE_SCHEMAPIECES_H
#define MEMOPT_LIB_IMPORT_ARCHIVE_SCHEMAPIECES_H

#include "memopt/Import/Archive/Schema.h"

namespace memopt::pt2 {

/// The element type with this code of the schema's own, which are not c10's ScalarType; none if it
/// is not supported, and then what it is called.
std::optional<DType> getDType(int64_t code);
std::string describeDTypeCode(int64_t code);

/// A size: an integer, or an expression with the value it had when exported.
llvm::Expected<int64_t> parseSymInt(const JsonCursor &json);
llvm::Error parseSymInts(const JsonCursor &json, llvm::SmallVectorImpl<int64_t> &values);
/// The field `name`.
llvm::Expected<std::string> parseName(const JsonCursor &json);
llvm::Expected<DType> parseDType(const JsonCursor &json);
llvm::Expected<Argument> parseArgument(const JsonCursor &json);
llvm::Expected<Graph> parseGraph(const JsonCursor &json);

/// Appends what `read` makes of each element.
template <typename T, typename Read>
llvm::Error parseList(const JsonCursor &json, std::vector<T> &values, Read read) {
  return json.forEachElement([&](const JsonCursor &element) -> llvm::Error {
    auto value = read(element);
    if (!value)
      return value.takeError();
    values.push_back(std::move(*value));
    return llvm::Error::success();
  });
}

} // namespace memopt::pt2

#endif // MEMOPT_LIB_IMPORT_ARCHIVE_SCHEMAPIECES_H
