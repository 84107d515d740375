//===- CudaLibrariesTest.cpp - calls of cuDNN's and cuBLASLt's ------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the libraries are given, noted by fakes of them (test/fake-cuda).
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/CudaLibraries.h"
#include "FakeLibraries.h"
#include "TestSupport.h"
#include "memopt-runtime/device/cuda/CudaDevice.h"
#include "memopt-runtime/device/cuda/CudaStream.h"
#include "memopt-runtime/device/cuda/CudnnPlans.h"
#include "memopt-runtime/session/Session.h"

using namespace memopt;
using namespace memopt::testing;
using nlohmann::json;

namespace {

class CudaLibrariesTest : public ::testing::Test {
protected:
  void SetUp() override {
    auto opened = CudaContext::open();
    ASSERT_TRUE(opened.isOk()) << opened.getMessage();
    context = *std::move(opened);
    setSms(132);
    setVersion(92600);
    setCudnnDriver(13000);
    setLoadedExtra(0);
    takeCudnnLog();
    takeCublasLog();
    libraries = std::make_unique<CudaLibraries>(*context);
    stream = std::make_unique<CudaStream>(*context);
    ASSERT_TRUE(stream->prepare().isOk());
    auto threads = ThreadPool::create(1, 1, [] {});
    ASSERT_TRUE(threads.isOk());
    pool = *std::move(threads);
  }

  StatusOr<std::unique_ptr<DeviceCall>> create(const json &descriptor) {
    auto refuse = [](const json &, int) -> StatusOr<std::unique_ptr<LibraryCall>> {
      return badInput("there is no call of the cpu");
    };
    return createCudaCall(*libraries, descriptor, 1, refuse);
  }

  /// Starts a call on buffers at 0x1000, 0x2000, ...
  std::string start(DeviceCall &call, int count) {
    std::vector<void *> buffers;
    for (int i = 1; i <= count; ++i)
      buffers.push_back(reinterpret_cast<void *>(uintptr_t(i) * 0x1000));
    Status status = call.start(*stream, buffers.data(), *pool);
    return status.isOk() ? takeCudnnLog() + takeCublasLog() : status.getMessage();
  }

  static void setSms(int count) {
    findFake<void(int)>("libcuda.so.1", "fakeDriverSetMultiprocessors")(count);
  }
  static void setVersion(size_t version) {
    findFake<void(size_t)>("libcudnn.so.9", "fakeCudnnSetVersion")(version);
  }
  static void setCudnnDriver(int version) {
    findFake<void(int)>("libcudnn.so.9", "fakeCudnnSetDriver")(version);
  }
  static void setLoadedExtra(int64_t bytes) {
    findFake<void(int64_t)>("libcudnn.so.9", "fakeCudnnSetLoadedExtra")(bytes);
  }
  static std::string takeCudnnLog() {
    return findFake<const char *()>("libcudnn.so.9", "fakeCudnnTakeLog")();
  }
  static std::string takeCublasLog() {
    return findFake<const char *()>("libcublasLt.so.13", "fakeCublasTakeLog")();
  }

  std::unique_ptr<CudaContext> context;
  std::unique_ptr<CudaLibraries> libraries;
  std::unique_ptr<CudaStream> stream;
  std::unique_ptr<ThreadPool> pool;
};

json getConvolution() {
  return {{"kind", "convolution_forward"},
          {"dtype", "f32"},
          {"layout", "nhwc"},
          {"input", {2, 3, 8, 9}},
          {"weight", {4, 3, 3, 2}},
          {"output", {2, 4, 8, 9}},
          {"strides", {1, 1}},
          {"dilations", {1, 1}},
          {"padding_lower", {1, 0}},
          {"padding_upper", {1, 1}},
          {"groups", 1},
          {"bias", true},
          {"workspace_bytes", 1024},
          {"buffers", 4},
          {"plan", {{"cudnn", "9.26.0"}, {"sms", 132}, {"text", "config 3, 132 multiprocessors"}}}};
}

json getProduct() {
  return {{"kind", "matmul"},
          {"dtype", "f32"},
          {"batch", json::array()},
          {"m", 5},
          {"n", 6},
          {"k", 7},
          {"a_strides", {7, 1}},
          {"b_strides", {1, 7}},
          {"c_strides", {6, 1}},
          {"workspace_bytes", 8192},
          {"buffers", 3},
          {"operand_alignments", {64, 4}},
          {"result_alignments", {32}}};
}

} // namespace

