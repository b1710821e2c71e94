/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Calls of bundles for NVIDIA's GPUs: sizes, memory of every array, parameters, launches. As
 * `runtime/gpu.py`, `runtime/memory.py` and `runtime/parameters.py`. */
#include "cuda.h"

#include <string.h>

enum { WORKSPACE_ALIGNMENT = 256, LARGEST_GRID = 0x7fffffff, DEVICE_ORDINAL = 9 };
/* columns of a panel of a tensor map: rows of 128 bytes (or half of them); bytes of a sector */
enum { PANEL = 64, ROW = 128, SECTOR = 32 };

typedef struct call {
  np_arena arena;
  np_given given;
  np_loaded *loaded;
  const np_image *image;
  np_view *buffers, *constants;
  size_t workspace;
} call;

static neptune_status no_memory(void) {
  return np_fail(NEPTUNE_NO_MEMORY, "no memory for a call");
}

/* The array whose memory a place names, maybe under another shape. */
static np_place root(const np_plan *plan, np_place place) {
  while (place.kind == NP_BUFFER && plan->buffer[place.number].of.kind != NP_NOWHERE)
    place = plan->buffer[place.number].of;
  return place;
}

static bool is_result(const np_plan *plan, size_t buffer) {
  for (size_t k = 0; k < plan->results; ++k) {
    np_place place = root(plan, plan->result[k]);
    if (place.kind == NP_BUFFER && place.number == buffer)
      return true;
  }
  return false;
}

/* The number of the device that the arrays are on; 0 where none has elements. */
static neptune_status find_device(const np_driver *driver, const neptune_value *arguments,
                                  size_t count, int *device) {
  int found = -1;
  for (size_t k = 0; k < count; ++k) {
    const neptune_array *a = arguments[k].array;
    int number = -1;
    if (!a || !a->data)
      continue;
    int error = driver->cuPointerGetAttribute(&number, DEVICE_ORDINAL, (uint64_t)(uintptr_t)a->data);
    if (error)
      return np_driver_fail(error, "asking where an array is");
    if (found >= 0 && number != found)
      return np_fail(NEPTUNE_BAD_ARGUMENT, "the arrays are on several devices: argument %zu is on "
                     "GPU %d, others on GPU %d", k, number, found);
    found = number;
  }
  *device = found < 0 ? 0 : found;
  return NEPTUNE_OK;
}

/* Whether the arguments can be seen under the other shapes that a plan asks for, without a copy. */
static neptune_status can_view(call *c, bool *can) {
  const np_plan *plan = c->given.plan;
  np_view *seen = np_take(&c->arena, plan->buffers, sizeof *seen);
  *can = true;
  if (!seen)
    return no_memory();
  for (size_t k = 0; *can && k < plan->buffers; ++k) {
    const np_buffer *b = &plan->buffer[k];
    const np_view *source = b->of.kind == NP_ARGUMENT ? &c->given.views[b->of.number]
                            : b->of.kind == NP_BUFFER ? &seen[b->of.number]
                                                      : NULL;
    seen[k].data = NULL;
    if (!source || !source->data) /* of no argument */
      continue;
    neptune_status status = np_buffer_shape(&c->given, k, seen[k].shape);
    if (status)
      return status;
    seen[k].rank = b->rank;
    seen[k].data = source->data;
    *can = np_reshaped(source, b->rank, seen[k].shape, seen[k].strides);
  }
  return NEPTUNE_OK;
}

static const char *const KINDS[] = {"argument", "constant", "buffer"};

/* Bytes that the address and the outer strides of an array must be multiples of. */
static int64_t unit_of(const np_image *image, np_place place) {
  const np_json *list = image->alignment;
  int64_t unit = 1;
  for (size_t k = 0; list && k < list->count; ++k) {
    const np_json *row = list->items[k].items;
    if (list->items[k].kind == NP_ARRAY && list->items[k].count == 3 &&
        row[0].kind == NP_STRING && strcmp(row[0].string, KINDS[place.kind]) == 0 &&
        row[1].integer == (int64_t)place.number && row[2].integer > 0)
      unit = row[2].integer;
  }
  return unit;
}

