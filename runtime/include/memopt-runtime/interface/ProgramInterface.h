/*===- ProgramInterface.h - what a compiled program and the runtime share --*- C -*-===
 *
 * Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
 * See LICENSE for license information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===
 *
 * The one interface between `program.so` of a package and the runtime that loads it. It is plain C
 * with fixed-size fields. Whoever changes the meaning of a field raises
 * MEMOPT_PROGRAM_INTERFACE_VERSION; the runtime refuses a program of another version and names
 * both.
 *
 * A program exports (entry points are listed in ProgramEntryPoints.def):
 *   const uint32_t memopt_program_version              the version it was compiled for
 *   int32_t memopt_program_step(const memopt_step *)   runs one step; memopt_program_step_2 one of the
 *                                                      second program of a package, and so on
 * and, since packages have a digest, MEMOPT_PROGRAM_DIGEST_SYMBOL:
 *   const char memopt_program_digest[]                 that of the manifest, ended by a zero
 *
 * Memory: a program owns none and has no state of its own: one program may run in several sessions
 * at once. Every buffer is arena[space] + a constant that the compiler chose. Where the package has
 * a device image, memory of the device's space belongs to the image's kernels and to library calls:
 * the program passes its addresses on and does not follow them.
 *
 * Threads: one thread calls step; bodies given to parallel_for run on the session's threads and
 * touch disjoint bytes. All functions of the table but parallel_for belong to the thread that runs
 * the step.
 *
 * Repetition: every step calls the same functions with the same arguments in the same order, until
 * it is left, and so does every iteration of the repeat that reads inputs. With a device image the
 * runtime may therefore replay what it has seen once, without the program; a program that works
 * on the host between its launches, which parallel_for shows, is called for each step.
 *
 * Leaving: a function that answers int32_t answers 0 to go on; on anything else the program returns
 * that answer at once. What it started and did not wait for is the runtime's to finish. Before
 * `commit` has answered 0 a program writes no variable whose value lasts from step to step.
 *
 *===----------------------------------------------------------------------===*/

#ifndef MEMOPT_RUNTIME_INTERFACE_PROGRAMINTERFACE_H
#define MEMOPT_RUNTIME_INTERFACE_PROGRAMINTERFACE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a program is compiled for, and the oldest that still runs: the table only grew since. */
#define MEMOPT_PROGRAM_INTERFACE_VERSION 5
#define MEMOPT_PROGRAM_INTERFACE_OLDEST 4
#define MEMOPT_PROGRAM_DIGEST_SYMBOL "memopt_program_digest"

/* Indices into memopt_step::arena. What lies on a disk has no address; the manifest counts it. */
enum { MEMOPT_SPACE_DEVICE = 0, MEMOPT_SPACE_HOST = 1, MEMOPT_SPACE_COUNT = 2 };

struct memopt_runtime_functions;

/* Everything that a step knows; the same at every step of a session. */
typedef struct memopt_step {
  void *session; /* opaque to the program, handed back to every runtime function */
  const struct memopt_runtime_functions *runtime;
  char *arena[MEMOPT_SPACE_COUNT]; /* base addresses, 64-byte aligned; null where the program uses
                                      no such space */
} memopt_step;

typedef void (*memopt_loop_body)(void *closure, int64_t begin, int64_t end);

typedef struct memopt_runtime_functions {
  uint32_t version; /* MEMOPT_PROGRAM_INTERFACE_VERSION */
  uint32_t size;    /* sizeof(memopt_runtime_functions) */

  /* Runs body over [0, count), cut into pieces of at least `grain` iterations; returns when all are
   * done. The pieces' bounds never change results: a body's work on one iteration does not depend
   * on its piece. Bodies call no function of this table but parallel_for. */
  void (*parallel_for)(void *session, int64_t count, int64_t grain, memopt_loop_body body,
                       void *closure);

  /* Runs entry `call` of the manifest's library_calls. `buffers` holds the call's operands, then
   * its results, then its workspace (null when it needs none). */
  int32_t (*library_call)(void *session, int64_t call, void *const *buffers);

  /* Puts kernel `kernel` of the manifest's kernels on its way: `blocks` of `threads` each, with
   * `shared_bytes` of shared memory beside what the kernel declares itself. `arguments` holds the
   * address of each parameter's value; the values are read before it returns. Kernels and library
   * calls run in the order of their calls; a transfer begins behind those before its start, and
   * those after its wait begin when it is done. Only in packages with a device image. */
  int32_t (*launch)(void *session, int32_t kernel, int32_t blocks, int32_t threads,
                    int32_t shared_bytes, void *const *arguments);

  /* Called once in a step, when the loss is in its place and before any state changes. A nonzero
   * answer leaves the step, and the state is as it was. */
  int32_t (*commit)(void *session);

  /* Called at the begin of each iteration (from 0) of the repeat that reads inputs: puts the
   * iteration's samples into the inputs that the manifest's region names, and writes the variables
   * that go with them. A program without such a repeat finds its inputs filled when its step
   * begins. */
  int32_t (*next_batch)(void *session, int64_t iteration);

  /* Begins entry `transfer` of the manifest's transfers; until its wait the program touches neither
   * end. Those of one resource run in the order of their starts. A transfer that was started is
   * waited for before it is started again. */
  int32_t (*start)(void *session, int64_t transfer);
  /* Returns when the transfer is done; its failure is the answer here. */
  int32_t (*wait)(void *session, int64_t transfer);

  /* Does entry `collective` of the manifest's collectives with the other ranks; all of them call
   * in the same order. Returns when the result is there and the operand is free. */
  int32_t (*collective)(void *session, int64_t collective);

  /* Called before instruction `index` of the manifest's list, and with the number of instructions
   * after the last, by programs compiled to be watched (the manifest's `instrumented`) and by no
   * others. In a repeat the indices of its body come again at each iteration. */
  int32_t (*begin_instruction)(void *session, int64_t index);

  /* Since version 5. Begins entry `collective`, which runs beside the program; until its wait the program touches neither end. All,
   * these and those of `collective`, run one after the other in the order of their calls. One that
   * was started is waited for before it is started again. */
  int32_t (*start_collective)(void *session, int64_t collective);
  /* Returns when it is done; its failure is the answer here. */
  int32_t (*wait_for_collective)(void *session, int64_t collective);
} memopt_runtime_functions;

#ifdef __cplusplus
}
#endif

#endif /* MEMOPT_RUNTIME_INTERFACE_PROGRAMINTERFACE_H */
