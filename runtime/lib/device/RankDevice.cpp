//===- RankDevice.cpp - the cpu of a rank -------------------- ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/RankDevice.h"
#include "memopt-runtime/device/CpuDevice.h"
#include "memopt-runtime/memory/Arena.h"

using namespace memopt;

namespace {
/// The cpu with device memory that is there already.
class RankDevice final : public Device {
public:
  RankDevice(char *region, int64_t bytes, bool isChecked, std::unique_ptr<Device> cpu)
      : region(region), bytes(bytes), isChecked(isChecked), cpu(std::move(cpu)) {}

  std::string getName() const override { return cpu->getName(); }
  StatusOr<std::unique_ptr<Arena>> allocate(int space, int64_t size, bool isWatched) override {
    if (space != MEMOPT_SPACE_DEVICE)
      return cpu->allocate(space, size, isWatched);
    if (size != bytes || isWatched != isChecked)
      return badInput("an arena of " + std::to_string(size) +
                      " bytes was asked for, the rank has " + std::to_string(bytes));
    return HostArena::placeIn(region, bytes, isChecked);
  }
  StatusOr<std::unique_ptr<Stream>> createStream(int64_t capacity) override {
    return cpu->createStream(capacity);
  }
  StatusOr<std::unique_ptr<Event>> createEvent() override { return cpu->createEvent(); }

private:
  char *region;
  int64_t bytes;
  bool isChecked;
  std::unique_ptr<Device> cpu;
};
} // namespace

std::unique_ptr<Device> memopt::openRankDevice(const SharedRanks &group, int64_t rank) {
  return std::make_unique<RankDevice>(group.getRegion(rank), group.getArenaBytes(),
                                      group.isArenaChecked(), createCpuDevice());
}
