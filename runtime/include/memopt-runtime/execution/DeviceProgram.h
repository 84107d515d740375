//===- DeviceProgram.h - a program whose kernels are a device's -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The kernels of a package, and the stream in which a session runs them. Whatever the program asks
// for is put into the stream and done later; the host waits where it has to look at something:
// before the step commits, when it is over, and at each instruction that is watched. What it looks
// at then lies in the arenas' mirror.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_EXECUTION_DEVICEPROGRAM_H
#define MEMOPT_RUNTIME_EXECUTION_DEVICEPROGRAM_H

#include "memopt-runtime/device/DeviceCommunicator.h"
#include "memopt-runtime/execution/Arenas.h"
#include "memopt-runtime/execution/Flight.h"
#include "memopt-runtime/package/Package.h"

namespace memopt {

class DeviceProgram {
public:
  /// Loads the package's image, or takes that of `partner`, if there is one and its package has the
  /// same code. All must outlive it.
  static StatusOr<std::unique_ptr<DeviceProgram>> create(const Package &package,
                                                         const Arenas &arenas, Device &device,
                                                         const DeviceProgram *partner);
  /// A package for another device, or another chip, is refused.
  static Status checkTarget(const TargetSpec &target, const Device &device);

  ComputeStream &getStream() { return *stream; }

  Status launch(int32_t kernel, const LaunchShape &shape, void *const *arguments) {
    return stream->launch(*module, kernel, shape, arguments);
  }

  /// The devices of other ranks, which waits look after from now on.
  void setRanks(DeviceCommunicator *communicator) { ranks = communicator; }
  /// Does a collective between the kernels before and behind it.
  Status runCollective(int64_t number);
  /// Does it beside the kernels: behind those so far, and in front of those that come after the
  /// wait. All collectives have one stream, so ranks that start them in one order do them in one.
  Status startCollective(int64_t number);
  Status waitForCollective(int64_t number);
  /// What comes into the stream of kernels from here on is behind all collectives.
  Status joinCollectives();
  /// Forgets those that were started in a step that came to no end.
  void abandonCollectives();

  /// Brings what the host has written before a step to the device: rates, step and seed.
  Status beginStep();
  /// Returns when the last samples are on the device, and their mirror may be written again.
  Status beginFill() { return ranks ? ranks->wait(*samplesSent) : samplesSent->synchronize(); }
  /// Puts the copies of samples to where they wait into a stream of their own, beside the kernels.
  Status sendSamples(const std::vector<const PlacedTensor *> &tensors);
  /// From here on kernels see what was sent last.
  Status takeSamples(const std::vector<const PlacedTensor *> &tensors);
  /// Says that an instruction begins; `isWatched`: when all before it has ended.
  Status beginInstruction(int64_t instruction, bool isWatched);
  /// Puts copies of what the host reads after a step, into the mirror, into the stream.
  Status bringBack();
  /// Waits for all.
  Status synchronize() { return ranks ? ranks->wait(*stream) : stream->synchronize(); }

  /// Where a failure belongs that came up at instruction `last`: where the device was lost, if it
  /// was.
  int64_t findFailure(int64_t last);

private:
  DeviceProgram(const Package &package, const Arenas &arenas)
      : package(package), manifest(package.getManifest()), arenas(arenas) {}

  StatusOr<Flight *> findFlight(int64_t number);

  const Package &package;
  const Manifest &manifest;
  const Arenas &arenas;
  DeviceCommunicator *ranks = nullptr;
  std::vector<Flight> flights; ///< by collective
  std::shared_ptr<Module> module;
  std::unique_ptr<Event> samplesSent, samplesTaken;
  std::unique_ptr<ComputeStream> stream; ///< ends before what it uses, as does the other
  std::unique_ptr<Stream> sampleStream;
  std::unique_ptr<ComputeStream> rankStream; ///< null where there are no collectives
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_EXECUTION_DEVICEPROGRAM_H
