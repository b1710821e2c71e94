/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Puts a relocatable object file into this process: the code that LLVM makes of kernels for x86-64
 * and AArch64 (position-independent, small code model). Every offset of the file is checked;
 * `relocate.c` knows the two machines. */
#include "internal.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __aarch64__
enum { MACHINE = EM_AARCH64 };
static const char machine_name[] = "AArch64";
#else
enum { MACHINE = EM_X86_64 };
static const char machine_name[] = "x86-64";
#endif
enum { STUB = NP_STUB };

/* `address` of a section: where it was put; NULL: it is not loaded. `slots`: for each symbol an
 * 8-byte address and a jump through it. */
typedef struct loader {
  const unsigned char *bytes;
  size_t size;
  const Elf64_Ehdr *header;
  const Elf64_Shdr *sections;
  unsigned char **address;
  const Elf64_Sym *symbols;
  size_t symbol_count;
  const char *strings;
  size_t string_size;
  unsigned char *slots, *stubs;
} loader;

static neptune_status wrong(const char *what) {
  return np_fail(NEPTUNE_BAD_FILE, "the code of the bundle is wrong: %s", what);
}

static bool inside(const loader *l, uint64_t offset, uint64_t size) {
  return offset <= l->size && size <= l->size - offset;
}

static neptune_status read_header(loader *l) {
  const Elf64_Ehdr *h = l->header = (const Elf64_Ehdr *)l->bytes;
  if (l->size < sizeof *h || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0)
    return np_fail(NEPTUNE_BAD_MACHINE, "the code is no ELF object: it is for another system");
  if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB ||
      h->e_machine != MACHINE)
    return np_fail(NEPTUNE_BAD_MACHINE,
                   "the code is for another CPU (ELF machine %d); this loader takes %s",
                   (int)h->e_machine, machine_name);
  if (h->e_type != ET_REL || h->e_shentsize != sizeof(Elf64_Shdr) || h->e_shoff % 8 ||
      !inside(l, h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr)))
    return wrong("no table of sections");
  l->sections = (const Elf64_Shdr *)(l->bytes + h->e_shoff);
  for (size_t k = 0; k < h->e_shnum; ++k) {
    const Elf64_Shdr *s = &l->sections[k];
    if (s->sh_type != SHT_NOBITS && s->sh_type != SHT_NULL && !inside(l, s->sh_offset, s->sh_size))
      return wrong("a section that leaves the file");
    if (s->sh_size > (uint64_t)1 << 31 || s->sh_addralign > (uint64_t)1 << 16 ||
        (s->sh_addralign & (s->sh_addralign - 1)))
      return wrong("a section of that size or alignment");
    if (s->sh_flags & SHF_TLS)
      return wrong("it has memory of its own for each thread");
    if (s->sh_type != SHT_SYMTAB)
      continue;
    if (s->sh_offset % 8 || s->sh_link >= h->e_shnum || s->sh_entsize != sizeof(Elf64_Sym) ||
        l->sections[s->sh_link].sh_type != SHT_STRTAB)
      return wrong("a table of symbols of another kind");
    l->symbols = (const Elf64_Sym *)(l->bytes + s->sh_offset);
    l->symbol_count = s->sh_size / sizeof(Elf64_Sym);
    l->strings = (const char *)l->bytes + l->sections[s->sh_link].sh_offset;
    l->string_size = l->sections[s->sh_link].sh_size;
  }
  if (!l->symbol_count || !l->string_size || l->strings[l->string_size - 1])
    return wrong("no symbols");
  for (size_t k = 0; k < l->symbol_count; ++k)
    if (l->symbols[k].st_name >= l->string_size)
      return wrong("a symbol whose name leaves the file");
  return NEPTUNE_OK;
}

/* Code first, then what is read, then what is written: pages of a kind are together. */
static int kind_of(const Elf64_Shdr *s) {
  if (!(s->sh_flags & SHF_ALLOC) || !s->sh_size)
    return -1;
  return s->sh_flags & SHF_EXECINSTR ? 0 : s->sh_flags & SHF_WRITE ? 2 : 1;
}

