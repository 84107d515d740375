//===- PlanFile.cpp - planning problems and plans as JSON ---------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/PlanFile.h"

#include "llvm/ADT/Twine.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

using namespace memopt::planning;
using llvm::Twine;
namespace json = llvm::json;

static llvm::Error failure(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

namespace {

/// Reads one op; the first thing that is wrong stands in `error`.
class OpReader {
public:
  explicit OpReader(std::string place) : place(std::move(place)) {}

  PlanOp read(const json::Value &value) {
    PlanOp op;
    const json::Object *object = value.getAsObject();
    if (!object) {
      fail("", "expected an object");
      return op;
    }
    readBytes(object->get("bytes"), op);
    op.cost = integer(object->get("cost"), ".cost");
    readInputs(object->get("inputs"), op);
    if (const json::Value *workspace = object->get("workspace"))
      op.workspaces.push_back({integer(workspace, ".workspace")});
    if (const json::Value *pinned = object->get("pinned")) {
      if (auto flag = pinned->getAsBoolean())
        op.pinned = *flag;
      else
        fail(".pinned", "expected true or false");
    }
    if (const json::Value *after = object->get("after")) {
      if (const json::Array *list = after->getAsArray())
        for (size_t i = 0; i < list->size(); ++i)
          op.after.push_back(index(&(*list)[i], ".after[" + Twine(i) + "]"));
      else
        fail(".after", "expected a list");
    }
    if (const json::Value *pairs = object->get("in_place"))
      readInPlace(*pairs, op);
    return op;
  }

  std::string error;

private:
  void fail(const Twine &where, const Twine &what) {
    if (error.empty())
      error = (place + where + ": " + what).str();
  }
  int64_t integer(const json::Value *value, const Twine &where) {
    if (!value) {
      fail(where, "is missing");
      return 0;
    }
    std::optional<int64_t> number = value->getAsInteger();
    if (!number || *number < 0)
      fail(where, "expected an integer of at least 0");
    return number.value_or(0);
  }
  int32_t index(const json::Value *value, const Twine &where) {
    int64_t number = integer(value, where);
    if (number > std::numeric_limits<int32_t>::max())
      fail(where, "is too large for an index");
    return int32_t(number);
  }
  void readBytes(const json::Value *value, PlanOp &op) {
    const json::Array *list = value ? value->getAsArray() : nullptr;
    if (!list) {
      op.results.push_back({integer(value, ".bytes")});
      return;
    }
    for (size_t i = 0; i < list->size(); ++i)
      op.results.push_back({integer(&(*list)[i], ".bytes[" + Twine(i) + "]")});
  }
  void readInputs(const json::Value *value, PlanOp &op) {
    const json::Array *list = value ? value->getAsArray() : nullptr;
    if (!list) {
      fail(".inputs", "expected a list");
      return;
    }
    for (size_t i = 0; i < list->size(); ++i)
      op.inputs.push_back(readValue((*list)[i], ".inputs[" + Twine(i) + "]"));
  }
  PlanValue readValue(const json::Value &value, const Twine &at) {
    std::string where = at.str();
    const json::Array *pair = value.getAsArray();
    if (!pair)
      return {index(&value, where), 0};
    if (pair->size() == 2)
      return {index(&(*pair)[0], where), index(&(*pair)[1], where)};
    fail(where, "expected an op, or an op and the number of its result");
    return {};
  }
  void readInPlace(const json::Value &value, PlanOp &op) {
    const json::Array *list = value.getAsArray();
    if (!list)
      fail(".in_place", "expected a list");
    for (size_t i = 0; list && i < list->size(); ++i) {
      std::string where = (".in_place[" + Twine(i) + "]").str();
      const json::Array *pair = (*list)[i].getAsArray();
      if (pair && pair->size() == 2)
        op.inPlace.push_back({index(&(*pair)[0], where), readValue((*pair)[1], where)});
      else
        fail(where, "expected the number of a result, and an input");
    }
  }

  std::string place;
};

} // namespace

llvm::Expected<PlanProblem> memopt::planning::readPlanProblem(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/true);
  if (!buffer)
    return failure(path + ": " + buffer.getError().message());
  llvm::Expected<json::Value> parsed = json::parse((*buffer)->getBuffer());
  if (!parsed)
    return failure(path + ": " + llvm::toString(parsed.takeError()));
  const json::Object *root = parsed->getAsObject();
  if (!root)
    return failure(path + ": expected an object");
  if (root->getString("format") != llvm::StringRef("memopt-remat-problem"))
    return failure(path + ": format is \"" + root->getString("format").value_or("") +
                   "\", expected \"memopt-remat-problem\"");
  if (root->getInteger("version") != int64_t(1))
    return failure(path + ": version is " + Twine(root->getInteger("version").value_or(0)) +
                   ", expected 1");
  const json::Array *ops = root->getArray("ops");
  if (!ops)
    return failure(path + ": ops: expected a list");
  PlanProblem problem;
  if (const json::Value *resident = root->get("resident")) {
    std::optional<int64_t> bytes = resident->getAsInteger();
    if (!bytes || *bytes < 0)
      return failure(path + ": resident: expected an integer of at least 0");
    problem.residents.push_back({*bytes});
  }
  for (size_t i = 0; i < ops->size(); ++i) {
    OpReader reader((path + ": ops[" + Twine(i) + "]").str());
    problem.ops.push_back(reader.read((*ops)[i]));
    if (!reader.error.empty())
      return failure(reader.error);
  }
  if (llvm::Error error = checkPlanProblem(problem))
    return failure(path + ": " + llvm::toString(std::move(error)));
  return problem;
}