//===----------------------------------------------------------------------===//
// Convolution
//===----------------------------------------------------------------------===//

TEST_F(CudaLibrariesTest, APlanOfThePackageIsExecutedOnTheBuffers) {
  auto call = create(getConvolution());
  ASSERT_TRUE(call.isOk()) << call.getMessage();
  EXPECT_EQ((*call)->workspaceBytes(), 1000);
  takeCudnnLog();
  std::string once = "stream 0x5000\nexecute config 3, 132 multiprocessors on 0=0x1000 1=0x2000 "
                     "2=0x3000 3=0x4000 workspace 0x5000\n";
  EXPECT_EQ(start(**call, 5), once);
  EXPECT_EQ(start(**call, 5), once);
}

TEST_F(CudaLibrariesTest, AnotherVersionPlansAgainUnderThePlannedWorkspace) {
  setVersion(92700);
  auto call = create(getConvolution());
  ASSERT_TRUE(call.isOk()) << call.getMessage();
  EXPECT_EQ((*call)->workspaceBytes(), 1000);
  json smaller = getConvolution();
  smaller["workspace_bytes"] = 64;
  call = create(smaller);
  ASSERT_TRUE(call.isOk()) << call.getMessage();
  EXPECT_EQ((*call)->workspaceBytes(), 10);
}

TEST_F(CudaLibrariesTest, AnotherDevicePlansAgainOrIsRefusedWithBothNumbers) {
  setSms(114);
  auto call = create(getConvolution());
  ASSERT_TRUE(call.isOk()) << call.getMessage();
  takeCudnnLog();
  EXPECT_NE(start(**call, 5).find("execute config 3, 114 multiprocessors"), std::string::npos);
  json none = getConvolution();
  none["workspace_bytes"] = 0;
  call = create(none);
  EXPECT_EQ(call.getCode(), StatusCode::Environment);
  EXPECT_EQ(call.getMessage(),
            "was planned with a workspace of 0 bytes, by cuDNN 9.26.0 for 132 multiprocessors; "
            "this device has 114, where cuDNN 9.26.0 needs 10; compile the model here");
}

TEST_F(CudaLibrariesTest, WhatAnOlderDriverRefusesIsPlannedAgain) {
  setCudnnDriver(12080);
  json call = getConvolution();
  call["plan"]["text"] = "config 3, 132 multiprocessors, driver 13000";
  auto again = create(call);
  ASSERT_TRUE(again.isOk()) << again.getMessage();
  takeCudnnLog();
  EXPECT_NE(start(**again, 5).find("execute config 3, 132 multiprocessors on"), std::string::npos);
  call["workspace_bytes"] = 0;
  EXPECT_EQ(create(call).getMessage(),
            "was planned with a workspace of 0 bytes, by cuDNN 9.26.0 for 132 multiprocessors; "
            "this device refuses the plan (cuDNN, plan of the package: planned for a newer driver "
            "(status 3007)), where cuDNN 9.26.0 needs 10; compile the model here");
  call = getConvolution();
  call["plan"]["text"] = "config 3, 132 multiprocessors, driver 12000";
  EXPECT_TRUE(create(call).isOk());
}

