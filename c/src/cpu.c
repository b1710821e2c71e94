/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Bundles for CPUs: their kernels are functions of an object file, which take MLIR's descriptors
 * of arrays. As `runtime/cpu_call.py` and `runtime/cpu_entry.py`. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#if defined __aarch64__ && defined __linux__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined __x86_64__ && defined __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { WHOLE = 128, FLOATS = 8, CACHE_LINE = 64 };

/* Code for the calls that meet a condition (NULL: for any), and its plan. */
typedef struct variant {
  const np_json *when;
  np_plan plan;
  np_object object;
  void **functions; /* by launch */
} variant;

/* The first variant whose condition a call meets is for it; the last one has no condition. */
struct np_cpu {
  size_t count;
  variant *variants;
};

/* ---- calling a function whose parameters are known at run time only
 *
 * In the calling conventions of x86-64 (System V) and AArch64 whole numbers and floats are counted
 * apart: the k-th of each is where it is whatever stands between. So a function that takes any
 * mixture of up to 8 floats and some whole numbers is called with 8 floats and more whole numbers
 * than it asks for. */

typedef struct call {
  void *function;
  int64_t whole[WHOLE];
  size_t count;
  double floats[FLOATS];
  size_t float_count;
} call;

#define F8 c->floats[0], c->floats[1], c->floats[2], c->floats[3], c->floats[4], c->floats[5], \
           c->floats[6], c->floats[7]
#define W8(k) w[k], w[k + 1], w[k + 2], w[k + 3], w[k + 4], w[k + 5], w[k + 6], w[k + 7]
#define W32(k) W8(k), W8(k + 8), W8(k + 16), W8(k + 24)
#define TF8 double, double, double, double, double, double, double, double
#define TW8 int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t
#define TW32 TW8, TW8, TW8, TW8

typedef void few(TF8, TW8, TW8);
typedef void some(TF8, TW32);
typedef void many(TF8, TW32, TW32, TW32, TW32);

static void enter(const call *c, const int64_t *w) {
  if (c->count <= 16) {
    few *function;
    memcpy(&function, &c->function, sizeof function);
    function(F8, W8(0), W8(8));
  } else if (c->count <= 32) {
    some *function;
    memcpy(&function, &c->function, sizeof function);
    function(F8, W32(0));
  } else {
    many *function;
    memcpy(&function, &c->function, sizeof function);
    function(F8, W32(0), W32(32), W32(64), W32(96));
  }
}

/* A launch as a worker runs it. The last two parameters are the worker's own: where it takes
 * programs from, and its scratch memory. */
static void run_task(void *data, int64_t *counter, void *scratch, int64_t size) {
  const call *c = data;
  int64_t whole[WHOLE], taken[5] = {(int64_t)(intptr_t)counter, (int64_t)(intptr_t)counter, 0, 1, 1};
  int64_t memory[5] = {(int64_t)(intptr_t)scratch, (int64_t)(intptr_t)scratch, 0, size, 1};
  memcpy(whole, c->whole, sizeof whole);
  whole[c->count - 2] = (int64_t)(intptr_t)taken;
  whole[c->count - 1] = (int64_t)(intptr_t)memory;
  enter(c, whole);
}

/* ---- loading */

static const char *const PASSED = "index i1 i8 i16 i32 i64 f32 f64";

static neptune_status check_launch(const np_launch *launch) {
  size_t floats = 0, whole = launch->grid->count + 2;
  for (size_t k = 0; k < launch->operands->count; ++k) {
    const np_json *o = &launch->operands->items[k];
    const char *head = o->items[0].string;
    bool value = strcmp(head, "value") == 0;
    if (strcmp(head, "counter") == 0 || strcmp(head, "map") == 0 ||
        (value && (!np_size_of(o->items[1].string) || !strstr(PASSED, o->items[1].string))))
      return np_fail(NEPTUNE_BAD_FILE, "'%s' takes an operand that CPUs do not pass: %s",
                     launch->kernel, value ? o->items[1].string : head);
    *(value && *o->items[1].string == 'f' ? &floats : &whole) += 1;
  }
  if (floats > FLOATS || whole > WHOLE)
    return np_fail(NEPTUNE_BAD_FILE,
                   "'%s' takes %zu arrays and whole numbers and %zu floats; at most %d and %d are "
                   "passed",
                   launch->kernel, whole, floats, WHOLE, FLOATS);
  return NEPTUNE_OK;
}

#ifdef __x86_64__
/* Whether this process may use AMX's tiles: as `targets/cpu.py` asks. */
static bool may_use_tiles(void) {
#ifdef __linux__
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
  return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
  return false;
#endif
}
#endif