/// Writes one JSON object, whose attributes `body` gives.
static llvm::Error writeObject(llvm::StringRef path,
                               llvm::function_ref<void(json::OStream &)> body) {
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

static void writeInput(json::OStream &out, PlanValue value) {
  if (!value.result)
    return out.value(value.op);
  out.array([&] {
    out.value(value.op);
    out.value(value.result);
  });
}

/// Attributes at their defaults are left out.
static void writeOp(json::OStream &out, const PlanOp &op) {
  if (op.results.size() == 1)
    out.attribute("bytes", op.results.front().bytes);
  else
    out.attributeArray("bytes", [&] {
      for (const PlanBuffer &result : op.results)
        out.value(result.bytes);
    });
  out.attribute("cost", op.cost);
  out.attributeArray("inputs", [&] {
    for (PlanValue input : op.inputs)
      writeInput(out, input);
  });
  int64_t workspace = 0;
  for (const PlanBuffer &buffer : op.workspaces)
    workspace += buffer.bytes;
  if (workspace)
    out.attribute("workspace", workspace);
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
          writeInput(out, pair.operand);
        });
    });
}

llvm::Error memopt::planning::writePlanProblem(llvm::StringRef path, const PlanProblem &problem) {
  return writeObject(path, [&](json::OStream &out) {
    out.attribute("format", "memopt-remat-problem");
    out.attribute("version", 1);
    int64_t resident = 0;
    for (const PlanBuffer &buffer : problem.residents)
      resident += buffer.bytes;
    out.attribute("resident", resident);
    out.attributeArray("ops", [&] {
      for (const PlanOp &op : problem.ops)
        out.object([&] { writeOp(out, op); });
    });
  });
}

static void writeOrder(json::OStream &out, llvm::ArrayRef<int32_t> order) {
  out.attributeArray("order", [&] {
    for (int32_t op : order)
      out.value(op);
  });
}

llvm::Error memopt::planning::writePlan(llvm::StringRef path, const PlanOptions &options,
                                        const PlanSolution &solution) {
  return writeObject(path, [&](json::OStream &out) {
    out.attribute("format", "memopt-remat-plan");
    out.attribute("version", 1);
    out.attribute("budget", options.budget);
    out.attribute("peak", solution.peak);
    out.attribute("peak_lower_bound", solution.peakLowerBound);
    out.attribute("cost", solution.cost);
    out.attribute("cost_lower_bound", solution.costLowerBound);
    out.attribute("method", solution.method);
    writeOrder(out, solution.order);
  });
}

llvm::Error memopt::planning::writePlanFrontier(llvm::StringRef path,
                                                const PlanFrontier &frontier) {
  return writeObject(path, [&](json::OStream &out) {
    out.attribute("format", "memopt-remat-frontier");
    out.attribute("version", 1);
    out.attribute("peak_lower_bound", frontier.peakLowerBound);
    out.attributeArray("points", [&] {
      for (const PlanFrontier::Point &point : frontier.points)
        out.object([&] {
          out.attribute("peak", point.peak);
          out.attribute("cost", point.cost);
          writeOrder(out, point.order);
        });
    });
  });
}
