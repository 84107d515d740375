//===- NetworkDescription.h - what ranks take to send ---------- -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// --describe-network: the collectives of steps, timed over the communicator of a run, as the
// network file that memopt-compile and memopt-plan predict by (docs/Planning.md, "Many ranks").
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUN_NETWORKDESCRIPTION_H
#define MEMOPT_RUN_NETWORKDESCRIPTION_H

#include "memopt-runtime/device/Device.h"
#include "memopt-runtime/ranks/Communicator.h"
#include <string>

namespace memopt {

/// Of one member of a network, in one direction.
struct NetworkLink {
  double latency = 0; ///< seconds
  double bytesPerSecond = 1;
};

/// A gathered or scattered tensor of so many bytes took `seconds`.
struct TimedCollective {
  int64_t bytes;
  double seconds;
};

/// The link whose latency + bytes (ranks - 1) / ranks / rate is what both took; `large` is of more
/// bytes.
NetworkLink fitLink(const TimedCollective &small, const TimedCollective &large, int64_t ranks);

/// A level of a network: gathers and scattered sums over its `members`.
struct NetworkLevel {
  int64_t members;
  NetworkLink gathers, sums;
};

/// What a collective took that is small, and one that is large.
struct TimedPair {
  TimedCollective small, large;
};

/// The level between hosts of `places` ranks, for what `whole` took over all `ranks` and `inside`
/// over those of a host.
NetworkLink fitOuterLink(const TimedPair &whole, const TimedPair &inside, int64_t ranks,
                         int64_t places);

/// Device bytes of each rank that measureNetwork() asks for.
int64_t getNetworkArenaBytes();

/// To be called by all ranks. The first writes `path`: a level, or two where ranks of each host
/// share memory; and for as many ranks as there are what each kind of collective took, alone and
/// beside computing.
Status measureNetwork(Communicator &communicator, Device &device, const std::string &path);

} // namespace memopt

#endif // MEMOPT_RUN_NETWORKDESCRIPTION_H
