//===- TokenData.cpp - text as bytes and as tokens ------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A sequence of the model is a window of T + 1 tokens: the first T are its tokens, the last T its
// targets. A window begins a stride behind the one before; by default windows do not overlap in
// their tokens. When shuffled, the first of them begins at another token in each epoch, so that a
// model sees every position of the text in every place of its context.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/data/DataSources.h"
#include "memopt-runtime/numbers/Random.h"

using namespace memopt;

namespace {
/// A text of tokens of one type, in memory or in a mapped file.
struct TokenList {
  std::vector<unsigned char> bytes;
  std::vector<SafetensorsFile> file; ///< none or one
  DType dtype = DType::U8;
  const unsigned char *tokens = nullptr;
  int64_t count = 0;
};

class TokenData : public DataSource {
public:
  TokenData(TokenList list, const std::vector<InputSpec> &inputs, int64_t windows,
            const DataOptions &options)
      : list(std::move(list)), inputs(inputs), options(options), length(inputs[0].shape.back()),
        stride(options.stride ? options.stride : length),
        batchSize(getElementCount(inputs[0].shape) / length), batches(windows / batchSize),
        order(windows, options.isShuffled, options.seed) {}

  DataUses getUses() const override { return {false, true}; }
  int64_t getBatchesPerEpoch() const override { return batches; }
  int64_t getBatchSize() const override { return batchSize; }
  Status fill(int64_t position, const std::vector<char *> &targets) override;

private:
  TokenList list;
  std::vector<InputSpec> inputs; ///< tokens, then targets if the model takes them
  DataOptions options;
  int64_t length, stride; ///< tokens in a window, and from one to the next
  int64_t batchSize, batches;
  SampleOrder order;
};
} // namespace

Status TokenData::fill(int64_t position, const std::vector<char *> &targets) {
  int64_t epoch = position / batches, first = position % batches * batchSize;
  static const uint64_t stream = hashName("window offset");
  int64_t shift = 0;
  if (options.isShuffled)
    shift =
        int64_t(drawBelow(uint64_t(stride), uint64_t(options.seed) ^ stream, uint64_t(epoch), 0));
  int64_t size = getByteSize(list.dtype);
  for (int64_t i = 0; i < batchSize; ++i) {
    int64_t begin = shift + order.get(epoch, first + i) * stride;
    for (size_t input = 0; input < inputs.size(); ++input) {
      DType type = inputs[input].dtype;
      char *target = targets[input] + i * length * getByteSize(type);
      Status status = convertElements(list.dtype, list.tokens + (begin + int64_t(input)) * size,
                                      type, target, length);
      if (!status.isOk())
        return status.withContext("input " + quote(inputs[input].name) + " of type " +
                                  std::string(getName(type)) + ", window at token " +
                                  std::to_string(begin));
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
  return badInput("texts give integer tokens [.., T] and targets of the same shape, the model's "
                  "inputs are " +
                  (found.empty() ? "none" : found));
}

static StatusOr<std::unique_ptr<DataSource>> openTokens(const std::string &path, TokenList list,
                                                        const std::vector<InputSpec> &inputs,
                                                        const DataOptions &options,
                                                        std::vector<std::string> &notices) {
  const char *unit = list.file.empty() ? " bytes" : " tokens";
  int64_t length = inputs[0].shape.back();
  int64_t stride = options.stride ? options.stride : length;
  int64_t batchSize = getElementCount(inputs[0].shape) / length;
  // The last target of a window lies one token further, the shift of an epoch up to stride - 1.
  int64_t usable = list.count - 1 - (options.isShuffled ? stride - 1 : 0);
  int64_t windows = usable >= length ? (usable - length) / stride + 1 : 0;
  if (windows < batchSize)
    return badInput(quote(path) + " has " + std::to_string(list.count) + unit + ", that is " +
                    std::to_string(windows) + " windows of " + std::to_string(length) +
                    " tokens, not one batch of " + std::to_string(batchSize));
  if (windows % batchSize)
    notices.push_back(describeRest(windows, batchSize, "windows"));
  return std::unique_ptr<DataSource>(
      std::make_unique<TokenData>(std::move(list), inputs, windows, options));
}

StatusOr<std::unique_ptr<DataSource>> memopt::openByteData(const std::string &path,
                                                           const std::vector<InputSpec> &inputs,
                                                           const DataOptions &options,
                                                           std::vector<std::string> &notices) {
  MEMOPT_RETURN_IF_ERROR(checkInputs(inputs));
  TokenList list;
  MEMOPT_ASSIGN_OR_RETURN(list.bytes, readMaybeGzip(path, maxDataBytes));
  list.tokens = list.bytes.data();
  list.count = int64_t(list.bytes.size());
  return openTokens(path, std::move(list), inputs, options, notices);
}

StatusOr<std::unique_ptr<DataSource>> memopt::openTokenData(const std::string &path,
                                                            const std::vector<InputSpec> &inputs,
                                                            const DataOptions &options,
                                                            std::vector<std::string> &notices) {
  MEMOPT_RETURN_IF_ERROR(checkInputs(inputs));
  MEMOPT_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::map(path));
  if (file.entries().size() != 1)
    return badInput(quote(path) + " has " + std::to_string(file.entries().size()) +
                    " tensors; a text is one list of integers");
  const auto &[name, entry] = *file.entries().begin();
  if (entry.shape.size() != 1 || isFloat(entry.dtype))
    return badInput(quote(path) + ": " + quote(name) + " is " + toString(entry.dtype, entry.shape) +
                    ", a text is one list of integers");
  TokenList list;
  list.dtype = entry.dtype;
  list.tokens = file.getData(entry);
  list.count = entry.shape[0];
  list.file.push_back(std::move(file)); // what is mapped stays where it is
  return openTokens(path, std::move(list), inputs, options, notices);
}
