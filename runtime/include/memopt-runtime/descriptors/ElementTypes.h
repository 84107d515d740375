//===- ElementTypes.h - what our own kernels read and sum ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Floats of 16 bits exist in memory only: they are widened where they are read and rounded, to
// nearest and ties to even, where they are stored. The conversions are arithmetic on bits, which
// compilers turn into vector code on every processor, and have no code of their own that the linker
// could share between instruction sets.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DESCRIPTORS_ELEMENTTYPES_H
#define MEMOPT_RUNTIME_DESCRIPTORS_ELEMENTTYPES_H

#include <cstdint>

namespace memopt::libraries {

#define MEMOPT_INLINE __attribute__((always_inline)) inline

/// The upper half of a float.
struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  MEMOPT_INLINE explicit BFloat16(float value) {
    uint32_t word = __builtin_bit_cast(uint32_t, value);
    uint32_t rounded = (word + 0x7fffu + (word >> 16 & 1)) >> 16;
    // The mantissa of a NaN could round to that of infinity.
    bits = uint16_t((word & 0x7fffffffu) > 0x7f800000u ? word >> 16 | 0x40u : rounded);
  }
  MEMOPT_INLINE operator float() const { return __builtin_bit_cast(float, uint32_t(bits) << 16); }
};

/// IEEE's binary16: five bits of exponent, ten of mantissa.
struct Float16 {
  uint16_t bits;

  Float16() = default;
  MEMOPT_INLINE explicit Float16(float value) {
    uint32_t word = __builtin_bit_cast(uint32_t, value), sign = word >> 16 & 0x8000u;
    uint32_t size = word & 0x7fffffffu;
    // The exponent loses 112; what is carried out of the mantissa belongs to it.
    uint32_t normal = (size + 0xc8000fffu + (size >> 13 & 1)) >> 13;
    // Below 2^-14 the last bit is 2^-24: added to 1/2, it is that of the sum's mantissa.
    float shifted = __builtin_bit_cast(float, size) + 0.5f;
    uint32_t tiny = __builtin_bit_cast(uint32_t, shifted) - 0x3f000000u;
    uint32_t large = size > 0x7f800000u ? 0x7e00u : 0x7c00u;
    uint32_t result = size < 0x38800000u ? tiny : size >= 0x477ff000u ? large : normal;
    bits = uint16_t(sign | result);
  }
  MEMOPT_INLINE operator float() const {
    uint32_t size = uint32_t(bits & 0x7fffu) << 13;
    // Times 2^112 the exponent is right, that of numbers below 2^-14 too.
    float scaled = __builtin_bit_cast(float, size) * 0x1p112f;
    uint32_t word = __builtin_bit_cast(uint32_t, scaled);
    word = size >= 0x0f800000u ? size | 0x7f800000u : word;
    return __builtin_bit_cast(float, word | uint32_t(bits & 0x8000u) << 16);
  }
};

#undef MEMOPT_INLINE

/// What sums of products of `Stored` elements are stored as where they are not rounded; also the
/// type of biases, masks and logarithms of sums beside them.
template <typename Stored> struct WideType {
  using Type = Stored;
  static constexpr bool isWider = false;
};
template <> struct WideType<BFloat16> {
  using Type = float;
  static constexpr bool isWider = true;
};
template <> struct WideType<Float16> {
  using Type = float;
  static constexpr bool isWider = true;
};
template <typename Stored> using Wide = typename WideType<Stored>::Type;
template <typename Stored> constexpr bool isHalf = WideType<Stored>::isWider;

/// The elements of a result, rounded to `Stored` or not.
template <typename Stored> class ResultElements {
public:
  ResultElements(void *data, bool isWide) : data(data), isWide(isWide && isHalf<Stored>) {}

  template <typename T> void set(int64_t index, T value) const {
    if (isWide)
      static_cast<Wide<Stored> *>(data)[index] = static_cast<Wide<Stored>>(value);
    else
      static_cast<Stored *>(data)[index] = static_cast<Stored>(value);
  }
  /// value(0), value(1), ... of `count` elements `step` apart from `first` on.
  template <typename Value>
  void setRow(int64_t first, int64_t step, int64_t count, Value &&value) const {
    if (isWide)
      write(static_cast<Wide<Stored> *>(data) + first, step, count, value);
    else
      write(static_cast<Stored *>(data) + first, step, count, value);
  }
  Wide<Stored> get(int64_t index) const {
    return isWide ? static_cast<const Wide<Stored> *>(data)[index]
                  : static_cast<Wide<Stored>>(static_cast<const Stored *>(data)[index]);
  }

private:
  /// Elements that a value is made of are the one it becomes, or none of these.
  template <typename Element, typename Value>
  static void write(Element *elements, int64_t step, int64_t count, Value &&value) {
    if (step == 1) {
#pragma clang loop vectorize(assume_safety)
      for (int64_t i = 0; i < count; ++i)
        elements[i] = static_cast<Element>(value(i));
      return;
    }
    for (int64_t i = 0; i < count; ++i)
      elements[i * step] = static_cast<Element>(value(i));
  }

  void *data;
  bool isWide;
};

/// Elements of a result, which some calls add to those of another buffer, or of the same one.
template <typename Stored> class AccumulatedElements {
public:
  AccumulatedElements(void *addend, void *result, bool isWide, bool accumulates)
      : addend(addend, isWide), result(result, isWide), accumulates(accumulates) {}

  /// As who adds up results would, which are rounded.
  template <typename T> void set(int64_t index, T value) const {
    if (accumulates)
      value = static_cast<T>(static_cast<Wide<Stored>>(value)) + addend.get(index);
    result.set(index, value);
  }

  /// The same of `count` elements `step` apart from `first` on.
  template <typename T, typename Value>
  void setRow(int64_t first, int64_t step, int64_t count, Value &&value) const {
    if (!accumulates)
      return result.setRow(first, step, count, value);
    result.setRow(first, step, count, [&](int64_t i) {
      return static_cast<T>(static_cast<Wide<Stored>>(value(i))) + addend.get(first + i * step);
    });
  }

private:
  const ResultElements<Stored> addend, result;
  bool accumulates;
};

enum class ElementType { F32, F64, BF16, F16 };

inline int64_t getElementBytes(ElementType type) {
  return type == ElementType::F64 ? 8 : type == ElementType::F32 ? 4 : 2;
}

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_DESCRIPTORS_ELEMENTTYPES_H
