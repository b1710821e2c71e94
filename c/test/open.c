/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * open FILE...: the status and the message of opening each.
 * open --mutate COUNT SEED FILE: opens copies with wrong bytes whose hash is right, so that all
 * that reads a file meets damage. Prints how often each status came. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned next_random(unsigned *state) { return *state = *state * 1664525u + 1013904223u; }

static int mutate(int count, unsigned seed, const char *path) {
  enum { START = 49 };
  static unsigned char bytes[1 << 22], copy[1 << 22];
  int seen[16] = {0};
  char hex[65];
  FILE *file = fopen(path, "rb");
  size_t size = file ? fread(bytes, 1, sizeof bytes, file) : 0;
  if (size <= START + 8)
    return 2;
  fclose(file);
  uint64_t header = 0;
  for (int k = 7; k >= 0; --k)
    header = header << 8 | bytes[START + k];
  const size_t code = START + 8 + header;
  const size_t tables = code + (size - code) / 2; /* where an object has its tables, about */
  for (int n = 0; n < count; ++n) {
    neptune_kernel *kernel;
    memcpy(copy, bytes, size);
    unsigned changes = 1 + next_random(&seed) / 65536 % 3;
    for (unsigned c = 0; c < changes; ++c) {
      unsigned where = next_random(&seed) / 65536 % 8, random = next_random(&seed) >> 4;
      size_t at = where < 2   ? START + 8 + random % header
                  : where < 4 ? code + random % 64
                  : where < 7 ? tables + random % (size - tables)
                              : code + random % (size - code);
      unsigned kind = next_random(&seed) / 65536 % 3;
      copy[at] = (unsigned char)(kind == 0 ? 0xff : kind == 1 ? 0 : random >> 3);
    }
    np_sha256(copy + START, size - START, hex);
    for (int k = 0; k < 32; ++k) {
      unsigned byte;
      sscanf(hex + 2 * k, "%2x", &byte);
      copy[17 + k] = (unsigned char)byte;
    }
    neptune_status status = neptune_open_memory(copy, size, &kernel);
    ++seen[status];
    if (status && !*neptune_error())
      return 3; /* an error without a message */
    neptune_close(kernel);
  }
  for (int k = 0; k < 8; ++k)
    if (seen[k])
      printf("%s %d\n", neptune_status_name((neptune_status)k), seen[k]);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 5 && strcmp(argv[1], "--mutate") == 0)
    return mutate(atoi(argv[2]), (unsigned)atoi(argv[3]), argv[4]);
  for (int k = 1; k < argc; ++k) {
    neptune_kernel *kernel;
    neptune_status status = neptune_open(argv[k], &kernel);
    printf("%s: %s\n", neptune_status_name(status), status ? neptune_error() : "");
    neptune_close(kernel);
  }
  return 0;
}
