//===- MutationTests.cpp - mutated archives never crash the importer -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Seeds are fixed, so a failure repeats. A mutation keeps the JSON whole and changes a value in it:
// that gets deeper into the importer than damaged bytes, which checksums stop.
//
//===----------------------------------------------------------------------===//

#include "ArchiveWriter.h"
#include "JsonMutation.h"
#include "memopt/Import/Archive/Archive.h"
#include "memopt/Import/Graph/Pt2.h"

#include "mlir/IR/MLIRContext.h"
#include "gtest/gtest.h"

#include <cstdlib>
#include <random>

using namespace llvm;
using namespace memopt::pt2;
using namespace memopt::pt2::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace {

/// All members of a shipped archive.
Members readModel(StringRef name) {
  Archive archive = cantFail(Archive::open((StringRef(MODELS) + "/" + name).str()));
  Members members;
  for (const std::string &member : archive.list(""))
    members.emplace_back("model/" + member, cantFail(archive.read(member)).str());
  return members;
}

/// The member whose name ends so.
std::string &find(Members &members, StringRef suffix) {
  for (auto &[name, bytes] : members)
    if (StringRef(name).ends_with(suffix))
      return bytes;
  ADD_FAILURE() << "no member " << suffix.str();
  return members.front().second;
}

/// MEMOPT_FUZZ_ROUNDS makes a long run of it.
int rounds(int usual) {
  const char *wanted = std::getenv("MEMOPT_FUZZ_ROUNDS");
  return wanted ? std::atoi(wanted) : usual;
}

void importMutations(StringRef model, StringRef member, int count, unsigned seed) {
  Members members = readModel(model);
  std::string &text = find(members, member);
  const std::string original = text;
  int imported = 0;
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  for (int i = 0; i != count; ++i) {
    text = memopt::testing::mutateJson(original, seed * 100'000 + unsigned(i));
    auto module = importPt2(context, makeBuffer(writeArchive(members)));
    if (module)
      ++imported;
    else
      EXPECT_NE(toString(module.takeError()), "");
  }
  EXPECT_LT(imported, count); // most mutations matter
}

TEST(Mutations, OfGraphsNeverCrash) {
  importMutations("mlp.train.pt2", "models/model.json", rounds(400), 1);
  importMutations("resnet18.train.pt2", "models/model.json", rounds(60), 2);
  importMutations("bytegpt.train.pt2", "models/model.json", rounds(60), 3);
}

TEST(Mutations, OfWeightsConfigsNeverCrash) {
  importMutations("mlp.train.pt2", "data/weights/model_weights_config.json", rounds(300), 4);
}

TEST(Mutations, OfBytesNeverCrash) {
  std::string whole = writeArchive(readModel("mlp.train.pt2"));
  std::mt19937 random(5);
  for (int i = 0; i != rounds(300); ++i) {
    std::string file = std::string(1, '\0') + whole;
    // Mostly near the end, where the directory is.
    for (int n = 0; n != 3; ++n) {
      size_t reach = random() % 2 ? 800 : file.size() - 1;
      file[file.size() - 1 - random() % std::min(reach, file.size() - 1)] = char(random());
    }
    if (random() % 4 == 0)
      file.resize(1 + random() % file.size());
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(file.data()), file.size());
  }
}

} // namespace
