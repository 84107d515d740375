//===- PlanFile.cpp - planning problems and plans as JSON --------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Problem/PlanFile.h"

#include "memopt/Planning/Utils/Failure.h"
#include "memopt/Planning/Utils/JsonField.h"

#include "memopt/Support/InputFile.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

using namespace memopt::planning;
using llvm::StringRef;
using llvm::Twine;
namespace json = llvm::json;

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

static PlanBuffer readBuffer(const JsonField &field) {
  if (!field.isObject())
    return {field.integer()};
  field.expectOnly({"bytes", "alignment", "space"});
  PlanBuffer buffer{field["bytes"].integer()};
  if (field["alignment"].isThere())
    buffer.alignment = field["alignment"].integer(1);
  if (field["space"].isThere())
    buffer.space = field["space"].index();
  return buffer;
}

/// One buffer, or a list.
static std::vector<PlanBuffer> readBuffers(const JsonField &field) {
  std::vector<PlanBuffer> buffers;
  if (!field.isList())
    return {readBuffer(field)};
  field.forEach([&](const JsonField &item) { buffers.push_back(readBuffer(item)); });
  return buffers;
}

static PlanValue readValue(const JsonField &field) {
  if (!field.isList())
    return {field.index(), 0};
  std::vector<JsonField> pair =
      field.items(2, "expected an op, or an op and the number of its result");
  return {pair[0].index(), pair[1].index()};
}

static PlanOp readOp(const JsonField &field, int64_t version) {
  if (version > 1)
    field.expectOnly({"bytes", "cost", "inputs", "workspace", "pinned", "after", "in_place",
                      "resource", "waits_for", "block"});
  PlanOp op;
  op.results = readBuffers(field["bytes"]);
  op.cost = field["cost"].integer();
  field["inputs"].forEach([&](const JsonField &input) { op.inputs.push_back(readValue(input)); });
  if (JsonField workspace = field["workspace"]; workspace.isThere())
    op.workspaces = readBuffers(workspace);
  if (JsonField pinned = field["pinned"]; pinned.isThere())
    op.pinned = pinned.flag();
  if (JsonField after = field["after"]; after.isThere())
    after.forEach([&](const JsonField &earlier) { op.after.push_back(earlier.index()); });
  if (JsonField pairs = field["in_place"]; pairs.isThere())
    pairs.forEach([&](const JsonField &item) {
      std::vector<JsonField> pair = item.items(2, "expected the number of a result, and an input");
      op.inPlace.push_back({pair[0].index(), readValue(pair[1])});
    });
  if (version == 1)
    return op;
  if (JsonField resource = field["resource"]; resource.isThere())
    op.resource = resource.index();
  if (JsonField start = field["waits_for"]; start.isThere())
    op.waitsFor = start.index();
  if (JsonField block = field["block"]; block.isThere())
    op.block = block.index();
  return op;
}

static PlanTransfer readTransfer(const JsonField &field) {
  field.expectOnly({"resource", "cost", "workspace"});
  PlanTransfer transfer{field["resource"].index(), field["cost"].integer(), {}};
  if (JsonField workspace = field["workspace"]; workspace.isThere())
    transfer.workspaces = readBuffers(workspace);
  return transfer;
}

/// What version 2 has besides.
static void readSurroundings(const JsonField &root, PlanProblem &problem) {
  root.expectOnly(
      {"format", "version", "spaces", "resources", "resident", "ops", "ways", "regions"});
  if (JsonField spaces = root["spaces"]; spaces.isThere()) {
    problem.spaces.clear();
    spaces.forEach([&](const JsonField &space) {
      space.expectOnly({"name", "budget"});
      JsonField budget = space["budget"];
      problem.spaces.push_back({space["name"].text(), budget.isThere() ? budget.integer() : -1});
    });
  }
  if (JsonField resources = root["resources"]; resources.isThere()) {
    problem.resources.clear();
    resources.forEach([&](const JsonField &name) { problem.resources.push_back(name.text()); });
  }
  if (JsonField ways = root["ways"]; ways.isThere())
    ways.forEach([&](const JsonField &item) {
      item.expectOnly({"value", "fetch", "store", "copy", "behind"});
      PlanWay way;
      way.value = readValue(item["value"]);
      way.fetch = readTransfer(item["fetch"]);
      if (JsonField store = item["store"]; store.isThere()) {
        way.store = readTransfer(store);
        way.copy = readBuffer(item["copy"]);
      } else if (item["copy"].isThere()) {
        item["copy"].fail("nothing stores it");
      }
      if (JsonField behind = item["behind"]; behind.isThere())
        way.behind = readValue(behind);
      problem.ways.push_back(std::move(way));
    });
  if (JsonField regions = root["regions"]; regions.isThere())
    regions.forEach([&](const JsonField &item) {
      item.expectOnly({"begin", "end", "count"});
      problem.regions.push_back(
          {item["begin"].index(), item["end"].index(), item["count"].integer(1)});
    });
}

