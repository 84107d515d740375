//===- Lapack.h - LAPACK's functions by their element type --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Matrices lie column by column. Functions return LAPACK's `info`: 0, or what went wrong. With a
// count of -1 those that have one write to the arrays how much they need of each. Complex functions
// have an array of real numbers more, which those of real matrices leave alone. Fortran gets numbers
// by address, and the lengths of texts behind all arguments.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_KERNELS_LAPACK_LAPACK_H
#define MEMOPT_RUNTIME_LIB_KERNELS_LAPACK_LAPACK_H

#include <algorithm>
#include <complex>
#include <cstddef>

#define MEMOPT_DECLARE_LAPACK(T, p, q)                                                             \
  void p##potrf_(const char *uplo, const int *n, T *a, const int *lda, int *info, size_t);         \
  void p##geqrf_(const int *m, const int *n, T *a, const int *lda, T *tau, T *work,                \
                 const int *lwork, int *info);                                                     \
  void p##q##gqr_(const int *m, const int *n, const int *k, T *a, const int *lda, const T *tau,    \
                  T *work, const int *lwork, int *info);                                           \
  void p##getrf_(const int *m, const int *n, T *a, const int *lda, int *pivots, int *info);        \
  void p##trsm_(const char *side, const char *uplo, const char *trans, const char *diag,           \
                const int *m, const int *n, const T *alpha, const T *a, const int *lda, T *b,      \
                const int *ldb, size_t, size_t, size_t, size_t);                                   \
  void p##trmm_(const char *side, const char *uplo, const char *trans, const char *diag,           \
                const int *m, const int *n, const T *alpha, const T *a, const int *lda, T *b,      \
                const int *ldb, size_t, size_t, size_t, size_t);
#define MEMOPT_DECLARE_LAPACK_OF_REAL(T, p)                                                        \
  MEMOPT_DECLARE_LAPACK(T, p, or)                                                                  \
  void p##syevd_(const char *jobz, const char *uplo, const int *n, T *a, const int *lda, T *w,     \
                 T *work, const int *lwork, int *iwork, const int *liwork, int *info, size_t,      \
                 size_t);                                                                          \
  void p##gesdd_(const char *jobz, const int *m, const int *n, T *a, const int *lda, T *s, T *u,   \
                 const int *ldu, T *vt, const int *ldvt, T *work, const int *lwork, int *iwork,    \
                 int *info, size_t);
#define MEMOPT_DECLARE_LAPACK_OF_COMPLEX(R, p)                                                     \
  MEMOPT_DECLARE_LAPACK(std::complex<R>, p, un)                                                    \
  void p##heevd_(const char *jobz, const char *uplo, const int *n, std::complex<R> *a,             \
                 const int *lda, R *w, std::complex<R> *work, const int *lwork, R *rwork,          \
                 const int *lrwork, int *iwork, const int *liwork, int *info, size_t, size_t);     \
  void p##gesdd_(const char *jobz, const int *m, const int *n, std::complex<R> *a, const int *lda, \
                 R *s, std::complex<R> *u, const int *ldu, std::complex<R> *vt, const int *ldvt,   \
                 std::complex<R> *work, const int *lwork, R *rwork, int *iwork, int *info,         \
                 size_t);
extern "C" {
MEMOPT_DECLARE_LAPACK_OF_REAL(float, s)
MEMOPT_DECLARE_LAPACK_OF_REAL(double, d)
MEMOPT_DECLARE_LAPACK_OF_COMPLEX(float, c)
MEMOPT_DECLARE_LAPACK_OF_COMPLEX(double, z)
}
#undef MEMOPT_DECLARE_LAPACK
#undef MEMOPT_DECLARE_LAPACK_OF_REAL
#undef MEMOPT_DECLARE_LAPACK_OF_COMPLEX

