//===- FortranSupport.cpp - what LAPACK calls of Fortran's runtime ----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Of GNU Fortran's runtime the functions in use join texts. LAPACK's way to report a wrong argument
// is replaced, too: the library's writes to the terminal and ends the process. So no libgfortran is
// needed.
//
//===----------------------------------------------------------------------===//

#include "Lapack.h"
#include <algorithm>

extern "C" {
void _gfortran_concat_string(size_t length, char *result, size_t first, const char *a,
                             size_t second, const char *b);
void xerbla_(const char *name, const int *argument, size_t);
}

/// Both texts, cut or filled up with spaces to the length.
void _gfortran_concat_string(size_t length, char *result, size_t first, const char *a,
                             size_t second, const char *b) {
  first = std::min(first, length);
  second = std::min(second, length - first);
  std::copy_n(a, first, result);
  std::copy_n(b, second, result + first);
  std::fill_n(result + first + second, length - first - second, ' ');
}

/// The caller gets a negative `info`, and says so.
void xerbla_(const char *, const int *, size_t) {}
