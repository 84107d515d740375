//===- StepLog.cpp - a file that grows with each step ---------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepLog.h"
#include "Report.h"
#include "memopt-runtime/base/Clock.h"
#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/base/Text.h"
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

using namespace memopt;

namespace {
/// A file that is written at its end. Links and devices are followed.
class GrowingFile {
public:
  static StatusOr<GrowingFile> open(const std::string &path, bool isContinued) {
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (isContinued ? 0 : O_TRUNC);
    Descriptor file(::open(path.c_str(), flags, 0666));
    if (file.get() < 0)
      return environmentError(describeErrno("opening", path, errno));
    struct stat facts{};
    bool isEmpty = ::fstat(file.get(), &facts) != 0 || facts.st_size == 0;
    return GrowingFile(path, std::move(file), isEmpty);
  }

  Status add(const std::string &bytes) { return writeAll(file, path, bytes.data(), bytes.size()); }

  bool isEmpty() const { return wasEmpty; }
  const std::string &getPath() const { return path; }

private:
  GrowingFile(std::string path, Descriptor file, bool wasEmpty)
      : path(std::move(path)), file(std::move(file)), wasEmpty(wasEmpty) {}

  std::string path;
  Descriptor file;
  bool wasEmpty;
};

/// One line a step.
class TextLog : public StepLog {
public:
  TextLog(GrowingFile file, bool isTable) : file(std::move(file)), isTable(isTable) {}

  Status add(const StepFacts &facts) override {
    nlohmann::ordered_json entry = {{"step", facts.step},
                                    {"epoch", facts.epoch},
                                    {"loss", facts.loss}, // null where it is not finite
                                    {"learning_rate", facts.learningRate.value_or(0)},
                                    {"seconds", facts.seconds},
                                    {"samples_per_second", facts.samplesPerSecond}};
    if (facts.gradientNorm)
      entry["gradient_norm"] = *facts.gradientNorm;
    if (!isTable)
      return file.add(entry.dump() + "\n");
    if (std::exchange(needsTitles, false))
      MEMOPT_RETURN_IF_ERROR(addTitles(join(entry, [](const auto &item) { return item.key(); })));
    return file.add(join(entry, [](const auto &item) {
      return item.value().is_null() ? "nan" : item.value().dump();
    }));
  }

  Status add(const Evaluation &evaluation) override {
    if (isTable)
      return Status::ok();
    nlohmann::ordered_json entry = {{"step", evaluation.step}, {"samples", evaluation.samples}};
    entry["evaluation"] = evaluation.averages;
    return file.add(entry.dump() + "\n");
  }

private:
  /// A table that is gone on with has the columns of the run before.
  Status addTitles(const std::string &titles) {
    if (file.isEmpty())
      return file.add(titles);
    std::string line;
    std::getline(std::ifstream(file.getPath()) >> std::ws, line);
    if (line + "\n" == titles)
      return Status::ok();
    return badInput(quote(file.getPath()) + " begins with the line " + quote(line) +
                    ", but the columns of this run are " +
                    quote(titles.substr(0, titles.size() - 1)) + "; give another file");
  }

  template <typename Print>
  static std::string join(const nlohmann::ordered_json &entry, Print print) {
    std::string line;
    for (const auto &item : entry.items())
      line += (line.empty() ? "" : ",") + print(item);
    return line + "\n";
  }

