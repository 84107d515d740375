//===- ManifestTest.cpp - manifests that contradict themselves ------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/package/Manifest.h"
#include "TestSupport.h"
#include "memopt-runtime/numbers/Random.h"
#include "memopt-runtime/package/PackageInMaking.h"
#include <filesystem>
#include <functional>
#include <thread>

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

TEST(ManifestTest, ATargetWithAnImageNamesItsChipAndKernels) {
  json text = getTinyManifest();
  EXPECT_EQ(parseManifest(text.dump())->target.name, "cpu");
  text["target"] = {{"name", "cuda"}, {"chip", "sm_90"}, {"sms", 132}, {"image", "kernels.cubin"}};
  text["kernels"] = {"k0", "k1"};
  auto manifest = parseManifest(text.dump());
  ASSERT_TRUE(manifest.isOk()) << manifest.getMessage();
  EXPECT_EQ(manifest->target.name, "cuda");
  EXPECT_EQ(manifest->target.chip, "sm_90");
  EXPECT_EQ(manifest->target.sms, 132);
  EXPECT_EQ(manifest->target.image, "kernels.cubin");
  EXPECT_EQ(manifest->kernels, (std::vector<std::string>{"k0", "k1"}));
}

/// Parts of 16 elements on 4 ranks: a tensor of 10 elements from element 25 of its unit on.
TEST(ManifestTest, ATensorOfAUnitIsWhereItsElementsAre) {
  ShardedTensor tensor;
  tensor.shape = {16};
  tensor.wholeShape = Shape{2, 5};
  tensor.unitFirst = 25;
  tensor.unit = "u";
  const std::array<int64_t, 3> expected[] = {{0, 0, 0}, {0, 7, 9}, {7, 3, 0}, {10, 0, 0}};
  for (int64_t rank = 0; rank < 4; ++rank) {
    auto [begin, count, at] = tensor.getOwnElements(rank);
    EXPECT_EQ((std::array<int64_t, 3>{begin, count, at}), expected[rank]);
  }
}

namespace {
struct BadManifest {
  std::function<void(json &)> damage;
  const char *message;
};
} // namespace

static json region(int begin, int end, int count, const char *input = nullptr) {
  return {{"begin", begin},
          {"end", end},
          {"count", count},
          {"inputs", input ? json{input} : json::array()}};
}

/// Of two ranks, from offset 0 to offset 64; the manifest's own count is set by who adds it.
static json collective(const char *kind, int elements, int resultElements) {
  return {{"kind", kind},
          {"dtype", "f32"},
          {"from", {{"space", "device"}, {"offset", 0}}},
          {"to", {{"space", "device"}, {"offset", 64}}},
          {"elements", elements},
          {"result_elements", resultElements}};
}

static json target(const char *chip, int sms, const char *image) {
  return {{"name", "cuda"}, {"chip", chip}, {"sms", sms}, {"image", image}};
}

static json transfer(int from, int to, int bytes) {
  return {{"from", {{"space", "device"}, {"offset", from}}},
          {"to", {{"space", "device"}, {"offset", to}}},
          {"bytes", bytes},
          {"resource", "copy_in"}};
}

