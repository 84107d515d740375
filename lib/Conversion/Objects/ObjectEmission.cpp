//===- ObjectEmission.cpp - machine code of a program -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The program is cut into parts of a few kernels each, by their order alone; threads take parts
// from a queue, each part in an LLVMContext of its own. So the object's bytes do not depend on the
// number of threads. Kernels arrive vectorized: LLVM's vectorizers and unroller would only undo the
// schedule (unrolling a row loop of 64-lane vectors spills kilobytes), so a short list of passes is
// left.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Objects/ObjectEmission.h"
#include "CSource.h"
#include "Linker.h"
#include "memopt/Conversion/Core/Emission/KernelFunction.h"
#include "memopt/Conversion/Core/Math/ScalarExpansion.h"
#include "memopt/Conversion/Objects/KernelPasses.h"
#include "memopt/Dialect/ApartOps.h"
#include "memopt/Support/Cache.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/DialectConversion.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

#include <atomic>
#include <mutex>
#include <thread>

using namespace mlir;
using namespace mlir::memopt;

/// Kernels in one part. More save LLVM's fixed costs, fewer balance threads better.
static constexpr unsigned kKernelsPerPart = 6;

//===----------------------------------------------------------------------===//
// Target
//===----------------------------------------------------------------------===//

static void initializeTarget() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
}

static std::unique_ptr<llvm::TargetMachine>
createTargetMachine(StringRef processor,
                    llvm::CodeGenOptLevel level = llvm::CodeGenOptLevel::Default) {
  initializeTarget();
  llvm::Triple triple(llvm::sys::getDefaultTargetTriple());
  std::string error;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  // Contraction only where math.fma says so: a recomputed value must have the bits of the first.
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, processor, "", options, llvm::Reloc::PIC_, std::nullopt, level));
}

FailureOr<std::string> mlir::memopt::resolveProcessor(StringRef name, std::string &message) {
  if (name.empty() || name == "native")
    return llvm::sys::getHostCPUName().str();
  std::unique_ptr<llvm::TargetMachine> machine = createTargetMachine("");
  if (!machine || !machine->getMCSubtargetInfo()->isCPUStringValid(name)) {
    message = ("unknown processor '" + name + "'").str();
    return failure();
  }
  return name.str();
}

int64_t mlir::memopt::getVectorBytes(StringRef processor) {
  std::unique_ptr<llvm::TargetMachine> machine = createTargetMachine(processor);
  if (!machine)
    return 16;
  const llvm::MCSubtargetInfo *info = machine->getMCSubtargetInfo();
  if (info->checkFeatures("+avx512f"))
    return 64;
  return info->checkFeatures("+avx") ? 32 : 16;
}

//===----------------------------------------------------------------------===//
// Dialects
//===----------------------------------------------------------------------===//

static Type toBits(Type type) {
  if (auto vector = dyn_cast<VectorType>(type))
    return vector.clone(toBits(vector.getElementType()));
  return isHalfPrecision(type) ? IntegerType::get(type.getContext(), 16) : type;
}

static Attribute toBits(Attribute value) {
  if (auto elements = dyn_cast<DenseElementsAttr>(value))
    return elements.bitcast(toBits(elements.getElementType()));
  if (auto number = dyn_cast<FloatAttr>(value))
    return IntegerAttr::get(toBits(number.getType()), number.getValue().bitcastToAPInt());
  return value;
}

/// Puts integers around a conversion from or to halves that a device makes: what becomes halves of
/// the bits that come, and what becomes bits of the halves that go.
static Operation *wrapConversion(Operation *op) {
  OpBuilder b(op);
  Location loc = op->getLoc();
  if (isa<LLVM::FPExtOp>(op)) {
    Value bits = op->getOperand(0);
    auto halves = LLVM::BitcastOp::create(b, loc, bits.getType(), bits);
    op->setOperand(0, halves);
    return halves;
  }
  b.setInsertionPointAfter(op);
  Value halves = op->getResult(0);
  auto bits = LLVM::BitcastOp::create(b, loc, toBits(halves.getType()), halves);
  halves.replaceAllUsesExcept(bits, bits);
  return op;
}