namespace memopt::libraries {

/// The type of values, which are real: eigenvalues, singular values, absolute ones.
template <typename T> struct RealOf {
  using Type = T;
  static constexpr bool isComplex = false;
};
template <typename R> struct RealOf<std::complex<R>> {
  using Type = R;
  static constexpr bool isComplex = true;
};

/// What LAPACK works in.
template <typename T> struct WorkArrays {
  T *numbers;
  typename RealOf<T>::Type *reals;
  int *integers;
};
struct WorkSize {
  int numbers = 0, reals = 0, integers = 0;
};

/// How a triangle is read, and on which side of the other matrix it stands.
struct TriangleFlags {
  bool left, upper, transposed, unit; ///< complex ones are conjugated, too, where they are turned
};

template <typename T> struct Lapack;

#define MEMOPT_DEFINE_LAPACK(T, p, q)                                                               \
  static int factorUpper(int n, T *a) {                                                             \
    int info = 0;                                                                                   \
    p##potrf_("U", &n, a, &n, &info, 1);                                                            \
    return info;                                                                                    \
  }                                                                                                 \
  static int reflect(int m, int n, T *a, T *factors, T *work, int workCount) {                      \
    int info = 0;                                                                                   \
    p##geqrf_(&m, &n, a, &m, factors, work, &workCount, &info);                                     \
    return info;                                                                                    \
  }                                                                                                 \
  static int multiplyReflections(int m, int n, int k, T *a, const T *factors, T *work,              \
                                 int workCount) {                                                   \
    int info = 0;                                                                                   \
    p##q##gqr_(&m, &n, &k, a, &m, factors, work, &workCount, &info);                                \
    return info;                                                                                    \
  }                                                                                                 \
  static int factorRows(int m, int n, T *a, int *pivots) {                                          \
    int info = 0;                                                                                   \
    p##getrf_(&m, &n, a, &m, pivots, &info);                                                        \
    return info;                                                                                    \
  }                                                                                                 \
  /* X of op(A) X = B, or of X op(A) = B, or these products, in the place of the m x n matrix B. */ \
  static void applyTriangle(bool solves, TriangleFlags flags, int m, int n, const T *a, T *b) {     \
    T one = 1;                                                                                      \
    int order = flags.left ? m : n;                                                                 \
    (solves ? p##trsm_ : p##trmm_)(flags.left ? "L" : "R", flags.upper ? "U" : "L",                 \
                                   flags.transposed ? "C" : "N", flags.unit ? "U" : "N", &m, &n,    \
                                   &one, a, &order, b, &m, 1, 1, 1, 1);                             \
  }
#define MEMOPT_DEFINE_LAPACK_OF_REAL(T, p)                                                         \
  template <> struct Lapack<T> {                                                                   \
    MEMOPT_DEFINE_LAPACK(T, p, or)                                                                 \
    static int findEigenvectors(int n, T *a, T *values, WorkArrays<T> work, WorkSize size) {       \
      int info = 0;                                                                                \
      p##syevd_("V", "L", &n, a, &n, values, work.numbers, &size.numbers, work.integers,           \
                &size.integers, &info, 1, 1);                                                      \
      return info;                                                                                 \
    }                                                                                              \
    static int findSingularVectors(int m, int n, T *a, T *s, T *u, T *vt, WorkArrays<T> work,      \
                                   WorkSize size) {                                                \
      int info = 0, least = std::min(m, n);                                                        \
      p##gesdd_("S", &m, &n, a, &m, s, u, &m, vt, &least, work.numbers, &size.numbers,             \
                work.integers, &info, 1);                                                          \
      return info;                                                                                 \
    }                                                                                              \
  };
#define MEMOPT_DEFINE_LAPACK_OF_COMPLEX(R, p)                                                      \
  template <> struct Lapack<std::complex<R>> {                                                     \
    using T = std::complex<R>;                                                                     \
    MEMOPT_DEFINE_LAPACK(T, p, un)                                                                 \
    static int findEigenvectors(int n, T *a, R *values, WorkArrays<T> work, WorkSize size) {       \
      int info = 0;                                                                                \
      p##heevd_("V", "L", &n, a, &n, values, work.numbers, &size.numbers, work.reals, &size.reals, \
                work.integers, &size.integers, &info, 1, 1);                                       \
      return info;                                                                                 \
    }                                                                                              \
    static int findSingularVectors(int m, int n, T *a, R *s, T *u, T *vt, WorkArrays<T> work,      \
                                   WorkSize size) {                                                \
      int info = 0, least = std::min(m, n);                                                        \
      p##gesdd_("S", &m, &n, a, &m, s, u, &m, vt, &least, work.numbers, &size.numbers, work.reals, \
                work.integers, &info, 1);                                                          \
      return info;                                                                                 \
    }                                                                                              \
  };
MEMOPT_DEFINE_LAPACK_OF_REAL(float, s)
MEMOPT_DEFINE_LAPACK_OF_REAL(double, d)
MEMOPT_DEFINE_LAPACK_OF_COMPLEX(float, c)
MEMOPT_DEFINE_LAPACK_OF_COMPLEX(double, z)
#undef MEMOPT_DEFINE_LAPACK
#undef MEMOPT_DEFINE_LAPACK_OF_REAL
#undef MEMOPT_DEFINE_LAPACK_OF_COMPLEX

/// What runs, by the processor's instructions; its object file brings what LAPACK calls of ours.
const char *getLapackName();

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_LIB_KERNELS_LAPACK_LAPACK_H
