//===- ImportFuzzer.cpp - libFuzzer's entry: any bytes may be imported -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The first byte says what the others are: 0 a whole archive, 1 a graph's JSON, 2 a weights config.
// The unit tests call the same function with mutations of real archives.
//
//===----------------------------------------------------------------------===//

#include "ArchiveWriter.h"
#include "Fuzzing.h"
#include "memopt/Import/Graph/Pt2.h"

#include "mlir/IR/MLIRContext.h"

using namespace memopt::pt2;
using namespace memopt::pt2::testing;
using namespace memopt::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1)
    return 0;
  llvm::StringRef bytes(reinterpret_cast<const char *>(data) + 1, size - 1);
  std::string file = bytes.str();
  if (data[0] != 0) {
    Members members{{"m/archive_format", "pt2"}};
    bool isGraph = data[0] == 1;
    members.emplace_back("m/models/model.json", isGraph ? bytes.str() : "{}");
    if (!isGraph) {
      members.emplace_back("m/data/weights/model_weights_config.json", bytes.str());
      members.emplace_back("m/data/weights/weight_0", std::string(64, 'w'));
    }
    file = writeArchive(members);
  }
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  auto module = importPt2(context, makeBuffer(file));
  if (!module)
    require(!llvm::toString(module.takeError()).empty());
  return 0;
}
