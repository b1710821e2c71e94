/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Launch plans: read from a bundle, and what they say of a call. */
#include "internal.h"

#include <string.h>

static neptune_status wrong(const char *what) {
  return np_fail(NEPTUNE_BAD_FILE, "the plan of the bundle is wrong: %s", what);
}

/* A list of extents: whole numbers of 0 or more, -1 for null. */
static int64_t *read_shape(np_arena *arena, const np_json *list, int32_t *rank) {
  if (!list || list->kind != NP_ARRAY || list->count > NEPTUNE_MAX_RANK)
    return NULL;
  int64_t *shape = np_take(arena, list->count, sizeof *shape);
  *rank = (int32_t)list->count;
  for (size_t d = 0; shape && d < list->count; ++d) {
    const np_json *extent = &list->items[d];
    if (extent->kind != NP_NULL && (extent->kind != NP_INT || extent->integer < 0))
      return NULL;
    shape[d] = extent->kind == NP_NULL ? -1 : extent->integer;
  }
  return shape;
}

static const char *read_text(const np_json *object, const char *key) {
  const np_json *found = np_get_kind(object, key, NP_STRING);
  return found ? found->string : NULL;
}

static neptune_status read_arguments(np_arena *arena, const np_json *list, np_plan *plan) {
  for (size_t k = 0; k < plan->arguments; ++k) {
    np_argument *a = &plan->argument[k];
    const char *kind = read_text(&list->items[k], "kind");
    a->dtype = read_text(&list->items[k], "dtype");
    a->name = read_text(&list->items[k], "name");
    a->shape = read_shape(arena, np_get(&list->items[k], "shape"), &a->rank);
    if (!kind || !a->dtype || !a->name || !a->shape)
      return wrong("an argument without its kind, type, name or shape");
    a->is_array = strcmp(kind, "tensor") == 0;
    if (!np_size_of(a->dtype))
      return wrong("an argument of a type that this runtime does not know");
  }
  return NEPTUNE_OK;
}

static neptune_status read_constants(np_arena *arena, const np_json *list, np_plan *plan) {
  for (size_t k = 0; k < plan->constants; ++k) {
    np_constant *c = &plan->constant[k];
    c->dtype = read_text(&list->items[k], "dtype");
    c->sha256 = read_text(&list->items[k], "sha256");
    c->shape = read_shape(arena, np_get(&list->items[k], "shape"), &c->rank);
    if (!c->dtype || !c->sha256 || !c->shape || !np_size_of(c->dtype) ||
        np_elements(c->rank, c->shape) < 0)
      return wrong("a constant without its type, shape or hash");
  }
  return NEPTUNE_OK;
}

static neptune_status read_buffers(const np_json *list, np_plan *plan) {
  for (size_t k = 0; k < plan->buffers; ++k) {
    np_buffer *b = &plan->buffer[k];
    const np_json *of = np_get(&list->items[k], "of");
    b->dtype = read_text(&list->items[k], "dtype");
    b->shape = np_get_kind(&list->items[k], "shape", NP_ARRAY);
    if (!b->dtype || !np_size_of(b->dtype) || !b->shape || b->shape->count > NEPTUNE_MAX_RANK)
      return wrong("a buffer without its type or shape");
    b->rank = (int32_t)b->shape->count;
    b->of = (np_place){NP_NOWHERE, 0};
    const np_json *pitch = np_get(&list->items[k], "pitch");
    if (pitch && (pitch->kind != NP_INT || pitch->integer < 1 || pitch->integer > 128))
      return wrong("a buffer whose rows begin nowhere");
    b->pitch = pitch ? pitch->integer : 1;
    if (of && of->kind != NP_NULL) {
      b->of = np_place_of(plan, of);
      if (b->of.kind == NP_NOWHERE || (b->of.kind == NP_BUFFER && b->of.number >= k))
        return wrong("a buffer that is another shape of no earlier array");
    }
  }
  return NEPTUNE_OK;
}

