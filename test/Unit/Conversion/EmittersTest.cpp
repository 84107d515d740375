//===- EmittersTest.cpp - loops and threads of one element graph ----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Emission/KernelFunction.h"
#include "memopt/Conversion/Kernels/KernelLowering.h"
#include "memopt/Conversion/Loops/LoopEmitter.h"
#include "memopt/Conversion/Threads/Nvvm/NvvmOps.h"
#include "memopt/Conversion/Threads/ThreadEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include "gtest/gtest.h"

#include <random>

using namespace mlir;
using namespace mlir::memopt;

namespace {

/// A vendor whose numbers are those of one thread, and who counts what it is asked for.
class CountingOps : public DeviceOps {
public:
  Value createThreadId(ImplicitLocOpBuilder &b) const override { return createZero(b); }
  Value createBlockId(ImplicitLocOpBuilder &b) const override { return createZero(b); }
  Value createGridSize(ImplicitLocOpBuilder &b) const override { return createZero(b); }
  void synchronizeBlock(ImplicitLocOpBuilder &) const override { ++barriers; }
  void synchronizeWarp(ImplicitLocOpBuilder &, Value) const override { ++barriers; }
  Value shuffle(ImplicitLocOpBuilder &, Value, Value word, int64_t) const override {
    ++shuffles;
    return word;
  }
  Value isAny(ImplicitLocOpBuilder &, Value, Value condition) const override { return condition; }
  Value getVotes(ImplicitLocOpBuilder &b, Value, Value condition) const override {
    return arith::ExtUIOp::create(b, b.getI32Type(), condition);
  }
  void copyAhead(ImplicitLocOpBuilder &, Value, Value, int64_t, Value) const override {}
  void awaitCopies(ImplicitLocOpBuilder &) const override {}
  std::array<Value, 4> loadMatrices(ImplicitLocOpBuilder &, Value row, bool) const override {
    return {row, row, row, row};
  }
  std::array<Value, 4> multiplyMatrices(ImplicitLocOpBuilder &, Type, ArrayRef<Value>,
                                        ArrayRef<Value>, ArrayRef<Value> sums) const override {
    return {sums[0], sums[1], sums[2], sums[3]};
  }
  Value exponentiate(ImplicitLocOpBuilder &, Value power) const override { return power; }
  unsigned getGlobalSpace() const override { return 1; }
  unsigned getSharedSpace() const override { return 3; }
  void markKernel(LLVM::LLVMFuncOp, int64_t, int32_t) const override {}