/* Whether this CPU has the features that the code was made with. */
static neptune_status check_machine(const neptune_kernel *kernel) {
  const np_json *machine = np_get(kernel->facts, "machine");
  const np_json *features = np_get_kind(machine, "features", NP_ARRAY);
  for (size_t k = 0; features && k < features->count; ++k) {
    const char *name = features->items[k].kind == NP_STRING ? features->items[k].string : "";
    bool has = true; /* what is not in this list is in every x86-64, or is not known here */
#ifdef __x86_64__
#define ASK(feature) has = strcmp(name, feature) == 0 ? __builtin_cpu_supports(feature) : has
    ASK("ssse3");
    ASK("sse4.1");
    ASK("sse4.2");
    ASK("popcnt");
    ASK("avx");
    ASK("avx2");
    ASK("fma");
    ASK("bmi");
    ASK("bmi2");
    ASK("avx512f");
    ASK("avx512bw");
    ASK("avx512cd");
    ASK("avx512dq");
    ASK("avx512vl");
    ASK("avx512vnni");
    ASK("avx512bf16");
#undef ASK
    if (strncmp(name, "amx-", 4) == 0) has = may_use_tiles();
#elif defined __aarch64__ && defined __linux__
#define ASK(feature, bit) has = strcmp(name, feature) == 0 ? (getauxval(AT_HWCAP) & (bit)) != 0 : has
    ASK("neon", HWCAP_ASIMD);
    ASK("fullfp16", HWCAP_ASIMDHP);
    ASK("dotprod", HWCAP_ASIMDDP);
    ASK("lse", HWCAP_ATOMICS);
    ASK("rdm", HWCAP_ASIMDRDM);
    ASK("crc", HWCAP_CRC32);
    ASK("sve", HWCAP_SVE);
#undef ASK
#endif
    if (!has)
      return np_fail(NEPTUNE_BAD_MACHINE,
                     "the bundle was compiled for a CPU with %s, which this one lacks; compile it "
                     "here, or with NEPTUNE_CPU=x86-64-v3",
                     name);
  }
  return NEPTUNE_OK;
}

static neptune_status load_variant(np_arena *arena, const unsigned char *code, size_t size,
                                   variant *made) {
  const np_plan *plan = &made->plan;
  neptune_status status = NEPTUNE_OK;
  for (size_t k = 0; !status && k < plan->launches; ++k)
    status = check_launch(&plan->launch[k]);
  if (status)
    return status;
  const char **names = np_take(arena, plan->launches, sizeof *names);
  if (!names || !(made->functions = np_take(arena, plan->launches, sizeof *made->functions)))
    return np_fail(NEPTUNE_NO_MEMORY, "no memory for a kernel");
  for (size_t k = 0; k < plan->launches; ++k) {
    static const char prefix[] = "_mlir_ciface_";
    char *name = np_take(arena, strlen(plan->launch[k].kernel) + sizeof prefix, 1);
    if (!name)
      return np_fail(NEPTUNE_NO_MEMORY, "no memory for a kernel");
    strcat(strcpy(name, prefix), plan->launch[k].kernel);
    names[k] = name;
  }
  return np_load_object(code, size, names, plan->launches, &made->object, made->functions);
}

neptune_status np_cpu_load(neptune_kernel *kernel) {
  np_arena *arena = &kernel->arena;
  const np_json *list = np_get_kind(kernel->facts, "variants", NP_ARRAY);
  size_t some = list ? list->count : 0, end = kernel->code_size, size;
  neptune_status status = check_machine(kernel);
  if (status)
    return status;
  struct np_cpu *cpu = np_take(arena, 1, sizeof *cpu);
  if (!cpu || !(cpu->variants = np_take(arena, some + 1, sizeof *cpu->variants)))
    return np_fail(NEPTUNE_NO_MEMORY, "no memory for a kernel");
  kernel->cpu = cpu; /* neptune_close frees what is loaded */
  /* they lie behind the code for any call; a later one counts before those in front of it */
  for (size_t k = some; !status && k-- > 0;) {
    variant *made = &cpu->variants[cpu->count++];
    const np_json *facts = &list->items[k];
    made->when = np_get(facts, "when");
    if (!made->when || !np_get_size(facts, "size", &size) || size > end)
      return np_fail(NEPTUNE_BAD_FILE, "a variant of the bundle has no condition or no code");
    status = np_plan_of(kernel, facts, &made->plan);
    end -= size;
    if (!status)
      status = load_variant(arena, kernel->code + end, size, made);
  }
  if (status)
    return status;
  variant *whole = &cpu->variants[cpu->count++];
  whole->plan = kernel->plan;
  return load_variant(arena, kernel->code, end, whole);
}

