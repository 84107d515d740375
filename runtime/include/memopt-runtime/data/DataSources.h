//===- DataSources.h - the kinds of data sources ----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DATA_DATASOURCES_H
#define MEMOPT_RUNTIME_DATA_DATASOURCES_H

#include "memopt-runtime/data/Data.h"
#include "memopt-runtime/package/Safetensors.h"

namespace memopt {

/// Whether a file holds batches (step0.INPUT, ...), not samples.
bool hasBatches(const SafetensorsFile &file);
StatusOr<std::unique_ptr<DataSource>> openBatches(SafetensorsFile file,
                                                  const std::vector<InputSpec> &inputs);
/// Of several programs each batch has the inputs of one or more.
StatusOr<std::unique_ptr<DataSource>> openBatches(SafetensorsFile file,
                                                  std::vector<std::vector<InputSpec>> programs);
/// Texts of several lengths, each for the program whose inputs are the shortest that hold it.
StatusOr<std::unique_ptr<DataSource>>
openBuckets(const std::string &source, const std::vector<std::vector<InputSpec>> &programs,
            const BucketOptions &options, std::vector<std::string> &notices);
inline const std::string linesKind = "lines:", textsKind = "texts:";

/// Files with a tensor [N, ...] for each input, by its name: together one set of samples.
StatusOr<std::unique_ptr<DataSource>> openSamples(std::vector<SafetensorsFile> files,
                                                  const std::vector<InputSpec> &inputs,
                                                  const DataOptions &options,
                                                  std::vector<std::string> &notices);
StatusOr<std::unique_ptr<DataSource>> openIdxData(const std::string &imagePath,
                                                  const std::string &labelPath,
                                                  const std::vector<InputSpec> &inputs,
                                                  const DataOptions &options,
                                                  std::vector<std::string> &notices);
StatusOr<std::unique_ptr<DataSource>> openByteData(const std::string &path,
                                                   const std::vector<InputSpec> &inputs,
                                                   const DataOptions &options,
                                                   std::vector<std::string> &notices);
/// A safetensors file with one list of integers.
StatusOr<std::unique_ptr<DataSource>> openTokenData(const std::string &path,
                                                    const std::vector<InputSpec> &inputs,
                                                    const DataOptions &options,
                                                    std::vector<std::string> &notices);

/// Whether values of `from` may be given for `to`: a wider floating-point type, or any integer
/// type, which then must hold the values.
bool mayConvert(DType from, DType to);
/// Whether some input has a value that stands for samples that are not there.
bool hasIgnoredLabel(const std::vector<InputSpec> &inputs);

/// "the last 3 of 19 samples do not fill a batch of 4 and are left out of each epoch".
std::string describeRest(int64_t count, int64_t size, const std::string &unit);
/// How many batches of `size` an epoch of `samples` has, at least one. What does not fill one is
/// kept as one more, or told of.
StatusOr<int64_t> countBatches(int64_t samples, int64_t size, bool isLastKept,
                               std::vector<std::string> &notices);

/// `inputs` with as many times the samples.
std::vector<InputSpec> getWholeInputs(std::vector<InputSpec> inputs, int64_t microBatches);
/// Gives the batches of `source`, whose inputs are `whole`, in parts of equally many samples.
std::unique_ptr<DataSource> splitData(std::unique_ptr<DataSource> source,
                                      std::vector<InputSpec> whole, int64_t microBatches);

/// The same batches; the one that is expected next is read by a thread of its own, into memory of
/// the size of `inputs`.
StatusOr<std::unique_ptr<DataSource>> prefetchData(std::unique_ptr<DataSource> source,
                                                   const std::vector<InputSpec> &inputs);

/// Bytes that a data set may have once unpacked.
constexpr size_t maxDataBytes = size_t(1) << 34;

/// The order of samples in one epoch: the identity, or a permutation that follows from seed and
/// epoch. It is computed where it is asked for, and takes no memory however many samples there are.
class SampleOrder {
public:
  SampleOrder(int64_t count, bool isShuffled, int64_t seed);

  /// The sample at place `index` of an epoch.
  int64_t get(int64_t epoch, int64_t index) const;

private:
  uint64_t permute(uint64_t value, uint64_t epoch) const;

  bool isShuffled;
  uint64_t count, key;
  int lowBits, highBits; ///< two halves of numbers up to the next power of two
};

/// Writes an integer as an element; false when the type does not hold it.
bool tryStoreInteger(DType type, char *target, int64_t value);

} // namespace memopt

#endif // MEMOPT_RUNTIME_DATA_DATASOURCES_H
