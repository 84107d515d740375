//===- Programs.cpp - what several programs of a package are made of -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Programs.h"

#include "CommandLine.h"
#include "memopt/Support/InputFile.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"

using namespace memopt::tool;
namespace json = llvm::json;

namespace {
/// One program, before its options are read.
struct Draft {
  std::string name, model, optimizer;
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> variables;
  bool isAveraged = false;
};
} // namespace

static llvm::Expected<Draft> parseDraft(const json::Value &entry, llvm::StringRef file) {
  const json::Object *object = entry.getAsObject();
  auto text = [&](llvm::StringRef key) {
    return object ? object->getString(key).value_or("").str() : "";
  };
  Draft draft{text("name"), text("model"), text("optimizer"), {}, {}};
  draft.isAveraged = object && object->getBoolean("averaged").value_or(false);
  if (draft.name.empty() || draft.model.empty())
    return invalid("--programs=" + file + ": a program has a \"name\" and a \"model\"");
  if (llvm::StringRef(draft.optimizer).find_first_of("@.\"") != llvm::StringRef::npos)
    return invalid("--programs=" + file +
                   ": the name of an optimizer has no '@', '.' or '\"', found '" + draft.optimizer +
                   "'");
  if (const json::Array *options = object->getArray("options"))
    for (const json::Value &option : *options) {
      if (!option.getAsString())
        return invalid("--programs=" + file + ": the options of '" + draft.name + "' are words");
      draft.words.push_back(option.getAsString()->str());
    }
  if (const json::Object *variables = object->getObject("variables"))
    for (const auto &[own, shared] : *variables) {
      if (!shared.getAsString())
        return invalid("--programs=" + file + ": the variables of '" + draft.name +
                       "' are names by names");
      draft.variables.emplace_back(llvm::StringRef(own).str(), shared.getAsString()->str());
    }
  return draft;
}

static llvm::Expected<std::vector<Draft>> readDrafts(const std::string &path) {
  auto text = ::memopt::readInputFile(path, /*isText=*/true);
  if (!text)
    return text.takeError();
  llvm::Expected<json::Value> document = json::parse((*text)->getBuffer());
  if (!document)
    return invalid("--programs=" + path + ": " + llvm::toString(document.takeError()));
  const json::Object *root = document->getAsObject();
  const json::Array *list = root ? root->getArray("programs") : nullptr;
  if (!list || list->empty())
    return invalid("--programs=" + path +
                   ": expected {\"programs\": [...]} with a program or more");
  std::vector<Draft> drafts;
  for (const json::Value &entry : *list) {
    llvm::Expected<Draft> draft = parseDraft(entry, path);
    if (!draft)
      return draft.takeError();
    drafts.push_back(std::move(*draft));
  }
  return drafts;
}

/// Options of one program alone: those that make programs are left out.
static std::vector<std::string> selectOwn(llvm::ArrayRef<std::string> words) {
  std::vector<std::string> selected;
  for (const std::string &word : words)
    if (llvm::StringRef name = llvm::StringRef(word).split('=').first;
        name != "--programs" && name != "--state" && name != "--dim")
      selected.push_back(word);
  return selected;
}

using Dimensions = std::vector<std::pair<std::string, std::vector<int64_t>>>;

/// A program for each combination of sizes, the first dimension's changing slowest.
static std::vector<Draft> spread(std::vector<Draft> drafts, const Dimensions &dimensions) {
  for (const auto &[dimension, sizes] : dimensions) {
    std::vector<Draft> more;
    for (const Draft &draft : drafts)
      for (int64_t size : sizes) {
        Draft sized = draft;
        sized.name += "-" + dimension + std::to_string(size);
        sized.words.push_back("--dim=" + dimension + "=" + std::to_string(size));
        more.push_back(std::move(sized));
      }
    drafts = std::move(more);
  }
  return drafts;
}

/// The programs of one draft, whose own options may have dimensions of several sizes.
static llvm::Expected<std::vector<Draft>> spreadOwn(Draft draft) {
  std::vector<char *> words;
  for (std::string &word : draft.words)
    words.push_back(word.data());
  llvm::Expected<CommandLine> line = CommandLine::parse(words);
  if (!line)
    return invalid("program '" + draft.name + "': " + llvm::toString(line.takeError()));
  if (llvm::all_of(line->dimensions, [](const auto &entry) { return entry.second.size() == 1; }))
    return std::vector<Draft>{std::move(draft)};
  draft.words = selectOwn(line->words);
  return spread({std::move(draft)}, line->dimensions);
}

