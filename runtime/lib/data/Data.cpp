//===- Data.cpp - what the sources of data share --------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/data/Data.h"
#include "memopt-runtime/base/Text.h"
#include "memopt-runtime/data/DataSources.h"
#include "memopt-runtime/numbers/Random.h"
#include "memopt-runtime/package/Safetensors.h"
#include <algorithm>
#include <limits>

using namespace memopt;

//===----------------------------------------------------------------------===//
// Shared by the sources
//===----------------------------------------------------------------------===//

SampleOrder::SampleOrder(int64_t count, bool isShuffled, int64_t seed)
    : isShuffled(isShuffled), count(uint64_t(count)),
      key(uint64_t(seed) ^ hashName("sample order")), lowBits(0), highBits(0) {
  int bits = 0;
  while (bits < 62 && (uint64_t(1) << bits) < this->count)
    ++bits;
  lowBits = bits / 2;
  highBits = bits - lowBits;
}

/// A Feistel network over the numbers up to the next power of two (Luby and Rackoff, "How to
/// Construct Pseudorandom Permutations from Pseudorandom Functions", 1988; Black and Rogaway,
/// "Ciphers with Arbitrary Finite Domains", 2002): in each round one half is changed by what the
/// other one draws, which any draw can be undone from.
uint64_t SampleOrder::permute(uint64_t value, uint64_t epoch) const {
  constexpr uint64_t rounds = 6;
  uint64_t lowMask = (uint64_t(1) << lowBits) - 1, highMask = (uint64_t(1) << highBits) - 1;
  uint64_t low = value & lowMask, high = value >> lowBits;
  for (uint64_t round = 0; round < rounds; round += 2) {
    high ^= philox(key, low << 4 | round, epoch)[0] & highMask;
    low ^= philox(key, high << 4 | (round + 1), epoch)[0] & lowMask;
  }
  return high << lowBits | low;
}

int64_t SampleOrder::get(int64_t epoch, int64_t index) const {
  if (!isShuffled)
    return index;
  // Numbers that no sample has are passed by: the cycle of a sample leads to another one, or back.
  // At least half of all numbers are samples, so that two steps are enough on average.
  auto value = uint64_t(index);
  do
    value = permute(value, uint64_t(epoch));
  while (value >= count);
  return int64_t(value);
}

bool memopt::tryStoreInteger(DType type, char *target, int64_t value) {
  return convertElements(DType::I64, &value, type, target, 1).isOk();
}

std::string memopt::describeRest(int64_t count, int64_t size, const std::string &unit) {
  return "the last " + std::to_string(count % size) + " of " + std::to_string(count) + " " + unit +
         " do not fill a batch of " + std::to_string(size) + " and are left out of each epoch";
}

StatusOr<int64_t> memopt::countBatches(int64_t samples, int64_t size, bool isLastKept,
                                       std::vector<std::string> &notices) {
  int64_t batches = size ? samples / size : 0;
  if (size && samples % size) {
    if (isLastKept)
      ++batches;
    else
      notices.push_back(describeRest(samples, size, "samples"));
  }
  if (batches == 0)
    return badInput("the data set has " + std::to_string(samples) + " samples, not one batch of " +
                    std::to_string(size));
  return batches;
}

bool memopt::mayConvert(DType from, DType to) {
  if (isFloat(from) != isFloat(to))
    return false;
  return from == to || !isFloat(from) || getByteSize(from) < getByteSize(to);
}

bool memopt::hasIgnoredLabel(const std::vector<InputSpec> &inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const InputSpec &input) {
    return input.validRange && input.validRange->ignore;
  });
}

//===----------------------------------------------------------------------===//
// Several sources
//===----------------------------------------------------------------------===//

namespace {
/// One source after the other in each epoch.
class JoinedData : public DataSource {
public:
  explicit JoinedData(std::vector<std::unique_ptr<DataSource>> sources)
      : sources(std::move(sources)) {
    for (const auto &source : this->sources)
      perEpoch += source->getBatchesPerEpoch();
  }

