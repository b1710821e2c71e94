/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The file of a bundle (`runtime/bundle.py` says how it is made), and the functions of the header
 * that ask a kernel what it is. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[] = "neptune-bundle-1\n";
enum { MAGIC = 17, DIGEST = 32, START = MAGIC + DIGEST, ABI = 3 };

static neptune_status damaged(void) {
  return np_fail(NEPTUNE_BAD_FILE, "not a compiled bundle, or a damaged one; compile it again");
}

/* Takes the file apart: header, code, data. */
static neptune_status read_bundle(neptune_kernel *kernel, size_t size) {
  const unsigned char *bytes = kernel->bytes;
  if (size < START + 8 || memcmp(bytes, magic, MAGIC) != 0)
    return damaged();
  char found[65], stored[65];
  np_sha256(bytes + START, size - START, found);
  for (int k = 0; k < DIGEST; ++k)
    snprintf(stored + 2 * k, 3, "%02x", bytes[MAGIC + k]);
  if (memcmp(found, stored, 64) != 0)
    return damaged();
  uint64_t header = 0;
  for (int k = 7; k >= 0; --k)
    header = header << 8 | bytes[START + k];
  const unsigned char *text = bytes + START + 8;
  size_t left = size - START - 8;
  if (header > left)
    return damaged();
  const np_json *root = np_parse(&kernel->arena, (const char *)text, header);
  if (!root)
    return NEPTUNE_BAD_FILE;
  size_t abi = 1; /* bundles of the first ABI did not always say so */
  np_get_size(root, "abi", &abi);
  if (abi != ABI)
    return np_fail(NEPTUNE_BAD_ABI,
                   "the bundle was made for ABI %zu of the runtime, which has %d; compile it again",
                   abi, ABI);
  const np_json *target = np_get_kind(root, "target", NP_STRING);
  kernel->facts = np_get_kind(root, "facts", NP_OBJECT);
  kernel->data = np_get_kind(root, "data", NP_OBJECT);
  left -= header;
  if (!target || !kernel->facts || !kernel->data || !np_get_size(root, "code", &kernel->code_size) ||
      kernel->code_size > left)
    return damaged();
  kernel->target = target->string;
  kernel->code = text + header;
  kernel->data_begin = kernel->code + kernel->code_size;
  kernel->code_end = bytes + size;
  neptune_status status = np_read_plan(&kernel->arena, np_get(root, "plan"), &kernel->plan);
  return status ? status : np_find_constants(kernel, &kernel->plan);
}

neptune_status np_find_constants(const neptune_kernel *kernel, np_plan *plan) {
  size_t room = (size_t)(kernel->code_end - kernel->data_begin);
  for (size_t k = 0; k < plan->constants; ++k) {
    np_constant *c = &plan->constant[k];
    const np_json *place = np_get_kind(kernel->data, c->sha256, NP_ARRAY);
    bool is_pair = place && place->count == 2 && place->items[0].kind == NP_INT &&
                   place->items[1].kind == NP_INT;
    size_t begin = is_pair ? (size_t)place->items[0].integer : room + 1;
    c->size = (size_t)np_elements(c->rank, c->shape) * np_size_of(c->dtype);
    if (!is_pair || begin > room || c->size > room - begin ||
        (int64_t)c->size != place->items[1].integer)
      return np_fail(NEPTUNE_BAD_FILE, "the data of constant %zu is not in the bundle", k);
    c->data = kernel->data_begin + begin;
  }
  return NEPTUNE_OK;
}

neptune_status np_plan_of(neptune_kernel *kernel, const np_json *facts, np_plan *plan) {
  const np_json *own = np_get(facts, "plan");
  *plan = kernel->plan;
  if (!own)
    return NEPTUNE_OK;
  memset(plan, 0, sizeof *plan);
  neptune_status status = np_read_plan(&kernel->arena, own, plan);
  if (!status)
    status = np_find_constants(kernel, plan);
  if (!status && (plan->arguments != kernel->plan.arguments || plan->results != kernel->plan.results))
    return np_fail(NEPTUNE_BAD_FILE, "a part of the bundle takes or gives other arrays");
  return status;
}

