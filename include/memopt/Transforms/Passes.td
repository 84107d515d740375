//===- Passes.td - IR to IR, one pass per file -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_PASSES_TD
#define MEMOPT_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// Kernel graph to planned program
//===----------------------------------------------------------------------===//

def PlanMemoryPass : Pass<"memopt-plan-memory", "::mlir::ModuleOp"> {
  let summary = "Give every buffer an offset in one arena";
  let description = [{
    Input: the kernel graph. Output: the planned program, in which every kernel and library call carries
    `memopt.offsets` (one byte offset per result, then one for the workspace), function arguments
    `memopt.offset`, variables `memopt.offset`, and the module `memopt.arena_bytes`,
    `memopt.lower_bound_bytes` and `memopt.peak_bytes`.

    A `memopt.write` whose value may not be made in the variable's own buffer gets a copying kernel first.
    The layout comes from Planning's arena solver and is checked by its validator.

    Fails when the arena is above `budget`; the message names the smallest budget that this plan needs and
    the largest values alive at the peak with their modules.
  }];
  let options = [
    Option<"budget", "budget", "int64_t", "-1", "Bytes the device arena may have; -1 for no limit">,
    Option<"iterations", "iterations", "int64_t", "4000000", "Search work of the arena solver">
  ];
}

def VerifyPlannedPass : Pass<"memopt-verify-planned", "::mlir::ModuleOp"> {
  let summary = "Reject a planned program with overlapping live buffers or missing offsets";
  let description = [{
    Recomputes the live range of every buffer from the instructions and checks, independently of the
    planner, that no two buffers alive at the same time share a byte unless one takes over the other in place.
  }];
}

#endif // MEMOPT_TRANSFORMS_PASSES_TD