  DataUses getUses() const override {
    DataUses uses;
    for (const auto &source : sources) {
      uses.isScaled |= source->getUses().isScaled;
      uses.isOrdered |= source->getUses().isOrdered;
    }
    return uses;
  }
  int64_t getBatchesPerEpoch() const override { return perEpoch; }
  int64_t getBatchSize() const override { return sources[0]->getBatchSize(); }
  int64_t getSampleCount(int64_t position) const override {
    auto [source, own] = find(position);
    return source->getSampleCount(own);
  }
  StatusOr<size_t> findProgram(int64_t position) override {
    auto [source, own] = find(position);
    return source->findProgram(own);
  }
  void chooseProgram(size_t program) override {
    for (const auto &source : sources)
      source->chooseProgram(program);
  }
  Status fill(int64_t position, const std::vector<char *> &targets) override {
    auto [source, own] = find(position);
    return source->fill(own, targets);
  }

private:
  /// The source of a batch, and the batch's position in it.
  std::pair<DataSource *, int64_t> find(int64_t position) const {
    int64_t epoch = position / perEpoch, rest = position % perEpoch;
    for (const auto &source : sources) {
      int64_t batches = source->getBatchesPerEpoch();
      if (rest < batches)
        return {source.get(), epoch * batches + rest};
      rest -= batches;
    }
    return {sources[0].get(), 0}; // never: the rest is below the sum
  }

  std::vector<std::unique_ptr<DataSource>> sources;
  int64_t perEpoch = 0;
};
} // namespace

//===----------------------------------------------------------------------===//
// Any source
//===----------------------------------------------------------------------===//

static const std::string bytesKind = "bytes:", tokensKind = "tokens:", idxKind = "idx:";

bool DataSource::isText(const std::string &source) {
  return startsWith(source, bytesKind) || startsWith(source, tokensKind);
}

bool DataSource::hasLengths(const std::string &source) {
  return startsWith(source, linesKind) || startsWith(source, textsKind);
}

std::vector<std::string> DataSource::getFiles(const std::string &source) {
  if (startsWith(source, idxKind))
    return splitList(source.substr(idxKind.size()));
  for (const std::string &kind : {bytesKind, tokensKind, linesKind, textsKind})
    if (startsWith(source, kind))
      return {source.substr(kind.size())};
  return {source};
}

Status DataSource::checkFiles(const std::string &source) {
  bool hasTensors = !startsWith(source, bytesKind) && !startsWith(source, idxKind) &&
                    !startsWith(source, linesKind);
  for (const std::string &file : getFiles(source))
    MEMOPT_RETURN_IF_ERROR(hasTensors ? SafetensorsFile::open(file).takeStatus()
                                      : checkReadable(file));
  return Status::ok();
}

static Status refuseLengths(const std::string &source) {
  return badInput(quote(source) + " has texts of several lengths, which go into programs by "
                                  "--data-buckets=N,N,...");
}

/// Opens a source; one that is a set of samples is added to `sets`, and gives null.
static StatusOr<std::unique_ptr<DataSource>>
openOne(const std::string &source, const std::vector<InputSpec> &inputs, const DataOptions &options,
        std::vector<std::string> &notices, std::vector<SafetensorsFile> &sets) {
  if (startsWith(source, bytesKind))
    return openByteData(source.substr(bytesKind.size()), inputs, options, notices);
  if (startsWith(source, tokensKind))
    return openTokenData(source.substr(tokensKind.size()), inputs, options, notices);
  if (startsWith(source, idxKind)) {
    size_t comma = source.find(',');
    if (comma == std::string::npos)
      return badInput("--data=" + source + " lacks the labels; it is written idx:IMAGES,LABELS");
    return openIdxData(source.substr(idxKind.size(), comma - idxKind.size()),
                       source.substr(comma + 1), inputs, options, notices);
  }
  if (DataSource::hasLengths(source))
    return refuseLengths(source);
  MEMOPT_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::map(source));
  if (hasBatches(file))
    return openBatches(std::move(file), inputs);
  sets.push_back(std::move(file));
  return std::unique_ptr<DataSource>();
}