static const BadManifest badManifests[] = {
    {[](json &m) { m["format"] = "other"; }, "format is 'other', expected 'memopt-package'"},
    {[](json &m) { m["version"] = 1; }, "has version 1, this runtime reads versions 2 to 4"},
    {[](json &m) { m["version"] = 5; }, "has version 5, this runtime reads versions 2 to 4"},
    {[](json &m) { m["program_interface_version"] = 9; },
     "interface version 9, this runtime offers versions 4 to 5"},
    {[](json &m) { m["instrumented"] = 1; }, "'instrumented' must be"},
    {[](json &m) { m.erase("inputs"); }, "the document lacks 'inputs'"},
    {[](json &m) { m["inputs"] = 3; }, "'inputs' must be an array, found 3"},
    {[](json &m) { m["mode"] = "dream"; }, "mode is 'dream'"},
    {[](json &m) { m["threads"] = 0; }, "threads is 0"},
    {[](json &m) { m["target"] = 3; }, "'target' must be a string or an object, found 3"},
    {[](json &m) { m["target"] = "cuda"; }, "'target' is 'cuda' alone, expected an object"},
    {[](json &m) { m["target"] = {{"name", "cuda"}, {"chip", "sm_90"}}; }, "lacks 'sms'"},
    {[](json &m) { m["target"] = target("", 132, "kernels.cubin"); }, "has chip ''"},
    {[](json &m) { m["target"] = target("sm_90", 0, "kernels.cubin"); }, "0 multiprocessors"},
    {[](json &m) { m["target"] = target("sm_90", 132, "../kernels.cubin"); },
     "'target.image' is '../kernels.cubin', expected a file's name"},
    {[](json &m) { m["kernels"] = {"k0"}; },
     "'kernels' names 1 kernels, but target 'cpu' has no image that holds them"},
    {[](json &m) {
       m["target"] = target("sm_90", 132, "kernels.cubin");
       m["kernels"] = {"k0", ""};
     },
     "'kernels' has '', which names no kernel"},
    {[](json &m) { m["arena_bytes"]["device"] = -1; }, "must not be negative"},
    {[](json &m) { m["arena_bytes"]["device"] = "many"; },
     "'arena_bytes.device' must be an integer, found \"many\""},
    {[](json &m) { m["inputs"][0]["dtype"] = "f31"; }, "'inputs[0]' has the unknown dtype 'f31'"},
    {[](json &m) { m["inputs"][0]["shape"][0] = 5; }, "f32[5, 3] takes 60"},
    {[](json &m) { m["inputs"][0]["offset"] = 1 << 20; }, "of the device arena, which has 776"},
    {[](json &m) { m["inputs"][0]["offset"] = -8; }, "at offset -8"},
    {[](json &m) { m["inputs"][0]["offset"] = 2; }, "no multiple of its 4-byte elements"},
    {[](json &m) { m["inputs"][0]["batch_dim"] = 2; }, "has no dimension 2"},
    {[](json &m) { m["inputs"][0]["valid_range"] = {{"min", 0}, {"max", 1}}; }, "is for integers"},
    {[](json &m) { m["inputs"][1]["name"] = "x"; }, "two inputs named 'x'"},
    {[](json &m) { m["variables"][0]["placement"] = "moon"; }, "lies in 'moon'"},
    {[](json &m) { m["variables"][0]["init"] = "magic"; }, "has init 'magic'"},
    {[](json &m) { m["variables"][3]["init"] = "constant"; },
     "has init 'constant' without init_value"},
    {[](json &m) { m["variables"][5]["name"] = "lr.1"; }, "hyperparameter 'lr.1' is unknown"},
    {[](json &m) { m["variables"][1]["offset"] = TINY_WEIGHT + 4; },
     "'net.fc.weight' and 'net.fc.bias' overlap"},
    {[](json &m) { m["variables"][1]["names"] = {"net.fc.bias", "net.tied.weight"}; },
     "variable 'net.fc.bias' has the name 'net.tied.weight' in checkpoints, which is taken"},
    {[](json &m) { m["variables"][1]["names"] = {"__metadata__"}; }, "'__metadata__'"},
    {[](json &m) { m["variables"][5]["name"] = "warmth"; }, "hyperparameter 'warmth' is unknown"},
    {[](json &m) { m["variables"][6]["dtype"] = "f64"; }, "hyperparameter 'step' is f64[]"},
    {[](json &m) { m["gradients"][0]["ready_after"] = 4; }, "there are 4 instructions"},
    {[](json &m) { m["efficient_conv_bn_eval"] = {{"fused", json::array()}}; }, "lacks 'refused'"},
    {[](json &m) {
       m["efficient_conv_bn_eval"] = {{"fused", json::array()}, {"refused", {{"net.bn", 1}}}};
     },
     "'efficient_conv_bn_eval.refused.net.bn' must be a string"},
    {[](json &m) { m["instructions"][0]["call"] = 0; },
     "instruction 0 'logits' (logits) of module 'net.fc' makes library call 0 of 0"},
    {[](json &m) { m["instructions"][0]["kind"] = "library"; }, "lacks 'call'"},
    {[](json &m) { m["regions"] = {region(2, 2, 3)}; }, "holds instructions 2 to 2"},
    {[](json &m) { m["regions"] = {region(0, 5, 3)}; }, "but there are 4"},
    {[](json &m) { m["regions"] = {region(0, 2, 0)}; }, "runs 0 times"},
    {[](json &m) { m["regions"] = {region(0, 2, 3, "y")}; }, "names 'y', which is no input"},
    {[](json &m) { m["regions"] = {region(0, 2, 3), region(1, 3, 3)}; },
     "the regions of instructions 0 to 2 and 1 to 3 cut into each other"},
    {[](json &m) { m["regions"] = {region(0, 1, 3, "x"), region(1, 2, 4, "x")}; },
     "two regions take other samples"},
    {[](json &m) { m["transfers"] = {transfer(0, 768, 16)}; },
     "'transfers[0].to' takes 16 bytes at offset 768 of the device arena, which has 776"},
    {[](json &m) { m["transfers"] = {transfer(0, 8, 16)}; },
     "moves 16 bytes from offset 0 to 8 of one arena, which overlap"},
    {[](json &m) {
       m["transfers"] = {transfer(0, 64, 16)};
       m["transfers"][0]["from"]["space"] = "tape";
     },
     "lies in 'tape'; this runtime knows 'device', 'host' and 'disk'"},
    {[](json &m) {
       m["transfers"] = {transfer(0, 64, 16)};
       m["transfers"][0]["from"]["space"] = "disk";
     },
     "takes 16 bytes at offset 0 of the disk arena, which has 0"},
    {[](json &m) {
       m["transfers"] = {transfer(0, 64, 16)};
       m["transfers"][0]["from"]["space"] = "disk";
       m["arena_bytes"]["disk"] = 4096;
     },
     "moves bytes between the disk and the device, expected a window of the host"},
    {[](json &m) {
       m["transfers"] = {transfer(0, 0, 16)};
       m["transfers"][0]["from"]["space"] = "disk";
       m["transfers"][0]["to"]["space"] = "host";
       m["arena_bytes"]["disk"] = m["arena_bytes"]["host"] = 4096;
     },
     "moves to or from the disk, where 16 is no multiple of 4096"},
    {[](json &m) {
       m["arena_bytes"]["disk"] = 4096;
       m["inputs"][0]["space"] = "disk";
       m["inputs"][0]["offset"] = 0;
     },
     "lies on disk, expected a place in memory"},
    {[](json &m) {
       m["arena_bytes"]["disk"] = 4096;
       for (json &variable : m["variables"])
         if (variable["role"] == "hyperparameter")
           variable["placement"] = "disk", variable["offset"] = 0;
     },
     "lies on disk, expected a place in memory"},
    {[](json &m) { m["transfers"] = {transfer(0, 64, -1)}; }, "takes -1 bytes"},
    {[](json &m) { m["variables"][3]["whole_shape"] = {2, 3}; }, "is none of 2 parts"},
    {[](json &m) { m["variables"][4]["whole_shape"] = {100}; }, "is none of 2 parts"},
    {[](json &m) {
       m["ranks"] = 1;
       m["variables"][4]["whole_shape"] = m["variables"][4]["shape"];
     },
     "is none of 1 parts"},
    {[](json &m) { m["variables"][4]["whole_shape"] = {-1}; },
     "'variables[4].whole_shape' is wrong"},
    {[](json &m) {
       m["variables"][4]["whole_shape"] = m["variables"][4]["shape"];
       m["variables"][4]["unit_first"] = 1 << 20;
     },
     "is none of 2 parts"},
    {[](json &m) {
       m["variables"][4]["whole_shape"] = m["variables"][4]["shape"];
       m["variables"][4]["unit_first"] = -1;
     },
     "begins at element -1 of its unit"},
    {[](json &m) {
       for (int i : {4, 5})
         m["variables"][i]["unit"] = "u";
     },
     "do not lie together in unit 'u'"},
    {[](json &m) { m["ranks"] = 0; }, "ranks is 0, expected 1 to 4096"},
    {[](json &m) { m["collectives"] = {collective("gather", 4, 2)}; }, "is of kind 'gather'"},
    {[](json &m) {
       m["collectives"] = {collective("all_reduce", 4, 4)};
       m["collectives"][0]["dtype"] = "i8";
     },
     "has dtype 'i8', expected f32, f64, i32 or i64"},
    {[](json &m) { m["collectives"] = {collective("all_reduce", 4, 2)}; },
     "gives 2 elements for 4"},
    {[](json &m) { m["collectives"] = {collective("all_gather", 1, 3)}; },
     "has shards of 1 elements, but 2 of them do not hold 3"},
    {[](json &m) { m["collectives"] = {collective("all_to_all", 4, 5)}; },
     "gives 5 elements, which are no 2 shards of one size"},
    {[](json &m) { m["collectives"] = {collective("all_to_all", 5, 4)}; },
     "has shards of 2 elements, but 2 of them do not hold 5"},
    {[](json &m) {
       json exchange = m["variables"][7];
       exchange["name"] = "exchange";
       exchange["offset"] = 408;
       m["variables"].push_back(exchange);
     },
     "hyperparameter 'exchange' is i64[] on the device, expected i8 on the host"},
    {[](json &m) { m["collectives"] = {collective("reduce_scatter", 17, 9)}; },
     "operand and result at offsets 0 and 64, which overlap"},
    {[](json &m) { m["collectives"] = {collective("own_shard", 0, 4)}; }, "has 0 as 'elements'"},
    {[](json &m) { m["collectives"] = {collective("all_reduce", 400, 400)}; },
     "'collectives[0].from' takes 1600 bytes"},
    {[](json &m) { m["variables"][2]["role"] = "index_fault", m["variables"][2]["dtype"] = "f64"; },
     "'net.counter' of role 'index_fault' is f64[], expected one i64"},
    {[](json &m) { m["variables"][2]["role"] = m["variables"][6]["role"] = "index_fault"; },
     "two variables of role 'index_fault'"},
    {[](json &m) { m["outputs"][0]["role"] = "metric"; }, "needs an output of role 'loss'"},
    {[](json &m) { m["instructions"][1]["outputs"][0]["bytes"] = 4000; }, "takes 4000 bytes"},
    {[](json &m) { m["library_calls"] = {1}; }, "'library_calls[0]' must be an object"},
};

