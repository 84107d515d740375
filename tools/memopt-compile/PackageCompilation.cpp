//===- PackageCompilation.cpp - several programs into one package -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PackageCompilation.h"

#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/interface/PackageFormat.h"
#include "memopt/Report/PlanPage.h"
#include "memopt/Report/PlanReport.h"
#include "memopt/Support/InputFile.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace ::memopt::tool;
using ::memopt::StatusCode;

int PackageCompilation::run() {
  StatusCode code = compile();
  for (const auto &compilation : compilations)
    compilation->reportCache();
  if (code != StatusCode::Ok)
    llvm::errs() << "memopt-compile: error: "
                 << (errors.last.empty() ? "compilation failed" : errors.last) << "\n";
  return static_cast<int>(code);
}

StatusCode PackageCompilation::compile() {
  for (auto step :
       {&PackageCompilation::prepare, &PackageCompilation::plan, &PackageCompilation::write})
    if (StatusCode code = (this->*step)(); code != StatusCode::Ok)
      return code;
  if (!request.programs.front().options->isQuiet)
    summarize();
  return writeSides();
}

/// Says which program it was.
StatusCode PackageCompilation::blame(const ProgramRequest &program, StatusCode code) {
  errors.last = "program '" + program.name +
                "': " + (errors.last.empty() ? "compilation failed" : errors.last);
  return code;
}

StatusCode PackageCompilation::prepare() {
  if (StatusCode code = readState(); code != StatusCode::Ok)
    return code;
  chooseUnits();
  for (ProgramRequest &program : request.programs) {
    // There is one of all.
    program.options->reportPath.clear();
    if (program.options->pagePath == request.pagePath)
      program.options->pagePath.clear();
    compilations.push_back(std::make_unique<Compilation>(context, *program.options, errors));
  }
  for (size_t number : getOrder())
    if (StatusCode code = prepareProgram(number); code != StatusCode::Ok)
      return blame(request.programs[number], code);
  return succeeded(mlir::memopt::shareState(listStates(), state ? *state : nullptr))
             ? StatusCode::Ok
             : StatusCode::BadInput;
}

/// Evaluations come last: they read state in the form, and where, trainings have it.
std::vector<size_t> PackageCompilation::getOrder() const {
  std::vector<size_t> order;
  for (bool evaluate : {false, true})
    for (auto [number, program] : llvm::enumerate(request.programs))
      if (program.options->evaluate == evaluate)
        order.push_back(number);
  return order;
}

/// That of the package that is there, or else of a training, which is planned by then; null where
/// all programs evaluate.
ModuleOp PackageCompilation::findPlacedState() {
  if (state)
    return *state;
  for (auto [program, compilation] : llvm::zip_equal(request.programs, compilations))
    if (!program.options->evaluate)
      return compilation->getModule();
  return nullptr;
}

/// Trainings of other parameters would cut small parameters together in other ways than the state that
/// they share has them.
void PackageCompilation::chooseUnits() {
  auto trainsSharedOut = [](const ProgramRequest &program) {
    return !program.options->evaluate && program.options->pipeline.zeroStage >= 3;
  };
  bool formsUnits =
      state ? llvm::any_of((*state).getOps<mlir::memopt::VariableOp>(),
                           [](mlir::memopt::VariableOp variable) { return variable.liesInUnit(); })
            : llvm::count_if(request.programs, trainsSharedOut) <= 1;
  for (ProgramRequest &program : request.programs)
    program.options->pipeline.formsUnits = formsUnits;
}

StatusCode PackageCompilation::prepareProgram(size_t number) {
  Compilation &compilation = *compilations[number];
  if (request.programs[number].options->explainsTechniques)
    llvm::errs() << "Techniques of program " << request.programs[number].name << ":\n";
  if (StatusCode code = compilation.begin(); code != StatusCode::Ok)
    return code;
  if (request.programs[number].options->evaluate) {
    std::vector<ModuleOp> states;
    if (state)
      states.push_back(*state);
    for (auto [program, other] : llvm::zip_equal(request.programs, compilations))
      if (!program.options->evaluate)
        states.push_back(other->getModule());
    mlir::memopt::StateProgram evaluation = describeState(number);
    if (request.programs[number].isAveraged) {
      if (failed(mlir::memopt::readAverages(evaluation, states)))
        return StatusCode::BadInput;
      request.programs[number].variables = evaluation.names;
      compilation.noteAveraged();
    }
    mlir::memopt::adoptForms(evaluation, states);
  }
  if (StatusCode code = compilation.prepare(); code != StatusCode::Ok)
    return code;
  mlir::memopt::nameState(describeState(number));
  return StatusCode::Ok;
}

StatusCode PackageCompilation::readState() {
  if (request.state.empty())
    return StatusCode::Ok;
  std::string path = request.state + "/" + ::memopt::manifestFile;
  auto read = [&]() -> llvm::Expected<OwningOpRef<ModuleOp>> {
    auto text = ::memopt::readInputFile(path, /*isText=*/true);
    if (!text)
      return text.takeError();
    llvm::Expected<llvm::json::Value> document = llvm::json::parse((*text)->getBuffer());
    if (!document)
      return document.takeError();
    const llvm::json::Object *manifest = document->getAsObject();
    return mlir::memopt::readState(context, manifest ? *manifest : llvm::json::Object());
  };
  llvm::Expected<OwningOpRef<ModuleOp>> found = read();
  if (!found) {
    errors.last = "--state=" + request.state + ": " + llvm::toString(found.takeError());
    return StatusCode::BadInput;
  }
  state = std::move(*found);
  return StatusCode::Ok;
}

