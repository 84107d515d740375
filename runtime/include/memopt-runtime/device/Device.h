//===- Device.h - what gives memory and moves bytes -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A device owns the memory that programs run in and copies between it and the host's. `cpu` is
// always there. A device that is not on this machine is an Environment error at open, never a
// crash: vendor libraries are looked up when asked for.
//
// Work that is asked for goes into a stream and is done later, in the order in which it went in.
// Streams know nothing of each other, but for events: a mark in one stream that the host, or
// another stream, waits for. Nothing that is done on a stream allocates.
//
// A device with code of its own loads a program's kernels from an image and runs them in a compute
// stream; on the cpu they are part of the program.
//
// Threads: a device may be used from several threads; a stream or an event from one at a time.
// Lifetimes: arenas, streams and events end before their device; an arena outlives the copies on
// it.
//
// test/Unit/Runtime/device/DeviceConformance.h holds what every device must pass.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DEVICE_DEVICE_H
#define MEMOPT_RUNTIME_DEVICE_DEVICE_H

#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/descriptors/LibraryCalls.h"
#include "memopt-runtime/memory/Arena.h"
#include <memory>
#include <string>
#include <vector>

namespace memopt {

/// A moment in a stream.
class Event {
public:
  virtual ~Event() = default;

  /// Returns when the stream has reached the place where the event was last recorded; at once when
  /// it never was. A failure of work before that place is the answer, at this and every later call
  /// until it is recorded again.
  virtual Status synchronize() = 0;
};

/// A queue of work, done in order.
class Stream {
public:
  /// Finishes what is in it.
  virtual ~Stream() = default;

  /// Copies bytes between arenas of this device, whatever their spaces; ranges do not overlap. One
  /// that leaves its arena is refused here, with BadInput, and nothing is copied.
  virtual Status copy(Arena &to, int64_t toOffset, const Arena &from, int64_t fromOffset,
                      int64_t bytes) = 0;

  /// Marks this place in the stream.
  virtual Status record(Event &event) = 0;

  /// What goes in after this begins when `event`, as it is recorded now, has been reached.
  virtual Status waitFor(Event &event) = 0;

  /// Returns when all that went in is done; the first failure since the last call is the answer.
  virtual Status synchronize() = 0;
};

/// Code of a device, loaded. Its kernels have the numbers of their names when it was.
class Module {
public:
  virtual ~Module() = default;
};

/// Work of streams that was written down once and is done any number of times.
class Graph {
public:
  virtual ~Graph() = default;
};

/// How many blocks of how many threads run a kernel, and the bytes of shared memory that each block
/// gets beside what the kernel declares.
struct LaunchShape {
  int32_t blocks, threads, sharedBytes;
};

/// A stream that runs kernels and library calls too.
class ComputeStream : public Stream {
public:
  /// Runs a kernel. `arguments` holds the address of each parameter's value; the values are read
  /// before it returns. What the device has no room for is refused here; what goes wrong while the
  /// kernel runs is the answer of a later call, and the device is lost.
  virtual Status launch(Module &module, int32_t kernel, const LaunchShape &shape,
                        void *const *arguments) = 0;

  /// From here on what goes in is written down and not done: in this stream, and in others from
  /// where they wait for an event that is recorded here. Until it ends the calling thread asks
  /// nothing else of the device, and waits for nothing.
  virtual Status beginCapture() = 0;
  /// Ends that; what other streams have written down must be waited for here before. What no graph
  /// can hold is a failure, here at the latest, and all streams go on as before.
  virtual StatusOr<std::unique_ptr<Graph>> endCapture() = 0;
  /// Does what was written down, behind all that went in before. It outlives what is under way.
  virtual Status replay(Graph &graph) = 0;

  /// Leaves a number at this place.
  virtual Status leaveMark(uint32_t number) = 0;
  /// The number of the last place that the stream has come to, 0 at the begin: where it was when
  /// the device was lost.
  virtual uint32_t getMark() const = 0;
};

/// A library call of a device.
class DeviceCall {
public:
  virtual ~DeviceCall() = default;

  /// As of LibraryCall.
  virtual int64_t workspaceBytes() const = 0;
  virtual int getTeam() const { return 1; }
  /// Makes all that the first call makes. `buffers` are as those of `start`, and what they hold
  /// means nothing; when it returns nothing is under way.
  virtual Status warmUp(ComputeStream &stream, void *const *buffers, ThreadPool &pool);
  /// Puts the call into a stream. `buffers` is read before it returns; `pool` is there for devices
  /// that are emulated.
  virtual Status start(ComputeStream &stream, void *const *buffers, ThreadPool &pool) = 0;
};

class Communicator;
class DeviceCommunicator;

class Device {
public:
  virtual ~Device() = default;

  /// The name that packages give as their target.
  virtual std::string getName() const = 0;

  /// What it runs code of, such as "sm_90"; empty when programs bring kernels as code of the cpu.
  virtual std::string getChip() const { return ""; }

  /// Which of its kind on this host it is, from 0.
  virtual int64_t getNumber() const { return 0; }

  /// Bytes of the device's memory that are taken now, by anybody; 0 where it is the host's.
  virtual StatusOr<int64_t> getTakenBytes() const { return 0; }
  /// What was taken when the device had been opened: what its driver needs for a process, and what
  /// others held.
  virtual int64_t getContextBytes() const { return 0; }

  /// What it could not do as it should, a line each.
  virtual std::vector<std::string> getNotices() const { return {}; }

  /// The text of a device description, from which programs are compiled for it.
  virtual StatusOr<std::string> describe() const;

  /// Memory of a space (MEMOPT_SPACE_*), 64-byte aligned, resident from now on. More than there is
  /// gives an Environment error. Memory of the host's space is within the host's reach and can be
  /// copied from and to without a detour.
  virtual StatusOr<std::unique_ptr<Arena>> allocate(int space, int64_t bytes, bool isChecked) = 0;

  /// A stream with room for `capacity` copies, records and waits that are not done yet; one more
  /// waits for room.
  virtual StatusOr<std::unique_ptr<Stream>> createStream(int64_t capacity) = 0;
  virtual StatusOr<std::unique_ptr<Event>> createEvent() = 0;

  //===--------------------------------------------------------------------===//
  // Of devices with code of their own; others refuse
  //===--------------------------------------------------------------------===//

  virtual StatusOr<std::unique_ptr<ComputeStream>> createComputeStream();
  /// Loads an image, or where the device refuses it what its driver can make code of (`source`, a
  /// file that is open where there is one). A kernel that both lack is BadInput.
  virtual StatusOr<std::unique_ptr<Module>> loadModule(const InputFile &image,
                                                       const InputFile &source,
                                                       const std::vector<std::string> &kernels);
  /// Prepares a library call; `reference` makes it for the cpu, where the device is emulated.
  virtual StatusOr<std::unique_ptr<DeviceCall>>
  createCall(const nlohmann::json &descriptor, int threads, const LibraryCallFactory &reference);
  /// Joins the devices of ranks whose hosts have met, all of which call this; `seconds` is how long
  /// this rank waits for the others, now and later. Both must outlive the answer.
  virtual StatusOr<std::unique_ptr<DeviceCommunicator>> joinRanks(Communicator &hosts,
                                                                  double seconds);
};

/// Refuses a copy that leaves one of its arenas.
Status checkCopy(const Arena &to, int64_t toOffset, const Arena &from, int64_t fromOffset,
                 int64_t bytes);

} // namespace memopt

#endif // MEMOPT_RUNTIME_DEVICE_DEVICE_H