static llvm::Expected<std::vector<Draft>> collectDrafts(const CommandLine &line) {
  if (line.isSet("programs")) {
    if (!line.inputs.empty())
      return invalid("--programs names the models, found '" + line.inputs.front() + "' as well");
    llvm::Expected<std::vector<Draft>> read = readDrafts(line.get("programs"));
    if (!read)
      return read.takeError();
    std::vector<Draft> drafts;
    for (Draft &draft : *read) {
      llvm::Expected<std::vector<Draft>> own = spreadOwn(std::move(draft));
      if (!own)
        return own.takeError();
      llvm::append_range(drafts, *own);
    }
    return spread(std::move(drafts), line.dimensions);
  }
  std::vector<Draft> drafts;
  for (const std::string &model : line.inputs)
    drafts.push_back({llvm::sys::path::stem(model).str(), model, "", {}, {}});
  return spread(std::move(drafts), line.dimensions);
}

/// The options of one program, as if it were the only one.
static llvm::Expected<std::unique_ptr<CompileOptions>>
parseOptions(char *tool, const CommandLine &line, const Draft &draft) {
  std::vector<std::string> words = selectOwn(line.words);
  words.insert(words.end(), draft.words.begin(), draft.words.end());
  words.push_back(draft.model);
  std::vector<char *> arguments{tool};
  for (std::string &word : words)
    arguments.push_back(word.data());
  llvm::Expected<std::unique_ptr<CompileOptions>> options =
      parseCompileOptions(static_cast<int>(arguments.size()), arguments.data());
  if (!options)
    return invalid("program '" + draft.name + "': " + llvm::toString(options.takeError()));
  CompileOptions &own = **options;
  if (own.emit != Emit::Package || own.isEstimate || own.frontierPoints > 0 || own.isCalibration)
    return invalid("a package of several programs is written whole: --emit, --estimate, --frontier "
                   "and --calibrate are of one model");
  if (draft.isAveraged && !own.evaluate)
    return invalid("program '" + draft.name + "': \"averaged\" is of programs that evaluate");
  return options;
}

/// A form is searched for the only program that trains: evaluations follow it.
static llvm::Error checkSearches(const std::vector<ProgramRequest> &programs) {
  bool isOne = llvm::count_if(programs, [](const ProgramRequest &program) {
                 return !program.options->evaluate;
               }) == 1;
  for (const ProgramRequest &program : programs) {
    const CompileOptions &own = *program.options;
    if (programs.size() == 1 || (isOne && !own.evaluate))
      continue;
    if (own.isBatchSearched || own.isFormSearched)
      return invalid("--batch=max and --auto search the form of one program that trains; a package "
                     "of several has its forms given");
  }
  return llvm::Error::success();
}

llvm::Expected<CompileRequest> memopt::tool::parseRequest(int argc, char **argv) {
  CompileRequest request;
  llvm::Expected<CommandLine> line = CommandLine::parse(llvm::ArrayRef<char *>(argv + 1, argc - 1));
  if (!line)
    return line.takeError();
  request.state = line->get("state");
  bool isSeveral = line->isSet("programs") || line->isSet("state") || line->isSet("dim") ||
                   line->inputs.size() > 1;
  if (!isSeveral || line->isSet("help") || line->isSet("version")) {
    if (llvm::Error error = parseCompileOptions(argc, argv).moveInto(request.single))
      return std::move(error);
    return request;
  }
  if (!line->isSet("o") && line->inputs.size() != 1)
    return invalid("a package of several programs needs its name: -o NAME.memopt");
  llvm::Expected<std::vector<Draft>> drafts = collectDrafts(*line);
  if (!drafts)
    return drafts.takeError();
  if (line->isSet("state") && drafts->size() != 1)
    return invalid("--state adds one program to a package, found " + llvm::Twine(drafts->size()));
  llvm::StringSet<> names;
  for (const Draft &draft : *drafts) {
    if (!names.insert(draft.name).second)
      return invalid("two programs of the package have the name '" + draft.name + "'");
    auto options = parseOptions(argv[0], *line, draft);
    if (!options)
      return options.takeError();
    request.programs.push_back(
        {draft.name, draft.optimizer, draft.variables, draft.isAveraged, std::move(*options)});
  }
  if (llvm::Error error = checkSearches(request.programs))
    return std::move(error);
  request.output = request.programs.front().options->output;
  request.reportPath = line->get("report");
  request.pagePath = line->get("html");
  return request;
}
