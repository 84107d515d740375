//===- JsonCursor.h - JSON with a place in every error -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A cursor is a JSON value and the way to it. Every accessor either gives the value in the wanted
// form or fails with "FILE: graph_module.graph.nodes[12].inputs[0].arg: expected X, found Y".
// Unknown keys are ignored (newer minor versions of the schema add some); missing ones are errors.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_ARCHIVE_JSONCURSOR_H
#define MEMOPT_IMPORT_ARCHIVE_JSONCURSOR_H

#include "memopt/Import/Archive/Limits.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/JSON.h"

namespace memopt::pt2 {

/// Parses text after checking its size and nesting; errors start with `file`.
llvm::Expected<llvm::json::Value> parseJson(llvm::StringRef text, llvm::StringRef file);

/// Valid while its parent cursor and the parsed value are; meant to live on the stack.
class JsonCursor {
public:
  JsonCursor(const llvm::json::Value &value, llvm::StringRef file) : value(&value), name(file) {}

  llvm::Expected<JsonCursor> field(llvm::StringRef key) const;
  /// A missing key and a null are the same: the schema writes unset optionals as null.
  std::optional<JsonCursor> optionalField(llvm::StringRef key) const;
  bool isNull() const { return value->kind() == llvm::json::Value::Null; }

  llvm::Expected<int64_t> integer() const;
  llvm::Expected<bool> boolean() const;
  llvm::Expected<std::string> string() const;
  /// Also takes the strings that stand for infinities and NaN.
  llvm::Expected<double> number() const;
  /// The only key of an object: the schema's tagged unions.
  llvm::Expected<std::pair<llvm::StringRef, JsonCursor>> variant() const;

  llvm::Error forEachElement(llvm::function_ref<llvm::Error(const JsonCursor &)> visit) const;
  llvm::Error
  forEachField(llvm::function_ref<llvm::Error(llvm::StringRef, const JsonCursor &)> visit) const;

  llvm::Error expected(const llvm::Twine &what) const;
  llvm::Error error(const llvm::Twine &message) const;

private:
  JsonCursor(const llvm::json::Value &value, const JsonCursor &parent, llvm::StringRef name)
      : value(&value), parent(&parent), name(name) {}
  JsonCursor(const llvm::json::Value &value, const JsonCursor &parent, size_t index)
      : value(&value), parent(&parent), index(index) {}
  void print(llvm::raw_ostream &os) const;

  const llvm::json::Value *value;
  const JsonCursor *parent = nullptr;
  llvm::StringRef name;        ///< the key, or the file for the outermost
  std::optional<size_t> index; ///< the position, for elements of arrays
};

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_ARCHIVE_JSONCURSOR_H
