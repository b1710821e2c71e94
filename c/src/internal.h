/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * What the files of the runtime share. */
#ifndef NEPTUNE_INTERNAL_H
#define NEPTUNE_INTERNAL_H

#include "neptune_runtime.h"

#include <stdbool.h>

/* ---- errors and memory (support.c) */

/* Notes a message for neptune_error; returns `status`. */
neptune_status np_fail(neptune_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Memory that is freed at once. `np_take` gives zeroed memory, or NULL. */
typedef struct np_arena {
  struct np_block *blocks;
} np_arena;
void *np_take(np_arena *arena, size_t count, size_t size);
void np_release(np_arena *arena);

/* A text of limited length that is put together. */
typedef struct np_text {
  char data[256];
  size_t used;
} np_text;
void np_add(np_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The SHA-256 of some bytes, in hexadecimal (65 chars). */
void np_sha256(const void *bytes, size_t size, char hex[65]);

/* ---- JSON (json.c) */

typedef enum np_kind { NP_NULL, NP_BOOL, NP_INT, NP_FLOAT, NP_STRING, NP_ARRAY, NP_OBJECT } np_kind;

typedef struct np_json {
  np_kind kind;
  int64_t integer;    /* of NP_INT and NP_BOOL */
  double number;      /* of NP_FLOAT */
  const char *string; /* of NP_STRING, ended by a zero */
  size_t count;       /* of NP_ARRAY and NP_OBJECT */
  struct np_json *items;
  const char **keys;
} np_json;

/* Parses text (not ended by a zero) into the arena; NULL, with a message, where it is no JSON. */
const np_json *np_parse(np_arena *arena, const char *text, size_t size);
/* A member of an object; NULL where there is none. */
const np_json *np_get(const np_json *object, const char *key);
/* The same, of a kind; NULL where it is of another. */
const np_json *np_get_kind(const np_json *object, const char *key, np_kind kind);
/* A whole number of 0 or more from an object; false where there is none. */
bool np_get_size(const np_json *object, const char *key, size_t *value);

/* ---- plans (plan.c, check.c) */

typedef struct np_number {
  bool is_float;
  int64_t i;
  double f;
} np_number;

typedef enum np_place_kind { NP_ARGUMENT, NP_CONSTANT, NP_BUFFER, NP_NOWHERE } np_place_kind;
typedef struct np_place {
  np_place_kind kind;
  size_t number;
} np_place;

typedef struct np_argument {
  bool is_array;
  const char *dtype, *name;
  int32_t rank;
  int64_t *shape; /* -1: known at a call only */
} np_argument;

typedef struct np_buffer {
  const char *dtype;
  int32_t rank;
  const np_json *shape; /* expressions */
  np_place of;
  int64_t pitch; /* elements; rows begin at multiples of it */
} np_buffer;

typedef struct np_constant {
  const char *dtype, *sha256;
  int32_t rank;
  int64_t *shape;
  const void *data;
  size_t size;
} np_constant;

typedef struct np_launch {
  const char *kernel;
  const np_json *grid;     /* expressions */
  const np_json *operands; /* lists that begin with their kind */
  const np_json *narrow;   /* where the L2 fetches 128 bytes at once; NULL: nowhere */
} np_launch;

typedef struct np_plan {
  const char *entry;
  size_t arguments, buffers, launches, results, constants, equal;
  np_argument *argument;
  np_buffer *buffer;
  np_launch *launch;
  np_place *result;
  np_constant *constant;
  const np_json *equals; /* pairs of expressions */
  size_t scratch;
} np_plan;

/* An array of a call. Strides count elements. */
typedef struct np_view {
  char *data;
  const char *dtype;
  int32_t rank;
  int64_t shape[NEPTUNE_MAX_RANK], strides[NEPTUNE_MAX_RANK];
} np_view;

/* What a call is given: the views of arrays and the numbers, by argument. `multiprocessors` is
 * that of the device, or the number of workers; -1: not known. */
typedef struct np_given {
  const np_plan *plan;
  np_view *views;
  np_number *numbers;
  int64_t multiprocessors;
} np_given;

/* Reads a plan (JSON text in JSON) and checks that it is one. */
neptune_status np_read_plan(np_arena *arena, const np_json *text, np_plan *plan);
/* The value of an expression. */
neptune_status np_evaluate(const np_json *expression, const np_given *given, np_number *value);
/* The same, as a whole number. */
neptune_status np_evaluate_int(const np_json *expression, const np_given *given, int64_t *value);
/* An expression as a person would write it. */
void np_describe(const np_json *expression, const np_plan *plan, np_text *text);
/* What a list such as ["buffer", 2] names; NP_NOWHERE where it is none of this plan. */
np_place np_place_of(const np_plan *plan, const np_json *reference);

/* Checks arguments against the plan; fills in `given->views` and `given->numbers`. */
neptune_status np_check(np_given *given, const neptune_value *arguments, size_t count);
/* Checks one array against a type and a shape (-1: any extent), and makes its view. */
neptune_status np_check_array(const neptune_array *array, const char *name, const char *dtype,
                              int32_t rank, const int64_t *shape, np_view *view);
/* The shape of each buffer of the plan, and the programs of each launch. */
neptune_status np_buffer_shape(const np_given *given, size_t buffer, int64_t *shape);
neptune_status np_programs(const np_given *given, size_t launch, int64_t *programs);
/* The type and shape of a result. */
neptune_status np_result_of(const np_given *given, size_t number, neptune_result *result);

/* ---- arrays (arrays.c) */

size_t np_size_of(const char *dtype); /* bytes of an element; 0: no type that is known */
int64_t np_elements(int32_t rank, const int64_t *shape); /* -1: too many */
void np_contiguous(int32_t rank, const int64_t *shape, int64_t *strides);
/* The strides of rows that begin at multiples of `pitch` elements; how many elements that takes. */
int64_t np_pitched(int32_t rank, const int64_t *shape, int64_t pitch, int64_t *strides);
bool np_is_contiguous(const np_view *view);
/* The first and past the last byte that an array touches. */
void np_span(const np_view *view, char **low, char **high);
bool np_is_apart(const np_view *one, const np_view *other);
/* Strides with which the same memory has another shape; false where it would have to be copied. */
bool np_reshaped(const np_view *view, int32_t rank, const int64_t *shape, int64_t *strides);
/* Copies elements; the shapes are equal. */
void np_copy(const np_view *target, const np_view *source);
void np_shape_text(np_text *text, int32_t rank, const int64_t *shape);

/* ---- bundles (bundle.c) */

struct neptune_kernel {
  np_arena arena;
  const char *target;
  np_plan plan;
  const np_json *facts;
  const np_json *data; /* where constants lie, by SHA-256 */
  unsigned char *bytes; /* the file */
  const unsigned char *code, *code_end, *data_begin;
  size_t code_size;
  struct np_cpu *cpu;   /* code that is loaded; NULL: for GPUs */
  struct np_cuda *cuda;
};

/* Gives the constants of a plan their bytes in the file. */
neptune_status np_find_constants(const neptune_kernel *kernel, np_plan *plan);
/* The plan of a part of a bundle (an image, a variant): its own where it has one. */
neptune_status np_plan_of(neptune_kernel *kernel, const np_json *facts, np_plan *plan);

/* ---- object files (elf.c) */

typedef struct np_object {
  void *memory;
  size_t size;
} np_object;

/* Loads a relocatable object; `addresses[k]` becomes that of function `names[k]`. */
neptune_status np_load_object(const unsigned char *bytes, size_t size, const char *const *names,
                              size_t count, np_object *object, void **addresses);
void np_unload_object(np_object *object);

/* ---- relocations of x86-64 and AArch64 (relocate.c) */

enum { NP_STUB = 16 }; /* bytes of a jump to a function elsewhere */

/* A relocation at `at`, behind which its section has `room` bytes: the address of its symbol, the
 * place of 8 bytes that hold it, a jump to it, and whether it is outside of the object. */
typedef struct np_relocation {
  uint32_t type;
  unsigned char *at;
  size_t room;
  uint64_t target, slot, stub;
  bool outside;
  int64_t addend;
} np_relocation;

neptune_status np_relocate(int machine, const np_relocation *relocation);
/* Writes a jump, of NP_STUB bytes at most, to the address that `slot` holds. */
void np_make_stub(int machine, unsigned char *stub, unsigned char *slot);

/* ---- CPUs (cpu.c, threads.c) */

neptune_status np_cpu_load(neptune_kernel *kernel);
void np_cpu_free(struct np_cpu *cpu);
neptune_status np_cpu_call(neptune_kernel *kernel, const np_given *given,
                           const neptune_array *results, size_t count);
int64_t np_workers(int32_t wanted);

typedef void np_task(void *data, int64_t *counter, void *scratch, int64_t size);
/* Runs a task on up to `workers` threads, this one among them; each gets `size` bytes of scratch
 * memory, aligned to 4096. */
neptune_status np_share(np_task *task, void *data, int64_t workers, size_t size);

/* ---- NVIDIA's GPUs (cuda.c, cuda_call.c) */

void np_cuda_free(struct np_cuda *cuda);
neptune_status np_cuda_requirements(neptune_kernel *kernel, const neptune_value *arguments,
                                    size_t count, neptune_result *results, size_t *workspace);
neptune_status np_cuda_call(neptune_kernel *kernel, const neptune_value *arguments, size_t count,
                            const neptune_array *results, size_t result_count,
                            const neptune_options *options);

#endif
