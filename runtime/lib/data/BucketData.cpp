//===- BucketData.cpp - texts of several lengths --------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each text goes into the smallest bucket that holds it, that is to a program whose inputs have so
// many tokens; one that is longer than the largest is cut into pieces of its length. Behind a text
// stand zeros, and targets that are ignored. All batches of a step are of one bucket; those that
// the last texts of a bucket do not fill have rows of padding alone. Texts are shuffled within
// their bucket, and steps over all buckets, by orders that are computed where they are asked for
// (SampleOrder): the batch at a position follows from the seed alone.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/base/Text.h"
#include "memopt-runtime/data/DataSources.h"
#include "memopt-runtime/numbers/Random.h"
#include <algorithm>
#include <cstring>

using namespace memopt;

namespace {
/// Where an input of a program has its elements from.
struct TextField {
  enum Kind { Tokens, Next, Mask, OfText } kind;
  DType dtype = DType::U8; ///< of `data`
  const unsigned char *data = nullptr;
  int64_t elements = 1; ///< of a text, where its input does not count tokens
};

/// A text, or a part of one that is too long: places in the list of all tokens.
struct TextPiece {
  int64_t begin, length, text;
};

struct TextBucket {
  size_t program;
  std::vector<InputSpec> inputs;
  int64_t tokens = 0, rows = 0;
  std::vector<TextPiece> pieces;
  std::optional<SampleOrder> order;
  int64_t firstStep = 0; ///< of an epoch that is not shuffled

  int64_t countSteps(int64_t group) const {
    int64_t rowsOfStep = rows * group;
    return (int64_t(pieces.size()) + rowsOfStep - 1) / rowsOfStep;
  }
};

/// Texts in memory or in a mapped file.
struct TextSet {
  std::vector<unsigned char> bytes;
  std::vector<SafetensorsFile> file; ///< none or one
  std::vector<TextField> fields;     ///< by input
  std::vector<int64_t> begins;       ///< of the texts, and the end of the last
  bool hasNext = false; ///< targets are the tokens behind: a text of n tokens has n - 1 places
};

class BucketData : public DataSource {
public:
  BucketData(std::string source, TextSet texts, std::vector<TextBucket> buckets,
             const BucketOptions &options)
      : source(std::move(source)), texts(std::move(texts)), buckets(std::move(buckets)),
        group(options.batchesPerStep), order(1, false, 0) {
    for (TextBucket &bucket : this->buckets) {
      bucket.firstStep = steps;
      steps += bucket.countSteps(group);
      bucket.order.emplace(int64_t(bucket.pieces.size()), options.isShuffled, options.seed);
    }
    order = SampleOrder(steps, options.isShuffled, options.seed ^ int64_t(hashName("buckets")));
  }

  DataUses getUses() const override { return {false, true}; }
  int64_t getBatchesPerEpoch() const override { return steps * group; }
  int64_t getBatchSize() const override { return buckets[chosen].rows; }
  int64_t getSampleCount(int64_t position) const override {
    Place place = find(position);
    int64_t left = int64_t(place.bucket->pieces.size()) - place.firstPiece;
    return std::clamp<int64_t>(left, 0, place.bucket->rows);
  }
  StatusOr<size_t> findProgram(int64_t position) override { return find(position).bucket->program; }
  void chooseProgram(size_t program) override {
    for (size_t i = 0; i < buckets.size(); ++i)
      if (buckets[i].program == program)
        chosen = i;
  }
  Status fill(int64_t position, const std::vector<char *> &targets) override;

private:
  struct Place {
    const TextBucket *bucket;
    int64_t epoch, firstPiece;
  };

  Place find(int64_t position) const {
    int64_t perEpoch = steps * group, epoch = position / perEpoch, rest = position % perEpoch;
    int64_t step = order.get(epoch, rest / group);
    auto behind = std::upper_bound(
        buckets.begin(), buckets.end(), step,
        [](int64_t number, const TextBucket &bucket) { return number < bucket.firstStep; });
    const TextBucket &bucket = *std::prev(behind);
    int64_t batch = (step - bucket.firstStep) * group + rest % group;
    return {&bucket, epoch, batch * bucket.rows};
  }

  Status fillRow(const TextBucket &bucket, size_t input, const TextPiece *piece, char *row) const;