  mutable int barriers = 0, shuffles = 0;

private:
  static Value createZero(ImplicitLocOpBuilder &b) {
    return arith::ConstantOp::create(b, b.getI64IntegerAttr(0));
  }
};

class Emitters : public ::testing::Test {
protected:
  Emitters() {
    DialectRegistry registry;
    registry.insert<MemoptDialect, arith::ArithDialect, func::FuncDialect, linalg::LinalgDialect,
                    LLVM::LLVMDialect, math::MathDialect, NVVM::NVVMDialect, scf::SCFDialect,
                    tensor::TensorDialect, vector::VectorDialect>();
    registerUpstreamInterfaces(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }

  KernelOp parse(const std::string &text) {
    source = parseSourceString<ModuleOp>(text, &context);
    KernelOp found;
    if (source)
      source->walk([&](KernelOp kernel) { found = kernel; });
    return found;
  }

  /// The body of the first stage of `kernel`; `emit` gets it to fill.
  LLVM::LLVMFuncOp
  emit(KernelOp kernel, const ScheduleRules &rules,
       llvm::function_ref<void(NodeEmitter &, const ElementGraph &, const KernelStage &, Value)>
           emitStage) {
    program = ModuleOp::create(UnknownLoc::get(&context));
    ElementGraph graph(kernel.getBody().front(), rules.getNumbers().sums);
    FailureOr<KernelSchedule> schedule =
        scheduleKernel(graph, kernel.getYield(), rules, [](KernelSchedule &) { return true; });
    EXPECT_TRUE(succeeded(schedule));
    KernelFunctionBuilder functions(*program, kernel, /*ids=*/0, "kernel", /*number=*/0);
    SmallVector<Type> types(functions.getArgumentTypes());
    types.push_back(functions.i64);
    LLVM::LLVMFuncOp function = functions.add("body", types);
    Block *entry = function.addEntryBlock(functions.builder);
    functions.builder.setInsertionPointToStart(entry);
    SmallVector<Value> values(entry->getArguments());
    StageArguments arguments = functions.getStageArguments(graph, ArrayRef(values).drop_back());
    NodeEmitter nodes(functions.builder, functions.location, graph, arguments, /*alignment=*/0);
    emitStage(nodes, graph, schedule->stages.front(), values.back());
    LLVM::ReturnOp::create(functions.builder, functions.location, ValueRange{});
    EXPECT_TRUE(succeeded(verify(*program)));
    return function;
  }

  template <typename Op> static int count(Operation *root) {
    int number = 0;
    root->walk([&](Op) { ++number; });
    return number;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> source, program;
};

/// Each row divided by its sum.
std::string getRowsDividedBySums(int64_t rows, int64_t columns) {
  std::string vector = "tensor<" + std::to_string(rows) + "xf32>";
  std::string matrix = "tensor<" + std::to_string(rows) + "x" + std::to_string(columns) + "xf32>";
  return "#m = affine_map<(r, c) -> (r, c)>\n#r = affine_map<(r, c) -> (r)>\n"
         "func.func @f(%a: " +
         matrix +
         ") {\n"
         "%0 = memopt.kernel (%x = %a : " +
         matrix + ") -> " + matrix +
         " {\n"
         "%zero = arith.constant 0.0 : f32\n"
         "%e = tensor.empty() : " +
         vector +
         "\n"
         "%z = linalg.fill ins(%zero : f32) outs(%e : " +
         vector + ") -> " + vector +
         "\n"
         "%sum = linalg.generic {indexing_maps = [#m, #r], iterator_types = [\"parallel\", "
         "\"reduction\"]} ins(%x : " +
         matrix + ") outs(%z : " + vector +
         ") {\n"
         "^bb0(%p: f32, %o: f32):\n%s = arith.addf %o, %p : f32\nlinalg.yield %s : f32\n} -> " +
         vector + "\n%f = tensor.empty() : " + matrix +
         "\n"
         "%q = linalg.generic {indexing_maps = [#m, #r, #m], iterator_types = [\"parallel\", "
         "\"parallel\"]} ins(%x, %sum : " +
         matrix + ", " + vector + ") outs(%f : " + matrix +
         ") {\n^bb0(%p: f32, %t: f32, %o: f32):\n%s = arith.divf %p, %t : f32\n"
         "linalg.yield %s : f32\n} -> " +
         matrix + "\nmemopt.yield %q : " + matrix + "\n}\nreturn\n}\n";
}

TEST_F(Emitters, LoopsHaveVectors) {
  KernelOp kernel = parse(getRowsDividedBySums(100, 320));
  ASSERT_TRUE(kernel);
  LoopScheduleRules rules(/*blockBytes=*/256, /*isScalar=*/false);
  LLVM::LLVMFuncOp body =
      emit(kernel, rules,
           [&](NodeEmitter &nodes, const ElementGraph &graph, const KernelStage &stage, Value end) {
             EXPECT_EQ(countTrips(graph.getTable(), stage), 100);
             LoopEmitter(nodes, stage, rules).emit(nodes.constant(0), end);
           });
  // Rows, the sum's blocks of lanes, and those of the quotients.
  EXPECT_EQ(count<scf::ForOp>(body), 3);
  body.walk(
      [](LLVM::LoadOp load) { EXPECT_EQ(cast<VectorType>(load.getType()).getDimSize(0), 64); });
}

TEST_F(Emitters, ScalarLoopsHaveNone) {
  KernelOp kernel = parse(getRowsDividedBySums(100, 320));
  ASSERT_TRUE(kernel);
  LoopScheduleRules rules(/*blockBytes=*/256, /*isScalar=*/true);
  LLVM::LLVMFuncOp body =
      emit(kernel, rules,
           [&](NodeEmitter &nodes, const ElementGraph &, const KernelStage &stage, Value end) {
             LoopEmitter(nodes, stage, rules).emit(nodes.constant(0), end);
           });
  body.walk([](LLVM::LoadOp load) { EXPECT_TRUE(isa<Float32Type>(load.getType())); });
}

TEST_F(Emitters, ThreadsAskTheirVendor) {
  KernelOp kernel = parse(getRowsDividedBySums(100, 320));
  ASSERT_TRUE(kernel);
  DeviceMachine machine;
  machine.sms = 132;
  ThreadScheduleRules rules(machine);
  CountingOps ops;
  // A result over an operand: the others' reads come before the stores.
  llvm::BitVector overOperand(1, true);
  LLVM::LLVMFuncOp body =
      emit(kernel, rules,
           [&](NodeEmitter &nodes, const ElementGraph &graph, const KernelStage &stage, Value) {
             ThreadShape shape = rules.chooseThreads(graph, stage);
             // Four floats are an access: 80 vectors of a row are for a warp.
             EXPECT_EQ(shape.group, 32);
             ThreadEmitter(nodes, ops, stage, shape, rules, overOperand).emit();
           });
  EXPECT_EQ(ops.shuffles, 5);
  EXPECT_EQ(ops.barriers, 1);
  body.walk(
      [](LLVM::LoadOp load) { EXPECT_EQ(cast<VectorType>(load.getType()).getDimSize(0), 4); });
  body.walk([](Operation *op) {
    EXPECT_FALSE(isa_and_present<NVVM::NVVMDialect>(op->getDialect()))
        << op->getName().getStringRef().str();
  });
}

/// Kernels at random: chains of products with values, their transposes, sums along rows or columns,
/// rows or columns that are rolled, and elements in another shape.
class RandomKernel {
public:
  explicit RandomKernel(unsigned seed) : random(seed) {}

  std::string write() {
    int64_t sizes[] = {1, 2, 3, 5, 8, 17, 64, 300};
    rows = sizes[draw(8)];
    columns = draw(3) ? sizes[draw(8)] : rows;
    unsigned operands = 1 + draw(3), steps = 1 + draw(5), results = 1 + draw(2);
    for (unsigned i = 0; i < operands; ++i)
      values.push_back("%x" + std::to_string(i));
    for (unsigned i = 0; i < steps; ++i)
      addStep();
    std::string text =
        "#m = affine_map<(r, c) -> (r, c)>\n#t = affine_map<(r, c) -> (c, r)>\n"
        "#r = affine_map<(r, c) -> (r)>\n#c = affine_map<(r, c) -> (c)>\nfunc.func @f(";
    for (unsigned i = 0; i < operands; ++i)
      text += (i ? ", %a" : "%a") + std::to_string(i) + ": " + matrix();
    text += ") {\n%0:" + std::to_string(results) + " = memopt.kernel (";
    for (unsigned i = 0; i < operands; ++i)
      text +=
          (i ? ", %x" : "%x") + std::to_string(i) + " = %a" + std::to_string(i) + " : " + matrix();
    std::string types, yielded;
    for (unsigned i = 0; i < results; ++i) {
      types += (i ? ", " : "") + matrix();
      yielded += (i ? ", " : "") + values[operands + draw(values.size() - operands)];
    }
    return text + ") -> (" + types + ") {\n%zero = arith.constant 0.0 : f32\n" + body +
           "memopt.yield " + yielded + " : " + types + "\n}\nreturn\n}\n";
  }

private:
  unsigned draw(size_t below) { return static_cast<unsigned>(random() % below); }
  static std::string matrixOf(int64_t rows, int64_t columns) {
    return "tensor<" + std::to_string(rows) + "x" + std::to_string(columns) + "xf32>";
  }
  std::string matrix() const { return matrixOf(rows, columns); }

  /// Rows (or columns) of `value`, the last ones first.
  std::string roll(const std::string &value, const std::string &id) {
    bool ofRows = draw(2);
    int64_t size = ofRows ? rows : columns, first = 1 + draw(size);
    if (first == size)
      return value;
    auto slice = [&](const std::string &name, int64_t begin, int64_t count) {
      std::string type = ofRows ? matrixOf(count, columns) : matrixOf(rows, count);
      std::string offsets = ofRows ? std::to_string(begin) + ", 0" : "0, " + std::to_string(begin);
      std::string sizes = ofRows ? std::to_string(count) + ", " + std::to_string(columns)
                                 : std::to_string(rows) + ", " + std::to_string(count);
      body += name + " = tensor.extract_slice " + value + "[" + offsets + "] [" + sizes +
              "] [1, 1] : " + matrix() + " to " + type + "\n";
      return type;
    };
    std::string front = slice("%front" + id, 0, first);
    std::string back = slice("%back" + id, first, size - first);
    body += "%rolled" + id + " = tensor.concat dim(" + (ofRows ? "0" : "1") + ") %back" + id +
            ", %front" + id + " : (" + back + ", " + front + ") -> " + matrix() + "\n";
    return "%rolled" + id;
  }

  /// The elements of `value` in their order, as a matrix of `columns` rows.
  std::string reshape(const std::string &value, const std::string &id) {
    std::string flat = "tensor<" + std::to_string(rows * columns) + "xf32>";
    body += "%flat" + id + " = tensor.collapse_shape " + value + " [[0, 1]] : " + matrix() +
            " into " + flat + "\n%shaped" + id + " = tensor.expand_shape %flat" + id +
            " [[0, 1]] output_shape [" + std::to_string(columns) + ", " + std::to_string(rows) +
            "] : " + flat + " into " + matrixOf(columns, rows) + "\n";
    return "%shaped" + id;
  }

  void addStep() {
    std::string id = std::to_string(values.size());
    std::string a = values[draw(values.size())], b = values[draw(values.size())];
    std::string map = "#m", type = matrix();
    unsigned kind = draw(6);
    if (kind == 0 && rows == columns)
      map = "#t";
    if (kind == 3)
      b = roll(b, id);
    if (kind == 4) {
      b = reshape(b, id);
      map = "#t";
      type = matrixOf(columns, rows);
    }
    if (kind == 1 || kind == 2) {
      map = kind == 1 ? "#r" : "#c";
      type = "tensor<" + std::to_string(kind == 1 ? rows : columns) + "xf32>";
      body += "%e" + id + " = tensor.empty() : " + type + "\n%z" + id +
              " = linalg.fill ins(%zero : f32) outs(%e" + id + " : " + type + ") -> " + type +
              "\n%s" + id + " = linalg.generic {indexing_maps = [#m, " + map +
              "], iterator_types = [" +
              (kind == 1 ? "\"parallel\", \"reduction\"" : "\"reduction\", \"parallel\"") +
              "]} ins(" + b + " : " + matrix() + ") outs(%z" + id + " : " + type +
              ") {\n^bb0(%p: f32, %o: f32):\n%q = arith.addf %o, %p : f32\n"
              "linalg.yield %q : f32\n} -> " +
              type + "\n";
      b = "%s" + id;
    }
    body += "%f" + id + " = tensor.empty() : " + matrix() + "\n%v" + id +
            " = linalg.generic {indexing_maps = [#m, " + map +
            ", #m], iterator_types = [\"parallel\", \"parallel\"]} ins(" + a + ", " + b + " : " +
            matrix() + ", " + type + ") outs(%f" + id + " : " + matrix() +
            ") {\n^bb0(%p: f32, %t: f32, %o: f32):\n%q = arith.mulf %p, %t : f32\n"
            "linalg.yield %q : f32\n} -> " +
            matrix() + "\n";
    values.push_back("%v" + id);
  }

  std::mt19937 random;
  int64_t rows = 1, columns = 1;
  std::vector<std::string> values;
  std::string body;
};

/// Every way to give results of `kernel` buffers of operands that it allows, no buffer twice: by
/// result the operand, or -1.
static std::vector<SmallVector<int64_t>> getAllowedAliases(KernelOp kernel) {
  std::vector<SmallVector<int64_t>> ways(1);
  for (unsigned result = 0; result < kernel.getNumResults(); ++result) {
    std::vector<SmallVector<int64_t>> longer;
    for (SmallVector<int64_t> &way : ways) {
      auto add = [&](int64_t operand) { longer.emplace_back(way).push_back(operand); };
      add(-1);
      for (const InPlaceOperand &allowed : kernel.getInPlaceOperands(result))
        if (!llvm::is_contained(way, static_cast<int64_t>(allowed.operand)))
          add(allowed.operand);
    }
    ways = std::move(longer);
  }
  llvm::erase_if(ways, [](ArrayRef<int64_t> way) {
    return llvm::all_of(way, [](int64_t operand) { return operand < 0; });
  });
  return ways;
}

/// Planning lets results take any buffers that the kernel names, so that no schedule may refuse
/// them.
TEST_F(Emitters, AcceptWhatKernelsAllow) {
  KernelOptions processor, device;
  device.device.emplace().sms = 132;
  device.deviceOps = &getNvvmOps();
  int allowed = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::string text = RandomKernel(seed).write();
    KernelOp kernel = parse(text);
    ASSERT_TRUE(kernel) << text;
    for (const SmallVector<int64_t> &buffers : getAllowedAliases(kernel)) {
      ++allowed;
      for (const KernelOptions &options : {processor, device}) {
        program = ModuleOp::create(UnknownLoc::get(&context));
        KernelLowering lowering(*program, options);
        EXPECT_TRUE(succeeded(lowering.lower(kernel, buffers)))
            << "seed " << seed << (options.device ? ", threads" : ", loops") << "\n"
            << text;
      }
    }
  }
  EXPECT_GT(allowed, 100);
}

} // namespace
