//===- JsonMutator.cpp - mutates inputs that are JSON ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Linked with the fuzzers whose input is JSON from byte MEMOPT_FUZZ_JSON_BEGIN on: half of the time
// values change, else bytes do.
//
//===----------------------------------------------------------------------===//

#include "Fuzzing.h"

using namespace memopt::testing;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                                          unsigned seed) {
  constexpr size_t begin = MEMOPT_FUZZ_JSON_BEGIN;
  if (seed % 2 == 0 || size < begin)
    return LLVMFuzzerMutate(data, size, maxSize);
  std::string_view text = toText(data, size);
  return giveBack(std::string(text.substr(0, begin)) +
                      mutateJson(llvm::StringRef(text.substr(begin)), seed / 2),
                  data, maxSize);
}
