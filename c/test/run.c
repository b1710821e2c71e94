/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * run BUNDLE ARGUMENTS RESULTS: one call on the CPU with arguments from a file. For each argument of
 * the plan that file has 64-bit words, and elements behind them: of an array its rank, extents and
 * bytes of elements; of a number -1 (a whole one) or -2 (a float), and itself. The results go to
 * the other file as their elements, one after another. For machines without Python. */
#include "neptune_runtime.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 64, LIMIT = 1 << 26 };

static int fail(const char *what) {
  printf("%s: %s\n", what, neptune_error());
  return 1;
}

static int64_t word(FILE *file) {
  int64_t value = 0;
  return fread(&value, sizeof value, 1, file) == 1 ? value : -3;
}

int main(int argc, char **argv) {
  static neptune_array arrays[MOST], results[MOST];
  static int64_t shapes[MOST][NEPTUNE_MAX_RANK];
  static neptune_value values[MOST];
  static neptune_result needed[MOST];
  neptune_kernel *kernel;
  if (argc != 4 || neptune_open(argv[1], &kernel))
    return fail("open");
  FILE *in = fopen(argv[2], "rb"), *out = fopen(argv[3], "wb");
  size_t count = neptune_argument_count(kernel), made = neptune_result_count(kernel);
  if (!in || !out || count > MOST || made > MOST)
    return fail("files");
  for (size_t k = 0; k < count; ++k) {
    int64_t rank = word(in);
    neptune_parameter wanted;
    if (neptune_argument(kernel, k, &wanted) || rank < -2 || rank > NEPTUNE_MAX_RANK)
      return fail("argument");
    if (rank < 0) {
      int64_t bits = word(in);
      double number;
      __builtin_memcpy(&number, &bits, sizeof number);
      values[k] = rank == -1 ? neptune_integer(bits) : neptune_number(number);
      continue;
    }
    for (int64_t d = 0; d < rank; ++d)
      shapes[k][d] = word(in);
    int64_t bytes = word(in);
    void *data = bytes >= 0 && bytes < LIMIT ? malloc((size_t)bytes + 1) : NULL;
    if (!data || fread(data, 1, (size_t)bytes, in) != (size_t)bytes)
      return fail("elements");
    arrays[k] = (neptune_array){data, wanted.dtype, (int32_t)rank, shapes[k], NULL};
    values[k] = neptune_of(&arrays[k]);
  }
  if (neptune_requirements(kernel, values, count, needed, NULL))
    return fail("requirements");
  size_t bytes[MOST];
  for (size_t k = 0; k < made; ++k) {
    size_t elements = 1, width = 4;
    for (int32_t d = 0; d < needed[k].rank; ++d)
      elements *= (size_t)needed[k].shape[d];
    for (const char *at = needed[k].dtype; *at; ++at)
      if (*at >= '0' && *at <= '9') {
        width = (size_t)(atoi(at) + 7) / 8;
        break;
      }
    bytes[k] = elements * width;
    results[k] = (neptune_array){malloc(bytes[k] + 1), needed[k].dtype, needed[k].rank,
                                 needed[k].shape, NULL};
  }
  neptune_options options = {NULL, 0, NULL, 2};
  if (neptune_call(kernel, values, count, results, made, &options))
    return fail("call");
  for (size_t k = 0; k < made; ++k) {
    fwrite(results[k].data, 1, bytes[k], out);
    free(results[k].data);
  }
  for (size_t k = 0; k < count; ++k)
    free(arrays[k].data);
  fclose(in);
  neptune_close(kernel);
  return fclose(out) != 0;
}
