/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Shapes, strides, and where arrays lie. */
#include "internal.h"

#include <string.h>

size_t np_size_of(const char *dtype) {
  static const struct {
    const char *name;
    size_t size;
  } sizes[] = {{"f32", 4}, {"f16", 2}, {"bf16", 2}, {"f64", 8}, {"i1", 1},  {"i8", 1},
               {"i16", 2}, {"i32", 4}, {"i64", 8},  {"index", 8}, {"ui8", 1}, {"ui16", 2},
               {"ui32", 4}, {"ui64", 8}, {"f8E4M3FN", 1}};
  for (size_t k = 0; dtype && k < sizeof sizes / sizeof *sizes; ++k)
    if (strcmp(dtype, sizes[k].name) == 0)
      return sizes[k].size;
  return 0;
}

int64_t np_elements(int32_t rank, const int64_t *shape) {
  int64_t count = 1;
  for (int32_t d = 0; d < rank; ++d)
    if (shape[d] == 0)
      return 0;
  for (int32_t d = 0; d < rank; ++d)
    if (shape[d] < 0 || __builtin_mul_overflow(count, shape[d], &count))
      return -1;
  /* bytes of any type have to fit as well */
  return count > INT64_MAX / 16 ? -1 : count;
}

void np_contiguous(int32_t rank, const int64_t *shape, int64_t *strides) {
  int64_t next = 1;
  for (int32_t d = rank - 1; d >= 0; --d) {
    strides[d] = next;
    next *= shape[d] > 1 ? shape[d] : 1;
  }
}

int64_t np_pitched(int32_t rank, const int64_t *shape, int64_t pitch, int64_t *strides) {
  int64_t whole[NEPTUNE_MAX_RANK];
  memcpy(whole, shape, (size_t)rank * sizeof *shape);
  if (rank)
    whole[rank - 1] = (whole[rank - 1] + pitch - 1) / pitch * pitch;
  np_contiguous(rank, whole, strides);
  return np_elements(rank, whole);
}

bool np_is_contiguous(const np_view *view) {
  int64_t strides[NEPTUNE_MAX_RANK];
  np_contiguous(view->rank, view->shape, strides);
  return memcmp(strides, view->strides, (size_t)view->rank * sizeof *strides) == 0;
}

void np_span(const np_view *view, char **low, char **high) {
  int64_t first = 0, last = 1, size = (int64_t)np_size_of(view->dtype);
  *low = *high = view->data;
  if (np_elements(view->rank, view->shape) == 0)
    return;
  for (int32_t d = 0; d < view->rank; ++d) {
    int64_t reach = (view->shape[d] - 1) * view->strides[d];
    *(reach < 0 ? &first : &last) += reach;
  }
  *low += first * size;
  *high += last * size;
}

bool np_is_apart(const np_view *one, const np_view *other) {
  char *low, *high, *first, *last;
  np_span(one, &low, &high);
  np_span(other, &first, &last);
  return high <= first || last <= low;
}

bool np_reshaped(const np_view *view, int32_t rank, const int64_t *shape, int64_t *strides) {
  /* runs of dimensions that are one in memory: elements, and the stride of the innermost */
  int64_t counts[NEPTUNE_MAX_RANK], steps[NEPTUNE_MAX_RANK];
  int runs = 0;
  if (np_elements(view->rank, view->shape) == 0) {
    np_contiguous(rank, shape, strides);
    return true;
  }
  for (int32_t d = 0; d < view->rank; ++d) {
    if (view->shape[d] == 1)
      continue;
    if (runs && steps[runs - 1] == view->shape[d] * view->strides[d]) {
      counts[runs - 1] *= view->shape[d];
      steps[runs - 1] = view->strides[d];
    } else {
      counts[runs] = view->shape[d];
      steps[runs++] = view->strides[d];
    }
  }
  int64_t left = 1, step = 1; /* of the run that is being cut, from the inside */
  for (int32_t d = rank - 1; d >= 0; --d) {
    if (shape[d] != 1 && left == 1) {
      if (!runs)
        return false;
      left = counts[--runs];
      step = steps[runs];
    }
    if (shape[d] != 1 && left % shape[d])
      return false;
    strides[d] = step;
    if (shape[d] != 1) {
      left /= shape[d];
      step *= shape[d];
    }
  }
  return true;
}

static void copy_from(const np_view *target, const np_view *source, int32_t dim, char *to,
                      const char *from, size_t size) {
  if (dim == target->rank) {
    memcpy(to, from, size);
    return;
  }
  int64_t step = target->strides[dim] * (int64_t)size, other = source->strides[dim] * (int64_t)size;
  for (int64_t k = 0; k < target->shape[dim]; ++k)
    copy_from(target, source, dim + 1, to + k * step, from + k * other, size);
}

void np_copy(const np_view *target, const np_view *source) {
  size_t size = np_size_of(target->dtype);
  int64_t count = np_elements(target->rank, target->shape);
  if (count <= 0)
    return;
  if (np_is_contiguous(target) && np_is_contiguous(source))
    memmove(target->data, source->data, (size_t)count * size);
  else
    copy_from(target, source, 0, target->data, source->data, size);
}

void np_shape_text(np_text *text, int32_t rank, const int64_t *shape) {
  np_add(text, "[");
  for (int32_t d = 0; d < rank; ++d) {
    np_add(text, d ? ", " : "");
    if (shape[d] < 0)
      np_add(text, "?");
    else
      np_add(text, "%lld", (long long)shape[d]);
  }
  np_add(text, "]");
}