mlir::memopt::StateProgram PackageCompilation::describeState(size_t number) {
  const ProgramRequest &program = request.programs[number];
  Compilation &compilation = *compilations[number];
  return {program.name, compilation.getModule(), program.optimizer, compilation.countRanks(),
          program.variables};
}

std::vector<mlir::memopt::StateProgram> PackageCompilation::listStates() {
  std::vector<mlir::memopt::StateProgram> states;
  for (size_t number = 0; number < compilations.size(); ++number)
    states.push_back(describeState(number));
  return states;
}

static int64_t getArenaBytes(ModuleOp planned) {
  using namespace mlir::memopt;
  auto attribute = planned->getAttrOfType<PlannedAttr>(MemoptDialect::kPlannedAttr);
  return attribute ? attribute.getArenaBytesOf(Space::Device) : 0;
}

size_t PackageCompilation::findLargest() {
  size_t largest = 0;
  for (size_t number = 1; number < compilations.size(); ++number)
    if (getArenaBytes(compilations[number]->getModule()) >
        getArenaBytes(compilations[largest]->getModule()))
      largest = number;
  return largest;
}

/// A budget is refused with the program that needs most: what would do for it does for all.
StatusCode PackageCompilation::plan() {
  std::vector<std::string> messages(compilations.size());
  bool fits = true;
  for (size_t number : getOrder()) {
    if (request.programs[number].options->explain)
      llvm::errs() << "Program " << request.programs[number].name << ":\n";
    if (request.programs[number].options->evaluate)
      if (ModuleOp placed = findPlacedState())
        mlir::memopt::adoptSpaces(compilations[number]->getModule(), placed);
    StatusCode code = compilations[number]->plan();
    if (code != StatusCode::Ok && code != StatusCode::DoesNotFit)
      return blame(request.programs[number], code);
    fits &= code == StatusCode::Ok;
    messages[number] = std::exchange(errors.last, "");
  }
  if (fits)
    return succeeded(mlir::memopt::verifySharedPlaces(listStates(), state ? *state : nullptr))
               ? StatusCode::Ok
               : StatusCode::BadInput;
  size_t largest = findLargest();
  errors.last = messages[largest];
  request.programs[largest].options->reportPath = request.reportPath;
  return blame(request.programs[largest], compilations[largest]->reportMisfit());
}

//===----------------------------------------------------------------------===//
// Output
//===----------------------------------------------------------------------===//

static llvm::json::Object describeInputs(ModuleOp planned) {
  using namespace mlir::memopt;
  llvm::json::Object shapes;
  for (auto function : planned.getOps<func::FuncOp>())
    for (BlockArgument argument : function.getArguments())
      if (auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(),
                                                            MemoptDialect::kNameAttr))
        shapes[name.getValue()] =
            llvm::json::Array(cast<RankedTensorType>(argument.getType()).getShape());
  return shapes;
}

/// A full disk says nothing against the package, which is there by now.
StatusCode PackageCompilation::writeSides() {
  for (const auto &compilation : compilations)
    if (StatusCode code = compilation->writeSides(); code != StatusCode::Ok)
      return code;
  for (const auto &[path, text] :
       {std::pair(request.reportPath, report), std::pair(request.pagePath, page)})
    if (!path.empty())
      if (::memopt::Status status = ::memopt::writeFileAtomically(path, text); !status.isOk()) {
        errors.last = status.getMessage();
        return status.getCode();
      }
  return StatusCode::Ok;
}

/// The largest plan, with all of them beneath it.
std::string PackageCompilation::describe() {
  llvm::json::Object facts = mlir::memopt::describePlan(compilations[findLargest()]->getModule());
  llvm::json::Array programs;
  for (auto [program, compilation] : llvm::zip_equal(request.programs, compilations)) {
    llvm::json::Object own = mlir::memopt::describePlan(compilation->getModule());
    own["name"] = program.name;
    own["kind"] = program.options->evaluate ? "eval" : "train";
    own["shapes"] = describeInputs(compilation->getModule());
    compilation->addTechniques(own);
    programs.push_back(std::move(own));
  }
  facts["programs"] = std::move(programs);
  return llvm::formatv("{0:2}\n", llvm::json::Value(std::move(facts))).str();
}

/// The plans of all programs on one page, by their names.
std::string PackageCompilation::drawPage() {
  std::vector<mlir::memopt::PlanPageProgram> programs;
  for (auto [program, compilation] : llvm::zip_equal(request.programs, compilations))
    programs.push_back({program.name, compilation->getModule(), compilation->describePage()});
  llvm::outs().flush(); // the path may be that of the same file
  return mlir::memopt::makePlanPage(programs);
}

StatusCode PackageCompilation::write() {
  if (!request.reportPath.empty())
    report = describe();
  if (!request.pagePath.empty())
    page = drawPage();
  std::vector<mlir::memopt::ProgramToWrite> programs;
  for (auto [program, compilation] : llvm::zip_equal(request.programs, compilations))
    programs.push_back(compilation->describeProgram(program.name));
  return mlir::memopt::writePackage(programs, request.output);
}

void PackageCompilation::summarize() {
  llvm::errs() << llvm::formatv(
      "{0}: {1} bytes of device memory for {2} program{3}; compiled in {4:F1} s\n",
      llvm::sys::path::filename(StringRef(request.output).rtrim('/')),
      getArenaBytes(compilations[findLargest()]->getModule()), compilations.size(),
      compilations.size() == 1 ? "" : "s",
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  for (auto [program, compilation] : llvm::zip_equal(request.programs, compilations))
    llvm::errs() << llvm::formatv("  {0}: {1} bytes\n", program.name,
                                  getArenaBytes(compilation->getModule()));
}
