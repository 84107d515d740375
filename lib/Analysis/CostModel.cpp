//===- CostModel.cpp - seconds of an instruction on a machine -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/CostModel.h"

#include <cmath>

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

static int64_t toNanoseconds(double seconds) {
  return std::max<int64_t>(1, std::llround(seconds * 1e9));
}

CostModel::CostModel(ModuleOp module) : secondsOf(getTarget(module).getCostFunction()) {
  auto levels = module->getAttrOfType<NetworkAttr>(MemoptDialect::kNetworkAttr);
  if (!levels)
    return;
  for (auto [members, latency, rate] :
       llvm::zip_equal(levels.getMembers(), levels.getLatency(), levels.getRate()))
    network.levels.push_back(
        {members, {static_cast<double>(latency) * 1e-9, static_cast<double>(rate)}});
}

/// What sending takes; zero for what stays on its rank, and without a network.
template <typename OpTy>
static double getSendingSeconds(const planning::RankNetwork &network, OpTy op, Value result) {
  if (op.getKind() == CollectiveKind::OwnShard)
    return 0;
  // As many bytes go out of each rank for a gathered tensor as for one whose parts change places.
  auto kind = op.getKind() == CollectiveKind::AllReduce ? planning::RankOpKind::AllReduce
                                                        : planning::RankOpKind::AllGather;
  int64_t whole =
      std::max(getTensorBytes(op.getInput().getType()), getTensorBytes(result.getType()));
  return planning::getCollectiveSeconds(network, op.getRanksAttr().getInt(), kind, whole);
}

double CostModel::getSeconds(Operation *instruction) const {
  double seconds = secondsOf(cast<InstructionOpInterface>(instruction).getWork());
  if (auto op = dyn_cast<CollectiveOp>(instruction))
    return std::max(seconds, getSendingSeconds(network, op, op.getResult()));
  if (auto op = dyn_cast<CollectiveStartOp>(instruction))
    return std::max(seconds, getSendingSeconds(network, op, op.getWait().getResult()));
  return seconds;
}

int64_t CostModel::getNanoseconds(Operation *instruction) const {
  return toNanoseconds(getSeconds(instruction));
}

int64_t CostModel::getNanoseconds(const Work &work) const { return toNanoseconds(secondsOf(work)); }

int64_t CostModel::getTransferNanoseconds(int64_t bytes) const {
  Work work;
  work.workClass = WorkClass::HostTransfer;
  work.bytes = static_cast<double>(bytes);
  return getNanoseconds(work);
}
