/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Arguments of a call against the plan: number, types, shapes, extents that must agree. The
 * messages are those of `runtime/checks.py`. */
#include "internal.h"

#include <string.h>

static neptune_status refuse_shape(const char *name, const neptune_array *array, int32_t rank,
                                   const int64_t *shape) {
  np_text has = {{0}, 0}, wanted = {{0}, 0};
  np_shape_text(&has, array->rank, array->shape);
  np_shape_text(&wanted, rank, shape);
  return np_fail(NEPTUNE_BAD_ARGUMENT, "%s has shape %s, not %s", name, has.data, wanted.data);
}

/* MLIR's integers have no sign, and programs without bf16 or e4m3 hold them as their bits. */
static bool same_type(const char *given, const char *wanted) {
  if (strcmp(given, "ui16") == 0 && strcmp(wanted, "bf16") == 0)
    return true;
  if (strcmp(given, "ui8") == 0 && strcmp(wanted, "f8E4M3FN") == 0)
    return true;
  given += *given == 'u';
  return strcmp(given, wanted) == 0 || (strcmp(given, "i64") == 0 && strcmp(wanted, "index") == 0);
}

neptune_status np_check_array(const neptune_array *array, const char *name, const char *dtype,
                              int32_t rank, const int64_t *shape, np_view *view) {
  if (array->rank < 0 || array->rank > NEPTUNE_MAX_RANK || (array->rank && !array->shape))
    return np_fail(NEPTUNE_BAD_ARGUMENT, "%s has %d dimensions, at most %d are taken", name,
                   (int)array->rank, NEPTUNE_MAX_RANK);
  bool fits = array->rank == rank;
  for (int32_t d = 0; fits && d < rank; ++d)
    fits = array->shape[d] >= 0 && (shape[d] < 0 || shape[d] == array->shape[d]);
  if (!fits)
    return refuse_shape(name, array, rank, shape);
  if (!array->dtype || !same_type(array->dtype, dtype))
    return np_fail(NEPTUNE_BAD_ARGUMENT, "%s has type %s, not %s", name,
                   array->dtype ? array->dtype : "(none)", dtype);
  int64_t count = np_elements(rank, array->shape);
  if (count < 0)
    return np_fail(NEPTUNE_BAD_ARGUMENT, "%s has more elements than memory has", name);
  if (!array->data && count)
    return np_fail(NEPTUNE_BAD_ARGUMENT, "%s has no memory", name);
  view->data = array->data;
  view->dtype = dtype;
  view->rank = rank;
  if (rank)
    memcpy(view->shape, array->shape, (size_t)rank * sizeof *array->shape);
  if (array->strides && rank)
    memcpy(view->strides, array->strides, (size_t)rank * sizeof *array->strides);
  else
    np_contiguous(rank, view->shape, view->strides);
  int64_t reach = 0, part;
  for (int32_t d = 0; count && d < rank; ++d)
    if (view->strides[d] == INT64_MIN ||
        __builtin_mul_overflow(view->shape[d] - 1,
                               view->strides[d] < 0 ? -view->strides[d] : view->strides[d], &part) ||
        __builtin_add_overflow(reach, part, &reach) || reach > INT64_MAX / 16)
      return np_fail(NEPTUNE_BAD_ARGUMENT, "%s has strides that leave memory", name);
  return NEPTUNE_OK;
}

static neptune_status check_number(const neptune_value *value, const np_argument *wanted,
                                   np_number *number) {
  bool whole = strcmp(wanted->dtype, "index") == 0 || *wanted->dtype == 'i';
  if (value->array)
    return np_fail(NEPTUNE_BAD_ARGUMENT, "%s is an array, not %s", wanted->name,
                   whole ? "an integer" : "a number");
  if (!whole) {
    *number = (np_number){true, 0, value->is_float ? value->number : (double)value->integer};
    return NEPTUNE_OK;
  }
  if (value->is_float)
    return np_fail(NEPTUNE_BAD_ARGUMENT, "%s is a float, not an integer", wanted->name);
  int bits = *wanted->dtype == 'i' && wanted->dtype[1] != 'n' ? (int)np_size_of(wanted->dtype) * 8 : 64;
  bits = strcmp(wanted->dtype, "i1") == 0 ? 1 : bits;
  if (bits < 64 && (value->integer < -((int64_t)1 << (bits - 1)) ||
                    value->integer >= (int64_t)1 << bits))
    return np_fail(NEPTUNE_BAD_ARGUMENT, "%s is %lld, which %s cannot hold", wanted->name,
                   (long long)value->integer, wanted->dtype);
  *number = (np_number){false, value->integer, 0};
  return NEPTUNE_OK;
}

static neptune_status check_equal(const np_given *given) {
  const np_json *equals = given->plan->equals;
  np_given without = *given;
  without.multiprocessors = -1;
  for (size_t k = 0; k < equals->count; ++k) {
    const np_json *pair = equals->items[k].items;
    np_number a, b;
    neptune_status status = np_evaluate(&pair[0], &without, &a);
    if (!status)
      status = np_evaluate(&pair[1], &without, &b);
    if (status)
      return status;
    if (a.is_float || b.is_float || a.i != b.i) {
      np_text left = {{0}, 0}, right = {{0}, 0};
      np_describe(&pair[0], given->plan, &left);
      np_describe(&pair[1], given->plan, &right);
      return np_fail(NEPTUNE_BAD_ARGUMENT, "%s is %lld, but %s is %lld: they must be equal",
                     left.data, (long long)a.i, right.data, (long long)b.i);
    }
  }
  return NEPTUNE_OK;
}

neptune_status np_check(np_given *given, const neptune_value *arguments, size_t count) {
  const np_plan *plan = given->plan;
  if (count != plan->arguments)
    return np_fail(NEPTUNE_BAD_ARGUMENT, "%s takes %zu arguments, %zu were given", plan->entry,
                   plan->arguments, count);
  for (size_t k = 0; k < count; ++k) {
    const np_argument *a = &plan->argument[k];
    neptune_status status;
    if (!a->is_array)
      status = check_number(&arguments[k], a, &given->numbers[k]);
    else if (!arguments[k].array)
      status = np_fail(NEPTUNE_BAD_ARGUMENT, "%s is a number, not an array", a->name);
    else
      status = np_check_array(arguments[k].array, a->name, a->dtype, a->rank, a->shape,
                              &given->views[k]);
    if (status)
      return status;
  }
  return check_equal(given);
}
