//===- SessionVariables.cpp - first values of variables -------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "JoinShards.h"
#include "SessionParts.h"
#include "memopt-runtime/numbers/Random.h"
#include "memopt-runtime/session/Session.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

using namespace memopt;

/// The nearest half-precision number, ties to even; beyond the largest it is infinite.
static uint16_t roundToHalf(double value) {
  auto sign = uint16_t(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value))
    return sign | 0x7e00;
  double magnitude = std::fabs(value);
  if (magnitude >= 65520)
    return sign | 0x7c00;
  int exponent = magnitude < 0x1p-14 ? -14 : std::ilogb(magnitude);
  auto units = uint16_t(std::nearbyint(std::ldexp(magnitude, 10 - exponent))); // of the last place
  return sign | uint16_t(((exponent + 14) << 10) + units);
}

/// Writes a number as an element of a floating-point or integer type, rounded to it.
static void storeElement(DType type, char *target, double value) {
  switch (type) {
  case DType::F64:
    std::memcpy(target, &value, 8);
    return;
  case DType::F32: {
    auto narrow = float(value);
    std::memcpy(target, &narrow, 4);
    return;
  }
  case DType::F16: {
    uint16_t bits = roundToHalf(value);
    std::memcpy(target, &bits, 2);
    return;
  }
  case DType::BF16: {
    auto narrow = float(value);
    uint32_t bits;
    std::memcpy(&bits, &narrow, 4);
    auto rounded = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16); // to nearest, ties to even
    std::memcpy(target, &rounded, 2);
    return;
  }
  default:
    break;
  }
  auto integer = int64_t(value);
  std::memcpy(target, &integer, size_t(getByteSize(type))); // little endian
}

int64_t Session::getRank() const {
  return options.communicator ? options.communicator->getRank() : 0;
}

/// Behind the last element of the whole there are zeros. What a unit has behind one of its tensors
/// is another one, or padding that is zeros from the start (clearUnits).
Status Session::clearBehind(const VariableSpec &variable, int64_t bytes) {
  return variable.unit.empty() ? arenas.clear(variable, bytes) : Status::ok();
}

Status Session::clearUnits() {
  std::set<std::string> cleared;
  for (const VariableSpec &variable : getManifest().variables)
    if (!variable.unit.empty() && cleared.insert(variable.unit).second)
      MEMOPT_RETURN_IF_ERROR(arenas.clear(variable, 0));
  return Status::ok();
}

Status Session::setWhole(const VariableSpec &variable, const void *whole) {
  if (variable.encoding)
    return encode(variable, static_cast<const float *>(whole));
  auto [begin, count, at] = variable.getOwnElements(getRank());
  int64_t size = getByteSize(variable.dtype);
  MEMOPT_RETURN_IF_ERROR(arenas.write(
      variable, at * size, static_cast<const char *>(whole) + begin * size, count * size));
  return clearBehind(variable, count * size);
}

Status Session::readWhole(const VariableSpec &variable, const SafetensorsFile &file,
                          const SafetensorsEntry &entry) {
  constexpr int64_t piece = 1 << 18; // elements
  auto [begin, count, at] = variable.getOwnElements(getRank());
  int64_t size = getByteSize(variable.dtype), sourceSize = getByteSize(entry.dtype);
  if (variable.encoding)
    return encodeFrom(variable, file, entry);
  auto most = size_t(std::min(piece, count));
  std::vector<char> source(most * size_t(sourceSize)), target(most * size_t(size));
  for (int64_t done = 0; done < count; done += piece) {
    int64_t elements = std::min(piece, count - done);
    MEMOPT_RETURN_IF_ERROR(
        file.read(entry, (begin + done) * sourceSize, source.data(), elements * sourceSize));
    bool isSame = entry.dtype == variable.dtype;
    if (!isSame)
      MEMOPT_RETURN_IF_ERROR(
          convertElements(entry.dtype, source.data(), variable.dtype, target.data(), elements));
    MEMOPT_RETURN_IF_ERROR(arenas.write(variable, (at + done) * size,
                                        isSame ? source.data() : target.data(), elements * size));
  }
  return clearBehind(variable, count * size);
}