/// Kernels compute in f32 and only move halves, so these become integers of 16 bits: LLVM 22 stops
/// at vectors of halves whose length is no power of two ("Do not know how to soft promote").
static void moveHalvesAsBits(ModuleOp program) {
  auto isHalf = [](Type type) { return isHalfPrecision(getElementTypeOrSelf(type)); };
  SmallVector<Operation *> conversions;
  program.walk([&](Operation *op) {
    if ((isa<LLVM::FPExtOp>(op) && isHalf(op->getOperand(0).getType())) ||
        (isa<LLVM::FPTruncOp>(op) && isHalf(op->getResult(0).getType())))
      conversions.push_back(op);
  });
  llvm::SmallPtrSet<Operation *, 16> makers; // of halves
  for (Operation *op : conversions)
    makers.insert(wrapConversion(op));
  // A vendor's instructions on halves take them as what they are.
  program.walk([&](LLVM::BitcastOp op) {
    if (isHalf(op.getType()) && llvm::none_of(op->getUsers(), [&](Operation *user) {
          return user->getDialect() == op->getDialect();
        }))
      makers.insert(op);
  });
  program.walk([&](Operation *op) {
    for (Region &region : op->getRegions())
      for (BlockArgument argument : region.getArguments())
        argument.setType(toBits(argument.getType()));
    if (llvm::none_of(op->getResultTypes(), isHalf) || makers.contains(op))
      return;
    if (auto constant = dyn_cast<LLVM::ConstantOp>(op))
      constant.setValueAttr(toBits(constant.getValue()));
    for (OpResult result : op->getResults())
      result.setType(toBits(result.getType()));
  });
}

LogicalResult mlir::memopt::convertToLLVMDialect(ModuleOp program, StringRef legalDialect) {
  MLIRContext *context = program.getContext();
  expandHalves(program, /*isDevice=*/!legalDialect.empty());
  LLVMTypeConverter converter(context);
  RewritePatternSet patterns(context);
  populateSCFToControlFlowConversionPatterns(patterns);
  cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
  arith::populateCeilFloorDivExpandOpsPatterns(patterns);
  arith::populateArithToLLVMConversionPatterns(converter, patterns);
  populateMathToLLVMConversionPatterns(converter, patterns);
  populateVectorToLLVMConversionPatterns(converter, patterns);
  LLVMConversionTarget target(*context);
  target.addLegalOp<ModuleOp>();
  if (!legalDialect.empty())
    target.addLegalDialect(legalDialect);
  if (failed(applyFullConversion(program, target, std::move(patterns))))
    return failure();
  moveHalvesAsBits(program);
  return success();
}

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

namespace {
struct Part {
  OwningOpRef<ModuleOp> module;
  bool isHost = false; ///< calls kernels and computes nothing itself
  SmallString<128> path;
  std::string error;
  bool isProgramBad = false; ///< the error is not the machine's
};
} // namespace

/// Declares in `part` whatever it uses and does not define.
static void declareSymbols(ModuleOp part, const llvm::StringMap<Operation *> &all) {
  OpBuilder builder = OpBuilder::atBlockBegin(part.getBody());
  llvm::StringSet<> known;
  for (Operation &op : *part.getBody())
    known.insert(SymbolTable::getSymbolName(&op).getValue());
  SmallVector<StringRef> missing;
  part.walk([&](Operation *op) {
    StringRef used;
    if (auto call = dyn_cast<LLVM::CallOp>(op))
      used = call.getCallee().value_or("");
    else if (auto address = dyn_cast<LLVM::AddressOfOp>(op))
      used = address.getGlobalName();
    if (!used.empty() && known.insert(used).second)
      missing.push_back(used);
  });
  for (StringRef name : missing) {
    Operation *definition = all.lookup(name);
    if (auto function = dyn_cast_or_null<LLVM::LLVMFuncOp>(definition)) {
      auto declaration =
          LLVM::LLVMFuncOp::create(builder, function.getLoc(), name, function.getFunctionType());
      declaration.setVisibility_(function.getVisibility_());
    } else if (auto global = dyn_cast_or_null<LLVM::GlobalOp>(definition)) {
      auto declaration =
          LLVM::GlobalOp::create(builder, global.getLoc(), global.getGlobalType(),
                                 global.getConstant(), LLVM::Linkage::External, name, Attribute());
      declaration.setVisibility_(global.getVisibility_());
    }
  }
}

/// The step of a program: host code that others call.
static bool isStep(Operation &op) {
  auto function = dyn_cast<LLVM::LLVMFuncOp>(op);
  return function && !function.isExternal() && !function->hasAttr(kKernelNumberAttr) &&
         function.getLinkage() == LLVM::Linkage::External;
}

