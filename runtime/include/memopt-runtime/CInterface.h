/*===- CInterface.h - the runtime for other languages -----------*- C -*-===
 *
 * Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
 * See LICENSE for license information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===
 *
 * The functions of libmemopt_runtime.so: a package is opened as a session, its variables are
 * written and read, and steps run on batches that lie in the caller's memory. What tensors there
 * are, with their names, types, shapes and roles, stands in the package's manifest, which is JSON
 * (docs/Package.md).
 *
 *   memopt_session *session;
 *   memopt_error error;
 *   if (memopt_session_open("model.memopt", NULL, &session, &error)) { error.message ... }
 *   memopt_session_initialize(session, MEMOPT_INIT_WEIGHTS, 0, &error);
 *   memopt_session_run_step(session, views, 1, &error);
 *   memopt_session_read(session, MEMOPT_OUTPUT, "loss", &loss, sizeof loss, &error);
 *   memopt_session_close(session);
 *
 * Errors       Functions that can fail return a code and fill `error`, which may be NULL; it need
 *              not be initialized, and is to be cleared after a failure. No exception and no signal
 *              crosses this border. A failure leaves a session usable and its state as it was, but
 *              for what a failed write or load was to fill: that has to be given anew.
 * Ownership    The caller owns what it passes, and needs to keep it until the call returns. What a
 *              session gives out lives until the session is closed.
 * Threads      One thread at a time uses a session; any number of sessions are used at once. The
 *              session's own threads leave all signals to the caller's.
 * Trust        Opening a package runs native code from it.
 *
 * A process that has libraries of its own with OpenMP opens this library with RTLD_LOCAL and
 * RTLD_DEEPBIND: oneDNN's calls of OpenMP have to end here (OpenMpTeam.h). Where they do not, a
 * session is refused.
 *
 *===----------------------------------------------------------------------===*/

#ifndef MEMOPT_RUNTIME_CINTERFACE_H
#define MEMOPT_RUNTIME_CINTERFACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a struct or function changes; functions that are only added do not raise it. */
#define MEMOPT_C_VERSION 2

/* The version of the library that was loaded. */
int32_t memopt_c_version(void);

/*===-- Errors ------------------------------------------------------------===*/

/* The numbers are the exit codes of the tools. */
enum memopt_code {
  MEMOPT_OK = 0,
  MEMOPT_BAD_INPUT = 1,   /* what the caller gave is wrong */
  MEMOPT_ENVIRONMENT = 3, /* the machine lacks something: memory, disk space, a library */
  MEMOPT_NOT_FINITE = 4,  /* the loss, or what an update left, is infinite or not a number; for a
                             loss `is_loss_refused` is 1, too */
};

typedef struct memopt_error {
  int32_t code;            /* of enum memopt_code */
  int32_t is_loss_refused; /* 1: the step was left because its loss is not finite */
  int64_t step;            /* the step that failed, counted from 1; 0 outside of steps */
  char *message;           /* UTF-8, without a newline; NULL after success */
} memopt_error;

/* Frees the message. */
void memopt_error_clear(memopt_error *error);

/*===-- Sessions ----------------------------------------------------------===*/

typedef struct memopt_session memopt_session;

/* Fields are only added, at the end: what a caller's `size` does not reach has the value 0. */
typedef struct memopt_session_options {
  size_t size;             /* sizeof(memopt_session_options) where the caller was compiled */
  const char *device;      /* "cpu" or "cuda"; NULL: "cpu" */
  int32_t threads;         /* at most as many as were planned; 0: what the process may use */
  int32_t continue_on_nan; /* 0: a step whose loss is not finite changes nothing and fails */
  int32_t joins_ranks;     /* 1: this process is the rank that a launcher says (see below) */
  int32_t check_memory;    /* 1: what is used is observed: memopt_session_get_used_bytes */
  double rank_seconds;     /* how long to wait for other ranks; 0: 300 */
  const char *disk_folder; /* where the file of what lies on disk is made; NULL: as compiled */
} memopt_session_options;

/* Whether torchrun, mpirun or srun has made this process one of several ranks, by the variables of
   its environment; else rank 0 of 1. */
int32_t memopt_find_rank(int64_t *rank, int64_t *ranks, memopt_error *error);

/* With `joins_ranks` a package that was compiled for so many ranks is run by all of them together.
   Each gives its own batches, and gets the loss over all; all make the same calls in the same
   order. Variables that ranks have parts of are whole where they are written and read. A call that
   fails ends the work of all ranks, but for a loss that is not finite, which all see. Programs that
   evaluate run on each rank alone. The first writes checkpoints, all call memopt_session_save.
   Ranks of several hosts meet over MPI or UCX, by a plugin beside this library, and all open their
   sessions in the same order. */

/* Opens NAME.memopt: allocates its arenas and prepares its library calls. `options` may be NULL. */
int32_t memopt_session_open(const char *package, const memopt_session_options *options,
                            memopt_session **session, memopt_error *error);

/* With check_memory: the end of the highest byte of a space ("device", "host", "disk") that the
   chosen program has written, or handed to a library. -1: there is no such space. */
int64_t memopt_session_get_used_bytes(const memopt_session *session, const char *space);

/* Records the timeline of the chosen program's next steps, with room for so many. Of a program that
   was compiled without --instrument this fails. */
int32_t memopt_session_begin_trace(memopt_session *session, int64_t steps, memopt_error *error);

/* Ends it, and writes it for Perfetto or chrome://tracing, unless `path` is NULL. */
int32_t memopt_session_write_trace(memopt_session *session, const char *path, memopt_error *error);

