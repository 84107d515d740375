//===- FakeLibraries.h - what fakes of CUDA's libraries noted ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TEST_RUNTIME_FAKELIBRARIES_H
#define MEMOPT_TEST_RUNTIME_FAKELIBRARIES_H

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace memopt::testing {

/// A function that only a fake has; the library is loaded by now.
template <typename Function> Function *findFake(const char *library, const char *symbol) {
  void *handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  auto *function = handle ? reinterpret_cast<Function *>(::dlsym(handle, symbol)) : nullptr;
  EXPECT_NE(function, nullptr) << symbol;
  return function;
}

} // namespace memopt::testing

#endif // MEMOPT_TEST_RUNTIME_FAKELIBRARIES_H
