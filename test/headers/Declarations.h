//===- Declarations.h - functions that are declared twice -------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The runtime declares what it calls of NVIDIA's libraries itself, so that it builds without them.
// A declaration is right where as many parameters are pointers, or numbers of as many bytes, as in
// NVIDIA's header.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TEST_HEADERS_DECLARATIONS_H
#define MEMOPT_TEST_HEADERS_DECLARATIONS_H

#include <type_traits>

template <typename A, typename B>
inline constexpr bool areAlike =
    std::is_pointer_v<A> ? std::is_pointer_v<B>
                         : std::is_class_v<A> == std::is_class_v<B> &&
                               std::is_floating_point_v<A> == std::is_floating_point_v<B> &&
                               !std::is_pointer_v<B> && sizeof(A) == sizeof(B);

template <typename A, typename B> struct IsSameCall : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
struct IsSameCall<R (*)(A...), S (*)(B...)> {
  static constexpr bool compare() {
    if constexpr (sizeof...(A) == sizeof...(B))
      return areAlike<R, S> && (areAlike<A, B> && ...);
    return false;
  }
  static constexpr bool value = compare();
};

#define SAME_CALL(table, field, symbol)                                                            \
  static_assert(IsSameCall<decltype(table::field), decltype(&::symbol)>::value, #symbol);

#endif // MEMOPT_TEST_HEADERS_DECLARATIONS_H