/// Lets `fill` write this rank's elements where the host can, in place if that is possible.
Status Session::fillOwn(const VariableSpec &variable, const std::function<void(char *data)> &fill) {
  if (variable.encoding) {
    std::vector<float> values(size_t(variable.getOwnElements(getRank()).count));
    fill(reinterpret_cast<char *>(values.data()));
    return encode(variable, values.data());
  }
  auto own = variable.getOwnElements(getRank());
  int64_t size = getByteSize(variable.dtype), bytes = own.count * size;
  Arena &arena = arenas[variable.space];
  if (arena.isHostAccessible()) {
    fill(arena.base() + variable.offset + own.at * size);
  } else {
    std::vector<char> storage(static_cast<size_t>(bytes));
    fill(storage.data());
    MEMOPT_RETURN_IF_ERROR(arenas.write(variable, own.at * size, storage.data(), bytes));
  }
  return clearBehind(variable, bytes);
}

StatusOr<const void *> Session::getWhole(const VariableSpec &variable,
                                         std::vector<char> &storage) const {
  if (variable.encoding) {
    storage.resize(size_t(variable.getWholeBytes()));
    MEMOPT_RETURN_IF_ERROR(decode(variable, reinterpret_cast<float *>(storage.data())));
    return static_cast<const void *>(storage.data());
  }
  if (!variable.wholeShape) {
    MEMOPT_ASSIGN_OR_RETURN(const void *data, arenas.view(variable, storage));
    return data;
  }
  std::vector<char> copy;
  MEMOPT_ASSIGN_OR_RETURN(const char *own, arenas.view(variable, copy));
  MEMOPT_RETURN_IF_ERROR(joinShards(*options.communicator, variable, own, storage, false));
  return static_cast<const void *>(storage.data());
}

StatusOr<const void *> Session::getWholeOnAll(const VariableSpec &variable,
                                              std::vector<char> &storage) const {
  if (!variable.wholeShape)
    return getWhole(variable, storage);
  std::vector<char> copy;
  MEMOPT_ASSIGN_OR_RETURN(const char *own, arenas.view(variable, copy));
  MEMOPT_RETURN_IF_ERROR(joinShards(*options.communicator, variable, own, storage, true));
  return static_cast<const void *>(storage.data());
}

Status Session::fillFromWeights(const SafetensorsFile &weights, const VariableSpec &variable) {
  const SafetensorsEntry *entry = weights.find(variable.name);
  if (!entry)
    return badInput(quote(weights.getPath()) + " lacks " + quote(variable.name));
  if (entry->dtype != variable.getWholeDType() || entry->shape != variable.getWholeShape())
    return badInput(quote(weights.getPath()) + " has " + quote(variable.name) + " as " +
                    toString(entry->dtype, entry->shape) + ", expected " +
                    toString(variable.getWholeDType(), variable.getWholeShape()));
  return readWhole(variable, weights, *entry);
}

Status Session::initializeFromWeights(const std::function<bool(const VariableSpec &)> &isRestored) {
  std::optional<SafetensorsFile> weights;
  for (const VariableSpec &variable : getManifest().variables) {
    if (isRestored(variable) || variable.role == "hyperparameter" || variable.isFrozenScale())
      continue;
    if (variable.init == VariableInit::Absent)
      return badInput("the model was exported without " + quote(variable.name) +
                      "; give its values with --load=DIR, or begin with --init=random");
    if (variable.init == VariableInit::Zeros) {
      MEMOPT_RETURN_IF_ERROR(fillWithZeros(variable));
      continue;
    }
    if (variable.init == VariableInit::Constant) {
      MEMOPT_RETURN_IF_ERROR(fillWithConstant(variable));
      continue;
    }
    if (!weights) {
      MEMOPT_ASSIGN_OR_RETURN(weights, package->openWeights());
    }
    MEMOPT_RETURN_IF_ERROR(fillFromWeights(*weights, variable));
  }
  return Status::ok();
}

Status Session::readConstants() {
  for (const VariableSpec &variable : getManifest().variables) {
    if (!variable.isOwn)
      continue;
    MEMOPT_ASSIGN_OR_RETURN(SafetensorsFile weights, package->openWeights());
    const SafetensorsEntry *entry = weights.find(variable.name);
    if (!entry || entry->dtype != variable.dtype || entry->shape != variable.shape)
      return badInput("constant " + quote(variable.name) + " of the program is not in " +
                      quote(weights.getPath()));
    std::vector<char> values(size_t(variable.bytes));
    MEMOPT_RETURN_IF_ERROR(weights.read(*entry, 0, values.data(), variable.bytes));
    constants.emplace_back(&variable, std::move(values));
  }
  return Status::ok();
}

Status Session::comeBack() {
  parts->feed.forgetAhead();
  if (options.isMemoryChecked)
    MEMOPT_RETURN_IF_ERROR(arenas.forgetAbove(getManifest().getStateEnds()));
  for (const auto &[variable, values] : constants)
    MEMOPT_RETURN_IF_ERROR(arenas.write(*variable, 0, values.data(), variable->bytes));
  return Status::ok();
}

