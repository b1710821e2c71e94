/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Holds this runtime to test/vectors/plan.json, to which the Python runtime is held as well. */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures, checks;

static void expect(bool holds, const char *what, size_t number) {
  ++checks;
  if (!holds) {
    ++failures;
    printf("%s %zu: %s\n", what, number, neptune_error());
  }
}

static bool same_extents(const np_json *wanted, int32_t rank, const int64_t *found) {
  bool same = wanted->count == (size_t)rank;
  for (size_t d = 0; same && d < wanted->count; ++d)
    same = wanted->items[d].integer == found[d];
  return same;
}

/* Shapes of JSON as arguments of a plan: null is a number. */
static np_given given_of(np_arena *arena, np_plan *plan, const np_json *shapes,
                         const np_json *numbers) {
  plan->arguments = shapes->count;
  plan->argument = np_take(arena, shapes->count, sizeof *plan->argument);
  np_given given = {plan, np_take(arena, shapes->count, sizeof *given.views),
                    np_take(arena, shapes->count, sizeof *given.numbers), -1};
  for (size_t k = 0; k < shapes->count; ++k) {
    const np_json *shape = &shapes->items[k];
    plan->argument[k].is_array = shape->kind == NP_ARRAY;
    plan->argument[k].rank = (int32_t)shape->count;
    for (size_t d = 0; d < shape->count; ++d)
      given.views[k].shape[d] = shape->items[d].integer;
    given.numbers[k].i = numbers->items[k].integer;
  }
  return given;
}

static void test_expressions(np_arena *arena, const np_json *part) {
  const np_json *cases = np_get(part, "cases");
  np_plan plan = {0};
  np_given given = given_of(arena, &plan, np_get(part, "shapes"), np_get(part, "scalars"));
  for (size_t k = 0; k < cases->count; ++k) {
    const np_json *c = &cases->items[k], *wanted = np_get(c, "value");
    const np_json *multiprocessors = np_get(c, "multiprocessors");
    np_number found;
    given.multiprocessors = multiprocessors ? multiprocessors->integer : -1;
    neptune_status status = np_evaluate(np_get(c, "expression"), &given, &found);
    if (np_get(c, "error"))
      expect(status != NEPTUNE_OK, "no error of expression", k);
    else
      expect(!status && found.is_float == (wanted->kind == NP_FLOAT) &&
                 (found.is_float ? found.f == wanted->number : found.i == wanted->integer),
             "value of expression", k);
  }
}

static void test_descriptions(np_arena *arena, const np_json *part) {
  const np_json *cases = np_get(part, "cases"), *names = np_get(part, "names");
  np_plan plan = {.arguments = names->count};
  plan.argument = np_take(arena, names->count, sizeof *plan.argument);
  for (size_t k = 0; k < names->count; ++k)
    plan.argument[k].name = names->items[k].string;
  for (size_t k = 0; k < cases->count; ++k) {
    np_text text = {{0}, 0};
    np_describe(np_get(&cases->items[k], "expression"), &plan, &text);
    expect(strcmp(text.data, np_get(&cases->items[k], "text")->string) == 0, text.data, k);
  }
}

/* Arguments of a case: objects are arrays, numbers are numbers. */
static neptune_value *values_of(np_arena *arena, const np_json *list) {
  static float memory[64];
  neptune_value *values = np_take(arena, list->count + 1, sizeof *values);
  for (size_t k = 0; k < list->count; ++k) {
    const np_json *one = &list->items[k], *shape = np_get(one, "shape");
    if (!shape) {
      values[k] = one->kind == NP_FLOAT ? neptune_number(one->number) : neptune_integer(one->integer);
      continue;
    }
    neptune_array *array = np_take(arena, 1, sizeof *array);
    int64_t *extents = np_take(arena, shape->count, sizeof *extents);
    for (size_t d = 0; d < shape->count; ++d)
      extents[d] = shape->items[d].integer;
    *array = (neptune_array){memory, np_get(one, "dtype")->string, (int32_t)shape->count, extents,
                             NULL};
    values[k] = neptune_of(array);
  }
  return values;
}

