//===- DeviceLowering.cpp - from NVPTX's IR to this machine's -------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "emulator/kernels/DeviceLowering.h"
#include "emulator/kernels/DeviceFunctions.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/DebugInfo.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Transforms/Scalar/ScalarizeMaskedMemIntrin.h"

using namespace llvm;

/// Address spaces of NVPTX.
enum { sharedSpace = 3, constantSpace = 4, localSpace = 5 };

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

size_t memopt::emulator::placeSharedMemory(Module &module, void *base) {
  const DataLayout &layout = module.getDataLayout();
  auto *integer = Type::getInt64Ty(module.getContext());
  std::vector<GlobalVariable *> declared, asked;
  for (GlobalVariable &global : module.globals())
    if (global.getAddressSpace() == sharedSpace)
      (global.isDeclaration() ? asked : declared).push_back(&global);
  uint64_t bytes = 0;
  auto place = [&](GlobalVariable *global) {
    auto *address = ConstantInt::get(integer, reinterpret_cast<uintptr_t>(base) + bytes);
    global->replaceAllUsesWith(ConstantExpr::getIntToPtr(address, global->getType()));
    global->eraseFromParent();
  };
  for (GlobalVariable *global : declared) {
    uint64_t size = uint64_t(layout.getTypeAllocSize(global->getValueType()));
    bytes = alignTo(bytes, layout.getPreferredAlign(global));
    place(global);
    bytes += size;
  }
  bytes = alignTo(bytes, Align(16));
  for (GlobalVariable *global : asked)
    place(global);
  return size_t(bytes);
}

//===----------------------------------------------------------------------===//
// Accesses
//===----------------------------------------------------------------------===//

/// What a pointer points into; lanes of a vector of pointers share the vector's.
static const Value *getObject(const Value *pointer) {
  const Value *object = getUnderlyingObject(pointer);
  auto *lane = dyn_cast<ExtractElementInst>(object);
  auto *lanes = lane ? dyn_cast<GetElementPtrInst>(lane->getVectorOperand()) : nullptr;
  return lanes && !lanes->getPointerOperandType()->isVectorTy()
             ? getObject(lanes->getPointerOperand())
             : object;
}

/// A thread's own memory, and constants of the module.
static bool isPrivate(Value *pointer) {
  unsigned space = pointer->getType()->getPointerAddressSpace();
  if (space == constantSpace || space == localSpace)
    return true;
  const Value *object = getObject(pointer);
  auto *global = dyn_cast<GlobalVariable>(object);
  return isa<AllocaInst>(object) || (global && global->isConstant());
}

static void announce(Instruction &before, Value *pointer, Value *bytes, int flags) {
  if (isPrivate(pointer))
    return;
  IRBuilder<> builder(&before);
  FunctionCallee hook = before.getModule()->getOrInsertFunction(
      memopt::emulator::accessFunction, builder.getVoidTy(), builder.getPtrTy(),
      builder.getInt64Ty(), builder.getInt32Ty());
  Value *generic = builder.CreateAddrSpaceCast(pointer, builder.getPtrTy());
  builder.CreateCall(hook, {generic, builder.CreateZExtOrTrunc(bytes, builder.getInt64Ty()),
                            builder.getInt32(unsigned(flags))});
}

/// Wider accesses than 16 bytes are made of several.
static void announceType(Instruction &access, Value *pointer, Type *type, Align alignment,
                         int flags) {
  uint64_t bytes = uint64_t(access.getModule()->getDataLayout().getTypeStoreSize(type));
  flags |= int(Log2(std::min(alignment, Align(16)))) << memopt::emulator::accessAlignmentShift;
  announce(access, pointer, ConstantInt::get(Type::getInt64Ty(access.getContext()), bytes), flags);
}

static void announceAccess(Instruction &access) {
  using namespace memopt::emulator;
  if (auto *load = dyn_cast<LoadInst>(&access))
    announceType(access, load->getPointerOperand(), load->getType(), load->getAlign(), 0);
  else if (auto *store = dyn_cast<StoreInst>(&access))
    announceType(access, store->getPointerOperand(), store->getValueOperand()->getType(),
                 store->getAlign(), accessWrites);
  else if (auto *update = dyn_cast<AtomicRMWInst>(&access))
    announceType(access, update->getPointerOperand(), update->getType(), update->getAlign(),
                 accessWrites | accessIsAtomic);
  else if (auto *exchange = dyn_cast<AtomicCmpXchgInst>(&access))
    announceType(access, exchange->getPointerOperand(), exchange->getNewValOperand()->getType(),
                 exchange->getAlign(), accessWrites | accessIsAtomic);
  else if (auto *fill = dyn_cast<AnyMemIntrinsic>(&access)) {
    announce(access, fill->getRawDest(), fill->getLength(), accessWrites);
    if (auto *copy = dyn_cast<AnyMemTransferInst>(fill))
      announce(access, copy->getRawSource(), copy->getLength(), 0);
  }
}

