//===- ManifestFuzzer.cpp - any text may be a package's manifest -----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All places of a manifest that is accepted lie in its arenas.
//
//===----------------------------------------------------------------------===//

#include "Fuzzing.h"
#include "memopt-runtime/package/Manifest.h"

using namespace memopt;
using namespace memopt::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  StatusOr<Manifest> manifest = parseManifest(toText(data, size));
  if (!manifest.isOk()) {
    require(!manifest.getMessage().empty());
    return 0;
  }
  auto check = [&](const PlacedTensor &tensor) {
    int64_t end = 0;
    require(tensor.offset >= 0 && tensor.bytes >= 0 &&
            !__builtin_add_overflow(tensor.offset, tensor.bytes, &end) &&
            end <= manifest->arenaBytes[tensor.space] &&
            getElementCount(tensor.shape) * getByteSize(tensor.dtype) == tensor.bytes);
  };
  for (const InputSpec &input : manifest->inputs)
    check(input);
  for (const OutputSpec &output : manifest->outputs)
    check(output);
  for (const VariableSpec &variable : manifest->variables)
    check(variable);
  for (const GradientSpec &gradient : manifest->gradients)
    check(gradient);
  return 0;
}