/// Moves functions to parts: host code first, of each program for itself, then kernels by number.
static std::vector<Part> cutProgram(ModuleOp program) {
  llvm::StringMap<Operation *> all;
  std::vector<Part> parts;
  auto getPart = [&](size_t index) -> ModuleOp {
    while (parts.size() <= index) {
      parts.emplace_back();
      parts.back().module = ModuleOp::create(program.getLoc());
    }
    return *parts[index].module;
  };
  size_t steps = llvm::count_if(*program.getBody(), isStep), hosts = std::max<size_t>(steps, 1);
  getPart(hosts - 1);
  for (Part &part : parts)
    part.isHost = true;
  size_t host = 0, stepsSeen = 0; // what stands behind a step is its own
  for (Operation &op : llvm::make_early_inc_range(*program.getBody())) {
    if (auto name = SymbolTable::getSymbolName(&op))
      all[name.getValue()] = &op;
    // A host global that kernels read crosses parts.
    auto number = op.getAttrOfType<IntegerAttr>(kKernelNumberAttr);
    if (auto global = dyn_cast<LLVM::GlobalOp>(op); global && !number)
      if (global.getLinkage() == LLVM::Linkage::Internal) {
        global.setLinkage(LLVM::Linkage::External);
        global.setVisibility_(LLVM::Visibility::Hidden);
      }
    if (isStep(op))
      host = stepsSeen++;
    op.removeAttr(kKernelNumberAttr);
    ModuleOp part = getPart(number ? hosts + number.getInt() / kKernelsPerPart : host);
    op.remove();
    part.getBody()->push_back(&op);
  }
  for (Part &part : parts)
    declareSymbols(*part.module, all);
  return parts;
}

/// What kernels still need: common subexpressions of addresses and reloaded operands, loops in the
/// form that code generation likes, invariants out of loops. Half the time of the O2 pipeline, for
/// the same code.
static constexpr llvm::StringLiteral kPassPipeline =
    "function(early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,"
    "loop-mssa(loop-rotate,licm),early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,"
    "loop-mssa(licm),adce)";

llvm::Error mlir::memopt::optimizeKernels(llvm::Module &module, llvm::TargetMachine &machine,
                                          bool inlines) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder passes(&machine);
  passes.registerModuleAnalyses(modules);
  passes.registerCGSCCAnalyses(components);
  passes.registerFunctionAnalyses(functions);
  passes.registerLoopAnalyses(loops);
  passes.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager pipeline;
  if (inlines)
    if (llvm::Error error = passes.parsePassPipeline(pipeline, "always-inline,globaldce"))
      return error;
  if (llvm::Error error = passes.parsePassPipeline(pipeline, kPassPipeline))
    return error;
  pipeline.run(module, modules);
  return llvm::Error::success();
}

/// All that the code of a part depends on but the compiler.
static std::string getQuestion(ModuleOp part, StringRef processor) {
  std::string text = (processor + "\n").str();
  llvm::raw_string_ostream out(text);
  part->print(out, OpPrintingFlags().assumeVerified().useLocalScope().enableDebugInfo(false));
  return text;
}

static void writePart(Part &part, StringRef code) {
  std::error_code error;
  llvm::raw_fd_ostream os(part.path, error);
  if (!error) {
    os << code;
    os.close();
    error = os.error();
    os.clear_error();
  }
  if (error)
    part.error = ("cannot write " + part.path + ": " + error.message()).str();
}

/// Leaves an error in the part, or returns its object file.
static SmallVector<char, 0> compilePart(Part &part, StringRef processor) {
  if (failed(convertToLLVMDialect(*part.module))) {
    part.error = "kernels do not convert to the LLVM dialect";
    part.isProgramBad = true;
    return {};
  }
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module = translateModuleToLLVMIR(*part.module, context);
  // The step is one long function of calls: registers for all of it take a time that grows with its
  // square, and there is nothing in it to make faster.
  std::unique_ptr<llvm::TargetMachine> machine = createTargetMachine(
      processor, part.isHost ? llvm::CodeGenOptLevel::None : llvm::CodeGenOptLevel::Default);
  if (!module || !machine) {
    part.error = "no translation to LLVM IR for this target";
    return {};
  }
  module->setTargetTriple(machine->getTargetTriple());
  module->setDataLayout(machine->createDataLayout());
  for (llvm::Function &function : *module) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", processor);
    function.addFnAttr("prefer-vector-width", "512");
    function.addFnAttr(llvm::Attribute::NoUnwind);
  }
  if (!part.isHost)
    if (llvm::Error error = optimizeKernels(*module, *machine)) {
      part.error = llvm::toString(std::move(error));
      return {};
    }
  SmallVector<char, 0> code;
  llvm::raw_svector_ostream os(code);
  llvm::legacy::PassManager codegen;
  if (machine->addPassesToEmitFile(codegen, os, nullptr, llvm::CodeGenFileType::ObjectFile)) {
    part.error = "the target cannot write object files";
    return {};
  }
  codegen.run(*module);
  return code;
}