//===----------------------------------------------------------------------===//
// Intrinsics
//===----------------------------------------------------------------------===//

namespace {

/// Replaces calls of intrinsics, one function for each family. A family gives null for what it does
/// not know.
class IntrinsicLowering {
public:
  explicit IntrinsicLowering(IntrinsicInst &call)
      : call(call), id(call.getIntrinsicID()), builder(&call) {}

  /// False when it is one of the device's that nobody knows, or touches memory unannounced.
  bool run() {
    StringRef name = Intrinsic::getBaseName(id);
    if (!name.starts_with("llvm.nvvm."))
      return !name.starts_with("llvm.masked.") && !name.starts_with("llvm.vp.");
    for (auto family : {&IntrinsicLowering::lowerRegister, &IntrinsicLowering::lowerBarrier,
                        &IntrinsicLowering::lowerShuffle, &IntrinsicLowering::lowerVote,
                        &IntrinsicLowering::lowerCopy, &IntrinsicLowering::lowerMatrices,
                        &IntrinsicLowering::lowerArithmetic})
      if (Value *value = (this->*family)()) {
        if (!call.getType()->isVoidTy())
          call.replaceAllUsesWith(value);
        call.eraseFromParent();
        return true;
      }
    return false;
  }

private:
  Value *emit(const char *function, Type *type, ArrayRef<Value *> arguments) {
    std::vector<Type *> types;
    for (Value *argument : arguments)
      types.push_back(argument->getType());
    FunctionCallee callee =
        call.getModule()->getOrInsertFunction(function, FunctionType::get(type, types, false));
    return builder.CreateCall(callee, arguments);
  }
  Value *number(int value) { return builder.getInt32(unsigned(value)); }

  Value *lowerRegister() {
    using namespace memopt::emulator;
    static const std::pair<Intrinsic::ID, DeviceRegister> registers[] = {
        {Intrinsic::nvvm_read_ptx_sreg_tid_x, threadX},
        {Intrinsic::nvvm_read_ptx_sreg_tid_y, threadY},
        {Intrinsic::nvvm_read_ptx_sreg_tid_z, threadZ},
        {Intrinsic::nvvm_read_ptx_sreg_ctaid_x, blockX},
        {Intrinsic::nvvm_read_ptx_sreg_ctaid_y, blockY},
        {Intrinsic::nvvm_read_ptx_sreg_ctaid_z, blockZ},
        {Intrinsic::nvvm_read_ptx_sreg_ntid_x, threadsX},
        {Intrinsic::nvvm_read_ptx_sreg_ntid_y, threadsY},
        {Intrinsic::nvvm_read_ptx_sreg_ntid_z, threadsZ},
        {Intrinsic::nvvm_read_ptx_sreg_nctaid_x, blocksX},
        {Intrinsic::nvvm_read_ptx_sreg_nctaid_y, blocksY},
        {Intrinsic::nvvm_read_ptx_sreg_nctaid_z, blocksZ},
        {Intrinsic::nvvm_read_ptx_sreg_laneid, laneOfWarp},
    };
    if (id == Intrinsic::nvvm_read_ptx_sreg_warpsize)
      return number(warpThreads);
    for (auto [known, which] : registers)
      if (id == known)
        return emit(registerFunction, builder.getInt32Ty(), {number(which)});
    return nullptr;
  }

  Value *lowerBarrier() {
    using namespace memopt::emulator;
    switch (id) {
    case Intrinsic::nvvm_barrier_cta_sync_aligned_all:
    case Intrinsic::nvvm_barrier_cta_sync_all:
      return emit(barrierFunction, builder.getVoidTy(), {call.getArgOperand(0)});
    case Intrinsic::nvvm_bar_warp_sync:
      return emit(warpBarrierFunction, builder.getVoidTy(), {call.getArgOperand(0)});
    case Intrinsic::nvvm_membar_cta:
    case Intrinsic::nvvm_membar_gl:
    case Intrinsic::nvvm_membar_sys:
      return builder.CreateFence(AtomicOrdering::SequentiallyConsistent);
    default:
      return nullptr;
    }
  }