  GrowingFile file;
  bool isTable, needsTitles = true;
};

//===----------------------------------------------------------------------===//
// TensorBoard
//===----------------------------------------------------------------------===//

/// CRC-32C (Castagnoli), as TensorFlow's records have it: rotated, with a constant added.
uint32_t getMaskedChecksum(const std::string &bytes) {
  uint32_t crc = ~0u;
  for (char byte : bytes) {
    crc ^= uint8_t(byte);
    for (int bit = 0; bit < 8; ++bit)
      crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

template <typename Number> std::string getBytes(Number number) {
  std::string bytes(sizeof number, 0);
  std::memcpy(bytes.data(), &number, sizeof number); // little endian
  return bytes;
}

/// Protocol buffers: a key is a field's number and how its value is written.
enum WireType { Varint = 0, Fixed64 = 1, Delimited = 2, Fixed32 = 5 };

std::string getVarint(uint64_t value) {
  std::string bytes;
  for (; value > 127; value >>= 7)
    bytes += char(value | 128);
  return bytes + char(value);
}
std::string getKey(int field, WireType type) { return getVarint(uint64_t(field) << 3 | type); }
std::string getField(int field, const std::string &content) {
  return getKey(field, Delimited) + getVarint(content.size()) + content;
}

/// A record of an event file: length, content, and a checksum of each.
std::string getRecord(const std::string &content) {
  std::string length = getBytes(uint64_t(content.size()));
  return length + getBytes(getMaskedChecksum(length)) + content +
         getBytes(getMaskedChecksum(content));
}

double getWallTime() {
  timeval now{};
  ::gettimeofday(&now, nullptr);
  return double(now.tv_sec) + double(now.tv_usec) * 1e-6;
}

/// Events of tensorflow/core/util/event.proto: fields 1 wall time, 2 step, 3 version, 5 summary.
class TensorBoardLog : public StepLog {
public:
  static StatusOr<std::unique_ptr<StepLog>> open(const std::string &folder) {
    if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
      return environmentError(describeErrno("creating folder", folder, errno));
    std::string path = folder + "/events.out.tfevents." + std::to_string(int64_t(getWallTime())) +
                       "." + std::to_string(::getpid()) + ".memopt";
    MEMOPT_ASSIGN_OR_RETURN(GrowingFile file, GrowingFile::open(path, /*isContinued=*/false));
    MEMOPT_RETURN_IF_ERROR(file.add(getRecord(getTime() + getField(3, "brain.Event:2"))));
    return std::unique_ptr<StepLog>(new TensorBoardLog(std::move(file)));
  }

  Status add(const StepFacts &facts) override {
    std::string summary =
        getScalar("loss", facts.loss) + getScalar("learning_rate", facts.learningRate.value_or(0)) +
        getScalar("epoch", facts.epoch) + getScalar("samples_per_second", facts.samplesPerSecond);
    if (facts.gradientNorm)
      summary += getScalar("gradient_norm", *facts.gradientNorm);
    return addSummary(facts.step, summary);
  }

  Status add(const Evaluation &evaluation) override {
    std::string summary;
    for (const auto &[name, value] : evaluation.averages)
      summary += getScalar("evaluation/" + name, value);
    return addSummary(evaluation.step, summary);
  }

private:
  explicit TensorBoardLog(GrowingFile file) : file(std::move(file)) {}

  Status addSummary(int64_t step, const std::string &summary) {
    return file.add(getRecord(getTime() + getKey(2, Varint) + getVarint(uint64_t(step)) +
                              getField(5, summary)));
  }

  static std::string getTime() { return getKey(1, Fixed64) + getBytes(getWallTime()); }

  /// Summary.Value: fields 1 tag, 2 simple value.
  static std::string getScalar(const std::string &tag, double value) {
    return getField(1, getField(1, tag) + getKey(2, Fixed32) + getBytes(float(value)));
  }

  GrowingFile file;
};
} // namespace

StatusOr<std::unique_ptr<StepLog>> StepLog::open(const std::string &target, bool isContinued) {
  const std::string prefix = "tensorboard:";
  if (startsWith(target, prefix) && target.size() > prefix.size())
    return TensorBoardLog::open(target.substr(prefix.size()));
  bool isTable = endsWith(target, ".csv");
  if (!isTable && !endsWith(target, ".jsonl"))
    return badInput("expected FILE.csv, FILE.jsonl or tensorboard:DIR, found " + quote(target));
  MEMOPT_ASSIGN_OR_RETURN(GrowingFile file, GrowingFile::open(target, isContinued));
  return std::unique_ptr<StepLog>(new TextLog(std::move(file), isTable));
}