static neptune_status read_launches(const np_json *list, np_plan *plan) {
  for (size_t k = 0; k < plan->launches; ++k) {
    np_launch *l = &plan->launch[k];
    l->kernel = read_text(&list->items[k], "kernel");
    l->grid = np_get_kind(&list->items[k], "grid", NP_ARRAY);
    l->operands = np_get_kind(&list->items[k], "operands", NP_ARRAY);
    l->narrow = np_get(&list->items[k], "narrow");
    if (!l->kernel || !l->grid || !l->operands)
      return wrong("a launch without its kernel, grid or operands");
    for (size_t n = 0; n < l->operands->count; ++n) {
      const np_json *o = &l->operands->items[n];
      if (o->kind != NP_ARRAY || o->count < 2 || o->items[0].kind != NP_STRING)
        return wrong("an operand of a launch that is no list");
      const char *head = o->items[0].string;
      bool value = strcmp(head, "value") == 0 && o->count == 3 && o->items[1].kind == NP_STRING;
      bool counter = strcmp(head, "counter") == 0 && o->items[1].kind == NP_INT;
      bool map = strcmp(head, "map") == 0 && (o->count == 6 || o->count == 7);
      if (!value && !counter && !map && np_place_of(plan, o).kind == NP_NOWHERE)
        return wrong("an operand of a launch that names nothing");
    }
  }
  return NEPTUNE_OK;
}

/* Tables of a plan, by the name of their list. */
static neptune_status make_tables(np_arena *arena, const np_json *root, np_plan *plan) {
  const struct {
    const char *name;
    size_t *count, size;
    void *table;
  } lists[] = {{"arguments", &plan->arguments, sizeof *plan->argument, &plan->argument},
               {"buffers", &plan->buffers, sizeof *plan->buffer, &plan->buffer},
               {"launches", &plan->launches, sizeof *plan->launch, &plan->launch},
               {"results", &plan->results, sizeof *plan->result, &plan->result},
               {"constants", &plan->constants, sizeof *plan->constant, &plan->constant}};
  for (size_t k = 0; k < sizeof lists / sizeof *lists; ++k) {
    const np_json *list = np_get_kind(root, lists[k].name, NP_ARRAY);
    if (!list && strcmp(lists[k].name, "constants") != 0)
      return wrong("a list is missing");
    *lists[k].count = list ? list->count : 0;
    void *table = np_take(arena, *lists[k].count, lists[k].size);
    if (!table)
      return np_fail(NEPTUNE_NO_MEMORY, "no memory for the plan");
    memcpy(lists[k].table, &table, sizeof table);
  }
  return NEPTUNE_OK;
}

/* ["shared", k] becomes a copy of entry k of `shared`, which has the same items. */
static neptune_status resolve(np_json *item, const np_json *shared, size_t known) {
  if (item->kind != NP_ARRAY && item->kind != NP_OBJECT)
    return NEPTUNE_OK;
  if (item->kind == NP_ARRAY && item->count == 2 && item->items[0].kind == NP_STRING &&
      strcmp(item->items[0].string, "shared") == 0) {
    const np_json *place = &item->items[1];
    if (place->kind != NP_INT || place->integer < 0 || (size_t)place->integer >= known)
      return wrong("an expression that is shared with none before it");
    *item = shared->items[place->integer];
    return NEPTUNE_OK;
  }
  neptune_status status = NEPTUNE_OK;
  for (size_t k = 0; !status && k < item->count; ++k)
    status = resolve(&item->items[k], shared, known);
  return status;
}

/* What expressions share is written once, in a list in which an entry names those before it. */
static neptune_status resolve_all(const np_json *root) {
  static const char *const lists[] = {"buffers", "launches", "equal"};
  const np_json *shared = np_get_kind(root, "shared", NP_ARRAY);
  size_t known = shared ? shared->count : 0;
  neptune_status status = NEPTUNE_OK;
  for (size_t k = 0; !status && k < known; ++k)
    status = resolve(&shared->items[k], shared, k);
  for (size_t k = 0; !status && k < sizeof lists / sizeof *lists; ++k) {
    const np_json *list = np_get_kind(root, lists[k], NP_ARRAY);
    for (size_t n = 0; !status && list && n < list->count; ++n)
      status = resolve(&list->items[n], shared, known);
  }
  return status;
}

