//===- ByteData.cpp - text as bytes ---------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A sequence of the model is a window of T + 1 bytes: the first T are its tokens, the last T its
// targets. An epoch's windows do not overlap in their tokens; when shuffled, the first of them
// begins at another byte in each epoch, so that a model sees every position of the text in every
// place of its context.
//
//===----------------------------------------------------------------------===//

#include "DataSources.h"
#include "memopt-runtime/Files.h"
#include "memopt-runtime/Random.h"

using namespace memopt;

namespace {
class ByteData : public DataSource {
public:
  ByteData(std::vector<unsigned char> text, const std::vector<InputSpec> &inputs, int64_t windows,
           const DataOptions &options)
      : text(std::move(text)), inputs(inputs), options(options), length(inputs[0].shape.back()),
        batchSize(getElementCount(inputs[0].shape) / length), batches(windows / batchSize),
        order(windows, options.isShuffled, options.seed) {}

  int64_t getBatchesPerEpoch() const override { return batches; }
  int64_t getBatchSize() const override { return batchSize; }
  Status fill(int64_t position, const std::vector<char *> &targets) override;

private:
  std::vector<unsigned char> text;
  std::vector<InputSpec> inputs; ///< tokens, then targets if the model takes them
  DataOptions options;
  int64_t length; ///< tokens in a window
  int64_t batchSize, batches;
  SampleOrder order;
};
} // namespace

Status ByteData::fill(int64_t position, const std::vector<char *> &targets) {
  int64_t epoch = position / batches, first = position % batches * batchSize;
  static const uint64_t stream = hashName("window offset");
  int64_t shift = 0;
  if (options.isShuffled)
    shift =
        int64_t(drawBelow(uint64_t(length), uint64_t(options.seed) ^ stream, uint64_t(epoch), 0));
  for (int64_t i = 0; i < batchSize; ++i) {
    const unsigned char *window = text.data() + shift + order.get(epoch, first + i) * length;
    for (size_t input = 0; input < inputs.size(); ++input) {
      DType type = inputs[input].dtype;
      char *target = targets[input] + i * length * getByteSize(type);
      Status status = convertElements(DType::U8, window + input, type, target, length);
      if (!status.isOk())
        return status.withContext("input " + quote(inputs[input].name) + " of type " +
                                  std::string(getName(type)));
    }
  }
  return Status::ok();
}

static Status checkInputs(const std::vector<InputSpec> &inputs) {
  std::string found;
  for (const InputSpec &input : inputs)
    found += (found.empty() ? "" : " and ") + toString(input.dtype, input.shape);
  bool areGood = (inputs.size() == 1 || (inputs.size() == 2 && inputs[0].shape == inputs[1].shape));
  for (const InputSpec &input : inputs)
    areGood &= !isFloat(input.dtype) && !input.shape.empty() && getElementCount(input.shape) > 0;
  if (areGood)
    return Status::ok();
  return badInput("bytes data gives integer tokens [.., T] and targets of the same shape, the "
                  "model's inputs are " +
                  (found.empty() ? "none" : found));
}

StatusOr<std::unique_ptr<DataSource>> memopt::openByteData(const std::string &path,
                                                           const std::vector<InputSpec> &inputs,
                                                           const DataOptions &options,
                                                           std::vector<std::string> &notices) {
  MEMOPT_RETURN_IF_ERROR(checkInputs(inputs));
  MEMOPT_ASSIGN_OR_RETURN(std::vector<unsigned char> text, readMaybeGzip(path, maxDataBytes));
  int64_t length = inputs[0].shape.back();
  int64_t batchSize = getElementCount(inputs[0].shape) / length;
  // The last target of a window lies one byte further, the shift of an epoch up to length - 1.
  int64_t usable = int64_t(text.size()) - 1 - (options.isShuffled ? length - 1 : 0);
  int64_t windows = usable > 0 ? usable / length : 0;
  if (windows < batchSize)
    return badInput(quote(path) + " has " + std::to_string(text.size()) + " bytes, that is " +
                    std::to_string(windows) + " windows of " + std::to_string(length) +
                    " tokens, not one batch of " + std::to_string(batchSize));
  if (int64_t rest = windows % batchSize)
    notices.push_back("the last " + std::to_string(rest) + " of " + std::to_string(windows) +
                      " windows do not fill a batch of " + std::to_string(batchSize) +
                      " and are left out of each epoch");
  return std::unique_ptr<DataSource>(
      std::make_unique<ByteData>(std::move(text), inputs, windows, options));
}
