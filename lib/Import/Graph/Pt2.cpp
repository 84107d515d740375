//===- Pt2.cpp - import a model exported by PyTorch -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Pt2.h"
#include "memopt/Import/Graph/GraphImporter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace llvm;
using namespace memopt::pt2;

/// One model per archive; torch.export.save calls it "model".
static Expected<std::string> findModel(const Archive &archive) {
  std::vector<std::string> models;
  for (std::string &name : archive.list("models/"))
    if (StringRef(name).ends_with(".json"))
      models.push_back(std::move(name));
  if (models.size() != 1)
    return makeError(archive.getPath() + ": expected one models/NAME.json, found " +
                     Twine(models.size()));
  return models.front();
}

static Error checkHeader(const Archive &archive) {
  ASSIGN_OR_RETURN(StringRef format, archive.read("archive_format"));
  if (format != "pt2")
    return makeError(archive.getPath() + ": archive_format: expected 'pt2', found '" +
                     format.take_front(40) + "'");
  if (!archive.contains("byteorder"))
    return Error::success();
  ASSIGN_OR_RETURN(StringRef order, archive.read("byteorder"));
  if (order != "little")
    return makeError(archive.getPath() + ": byteorder: expected 'little', found '" +
                     order.take_front(40) + "'");
  return Error::success();
}

static Expected<bool> isTracedInEvaluation(const Archive &archive) {
  constexpr StringLiteral member = "extra/memopt_mode";
  if (!archive.contains(member))
    return false;
  ASSIGN_OR_RETURN(StringRef mode, archive.read(member));
  if (mode != "eval" && mode != "train")
    return makeError(archive.getPath() + ": " + member + ": expected 'train' or 'eval', found '" +
                     mode.take_front(40) + "'");
  return mode == "eval";
}

/// The sources of operators of the user's.
static Error readOperators(const Archive &archive, ExportedProgram &program) {
  constexpr StringLiteral folder = "extra/memopt_operators/";
  for (const std::string &member : archive.list(folder)) {
    ASSIGN_OR_RETURN(StringRef text, archive.read(member));
    program.operators[StringRef(member).drop_front(folder.size()).str()] = text.str();
  }
  return Error::success();
}

static Expected<mlir::OwningOpRef<mlir::ModuleOp>>
importArchive(mlir::MLIRContext &context, const Archive &archive, const ImportOptions &options) {
  RETURN_IF_ERROR(checkHeader(archive));
  ASSIGN_OR_RETURN(std::string model, findModel(archive));
  ASSIGN_OR_RETURN(StringRef text, archive.read(model));
  std::string place = (archive.getPath() + ": " + model).str();
  std::optional<ExportedProgram> program;
  {
    ASSIGN_OR_RETURN(json::Value json, parseJson(text, place)); // dropped before the graph is built
    RETURN_IF_ERROR(giveSizes(json, options.dimensions, archive.getPath()));
    ASSIGN_OR_RETURN(program, parseExportedProgram(JsonCursor(json, place)));
  }
  ASSIGN_OR_RETURN(program->tracedInEvaluation, isTracedInEvaluation(archive));
  if (program->tracedInEvaluation && !options.evaluate)
    mlir::emitRemark(mlir::UnknownLoc::get(&context))
        << archive.getPath()
        << " was exported for evaluation, and a training of it has neither dropout nor statistics "
           "of "
           "batches: evaluate it with --mode=eval, or train the archive that was exported for "
           "training";
  RETURN_IF_ERROR(readOperators(archive, *program));
  ASSIGN_OR_RETURN(Weights weights, Weights::open(archive));
  context
      .loadDialect<mlir::memopt::MemoptDialect, mlir::func::FuncDialect, mlir::arith::ArithDialect,
                   mlir::math::MathDialect, mlir::tensor::TensorDialect>();
  return GraphImporter(context, *program, weights, archive.getPath(), options).run();
}

Expected<mlir::OwningOpRef<mlir::ModuleOp>>
memopt::pt2::importPt2(mlir::MLIRContext &context, StringRef path, const ImportOptions &options) {
  ASSIGN_OR_RETURN(Archive archive, Archive::open(path));
  return importArchive(context, archive, options);
}

Expected<mlir::OwningOpRef<mlir::ModuleOp>>
memopt::pt2::importPt2(mlir::MLIRContext &context, std::shared_ptr<MemoryBuffer> buffer,
                       const ImportOptions &options) {
  ASSIGN_OR_RETURN(Archive archive, Archive::fromBuffer(std::move(buffer)));
  return importArchive(context, archive, options);
}