static size_t up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

/* Where each section goes, by kind: `ends[kind]` is past its pages. */
static neptune_status place(loader *l, np_object *object, size_t ends[3], size_t *offsets) {
  size_t at = 0, page = (size_t)sysconf(_SC_PAGESIZE);
  for (int kind = 0; kind < 3; ++kind) {
    for (size_t k = 0; k < l->header->e_shnum; ++k)
      if (kind_of(&l->sections[k]) == kind) {
        offsets[k] = up(at, l->sections[k].sh_addralign ? l->sections[k].sh_addralign : 1);
        at = offsets[k] + l->sections[k].sh_size;
      }
    if (kind == 0) { /* jumps stand behind the code */
      offsets[l->header->e_shnum] = up(at, STUB);
      at = offsets[l->header->e_shnum] + STUB * l->symbol_count;
    } else if (kind == 1) { /* addresses with the data that is only read */
      offsets[l->header->e_shnum + 1] = up(at, 8);
      at = offsets[l->header->e_shnum + 1] + 8 * l->symbol_count;
    }
    ends[kind] = at = up(at, page);
    if (at > (size_t)1 << 30)
      return wrong("more than a gigabyte of code");
  }
  object->size = at;
  object->memory = mmap(NULL, at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (object->memory == MAP_FAILED) {
    object->memory = NULL;
    return np_fail(NEPTUNE_NO_MEMORY, "no memory for %zu bytes of code", at);
  }
  unsigned char *base = object->memory;
  for (size_t k = 0; k < l->header->e_shnum; ++k)
    if (kind_of(&l->sections[k]) >= 0) {
      l->address[k] = base + offsets[k];
      if (l->sections[k].sh_type != SHT_NOBITS)
        memcpy(l->address[k], l->bytes + l->sections[k].sh_offset, l->sections[k].sh_size);
    }
  l->stubs = base + offsets[l->header->e_shnum];
  l->slots = base + offsets[l->header->e_shnum + 1];
  return NEPTUNE_OK;
}

static void *find_outside(const char *name) {
  static const char *const libraries[] = {"libm.so.6", "libgcc_s.so.1"};
  void *found = dlsym(RTLD_DEFAULT, name);
  for (size_t k = 0; !found && k < sizeof libraries / sizeof *libraries; ++k) {
    void *library = dlopen(libraries[k], RTLD_NOW); /* stays open: the code uses it */
    found = library ? dlsym(library, name) : NULL;
  }
  return found;
}

/* The address of each symbol, into its slot, and a jump to it. */
static neptune_status resolve(loader *l) {
  for (size_t k = 1; k < l->symbol_count; ++k) {
    const Elf64_Sym *s = &l->symbols[k];
    const char *name = l->strings + s->st_name;
    unsigned char *found = NULL, *stub = l->stubs + STUB * k, *slot = l->slots + 8 * k;
    if (s->st_shndx == SHN_ABS) {
      found = (unsigned char *)(uintptr_t)s->st_value;
    } else if (s->st_shndx == SHN_UNDEF) {
      found = find_outside(name);
      if (!found && ELF64_ST_BIND(s->st_info) != STB_WEAK)
        return np_fail(NEPTUNE_NO_SYMBOL,
                       "the compiled code calls '%s', which no library of this machine has", name);
    } else if (s->st_shndx < l->header->e_shnum) {
      if (l->address[s->st_shndx] && s->st_value <= l->sections[s->st_shndx].sh_size)
        found = l->address[s->st_shndx] + s->st_value;
    } else {
      return wrong("a symbol of a kind that this loader does not know");
    }
    memcpy(slot, &found, 8);
    np_make_stub(MACHINE, stub, slot);
  }
  return NEPTUNE_OK;
}

static neptune_status relocate_one(loader *l, const Elf64_Rela *r, unsigned char *base,
                                   size_t size) {
  uint64_t number = ELF64_R_SYM(r->r_info);
  if (number >= l->symbol_count || r->r_offset >= size)
    return wrong("a relocation that leaves its section");
  unsigned char *slot = l->slots + 8 * number, *target;
  memcpy(&target, slot, 8);
  np_relocation made = {
      .type = (uint32_t)ELF64_R_TYPE(r->r_info),
      .at = base + r->r_offset,
      .room = (size_t)(size - r->r_offset),
      .target = (uint64_t)(uintptr_t)target,
      .slot = (uint64_t)(uintptr_t)slot,
      .stub = (uint64_t)(uintptr_t)(l->stubs + STUB * number),
      .outside = l->symbols[number].st_shndx == SHN_UNDEF,
      .addend = r->r_addend,
  };
  return np_relocate(MACHINE, &made);
}

static neptune_status relocate(loader *l) {
  for (size_t k = 0; k < l->header->e_shnum; ++k) {
    const Elf64_Shdr *s = &l->sections[k];
    if (s->sh_type == SHT_REL)
      return wrong("relocations without addends");
    if (s->sh_type != SHT_RELA || s->sh_info >= l->header->e_shnum || !l->address[s->sh_info])
      continue;
    for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= s->sh_size; at += sizeof(Elf64_Rela)) {
      Elf64_Rela r;
      memcpy(&r, l->bytes + s->sh_offset + at, sizeof r);
      neptune_status status =
          relocate_one(l, &r, l->address[s->sh_info], l->sections[s->sh_info].sh_size);
      if (status)
        return status;
    }
  }
  return NEPTUNE_OK;
}

