//===- ManifestProgram.cpp - the program that a manifest describes -------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ManifestReading.h"

using namespace memopt;

/// The name of a file beside the manifest.
static Status checkFileName(const JsonView &view, const std::string &name) {
  bool isPlain = !name.empty() && name != "." && name != ".." &&
                 name.find_first_of(std::string("/\0", 2)) == std::string::npos;
  return isPlain ? Status::ok() : view.fail("is " + quote(name) + ", expected a file's name");
}

StatusOr<TargetSpec> memopt::readTarget(const JsonView &view) {
  TargetSpec target;
  if (view.raw().is_string()) {
    target.name = view.raw().get<std::string>();
    if (target.name == "cuda")
      return view.fail("is 'cuda' alone, expected an object with its chip and image");
    return target;
  }
  if (!view.raw().is_object())
    return view.failExpected("a string or an object");
  MEMOPT_ASSIGN_OR_RETURN(target.name, view.getString("name"));
  MEMOPT_ASSIGN_OR_RETURN(target.chip, view.getString("chip"));
  MEMOPT_ASSIGN_OR_RETURN(target.sms, view.getInteger("sms"));
  MEMOPT_ASSIGN_OR_RETURN(target.image, view.getString("image"));
  if (view.has("overhead_bytes")) {
    MEMOPT_ASSIGN_OR_RETURN(target.overheadBytes, view.getInteger("overhead_bytes"));
  }
  if (target.overheadBytes < 0)
    return view.fail("plans " + std::to_string(target.overheadBytes) + " bytes beside the arena");
  if (target.chip.empty() || target.sms < 1)
    return view.fail("has chip " + quote(target.chip) + " and " + std::to_string(target.sms) +
                     " multiprocessors, expected a name and at least one");
  MEMOPT_ASSIGN_OR_RETURN(JsonView image, view.get("image"));
  MEMOPT_RETURN_IF_ERROR(checkFileName(image, target.image));
  return target;
}

StatusOr<std::vector<std::string>> memopt::readKernels(const JsonView &view,
                                                       const TargetSpec &target) {
  MEMOPT_ASSIGN_OR_RETURN(std::vector<std::string> names, view.asStrings());
  if (!names.empty() && target.image.empty())
    return view.fail("names " + std::to_string(names.size()) + " kernels, but target " +
                     quote(target.name) + " has no image that holds them");
  for (const std::string &name : names)
    if (name.empty() || name.find('\0') != std::string::npos)
      return view.fail("has " + quote(name) + ", which names no kernel");
  return names;
}

StatusOr<InstructionSpec> memopt::readInstruction(const JsonView &view,
                                                  const BytesBySpace &arenaBytes) {
  InstructionSpec instruction{};
  MEMOPT_ASSIGN_OR_RETURN(instruction.name, view.getString("name"));
  MEMOPT_ASSIGN_OR_RETURN(instruction.kind, readStringOr(view, "kind", "kernel"));
  MEMOPT_ASSIGN_OR_RETURN(instruction.module, readStringOr(view, "module", ""));
  MEMOPT_ASSIGN_OR_RETURN(instruction.ops, readStringOr(view, "ops", ""));
  MEMOPT_ASSIGN_OR_RETURN(instruction.resource, readStringOr(view, "resource", "compute"));
  if (view.has("call")) {
    MEMOPT_ASSIGN_OR_RETURN(instruction.call, view.getInteger("call"));
  }
  if (view.has("outputs")) {
    MEMOPT_ASSIGN_OR_RETURN(std::vector<JsonView> outputs, view.getArray("outputs"));
    for (const JsonView &output : outputs) {
      MEMOPT_ASSIGN_OR_RETURN(PlacedTensor tensor, readUnnamedTensor(output, arenaBytes));
      instruction.outputs.push_back(std::move(tensor));
    }
  }
  if (view.has("live_bytes")) {
    MEMOPT_ASSIGN_OR_RETURN(JsonView live, view.get("live_bytes"));
    MEMOPT_ASSIGN_OR_RETURN(instruction.liveBytes, readBytes(live));
  }
  return instruction;
}

StatusOr<RegionSpec> memopt::readRegion(const JsonView &view, const Manifest &manifest) {
  RegionSpec region{};
  auto instructions = int64_t(manifest.instructions.size());
  MEMOPT_ASSIGN_OR_RETURN(region.begin, view.getInteger("begin"));
  MEMOPT_ASSIGN_OR_RETURN(region.end, view.getInteger("end"));
  MEMOPT_ASSIGN_OR_RETURN(region.count, view.getInteger("count"));
  if (region.begin < 0 || region.begin >= region.end || region.end > instructions)
    return view.fail("holds instructions " + std::to_string(region.begin) + " to " +
                     std::to_string(region.end) + " (exclusive), but there are " +
                     std::to_string(instructions));
  constexpr int64_t mostIterations = int64_t(1) << 30;
  if (region.count < 1 || region.count > mostIterations)
    return view.fail("runs " + std::to_string(region.count) + " times, expected 1 to " +
                     std::to_string(mostIterations));
  MEMOPT_ASSIGN_OR_RETURN(JsonView inputs, view.get("inputs"));
  MEMOPT_ASSIGN_OR_RETURN(std::vector<std::string> names, inputs.asStrings());
  for (const std::string &name : names) {
    const InputSpec *input = manifest.findInput(name);
    if (!input)
      return inputs.fail("names " + quote(name) + ", which is no input");
    region.inputs.push_back(size_t(input - manifest.inputs.data()));
  }
  return region;
}