/// Files of samples are one set, whose samples are shuffled together; of other sources each keeps
/// its batches.
static StatusOr<std::unique_ptr<DataSource>> openWhole(const std::vector<std::string> &sources,
                                                       const std::vector<InputSpec> &inputs,
                                                       const DataOptions &options,
                                                       std::vector<std::string> &notices) {
  std::vector<SafetensorsFile> sets;
  std::vector<std::unique_ptr<DataSource>> opened;
  for (const std::string &source : sources) {
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<DataSource> one,
                            openOne(source, inputs, options, notices, sets));
    if (one)
      opened.push_back(std::move(one));
  }
  if (!sets.empty()) {
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<DataSource> samples,
                            openSamples(std::move(sets), inputs, options, notices));
    opened.push_back(std::move(samples));
  }
  if (opened.size() == 1)
    return std::move(opened[0]);
  return std::unique_ptr<DataSource>(std::make_unique<JoinedData>(std::move(opened)));
}

/// One of several sources, or all of them in turn.
static StatusOr<std::unique_ptr<DataSource>>
joinSources(std::vector<std::unique_ptr<DataSource>> opened) {
  if (opened.empty())
    return badInput("no source of data is given");
  if (opened.size() == 1)
    return std::move(opened[0]);
  return std::unique_ptr<DataSource>(std::make_unique<JoinedData>(std::move(opened)));
}

StatusOr<std::unique_ptr<DataSource>>
DataSource::openBuckets(const std::vector<std::string> &sources,
                        const std::vector<std::vector<InputSpec>> &programs,
                        const BucketOptions &options, std::vector<std::string> &notices) {
  std::vector<std::unique_ptr<DataSource>> opened;
  for (const std::string &source : sources) {
    if (!hasLengths(source))
      return badInput(
          "--data-buckets takes texts, lines:TEXTFILE or texts:FILE.safetensors, found " +
          quote(source));
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<DataSource> one,
                            memopt::openBuckets(source, programs, options, notices));
    opened.push_back(std::move(one));
  }
  return joinSources(std::move(opened));
}

StatusOr<std::unique_ptr<DataSource>>
DataSource::open(const std::vector<std::string> &sources,
                 const std::vector<std::vector<InputSpec>> &programs) {
  std::vector<std::unique_ptr<DataSource>> opened;
  for (const std::string &source : sources) {
    if (hasLengths(source))
      return refuseLengths(source);
    if (isText(source) || startsWith(source, idxKind))
      return badInput("a package of several programs takes batches (step0.INPUT, ...) from a "
                      ".safetensors file, found " +
                      quote(source));
    MEMOPT_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::map(source));
    if (!hasBatches(file))
      return badInput(quote(source) + " has samples, and a package of several programs takes "
                                      "batches (step0.INPUT, ...), each with its shapes");
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<DataSource> one,
                            openBatches(std::move(file), programs));
    opened.push_back(std::move(one));
  }
  return joinSources(std::move(opened));
}

StatusOr<std::unique_ptr<DataSource>> DataSource::open(const std::vector<std::string> &sources,
                                                       const std::vector<InputSpec> &inputs,
                                                       const DataOptions &options,
                                                       std::vector<std::string> &notices) {
  if (sources.empty())
    return badInput("no source of data is given");
  if (options.isPrefetched) {
    DataOptions own = options;
    own.isPrefetched = false;
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<DataSource> source,
                            open(sources, inputs, own, notices));
    return prefetchData(std::move(source), inputs);
  }
  if (options.microBatches == 1)
    return openWhole(sources, inputs, options, notices);
  for (const InputSpec &input : inputs)
    if (input.bytes > std::numeric_limits<int64_t>::max() / options.microBatches)
      return badInput("a batch of input " + quote(input.name) + " has too many bytes");
  std::vector<InputSpec> whole = getWholeInputs(inputs, options.microBatches);
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<DataSource> batches,
                          openWhole(sources, whole, options, notices));
  return splitData(std::move(batches), std::move(whole), options.microBatches);
}
