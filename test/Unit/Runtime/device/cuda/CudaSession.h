//===- CudaSession.h - what tests of sessions on a device share -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Skipped where there is no device that takes LLVM IR: test/emulator/sessions.test runs these tests
// on the emulator, in several orders of its work.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TEST_RUNTIME_CUDASESSION_H
#define MEMOPT_TEST_RUNTIME_CUDASESSION_H

#include "TestSupport.h"
#include "memopt-runtime/devices/OpenDevice.h"
#include <cstring>

namespace memopt::testing {

class CudaSessionTest : public ::testing::Test {
protected:
  void SetUp() override {
    auto opened = openDevice("cuda");
    if (!opened.isOk())
      GTEST_SKIP() << opened.getMessage();
    device = *std::move(opened);
    auto description = device->describe();
    ASSERT_TRUE(description.isOk()) << description.getMessage();
    if (nlohmann::json::parse(*description)["image"] != "bitcode")
      GTEST_SKIP() << "the kernels of these tests are LLVM IR";
  }

  StatusOr<std::unique_ptr<Session>> open(const std::string &package,
                                          const SessionOptions &options = {true, true},
                                          const LibraryCallFactory &factory = refuseCalls) {
    auto loaded = Package::load(package);
    if (!loaded.isOk())
      return loaded.takeStatus();
    return Session::create(*std::move(loaded), *device, factory, options);
  }

  std::unique_ptr<Device> device;
};

inline void fillTiny(Session &session) {
  std::vector<float> x(TINY_BATCH * TINY_FEATURES);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = float(i * 5 % 11) / 11;
  std::vector<int64_t> labels = {0, 1, 2, 4};
  std::memcpy(session.getAddress(session.getManifest().inputs[0]), x.data(), x.size() * 4);
  std::memcpy(session.getAddress(session.getManifest().inputs[1]), labels.data(),
              labels.size() * 8);
}

inline void initialize(Session &session) {
  Status status = session.initializeFromWeights([](const auto &) { return false; });
  ASSERT_TRUE(status.isOk()) << status.getMessage();
  fillTiny(session);
  session.setHyperparameters(0.1, 1, 0);
}

inline std::string readBytes(const Session &session, const PlacedTensor &tensor) {
  std::string bytes(size_t(tensor.bytes), '\0');
  Status status = session.readTensor(tensor, bytes.data());
  EXPECT_TRUE(status.isOk()) << status.getMessage();
  return bytes;
}

} // namespace memopt::testing

#endif // MEMOPT_TEST_RUNTIME_CUDASESSION_H