neptune_status neptune_open_memory(const void *bytes, size_t size, neptune_kernel **result) {
  neptune_kernel *kernel = calloc(1, sizeof *kernel);
  *result = NULL;
  /* constants begin at multiples of 64 bytes of their part: kernels may count on 16 */
  if (!kernel || posix_memalign((void **)&kernel->bytes, 64, size + 64)) {
    free(kernel);
    return np_fail(NEPTUNE_NO_MEMORY, "no memory for a bundle of %zu bytes", size);
  }
  memcpy(kernel->bytes, bytes, size);
  neptune_status status = read_bundle(kernel, size);
  if (!status && strcmp(kernel->target, "cpu") == 0)
    status = np_cpu_load(kernel);
  else if (!status && !np_get_kind(kernel->facts, "images", NP_ARRAY))
    status = np_fail(NEPTUNE_BAD_MACHINE, "bundles for '%s' do not run here", kernel->target);
  if (status) {
    neptune_close(kernel);
    return status;
  }
  *result = kernel;
  return NEPTUNE_OK;
}

neptune_status neptune_open(const char *path, neptune_kernel **kernel) {
  *kernel = NULL;
  FILE *file = fopen(path, "rb");
  if (!file)
    return np_fail(NEPTUNE_BAD_FILE, "cannot open '%s'", path);
  size_t room = 1 << 16, used = 0;
  unsigned char *bytes = malloc(room);
  while (bytes) {
    used += fread(bytes + used, 1, room - used, file);
    if (used < room)
      break;
    unsigned char *more = realloc(bytes, room *= 2);
    if (!more)
      free(bytes);
    bytes = more;
  }
  bool failed = ferror(file);
  fclose(file);
  neptune_status status = !bytes   ? np_fail(NEPTUNE_NO_MEMORY, "no memory for '%s'", path)
                          : failed ? np_fail(NEPTUNE_BAD_FILE, "cannot read '%s'", path)
                                   : neptune_open_memory(bytes, used, kernel);
  free(bytes);
  return status;
}

void neptune_close(neptune_kernel *kernel) {
  if (!kernel)
    return;
  np_cpu_free(kernel->cpu);
  np_cuda_free(kernel->cuda);
  np_release(&kernel->arena);
  free(kernel->bytes);
  free(kernel);
}

const char *neptune_entry(const neptune_kernel *kernel) { return kernel->plan.entry; }
const char *neptune_target(const neptune_kernel *kernel) { return kernel->target; }
size_t neptune_argument_count(const neptune_kernel *kernel) { return kernel->plan.arguments; }
size_t neptune_result_count(const neptune_kernel *kernel) { return kernel->plan.results; }

neptune_status neptune_argument(const neptune_kernel *kernel, size_t number,
                                neptune_parameter *parameter) {
  if (number >= kernel->plan.arguments)
    return np_fail(NEPTUNE_BAD_ARGUMENT, "there is no argument %zu", number);
  const np_argument *a = &kernel->plan.argument[number];
  *parameter = (neptune_parameter){a->name, a->dtype, a->is_array, a->rank, a->shape};
  return NEPTUNE_OK;
}

/* ---- calls */

static neptune_status check(neptune_kernel *kernel, np_arena *arena,
                            const neptune_value *arguments, size_t count, int64_t workers,
                            np_given *given) {
  given->plan = &kernel->plan;
  given->multiprocessors = workers;
  given->views = np_take(arena, kernel->plan.arguments, sizeof *given->views);
  given->numbers = np_take(arena, kernel->plan.arguments, sizeof *given->numbers);
  if (!given->views || !given->numbers)
    return np_fail(NEPTUNE_NO_MEMORY, "no memory for a call");
  return np_check(given, arguments, count);
}

neptune_status neptune_requirements(neptune_kernel *kernel, const neptune_value *arguments,
                                    size_t count, neptune_result *results, size_t *workspace) {
  if (!kernel->cpu)
    return np_cuda_requirements(kernel, arguments, count, results, workspace);
  np_arena arena = {NULL};
  np_given given;
  neptune_status status = check(kernel, &arena, arguments, count, np_workers(0), &given);
  for (size_t k = 0; !status && k < kernel->plan.results; ++k)
    status = np_result_of(&given, k, &results[k]);
  if (workspace)
    *workspace = 0;
  np_release(&arena);
  return status;
}

neptune_status neptune_call(neptune_kernel *kernel, const neptune_value *arguments, size_t count,
                            const neptune_array *results, size_t result_count,
                            const neptune_options *options) {
  static const neptune_options plain;
  options = options ? options : &plain;
  if (result_count != kernel->plan.results)
    return np_fail(NEPTUNE_BAD_ARGUMENT, "%zu arrays were given for %zu results", result_count,
                   kernel->plan.results);
  if (!kernel->cpu)
    return np_cuda_call(kernel, arguments, count, results, result_count, options);
  np_arena arena = {NULL};
  np_given given;
  neptune_status status =
      check(kernel, &arena, arguments, count, np_workers(options->threads), &given);
  if (!status)
    status = np_cpu_call(kernel, &given, results, result_count);
  np_release(&arena);
  return status;
}