llvm::Expected<PlanFile> memopt::planning::readPlanFile(StringRef path) {
  auto buffer = memopt::readInputFile(path, /*isText=*/true);
  if (!buffer)
    return failure(path + ": " + llvm::toString(buffer.takeError()));
  return parsePlanFile((*buffer)->getBuffer(), path);
}

llvm::Expected<PlanFile> memopt::planning::parsePlanFile(StringRef text, StringRef path) {
  llvm::Expected<json::Value> parsed = memopt::parseInputJson(text);
  if (!parsed)
    return failure(path + ": " + llvm::toString(parsed.takeError()));
  const json::Object *object = parsed->getAsObject();
  if (!object)
    return failure(path + ": expected an object");
  StringRef format = object->getString("format").value_or("");
  if (format != "memopt-plan-problem" && format != "memopt-remat-problem")
    return failure(path + ": format is \"" + format +
                   "\", expected \"memopt-plan-problem\" or \"memopt-remat-problem\"");
  PlanFile file;
  file.version = object->getInteger("version").value_or(0);
  int64_t expected = format == "memopt-plan-problem" ? 2 : 1;
  if (file.version != expected)
    return failure(path + ": version is " + Twine(file.version) + ", expected " + Twine(expected));
  std::string error;
  JsonField root(&*parsed, (path + ": ").str(), &error);
  if (JsonField resident = root["resident"]; resident.isThere())
    file.problem.residents = readBuffers(resident);
  if (file.version > 1)
    readSurroundings(root, file.problem);
  root["ops"].forEach([&](const JsonField &op) {
    if (error.empty())
      file.problem.ops.push_back(readOp(op, file.version));
  });
  if (!error.empty())
    return failure(error);
  if (llvm::Error wrong = checkPlanProblem(file.problem))
    return failure(path + ": " + llvm::toString(std::move(wrong)));
  return std::move(file);
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// Writes one JSON object, whose attributes `body` gives.
static llvm::Error writeObject(StringRef path, llvm::function_ref<void(json::OStream &)> body) {
  std::error_code code;
  llvm::raw_fd_ostream file(path, code);
  if (code)
    return failure(path + ": " + code.message());
  json::OStream out(file);
  out.object([&] { body(out); });
  file << '\n';
  file.close();
  if (!file.has_error())
    return llvm::Error::success();
  std::string message = file.error().message();
  file.clear_error();
  return failure(path + ": " + message);
}

static void writeBuffer(json::OStream &out, const PlanBuffer &buffer) {
  if (buffer.alignment == 1 && !buffer.space)
    return out.value(buffer.bytes);
  out.object([&] {
    out.attribute("bytes", buffer.bytes);
    if (buffer.alignment != 1)
      out.attribute("alignment", buffer.alignment);
    if (buffer.space)
      out.attribute("space", buffer.space);
  });
}

static void writeBuffers(json::OStream &out, StringRef key,
                         const std::vector<PlanBuffer> &buffers) {
  out.attributeBegin(key);
  if (buffers.size() == 1)
    writeBuffer(out, buffers.front());
  else
    out.array([&] {
      for (const PlanBuffer &buffer : buffers)
        writeBuffer(out, buffer);
    });
  out.attributeEnd();
}

static void writeValue(json::OStream &out, PlanValue value) {
  if (!value.result)
    return out.value(value.op);
  out.array([&] {
    out.value(value.op);
    out.value(value.result);
  });
}

/// Attributes at their defaults are left out.
static void writeOp(json::OStream &out, const PlanOp &op) {
  writeBuffers(out, "bytes", op.results);
  out.attribute("cost", op.cost);
  out.attributeArray("inputs", [&] {
    for (PlanValue input : op.inputs)
      writeValue(out, input);
  });
  if (!op.workspaces.empty())
    writeBuffers(out, "workspace", op.workspaces);
  if (op.pinned)
    out.attribute("pinned", true);
  if (!op.after.empty())
    out.attributeArray("after", [&] {
      for (int32_t earlier : op.after)
        out.value(earlier);
    });
  if (!op.inPlace.empty())
    out.attributeArray("in_place", [&] {
      for (const PlanInPlace &pair : op.inPlace)
        out.array([&] {
          out.value(pair.result);
          writeValue(out, pair.operand);
        });
    });
  if (op.resource)
    out.attribute("resource", op.resource);
  if (op.waitsFor >= 0)
    out.attribute("waits_for", op.waitsFor);
  if (op.block >= 0)
    out.attribute("block", op.block);
}

static void writeTransfer(json::OStream &out, StringRef key, const PlanTransfer &transfer) {
  out.attributeObject(key, [&] {
    out.attribute("resource", transfer.resource);
    out.attribute("cost", transfer.cost);
    if (!transfer.workspaces.empty())
      writeBuffers(out, "workspace", transfer.workspaces);
  });
}

static void writeSurroundings(json::OStream &out, const PlanProblem &problem) {
  out.attributeArray("spaces", [&] {
    for (const PlanSpace &space : problem.spaces)
      out.object([&] {
        out.attribute("name", space.name);
        if (space.budget >= 0)
          out.attribute("budget", space.budget);
      });
  });
  out.attributeArray("resources", [&] {
    for (const std::string &name : problem.resources)
      out.value(name);
  });
  out.attributeArray("ways", [&] {
    for (const PlanWay &way : problem.ways)
      out.object([&] {
        out.attributeBegin("value");
        writeValue(out, way.value);
        out.attributeEnd();
        writeTransfer(out, "fetch", way.fetch);
        if (way.behind) {
          out.attributeBegin("behind");
          writeValue(out, *way.behind);
          out.attributeEnd();
        }
        if (!way.store)
          return;
        writeTransfer(out, "store", *way.store);
        out.attributeBegin("copy");
        writeBuffer(out, way.copy);
        out.attributeEnd();
      });
  });
  out.attributeArray("regions", [&] {
    for (const PlanRegion &region : problem.regions)
      out.object([&] {
        out.attribute("begin", region.begin);
        out.attribute("end", region.end);
        out.attribute("count", region.count);
      });
  });
}

static void writeProblem(json::OStream &out, const PlanProblem &problem) {
  out.attribute("format", "memopt-plan-problem");
  out.attribute("version", 2);
  writeSurroundings(out, problem);
  writeBuffers(out, "resident", problem.residents);
  out.attributeArray("ops", [&] {
    for (const PlanOp &op : problem.ops)
      out.object([&] { writeOp(out, op); });
  });
}

llvm::Error memopt::planning::writePlanProblem(StringRef path, const PlanProblem &problem) {
  return writeObject(path, [&](json::OStream &out) { writeProblem(out, problem); });
}

std::string memopt::planning::printPlanProblem(const PlanProblem &problem) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  json::OStream out(stream);
  out.object([&] { writeProblem(out, problem); });
  return text;
}