static bool is_aligned(const void *data, const char *dtype, int32_t rank, const int64_t *shape,
                       const int64_t *strides, int64_t unit) {
  bool aligned = (uintptr_t)data % (uintptr_t)unit == 0;
  for (int32_t d = 0; strides && d + 1 < rank; ++d)
    aligned = aligned && (shape[d] <= 1 || strides[d] * (int64_t)np_size_of(dtype) % unit == 0);
  return aligned || np_elements(rank, shape) == 0;
}

/* Whether arrays lie in memory as the kernels of an image need it. (`results`: NULL where nobody
 * has any yet.) */
static bool takes(const call *c, const np_image *image, const neptune_array *results) {
  const np_plan *plan = &image->plan;
  for (size_t k = 0; k < plan->arguments; ++k) {
    const np_view *v = &c->given.views[k];
    np_place place = {.kind = NP_ARGUMENT, .number = k};
    if (plan->argument[k].is_array &&
        !is_aligned(v->data, v->dtype, v->rank, v->shape, v->strides, unit_of(image, place)))
      return false;
  }
  for (size_t k = 0; results && k < plan->results; ++k) {
    const neptune_array *r = &results[k];
    np_place place = root(plan, plan->result[k]);
    if (place.kind == NP_BUFFER && r->data && r->dtype && r->shape && r->rank >= 0 &&
        r->rank <= NEPTUNE_MAX_RANK && np_size_of(r->dtype) &&
        !is_aligned(r->data, r->dtype, r->rank, r->shape, r->strides, unit_of(image, place)))
      return false;
  }
  return true;
}

static neptune_status choose_image(call *c, const neptune_array *results) {
  for (size_t k = c->loaded->images; k-- > 0;) {
    const np_image *image = &c->loaded->image[k];
    np_number holds = {false, 1, 0};
    if (image->when && image->when->kind != NP_NULL) {
      neptune_status status = np_evaluate(image->when, &c->given, &holds);
      if (status)
        return status;
    }
    if (holds.is_float ? holds.f != 0 : holds.i != 0) {
      bool can = true;
      c->image = image;
      c->given.plan = &image->plan;
      bool some = image->when && image->when->kind != NP_NULL;
      neptune_status status = some ? can_view(c, &can) : NEPTUNE_OK;
      if (status || (can && (!some || takes(c, image, results))))
        return status;
    }
  }
  return np_fail(NEPTUNE_BAD_FILE, "no image of the bundle is for a call with these sizes");
}

/* Shapes of all buffers; those that are neither results nor views get their place in the
 * workspace (an offset, until `bind` adds where it begins). */
