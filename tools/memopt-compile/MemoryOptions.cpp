//===- MemoryOptions.cpp - budgets, and how they are met -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OptionGroups.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"

using namespace memopt::tool;
using mlir::memopt::OffloadTier;
using mlir::memopt::stringifyOffloadTier;

//===----------------------------------------------------------------------===//
// Budgets
//===----------------------------------------------------------------------===//

static llvm::Error fillBudget(const CommandLine &line, llvm::StringRef name, int64_t &budget) {
  if (!line.isSet(name))
    return llvm::Error::success();
  llvm::Expected<int64_t> bytes = parseBytes(name, line.get(name));
  if (!bytes)
    return bytes.takeError();
  budget = *bytes;
  return llvm::Error::success();
}

/// A folder may have colons in its name; the last one comes before the bytes. It is looked for when
/// a run begins, on the machine where that is.
static llvm::Error fillDisk(const CommandLine &line, CompileOptions &options) {
  if (!line.isSet("disk"))
    return llvm::Error::success();
  if (options.device)
    return invalid("--disk: this version keeps nothing on disk with --target=cuda");
  std::string text = line.get("disk");
  auto [folder, room] = llvm::StringRef(text).rsplit(':');
  if (folder.empty() || room.empty())
    return invalid("--disk expects DIR:BYTES, a folder and what may lie there, found '" + text +
                   "'");
  llvm::Expected<int64_t> bytes = parseBytes("disk", room);
  if (!bytes)
    return bytes.takeError();
  options.diskBudget = *bytes;
  llvm::SmallString<128> path(folder);
  if (std::error_code error = llvm::sys::fs::make_absolute(path))
    return invalid("--disk=" + text + ": " + error.message());
  options.diskFolder = path.str().str();
  return llvm::Error::success();
}

