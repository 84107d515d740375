//===- StepLog.cpp - a file that grows with each step ---------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-run/run/StepLog.h"
#include "memopt-run/Signals.h"
#include "memopt-run/run/Report.h"
#include "memopt-runtime/base/Clock.h"
#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/base/Text.h"
#include <algorithm>
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
/// A file that is written at its end. Links and devices are followed. What a full disk does not
/// take waits in memory for better times.
class GrowingFile {
public:
  static StatusOr<GrowingFile> open(const std::string &path, int flags) {
    flags |= O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    int number;
    do // a pipe is waited for, but not by a run that is to end
      number = ::open(path.c_str(), flags, 0666);
    while (number < 0 && errno == EINTR && !isInterrupted());
    Descriptor file(number);
    if (file.get() < 0)
      return environmentError(describeErrno("opening", path, errno));
    struct stat facts{};
    bool isEmpty = ::fstat(file.get(), &facts) != 0 || facts.st_size == 0;
    return GrowingFile(path, std::move(file), isEmpty);
  }

  Status add(const std::string &bytes) {
    constexpr size_t most = size_t(16) << 20;
    if (waiting.size() + bytes.size() <= most)
      waiting += bytes;
    return writeWaiting();
  }

  Status writeWaiting() {
    size_t done = 0;
    int error = 0;
    while (done < waiting.size() && !error) {
      ssize_t count = ::write(file.get(), waiting.data() + done, waiting.size() - done);
      if (count < 0 && errno != EINTR)
        error = errno;
      done += size_t(std::max<ssize_t>(0, count));
    }
    waiting.erase(0, done);
    return error ? environmentError(describeErrno("writing", path, error)) : Status::ok();
  }

  bool isEmpty() const { return wasEmpty; }
  const std::string &getPath() const { return path; }

private:
  GrowingFile(std::string path, Descriptor file, bool wasEmpty)
      : path(std::move(path)), file(std::move(file)), wasEmpty(wasEmpty) {}

  std::string path;
  Descriptor file;
  bool wasEmpty;
  std::string waiting;
};

/// One line a step.
class TextLog : public StepLog {
public:
  TextLog(GrowingFile file, bool isTable) : file(std::move(file)), isTable(isTable) {}

  /// A table that is gone on with has the columns of the run before.
  Status begin(bool hasNorm) {
    if (!isTable)
      return Status::ok();
    StepFacts facts{};
    if (hasNorm)
      facts.gradientNorm = 0;
    std::string titles = join(describe(facts), [](const auto &item) { return item.key(); });
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

  Status add(const StepFacts &facts) override {
    nlohmann::ordered_json entry = describe(facts);
    if (!isTable)
      return file.add(entry.dump() + "\n");
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

  Status flush() override { return file.writeWaiting(); }

private:
  static nlohmann::ordered_json describe(const StepFacts &facts) {
    nlohmann::ordered_json entry = {{"step", facts.step},
                                    {"epoch", facts.epoch},
                                    {"loss", facts.loss}, // null where it is not finite
                                    {"learning_rate", facts.learningRate.value_or(0)},
                                    {"seconds", facts.seconds},
                                    {"samples_per_second", facts.samplesPerSecond}};
    if (facts.gradientNorm)
      entry["gradient_norm"] = *facts.gradientNorm;
    return entry;
  }

  template <typename Print>
  static std::string join(const nlohmann::ordered_json &entry, Print print) {
    std::string line;
    for (const auto &item : entry.items())
      line += (line.empty() ? "" : ",") + print(item);
    return line + "\n";
  }

  GrowingFile file;
  bool isTable;
};

/// The step of a line, -1 for titles and for what is no line of ours.
int64_t readStep(const std::string &line) {
  size_t at = line.rfind("{\"step\":", 0) == 0 ? 8 : 0;
  size_t end = line.find_first_not_of("0123456789", at);
  constexpr size_t mostDigits = 16;
  bool isNumber = end != at && end != std::string::npos && end - at <= mostDigits;
  return isNumber && line[end] == ',' ? std::stoll(line.substr(at, end - at)) : -1;
}

/// Whether a run that goes on behind a step keeps a line: not one of a step that is done again, nor
/// one that a kill has cut off.
bool isKept(std::istream &text, const std::string &line, int64_t lastStep) {
  return !text.eof() && readStep(line) <= lastStep;
}

/// Takes the steps behind `lastStep` out of a log. Nothing is written where there are none.
Status cutBehind(const std::string &path, int64_t lastStep) {
  struct stat facts{};
  if (::stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode))
    return Status::ok();
  std::string line;
  bool isWhole = true;
  for (std::ifstream text(path); isWhole && std::getline(text, line);)
    isWhole = isKept(text, line, lastStep);
  if (isWhole)
    return Status::ok();
  MEMOPT_ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::create(path));
  for (std::ifstream text(path); std::getline(text, line);)
    if (isKept(text, line, lastStep))
      MEMOPT_RETURN_IF_ERROR(writer.write((line + "\n").data(), line.size() + 1));
  return writer.commit();
}

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

