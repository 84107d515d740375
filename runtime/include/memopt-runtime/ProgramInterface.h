/*===- ProgramInterface.h - what a compiled program and the runtime share --*- C -*-===
 *
 * Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
 * See LICENSE for license information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===
 *
 * The one interface between `program.so` of a package and the runtime that loads it. It is plain C with
 * fixed-size fields. Whoever changes the meaning of a field raises MEMOPT_PROGRAM_INTERFACE_VERSION; the
 * runtime refuses a program of another version and names both.
 *
 * A program exports (entry points are listed in ProgramEntryPoints.def):
 *   const uint32_t memopt_program_version      the version it was compiled for
 *   void memopt_program_bind(const memopt_runtime_functions *)   called once, before any step; the table
 *                                              outlives the program
 *   int32_t memopt_program_step(const memopt_step *)             runs one step
 *
 * Threads: one thread calls step; bodies given to parallel_for run on the runtime's threads and touch
 * disjoint bytes. Memory: a program owns none. Every buffer is arena[space] + a constant that the compiler chose.
 *
 *===----------------------------------------------------------------------===*/

#ifndef MEMOPT_RUNTIME_PROGRAMINTERFACE_H
#define MEMOPT_RUNTIME_PROGRAMINTERFACE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MEMOPT_PROGRAM_INTERFACE_VERSION 1

/* Indices into memopt_step::arena. */
enum { MEMOPT_SPACE_DEVICE = 0, MEMOPT_SPACE_HOST = 1, MEMOPT_SPACE_COUNT = 2 };

typedef struct memopt_step {
  void *session;                    /* opaque to the program, handed back to every runtime function */
  char *arena[MEMOPT_SPACE_COUNT];  /* base addresses, 64-byte aligned; null where the program uses no such space */
} memopt_step;

typedef void (*memopt_loop_body)(void *closure, int64_t begin, int64_t end);

typedef struct memopt_runtime_functions {
  uint32_t version;  /* MEMOPT_PROGRAM_INTERFACE_VERSION */
  uint32_t size;     /* sizeof(memopt_runtime_functions) */

  /* Called before instruction `index` of the manifest's list, and with the number of instructions after the
   * last. A nonzero answer leaves the step at once; step returns it. */
  int32_t (*begin_instruction)(void *session, int64_t index);

  /* Runs body over [0, count), cut into pieces of at least `grain` iterations; returns when all are done. The
   * pieces' bounds never change results: a body's work on one iteration does not depend on its piece. */
  void (*parallel_for)(int64_t count, int64_t grain, memopt_loop_body body, void *closure);

  /* Runs entry `call` of the manifest's library_calls. `buffers` holds the call's operands, then its results,
   * then its workspace (null when it needs none). Returns 0, or nonzero to leave the step. */
  int32_t (*library_call)(void *session, int64_t call, void *const *buffers);
} memopt_runtime_functions;

#ifdef __cplusplus
}
#endif

#endif /* MEMOPT_RUNTIME_PROGRAMINTERFACE_H */