void np_cpu_free(struct np_cpu *cpu) {
  for (size_t k = 0; cpu && k < cpu->count; ++k)
    np_unload_object(&cpu->variants[k].object);
}

/* ---- a call */

typedef struct state {
  const variant *code;
  const np_given *given;
  np_arena arena;
  np_view *targets;   /* where results go */
  np_view *constants; /* views by number */
  np_view *buffers;
} state;

static np_view *view_of(const state *s, np_place place) {
  return place.kind == NP_ARGUMENT   ? &s->given->views[place.number]
         : place.kind == NP_CONSTANT ? &s->constants[place.number]
                                     : &s->buffers[place.number];
}

static neptune_status no_memory(void) {
  return np_fail(NEPTUNE_NO_MEMORY, "no memory for a call");
}

static neptune_status take_targets(state *s, const neptune_array *results, size_t count) {
  for (size_t k = 0; k < count; ++k) {
    neptune_result wanted;
    np_text name = {{0}, 0};
    np_add(&name, count > 1 ? "out[%zu]" : "out", k);
    neptune_status status = np_result_of(s->given, k, &wanted);
    if (!status)
      status = np_check_array(&results[k], name.data, wanted.dtype, wanted.rank, wanted.shape,
                              &s->targets[k]);
    if (status)
      return status;
  }
  return NEPTUNE_OK;
}

/* Whether each result shares no byte with an argument or a result before it. */
static bool are_apart(const state *s, size_t count) {
  const np_plan *plan = s->given->plan;
  for (size_t k = 0; k < count; ++k) {
    for (size_t n = 0; n < plan->arguments; ++n)
      if (plan->argument[n].is_array && !np_is_apart(&s->targets[k], &s->given->views[n]))
        return false;
    for (size_t n = 0; n < k; ++n)
      if (!np_is_apart(&s->targets[k], &s->targets[n]))
        return false;
  }
  return true;
}

static neptune_status make_memory(state *s, np_view *view) {
  int64_t count = np_elements(view->rank, view->shape);
  size_t bytes = (size_t)count * np_size_of(view->dtype);
  char *memory = np_take(&s->arena, bytes + CACHE_LINE, 1);
  if (!memory)
    return no_memory();
  view->data = memory + (CACHE_LINE - (uintptr_t)memory % CACHE_LINE) % CACHE_LINE;
  return NEPTUNE_OK;
}

/* A buffer that is another shape of an earlier array: its memory, or a copy where strides do not
 * allow that. */
static neptune_status make_alias(state *s, const np_view *source, np_view *made) {
  if (np_elements(source->rank, source->shape) != np_elements(made->rank, made->shape)) {
    np_text has = {{0}, 0}, wanted = {{0}, 0};
    np_shape_text(&has, source->rank, source->shape);
    np_shape_text(&wanted, made->rank, made->shape);
    return np_fail(NEPTUNE_BAD_ARGUMENT,
                   "an array has shape %s, and the program gives it the shape %s: the number of "
                   "elements must be the same",
                   has.data, wanted.data);
  }
  made->data = source->data;
  if (np_reshaped(source, made->rank, made->shape, made->strides))
    return NEPTUNE_OK;
  np_view copy = *source;
  np_contiguous(copy.rank, copy.shape, copy.strides);
  neptune_status status = make_memory(s, &copy);
  if (!status)
    np_copy(&copy, source);
  made->data = copy.data;
  np_contiguous(made->rank, made->shape, made->strides);
  return status;
}

static neptune_status make_buffer(state *s, size_t number, bool apart, size_t results) {
  const np_plan *plan = s->given->plan;
  const np_buffer *b = &plan->buffer[number];
  np_view *view = &s->buffers[number];
  view->dtype = b->dtype;
  view->rank = b->rank;
  neptune_status status = np_buffer_shape(s->given, number, view->shape);
  if (status)
    return status;
  np_contiguous(view->rank, view->shape, view->strides);
  if (b->of.kind != NP_NOWHERE)
    return make_alias(s, view_of(s, b->of), view);
  for (size_t k = 0; apart && k < results; ++k)
    if (plan->result[k].kind == NP_BUFFER && plan->result[k].number == number &&
        np_is_contiguous(&s->targets[k])) {
      view->data = s->targets[k].data;
      return NEPTUNE_OK;
    }
  return make_memory(s, view);
}