neptune_status np_read_plan(np_arena *arena, const np_json *text, np_plan *plan) {
  if (!text || text->kind != NP_STRING)
    return wrong("there is none");
  const np_json *root = np_parse(arena, text->string, strlen(text->string));
  if (!root)
    return NEPTUNE_BAD_FILE;
  neptune_status status = resolve_all(root);
  if (!status)
    status = make_tables(arena, root, plan);
  if (!status)
    status = read_arguments(arena, np_get(root, "arguments"), plan);
  if (!status && plan->constants)
    status = read_constants(arena, np_get(root, "constants"), plan);
  if (!status)
    status = read_buffers(np_get(root, "buffers"), plan);
  if (!status)
    status = read_launches(np_get(root, "launches"), plan);
  if (status)
    return status;
  const np_json *results = np_get(root, "results");
  for (size_t k = 0; k < plan->results; ++k) {
    plan->result[k] = np_place_of(plan, &results->items[k]);
    if (plan->result[k].kind == NP_NOWHERE)
      return wrong("a result that names nothing");
  }
  plan->entry = read_text(root, "entry");
  plan->equals = np_get_kind(root, "equal", NP_ARRAY);
  if (!plan->entry || !plan->equals || !np_get_size(root, "scratch", &plan->scratch))
    return wrong("no entry, equal extents or scratch memory");
  for (size_t k = 0; k < plan->equals->count; ++k)
    if (plan->equals->items[k].kind != NP_ARRAY || plan->equals->items[k].count != 2)
      return wrong("equal extents that are no pair");
  return NEPTUNE_OK;
}

np_place np_place_of(const np_plan *plan, const np_json *reference) {
  const np_place nowhere = {NP_NOWHERE, 0};
  if (reference->kind != NP_ARRAY || reference->count != 2 ||
      reference->items[0].kind != NP_STRING || reference->items[1].kind != NP_INT ||
      reference->items[1].integer < 0)
    return nowhere;
  const char *head = reference->items[0].string;
  size_t number = (size_t)reference->items[1].integer;
  if (strcmp(head, "argument") == 0 && number < plan->arguments && plan->argument[number].is_array)
    return (np_place){NP_ARGUMENT, number};
  if (strcmp(head, "constant") == 0 && number < plan->constants)
    return (np_place){NP_CONSTANT, number};
  if (strcmp(head, "buffer") == 0 && number < plan->buffers)
    return (np_place){NP_BUFFER, number};
  return nowhere;
}

neptune_status np_buffer_shape(const np_given *given, size_t buffer, int64_t *shape) {
  const np_buffer *b = &given->plan->buffer[buffer];
  for (int32_t d = 0; d < b->rank; ++d) {
    neptune_status status = np_evaluate_int(&b->shape->items[d], given, &shape[d]);
    if (status)
      return status;
  }
  if (np_elements(b->rank, shape) < 0) {
    np_text text = {{0}, 0};
    np_shape_text(&text, b->rank, shape);
    return np_fail(NEPTUNE_BAD_ARGUMENT, "the program makes an array of shape %s", text.data);
  }
  return NEPTUNE_OK;
}

neptune_status np_programs(const np_given *given, size_t launch, int64_t *programs) {
  const np_json *grid = given->plan->launch[launch].grid;
  *programs = 1;
  bool none = false;
  for (size_t d = 0; d < grid->count; ++d) {
    int64_t extent;
    neptune_status status = np_evaluate_int(&grid->items[d], given, &extent);
    if (status)
      return status;
    none = none || extent <= 0;
    if (!none && __builtin_mul_overflow(*programs, extent, programs))
      return np_fail(NEPTUNE_BAD_ARGUMENT, "more programs than a launch can have");
  }
  if (none)
    *programs = 0;
  return NEPTUNE_OK;
}

neptune_status np_result_of(const np_given *given, size_t number, neptune_result *result) {
  np_place place = given->plan->result[number];
  if (place.kind == NP_BUFFER) {
    const np_buffer *b = &given->plan->buffer[place.number];
    result->dtype = b->dtype;
    result->rank = b->rank;
    return np_buffer_shape(given, place.number, result->shape);
  }
  if (place.kind == NP_CONSTANT) {
    const np_constant *c = &given->plan->constant[place.number];
    result->dtype = c->dtype;
    result->rank = c->rank;
    memcpy(result->shape, c->shape, (size_t)c->rank * sizeof *c->shape);
    return NEPTUNE_OK;
  }
  const np_view *view = &given->views[place.number];
  result->dtype = view->dtype;
  result->rank = view->rank;
  memcpy(result->shape, view->shape, sizeof view->shape);
  return NEPTUNE_OK;
}
