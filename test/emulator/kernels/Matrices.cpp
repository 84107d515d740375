//===- Matrices.cpp - copies and products of matrices ---------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "emulator/kernels/DeviceFunctions.h"
#include "emulator/kernels/Kernels.h"
#include <cstring>

using namespace memopt::emulator;
using namespace memopt::cuda;

//===----------------------------------------------------------------------===//
// Copies that go on behind the instruction
//===----------------------------------------------------------------------===//

/// From now on the copy may be under way: what it writes is nobody's until its thread has waited.
void KernelRunner::copy(uintptr_t to, uintptr_t from, size_t bytes, size_t valid) {
  int alignment = 0;
  while (size_t(1) << alignment < bytes)
    ++alignment;
  access(to, bytes, accessWrites | alignment << accessAlignmentShift);
  if (!isShared(to) || valid > bytes || from % bytes) {
    fail(CUDA_ERROR_ILLEGAL_ADDRESS, "copies to what is not shared memory, more than it says, or "
                                     "from where it is not aligned");
    fibers.yield();
  }
  if (valid)
    access(from, valid, 0);
  shadow.beginCopy(uint32_t(fibers.getCurrent()), to, bytes);
  copies[size_t(fibers.getCurrent())].back().push_back({to, from, bytes, valid});
}

void KernelRunner::closeGroup() { copies[size_t(fibers.getCurrent())].emplace_back(); }

/// A copy is done when it must be, and no sooner.
void KernelRunner::awaitGroups(size_t left) {
  auto thread = uint32_t(fibers.getCurrent());
  Copies &groups = copies[thread];
  while (groups.size() > left + 1) {
    for (const Copy &copy : groups.front()) {
      auto *to = reinterpret_cast<char *>(copy.to);
      if (copy.valid) {
        touch(thread, copy.from, copy.valid, /*isWrite=*/false, /*isShared=*/false);
        std::memcpy(to, reinterpret_cast<const char *>(copy.from), copy.valid);
      }
      std::memset(to + copy.valid, 0, copy.bytes - copy.valid);
      shadow.endCopy(thread, copy.to, copy.bytes);
    }
    groups.erase(groups.begin());
  }
}

//===----------------------------------------------------------------------===//
// Matrices
//===----------------------------------------------------------------------===//

void KernelRunner::meetAtMatrices(int kind, uintptr_t row, uint32_t *words) {
  int number = fibers.getCurrent();
  if (count - number / warpThreads * warpThreads < warpThreads) {
    fail(CUDA_ERROR_LAUNCH_FAILED, "an instruction on matrices in a warp that is not whole");
    fibers.yield();
  }
  threads[size_t(number)] = {State::InWarp, kind, ~0u, 0, 0, 0, 0, row, words};
  fibers.yield();
}

void KernelRunner::loadMatrices(int mode, uintptr_t row, uint32_t *words) {
  constexpr size_t rowBytes = 16;
  uintptr_t offset = row - reinterpret_cast<uintptr_t>(shared);
  if (!isShared(row) || offset + rowBytes > sharedBytes || row % rowBytes) {
    fail(CUDA_ERROR_ILLEGAL_ADDRESS, "reads a row of a matrix at offset " + std::to_string(offset) +
                                         " of shared memory of " + std::to_string(sharedBytes) +
                                         " bytes" +
                                         (row % rowBytes ? ", which is not aligned" : ""));
    fibers.yield();
  }
  meetAtMatrices(firstLoad + mode, row, words);
}

/// Thread i says where row i mod 8 of matrix i / 8 begins; who gets a number reads it.
void KernelRunner::shareRows(int first, bool isTransposed) {
  for (int lane = 0; lane < warpThreads; ++lane)
    for (int matrix = 0; matrix < 4; ++matrix) {
      uint16_t pair[2];
      for (int place = 0; place < 2; ++place) {
        int row = lane / 4, column = lane % 4 * 2 + place;
        if (isTransposed)
          std::swap(row, column);
        uintptr_t from =
            threads[size_t(first + matrix * 8 + row)].row + uintptr_t(column) * sizeof(uint16_t);
        touch(uint32_t(first + lane), from, sizeof(uint16_t), /*isWrite=*/false, /*isShared=*/true);
        std::memcpy(&pair[place], reinterpret_cast<const char *>(from), sizeof(uint16_t));
      }
      threads[size_t(first + lane)].words[matrix] = uint32_t(pair[0]) | uint32_t(pair[1]) << 16;
    }
}

static double widen(uint32_t pair, int place, bool isBrainFloat) {
  uint32_t bits = place ? pair >> 16 : pair & 0xffff;
  if (isBrainFloat) {
    float number;
    bits <<= 16;
    std::memcpy(&number, &bits, sizeof(number));
    return double(number);
  }
  auto narrow = uint16_t(bits);
  _Float16 number;
  std::memcpy(&number, &narrow, sizeof(number));
  return double(number);
}

void KernelRunner::multiplyMatrices(int mode, uint32_t *words) {
  meetAtMatrices(firstProduct + mode, 0, words);
}

/// 16 x 16 numbers times 16 x 8, added up exactly and rounded once; a device rounds otherwise.
void KernelRunner::multiply(int first, bool isBrainFloat) {
  double left[16][16], right[16][8];
  auto getWord = [&](int lane, int word) { return threads[size_t(first + lane)].words[word]; };
  for (int lane = 0; lane < warpThreads; ++lane)
    for (int place = 0; place < 2; ++place) {
      int row = lane / 4, column = lane % 4 * 2 + place;
      for (int word = 0; word < leftWords; ++word)
        left[row + word % 2 * 8][column + word / 2 * 8] =
            widen(getWord(lane, word), place, isBrainFloat);
      for (int word = 0; word < rightWords; ++word)
        right[column + word * 8][row] = widen(getWord(lane, leftWords + word), place, isBrainFloat);
    }
  for (int lane = 0; lane < warpThreads; ++lane)
    for (int word = 0; word < sumWords; ++word) {
      int row = lane / 4 + word / 2 * 8, column = lane % 4 * 2 + word % 2;
      uint32_t &place = threads[size_t(first + lane)].words[leftWords + rightWords + word];
      float number;
      std::memcpy(&number, &place, sizeof(number));
      double sum = double(number);
      for (int term = 0; term < 16; ++term)
        sum += left[row][term] * right[term][column];
      number = float(sum);
      std::memcpy(&place, &number, sizeof(number));
    }
}
