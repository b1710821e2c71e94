/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Messages, memory, and SHA-256. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char message[512];

const char *neptune_error(void) { return message; }

neptune_status np_fail(neptune_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return status;
}

const char *neptune_status_name(neptune_status status) {
  static const char *const names[] = {"OK",           "BAD_FILE",  "BAD_ABI",   "BAD_MACHINE",
                                      "BAD_ARGUMENT", "NO_MEMORY", "NO_DRIVER", "NO_SYMBOL"};
  return (size_t)status < sizeof names / sizeof *names ? names[status] : "unknown";
}

struct np_block {
  struct np_block *next;
  _Alignas(16) unsigned char data[];
};

void *np_take(np_arena *arena, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2)
    return NULL;
  struct np_block *block = calloc(1, sizeof *block + bytes + 1);
  if (!block)
    return NULL;
  block->next = arena->blocks;
  arena->blocks = block;
  return block->data;
}

void np_release(np_arena *arena) {
  while (arena->blocks) {
    struct np_block *next = arena->blocks->next;
    free(arena->blocks);
    arena->blocks = next;
  }
}

void np_add(np_text *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  size_t room = sizeof text->data - text->used;
  int written = vsnprintf(text->data + text->used, room, format, arguments);
  va_end(arguments);
  if (written > 0)
    text->used += (size_t)written < room ? (size_t)written : room - 1;
}

/* ---- SHA-256 (FIPS 180-4) */

static const uint32_t rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotated(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void digest_block(uint32_t state[8], const unsigned char *block) {
  uint32_t w[64], s[8];
  for (int k = 0; k < 16; ++k)
    w[k] = (uint32_t)block[4 * k] << 24 | (uint32_t)block[4 * k + 1] << 16 |
           (uint32_t)block[4 * k + 2] << 8 | block[4 * k + 3];
  for (int k = 16; k < 64; ++k) {
    uint32_t a = w[k - 15], b = w[k - 2];
    w[k] = w[k - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) + w[k - 7] +
           (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
  }
  memcpy(s, state, sizeof s);
  for (int k = 0; k < 64; ++k) {
    uint32_t one = s[7] + (rotated(s[4], 6) ^ rotated(s[4], 11) ^ rotated(s[4], 25)) +
                   ((s[4] & s[5]) ^ (~s[4] & s[6])) + rounds[k] + w[k];
    uint32_t two = (rotated(s[0], 2) ^ rotated(s[0], 13) ^ rotated(s[0], 22)) +
                   ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += one;
    s[0] = one + two;
  }
  for (int k = 0; k < 8; ++k)
    state[k] += s[k];
}

void np_sha256(const void *bytes, size_t size, char hex[65]) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const unsigned char *at = bytes;
  size_t left = size;
  for (; left >= 64; left -= 64, at += 64)
    digest_block(state, at);
  unsigned char last[128] = {0};
  if (left)
    memcpy(last, at, left);
  last[left] = 0x80;
  size_t end = left < 56 ? 64 : 128;
  for (int k = 0; k < 8; ++k)
    last[end - 1 - k] = (unsigned char)((uint64_t)size * 8 >> 8 * k);
  for (size_t k = 0; k < end; k += 64)
    digest_block(state, last + k);
  for (int k = 0; k < 8; ++k)
    snprintf(hex + 8 * k, 9, "%08x", (unsigned)state[k]);
}