/// Standard deviation for a tensor whose manifest gives none: that of a layer that keeps the
/// variance of its input.
static double guessScale(const Shape &shape) {
  if (shape.size() < 2)
    return 0;
  int64_t fanIn = 1;
  for (size_t i = 1; i < shape.size(); ++i)
    fanIn *= shape[i];
  return 1 / std::sqrt(double(std::max<int64_t>(1, fanIn)));
}

Status Session::fillWithZeros(const VariableSpec &variable) {
  if (variable.unit.empty())
    return arenas.clear(variable, 0);
  int64_t bytes = variable.getOwnElements(getRank()).count * getByteSize(variable.dtype);
  return fillOwn(variable, [&](char *data) { std::memset(data, 0, size_t(bytes)); });
}

Status Session::fillWithConstant(const VariableSpec &variable) {
  int64_t count = variable.getOwnElements(getRank()).count;
  DType dtype = variable.getWholeDType();
  int64_t size = getByteSize(dtype);
  return fillOwn(variable, [&](char *data) {
    for (int64_t i = 0; i < count; ++i)
      storeElement(dtype, data + i * size, *variable.initValue);
  });
}

Status Session::fillRandomly(const VariableSpec &variable, int64_t seed) {
  if (variable.initValue)
    return fillWithConstant(variable);
  auto [first, count, at] = variable.getOwnElements(getRank());
  DType dtype = variable.getWholeDType();
  int64_t size = getByteSize(dtype), last = first + count;
  double scale = variable.initScale ? *variable.initScale : guessScale(variable.getWholeShape());
  uint64_t stream = hashName(variable.name);
  // Two numbers a draw; each pair follows from its own counter, so threads and ranks may share the
  // work.
  auto draw = [&, first = first](char *data, int64_t pair) {
    std::array<double, 2> numbers = drawNormal(uint64_t(seed), uint64_t(pair), stream);
    for (int64_t i = std::max(first, 2 * pair); i < std::min(last, 2 * pair + 2); ++i)
      storeElement(dtype, data + (i - first) * size, scale * numbers[size_t(i & 1)]);
  };
  int64_t firstPair = first / 2;
  return fillOwn(variable, [&](char *data) {
    pool->parallelFor((last + 1) / 2 - firstPair, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t pair = begin; pair < end; ++pair)
        draw(data, firstPair + pair);
    });
  });
}

Status Session::initializeRandomly(int64_t seed) {
  auto isRandom = [](const VariableSpec &variable) {
    return variable.role == "parameter" && isFloat(variable.getWholeDType());
  };
  for (const VariableSpec &variable : getManifest().variables) {
    bool isGuessable = isRandom(variable) || variable.initValue || variable.initScale;
    if (variable.init == VariableInit::Absent && !isGuessable)
      return badInput(variable.role + " " + quote(variable.name) +
                      " was exported without values and no rule gives it one; load it with "
                      "--load=DIR");
    if (isRandom(variable) || (variable.init == VariableInit::Absent && isGuessable))
      MEMOPT_RETURN_IF_ERROR(fillRandomly(variable, seed));
  }
  return initializeFromWeights([&](const VariableSpec &variable) {
    return isRandom(variable) || variable.init == VariableInit::Absent;
  });
}

void Session::setHyperparameters(double learningRate, int64_t step, int64_t seed) {
  for (const VariableSpec &variable : getManifest().variables) {
    if (variable.role != "hyperparameter")
      continue;
    if (variable.name == "lr")
      storeElement(variable.dtype, getAddress(variable), learningRate);
    else if (variable.name == "step")
      std::memcpy(getAddress(variable), &step, sizeof step);
    else if (variable.name == "seed")
      std::memcpy(getAddress(variable), &seed, sizeof seed);
  }
}

void Session::setRate(const VariableSpec &group, double rate) {
  storeElement(group.dtype, getAddress(group), rate);
}

void Session::setGroupRates(const LearningRateSchedule &schedule, int64_t step,
                            const std::map<std::string, double> &numbers) {
  for (const VariableSpec &variable : getManifest().variables) {
    if (!variable.isGroupRate() && !variable.isOptimizerSetting())
      continue;
    auto found = numbers.find(variable.name);
    double number = found != numbers.end() ? found->second : *variable.initValue;
    setRate(variable, variable.isGroupRate() ? schedule.at(step, number) : number);
  }
}