/// Actions of a plan: a number is an op that runs.
static void writeSteps(json::OStream &out, const PlanProblem &problem,
                       llvm::ArrayRef<int32_t> order) {
  static constexpr const char *kinds[] = {"run",        "store_start", "store_wait", "fetch_start",
                                          "fetch_wait", "enter",       "leave"};
  out.attributeArray("steps", [&] {
    for (int32_t number : order) {
      PlanAction action = getAction(problem, number);
      if (action.kind == PlanAction::Run)
        out.value(action.index);
      else
        out.object([&] { out.attribute(kinds[action.kind], action.index); });
    }
  });
}

static void writeFates(json::OStream &out, const PlanProblem &problem,
                       llvm::ArrayRef<int32_t> order) {
  out.attributeArray("not_only_kept", [&] {
    for (const PlanFate &fate : getPlanFates(problem, order))
      out.object([&] {
        out.attributeBegin("value");
        writeValue(out, fate.value);
        out.attributeEnd();
        for (auto [name, times] :
             {std::make_pair("recomputed", fate.recomputed),
              std::make_pair("fetched", fate.fetched), std::make_pair("swapped", fate.swapped)})
          if (times)
            out.attribute(name, times);
      });
  });
}

static void writePeaks(json::OStream &out, int64_t peak, const std::vector<int64_t> &others) {
  out.attribute("peak", peak);
  if (!others.empty())
    out.attributeArray("other_peaks", [&] {
      for (int64_t other : others)
        out.value(other);
    });
}

/// Version 1 has ops alone.
static void writeOrder(json::OStream &out, const PlanFile &file, llvm::ArrayRef<int32_t> order) {
  if (file.version > 1)
    return writeSteps(out, file.problem, order);
  out.attributeArray("order", [&] {
    for (int32_t op : order)
      out.value(op);
  });
}

llvm::Error memopt::planning::writePlan(StringRef path, const PlanFile &file,
                                        const PlanOptions &options, const PlanSolution &solution) {
  return writeObject(path, [&](json::OStream &out) {
    out.attribute("format", file.version > 1 ? "memopt-plan" : "memopt-remat-plan");
    out.attribute("version", file.version);
    out.attribute("budget", options.budget);
    writePeaks(out, solution.peak, solution.otherPeaks);
    out.attribute("peak_lower_bound", solution.peakLowerBound);
    out.attribute("cost", solution.cost);
    out.attribute("cost_lower_bound", solution.costLowerBound);
    out.attribute("method", solution.method);
    writeOrder(out, file, solution.order);
    if (file.version > 1)
      writeFates(out, file.problem, solution.order);
  });
}

llvm::Error memopt::planning::writePlanFrontier(StringRef path, const PlanFile &file,
                                                const PlanFrontier &frontier) {
  return writeObject(path, [&](json::OStream &out) {
    out.attribute("format", file.version > 1 ? "memopt-plan-frontier" : "memopt-remat-frontier");
    out.attribute("version", file.version);
    out.attribute("peak_lower_bound", frontier.peakLowerBound);
    out.attributeArray("points", [&] {
      for (const PlanFrontier::Point &point : frontier.points)
        out.object([&] {
          writePeaks(out, point.peak, point.otherPeaks);
          out.attribute("cost", point.cost);
          writeOrder(out, file, point.order);
        });
    });
  });
}