/// Compiles a part, or finds what another compilation has made of it.
static void makePart(Part &part, StringRef processor, ::memopt::Cache *cache) {
  std::optional<::memopt::Cache::Key> key;
  if (cache) {
    key = ::memopt::Cache::getKey("code", getQuestion(*part.module, processor));
    if (std::optional<std::string> code = cache->find(*key))
      return writePart(part, *code);
  }
  SmallVector<char, 0> code = compilePart(part, processor);
  if (!part.error.empty())
    return;
  writePart(part, StringRef(code.data(), code.size()));
  if (cache)
    cache->store(*key, StringRef(code.data(), code.size()));
}

//===----------------------------------------------------------------------===//
// Linking
//===----------------------------------------------------------------------===//

static std::string linkParts(ArrayRef<Part> parts, ArrayRef<std::string> foreign, StringRef path) {
  SmallVector<StringRef> objects;
  for (const Part &part : parts)
    objects.push_back(part.path);
  llvm::append_range(objects, foreign);
  return linkSharedObject(objects, path);
}

/// Compiles what the user gave in C, each source once, to files beside `path`, which are the
/// caller's to remove.
static std::string compileForeign(ModuleOp program, StringRef path,
                                  SmallVector<std::string> &objects) {
  llvm::StringSet<> done;
  for (auto function : program.getOps<LLVM::LLVMFuncOp>()) {
    auto source = dyn_cast_or_null<StringAttr>(function->removeAttr(kSourceAttr));
    if (!source || !done.insert(source.getValue()).second)
      continue;
    objects.push_back((path + ".foreign" + Twine(objects.size()) + ".o").str());
    if (std::string failed = compileC(source, function.getSymName(), objects.back());
        !failed.empty())
      return failed;
  }
  return "";
}

Emission mlir::memopt::emitSharedObject(ModuleOp program, const ObjectOptions &options,
                                        StringRef path) {
  Location location = program.getLoc();
  std::string message;
  FailureOr<std::string> processor = resolveProcessor(options.processor, message);
  if (failed(processor)) {
    emitError(location, message);
    return Emission::BadProgram;
  }
  registerBuiltinDialectTranslation(*program.getContext());
  registerLLVMDialectTranslation(*program.getContext());
  SmallVector<std::string> foreign;
  llvm::scope_exit removeForeign([&] {
    for (const std::string &object : foreign)
      llvm::sys::fs::remove(object);
  });
  if (message = compileForeign(program, path, foreign); !message.empty()) {
    emitError(location, message);
    return Emission::BadProgram;
  }
  std::vector<Part> parts = cutProgram(program);
  for (auto [i, part] : llvm::enumerate(parts))
    part.path = (path + "." + Twine(i) + ".o").str();

  std::atomic<size_t> next{0};
  // What parts say comes in their order, whichever thread makes them.
  std::optional<ParallelDiagnosticHandler> diagnostics(program.getContext());
  auto work = [&] {
    for (size_t i; (i = next++) < parts.size();) {
      diagnostics->setOrderIDForThread(i);
      makePart(parts[i], *processor, options.cache);
      diagnostics->eraseOrderIDForThread();
    }
  };
  unsigned count = program.getContext()->isMultithreadingEnabled() ? options.threads : 1;
  SmallVector<std::thread> helpers;
  for (unsigned i = 1; i < std::min<size_t>(std::max(1u, count), parts.size()); ++i)
    helpers.emplace_back(work);
  work();
  for (std::thread &helper : helpers)
    helper.join();
  diagnostics.reset();

  bool isProgramBad = false;
  for (const Part &part : parts)
    if (message.empty()) {
      message = part.error;
      isProgramBad = part.isProgramBad;
    }
  if (message.empty())
    message = linkParts(parts, foreign, path);
  for (const Part &part : parts)
    llvm::sys::fs::remove(part.path);
  if (message.empty())
    return Emission::Done;
  emitError(location, message);
  return isProgramBad ? Emission::BadProgram : Emission::Environment;
}
