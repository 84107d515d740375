//===- SafetensorsHeader.h - the table of tensors ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_PACKAGE_SAFETENSORSHEADER_H
#define MEMOPT_RUNTIME_LIB_PACKAGE_SAFETENSORSHEADER_H

#include "memopt-runtime/package/Safetensors.h"

namespace memopt {

/// Reads the header of a file that has `dataBytes` from byte `dataBegin` on. The tensors fill them
/// without overlap and without holes.
StatusOr<SafetensorsFile::Table> parseSafetensorsHeader(std::string_view text, int64_t dataBegin,
                                                        int64_t dataBytes);

} // namespace memopt

#endif // MEMOPT_RUNTIME_LIB_PACKAGE_SAFETENSORSHEADER_H