TEST(ManifestTest, EachContradictionHasItsMessage) {
  for (const BadManifest &bad : badManifests) {
    json manifest = getTinyManifest();
    manifest["ranks"] = 2;
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
  json good = getTinyManifest();
  good["regions"] = {region(0, 4, 2), region(1, 2, 3, "x")};
  good["transfers"] = {transfer(0, 64, 16)};
  good["ranks"] = 2;
  good["collectives"] = {collective("all_reduce", 4, 4), collective("all_gather", 2, 4)};
  good["index_sites"] = {{{"module", "net"}, {"op", "embedding"}, {"min", 0}, {"max", 9}}};
  json paths = good.flatten();
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
  auto messageFor = [&](const std::string &path) { return Package::load(path).getMessage(); };
  expectMessage(messageFor(folder / "absent"), {"absent", "not a folder"});
  expectMessage(messageFor(folder.path), {"manifest.json", "No such file"});
  std::string package = writePackage(folder, getTinyManifest());
  writeFile(package + "/program.so", "text");
  expectMessage(messageFor(package), {"'program.so' does not load"});
  expectMessage(messageFor(writePackage(folder, getTinyManifest(), "TinyOlder")),
                {"was compiled for interface version 1, this runtime offers versions 4 to 5"});
  expectMessage(messageFor(writePackage(folder, getTinyManifest(), "TinyNewer")),
                {"was compiled for interface version 99, this runtime offers versions 4 to 5"});
  package = writePackage(folder, getTinyManifest(), "TinyNothing");
  expectMessage(messageFor(package), {"does not export 'memopt_program_version'"});
}

// The loader knows programs by their paths, and numbers of open files come again.
TEST(PackageTest, AProgramIsThatOfTheFolderNow) {
  TemporaryFolder folder;
  std::string path = writePackage(folder, getTinyManifest());
  auto first = Package::load(path), second = Package::load(path);
  ASSERT_TRUE(first.isOk() && second.isOk());
  first->reset();
  writePackage(folder, getTinyManifest(), "TinyOlder");
  expectMessage(Package::load(path).getMessage(), {"was compiled for interface version 1"});
  writePackage(folder, getTinyManifest(), "TinyFails");
  auto third = Package::load(path);
  ASSERT_TRUE(third.isOk()) << third.getMessage();
  std::filesystem::remove_all(path);
  EXPECT_TRUE((*second)->openWeights().isOk()) << "what is open stays";
}

TEST(PackageTest, FilesOfTwoPackagesAreRefused) {
  TemporaryFolder folder;
  std::string one, other(40, 'a');
  for (int i = 0; i < 4; ++i)
    one += "0123456789";
  auto load = [&](const std::string &digest, const std::string &program) {
    json manifest = getTinyManifest();
    if (!digest.empty())
      manifest["digest"] = digest;
    return Package::load(writePackage(folder, manifest, program));
  };
  EXPECT_TRUE(load("", "TinyModel").isOk()) << "packages of before there were digests";
  expectMessage(load(other, "TinyDigest").getMessage(),
                {"tiny.memopt", "'program.so' is of package " + one,
                 "'manifest.json' is of package " + other, "compile the model again"});
  expectMessage(load(one, "TinyModel").getMessage(), {"'program.so' is of a package without"});
  expectMessage(load("", "TinyDigest").getMessage(), {"'manifest.json' is of a package without"});
  expectMessage(load("0xyz", "TinyModel").getMessage(), {"digest is '0xyz', expected 40"});
  auto package = load(one, "TinyDigest");
  ASSERT_TRUE(package.isOk()) << package.getMessage();
  expectMessage((*package)->openWeights().getMessage(),
                {"'weights.safetensors' is of a package without a digest", one});
  float value = 1;
  for (const std::string &digest : {other, one}) {
    ASSERT_TRUE(writeSafetensors(folder / "tiny.memopt/weights.safetensors",
                                 {{"a", DType::F32, {1}, &value}}, digest)
                    .isOk());
    auto loaded = Package::load(folder / "tiny.memopt");
    ASSERT_TRUE(loaded.isOk()) << loaded.getMessage();
    EXPECT_EQ((*loaded)->openWeights().isOk(), digest == one);
  }
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

namespace {
/// Publishes a package whose files all hold `text`.
Status publish(const std::string &target, const std::string &text) {
  MEMOPT_ASSIGN_OR_RETURN(PackageInMaking making, PackageInMaking::begin(target));
  for (const char *name : {"manifest.json", "program.so", "weights.safetensors"})
    memopt::testing::writeFile(making.getPath() + "/" + name, text);
  return making.publish();
}
std::vector<std::string> namesIn(const std::string &folder) { return *listFolder(folder); }
} // namespace

TEST(PackageInMakingTest, APackageIsReplacedWhole) {
  TemporaryFolder folder;
  std::string target = folder / "deep/p.memopt";
  ASSERT_TRUE(publish(target, "one").isOk());
  auto reader = OpenFolder::open(target);
  memopt::testing::writeFile(target + "/kernels.cubin", "one");
  ASSERT_TRUE(publish(target + "/", "two").isOk());
  EXPECT_EQ(namesIn(target).size(), 3u) << "nothing of the old one is left";
  EXPECT_EQ(readFile(target + "/program.so"), "two");
  EXPECT_FALSE(reader->isCurrent());
  {
    auto making = PackageInMaking::begin(target);
  } // ends before it is published
  EXPECT_EQ(readFile(target + "/manifest.json"), "two");
  EXPECT_EQ(namesIn(folder / "deep").size(), 1u);
  std::filesystem::create_symlink("deep/p.memopt", folder / "link");
  ASSERT_TRUE(publish(folder / "link", "three").isOk());
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(readFile(target + "/manifest.json"), "three");
}

TEST(PackageInMakingTest, WhatElseLiesInTheFolderStays) {
  TemporaryFolder folder;
  std::string target = folder / "p.memopt";
  ASSERT_TRUE(publish(target, "one").isOk());
  memopt::testing::writeFile(target + "/notes.txt", "mine");
  auto reader = OpenFolder::open(target);
  ASSERT_TRUE(publish(target, "two").isOk());
  EXPECT_EQ(namesIn(target), (std::vector<std::string>{"manifest.json", "notes.txt", "program.so",
                                                       "weights.safetensors"}));
  EXPECT_EQ(readFile(target + "/manifest.json"), "two");
  EXPECT_TRUE(reader->isCurrent());
  std::filesystem::remove(target + "/program.so");
  std::filesystem::create_directory(target + "/program.so");
  expectMessage(publish(target, "three").getMessage(), {"program.so", "no regular file"});
  EXPECT_EQ(readFile(target + "/manifest.json"), "two");
  memopt::testing::writeFile(folder / "file", "");
  expectMessage(publish(folder / "file", "").getMessage(), {"something else is there"});
}

TEST(PackageInMakingTest, AnyNumberMayPublishAtOnce) {
  TemporaryFolder folder;
  std::string target = folder / "p.memopt";
  std::vector<std::thread> threads;
  for (const char *text : {"a", "b", "c"})
    threads.emplace_back([&, text] {
      for (int i = 0; i < 30; ++i)
        EXPECT_EQ(publish(target, text).getMessage(), "");
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(readFile(target + "/manifest.json"), readFile(target + "/program.so"));
  EXPECT_EQ(readFile(target + "/manifest.json"), readFile(target + "/weights.safetensors"));
  EXPECT_EQ(namesIn(folder.path).size(), 1u);
}