static int64_t *descriptor(state *s, const np_view *view) {
  int64_t *made = np_take(&s->arena, 3 + 2 * (size_t)view->rank, sizeof *made);
  if (!made)
    return NULL;
  made[0] = made[1] = (int64_t)(intptr_t)view->data;
  memcpy(made + 3, view->shape, (size_t)view->rank * sizeof *made);
  memcpy(made + 3 + view->rank, view->strides, (size_t)view->rank * sizeof *made);
  return made;
}

static neptune_status run_launch(state *s, size_t number) {
  const np_plan *plan = s->given->plan;
  const np_launch *launch = &plan->launch[number];
  call c = {.function = s->code->functions[number]};
  int64_t programs;
  neptune_status status = np_programs(s->given, number, &programs);
  if (status || programs <= 0)
    return status;
  for (size_t k = 0; k < launch->operands->count; ++k) {
    const np_json *o = &launch->operands->items[k];
    if (strcmp(o->items[0].string, "value") != 0) {
      int64_t *made = descriptor(s, view_of(s, np_place_of(plan, o)));
      if (!made)
        return no_memory();
      c.whole[c.count++] = (int64_t)(intptr_t)made;
      continue;
    }
    np_number value;
    if ((status = np_evaluate(&o->items[2], s->given, &value)))
      return status;
    double real = value.is_float ? value.f : (double)value.i;
    float narrow = (float)real;
    if (strcmp(o->items[1].string, "f64") == 0)
      c.floats[c.float_count++] = real;
    else if (*o->items[1].string == 'f')
      memcpy(&c.floats[c.float_count++], &narrow, sizeof narrow);
    else
      c.whole[c.count++] = value.is_float ? (int64_t)value.f : value.i;
  }
  for (size_t d = 0; d < launch->grid->count; ++d)
    if ((status = np_evaluate_int(&launch->grid->items[d], s->given, &c.whole[c.count++])))
      return status;
  c.count += 2;
  int64_t workers = s->given->multiprocessors;
  size_t scratch = plan->scratch > 64 ? plan->scratch : 64;
  return np_share(run_task, &c, programs < workers ? programs : workers, scratch);
}

static neptune_status choose(const struct np_cpu *cpu, const np_given *given,
                             const variant **chosen) {
  const variant *first = cpu->variants;
  np_number holds = {false, 0, 0};
  *chosen = first + cpu->count - 1; /* it has no condition */
  for (const variant *v = first; v->when; ++v) {
    neptune_status status = np_evaluate(v->when, given, &holds);
    if (status)
      return status;
    if (holds.is_float ? holds.f != 0 : holds.i != 0) {
      *chosen = v;
      return NEPTUNE_OK;
    }
  }
  return NEPTUNE_OK;
}

neptune_status np_cpu_call(neptune_kernel *kernel, const np_given *asked,
                           const neptune_array *results, size_t count) {
  const variant *chosen;
  neptune_status status = choose(kernel->cpu, asked, &chosen);
  if (status)
    return status;
  np_given own = *asked, *given = &own;
  const np_plan *plan = given->plan = &chosen->plan;
  state s = {.code = chosen, .given = given};
  s.targets = np_take(&s.arena, count, sizeof *s.targets);
  s.constants = np_take(&s.arena, plan->constants, sizeof *s.constants);
  s.buffers = np_take(&s.arena, plan->buffers, sizeof *s.buffers);
  status =
      s.targets && s.constants && s.buffers ? take_targets(&s, results, count) : no_memory();
  for (size_t k = 0; !status && k < plan->constants; ++k) {
    const np_constant *c = &plan->constant[k];
    np_view *view = &s.constants[k];
    /* kernels only read it */
    *view = (np_view){.data = (char *)(uintptr_t)c->data, .dtype = c->dtype, .rank = c->rank};
    memcpy(view->shape, c->shape, (size_t)c->rank * sizeof *c->shape);
    np_contiguous(view->rank, view->shape, view->strides);
  }
  bool apart = !status && are_apart(&s, count);
  for (size_t k = 0; !status && k < plan->buffers; ++k)
    status = make_buffer(&s, k, apart, count);
  for (size_t k = 0; !status && k < plan->launches; ++k)
    status = run_launch(&s, k);
  for (size_t k = 0; !status && k < count; ++k) {
    const np_view *held = view_of(&s, plan->result[k]);
    if (held->data != s.targets[k].data)
      np_copy(&s.targets[k], held);
  }
  np_release(&s.arena);
  return status;
}