  std::string source;
  TextSet texts;
  std::vector<TextBucket> buckets; ///< with texts, the shortest first
  int64_t group, steps = 0;
  SampleOrder order; ///< of the steps
  size_t chosen = 0;
};
} // namespace

/// What stands where there is no token: a target to be ignored, or zero.
static Status fillPadding(const InputSpec &input, char *target, int64_t elements) {
  int64_t size = getByteSize(input.dtype);
  int64_t label = input.validRange ? input.validRange->ignore.value_or(0) : 0;
  std::memset(target, 0, size_t(elements * size));
  for (int64_t i = 0; label && i < elements; ++i)
    if (!tryStoreInteger(input.dtype, target + i * size, label))
      return badInput("its type does not hold " + std::to_string(label));
  return Status::ok();
}

/// A row of a batch; of padding alone where `piece` is null.
Status BucketData::fillRow(const TextBucket &bucket, size_t number, const TextPiece *piece,
                           char *row) const {
  const InputSpec &input = bucket.inputs[number];
  const TextField &field = texts.fields[number];
  int64_t size = getByteSize(input.dtype), read = getByteSize(field.dtype);
  int64_t places = field.kind == TextField::OfText ? field.elements : bucket.tokens, filled = 0;
  if (piece && field.kind == TextField::OfText) {
    filled = places;
    MEMOPT_RETURN_IF_ERROR(convertElements(field.dtype,
                                           field.data + piece->text * field.elements * read,
                                           input.dtype, row, field.elements));
  } else if (piece && field.kind == TextField::Mask) {
    for (; filled < piece->length; ++filled)
      if (!tryStoreInteger(input.dtype, row + filled * size, 1))
        return badInput("its type does not hold 1");
  } else if (piece) {
    filled = piece->length;
    int64_t begin = piece->begin + (field.kind == TextField::Next ? 1 : 0);
    MEMOPT_RETURN_IF_ERROR(
        convertElements(field.dtype, field.data + begin * read, input.dtype, row, filled));
  }
  return fillPadding(input, row + filled * size, places - filled);
}