static void test_call(const np_json *c, const np_given *given, size_t number) {
  const np_json *buffers = np_get(c, "buffers"), *programs = np_get(c, "programs");
  const np_json *results = np_get(c, "results");
  int64_t shape[NEPTUNE_MAX_RANK], count;
  neptune_result result;
  for (size_t k = 0; k < buffers->count; ++k)
    expect(!np_buffer_shape(given, k, shape) &&
               same_extents(&buffers->items[k], given->plan->buffer[k].rank, shape),
           "buffer of call", number);
  for (size_t k = 0; k < programs->count; ++k)
    expect(!np_programs(given, k, &count) && count == programs->items[k].integer,
           "programs of call", number);
  for (size_t k = 0; k < results->count; ++k)
    expect(!np_result_of(given, k, &result) &&
               same_extents(&results->items[k], result.rank, result.shape),
           "result of call", number);
}

static void test_calls(np_arena *arena, const np_json *part, const char *text) {
  const np_json *cases = np_get(part, "cases");
  np_plan plan = {0};
  /* the plan stands in the file as JSON; bundles have it as text */
  const char *begin = strstr(strstr(text, "\"calls\""), "\"plan\": ") + strlen("\"plan\": ");
  const char *end = strstr(begin, "\"multiprocessors\": 3");
  while (*end != ',')
    --end;
  char *copy = np_take(arena, (size_t)(end - begin) + 1, 1);
  memcpy(copy, begin, (size_t)(end - begin));
  np_json quoted = {.kind = NP_STRING, .string = copy};
  expect(np_read_plan(arena, &quoted, &plan) == NEPTUNE_OK, "plan", 0);
  for (size_t k = 0; k < cases->count; ++k) {
    const np_json *c = &cases->items[k], *list = np_get(c, "arguments");
    const np_json *error = np_get(c, "error");
    np_given given = {&plan, np_take(arena, plan.arguments, sizeof *given.views),
                      np_take(arena, plan.arguments, sizeof *given.numbers),
                      np_get(part, "multiprocessors")->integer};
    neptune_status status = np_check(&given, values_of(arena, list), list->count);
    if (error)
      expect(status == NEPTUNE_BAD_ARGUMENT && strcmp(neptune_error(), error->string) == 0,
             "message of call", k);
    else if (expect(status == NEPTUNE_OK, "call", k), !status)
      test_call(c, &given, k);
  }
}

static void test_reshapes(const np_json *cases) {
  for (size_t k = 0; k < cases->count; ++k) {
    const np_json *c = &cases->items[k], *shape = np_get(c, "shape"), *wanted = np_get(c, "found");
    const np_json *strides = np_get(c, "strides"), *next = np_get(c, "new");
    np_view view = {.dtype = "f32", .rank = (int32_t)shape->count};
    int64_t extents[NEPTUNE_MAX_RANK], found[NEPTUNE_MAX_RANK];
    for (size_t d = 0; d < shape->count; ++d) {
      view.shape[d] = shape->items[d].integer;
      view.strides[d] = strides->items[d].integer;
    }
    for (size_t d = 0; d < next->count; ++d)
      extents[d] = next->items[d].integer;
    bool can = np_reshaped(&view, (int32_t)next->count, extents, found);
    expect(can == (wanted->kind == NP_ARRAY) &&
               (!can || same_extents(wanted, (int32_t)next->count, found)),
           "reshape", k);
  }
}

int main(int argc, char **argv) {
  static char text[1 << 17];
  np_arena arena = {NULL};
  FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
  size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
  const np_json *root = np_parse(&arena, text, size);
  if (!root) {
    printf("no vectors: %s\n", neptune_error());
    return 2;
  }
  fclose(file);
  test_expressions(&arena, np_get(root, "expressions"));
  test_descriptions(&arena, np_get(root, "descriptions"));
  test_calls(&arena, np_get(root, "calls"), text);
  test_reshapes(np_get(root, "reshapes"));
  np_release(&arena);
  printf("%d checks, %d failures\n", checks, failures);
  return failures != 0;
}