static neptune_status find_names(const loader *l, const char *const *names, size_t count,
                                 void **addresses) {
  for (size_t n = 0; n < count; ++n) {
    addresses[n] = NULL;
    for (size_t k = 1; k < l->symbol_count; ++k) {
      const Elf64_Sym *s = &l->symbols[k];
      bool code = s->st_shndx < l->header->e_shnum && kind_of(&l->sections[s->st_shndx]) == 0;
      if (code && s->st_value < l->sections[s->st_shndx].sh_size &&
          strcmp(l->strings + s->st_name, names[n]) == 0)
        memcpy(&addresses[n], l->slots + 8 * k, 8);
    }
    if (!addresses[n])
      return np_fail(NEPTUNE_BAD_FILE, "the compiled code lacks '%s', which its plan names",
                     names[n]);
  }
  return NEPTUNE_OK;
}

neptune_status np_load_object(const unsigned char *bytes, size_t size, const char *const *names,
                              size_t count, np_object *object, void **addresses) {
  loader l = {.size = size};
  size_t ends[3], *offsets = NULL;
  /* what is read as structures has to be aligned */
  unsigned char *copy = malloc(size + 1);
  neptune_status status = NEPTUNE_OK;
  if (copy)
    memcpy(copy, bytes, size);
  l.bytes = copy;
  if (!copy)
    status = np_fail(NEPTUNE_NO_MEMORY, "no memory for %zu bytes of code", size);
  if (!status)
    status = read_header(&l);
  if (!status) {
    l.address = calloc(l.header->e_shnum, sizeof *l.address);
    offsets = calloc((size_t)l.header->e_shnum + 2, sizeof *offsets);
    status = l.address && offsets ? place(&l, object, ends, offsets)
                                  : np_fail(NEPTUNE_NO_MEMORY, "no memory for code");
  }
  if (!status)
    status = resolve(&l);
  if (!status)
    status = relocate(&l);
  if (!status)
    status = find_names(&l, names, count, addresses);
  if (!status) {
    unsigned char *base = object->memory;
    __builtin___clear_cache((char *)base, (char *)base + ends[0]);
    if (mprotect(base, ends[0], PROT_READ | PROT_EXEC) ||
        mprotect(base + ends[0], ends[1] - ends[0], PROT_READ))
      status = np_fail(NEPTUNE_NO_MEMORY, "this system does not let new code run");
  }
  if (status)
    np_unload_object(object);
  free(l.address);
  free(offsets);
  free(copy);
  return status;
}

void np_unload_object(np_object *object) {
  if (object->memory)
    munmap(object->memory, object->size);
  object->memory = NULL;
}
