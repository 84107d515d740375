//===- Arena.h - one block of memory of known size --------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All that a program uses of a memory space lies in one arena. It is allocated and made resident
// before the first step, so that no step ever asks for a page. Unreadable pages stand before and
// behind it.
//
// A checked arena observes what the plan predicts. It lies so that its end, rounded up to 64 bytes,
// touches the page behind; it and the slack around it are filled with a pattern that depends on the
// position. What differs from the pattern was written. A write of the very byte that the pattern
// has goes unseen, therefore the pattern avoids bytes that end common values, and the mark is taken
// after every step and kept.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_MEMORY_ARENA_H
#define MEMOPT_RUNTIME_MEMORY_ARENA_H

#include "memopt-runtime/base/Status.h"
#include <cstdint>
#include <functional>
#include <memory>

namespace memopt {

/// Runs work(begin, end) on pieces that cover [0, count), on one thread or on several.
using PieceWork = std::function<void(int64_t begin, int64_t end)>;
using PieceRunner = std::function<void(int64_t count, const PieceWork &work)>;
inline void runWhole(int64_t count, const PieceWork &work) { work(0, count); }

/// Memory of a device. The bytes may be out of the host's reach; see isHostAccessible.
class Arena {
public:
  virtual ~Arena() = default;
  Arena(const Arena &) = delete;
  Arena &operator=(const Arena &) = delete;

  /// Where it begins, as programs of its device address it; null when it has no bytes.
  char *base() const { return start; }
  int64_t size() const { return bytes; }

  /// Whether the host reads and writes at base() itself.
  virtual bool isHostAccessible() const = 0;

  /// Bytes of memory that it holds, rounding included, guard pages not.
  virtual int64_t residentBytes() const = 0;

  /// Bytes from `offset` on, to and from memory of the host, once nothing else touches them: what
  /// streams have to do with them has been waited for. They return when they are done.
  virtual Status read(int64_t offset, void *to, int64_t size) const = 0;
  virtual Status write(int64_t offset, const void *from, int64_t size) = 0;

  /// Fills it as it was when it was allocated; nothing counts as used any more. Afterwards every
  /// page is there, near the thread that filled it.
  virtual Status reset(const PieceRunner &runPieces) = 0;
  Status reset() { return reset(runWhole); }

  /// Takes note of bytes handed to a library as its workspace: they count as used whether it writes
  /// there or not. Addresses outside the arena are ignored.
  void noteHandedOut(const void *address, int64_t size);

  /// Fills a checked arena from an offset on as it was when it was allocated: what was used there
  /// counts no more.
  virtual Status forgetAbove(int64_t offset);

  /// Looks for written bytes above the highest known one. Only for a checked arena.
  virtual Status updateMark() = 0;

  /// End of the highest byte seen written or handed out, as an offset.
  int64_t usedPeakBytes() const { return mark; }

  /// A failure when the slack before or behind the arena was written. Only for a checked arena.
  virtual Status checkSlack() const = 0;

  /// True when `address` lies in one of the unreadable pages around the arena.
  virtual bool isGuard(const void *address) const = 0;

protected:
  Arena() = default;

  char *start = nullptr;
  int64_t bytes = 0;
  int64_t mark = 0;
};

/// Memory of this machine.
class HostArena : public Arena {
public:
  /// Allocates `bytes` (zeroed, or filled with the pattern when `isChecked`). Asking for more than
  /// the machine has is an Environment error, not a kill by the system later. No bytes: a null
  /// base.
  static StatusOr<std::unique_ptr<Arena>> allocate(int64_t bytes, bool isChecked);
  /// The same in a region of the caller's, of getRegionBytes(bytes) bytes of zeros, which outlives
  /// it and whose first and last page nobody may touch.
  static StatusOr<std::unique_ptr<Arena>> placeIn(char *region, int64_t bytes, bool isChecked);
  /// Pages, guards included.
  static int64_t getRegionBytes(int64_t bytes);
  ~HostArena() override;

  bool isHostAccessible() const override { return true; }
  int64_t residentBytes() const override { return mappedBytes; }
  Status read(int64_t offset, void *to, int64_t size) const override;
  Status write(int64_t offset, const void *from, int64_t size) override;
  using Arena::reset;
  Status reset(const PieceRunner &runPieces) override;
  Status updateMark() override;
  Status checkSlack() const override;
  bool isGuard(const void *address) const override;

  /// Where its memory begins, residentBytes() of it.
  char *getMapped() const { return mapped; }
  /// What a device has to undo before the memory goes.
  void setRelease(std::function<void()> undo) { release = std::move(undo); }

private:
  HostArena() = default;

  std::function<void()> release = [] {};
  bool isOwner = false;    ///< of the mapping
  char *mapping = nullptr; ///< begins with the guard page
  int64_t totalBytes = 0;  ///< of the mapping, guard pages included
  char *mapped = nullptr;  ///< begin of the resident part
  int64_t mappedBytes = 0;
  bool isChecked = false;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_MEMORY_ARENA_H