TEST_F(CudaLibrariesTest, APlanThatNeedsMoreOnceItIsLoadedIsPlannedAgain) {
  setLoadedExtra(500);
  auto call = create(getConvolution());
  ASSERT_TRUE(call.isOk()) << call.getMessage();
  EXPECT_EQ((*call)->workspaceBytes(), 10);
  json large = getConvolution();
  large["workspace_bytes"] = 1536;
  EXPECT_EQ((*create(large))->workspaceBytes(), 1500);
  json none = getConvolution();
  none["workspace_bytes"] = 0;
  EXPECT_EQ(create(none).getMessage(),
            "was planned with a workspace of 0 bytes, by cuDNN 9.26.0 for 132 multiprocessors; "
            "on this device the plan needs 1500, where cuDNN 9.26.0 needs 10; compile the model "
            "here");
}

TEST_F(CudaLibrariesTest, APlanThatIsNoneIsRefused) {
  json wrong = getConvolution();
  wrong["plan"] = nullptr;
  EXPECT_EQ(create(wrong).getCode(), StatusCode::BadInput);
  wrong.erase("plan");
  EXPECT_EQ(create(wrong).getCode(), StatusCode::BadInput);
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

static std::vector<CudnnPlan> plan(const json &descriptor) {
  auto planner = CudnnPlanner::open("libcudnn.so.9", R"({"multiProcessorCount":7})");
  EXPECT_TRUE(planner.isOk()) << planner.getMessage();
  if (!planner.isOk())
    return {};
  auto plans = (*planner)->plan(descriptor);
  EXPECT_TRUE(plans.isOk()) << plans.getMessage();
  return plans.isOk() ? *plans : std::vector<CudnnPlan>();
}

TEST_F(CudaLibrariesTest, PlansAreDeterministicAndEachNeedsLess) {
  std::vector<CudnnPlan> plans = plan(getConvolution());
  ASSERT_EQ(plans.size(), 2u);
  json exact = getConvolution();
  exact["precision"] = "highest";
  std::vector<CudnnPlan> exactPlans = plan(exact); // engine 50 has tensor cores
  ASSERT_EQ(exactPlans.size(), 1u);
  EXPECT_EQ(exactPlans[0].name, "engine70");
  EXPECT_EQ(plans[0].name, "engine50");
  EXPECT_EQ(plans[0].workspaceBytes, 1000);
  EXPECT_EQ(plans[0].text, "config 3, 7 multiprocessors");
  EXPECT_EQ(plans[1].name, "engine70");
  EXPECT_EQ(plans[1].workspaceBytes, 10);
}

TEST_F(CudaLibrariesTest, AConvolutionIsAGraphOfItsBuffers) {
  plan(getConvolution());
  EXPECT_EQ(takeCudnnLog(), "tensor 0 type 0 [2,3,8,9] strides [216,1,27,3]\n"
                            "tensor 1 type 0 [4,3,3,2] strides [18,6,2,1]\n"
                            "tensor 4 type 0 [2,4,8,9] strides [288,1,36,4] virtual\n"
                            "convolution padding [1,0] [1,1] strides [1,1] dilations [1,1]\n"
                            "operation 10\n"
                            "tensor 2 type 0 [1,4,1,1] strides [4,1,4,4]\n"
                            "tensor 3 type 0 [2,4,8,9] strides [288,1,36,4]\n"
                            "operation 13\n");
  json rectified = getConvolution();
  rectified["post"] = "relu";
  plan(rectified);
  std::string log = takeCudnnLog();
  EXPECT_EQ(log.substr(log.find("tensor 5")),
            "tensor 5 type 0 [2,4,8,9] strides [288,1,36,4] virtual\n"
            "operation 13\n"
            "pointwise 100 keeps NaN\n"
            "tensor 3 type 0 [2,4,8,9] strides [288,1,36,4]\n"
            "operation 13\n");
  json line = {{"kind", "convolution_backward_weights"},
               {"dtype", "bf16"},
               {"layout", "nchw"},
               {"input", {2, 4, 9}},
               {"weight", {6, 2, 3}},
               {"output", {2, 6, 4}},
               {"strides", {2}},
               {"dilations", {1}},
               {"padding_lower", {0}},
               {"padding_upper", {0}},
               {"groups", 2}};
  plan(line);
  EXPECT_EQ(takeCudnnLog(), "tensor 0 type 9 [2,4,1,9] strides [36,9,9,1]\n"
                            "tensor 2 type 9 [6,2,1,3] strides [6,3,3,1]\n"
                            "tensor 1 type 9 [2,6,1,4] strides [24,4,4,1]\n"
                            "convolution padding [0,0] [0,0] strides [1,2] dilations [1,1]\n"
                            "operation 11\n");
}

TEST_F(CudaLibrariesTest, OtherCallsHaveNoPlans) {
  auto planner = CudnnPlanner::open("libcudnn.so.9", R"({"multiProcessorCount":7})");
  ASSERT_TRUE(planner.isOk()) << planner.getMessage();
  EXPECT_EQ((*planner)->plan({{"kind", "attention_forward"}}).getMessage(),
            "cuDNN is asked for convolutions alone, not for 'attention_forward'");
  EXPECT_EQ(create({{"kind", "attention_forward"}}).getCode(), StatusCode::Environment);
  setVersion(90700);
  EXPECT_EQ(CudnnPlanner::open("libcudnn.so.9", "{}").getMessage(),
            "cuDNN is version 9.7.0, memopt needs 9.8.0 or newer");
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

TEST_F(CudaLibrariesTest, AResultByRowsIsTheTransposeOfOneByColumns) {
  auto call = create(getProduct());
  ASSERT_TRUE(call.isOk()) << call.getMessage();
  EXPECT_EQ((*call)->workspaceBytes(), 4096);
  // c^T = b^T a^T of 6 x 7 and 7 x 5; b lies by columns, so that its transpose is transposed.
  EXPECT_EQ(takeCublasLog(), "compute 68 scale 0 3=1 4=0\n"
                             "type 0 7x6 by 7\n"
                             "type 0 7x5 by 7\n"
                             "type 0 6x5 by 6\n"
                             "preference 1=8192 3=2 5=4 6=64 7=32 8=32\n");
  EXPECT_EQ(start(**call, 4), "multiply 0x2000 0x1000 to 0x3000 kernel 42 alpha 1 beta 0 "
                              "workspace 0x4000 of 4096 stream 0x5000\n");
}

TEST_F(CudaLibrariesTest, ProductsOfF32AreMadeOfWhatWasAskedFor) {
  for (auto [precision, begin] :
       {std::pair("highest", "compute 68 scale 0 "), std::pair("high", "compute 77 scale 0 "),
        std::pair("medium", "compute 75 scale 0 ")}) {
    json product = getProduct();
    product["precision"] = precision;
    auto call = create(product);
    ASSERT_TRUE(call.isOk()) << call.getMessage();
    EXPECT_EQ(takeCublasLog().find(begin), 0u) << precision;
  }
  json product = getProduct();
  product["precision"] = "low";
  EXPECT_EQ(create(product).getCode(), StatusCode::BadInput);
}

TEST_F(CudaLibrariesTest, AResultByColumnsIsComputedAsItIs) {
  json product = getProduct();
  product["c_strides"] = {1, 5};
  auto call = create(product);
  ASSERT_TRUE(call.isOk()) << call.getMessage();
  EXPECT_EQ(takeCublasLog(), "compute 68 scale 0 3=1 4=0\n"
                             "type 0 7x5 by 7\n"
                             "type 0 7x6 by 7\n"
                             "type 0 5x6 by 5\n"
                             "preference 1=8192 3=2 5=64 6=4 7=32 8=32\n");
  EXPECT_EQ(start(**call, 4).find("multiply 0x1000 0x2000 to 0x3000"), 0u);
}

TEST_F(CudaLibrariesTest, ABiasLiesAlongTheRowsOfTheResult) {
  json product = getProduct();
  product["bias"] = "n";
  product["operand_alignments"] = {64, 64, 64};
  auto call = create(product);
  ASSERT_TRUE(call.isOk()) << call.getMessage();
  takeCublasLog();
  EXPECT_EQ(start(**call, 5), "multiply 0x2000 0x1000 to 0x4000 kernel 42 alpha 1 beta 0 "
                              "workspace 0x5000 of 4096 stream 0x5000\nbias 0x3000\n");
  product["operand_alignments"] = {64, 64, 8};
  EXPECT_EQ(create(product).getMessage(),
            "the bias begins at a multiple of 8 bytes, cuBLASLt needs 16");
  product["operand_alignments"] = {64, 64, 64};
  product["c_strides"] = {1, 5};
  EXPECT_EQ(create(product).getCode(), StatusCode::BadInput);
}

TEST_F(CudaLibrariesTest, WhatBeginsElsewhereThanTheLibraryWasToldIsFound) {
  auto call = create(getProduct());
  ASSERT_TRUE(call.isOk()) << call.getMessage();
  auto at = [](uintptr_t address) { return reinterpret_cast<void *>(address); };
  void *places[] = {at(0x1000), at(0x2004), at(0x3000), at(0x4000)};
  takeCublasLog();
  EXPECT_TRUE((*call)->start(*stream, places, *pool).isOk());
  for (auto [buffer, address, reason] :
       {std::tuple(0, 0x1020, "refused: matrix b begins at no multiple of 64\n"),
        {1, 0x2002, "refused: matrix a begins at no multiple of 4\n"},
        {2, 0x3010, "refused: matrix c begins at no multiple of 32\n"}}) {
    takeCublasLog();
    std::vector<void *> wrong(places, places + 4);
    wrong[size_t(buffer)] = at(uintptr_t(address));
    EXPECT_EQ((*call)->start(*stream, wrong.data(), *pool).getCode(), StatusCode::Environment);
    EXPECT_EQ(takeCublasLog(), reason);
  }
  places[3] = at(0x4040);
  EXPECT_EQ((*call)->start(*stream, places, *pool).getMessage(),
            "its workspace begins 64 bytes behind a multiple of 256, which cuBLASLt and cuDNN do "
            "not take");
}

TEST_F(CudaLibrariesTest, HeadsInsideOneProjectionAreLoopsAndABatch) {
  // [batch 2, heads 3, tokens 4, features 8] of which each token has all heads in a row.
  json product = getProduct();
  product.update({{"batch", {2, 3}}, {"m", 4}, {"n", 4}, {"k", 8}});
  product["a_strides"] = {96, 8, 24, 1};
  product["b_strides"] = {96, 8, 1, 24};
  product["c_strides"] = {48, 16, 4, 1};
  product["dtype"] = "bf16";
  product["operand_alignments"] = {64, 64};
  auto call = create(product);
  ASSERT_TRUE(call.isOk()) << call.getMessage();
  EXPECT_EQ(takeCublasLog(), "compute 68 scale 0 3=1 4=0\n"
                             "type 14 8x4 by 24 5=3 6=8\n"
                             "type 14 8x4 by 24 5=3 6=8\n"
                             "type 14 4x4 by 4 5=3 6=16\n"
                             "preference 1=8192 3=2 5=64 6=64 7=32 8=32\n");
  EXPECT_EQ(start(**call, 4), "multiply 0x2000 0x1000 to 0x3000 kernel 42 alpha 1 beta 0 "
                              "workspace 0x4000 of 4096 stream 0x5000\n"
                              "multiply 0x20c0 0x10c0 to 0x3060 kernel 42 alpha 1 beta 0 "
                              "workspace 0x4000 of 4096 stream 0x5000\n");
}

TEST_F(CudaLibrariesTest, AProductThatNeedsMoreWorkspaceIsRefused) {
  json product = getProduct();
  product["workspace_bytes"] = 64;
  auto call = create(product);
  EXPECT_EQ(call.getCode(), StatusCode::Environment);
  EXPECT_EQ(call.getMessage(), "cuBLASLt has no kernel for this product with a workspace of 64 "
                               "bytes (status 15); compile the model here");
  product["operand_alignments"] = {64, 3};
  EXPECT_EQ(create(product).getCode(), StatusCode::BadInput);
  product["operand_alignments"] = {64, 64};
  product["a_strides"] = {14, 2};
  EXPECT_EQ(create(product).getMessage(),
            "matrix a lies neither by rows nor by columns, which cuBLASLt needs");
}

//===----------------------------------------------------------------------===//
// Modules
//===----------------------------------------------------------------------===//

namespace {
/// A driver for a version of CUDA and a device of a chip, and a package's code for sm_80.
class CudaModuleTest : public CudaLibrariesTest {
protected:
  void TearDown() override { setDevice(13000, 90); }

  static void setDevice(int driver, int chip) {
    findFake<void(int)>("libcuda.so.1", "fakeDriverSetVersion")(driver);
    findFake<void(int)>("libcuda.so.1", "fakeDriverSetChip")(chip);
  }

  Status load(int driver, int chip, const std::string &image, const std::string &source) {
    setDevice(driver, chip);
    auto open = [&](const char *name, const std::string &text) {
      writeFile(folder / name, text);
      auto file = InputFile::open(folder / name);
      EXPECT_TRUE(file.isOk()) << file.getMessage();
      return *std::move(file);
    };
    InputFile code = open("kernels.cubin", image);
    InputFile ptx = source.empty() ? InputFile() : open("kernels.ptx", source);
    return CudaModule(*context).load(code, ptx, {});
  }

  /// As FakeDriver reads it.
  static std::string makeCubin(char abi, const std::string &chip) {
    std::string head("\x7f"
                     "ELF\0\0\0\0",
                     8);
    return head + abi + std::string(7, '\0') + chip + "\n";
  }

  TemporaryFolder folder;
};
} // namespace

TEST_F(CudaModuleTest, TheDriverMakesCodeOfPtxWhereItRefusesTheImage) {
  std::string ptx = ".version 7.0\n.target sm_80\n", by13 = makeCubin(8, "80"),
              by12 = makeCubin(7, "80");
  EXPECT_TRUE(load(13000, 80, by13, ptx).isOk());
  EXPECT_TRUE(load(13000, 86, by13, ptx).isOk());
  EXPECT_TRUE(load(12020, 80, by12, ptx).isOk());
  EXPECT_TRUE(context->getNotices().empty());
  EXPECT_TRUE(load(12020, 80, by13, ptx).isOk()); // an older driver
  EXPECT_TRUE(load(13000, 90, by13, ptx).isOk()); // another chip
  ASSERT_EQ(context->getNotices().size(), 1u);
  EXPECT_NE(
      context->getNotices()[0].find("kernels.cubin' is no code for this device and its driver"),
      std::string::npos);
}

TEST_F(CudaModuleTest, WhatNoDriverCanMakeCodeOfSaysWhatItNeeds) {
  std::string refusal =
      load(12020, 90, makeCubin(8, "120"), ".version 8.7\n.target sm_120\n").getMessage();
  EXPECT_NE(refusal.find("the package has no code for sm_90 and a driver for CUDA 12.2"),
            std::string::npos)
      << refusal;
  EXPECT_NE(refusal.find("needs a chip sm_120 or newer and a driver for CUDA 12.8 or newer"),
            std::string::npos)
      << refusal;
  EXPECT_EQ(load(12020, 90, makeCubin(8, "90"), "").getCode(), StatusCode::Environment);
}