  /// Shuffles by their names, which say the way, the type and whether a predicate comes with it.
  Value *lowerShuffle() {
    using namespace memopt::emulator;
    StringRef name = Intrinsic::getBaseName(id);
    if (!name.consume_front("llvm.nvvm.shfl.sync."))
      return nullptr;
    auto [way, type] = name.split('.');
    int mode = StringSwitch<int>(way)
                   .Case("idx", shuffleIndex)
                   .Case("up", shuffleUp)
                   .Case("down", shuffleDown)
                   .Case("bfly", shuffleButterfly)
                   .Default(-1);
    if (mode < 0)
      return nullptr;
    Value *bits = builder.CreateBitCast(call.getArgOperand(1), builder.getInt32Ty());
    Value *result = emit(
        shuffleFunction, builder.getInt32Ty(),
        {number(mode), call.getArgOperand(0), bits, call.getArgOperand(2), call.getArgOperand(3)});
    if (!type.ends_with("p"))
      return builder.CreateBitCast(result, call.getType());
    Value *predicate = emit(predicateFunction, builder.getInt32Ty(), {});
    Type *element = cast<StructType>(call.getType())->getElementType(0);
    Value *pair = builder.CreateInsertValue(PoisonValue::get(call.getType()),
                                            builder.CreateBitCast(result, element), {0});
    return builder.CreateInsertValue(pair, builder.CreateIsNotNull(predicate), {1});
  }

  Value *lowerVote() {
    using namespace memopt::emulator;
    static const std::pair<Intrinsic::ID, VoteMode> votes[] = {
        {Intrinsic::nvvm_vote_all_sync, voteAll},
        {Intrinsic::nvvm_vote_any_sync, voteAny},
        {Intrinsic::nvvm_vote_uni_sync, voteUniform},
        {Intrinsic::nvvm_vote_ballot_sync, voteBallot}};
    for (auto [known, mode] : votes)
      if (id == known) {
        Value *predicate = builder.CreateZExt(call.getArgOperand(1), builder.getInt32Ty());
        Value *result = emit(voteFunction, builder.getInt32Ty(),
                             {number(mode), call.getArgOperand(0), predicate});
        return mode == voteBallot ? result : builder.CreateIsNotNull(result);
      }
    return nullptr;
  }

  /// Copies by their names, which say how many bytes; those that say how many are valid end in `.s`.
  Value *lowerCopy() {
    using namespace memopt::emulator;
    if (id == Intrinsic::nvvm_cp_async_commit_group)
      return emit(groupFunction, builder.getVoidTy(), {});
    if (id == Intrinsic::nvvm_cp_async_wait_group)
      return emit(awaitFunction, builder.getVoidTy(), {call.getArgOperand(0)});
    StringRef name = Intrinsic::getBaseName(id);
    if (!name.consume_front("llvm.nvvm.cp.async.cg.shared.global.") &&
        !name.consume_front("llvm.nvvm.cp.async.ca.shared.global."))
      return nullptr;
    int bytes = 0;
    bool saysValid = name.consume_back(".s");
    if (name.getAsInteger(10, bytes))
      return nullptr;
    auto generic = [&](unsigned operand) {
      return builder.CreateAddrSpaceCast(call.getArgOperand(operand), builder.getPtrTy());
    };
    return emit(
        copyFunction, builder.getVoidTy(),
        {generic(0), generic(1), number(bytes), saysValid ? call.getArgOperand(2) : number(bytes)});
  }

  /// Memory of the thread, for words that all of a warp see: the same for all instructions of a
  /// function.
  Value *getWords() {
    BasicBlock &entry = call.getFunction()->getEntryBlock();
    auto *type = ArrayType::get(builder.getInt32Ty(), memopt::emulator::matrixWords);
    if (auto *words = dyn_cast<AllocaInst>(&entry.front()))
      if (words->getAllocatedType() == type)
        return words;
    return IRBuilder<>(&entry, entry.begin()).CreateAlloca(type);
  }
  Value *getWord(Value *words, int place) {
    return builder.CreateConstGEP1_32(builder.getInt32Ty(), words, unsigned(place));
  }
  /// The call's result, a struct of four, of words.
  Value *readFour(Value *words) {
    Value *result = PoisonValue::get(call.getType());
    auto *type = cast<StructType>(call.getType());
    for (unsigned place = 0; place < type->getNumElements(); ++place)
      result = builder.CreateInsertValue(
          result, builder.CreateLoad(type->getElementType(place), getWord(words, int(place))),
          {place});
    return result;
  }

