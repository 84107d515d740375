//===- Manifest.cpp - what a package says of its program ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ManifestReading.h"
#include <algorithm>

using namespace memopt;
using nlohmann::json;

int Manifest::getLossIndex() const {
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].role == "loss")
      return int(i);
  return -1;
}

template <typename Spec>
static const Spec *findByName(const std::vector<Spec> &specs, const std::string &name) {
  auto found =
      std::find_if(specs.begin(), specs.end(), [&](const Spec &spec) { return spec.name == name; });
  return found == specs.end() ? nullptr : &*found;
}
const VariableSpec *Manifest::findVariable(const std::string &name) const {
  return findByName(variables, name);
}
const VariableSpec *Manifest::findHyperparameter(const std::string &name) const {
  const VariableSpec *variable = findVariable(name);
  return variable && variable->role == "hyperparameter" ? variable : nullptr;
}
const InputSpec *Manifest::findInput(const std::string &name) const {
  return findByName(inputs, name);
}

BytesBySpace Manifest::getStateEnds() const {
  BytesBySpace ends{};
  for (const VariableSpec &variable : variables)
    if (variable.isState())
      ends[size_t(variable.space)] =
          std::max(ends[size_t(variable.space)], variable.offset + variable.bytes);
  return ends;
}

const VariableSpec *Manifest::findIndexFault() const {
  for (const VariableSpec &variable : variables)
    if (variable.role == "index_fault")
      return &variable;
  return nullptr;
}

static const VariableSpec *findScale(const Manifest &manifest, std::string_view name) {
  for (const VariableSpec &variable : manifest.variables)
    if (variable.role == "loss_scale" && variable.name == name)
      return &variable;
  return nullptr;
}
const VariableSpec *Manifest::findLossScale() const { return findScale(*this, "loss_scale"); }
const VariableSpec *Manifest::findSkippedSteps() const {
  return findScale(*this, "loss_scale.skipped_steps");
}

const VariableSpec *Manifest::findGradientNorm() const {
  for (const VariableSpec &variable : variables)
    if (variable.isGradientNorm())
      return &variable;
  return nullptr;
}

const RegionSpec *Manifest::findBatchRegion() const {
  for (const RegionSpec &region : regions)
    if (!region.inputs.empty())
      return &region;
  return nullptr;
}

int64_t Manifest::getFillsPerStep() const {
  const RegionSpec *region = findBatchRegion();
  return region ? region->count : 1;
}

