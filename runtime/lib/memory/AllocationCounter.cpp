//===- AllocationCounter.cpp - what is allocated during steps -------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/memory/AllocationCounter.h"

using namespace memopt;

thread_local AllocationCounter *AllocationCounter::ofThread = nullptr;
AllocationCounter AllocationCounter::strays;