/* Frees everything; NULL is allowed. */
void memopt_session_close(memopt_session *session);

/* The text of the package's manifest.json. */
const char *memopt_session_get_manifest(const memopt_session *session);

/*===-- Programs ----------------------------------------------------------===*/

/* A package may have several programs over one state, in one arena: "programs" of the first one's
   manifest names them, and that manifest has all of the state. Calls speak of the program that was
   chosen, at first the first: its manifest, its inputs and outputs, its rates. What lies above the
   state, outputs too, is lost when another program runs. */
int64_t memopt_session_count_programs(const memopt_session *session);
int32_t memopt_session_choose_program(memopt_session *session, int64_t number, memopt_error *error);

/* Adds a package that was compiled with --state for this session's as its last program. Where its
   arena is the larger one the session gets one of that size, with the state as it is. */
int32_t memopt_session_add_program(memopt_session *session, const char *package,
                                   memopt_error *error);

/*===-- Variables ---------------------------------------------------------===*/

enum memopt_init {
  MEMOPT_INIT_WEIGHTS = 0, /* what the package says; tensors without values are to be written */
  MEMOPT_INIT_RANDOM = 1,  /* as memopt-run --init=random: parameters follow from seed and name */
};

/* Gives all variables their first values, and begins at step 0 with this seed. */
int32_t memopt_session_initialize(memopt_session *session, int32_t init, int64_t seed,
                                  memopt_error *error);

/* A tensor in the caller's memory. */
typedef struct memopt_view {
  const void *data;       /* element [0, 0, ...]; any alignment */
  const char *dtype;      /* "f32", "i64", ... as in manifests */
  const int64_t *shape;   /* `rank` numbers */
  const int64_t *strides; /* in elements, `rank` numbers; NULL: row-major without gaps */
  int64_t rank;
} memopt_view;

/* Copies a tensor into a variable, as steps do with inputs. Shapes must be equal. The type may be a
   narrower floating-point type, or another integer type that has all the values. */
int32_t memopt_session_write(memopt_session *session, const char *variable, const memopt_view *view,
                             memopt_error *error);

enum memopt_kind { MEMOPT_INPUT = 0, MEMOPT_OUTPUT = 1, MEMOPT_VARIABLE = 2 };

/* Copies a tensor out, row-major; `bytes` must be its size. Outputs are those of the last step. */
int32_t memopt_session_read(memopt_session *session, int32_t kind, const char *name, void *target,
                            int64_t bytes, memopt_error *error);

/* Sets the learning rate "lr", that of a group of parameters, "lr.1", "lr.2", ..., or another
   number of the optimizer that is an input of the program, "hyperparameter.beta1" say, from the
   next step on. Until then it is the one that was compiled. */
int32_t memopt_session_set_rate(memopt_session *session, const char *variable, double rate,
                                memopt_error *error);

/*===-- Steps -------------------------------------------------------------===*/

/* Runs one step. `views` holds the inputs of `batches` batches, those of one after those of
   another, each in the manifest's order. As many batches as the step accumulates; each has
   `micro_batches` times the samples of the manifest's inputs along their batch_dim. */
int32_t memopt_session_run_step(memopt_session *session, const memopt_view *views, int64_t batches,
                                memopt_error *error);

/* Steps done since the first values; draws and bias corrections follow from it. */
int64_t memopt_session_get_step(const memopt_session *session);
void memopt_session_set_step(memopt_session *session, int64_t step);

/* Seconds that the last step took, without the copies of its batches. */
double memopt_session_get_step_seconds(const memopt_session *session);

/*===-- Checkpoints -------------------------------------------------------===*/

/* Writes and reads the folders of memopt-run's --save and --load, with which runs go on. */
int32_t memopt_session_save(memopt_session *session, const char *folder, memopt_error *error);
int32_t memopt_session_load(memopt_session *session, const char *folder, memopt_error *error);

/* A tensor of a file. */
typedef struct memopt_named_view {
  const char *name;
  memopt_view view;
} memopt_named_view;

/* Writes such a folder from tensors that are those of no session: `models` ones of the model, and
   `optimizers` ones of its optimizer by the names that variables have. `state` is the text of its
   state.json. As with every save, a failure leaves the checkpoint that was there. */
int32_t memopt_checkpoint_write(const char *folder, const memopt_named_view *model, int64_t models,
                                const memopt_named_view *optimizer, int64_t optimizers,
                                const char *state, memopt_error *error);

/*===-- What a step was compiled for --------------------------------------===*/

/* Words of the caller's process that are to be what they were: attributes of a model's objects, say,
   of which there may be hundreds to compare before each step. Word i is what
   `look_up(tables[i], keys[i])` gives, or without `look_up` what lies at `tables[i]`. */
typedef struct memopt_watched {
  void *(*look_up)(void *table, void *key);
  void *const *tables;
  void *const *keys;        /* NULL where they are all NULL */
  const uintptr_t *values;  /* what the words were */
  uintptr_t mask;           /* the bits of a word that count */
  int64_t count;            /* of words */
  int32_t is_table_pointed; /* 1: tables[i] is where the pointer to the table lies */
} memopt_watched;

/* 1 where the words of all parts are what they were, or else 0. Holds no lock, and calls `look_up`
   alone. Behind a part that differs nothing is read, so that a part may lie where one before says. */
int32_t memopt_are_unchanged(const memopt_watched *parts, int64_t count);

#ifdef __cplusplus
}
#endif

#endif /* MEMOPT_RUNTIME_CINTERFACE_H */