/// One end of a transfer.
static Status readEnd(const JsonView &view, const char *key, int64_t bytes,
                      const BytesBySpace &arenaBytes, int &space, int64_t &offset) {
  MEMOPT_ASSIGN_OR_RETURN(JsonView end, view.get(key));
  MEMOPT_ASSIGN_OR_RETURN(space, readSpace(end, "space"));
  MEMOPT_ASSIGN_OR_RETURN(offset, end.getInteger("offset"));
  return checkPlace(end, space, offset, bytes, arenaBytes);
}

/// Between the disk and a window of the host, in whole blocks.
static Status checkBlocks(const JsonView &view, const TransferSpec &transfer) {
  bool isRead = transfer.fromSpace == diskSpace, isWrite = transfer.toSpace == diskSpace;
  if (!isRead && !isWrite)
    return Status::ok();
  if ((isRead ? transfer.toSpace : transfer.fromSpace) != MEMOPT_SPACE_HOST)
    return view.fail("moves bytes between the disk and the " +
                     std::string(getSpaceName(isRead ? transfer.toSpace : transfer.fromSpace)) +
                     ", expected a window of the host in between");
  for (int64_t number : {transfer.fromOffset, transfer.toOffset, transfer.bytes})
    if (number % diskBlockBytes)
      return view.fail("moves to or from the disk, where " + std::to_string(number) +
                       " is no multiple of " + std::to_string(diskBlockBytes));
  return Status::ok();
}

StatusOr<TransferSpec> memopt::readTransfer(const JsonView &view, const BytesBySpace &arenaBytes) {
  TransferSpec transfer{};
  MEMOPT_ASSIGN_OR_RETURN(transfer.bytes, view.getInteger("bytes"));
  MEMOPT_ASSIGN_OR_RETURN(transfer.resource, view.getString("resource"));
  MEMOPT_RETURN_IF_ERROR(
      readEnd(view, "from", transfer.bytes, arenaBytes, transfer.fromSpace, transfer.fromOffset));
  MEMOPT_RETURN_IF_ERROR(
      readEnd(view, "to", transfer.bytes, arenaBytes, transfer.toSpace, transfer.toOffset));
  if (transfer.fromSpace == transfer.toSpace &&
      transfer.fromOffset < transfer.toOffset + transfer.bytes &&
      transfer.toOffset < transfer.fromOffset + transfer.bytes)
    return view.fail("moves " + std::to_string(transfer.bytes) + " bytes from offset " +
                     std::to_string(transfer.fromOffset) + " to " +
                     std::to_string(transfer.toOffset) + " of one arena, which overlap");
  MEMOPT_RETURN_IF_ERROR(checkBlocks(view, transfer));
  return transfer;
}

/// In the order of the enumeration.
static constexpr const char *collectiveNames[] = {"all_reduce", "reduce_scatter", "all_gather",
                                                  "own_shard", "all_to_all"};

std::string memopt::getName(CollectiveKind kind) { return collectiveNames[size_t(kind)]; }

static StatusOr<CollectiveKind> readCollectiveKind(const JsonView &view) {
  MEMOPT_ASSIGN_OR_RETURN(std::string kind, view.getString("kind"));
  for (size_t i = 0; i < std::size(collectiveNames); ++i)
    if (kind == collectiveNames[i])
      return CollectiveKind(i);
  return view.fail("is of kind " + quote(kind) +
                   ", expected all_reduce, reduce_scatter, all_gather, own_shard or all_to_all");
}

/// Sizes of a tensor and its shards that go together.
static Status checkShards(const JsonView &view, const CollectiveSpec &spec, int64_t ranks) {
  if (spec.kind == CollectiveKind::AllReduce)
    return spec.elements == spec.resultElements
               ? Status::ok()
               : view.fail("gives " + std::to_string(spec.resultElements) + " elements for " +
                           std::to_string(spec.elements));
  bool isGather = spec.kind == CollectiveKind::AllGather;
  int64_t shard = isGather ? spec.elements : spec.resultElements,
          whole = isGather ? spec.resultElements : spec.elements;
  if (spec.kind == CollectiveKind::AllToAll) {
    if (shard % ranks)
      return view.fail("gives " + std::to_string(shard) + " elements, which are no " +
                       std::to_string(ranks) + " shards of one size");
    shard /= ranks;
  }
  if (shard < (whole + ranks - 1) / ranks)
    return view.fail("has shards of " + std::to_string(shard) + " elements, but " +
                     std::to_string(ranks) + " of them do not hold " + std::to_string(whole));
  return Status::ok();
}