std::string Manifest::describeInstruction(int64_t index) const {
  if (index < 0 || index >= int64_t(instructions.size()))
    return "the step";
  const InstructionSpec &instruction = instructions[size_t(index)];
  return "instruction " + std::to_string(index) + " " + quote(instruction.name) +
         (instruction.ops.empty() ? "" : " (" + instruction.ops + ")") +
         (instruction.module.empty() ? "" : " of module " + quote(instruction.module));
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

static Status readVersions(const JsonView &root, Manifest &manifest) {
  MEMOPT_ASSIGN_OR_RETURN(std::string format, root.getString("format"));
  if (format != "memopt-package")
    return badInput("format is " + quote(format) + ", expected 'memopt-package'");
  MEMOPT_ASSIGN_OR_RETURN(int64_t version, root.getInteger("version"));
  manifest.version = version;
  if (version < manifestVersion || version > severalProgramsVersion)
    return badInput("the package has version " + std::to_string(version) +
                    ", this runtime reads versions " + std::to_string(manifestVersion) + " to " +
                    std::to_string(severalProgramsVersion) + "; compile the model again");
  MEMOPT_ASSIGN_OR_RETURN(int64_t interface, root.getInteger("program_interface_version"));
  if (interface < MEMOPT_PROGRAM_INTERFACE_OLDEST || interface > MEMOPT_PROGRAM_INTERFACE_VERSION)
    return badInput("the program was compiled for interface version " + std::to_string(interface) +
                    ", this runtime offers versions " +
                    std::to_string(MEMOPT_PROGRAM_INTERFACE_OLDEST) + " to " +
                    std::to_string(MEMOPT_PROGRAM_INTERFACE_VERSION) + "; compile the model again");
  return Status::ok();
}

static Status readDigest(const JsonView &root, std::string &digest) {
  MEMOPT_ASSIGN_OR_RETURN(digest, readStringOr(root, "digest", ""));
  if (root.has("digest") && (digest.size() != size_t(digestLetters) ||
                             digest.find_first_not_of("0123456789abcdef") != std::string::npos))
    return badInput("digest is " + quote(digest) + ", expected " + std::to_string(digestLetters) +
                    " hexadecimal digits");
  return Status::ok();
}

static Status readHead(const JsonView &root, Manifest &manifest) {
  MEMOPT_RETURN_IF_ERROR(readDigest(root, manifest.digest));
  MEMOPT_ASSIGN_OR_RETURN(manifest.compiler, readStringOr(root, "compiler", "unknown"));
  MEMOPT_ASSIGN_OR_RETURN(JsonView target, root.get("target"));
  MEMOPT_ASSIGN_OR_RETURN(manifest.target, readTarget(target));
  if (root.has("kernels")) {
    MEMOPT_ASSIGN_OR_RETURN(JsonView kernels, root.get("kernels"));
    MEMOPT_ASSIGN_OR_RETURN(manifest.kernels, readKernels(kernels, manifest.target));
  }
  MEMOPT_ASSIGN_OR_RETURN(manifest.mode, root.getString("mode"));
  if (manifest.mode != "train" && manifest.mode != "eval")
    return badInput("mode is " + quote(manifest.mode) + ", expected 'train' or 'eval'");
  if (root.has("averaged")) {
    MEMOPT_ASSIGN_OR_RETURN(manifest.isAveraged, root.getBool("averaged"));
  }
  MEMOPT_ASSIGN_OR_RETURN(manifest.threads, root.getInteger("threads"));
  if (manifest.threads < 1 || manifest.threads > 4096)
    return badInput("threads is " + std::to_string(manifest.threads) + ", expected 1 to 4096");
  MEMOPT_ASSIGN_OR_RETURN(manifest.isInstrumented, root.getBool("instrumented"));
  MEMOPT_ASSIGN_OR_RETURN(JsonView arena, root.get("arena_bytes"));
  MEMOPT_ASSIGN_OR_RETURN(manifest.arenaBytes, readBytes(arena));
  MEMOPT_ASSIGN_OR_RETURN(manifest.diskFolder, readStringOr(root, "disk_folder", ""));
  MEMOPT_ASSIGN_OR_RETURN(JsonView predicted, root.get("predicted_peak_bytes"));
  MEMOPT_ASSIGN_OR_RETURN(manifest.predictedPeakBytes, readBytes(predicted));
  if (root.has("micro_batches")) {
    MEMOPT_ASSIGN_OR_RETURN(manifest.microBatches, root.getInteger("micro_batches"));
  }
  if (manifest.microBatches < 1 || manifest.microBatches > (1 << 20))
    return badInput("micro_batches is " + std::to_string(manifest.microBatches) +
                    ", expected 1 to 1048576");
  if (root.has("ranks")) {
    MEMOPT_ASSIGN_OR_RETURN(manifest.ranks, root.getInteger("ranks"));
  }
  if (manifest.ranks < 1 || manifest.ranks > mostRanks)
    return badInput("ranks is " + std::to_string(manifest.ranks) + ", expected 1 to " +
                    std::to_string(mostRanks));
  if (root.has("optimizer") && root.raw()["optimizer"].is_object()) {
    MEMOPT_ASSIGN_OR_RETURN(JsonView optimizer, root.get("optimizer"));
    MEMOPT_ASSIGN_OR_RETURN(manifest.optimizer, readStringOr(optimizer, "name", ""));
    MEMOPT_ASSIGN_OR_RETURN(manifest.learningRate, readOptionalNumber(optimizer, "lr"));
  }
  if (root.has("efficient_conv_bn_eval")) {
    MEMOPT_ASSIGN_OR_RETURN(JsonView fusion, root.get("efficient_conv_bn_eval"));
    MEMOPT_ASSIGN_OR_RETURN(manifest.convBnEval, readConvBnEval(fusion));
  }
  return Status::ok();
}

static StatusOr<ProgramEntry> readProgramEntry(const JsonView &view) {
  ProgramEntry entry;
  MEMOPT_ASSIGN_OR_RETURN(entry.name, view.getString("name"));
  MEMOPT_ASSIGN_OR_RETURN(entry.kind, view.getString("kind"));
  return entry;
}

template <typename Spec, typename Read>
static Status readList(const JsonView &root, const char *key, std::vector<Spec> &list, Read read) {
  MEMOPT_ASSIGN_OR_RETURN(std::vector<JsonView> elements, root.getArray(key));
  list.reserve(elements.size());
  for (const JsonView &element : elements) {
    StatusOr<Spec> spec = read(element);
    if (!spec.isOk())
      return spec.takeStatus();
    list.push_back(*std::move(spec));
  }
  return Status::ok();
}

/// What is not a tensor at its place; the manifest has those already.
static Status readProgram(const JsonView &root, Manifest &manifest) {
  const BytesBySpace &arenaBytes = manifest.arenaBytes;
  MEMOPT_RETURN_IF_ERROR(
      readList(root, "instructions", manifest.instructions,
               [&](const JsonView &view) { return readInstruction(view, arenaBytes); }));
  MEMOPT_RETURN_IF_ERROR(readList(root, "regions", manifest.regions, [&](const JsonView &view) {
    return readRegion(view, manifest);
  }));
  MEMOPT_RETURN_IF_ERROR(readList(root, "transfers", manifest.transfers, [&](const JsonView &view) {
    return readTransfer(view, arenaBytes);
  }));
  if (root.has("collectives"))
    MEMOPT_RETURN_IF_ERROR(
        readList(root, "collectives", manifest.collectives,
                 [&](const JsonView &view) { return readCollective(view, manifest); }));
  if (root.has("gradients"))
    MEMOPT_RETURN_IF_ERROR(
        readList(root, "gradients", manifest.gradients,
                 [&](const JsonView &view) { return readGradient(view, manifest); }));
  if (root.has("index_sites"))
    MEMOPT_RETURN_IF_ERROR(readList(root, "index_sites", manifest.indexSites, readIndexSite));
  return readList(root, "library_calls", manifest.libraryCalls,
                  [](const JsonView &view) -> StatusOr<json> {
                    if (!view.raw().is_object())
                      return view.failExpected("an object");
                    return view.raw();
                  });
}

StatusOr<Manifest> memopt::parseManifest(std::string_view text) {
  MEMOPT_ASSIGN_OR_RETURN(json document, parseJson(text, /*maxDepth=*/16));
  JsonView root(document);
  Manifest manifest;
  MEMOPT_RETURN_IF_ERROR(readVersions(root, manifest));
  MEMOPT_RETURN_IF_ERROR(readHead(root, manifest));
  auto bind = [&](auto read) {
    return [&manifest, read](const JsonView &view) { return read(view, manifest.arenaBytes); };
  };
  MEMOPT_RETURN_IF_ERROR(readList(root, "inputs", manifest.inputs, bind(readInput)));
  MEMOPT_RETURN_IF_ERROR(readList(root, "outputs", manifest.outputs, bind(readOutput)));
  MEMOPT_RETURN_IF_ERROR(readList(root, "variables", manifest.variables, [&](const JsonView &view) {
    return readVariable(view, manifest);
  }));
  MEMOPT_RETURN_IF_ERROR(readProgram(root, manifest));
  if (root.has("programs"))
    MEMOPT_RETURN_IF_ERROR(readList(root, "programs", manifest.programs, readProgramEntry));
  MEMOPT_RETURN_IF_ERROR(checkManifest(manifest));
  return manifest;
}
