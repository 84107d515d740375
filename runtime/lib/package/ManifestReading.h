//===- ManifestReading.h - parts of a manifest ------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What Manifest.cpp puts together: one function for each kind of entry. They check an entry alone
// and against the arenas; what concerns several entries is checked by checkManifest.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_PACKAGE_MANIFESTREADING_H
#define MEMOPT_RUNTIME_LIB_PACKAGE_MANIFESTREADING_H

#include "memopt-runtime/package/Manifest.h"

namespace memopt {

//===----------------------------------------------------------------------===//
// Pieces (ManifestTensors.cpp)
//===----------------------------------------------------------------------===//

StatusOr<std::string> readStringOr(const JsonView &view, const char *key,
                                   const std::string &otherwise);
StatusOr<std::optional<double>> readOptionalNumber(const JsonView &view, const char *key);
StatusOr<BytesBySpace> readBytes(const JsonView &view);

/// A space by its name.
StatusOr<int> readSpace(const JsonView &view, const char *key);
/// Fails unless `bytes` at `offset` lie inside the arena of `space`.
Status checkPlace(const JsonView &view, int space, int64_t offset, int64_t bytes,
                  const BytesBySpace &arenaBytes);

/// A tensor with all that it has, or without its name and shape.
Status readTensor(const JsonView &view, const char *spaceKey, const BytesBySpace &arenaBytes,
                  PlacedTensor &tensor);
StatusOr<PlacedTensor> readUnnamedTensor(const JsonView &view, const BytesBySpace &arenaBytes);

/// Fails for a tensor of the disk.
Status checkInMemory(const JsonView &view, const PlacedTensor &tensor);
StatusOr<InputSpec> readInput(const JsonView &view, const BytesBySpace &arenaBytes);
StatusOr<OutputSpec> readOutput(const JsonView &view, const BytesBySpace &arenaBytes);
/// `whole_shape`, where it is there.
Status readWholeShape(const JsonView &view, int64_t ranks, ShardedTensor &tensor);
StatusOr<VariableSpec> readVariable(const JsonView &view, const Manifest &manifest);

//===----------------------------------------------------------------------===//
// The program (ManifestProgram.cpp)
//===----------------------------------------------------------------------===//

/// A name, or an object that says more.
StatusOr<TargetSpec> readTarget(const JsonView &view);
/// Names of what a program launches; `target` has an image or there are none.
StatusOr<std::vector<std::string>> readKernels(const JsonView &view, const TargetSpec &target);
StatusOr<InstructionSpec> readInstruction(const JsonView &view, const BytesBySpace &arenaBytes);
/// `manifest` has its inputs and instructions already.
StatusOr<RegionSpec> readRegion(const JsonView &view, const Manifest &manifest);
StatusOr<TransferSpec> readTransfer(const JsonView &view, const BytesBySpace &arenaBytes);
StatusOr<CollectiveSpec> readCollective(const JsonView &view, const Manifest &manifest);
StatusOr<IndexSite> readIndexSite(const JsonView &view);
StatusOr<ConvBnEvalSpec> readConvBnEval(const JsonView &view);
StatusOr<GradientSpec> readGradient(const JsonView &view, const Manifest &manifest);

//===----------------------------------------------------------------------===//
// The whole (ManifestChecks.cpp)
//===----------------------------------------------------------------------===//

/// What entries must be to each other. Puts regions into their order.
Status checkManifest(Manifest &manifest);

} // namespace memopt

#endif // MEMOPT_RUNTIME_LIB_PACKAGE_MANIFESTREADING_H