Status BucketData::fill(int64_t position, const std::vector<char *> &targets) {
  Place place = find(position);
  const TextBucket &bucket = *place.bucket;
  for (int64_t row = 0; row < bucket.rows; ++row) {
    int64_t number = place.firstPiece + row;
    const TextPiece *piece = nullptr;
    if (number < int64_t(bucket.pieces.size()))
      piece = &bucket.pieces[size_t(bucket.order->get(place.epoch, number))];
    for (size_t i = 0; i < bucket.inputs.size(); ++i) {
      const InputSpec &input = bucket.inputs[i];
      char *target = targets[i] +
                     row * (getElementCount(input.shape) / bucket.rows) * getByteSize(input.dtype);
      if (Status status = fillRow(bucket, i, piece, target); !status.isOk())
        return status.withContext(quote(source) + ": input " + quote(input.name) + " of text " +
                                  std::to_string(piece ? piece->text : -1));
    }
  }
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Inputs
//===----------------------------------------------------------------------===//

/// [batch, tokens] of so many tokens.
static bool countsTokens(const InputSpec &input, int64_t tokens) {
  return input.batchDim == 0 && input.shape.size() == 2 && input.shape[1] == tokens;
}

/// The program whose inputs have so many tokens.
static StatusOr<TextBucket> findBucket(const std::vector<std::vector<InputSpec>> &programs,
                                       int64_t tokens) {
  std::optional<TextBucket> found;
  for (size_t number = 0; number < programs.size(); ++number) {
    const std::vector<InputSpec> &inputs = programs[number];
    if (inputs.empty() || !countsTokens(inputs[0], tokens))
      continue;
    if (found)
      return badInput("--data-buckets: two programs take batches of " + std::to_string(tokens) +
                      " tokens; compile one for each length");
    found = TextBucket{number, inputs, tokens, inputs[0].shape[0], {}, std::nullopt, 0};
  }
  if (!found)
    return badInput("--data-buckets: no program has batches of " + std::to_string(tokens) +
                    " tokens, [batch, tokens] in its first input; compile one with --dim=tokens=" +
                    std::to_string(tokens));
  for (const InputSpec &input : found->inputs)
    if (input.batchDim != 0)
      return badInput("--data-buckets fills inputs whose first dimension counts texts, and " +
                      quote(input.name) + " is " + toString(input.dtype, input.shape));
  return *std::move(found);
}

/// Without a target to ignore, the loss would be that of the padding as well.
static Status checkIgnored(const TextBucket &bucket) {
  if (hasIgnoredLabel(bucket.inputs))
    return Status::ok();
  return badInput("--data-buckets pads texts, and no input of the model has a target that its loss "
                  "ignores (ignore_index of cross entropy)");
}

/// What is found for the inputs of one program is then found for those of each.
static Status checkAlike(const TextBucket &bucket, const TextBucket &first) {
  auto isAlike = [&](const InputSpec &input, const InputSpec &other) {
    Shape shape = input.shape, expected = other.shape;
    if (countsTokens(input, bucket.tokens) && countsTokens(other, first.tokens))
      shape[1] = expected[1];
    shape[0] = expected[0];
    return input.name == other.name && shape == expected;
  };
  if (bucket.inputs.size() == first.inputs.size() &&
      std::equal(bucket.inputs.begin(), bucket.inputs.end(), first.inputs.begin(), isAlike))
    return Status::ok();
  return badInput("--data-buckets: the programs for " + std::to_string(first.tokens) + " and " +
                  std::to_string(bucket.tokens) +
                  " tokens have other inputs; they may differ in the sizes of batches "
                  "[batch, tokens] alone");
}

static bool isMask(const InputSpec &input) {
  const std::string end = "mask";
  return input.name.size() >= end.size() &&
         input.name.compare(input.name.size() - end.size(), end.size(), end) == 0;
}

/// Tokens, the tokens behind as targets, and a mask where the model takes one.
static Status describeLines(const TextBucket &bucket, TextSet &texts) {
  for (const InputSpec &input : bucket.inputs) {
    bool isTarget = input.validRange && input.validRange->ignore;
    TextField field{TextField::Tokens, DType::U8, texts.bytes.data(), 1};
    if (!texts.fields.empty() && isTarget)
      field.kind = TextField::Next;
    else if (!texts.fields.empty() && isMask(input))
      field.kind = TextField::Mask;
    else if (!texts.fields.empty())
      return badInput("lines give tokens, targets and a mask (an input whose name ends in 'mask'), "
                      "and nothing for input " +
                      quote(input.name));
    if (isFloat(input.dtype) || !countsTokens(input, bucket.tokens))
      return badInput("lines give integers [batch, tokens], input " + quote(input.name) + " is " +
                      toString(input.dtype, input.shape));
    texts.hasNext |= field.kind == TextField::Next;
    texts.fields.push_back(field);
  }
  return Status::ok();
}

/// A tensor of all tokens for an input that counts them, one row a text for another; a mask is made
/// where the file has none.
static Status describeTensors(const TextBucket &bucket, TextSet &texts) {
  const SafetensorsFile &file = texts.file[0];
  for (const InputSpec &input : bucket.inputs) {
    const SafetensorsEntry *entry = file.find(input.name);
    bool ofTokens = countsTokens(input, bucket.tokens);
    if (!entry && ofTokens && isMask(input)) {
      texts.fields.push_back({TextField::Mask, DType::U8, nullptr, 1});
      continue;
    }
    Shape expected = input.shape;
    expected[0] = int64_t(texts.begins.size()) - 1;
    if (ofTokens)
      expected = {texts.begins.back()};
    if (!entry || entry->shape != expected || !mayConvert(entry->dtype, input.dtype))
      return badInput(quote(file.getPath()) + (entry ? ": " : " lacks ") + quote(input.name) +
                      (entry ? " is " + toString(entry->dtype, entry->shape) : "") + ", expected " +
                      toString(input.dtype, expected) + ", as 'lengths' says");
    int64_t elements = ofTokens ? 1 : getElementCount(input.shape) / bucket.rows;
    texts.fields.push_back({ofTokens ? TextField::Tokens : TextField::OfText, entry->dtype,
                            file.getData(*entry), elements});
  }
  bool hasTokens =
      std::any_of(texts.fields.begin(), texts.fields.end(),
                  [](const TextField &field) { return field.kind == TextField::Tokens; });
  if (!hasTokens)
    return badInput(quote(file.getPath()) + " has no tensor of tokens, only 'lengths'");
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Sources
//===----------------------------------------------------------------------===//

/// Each line is a text of bytes; its end is the last target.
static Status readLines(const std::string &path, TextSet &texts) {
  MEMOPT_ASSIGN_OR_RETURN(texts.bytes, readMaybeGzip(path, maxDataBytes));
  if (!texts.bytes.empty() && texts.bytes.back() != '\n')
    texts.bytes.push_back('\n');
  texts.begins.push_back(0);
  for (size_t i = 0; i < texts.bytes.size(); ++i)
    if (texts.bytes[i] == '\n')
      texts.begins.push_back(int64_t(i) + 1);
  return Status::ok();
}

static Status readTexts(const std::string &path, TextSet &texts) {
  MEMOPT_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::map(path));
  const SafetensorsEntry *entry = file.find("lengths");
  if (!entry || isFloat(entry->dtype) || entry->shape.size() != 1)
    return badInput(quote(path) + ": texts need 'lengths', integers [texts]");
  std::vector<int64_t> lengths(size_t(entry->shape[0]));
  MEMOPT_RETURN_IF_ERROR(convertElements(entry->dtype, file.getData(*entry), DType::I64,
                                         lengths.data(), entry->shape[0]));
  texts.begins.push_back(0);
  for (int64_t length : lengths) {
    int64_t end;
    if (length < 0 || __builtin_add_overflow(texts.begins.back(), length, &end))
      return badInput(quote(path) + ": 'lengths' has " + std::to_string(length));
    texts.begins.push_back(end);
  }
  texts.file.push_back(std::move(file)); // what is mapped stays where it is
  return Status::ok();
}

/// Gives each text to the smallest bucket that holds it.
static void sortTexts(const TextSet &texts, std::vector<TextBucket> &buckets,
                      std::vector<std::string> &notices) {
  int64_t most = buckets.back().tokens, cut = 0;
  for (size_t text = 0; text + 1 < texts.begins.size(); ++text) {
    int64_t begin = texts.begins[text];
    int64_t left = texts.begins[text + 1] - begin - (texts.hasNext ? 1 : 0);
    cut += left > most;
    for (; left > 0; left -= most, begin += most) {
      int64_t length = std::min(left, most);
      auto bucket = std::find_if(buckets.begin(), buckets.end(), [&](const TextBucket &candidate) {
        return candidate.tokens >= length;
      });
      bucket->pieces.push_back({begin, length, int64_t(text)});
    }
  }
  if (cut)
    notices.push_back(std::to_string(cut) + " texts are longer than " + std::to_string(most) +
                      " tokens, and are cut into pieces of so many");
}

StatusOr<std::unique_ptr<DataSource>>
memopt::openBuckets(const std::string &source, const std::vector<std::vector<InputSpec>> &programs,
                    const BucketOptions &options, std::vector<std::string> &notices) {
  std::vector<TextBucket> buckets;
  for (int64_t tokens : options.lengths) {
    MEMOPT_ASSIGN_OR_RETURN(TextBucket bucket, findBucket(programs, tokens));
    MEMOPT_RETURN_IF_ERROR(checkIgnored(bucket));
    MEMOPT_RETURN_IF_ERROR(checkAlike(bucket, buckets.empty() ? bucket : buckets.front()));
    buckets.push_back(std::move(bucket));
  }
  TextSet texts;
  bool isOfLines = startsWith(source, linesKind);
  std::string path = source.substr((isOfLines ? linesKind : textsKind).size());
  MEMOPT_RETURN_IF_ERROR(isOfLines ? readLines(path, texts) : readTexts(path, texts));
  MEMOPT_RETURN_IF_ERROR(isOfLines ? describeLines(buckets[0], texts)
                                   : describeTensors(buckets[0], texts));
  sortTexts(texts, buckets, notices);
  buckets.erase(std::remove_if(buckets.begin(), buckets.end(),
                               [](const TextBucket &bucket) { return bucket.pieces.empty(); }),
                buckets.end());
  if (buckets.empty())
    return badInput(quote(path) + " has no text of " + (texts.hasNext ? "two tokens" : "a token") +
                    " or more");
  return std::unique_ptr<DataSource>(
      std::make_unique<BucketData>(source, std::move(texts), std::move(buckets), options));
}
