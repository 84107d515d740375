//===- Fuzzing.h - what the fuzzers share -----------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each fuzzer is one LLVMFuzzerTestOneInput (https://llvm.org/docs/LibFuzzer.html): whatever the
// bytes are, it returns. What it reads must end in a value or in an error with a message; what is
// handed out must be readable to its end.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TEST_FUZZ_FUZZING_H
#define MEMOPT_TEST_FUZZ_FUZZING_H

#include "JsonMutation.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                                          unsigned seed);

namespace memopt::testing {

/// Bytes as a file without a place on disk, for readers that take a path.
class MemoryFile {
public:
  explicit MemoryFile(std::string_view bytes) : descriptor(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (::write(descriptor, bytes.data(), bytes.size()) != ssize_t(bytes.size()))
      std::abort();
  }
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;
  ~MemoryFile() { ::close(descriptor); }
  std::string getPath() const { return "/proc/self/fd/" + std::to_string(descriptor); }

private:
  int descriptor;
};

inline std::string_view toText(const uint8_t *data, size_t size) {
  return {reinterpret_cast<const char *>(data), size};
}

/// Ends the process, as a sanitizer would, when a promise is broken.
inline void require(bool condition) {
  if (!condition)
    std::abort();
}

/// Copies a mutated input back, cut at `maxSize`.
inline size_t giveBack(const std::string &mutated, uint8_t *data, size_t maxSize) {
  size_t size = std::min(mutated.size(), maxSize);
  std::memcpy(data, mutated.data(), size);
  return size;
}

} // namespace memopt::testing

#endif // MEMOPT_TEST_FUZZ_FUZZING_H
