//===- Loops.cpp - loops over formulas ------------------------ -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Loops.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::Value;
using Builder = mlir::ImplicitLocOpBuilder;

Loop memopt::pt2::repeat(int64_t count, bool reverse, Elements fixed, Elements slices,
                         Elements carried, function_ref<Yields(const Turn &)> body) {
  Builder &b = carried.front().getBuilder();
  auto numbers = mlir::RankedTensorType::get({count, 1}, b.getI64Type());
  SmallVector<Value> ofTurns{mlir::memopt::IotaOp::create(b, numbers, 0)};
  ofTurns.append(slices.begin(), slices.end());
  SmallVector<Value> constant(fixed.begin(), fixed.end()), first(carried.begin(), carried.end());
  SmallVector<int64_t> firsts(ofTurns.size(), 0);
  auto scan = mlir::memopt::ScanOp::create(b, constant, ofTurns, firsts, first, count, reverse);
  Builder inner(b.getLoc(), b.getContext());
  inner.setInsertionPointToEnd(&scan.getBody().front());
  auto arguments = scan.getSliceArguments();
  Turn turn{{inner, arguments.front()}, {}, {}, {}};
  for (Value value : scan.getFixedArguments())
    turn.fixed.push_back({inner, value});
  for (Value value : arguments.drop_front())
    turn.slices.push_back({inner, value});
  for (Value value : scan.getCarriedArguments())
    turn.carried.push_back({inner, value});
  Yields yields = body(turn);
  SmallVector<Value> results(yields.next.begin(), yields.next.end());
  results.append(yields.made.begin(), yields.made.end());
  mlir::memopt::YieldOp::create(inner, results);
  scan = mlir::memopt::ScanOp::finish(b, scan);
  Loop loop;
  for (Value value : scan.getLastValues())
    loop.last.push_back({b, value});
  for (Value value : scan.getStacked())
    loop.made.push_back({b, value});
  return loop;
}
