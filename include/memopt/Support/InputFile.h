//===- InputFile.h - files that users name ----------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What every reader on the compiler's side begins with. Errors say what is wrong without the path.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_SUPPORT_INPUTFILE_H
#define MEMOPT_SUPPORT_INPUTFILE_H

#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

namespace memopt {

/// The content of a regular file: a pipe or a device may never end. The error carries the system's
/// code.
llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> readInputFile(llvm::StringRef path,
                                                                  bool isText);

/// Whether a failure to read or write is the machine's: it has no descriptors, memory or disk left.
bool isMachineError(std::error_code code);

namespace limits {
/// llvm::json parses recursively, so depth is checked before it sees the text.
inline constexpr unsigned jsonNesting = 128;
/// Each takes about 40 bytes once parsed.
inline constexpr uint64_t jsonTokens = uint64_t(1) << 25;
} // namespace limits

/// Parses text within these limits.
llvm::Expected<llvm::json::Value> parseInputJson(llvm::StringRef text);

/// The integer that a number is; nothing for null. LLVM's own getAsInteger takes the real number
/// 2^63 for one, whose conversion is undefined.
std::optional<int64_t> getInteger(const llvm::json::Value *value);

/// "KEY: expected WHAT, found ...", of a place where something else is, or nothing (null).
llvm::Error makeJsonError(const llvm::Twine &key, const llvm::Twine &what,
                          const llvm::json::Value *found);

} // namespace memopt

#endif // MEMOPT_SUPPORT_INPUTFILE_H
