/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Runs bundles of neptune-mlir from C or C++: no Python, no compiler, no libraries but the C
 * library's (and NVIDIA's driver, opened when a bundle for GPUs is called). docs/c_runtime.md
 * explains it, examples/c has a program.
 *
 *   neptune_kernel *kernel;
 *   if (neptune_open("attention.bundle", &kernel))
 *     fprintf(stderr, "%s\n", neptune_error());
 *   neptune_value arguments[] = {neptune_of(&q), neptune_of(&k), neptune_of(&v)};
 *   neptune_call(kernel, arguments, 3, &o, 1, NULL);
 *   neptune_close(kernel);
 */
#ifndef NEPTUNE_RUNTIME_H
#define NEPTUNE_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NEPTUNE_MAX_RANK 16

/* What a function returns: 0, or why it did nothing. `neptune_error` has the text. */
typedef enum neptune_status {
  NEPTUNE_OK = 0,
  NEPTUNE_BAD_FILE = 1,     /* no bundle, a damaged one, or one that contradicts itself */
  NEPTUNE_BAD_ABI = 2,      /* made for another version of the runtime */
  NEPTUNE_BAD_MACHINE = 3,  /* its code is for another CPU or GPU */
  NEPTUNE_BAD_ARGUMENT = 4, /* arguments that the program does not take */
  NEPTUNE_NO_MEMORY = 5,
  NEPTUNE_NO_DRIVER = 6,    /* no driver of a GPU, or the driver reports an error */
  NEPTUNE_NO_SYMBOL = 7     /* the code calls a function that no library of this machine has */
} neptune_status;

/* The name of a status, such as "BAD_FILE". */
const char *neptune_status_name(neptune_status status);

/* What the last function of this thread that failed has to say: one line, valid until the next. */
const char *neptune_error(void);

/* A compiled function. Several threads may call one at a time. */
typedef struct neptune_kernel neptune_kernel;

/* Loads a bundle, from a file or from memory (which may be freed then). Code for CPUs is ready to
 * run after this; code for GPUs is loaded by the first call on a device. */
neptune_status neptune_open(const char *path, neptune_kernel **kernel);
neptune_status neptune_open_memory(const void *bytes, size_t size, neptune_kernel **kernel);
void neptune_close(neptune_kernel *kernel);

/* An array: `dtype` as in MLIR ("f32", "bf16", "i64", "i1": a byte), `strides` in elements
 * (NULL: row-major). The runtime keeps nothing of it. */
typedef struct neptune_array {
  void *data;
  const char *dtype;
  int32_t rank;
  const int64_t *shape;
  const int64_t *strides;
} neptune_array;

/* An argument: an array, or (where `array` is NULL) a number. */
typedef struct neptune_value {
  const neptune_array *array;
  int32_t is_float;
  int64_t integer;
  double number;
} neptune_value;

static inline neptune_value neptune_of(const neptune_array *array) {
  neptune_value value = {array, 0, 0, 0.0};
  return value;
}
static inline neptune_value neptune_integer(int64_t integer) {
  neptune_value value = {NULL, 0, integer, 0.0};
  return value;
}
static inline neptune_value neptune_number(double number) {
  neptune_value value = {NULL, 1, 0, number};
  return value;
}

/* What a function takes. An extent of -1 is known at a call only. */
typedef struct neptune_parameter {
  const char *name;
  const char *dtype;
  int32_t is_array;
  int32_t rank;
  const int64_t *shape;
} neptune_parameter;

const char *neptune_entry(const neptune_kernel *kernel);   /* the function's name */
const char *neptune_target(const neptune_kernel *kernel);  /* "cpu", "sm_90a", ... */
size_t neptune_argument_count(const neptune_kernel *kernel);
size_t neptune_result_count(const neptune_kernel *kernel);
/* Fills in what argument `number` is; BAD_ARGUMENT where there is none. */
neptune_status neptune_argument(const neptune_kernel *kernel, size_t number,
                                neptune_parameter *parameter);

/* What a call makes: the type and shape of a result. */
typedef struct neptune_result {
  const char *dtype;
  int32_t rank;
  int64_t shape[NEPTUNE_MAX_RANK];
} neptune_result;

/* The results (an array of neptune_result_count) and the bytes of workspace of a call. For GPUs
 * the workspace has to be given; for CPUs it is 0, and a call allocates what it needs. */
neptune_status neptune_requirements(neptune_kernel *kernel, const neptune_value *arguments,
                                    size_t count, neptune_result *results, size_t *workspace);

/* Options of a call; all zeros is good. */
typedef struct neptune_options {
  void *workspace;       /* GPUs: memory of the device, aligned to 256 bytes */
  size_t workspace_size;
  void *stream;          /* GPUs: a CUstream; NULL is the default stream */
  int32_t threads;       /* CPUs: how many may work; 0: NEPTUNE_NUM_THREADS, else all CPUs */
} neptune_options;

/* Runs the function into `results`, one array for each result. On CPUs it has run when this
 * returns; on GPUs its kernels have been enqueued. `options` may be NULL. */
neptune_status neptune_call(neptune_kernel *kernel, const neptune_value *arguments, size_t count,
                            const neptune_array *results, size_t result_count,
                            const neptune_options *options);

#ifdef __cplusplus
}
#endif
#endif