static neptune_status find_sizes(call *c) {
  const np_plan *plan = c->given.plan;
  c->buffers = np_take(&c->arena, plan->buffers, sizeof *c->buffers);
  c->constants = np_take(&c->arena, plan->constants, sizeof *c->constants);
  if (!c->buffers || !c->constants)
    return no_memory();
  for (size_t k = 0; k < plan->buffers; ++k) {
    const np_buffer *b = &plan->buffer[k];
    np_view *view = &c->buffers[k];
    neptune_status status = np_buffer_shape(&c->given, k, view->shape);
    if (status)
      return status;
    view->dtype = b->dtype;
    view->rank = b->rank;
    int64_t elements = np_pitched(view->rank, view->shape, b->pitch, view->strides);
    if (b->of.kind != NP_NOWHERE || is_result(plan, k))
      continue;
    size_t size = (size_t)elements * np_size_of(b->dtype);
    view->data = (char *)(uintptr_t)c->workspace;
    c->workspace += (size + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
  }
  for (size_t k = 0; k < plan->constants; ++k) {
    const np_constant *constant = &plan->constant[k];
    np_view *view = &c->constants[k];
    *view = (np_view){.data = (char *)(uintptr_t)c->image->constants[k],
                      .dtype = constant->dtype,
                      .rank = constant->rank};
    memcpy(view->shape, constant->shape, (size_t)constant->rank * sizeof *constant->shape);
    np_contiguous(view->rank, view->shape, view->strides);
  }
  return NEPTUNE_OK;
}

static neptune_status begin(call *c, neptune_kernel *kernel, const neptune_value *arguments,
                            size_t count, const neptune_array *results) {
  const np_driver *driver = np_open_driver();
  int device = 0;
  if (!driver)
    return NEPTUNE_NO_DRIVER;
  neptune_status status = find_device(driver, arguments, count, &device);
  if (!status)
    status = np_load_images(kernel, device, &c->loaded);
  if (status)
    return status;
  c->given.plan = &c->loaded->image[0].plan;
  c->given.multiprocessors = c->loaded->multiprocessors;
  c->given.views = np_take(&c->arena, kernel->plan.arguments, sizeof *c->given.views);
  c->given.numbers = np_take(&c->arena, kernel->plan.arguments, sizeof *c->given.numbers);
  if (!c->given.views || !c->given.numbers)
    return no_memory();
  if ((status = np_check(&c->given, arguments, count)) || (status = choose_image(c, results)))
    return status;
  return find_sizes(c);
}

neptune_status np_cuda_requirements(neptune_kernel *kernel, const neptune_value *arguments,
                                    size_t count, neptune_result *results, size_t *workspace) {
  call c;
  memset(&c, 0, sizeof c);
  neptune_status status = begin(&c, kernel, arguments, count, NULL);
  for (size_t k = 0; !status && k < kernel->plan.results; ++k)
    status = np_result_of(&c.given, k, &results[k]);
  if (workspace)
    *workspace = c.workspace;
  np_release(&c.arena);
  return status;
}

/* ---- memory */

static np_view *view_of(call *c, np_place place) {
  return place.kind == NP_ARGUMENT   ? &c->given.views[place.number]
         : place.kind == NP_CONSTANT ? &c->constants[place.number]
                                     : &c->buffers[place.number];
}

static neptune_status reshape(const np_view *source, np_view *made) {
  np_text has = {{0}, 0}, wanted = {{0}, 0};
  np_shape_text(&has, source->rank, source->shape);
  np_shape_text(&wanted, made->rank, made->shape);
  if (np_elements(source->rank, source->shape) != np_elements(made->rank, made->shape))
    return np_fail(NEPTUNE_BAD_ARGUMENT, "an array has shape %s, and the program gives it the "
                   "shape %s: the number of elements must be the same", has.data, wanted.data);
  if (!np_reshaped(source, made->rank, made->shape, made->strides))
    return np_fail(NEPTUNE_BAD_ARGUMENT, "an array of shape %s has strides with which it cannot be "
                   "seen as %s; make it contiguous", has.data, wanted.data);
  made->data = source->data;
  return NEPTUNE_OK;
}

/* Whether two positions may be one element in memory, as in an expanded array. */
static bool repeats_elements(const np_view *view) {
  int64_t reach = 0;
  bool used[NEPTUNE_MAX_RANK] = {false};
  if (np_elements(view->rank, view->shape) == 0)
    return false;
  for (int32_t round = 0; round < view->rank; ++round) {
    int32_t next = -1; /* the smallest stride that is left */
    int64_t step = 0;
    for (int32_t d = 0; d < view->rank; ++d) {
      int64_t stride = view->strides[d] < 0 ? -view->strides[d] : view->strides[d];
      if (!used[d] && view->shape[d] > 1 && (next < 0 || stride < step)) {
        next = d;
        step = stride;
      }
    }
    if (next < 0)
      return false;
    if (step <= reach)
      return true;
    used[next] = true;
    reach += step * (view->shape[next] - 1);
  }
  return false;
}

static neptune_status bind_results(call *c, const neptune_array *results, np_view *targets) {
  const np_plan *plan = c->given.plan;
  for (size_t k = 0; k < plan->results; ++k) {
    neptune_result wanted;
    np_text name = {{0}, 0};
    np_add(&name, plan->results > 1 ? "out[%zu]" : "out", k);
    np_place place = root(plan, plan->result[k]);
    if (place.kind != NP_BUFFER) {
      if (results[k].data)
        return np_fail(NEPTUNE_BAD_ARGUMENT, "%s: this result is an argument itself; give no memory",
                       name.data);
      continue;
    }
    neptune_status status = np_result_of(&c->given, k, &wanted);
    if (!status)
      status = np_check_array(&results[k], name.data, wanted.dtype, wanted.rank, wanted.shape,
                              &targets[k]);
    if (status)
      return status;
    if (repeats_elements(&targets[k]))
      return np_fail(NEPTUNE_BAD_ARGUMENT, "%s has several positions at one place in memory",
                     name.data);
    np_view *buffer = &c->buffers[place.number], made = *buffer;
    if ((status = reshape(&targets[k], &made)))
      return status;
    for (size_t n = 0; n < k; ++n) {
      np_place other = root(plan, plan->result[n]);
      if (other.kind == NP_BUFFER && other.number == place.number && buffer->data != made.data)
        return np_fail(NEPTUNE_BAD_ARGUMENT, "%s and out[%zu] are one result: pass one array",
                       name.data, n);
    }
    *buffer = made;
    for (size_t n = 0; n < plan->arguments; ++n)
      if (plan->argument[n].is_array && !np_is_apart(&targets[k], &c->given.views[n]))
        return np_fail(NEPTUNE_BAD_ARGUMENT, "%s overlaps %s; pass memory of its own", name.data,
                       plan->argument[n].name);
    for (size_t n = 0; n < k; ++n)
      if (root(plan, plan->result[n]).number != place.number && targets[n].data &&
          !np_is_apart(&targets[k], &targets[n]))
        return np_fail(NEPTUNE_BAD_ARGUMENT, "%s overlaps out[%zu]; pass memory of its own",
                       name.data, n);
  }
  return NEPTUNE_OK;
}

static neptune_status bind(call *c, const neptune_array *results, const neptune_options *options) {
  const np_plan *plan = c->given.plan;
  np_view *targets = np_take(&c->arena, plan->results, sizeof *targets);
  if (!targets)
    return no_memory();
  neptune_status status = bind_results(c, results, targets);
  if (status)
    return status;
  if (c->workspace && (!options->workspace || options->workspace_size < c->workspace))
    return np_fail(NEPTUNE_BAD_ARGUMENT, "%s needs %zu bytes of workspace, %zu were given",
                   plan->entry, c->workspace, options->workspace ? options->workspace_size : 0);
  if (c->workspace && (uintptr_t)options->workspace % WORKSPACE_ALIGNMENT)
    return np_fail(NEPTUNE_BAD_ARGUMENT, "workspace is not aligned to %d bytes",
                   WORKSPACE_ALIGNMENT);
  int64_t bytes = (int64_t)c->workspace;
  np_view memory = {options->workspace, "i8", 1, {bytes}, {1}};
  for (size_t n = 0; c->workspace && n < plan->arguments; ++n)
    if (plan->argument[n].is_array && !np_is_apart(&memory, &c->given.views[n]))
      return np_fail(NEPTUNE_BAD_ARGUMENT, "workspace overlaps %s; pass memory of its own",
                     plan->argument[n].name);
  for (size_t n = 0; c->workspace && n < plan->results; ++n)
    if (targets[n].data && !np_is_apart(&memory, &targets[n]))
      return np_fail(NEPTUNE_BAD_ARGUMENT, "workspace overlaps out[%zu]; pass memory of its own", n);
  for (size_t k = 0; k < plan->buffers; ++k) {
    np_view *view = &c->buffers[k];
    if (plan->buffer[k].of.kind != NP_NOWHERE)
      status = reshape(view_of(c, plan->buffer[k].of), view);
    else if (!is_result(plan, k))
      view->data = (char *)options->workspace + (uintptr_t)view->data;
    if (status)
      return status;
  }
  return NEPTUNE_OK;
}

/* Strides and alignment that a kernel counts on: whole multiples of `unit` bytes. */
static neptune_status check_layout(const call *c, np_place place, const np_view *view) {
  int64_t unit = unit_of(c->image, place), size = (int64_t)np_size_of(view->dtype);
  const char *name = place.kind == NP_ARGUMENT ? c->given.plan->argument[place.number].name
                                               : KINDS[place.kind];
  if (np_elements(view->rank, view->shape) == 0)
    return NEPTUNE_OK;
  if (view->rank && view->shape[view->rank - 1] > 1 && view->strides[view->rank - 1] != 1)
    return np_fail(NEPTUNE_BAD_ARGUMENT, "%s has stride %lld along its last dimension, not 1", name,
                   (long long)view->strides[view->rank - 1]);
  if ((uintptr_t)view->data % (uintptr_t)unit)
    return np_fail(NEPTUNE_BAD_ARGUMENT, "%s is not aligned to %lld bytes", name, (long long)unit);
  for (int32_t d = 0; d + 1 < view->rank; ++d)
    if (view->shape[d] > 1 && view->strides[d] * size % unit)
      return np_fail(NEPTUNE_BAD_ARGUMENT, "%s has stride %lld along dimension %d: no multiple of "
                     "%lld bytes", name, (long long)view->strides[d], (int)d, (long long)unit);
  return NEPTUNE_OK;
}

/* ---- parameters */

void *np_parameter_room(np_parameters *p, size_t size, size_t alignment) {
  size_t at = (p->used + alignment - 1) / alignment * alignment;
  if (p->count == sizeof p->addresses / sizeof *p->addresses || at + size > sizeof p->room)
    return NULL;
  p->used = at + size;
  return p->addresses[p->count++] = p->room + at;
}

static neptune_status add(np_parameters *p, const void *value, size_t size) {
  void *room = np_parameter_room(p, size, 8);
  if (!room)
    return np_fail(NEPTUNE_BAD_FILE, "a kernel takes more parameters than this runtime passes");
  memcpy(room, value, size);
  return NEPTUNE_OK;
}

static neptune_status add_number(np_parameters *p, const char *dtype, np_number value) {
  double real = value.is_float ? value.f : (double)value.i;
  float narrow = (float)real;
  int64_t whole = value.is_float ? (int64_t)value.f : value.i;
  if (strcmp(dtype, "index") == 0) {
    if (whole < INT32_MIN || whole > INT32_MAX)
      return np_fail(NEPTUNE_BAD_ARGUMENT, "a size or position of %lld does not fit 32 bits",
                     (long long)whole);
    return add(p, &whole, 4);
  }
  if (strcmp(dtype, "f32") == 0)
    return add(p, &narrow, 4);
  if (strcmp(dtype, "f64") == 0)
    return add(p, &real, 8);
  if (*dtype != 'i' || !np_size_of(dtype))
    return np_fail(NEPTUNE_BAD_FILE, "scalars of type %s cannot be passed; use f32", dtype);
  return add(p, &whole, np_size_of(dtype));
}

static neptune_status add_array(call *c, np_parameters *p, np_place place) {
  const np_view *view = view_of(c, place);
  neptune_status status = check_layout(c, place, view);
  uint64_t address = (uint64_t)(uintptr_t)view->data;
  if (!status)
    status = add(p, &address, 8);
  for (int32_t d = 0; !status && d + 1 < view->rank; ++d)
    status = add(p, &view->strides[d], 8);
  return status;
}

/* ["map", kind, number, dimension of rows (-1: none), rows, columns (0: no panels), panel,
   1 for f32 that the copy engine rounds to TF32]. */
neptune_status np_add_tensor_map(np_parameters *p, const np_view *view, const np_json *operand,
                                 bool narrow) {
  const np_json *box_of = operand->items + 3;
  const int64_t rows_dim = box_of[0].integer, rows = box_of[1].integer, columns = box_of[2].integer;
  const int64_t panel = operand->count > 6 ? operand->items[6].integer : PANEL;
  const bool rounds = operand->count > 7 && operand->items[7].integer;
  const int64_t size = (int64_t)np_size_of(view->dtype), row = panel * size;
  uint64_t extents[NEPTUNE_MAX_RANK + 2], strides[NEPTUNE_MAX_RANK + 2];
  uint32_t box[NEPTUNE_MAX_RANK + 2], ones[NEPTUNE_MAX_RANK + 2], axes = 0;
  unsigned char *room = np_parameter_room(p, TENSOR_MAP_BYTES, 64);
  if (!room || view->rank < 1 || rows_dim < -1 || rows_dim >= view->rank - 1 || rows < 1 ||
      columns < 0 || (row != ROW && row != ROW / 2))
    return np_fail(NEPTUNE_BAD_FILE, "a kernel takes a tensor map of another kind");
  memset(room, 0, TENSOR_MAP_BYTES);
  if (np_elements(view->rank, view->shape) == 0) /* there is nothing to bring, and no address */
    return NEPTUNE_OK;
  int64_t width = view->shape[view->rank - 1];
  bool whole_sectors = (uintptr_t)view->data % SECTOR == 0;
  bool wide = !narrow || width <= panel;
  extents[axes] = (uint64_t)(columns ? panel : width);
  box[axes++] = (uint32_t)panel;
  /* the rows, the panels, then the other dimensions from the innermost outwards */
  for (int32_t d = view->rank - 1; d >= 0; --d) {
    bool is_rows = d == view->rank - 1;
    int32_t dim = is_rows ? (int32_t)rows_dim : d;
    if (!is_rows && dim == rows_dim)
      continue;
    /* an axis of one element may have any stride, but the encoding checks it */
    bool single = dim < 0 || view->shape[dim] <= 1;
    if (!single && view->strides[dim] < 0)
      return np_fail(NEPTUNE_BAD_ARGUMENT, "TMA does not support negative strides");
    extents[axes] = single ? 1 : (uint64_t)view->shape[dim];
    strides[axes - 1] = single ? 16 : (uint64_t)(view->strides[dim] * size);
    whole_sectors = whole_sectors && (single || strides[axes - 1] % SECTOR == 0);
    box[axes++] = is_rows ? (uint32_t)rows : 1;
    if (is_rows && columns) {
      extents[axes] = (uint64_t)(width / panel);
      strides[axes - 1] = (uint64_t)(panel * size);
      whole_sectors = whole_sectors && (extents[axes] == 1 || strides[axes - 1] % SECTOR == 0);
      box[axes++] = (uint32_t)(columns / panel);
    }
  }
  for (uint32_t d = 0; d < axes; ++d)
    ones[d] = 1;
  bool is_bf16 = strcmp(view->dtype, "bf16") == 0;
  int type = size == 4 ? (rounds ? 11 : 7) : is_bf16 ? 9 : 6; /* CUtensorMapDataType */
  /* rows of 128 or 64 bytes are swizzled; L2 brings 256 bytes where every box is whole sectors,
     and the launch does not ask for 128 */
  int error = np_open_driver()->cuTensorMapEncodeTiled(
      room, type, axes, view->data, extents, strides, box, ones, 0, row == ROW ? 3 : 2,
      wide && whole_sectors ? 3 : 2, 0);
  return error ? np_driver_fail(error, "cuTensorMapEncodeTiled") : NEPTUNE_OK;
}

static neptune_status add_operand(call *c, np_parameters *p, const np_json *o, bool narrow,
                                  bool capturing) {
  const char *head = o->items[0].string;
  if (strcmp(head, "value") == 0) {
    np_number value;
    neptune_status status = np_evaluate(&o->items[2], &c->given, &value);
    return status ? status : add_number(p, o->items[1].string, value);
  }
  if (strcmp(head, "counter") == 0) {
    /* calls that run once take the lower half of the numbers in turn, others the upper half */
    size_t half = (size_t)o->items[1].integer / 2;
    atomic_size_t *numbers = capturing ? &c->loaded->kept : &c->loaded->once;
    int32_t number = half ? (int32_t)(atomic_fetch_add(numbers, 1) % half) : 0;
    number += capturing ? (int32_t)half : 0;
    return add(p, &number, 4);
  }
  if (strcmp(head, "map") == 0) {
    np_json reference = {.kind = NP_ARRAY, .count = 2, .items = o->items + 1};
    np_place place = np_place_of(c->given.plan, &reference);
    bool whole = place.kind != NP_NOWHERE;
    for (size_t k = 3; k < o->count; ++k)
      whole = whole && o->items[k].kind == NP_INT;
    if (!whole)
      return np_fail(NEPTUNE_BAD_FILE, "a tensor map of no array");
    neptune_status status = check_layout(c, place, view_of(c, place));
    return status ? status : np_add_tensor_map(p, view_of(c, place), o, narrow);
  }
  return add_array(c, p, np_place_of(c->given.plan, o));
}

/* ---- launches */

typedef struct prepared {
  np_launch_config config;
  np_launch_attribute early;
  void *function;
  np_parameters parameters;
} prepared;

static neptune_status prepare(call *c, size_t number, bool capturing, bool first, void *stream,
                              prepared *made) {
  const np_plan *plan = c->given.plan;
  const np_gpu_kernel *kernel = NULL;
  int64_t programs;
  neptune_status status = np_programs(&c->given, number, &programs);
  made->function = NULL;
  if (status || programs == 0)
    return status;
  if (programs > LARGEST_GRID)
    return np_fail(NEPTUNE_BAD_ARGUMENT, "%lld programs are more than one launch can have",
                   (long long)programs);
  for (size_t k = 0; k < c->image->kernels; ++k)
    if (strcmp(c->image->kernel[k].name, plan->launch[number].kernel) == 0)
      kernel = &c->image->kernel[k];
  if (!kernel)
    return np_fail(NEPTUNE_BAD_FILE, "the plan names the kernel '%s', which the image lacks",
                   plan->launch[number].kernel);
  const np_json *operands = plan->launch[number].operands;
  int64_t narrow = 0;
  if (plan->launch[number].narrow)
    status = np_evaluate_int(plan->launch[number].narrow, &c->given, &narrow);
  for (size_t k = 0; !status && k < operands->count; ++k)
    status = add_operand(c, &made->parameters, &operands->items[k], narrow != 0, capturing);
  const uint64_t zero = 0;
  for (size_t k = 0; !status && k < kernel->hidden; ++k)
    status = add(&made->parameters, &zero, 8);
  bool fewer = kernel->blocks && (size_t)programs > kernel->blocks;
  made->early = (np_launch_attribute){6, 0, {1}}; /* programmatic stream serialization */
  made->config = (np_launch_config){
      {fewer ? (unsigned)kernel->blocks : (unsigned)programs, 1, 1},
      {(unsigned)kernel->threads, 1, 1},
      (unsigned)kernel->shared,
      stream,
      kernel->follows && !first ? &made->early : NULL,
      kernel->follows && !first};
  made->function = kernel->function;
  return status;
}

static neptune_status launch(const np_driver *driver, call *c, prepared *made) {
  void *before;
  int error = driver->cuCtxPushCurrent_v2(c->loaded->context);
  if (error)
    return np_driver_fail(error, "entering a device");
  for (size_t k = 0; !error && k < c->given.plan->launches; ++k)
    if (made[k].function)
      error = driver->cuLaunchKernelEx(&made[k].config, made[k].function,
                                       made[k].parameters.addresses, NULL);
  driver->cuCtxPopCurrent_v2(&before);
  return error ? np_driver_fail(error, "a kernel launch") : NEPTUNE_OK;
}

neptune_status np_cuda_call(neptune_kernel *kernel, const neptune_value *arguments, size_t count,
                            const neptune_array *results, size_t result_count,
                            const neptune_options *options) {
  (void)result_count; /* checked by neptune_call */
  call c;
  int capturing = 0;
  bool first = true;
  memset(&c, 0, sizeof c);
  neptune_status status = begin(&c, kernel, arguments, count, results);
  const np_driver *driver = np_open_driver();
  if (!status)
    status = bind(&c, results, options);
  if (!status && options->stream && driver->cuStreamIsCapturing(options->stream, &capturing))
    capturing = 0;
  prepared *made = status ? NULL : np_take(&c.arena, c.given.plan->launches + 1, sizeof *made + 64);
  if (!status && !made)
    status = no_memory();
  /* tensor maps have to lie at multiples of 64 bytes */
  made = (prepared *)(((uintptr_t)made + 63) / 64 * 64);
  for (size_t k = 0; !status && k < c.given.plan->launches; ++k) {
    status = prepare(&c, k, capturing != 0, first, options->stream, &made[k]);
    first = first && !made[k].function;
  }
  if (!status)
    status = launch(driver, &c, made);
  np_release(&c.arena);
  return status;
}
