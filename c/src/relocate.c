/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Relocations of x86-64 and AArch64, and jumps to functions that are far away: bytes alone, so that
 * both are compiled, and tested, on either machine. */
#include "internal.h"

#include <elf.h>
#include <string.h>

#ifndef R_X86_64_REX_GOTPCRELX
#define R_X86_64_GOTPCRELX 41
#define R_X86_64_REX_GOTPCRELX 42
#endif

static neptune_status wrong(const char *what) {
  return np_fail(NEPTUNE_BAD_FILE, "the code of the bundle is wrong: %s", what);
}

static neptune_status put(const np_relocation *r, int64_t value, size_t bytes) {
  if (bytes > r->room)
    return wrong("a relocation that leaves its section");
  if (bytes == 4 && (value < INT32_MIN || value > INT32_MAX))
    return wrong("a distance that does not fit 32 bits");
  memcpy(r->at, &value, bytes);
  return NEPTUNE_OK;
}

static neptune_status unknown(const np_relocation *r) {
  return np_fail(NEPTUNE_BAD_FILE, "the code has relocations of type %u, which this loader lacks",
                 r->type);
}

/* ---- x86-64 */

static neptune_status relocate_x86(const np_relocation *r) {
  uint64_t at = (uint64_t)(uintptr_t)r->at;
  switch (r->type) {
  case R_X86_64_NONE:
    return NEPTUNE_OK;
  case R_X86_64_64:
    return put(r, (int64_t)r->target + r->addend, 8);
  case R_X86_64_PC64:
    return put(r, (int64_t)(r->target - at) + r->addend, 8);
  case R_X86_64_PLT32:
    return put(r, (int64_t)((r->outside ? r->stub : r->target) - at) + r->addend, 4);
  case R_X86_64_PC32:
    return put(r, (int64_t)(r->target - at) + r->addend, 4);
  case R_X86_64_GOTPCREL:
  case R_X86_64_GOTPCRELX:
  case R_X86_64_REX_GOTPCRELX:
    return put(r, (int64_t)(r->slot - at) + r->addend, 4);
  }
  return unknown(r);
}

/* ---- AArch64: most relocations fill a field of an instruction */

static neptune_status fill(const np_relocation *r, uint32_t mask, uint32_t field) {
  uint32_t word;
  if (r->room < 4)
    return wrong("a relocation that leaves its section");
  memcpy(&word, r->at, 4);
  word = (word & ~mask) | (field & mask);
  memcpy(r->at, &word, 4);
  return NEPTUNE_OK;
}

/* The distance in pages of 4096 bytes, in the two fields of ADRP. */
static neptune_status fill_page(const np_relocation *r, uint64_t to) {
  int64_t pages = (int64_t)((to & ~(uint64_t)4095) - ((uint64_t)(uintptr_t)r->at & ~(uint64_t)4095));
  pages >>= 12;
  if (pages < -(1 << 20) || pages >= 1 << 20)
    return wrong("a distance of more than 4 gigabytes");
  uint32_t low = (uint32_t)pages & 3, high = ((uint32_t)pages >> 2) & 0x7ffff;
  return fill(r, 3u << 29 | 0x7ffffu << 5, low << 29 | high << 5);
}

/* The lowest 12 bits of an address, as a number of units of 2^shift bytes. */
static neptune_status fill_low(const np_relocation *r, uint64_t to, int shift) {
  uint32_t low = (uint32_t)to & 4095;
  if (low & ((1u << shift) - 1))
    return wrong("an address that is not aligned");
  return fill(r, 0xfffu << 10, low >> shift << 10);
}

static neptune_status fill_call(const np_relocation *r, uint64_t to) {
  int64_t words = (int64_t)(to - (uint64_t)(uintptr_t)r->at) >> 2;
  if (words < -(1 << 25) || words >= 1 << 25)
    return wrong("a call that is too far");
  return fill(r, 0x3ffffffu, (uint32_t)words);
}

static neptune_status relocate_arm(const np_relocation *r) {
  uint64_t at = (uint64_t)(uintptr_t)r->at, to = r->target + (uint64_t)r->addend;
  switch (r->type) {
  case R_AARCH64_NONE:
    return NEPTUNE_OK;
  case R_AARCH64_ABS64:
    return put(r, (int64_t)to, 8);
  case R_AARCH64_PREL64:
    return put(r, (int64_t)(to - at), 8);
  case R_AARCH64_PREL32:
    return put(r, (int64_t)(to - at), 4);
  case R_AARCH64_ADR_PREL_PG_HI21:
    return fill_page(r, to);
  case R_AARCH64_ADD_ABS_LO12_NC:
  case R_AARCH64_LDST8_ABS_LO12_NC:
    return fill_low(r, to, 0);
  case R_AARCH64_LDST16_ABS_LO12_NC:
    return fill_low(r, to, 1);
  case R_AARCH64_LDST32_ABS_LO12_NC:
    return fill_low(r, to, 2);
  case R_AARCH64_LDST64_ABS_LO12_NC:
    return fill_low(r, to, 3);
  case R_AARCH64_LDST128_ABS_LO12_NC:
    return fill_low(r, to, 4);
  case R_AARCH64_CALL26:
  case R_AARCH64_JUMP26:
    return fill_call(r, r->outside ? r->stub : to);
  case R_AARCH64_ADR_GOT_PAGE:
    return fill_page(r, r->slot);
  case R_AARCH64_LD64_GOT_LO12_NC:
    return fill_low(r, r->slot, 3);
  }
  return unknown(r);
}

/* ---- both */

neptune_status np_relocate(int machine, const np_relocation *r) {
  return machine == EM_AARCH64 ? relocate_arm(r) : relocate_x86(r);
}

void np_make_stub(int machine, unsigned char *stub, unsigned char *slot) {
  if (machine != EM_AARCH64) {
    int32_t distance = (int32_t)(slot - (stub + 6));
    memcpy(stub, "\xff\x25", 2); /* jmp *distance(%rip) */
    memcpy(stub + 2, &distance, 4);
    return;
  }
  /* adrp x16, slot; ldr x16, [x16, slot's place in the page]; br x16 */
  const uint32_t code[3] = {0x90000010, 0xf9400210, 0xd61f0200};
  const uint64_t to = (uint64_t)(uintptr_t)slot;
  memcpy(stub, code, sizeof code);
  np_relocation page = {.at = stub, .room = NP_STUB}, low = {.at = stub + 4, .room = NP_STUB - 4};
  fill_page(&page, to); /* both are in one mapping of at most a gigabyte */
  fill_low(&low, to, 3);
}