  Value *lowerMatrices() {
    using namespace memopt::emulator;
    auto load = [&](LoadMatricesMode mode) {
      Value *words = getWords();
      Value *row = builder.CreateAddrSpaceCast(call.getArgOperand(0), builder.getPtrTy());
      emit(loadMatricesFunction, builder.getVoidTy(), {number(mode), row, words});
      return readFour(words);
    };
    auto multiply = [&](MultiplyMatricesMode mode) {
      Value *words = getWords();
      for (auto [place, operand] : enumerate(call.args()))
        builder.CreateStore(operand, getWord(words, int(place)));
      emit(multiplyMatricesFunction, builder.getVoidTy(), {number(mode), words});
      return readFour(getWord(words, leftWords + rightWords));
    };
    switch (id) {
    case Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_b16:
      return load(loadRows);
    case Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16:
      return load(loadColumns);
    case Intrinsic::nvvm_mma_m16n8k16_row_col_f32_f32:
      return multiply(multiplyHalves);
    case Intrinsic::nvvm_mma_m16n8k16_row_col_bf16:
      return multiply(multiplyBrainFloats);
    default:
      return nullptr;
    }
  }

  /// What a device computes to within two units in the last place.
  Value *lowerExponential() {
    Value *power = builder.CreateUnaryIntrinsic(Intrinsic::exp2, call.getArgOperand(0));
    constexpr double leastNormal = 0x1p-126;
    Value *isSmall = builder.CreateFCmpOLT(power, ConstantFP::get(call.getType(), leastNormal));
    return builder.CreateSelect(isSmall, ConstantFP::get(call.getType(), 0.0), power);
  }

  /// Operations that are rounded as the host's are.
  Value *lowerArithmetic() {
    switch (id) {
    case Intrinsic::nvvm_fma_rn_f:
    case Intrinsic::nvvm_fma_rn_d:
      return builder.CreateIntrinsic(
          Intrinsic::fma, {call.getType()},
          {call.getArgOperand(0), call.getArgOperand(1), call.getArgOperand(2)});
    case Intrinsic::nvvm_sqrt_rn_f:
    case Intrinsic::nvvm_sqrt_rn_d:
      return builder.CreateUnaryIntrinsic(Intrinsic::sqrt, call.getArgOperand(0));
    case Intrinsic::nvvm_ex2_approx_ftz:
      return lowerExponential();
    case Intrinsic::nvvm_div_rn_f:
    case Intrinsic::nvvm_div_rn_d:
      return builder.CreateFDiv(call.getArgOperand(0), call.getArgOperand(1));
    default:
      return nullptr;
    }
  }

  IntrinsicInst &call;
  Intrinsic::ID id;
  IRBuilder<> builder;
};

} // namespace

//===----------------------------------------------------------------------===//
// The module
//===----------------------------------------------------------------------===//

static std::string lowerFunction(Function &function) {
  std::vector<Instruction *> order;
  for (Instruction &instruction : instructions(function))
    order.push_back(&instruction);
  for (Instruction *instruction : order) {
    announceAccess(*instruction);
    if (auto *call = dyn_cast<CallBase>(instruction); call && call->isInlineAsm())
      return "kernel code '" + function.getName().str() + "' has inline assembly";
    auto *call = dyn_cast<IntrinsicInst>(instruction);
    std::string name = call ? call->getCalledFunction()->getName().str() : "";
    if (call && !IntrinsicLowering(*call).run())
      return "'" + name + "' in '" + function.getName().str() + "' is not emulated";
  }
  function.setCallingConv(CallingConv::C);
  function.setLinkage(GlobalValue::ExternalLinkage);
  for (User *user : function.users())
    if (auto *call = dyn_cast<CallBase>(user))
      call->setCallingConv(CallingConv::C);
  return "";
}

/// Lanes under a mask become accesses of their own, as they do on the device.
static void splitMaskedAccesses(Module &module) {
  LoopAnalysisManager loops;
  FunctionAnalysisManager functions;
  CGSCCAnalysisManager graphs;
  ModuleAnalysisManager modules;
  PassBuilder builder; // without a target, for which some might be legal
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graphs, modules);
  ScalarizeMaskedMemIntrinPass pass;
  for (Function &function : module)
    if (!function.isDeclaration())
      functions.invalidate(function, pass.run(function, functions));
}

std::string memopt::emulator::lowerDeviceCode(Module &module) {
  StripDebugInfo(module);
  splitMaskedAccesses(module);
  for (Function &function : module) {
    if (function.isDeclaration())
      continue;
    for (Argument &parameter : function.args())
      if (parameter.hasByValAttr())
        return "'" + function.getName().str() + "' takes a parameter by value in memory";
    // What they promise of memory no longer holds, and the target's processor is another.
    function.setAttributes(AttributeList());
    if (std::string problem = lowerFunction(function); !problem.empty())
      return problem;
  }
  for (const char *name : {"nvvm.annotations", "llvm.module.flags", "nvvmir.version"})
    if (NamedMDNode *node = module.getNamedMetadata(name))
      module.eraseNamedMetadata(node);
  return "";
}
