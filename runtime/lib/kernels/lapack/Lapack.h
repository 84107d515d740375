//===- Lapack.h - LAPACK's functions by their element type --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Matrices lie column by column. Functions return LAPACK's `info`: 0, or what went wrong. With a
// `workCount` of -1 those that have one write to `work`, and `integers`, how much they need of it.
// Fortran gets numbers by address, and the lengths of texts behind all arguments.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_KERNELS_LAPACK_LAPACK_H
#define MEMOPT_RUNTIME_LIB_KERNELS_LAPACK_LAPACK_H

#include <cstddef>

#define MEMOPT_DECLARE_LAPACK(T, p)                                                                \
  void p##potrf_(const char *uplo, const int *n, T *a, const int *lda, int *info, size_t);         \
  void p##syevd_(const char *jobz, const char *uplo, const int *n, T *a, const int *lda, T *w,     \
                 T *work, const int *lwork, int *iwork, const int *liwork, int *info, size_t,      \
                 size_t);                                                                          \
  void p##gesdd_(const char *jobz, const int *m, const int *n, T *a, const int *lda, T *s, T *u,   \
                 const int *ldu, T *vt, const int *ldvt, T *work, const int *lwork, int *iwork,    \
                 int *info, size_t);                                                               \
  void p##geqrf_(const int *m, const int *n, T *a, const int *lda, T *tau, T *work,                \
                 const int *lwork, int *info);                                                     \
  void p##orgqr_(const int *m, const int *n, const int *k, T *a, const int *lda, const T *tau,     \
                 T *work, const int *lwork, int *info);                                            \
  void p##getrf_(const int *m, const int *n, T *a, const int *lda, int *pivots, int *info);        \
  void p##trsm_(const char *side, const char *uplo, const char *trans, const char *diag,           \
                const int *m, const int *n, const T *alpha, const T *a, const int *lda, T *b,      \
                const int *ldb, size_t, size_t, size_t, size_t);
extern "C" {
MEMOPT_DECLARE_LAPACK(float, s)
MEMOPT_DECLARE_LAPACK(double, d)
}
#undef MEMOPT_DECLARE_LAPACK

namespace memopt::libraries {

template <typename T> struct Lapack;

#define MEMOPT_DEFINE_LAPACK(T, p)                                                                 \
  template <> struct Lapack<T> {                                                                   \
    static int factorUpper(int n, T *a) {                                                          \
      int info = 0;                                                                                \
      p##potrf_("U", &n, a, &n, &info, 1);                                                         \
      return info;                                                                                 \
    }                                                                                              \
    static int findEigenvectors(int n, T *a, T *values, T *work, int workCount, int *integers,     \
                                int integerCount) {                                                \
      int info = 0;                                                                                \
      p##syevd_("V", "L", &n, a, &n, values, work, &workCount, integers, &integerCount, &info, 1,  \
                1);                                                                                \
      return info;                                                                                 \
    }                                                                                              \
    static int findSingularVectors(int m, int n, T *a, T *s, T *u, T *vt, T *work, int workCount,  \
                                   int *integers) {                                                \
      int info = 0, least = m < n ? m : n;                                                         \
      p##gesdd_("S", &m, &n, a, &m, s, u, &m, vt, &least, work, &workCount, integers, &info, 1);   \
      return info;                                                                                 \
    }                                                                                              \
    static int reflect(int m, int n, T *a, T *factors, T *work, int workCount) {                   \
      int info = 0;                                                                                \
      p##geqrf_(&m, &n, a, &m, factors, work, &workCount, &info);                                  \
      return info;                                                                                 \
    }                                                                                              \
    static int multiplyReflections(int m, int n, int k, T *a, const T *factors, T *work,           \
                                   int workCount) {                                                \
      int info = 0;                                                                                \
      p##orgqr_(&m, &n, &k, a, &m, factors, work, &workCount, &info);                              \
      return info;                                                                                 \
    }                                                                                              \
    static int factorRows(int m, int n, T *a, int *pivots) {                                       \
      int info = 0;                                                                                \
      p##getrf_(&m, &n, a, &m, pivots, &info);                                                     \
      return info;                                                                                 \
    }                                                                                              \
    /* X of X op(A) = B, in the place of B, of `rows` rows. */                                     \
    static void solveFromRight(bool upper, bool transposed, bool unit, int rows, int n,            \
                               const T *a, T *b) {                                                 \
      T one = 1;                                                                                   \
      p##trsm_("R", upper ? "U" : "L", transposed ? "T" : "N", unit ? "U" : "N", &rows, &n, &one,  \
               a, &n, b, &rows, 1, 1, 1, 1);                                                       \
    }                                                                                              \
  };
MEMOPT_DEFINE_LAPACK(float, s)
MEMOPT_DEFINE_LAPACK(double, d)
#undef MEMOPT_DEFINE_LAPACK

/// What runs, by the processor's instructions; its object file brings what LAPACK calls of ours.
const char *getLapackName();

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_LIB_KERNELS_LAPACK_LAPACK_H
