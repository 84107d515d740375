//===- IndexWatch.cpp - indices out of range ------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "IndexWatch.h"
#include <cstring>

using namespace memopt;

static constexpr uint64_t noFault = ~uint64_t(0);
static constexpr int indexBits = 48;

void IndexWatch::reset() {
  if (word)
    std::memcpy(arenas.getAddress(*word), &noFault, sizeof noFault);
}

Status IndexWatch::check() const {
  uint64_t fault = noFault;
  if (word)
    std::memcpy(&fault, arenas.getAddress(*word), sizeof fault);
  if (fault == noFault)
    return Status::ok();
  uint64_t number = fault >> indexBits;
  if (number >= manifest.indexSites.size())
    return badInput("the program reports an index out of range at site " + std::to_string(number) +
                    " of " + std::to_string(manifest.indexSites.size()));
  const IndexSite &site = manifest.indexSites[number];
  std::string place =
      quote(site.op) + (site.module.empty() ? "" : " of module " + quote(site.module));
  if (site.min > site.max)
    return badInput("integers are divided by zero in " + place);
  int64_t index = int64_t(fault << (64 - indexBits)) >> (64 - indexBits); // its sign comes back
  return badInput("index " + std::to_string(index) + " is out of range in " + place +
                  ", expected " + std::to_string(site.min) + " to " + std::to_string(site.max) +
                  (site.what.empty() ? "" : " (" + site.what + ")"));
}
