/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * gpu BUNDLE CASE: one call of the bundle that test_c_runtime.py makes, on addresses that no one
 * reads or writes (the driver is c/test/fake_cuda.c). */
#include "neptune_runtime.h"

#include <stdio.h>
#include <string.h>

static int is(const char *one, const char *other) { return strcmp(one, other) == 0; }

int main(int argc, char **argv) {
  neptune_kernel *kernel;
  const char *test = argc == 3 ? argv[2] : "";
  if (argc != 3 || neptune_open(argv[1], &kernel)) {
    printf("%s\n", neptune_error());
    return 1;
  }
  int64_t shape[] = {300, 128}, strides[] = {256, 1}, rows[] = {128, 1};
  neptune_array x = {(void *)0x100000, "f16", 2, shape, strides};
  neptune_array y = {(void *)0x200000, "f16", 2, shape, rows};
  int64_t narrow[] = {300, 127}, wide[] = {512, 2}, same[] = {0, 1};
  neptune_options options = {(void *)0x800000, 3840, (void *)5, 0};
  if (is(test, "misaligned"))
    x.data = (void *)0x100002;
  if (is(test, "overlap"))
    y.data = (void *)0x100100;
  if (is(test, "no workspace"))
    options.workspace = NULL;
  if (is(test, "columns"))
    x.strides = wide;
  if (is(test, "shape"))
    x.shape = narrow;
  if (is(test, "expanded"))
    y.strides = same;
  neptune_value arguments[] = {neptune_of(&x), neptune_number(0.5)};
  neptune_result result;
  size_t workspace = 0;
  neptune_status status = NEPTUNE_OK;
  if (is(test, "call")) {
    status = neptune_requirements(kernel, arguments, 2, &result, &workspace);
    if (!status)
      printf("workspace %zu\n", workspace);
  }
  if (!status)
    status = neptune_call(kernel, arguments, 2, &y, 1, &options);
  printf("%s%s%s\n", neptune_status_name(status), status ? ": " : "", status ? neptune_error() : "");
  neptune_close(kernel);
  return 0;
}
