//===- ManifestTest.cpp - manifests that contradict themselves ------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/Manifest.h"
#include "TestSupport.h"
#include "memopt-runtime/Random.h"
#include <functional>

using namespace memopt;
using namespace memopt::testing;
using nlohmann::json;

TEST(ManifestTest, AGoodManifestIsRead) {
  auto manifest = parseManifest(getTinyManifest().dump());
  ASSERT_TRUE(manifest.isOk()) << manifest.getMessage();
  EXPECT_EQ(manifest->mode, "train");
  EXPECT_EQ(manifest->arenaBytes[MEMOPT_SPACE_DEVICE], TINY_ARENA);
  EXPECT_EQ(manifest->inputs[1].validRange->max, TINY_CLASSES - 1);
  EXPECT_EQ(manifest->getLossIndex(), 0);
  EXPECT_EQ(manifest->findVariable("net.fc.weight")->names.size(), 2u);
  EXPECT_EQ(*manifest->learningRate, 0.1);
  EXPECT_EQ(manifest->findVariable("absent"), nullptr);
}

namespace {
struct BadManifest {
  std::function<void(json &)> damage;
  const char *message;
};
} // namespace

static const BadManifest badManifests[] = {
    {[](json &m) { m["format"] = "other"; }, "format is 'other', expected 'memopt-package'"},
    {[](json &m) { m["version"] = 2; }, "has version 2, this runtime reads version 1"},
    {[](json &m) { m["program_interface_version"] = 9; },
     "interface version 9, this runtime offers version 1"},
    {[](json &m) { m.erase("inputs"); }, "the document lacks 'inputs'"},
    {[](json &m) { m["inputs"] = 3; }, "'inputs' must be an array, found 3"},
    {[](json &m) { m["mode"] = "dream"; }, "mode is 'dream'"},
    {[](json &m) { m["threads"] = 0; }, "threads is 0"},
    {[](json &m) { m["arena_bytes"]["device"] = -1; }, "must not be negative"},
    {[](json &m) { m["arena_bytes"]["device"] = "many"; },
     "'arena_bytes.device' must be an integer, found \"many\""},
    {[](json &m) { m["inputs"][0]["dtype"] = "f31"; }, "'inputs[0]' has the unknown dtype 'f31'"},
    {[](json &m) { m["inputs"][0]["shape"][0] = 5; }, "f32[5, 3] takes 60"},
    {[](json &m) { m["inputs"][0]["offset"] = 1 << 20; }, "of the device arena, which has 776"},
    {[](json &m) { m["inputs"][0]["offset"] = -8; }, "at offset -8"},
    {[](json &m) { m["inputs"][0]["offset"] = 2; }, "no multiple of its 4-byte elements"},
    {[](json &m) { m["inputs"][0]["batch_dim"] = 2; }, "has no dimension 2"},
    {[](json &m) {
       m["inputs"][0]["valid_range"] = {{"min", 0}, {"max", 1}};
     },
     "is for integers"},
    {[](json &m) { m["inputs"][1]["name"] = "x"; }, "two inputs named 'x'"},
    {[](json &m) { m["variables"][0]["placement"] = "moon"; }, "lies in 'moon'"},
    {[](json &m) { m["variables"][0]["init"] = "magic"; }, "has init 'magic'"},
    {[](json &m) { m["variables"][1]["offset"] = TINY_WEIGHT + 4; },
     "'net.fc.weight' and 'net.fc.bias' overlap"},
    {[](json &m) { m["variables"][5]["name"] = "warmth"; }, "hyperparameter 'warmth' is unknown"},
    {[](json &m) { m["variables"][6]["dtype"] = "f64"; }, "hyperparameter 'step' is f64[]"},
    {[](json &m) { m["gradients"][0]["ready_after"] = 4; }, "there are 4 instructions"},
    {[](json &m) { m["loss_ready_after"] = -1; }, "there are 4 instructions"},
    {[](json &m) { m.erase("loss_ready_after"); }, "needs 'loss_ready_after'"},
    {[](json &m) { m["outputs"][0]["role"] = "metric"; }, "needs an output of role 'loss'"},
    {[](json &m) { m["instructions"][1]["outputs"][0]["bytes"] = 4000; }, "takes 4000 bytes"},
    {[](json &m) { m["library_calls"] = {1}; }, "'library_calls[0]' must be an object"},
};

TEST(ManifestTest, EachContradictionHasItsMessage) {
  for (const BadManifest &bad : badManifests) {
    json manifest = getTinyManifest();
    bad.damage(manifest);
    auto parsed = parseManifest(manifest.dump());
    ASSERT_FALSE(parsed.isOk()) << bad.message;
    expectMessage(parsed.getMessage(), {bad.message});
  }
  expectMessage(parseManifest("{").getMessage(), {"not valid JSON"});
  expectMessage(parseManifest("[]").getMessage(), {"must be an object"});
  std::string deep(100000, '[');
  expectMessage(parseManifest(deep).getMessage(), {"not valid JSON"});
}

// Any value in place of any other must be refused or harmless.
TEST(ManifestTest, ReplacedValuesNeverCrash) {
  json good = getTinyManifest(), paths = good.flatten();
  const json values[] = {
      -1, 1e300, "text", nullptr, json::array(), json::object(), int64_t(1) << 62, true};
  for (const auto &[path, value] : paths.items())
    for (const json &other : values) {
      json changed = good;
      changed[json::json_pointer(path)] = other;
      (void)parseManifest(changed.dump()).isOk();
    }
}

TEST(PackageTest, WhatCannotBeLoadedIsExplained) {
  TemporaryFolder folder;
  auto messageFor = [&](const std::string &path) {
    return Package::load(path, refuseCalls).getMessage();
  };
  expectMessage(messageFor(folder / "absent"), {"absent", "not a folder"});
  expectMessage(messageFor(folder.path), {"manifest.json", "No such file"});
  std::string package = writePackage(folder, getTinyManifest());
  writeFile(package + "/program.so", "text");
  expectMessage(messageFor(package), {"'program.so' does not load"});
  // Folders of their own: the loader knows a program by its path.
  TemporaryFolder newer, nothing, calls;
  expectMessage(messageFor(writePackage(newer, getTinyManifest(), "TinyNewer")),
                {"was compiled for interface version 2, this runtime offers version 1"});
  package = writePackage(nothing, getTinyManifest(), "TinyNothing");
  expectMessage(messageFor(package), {"does not export 'memopt_program_version'"});
  json manifest = getTinyManifest();
  manifest["library_calls"] = {{{"kind", "dream"}}};
  package = writePackage(calls, manifest);
  expectMessage(messageFor(package), {"library_calls[0]: no library here"});
}
