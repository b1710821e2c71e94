/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Runs the bundle of examples/attention.mlir on the CPU, and compares some rows with a computation
 * in double. Usage: attention attention.bundle */
#include "neptune_runtime.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { B = 2, H = 8, N = 1024, D = 64 };

static float *filled(unsigned seed) {
  float *data = malloc(sizeof *data * B * H * N * D);
  for (size_t k = 0; data && k < (size_t)B * H * N * D; ++k) {
    seed = seed * 1664525u + 1013904223u;
    data[k] = (float)(seed >> 8) / (float)(1 << 23) - 1.0f;
  }
  return data;
}

/* One row of causal attention with scores divided by 8, in double; the largest error of `found`. */
static double row_error(const float *q, const float *k, const float *v, const float *found,
                        size_t head, size_t row) {
  static double weights[N];
  double largest = -INFINITY, sum = 0, worst = 0;
  const size_t base = head * N * D;
  for (size_t j = 0; j <= row; ++j) {
    weights[j] = 0;
    for (size_t d = 0; d < D; ++d)
      weights[j] += (double)q[base + row * D + d] * k[base + j * D + d] / 8;
    largest = fmax(largest, weights[j]);
  }
  for (size_t j = 0; j <= row; ++j)
    sum += weights[j] = exp(weights[j] - largest);
  for (size_t d = 0; d < D; ++d) {
    double exact = 0;
    for (size_t j = 0; j <= row; ++j)
      exact += weights[j] / sum * v[base + j * D + d];
    worst = fmax(worst, fabs(exact - found[base + row * D + d]));
  }
  return worst;
}

int main(int argc, char **argv) {
  neptune_kernel *kernel;
  if (argc != 2) {
    fprintf(stderr, "usage: attention attention.bundle\n");
    return 2;
  }
  if (neptune_open(argv[1], &kernel)) {
    fprintf(stderr, "%s: %s\n", argv[1], neptune_error());
    return 1;
  }
  const int64_t shape[] = {B, H, N, D};
  float *data[4];
  neptune_array arrays[4];
  neptune_value arguments[3];
  for (unsigned n = 0; n < 4; ++n) {
    if (!(data[n] = filled(n + 1)))
      return 1;
    arrays[n] = (neptune_array){data[n], "f32", 4, shape, NULL};
    if (n < 3)
      arguments[n] = neptune_of(&arrays[n]);
  }
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  neptune_status status = neptune_call(kernel, arguments, 3, &arrays[3], 1, NULL);
  clock_gettime(CLOCK_MONOTONIC, &end);
  if (status) {
    fprintf(stderr, "%s: %s\n", neptune_status_name(status), neptune_error());
    return 1;
  }
  double worst = 0;
  for (size_t head = 0; head < B * H; head += 3)
    for (size_t row = 0; row < N; row += 101)
      worst = fmax(worst, row_error(data[0], data[1], data[2], data[3], head, row));
  printf("%s: error against f64 %.1e, %.1f ms\n", neptune_entry(kernel), worst,
         (double)(end.tv_sec - begin.tv_sec) * 1e3 + (double)(end.tv_nsec - begin.tv_nsec) / 1e6);
  neptune_close(kernel);
  for (unsigned n = 0; n < 4; ++n)
    free(data[n]);
  return worst < 1e-5 ? 0 : 1;
}
