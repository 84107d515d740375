//===- ArenaFile.cpp - arena problems and layouts as CSV ---------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ArenaFile.h"

#include "memopt/Support/InputFile.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/raw_ostream.h"

using namespace memopt::planning;
using llvm::StringRef;
using llvm::Twine;

static llvm::Error failure(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

/// Cuts a line at its commas; a field in double quotes may hold commas, and two quotes for one.
static llvm::SmallVector<std::string> fieldsOf(StringRef line) {
  llvm::SmallVector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"')
      fields.back() += line[i++];
    else if (line[i] == '"')
      quoted = !quoted;
    else if (line[i] == ',' && !quoted)
      fields.emplace_back();
    else
      fields.back() += line[i];
  }
  for (std::string &field : fields)
    field = StringRef(field).trim().str();
  return fields;
}

namespace {

enum Column { Id, Lower, Upper, Size, Alignment, FixedOffset, Pinned, InPlaceOf, NumColumns };
constexpr const char *columnNames[NumColumns] = {
    "id", "lower", "upper", "size", "alignment", "fixed_offset", "pinned", "in_place_of"};

class Reader {
public:
  explicit Reader(StringRef path) : path(path) { llvm::fill(columns, -1); }

  llvm::Error readHeader(StringRef line);
  llvm::Error readLine(StringRef line, size_t number);
  llvm::Error resolve();

  ArenaFile file;

private:
  llvm::Error integer(llvm::ArrayRef<std::string> fields, Column column, size_t line,
                      int64_t &value) const {
    StringRef text = fields[columns[column]];
    if (text.getAsInteger(10, value))
      return failure(path + ":" + Twine(line) + ": " + columnNames[column] + " is \"" + text +
                     "\", expected an integer");
    return llvm::Error::success();
  }

  StringRef path;
  int columns[NumColumns]; ///< position in a line, or -1
  size_t width = 0;
  llvm::StringMap<int32_t> ids;
  std::vector<std::pair<std::string, size_t>> inPlace; ///< id and line, by buffer
};

} // namespace

llvm::Error Reader::readHeader(StringRef line) {
  file.header = line.str();
  llvm::SmallVector<std::string> names = fieldsOf(line);
  width = names.size();
  for (size_t i = 0; i < names.size(); ++i) {
    auto *column = llvm::find(columnNames, StringRef(names[i]));
    if (column == std::end(columnNames))
      return failure(path + ":1: unknown column \"" + names[i] +
                     "\", expected id, lower, upper, size, alignment, fixed_offset, pinned or "
                     "in_place_of");
    int &position = columns[column - columnNames];
    if (position >= 0)
      return failure(path + ":1: column \"" + names[i] + "\" stands twice");
    position = i;
  }
  for (Column column : {Id, Lower, Upper, Size})
    if (columns[column] < 0)
      return failure(path + ":1: column \"" + columnNames[column] + "\" is missing");
  return llvm::Error::success();
}

llvm::Error Reader::readLine(StringRef line, size_t number) {
  llvm::SmallVector<std::string> fields = fieldsOf(line);
  if (fields.size() != width)
    return failure(path + ":" + Twine(number) + ": " + Twine(fields.size()) + " fields, expected " +
                   Twine(width));
  if (!ids.try_emplace(fields[columns[Id]], int32_t(file.lines.size())).second)
    return failure(path + ":" + Twine(number) + ": id \"" + fields[columns[Id]] +
                   "\" stands twice");
  ArenaBuffer buffer;
  struct Field {
    Column column;
    int64_t *to;
  };
  int64_t pinned = 0;
  for (auto [column, to] : {Field{Lower, &buffer.lower}, Field{Upper, &buffer.upper},
                            Field{Size, &buffer.size}, Field{Alignment, &buffer.alignment},
                            Field{FixedOffset, &buffer.fixedOffset}, Field{Pinned, &pinned}}) {
    if (columns[column] < 0 || (column == FixedOffset && fields[columns[column]].empty()))
      continue;
    if (llvm::Error error = integer(fields, column, number, *to))
      return error;
  }
  if (pinned != 0 && pinned != 1)
    return failure(path + ":" + Twine(number) + ": pinned is " + Twine(pinned) +
                   ", expected 0 or 1");
  buffer.pinnedAtBottom = pinned;
  inPlace.emplace_back(columns[InPlaceOf] < 0 ? "" : fields[columns[InPlaceOf]], number);
  file.problem.buffers.push_back(buffer);
  file.lines.push_back(line.str());
  // One buffer's fields are checked here, where its line is known.
  ArenaProblem alone;
  alone.buffers.push_back(buffer);
  if (llvm::Error error = checkArena(alone))
    return failure(path + ":" + Twine(number) + ": " + llvm::toString(std::move(error)));
  return llvm::Error::success();
}

llvm::Error Reader::resolve() {
  for (size_t i = 0; i < inPlace.size(); ++i) {
    const auto &[id, line] = inPlace[i];
    if (id.empty())
      continue;
    auto found = ids.find(id);
    if (found == ids.end())
      return failure(path + ":" + Twine(line) + ": in_place_of names no buffer: \"" + id + "\"");
    file.problem.buffers[i].inPlaceOf = found->second;
  }
  if (llvm::Error error = checkArena(file.problem))
    return failure(path + ": " + llvm::toString(std::move(error)));
  return llvm::Error::success();
}

llvm::Expected<ArenaFile> readArenaFile(StringRef path) {
  auto buffer = memopt::readInputFile(path, /*isText=*/true);
  if (!buffer)
    return failure(path + ": " + llvm::toString(buffer.takeError()));
  return parseArenaFile((*buffer)->getBuffer(), path);
}

llvm::Expected<ArenaFile> parseArenaFile(StringRef text, StringRef path) {
  Reader reader(path);
  StringRef rest = text;
  for (size_t number = 1; !rest.empty(); ++number) {
    StringRef line;
    std::tie(line, rest) = rest.split('\n');
    line = line.rtrim('\r');
    if (number > 1 && line.trim().empty())
      continue;
    if (llvm::Error error = number == 1 ? reader.readHeader(line) : reader.readLine(line, number))
      return std::move(error);
  }
  if (reader.file.header.empty())
    return failure(path + ":1: expected a line with the columns id, lower, upper and size");
  if (llvm::Error error = reader.resolve())
    return std::move(error);
  return std::move(reader.file);
}

llvm::Error writeArenaLayout(StringRef path, const ArenaFile &file, const ArenaSolution &solution) {
  std::error_code code;
  llvm::raw_fd_ostream out(path, code);
  if (code)
    return failure(path + ": " + code.message());
  out << file.header << ",offset\n";
  for (size_t i = 0; i < file.lines.size(); ++i)
    out << file.lines[i] << ',' << solution.offsets[i] << '\n';
  out.close();
  if (out.has_error()) {
    std::string message = out.error().message();
    out.clear_error();
    return failure(path + ": " + message);
  }
  return llvm::Error::success();
}