/// Events of tensorflow/core/util/event.proto: fields 1 wall time, 2 step, 3 version, 5 summary,
/// 7 session log.
class TensorBoardLog : public StepLog {
public:
  static StatusOr<std::unique_ptr<StepLog>> open(const std::string &folder,
                                                 std::optional<int64_t> lastStep) {
    if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
      return environmentError(describeErrno("creating folder", folder, errno));
    MEMOPT_ASSIGN_OR_RETURN(GrowingFile file, openNew(folder));
    MEMOPT_RETURN_IF_ERROR(file.add(getRecord(getTime() + getField(3, "brain.Event:2"))));
    if (lastStep) // TensorBoard drops what older files have from that step on
      MEMOPT_RETURN_IF_ERROR(
          file.add(getRecord(getTime() + getStep(*lastStep + 1) + getField(7, getStart()))));
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

  Status flush() override { return file.writeWaiting(); }

private:
  /// A file of this run's own. Processes of other hosts and containers write to the folder too, and
  /// may have our number; nobody can have put a link in its place.
  static StatusOr<GrowingFile> openNew(const std::string &folder) {
    char host[256] = "host";
    (void)::gethostname(host, sizeof host - 1);
    std::string front = folder + "/events.out.tfevents." + std::to_string(int64_t(getWallTime())) +
                        "." + host + "." + std::to_string(::getpid());
    for (int number = 0;; ++number) {
      std::string path = front + "." + std::to_string(number) + ".memopt";
      StatusOr<GrowingFile> file = GrowingFile::open(path, O_EXCL | O_NOFOLLOW);
      if (file.isOk() || !fileExists(path))
        return file;
    }
  }

  explicit TensorBoardLog(GrowingFile file) : file(std::move(file)) {}

  Status addSummary(int64_t step, const std::string &summary) {
    return file.add(getRecord(getTime() + getStep(step) + getField(5, summary)));
  }

  static std::string getStep(int64_t step) { return getKey(2, Varint) + getVarint(uint64_t(step)); }
  /// SessionLog: field 1 status, of which 1 is the start.
  static std::string getStart() { return getKey(1, Varint) + getVarint(1); }

  static std::string getTime() { return getKey(1, Fixed64) + getBytes(getWallTime()); }

  /// Summary.Value: fields 1 tag, 2 simple value.
  static std::string getScalar(const std::string &tag, double value) {
    return getField(1, getField(1, tag) + getKey(2, Fixed32) + getBytes(float(value)));
  }

  GrowingFile file;
};
} // namespace

/// Of tensorboard:DIR; empty for other targets.
static std::string getTensorBoardFolder(const std::string &target) {
  const std::string prefix = "tensorboard:";
  return startsWith(target, prefix) ? target.substr(prefix.size()) : "";
}

static Status checkName(const std::string &target) {
  if (endsWith(target, ".csv") || endsWith(target, ".jsonl"))
    return Status::ok();
  return badInput("expected FILE.csv, FILE.jsonl or tensorboard:DIR, found " + quote(target));
}

StatusOr<std::unique_ptr<StepLog>> StepLog::open(const std::string &target,
                                                 std::optional<int64_t> lastStep, bool hasNorm) {
  std::string folder = getTensorBoardFolder(target);
  if (!folder.empty())
    return TensorBoardLog::open(folder, lastStep);
  MEMOPT_RETURN_IF_ERROR(checkName(target));
  if (lastStep)
    MEMOPT_RETURN_IF_ERROR(cutBehind(target, *lastStep));
  MEMOPT_ASSIGN_OR_RETURN(GrowingFile file, GrowingFile::open(target, lastStep ? 0 : O_TRUNC));
  auto log = std::make_unique<TextLog>(std::move(file), endsWith(target, ".csv"));
  if (Status status = log->begin(hasNorm); status.getCode() == StatusCode::BadInput)
    return status; // a disk that is full now may have room later
  return std::unique_ptr<StepLog>(std::move(log));
}

Status StepLog::check(const std::string &target) {
  std::string folder = getTensorBoardFolder(target);
  if (folder.empty()) {
    MEMOPT_RETURN_IF_ERROR(checkName(target));
    bool isWritable = ::faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) == 0;
    return isWritable && !isFolder(target) ? Status::ok() : checkWritable(target);
  }
  return checkWritable((isFolder(folder) ? folder : getFolder(folder)) + "/events.out.tfevents");
}