/// One end of a collective: so many elements of device memory.
static Status readCollectiveEnd(const JsonView &view, const char *key, const char *countKey,
                                DType dtype, const BytesBySpace &arenaBytes, int64_t &offset,
                                int64_t &elements) {
  MEMOPT_ASSIGN_OR_RETURN(elements, view.getInteger(countKey));
  int64_t bytes;
  if (elements < 1 || __builtin_mul_overflow(elements, getByteSize(dtype), &bytes))
    return view.fail("has " + std::to_string(elements) + " as " + quote(countKey));
  int space;
  MEMOPT_RETURN_IF_ERROR(readEnd(view, key, bytes, arenaBytes, space, offset));
  if (space != MEMOPT_SPACE_DEVICE || offset % getByteSize(dtype))
    return view.fail("has " + quote(key) + " at offset " + std::to_string(offset) + " of the " +
                     getSpaceName(space) + " arena, expected elements of the device's");
  return Status::ok();
}

StatusOr<CollectiveSpec> memopt::readCollective(const JsonView &view, const Manifest &manifest) {
  CollectiveSpec spec{};
  MEMOPT_ASSIGN_OR_RETURN(spec.kind, readCollectiveKind(view));
  MEMOPT_ASSIGN_OR_RETURN(std::string name, view.getString("dtype"));
  std::optional<DType> dtype = parseDType(name);
  bool isSum = spec.kind == CollectiveKind::AllReduce || spec.kind == CollectiveKind::ReduceScatter;
  if (!dtype || (isSum && !isSummable(*dtype)))
    return view.fail("has dtype " + quote(name) + ", expected " +
                     (isSum ? "f32, f64, i32 or i64" : "one of docs/Package.md"));
  spec.dtype = *dtype;
  if (view.has("in_flight")) {
    MEMOPT_ASSIGN_OR_RETURN(spec.isInFlight, view.getBool("in_flight"));
  }
  MEMOPT_RETURN_IF_ERROR(readCollectiveEnd(view, "from", "elements", spec.dtype,
                                           manifest.arenaBytes, spec.fromOffset, spec.elements));
  MEMOPT_RETURN_IF_ERROR(readCollectiveEnd(view, "to", "result_elements", spec.dtype,
                                           manifest.arenaBytes, spec.toOffset,
                                           spec.resultElements));
  MEMOPT_RETURN_IF_ERROR(checkShards(view, spec, manifest.ranks));
  int64_t size = getByteSize(spec.dtype);
  bool isApart = spec.fromOffset + spec.elements * size <= spec.toOffset ||
                 spec.toOffset + spec.resultElements * size <= spec.fromOffset;
  bool isInPlace = spec.kind == CollectiveKind::AllReduce && spec.fromOffset == spec.toOffset;
  if (!isApart && !isInPlace)
    return view.fail("has operand and result at offsets " + std::to_string(spec.fromOffset) +
                     " and " + std::to_string(spec.toOffset) + ", which overlap");
  return spec;
}

StatusOr<IndexSite> memopt::readIndexSite(const JsonView &view) {
  IndexSite site{};
  MEMOPT_ASSIGN_OR_RETURN(site.module, view.getString("module"));
  MEMOPT_ASSIGN_OR_RETURN(site.op, view.getString("op"));
  MEMOPT_ASSIGN_OR_RETURN(site.min, view.getInteger("min"));
  MEMOPT_ASSIGN_OR_RETURN(site.max, view.getInteger("max"));
  MEMOPT_ASSIGN_OR_RETURN(site.what, readStringOr(view, "what", ""));
  return site;
}

StatusOr<ConvBnEvalSpec> memopt::readConvBnEval(const JsonView &view) {
  ConvBnEvalSpec spec;
  MEMOPT_ASSIGN_OR_RETURN(JsonView fused, view.get("fused"));
  MEMOPT_ASSIGN_OR_RETURN(spec.fused, fused.asStrings());
  MEMOPT_ASSIGN_OR_RETURN(JsonView refused, view.get("refused"));
  if (!refused.raw().is_object())
    return refused.failExpected("an object");
  for (const auto &entry : refused.raw().items()) {
    MEMOPT_ASSIGN_OR_RETURN(std::string reason, refused.getString(entry.key()));
    spec.refused.emplace_back(entry.key(), std::move(reason));
  }
  return spec;
}

StatusOr<GradientSpec> memopt::readGradient(const JsonView &view, const Manifest &manifest) {
  GradientSpec gradient;
  MEMOPT_RETURN_IF_ERROR(readTensor(view, "space", manifest.arenaBytes, gradient));
  MEMOPT_RETURN_IF_ERROR(readWholeShape(view, manifest.ranks, gradient));
  MEMOPT_RETURN_IF_ERROR(checkInMemory(view, gradient));
  MEMOPT_ASSIGN_OR_RETURN(gradient.readyAfter, view.getInteger("ready_after"));
  auto instructions = int64_t(manifest.instructions.size());
  if (gradient.readyAfter < -1 || gradient.readyAfter >= instructions)
    return view.fail("has 'ready_after' " + std::to_string(gradient.readyAfter) +
                     ", but there are " + std::to_string(instructions) + " instructions");
  return gradient;
}
