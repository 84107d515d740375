//===- Data.h - where batches come from -------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A data source writes batches straight into the places of a program's inputs. The batch at a
// position follows from the source, the options and the position alone, so that a run goes on from
// a checkpoint as if it had never stopped.
//
//   FILE.safetensors    tensors `step0.INPUT`, `step1.INPUT`, ..., batches in their order; after
//   the
//                       last it begins again. Or tensors `INPUT` of [samples, ...], from which
//                       batches are cut.
//   idx:IMAGES,LABELS   two IDX files, gzip or plain; images of bytes and their classes
//   bytes:TEXTFILE      text, gzip or plain; a token is a byte, the target of a token the next one
//   tokens:FILE         safetensors with one list of integers, taken in the same way
//   lines:TEXTFILE      texts of several lengths, one a line, in buckets
//   texts:FILE          safetensors with their `lengths`, and their tokens by the inputs' names
//
// Files of samples that are given together are one set; of other sources each follows the one
// before.
//
// Everything that can be checked about shapes and types is checked when a source is opened.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DATA_DATA_H
#define MEMOPT_RUNTIME_DATA_DATA_H

#include "memopt-runtime/package/Manifest.h"
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace memopt {

struct DataOptions {
  bool isShuffled = true; ///< safetensors batches keep their order
  int64_t seed = 0;
  /// Bytes given as floating point: (byte * scale - mean) / deviation, with one number for all
  /// channels of an image or one for each.
  double scale = 1.0 / 255;
  std::vector<double> means = {0}, deviations = {1};
  /// Images are mirrored half of the time, and moved by up to so many pixels, with black behind.
  bool isMirrored = false;
  int64_t cropPadding = 0;
  bool isAugmented() const { return isMirrored || cropPadding; }
  int64_t stride = 0; ///< of texts: tokens from one window to the next; 0: a window's length
  /// Keep a last batch that is not full. Its missing samples are zeros with labels to be ignored,
  /// which needs an input with an `ignore` value; other sources drop it.
  bool isLastKept = false;
  /// A batch of the source has as many times the samples of the inputs, which are filled with one
  /// part after the other.
  int64_t microBatches = 1;
  /// Batches that are expected are read beside what the caller does, which takes memory for one.
  bool isPrefetched = false;
};

/// Of texts of several lengths.
struct BucketOptions {
  std::vector<int64_t> lengths; ///< tokens, rising
  bool isShuffled = true;
  int64_t seed = 0;
  int64_t batchesPerStep = 1; ///< of all ranks: they are of one bucket
};

/// What of the options a source looks at.
struct DataUses {
  bool isScaled = false;  ///< scale, means and deviations: it turns bytes into floating point
  bool isOrdered = false; ///< the order of samples is that of the options
};

class DataSource {
public:
  virtual ~DataSource() = default;

  /// As soon as it is open.
  virtual DataUses getUses() const = 0;

  /// Opens the sources that `--data=` names, at least one. Things the user should know without
  /// being stopped (an image padded, a batch dropped) are appended to `notices`.
  static StatusOr<std::unique_ptr<DataSource>> open(const std::vector<std::string> &sources,
                                                    const std::vector<InputSpec> &inputs,
                                                    const DataOptions &options,
                                                    std::vector<std::string> &notices);

  /// The same for several programs, each with inputs of its own: batches of a file, of which each
  /// has the shapes of one.
  static StatusOr<std::unique_ptr<DataSource>>
  open(const std::vector<std::string> &sources,
       const std::vector<std::vector<InputSpec>> &programs);

  /// The same for texts of several lengths.
  static StatusOr<std::unique_ptr<DataSource>>
  openBuckets(const std::vector<std::string> &sources,
              const std::vector<std::vector<InputSpec>> &programs, const BucketOptions &options,
              std::vector<std::string> &notices);

  /// Whether a source has texts of several lengths, which go into buckets.
  static bool hasLengths(const std::string &source);
  /// Whether a source is a text, of bytes or of tokens.
  static bool isText(const std::string &source);
  /// The files that a source names.
  static std::vector<std::string> getFiles(const std::string &source);
  /// Whether they can be read, as far as can be told without knowing the inputs.
  static Status checkFiles(const std::string &source);

  /// Batches in an epoch, at least 1.
  virtual int64_t getBatchesPerEpoch() const = 0;
  /// Samples in a batch.
  virtual int64_t getBatchSize() const = 0;
  /// Real samples in the batch at a position; the batch size but for a last one that was kept.
  virtual int64_t getSampleCount(int64_t position) const { return getBatchSize(); }

  /// Writes the batch at `position`, counted from 0 through all epochs. `targets` holds the address
  /// of each input, in the manifest's order. Allocates nothing of 4 KiB or more.
  virtual Status fill(int64_t position, const std::vector<char *> &targets) = 0;

  /// The program whose inputs the batch at a position has; with several the one with most of them.
  virtual StatusOr<size_t> findProgram(int64_t position) { return size_t(0); }
  /// Whose batches are filled from now on.
  virtual void chooseProgram(size_t program) {}

  /// Says which batch will be asked for next, for it to be read meanwhile; no promise.
  virtual void expect(int64_t position) {}
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_DATA_DATA_H
