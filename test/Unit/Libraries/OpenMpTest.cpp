//===- OpenMpTest.cpp - library calls beside other threads ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// oneDNN's parallel regions run on the threads of a pool, whatever regions and threads there are
// around; everybody else's regions run on libgomp as before.
//
//===----------------------------------------------------------------------===//

#include "LibraryCallTesting.h"
#include "memopt-runtime/threads/ThreadPool.h"
#include <atomic>
#include <thread>

using namespace memopt;
using namespace memopt::librarytest;
using nlohmann::json;

extern "C" {
void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
int omp_get_thread_num();
int omp_get_num_threads();
int omp_in_parallel();
}

/// A gradient of weights: its members add up what each has summed, and wait for each other for it.
static const json descriptor = {{"kind", "convolution_backward_weights"},
                                {"dtype", "f32"},
                                {"layout", "nhwc"},
                                {"input", {8, 16, 14, 14}},
                                {"output", {8, 16, 14, 14}},
                                {"weight", {16, 16, 3, 3}},
                                {"strides", {1, 1}},
                                {"dilations", {1, 1}},
                                {"padding_lower", {1, 1}},
                                {"padding_upper", {1, 1}},
                                {"groups", 1}};

static std::vector<char> runGradient(int threads) {
  constexpr int64_t values = 8 * 16 * 14 * 14, weights = 16 * 16 * 9;
  auto call = LibraryCall::create(descriptor, /*threads=*/2);
  auto pool = ThreadPool::create(threads, (*call)->getTeam());
  EXPECT_TRUE(call.isOk() && pool.isOk()) << call.getMessage() << pool.getMessage();
  Buffer x = Buffer::of(randomValues<float>(values, 1)),
         dy = Buffer::of(randomValues<float>(values, 2)), dw(weights * int64_t(sizeof(float))),
         workspace((*call)->workspaceBytes());
  void *buffers[] = {x.data(), dy.data(), dw.data(), workspace.data()};
  Status status = (*call)->run(buffers, **pool);
  EXPECT_TRUE(status.isOk()) << status.getMessage();
  return dw.values<char>();
}

namespace {
/// What the members of a region of libgomp's see and do.
struct Region {
  std::atomic<int> members{0}, strangers{0}, wrong{0};
  std::vector<char> expected;

  static void run(void *data) {
    auto &region = *static_cast<Region *>(data);
    ++region.members;
    region.strangers += omp_in_parallel() != 1 || omp_get_num_threads() != 2;
    region.wrong += runGradient(2) != region.expected;
    region.strangers += omp_in_parallel() != 1 || omp_get_thread_num() > 1;
  }
};
} // namespace

TEST(OpenMp, CallsInsideOfAnotherRegionGiveTheSameBits) {
  Region region;
  region.expected = runGradient(2);
  GOMP_parallel(&Region::run, &region, 2, 0);
  EXPECT_EQ(region.members, 2);
  EXPECT_EQ(region.strangers, 0);
  EXPECT_EQ(region.wrong, 0);
  EXPECT_EQ(omp_in_parallel(), 0);
}

TEST(OpenMp, CallsOfSeveralThreadsGiveTheSameBits) {
  std::vector<char> expected = runGradient(2);
  std::atomic<int> wrong{0};
  std::vector<std::thread> users;
  for (int user = 0; user < 4; ++user)
    users.emplace_back([&, user] {
      for (int round = 0; round < 10; ++round)
        wrong += runGradient(1 + user % 2) != expected;
    });
  for (std::thread &user : users)
    user.join();
  EXPECT_EQ(wrong, 0);
}