static llvm::Error fillBudgets(const CommandLine &line, CompileOptions &options) {
  if (llvm::Error error = fillBudget(line, "device-memory", options.deviceBudget))
    return error;
  if (llvm::Error error = fillBudget(line, "host-memory", options.hostBudget))
    return error;
  if (llvm::Error error = fillDisk(line, options))
    return error;
  options.givenDeviceBudget = options.deviceBudget; // of which the arena gets what is left
  if (options.device && options.deviceBudget >= 0)
    options.deviceBudget =
        std::max<int64_t>(0, options.deviceBudget - options.device->overheadBytes);
  options.pipeline.budget = options.deviceBudget;
  options.pipeline.hostBudget = options.hostBudget;
  options.pipeline.diskBudget = options.diskBudget;
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// What the compiler may choose
//===----------------------------------------------------------------------===//

/// The planner may not choose what the command line says.
static llvm::Error fillAutomatic(const CommandLine &line, CompileOptions &options) {
  mlir::memopt::FormChoices &automatic = options.automatic;
  options.isFormSearched = automatic.activations;
  if (!line.isSet("auto")) {
    automatic.offload =
        (line.isSet("host-memory") || line.isSet("disk")) && line.isSet("device-memory");
    return llvm::Error::success();
  }
  automatic.recompute = false;
  struct Technique {
    llvm::StringRef name;
    bool *isAllowed;
    llvm::StringRef option;
  };
  const Technique techniques[] = {{"recompute", &automatic.recompute, ""},
                                  {"accumulate", &automatic.accumulate, "micro-batches"},
                                  {"precision", &automatic.precision, "precision"},
                                  {"batch", &automatic.batch, "batch"},
                                  {"offload", &automatic.offload, ""},
                                  {"tile", &automatic.tile, "tile"}};
  for (const std::string &name : parseModules(line.get("auto"))) {
    const auto *technique =
        llvm::find_if(techniques, [&](const Technique &entry) { return entry.name == name; });
    if (technique == std::end(techniques))
      return invalid(
          "--auto expects recompute, accumulate, precision, batch, offload or tile, found '" +
          name + "'");
    if (!technique->option.empty() && line.isSet(technique->option))
      return invalid("--auto=" + name + " chooses what --" + technique->option + " says; give one");
    *technique->isAllowed = true;
  }
  options.isFormSearched |=
      automatic.accumulate || automatic.tile || automatic.precision || automatic.batch;
  if (!line.isSet("device-memory"))
    return invalid("--auto needs --device-memory, which it meets");
  options.pipeline.rematerialize = automatic.recompute;
  return llvm::Error::success();
}

/// `head` is every loss head, `all` every wide layer beside; modules of these names are `hea[d]` and
/// `al[l]`.
static llvm::Error fillTiles(const CommandLine &line, mlir::memopt::PipelineOptions &pipeline) {
  std::string text = line.get("tile");
  if (text.empty())
    return llvm::Error::success();
  if (text == "off") {
    pipeline.tileParts = 1;
    return llvm::Error::success();
  }
  auto [names, count] = llvm::StringRef(text).rsplit(':');
  int64_t parts;
  llvm::SmallVector<std::string> modules = parseModules(names);
  if (count.getAsInteger(10, parts) || parts < 1 || modules.empty())
    return invalid("--tile expects MODULE,...:N, head:N, all:N or off, found '" + text + "'");
  llvm::SmallVector<std::string> others;
  for (const std::string &module : modules)
    if (module == "head")
      pipeline.tileParts = parts;
    else
      others.push_back(module);
  pipeline.tileModules = others;
  pipeline.tileModuleParts = others.empty() ? 0 : parts;
  return llvm::Error::success();
}

static llvm::Error fillPlanning(const CommandLine &line, CompileOptions &options) {
  if (llvm::Error error = fillTiles(line, options.pipeline))
    return error;
  std::string modulesText = line.get("activation-checkpointing");
  llvm::StringRef modules = modulesText;
  if (llvm::StringRef count = modules; count.consume_front("segments:")) {
    int64_t segments;
    if (count.getAsInteger(10, segments) || segments < 2)
      return invalid(
          "--activation-checkpointing=segments:N expects a number of at least 2, found '" + count +
          "'");
    options.pipeline.checkpointSegments = segments;
  } else {
    options.pipeline.checkpointModules = parseModules(modules);
  }
  llvm::Expected<int> points = line.getCount("frontier");
  if (!points)
    return points.takeError();
  if (line.isSet("frontier") && *points < 2)
    return invalid("--frontier expects at least 2 budgets, found " + llvm::Twine(*points));
  options.frontierPoints = *points;
  options.frontierPath = line.get("frontier-output");
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Where state lies
//===----------------------------------------------------------------------===//

static llvm::Expected<OffloadTier> parseTier(const CommandLine &line, llvm::StringRef name) {
  std::string place = line.get(name);
  for (OffloadTier tier : {OffloadTier::None, OffloadTier::Host, OffloadTier::Disk})
    if (place == stringifyOffloadTier(tier)) {
      if (tier == OffloadTier::Disk && !line.isSet("disk"))
        return invalid("--" + name +
                       "=nvme needs --disk=DIR:BYTES, a folder and what may lie there");
      return tier;
    }
  return invalid("--" + name + " expects none, cpu or nvme, found '" + place + "'");
}

/// Budgets of other spaces than the device's are for what lies there.
static llvm::Error checkRoom(const CommandLine &line, bool isByHand, bool isDiskUsed) {
  if (line.isSet("device-memory"))
    return llvm::Error::success();
  if (line.isSet("host-memory") && !isByHand)
    return invalid("--host-memory needs --device-memory, or an --offload option: nothing lies on "
                   "the host otherwise");
  if (line.isSet("disk") && !isDiskUsed)
    return invalid("--disk needs --device-memory, or an --offload option that says nvme: nothing "
                   "lies on disk otherwise");
  return llvm::Error::success();
}

static llvm::Error fillOffload(const CommandLine &line, CompileOptions &options) {
  llvm::SmallVector<OffloadTier, 3> tiers;
  for (llvm::StringRef name : {"offload-optimizer", "offload-param", "offload-activation"}) {
    llvm::Expected<OffloadTier> tier = parseTier(line, name);
    if (!tier)
      return tier.takeError();
    tiers.push_back(*tier);
  }
  options.pipeline.offloadOptimizer = tiers[0];
  options.pipeline.offloadParam = tiers[1];
  options.pipeline.offloadActivation = tiers[2];
  bool isByHand = llvm::any_of(tiers, [](OffloadTier tier) { return tier != OffloadTier::None; });
  if (llvm::Error error = checkRoom(line, isByHand, llvm::is_contained(tiers, OffloadTier::Disk)))
    return error;
  bool hasHost = options.hostBudget >= 0 || options.diskBudget < 0; // room there is not refused
  options.pipeline.swaps = options.automatic.offload && !options.evaluate && hasHost;
  // What is placed by hand stays there.
  bool isPlaced = line.isSet("offload-optimizer") || line.isSet("offload-param");
  options.automatic.searchesPlacements =
      options.automatic.offload && !isPlaced && !options.evaluate;
  options.automatic.hasHost = options.hostBudget >= 0;
  options.automatic.hasDisk = options.diskBudget >= 0;
  options.isFormSearched |= options.automatic.searchesPlacements;
  return llvm::Error::success();
}

llvm::Error memopt::tool::fillMemoryOptions(const CommandLine &line, CompileOptions &options) {
  for (auto fill : {fillBudgets, fillAutomatic, fillPlanning, fillOffload})
    if (llvm::Error error = fill(line, options))
      return error;
  return llvm::Error::success();
}
