/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Size expressions of plans: their values, and their text. `runtime/plan.py` has the same for
 * Python; test/vectors/plan.json holds both to one meaning. */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static np_number whole(int64_t i) { return (np_number){false, i, 0}; }
static np_number real(double f) { return (np_number){true, 0, f}; }
static double as_real(np_number n) { return n.is_float ? n.f : (double)n.i; }

static neptune_status overflow(const char *head) {
  return np_fail(NEPTUNE_BAD_ARGUMENT, "'%s' of these sizes does not fit 64 bits", head);
}

static neptune_status by_zero(const char *head) {
  return np_fail(NEPTUNE_BAD_ARGUMENT, "'%s' divides by zero", head);
}

/* -1, 0, 1; 2 where one is NaN. A whole number and a float are compared as they are. */
static int compare(np_number a, np_number b) {
  if (!a.is_float && !b.is_float)
    return a.i < b.i ? -1 : a.i > b.i;
  long double x = a.is_float ? (long double)a.f : (long double)a.i;
  long double y = b.is_float ? (long double)b.f : (long double)b.i;
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

/* Division of whole numbers, rounded down. */
static bool floor_divided(int64_t a, int64_t b, int64_t *quotient) {
  if (a == INT64_MIN && b == -1)
    return false;
  *quotient = a / b - (a % b != 0 && (a < 0) != (b < 0));
  return true;
}

typedef neptune_status operation(const char *head, np_number a, np_number b, np_number *value);

static neptune_status arithmetic(const char *head, np_number a, np_number b, np_number *value) {
  if (a.is_float || b.is_float) {
    double x = as_real(a), y = as_real(b);
    *value = real(*head == 'a' ? x + y : *head == 's' ? x - y : x * y);
    return NEPTUNE_OK;
  }
  int64_t made;
  bool over = *head == 'a'   ? __builtin_add_overflow(a.i, b.i, &made)
              : *head == 's' ? __builtin_sub_overflow(a.i, b.i, &made)
                             : __builtin_mul_overflow(a.i, b.i, &made);
  *value = whole(over ? 0 : made);
  return over ? overflow(head) : NEPTUNE_OK;
}

static neptune_status true_division(const char *head, np_number a, np_number b, np_number *value) {
  if (as_real(b) == 0)
    return by_zero(head);
  *value = real(as_real(a) / as_real(b));
  return NEPTUNE_OK;
}

/* floordiv, ceildiv, mod, quotient and remainder; the last two round toward zero */
static neptune_status division(const char *head, np_number a, np_number b, np_number *value) {
  if (as_real(b) == 0)
    return by_zero(head);
  bool up = *head == 'c', rest = *head == 'm' || *head == 'r', down = *head == 'f' || *head == 'm';
  if (a.is_float || b.is_float) {
    double x = as_real(a), y = as_real(b), exact = x / y;
    double quotient = up ? ceil(exact) : down ? floor(exact) : trunc(exact);
    *value = real(rest ? x - y * quotient : quotient);
    return NEPTUNE_OK;
  }
  int64_t quotient, product;
  if (up) { /* -(-a // b) */
    if (a.i == INT64_MIN || !floor_divided(-a.i, b.i, &quotient) || quotient == INT64_MIN)
      return overflow(head);
    quotient = -quotient;
  } else if (down) {
    if (!floor_divided(a.i, b.i, &quotient))
      return overflow(head);
  } else {
    if (a.i == INT64_MIN && b.i == -1)
      return overflow(head);
    quotient = a.i / b.i;
  }
  if (rest && (__builtin_mul_overflow(b.i, quotient, &product) ||
               __builtin_sub_overflow(a.i, product, &quotient)))
    return overflow(head);
  *value = whole(quotient);
  return NEPTUNE_OK;
}

static neptune_status comparison(const char *head, np_number a, np_number b, np_number *value) {
  int order = compare(a, b);
  bool holds = strcmp(head, "lt") == 0   ? order == -1
               : strcmp(head, "le") == 0 ? order == -1 || order == 0
               : strcmp(head, "eq") == 0 ? order == 0
                                         : order != 0;
  *value = whole(holds);
  return NEPTUNE_OK;
}

/* Python's min and max: the first where the other is not better */
static neptune_status extreme(const char *head, np_number a, np_number b, np_number *value) {
  *value = compare(b, a) == (head[1] == 'i' ? -1 : 1) ? b : a;
  return NEPTUNE_OK;
}

static neptune_status bits(const char *head, np_number a, np_number b, np_number *value) {
  if (a.is_float || b.is_float)
    return np_fail(NEPTUNE_BAD_FILE, "'%s' of numbers that are not whole", head);
  *value = whole(*head == 'a' ? a.i & b.i : a.i | b.i);
  return NEPTUNE_OK;
}

static neptune_status conversion(const char *head, np_number a, np_number b, np_number *value) {
  (void)b;
  if (*head == 'f') {
    *value = real(as_real(a));
  } else if (*head == 'n') {
    if (!a.is_float && a.i == INT64_MIN)
      return overflow(head);
    *value = a.is_float ? real(-a.f) : whole(-a.i);
  } else {
    if (a.is_float && !(a.f > -0x1p63 && a.f < 0x1p63))
      return overflow(head);
    *value = a.is_float ? whole((int64_t)a.f) : a;
  }
  return NEPTUNE_OK;
}

static neptune_status function(const char *head, np_number a, np_number b, np_number *value) {
  (void)b;
  double x = as_real(a), y = *head == 'e' ? exp(x) : *head == 'l' ? log(x) : sqrt(x);
  if (isfinite(x) && !isfinite(y))
    return np_fail(NEPTUNE_BAD_ARGUMENT, "'%s' of %g has no value", head, x);
  *value = real(y);
  return NEPTUNE_OK;
}

static const struct {
  const char *name;
  size_t operands;
  operation *apply;
} operations[] = {
    {"add", 2, arithmetic},  {"sub", 2, arithmetic},      {"mul", 2, arithmetic},
    {"div", 2, true_division}, {"floordiv", 2, division}, {"ceildiv", 2, division},
    {"mod", 2, division},    {"quotient", 2, division},   {"remainder", 2, division},
    {"min", 2, extreme},     {"max", 2, extreme},         {"lt", 2, comparison},
    {"le", 2, comparison},   {"eq", 2, comparison},       {"ne", 2, comparison},
    {"and", 2, bits},        {"or", 2, bits},             {"neg", 1, conversion},
    {"int", 1, conversion},  {"float", 1, conversion},    {"exp", 1, function},
    {"log", 1, function},    {"sqrt", 1, function},
};

static neptune_status unknown(const np_json *e) {
  return np_fail(NEPTUNE_BAD_FILE, "the plan has an expression that this runtime does not know%s%s",
                 e->kind == NP_ARRAY && e->count && e->items[0].kind == NP_STRING ? ": " : "",
                 e->kind == NP_ARRAY && e->count && e->items[0].kind == NP_STRING
                     ? e->items[0].string
                     : "");
}

/* The head and the whole numbers behind it: ["dim", 0, 2]; false where it is no such list. */
static bool numbers_of(const np_json *e, size_t count, int64_t *numbers) {
  for (size_t k = 0; k < count; ++k) {
    if (e->count != count + 1 || e->items[k + 1].kind != NP_INT || e->items[k + 1].integer < 0)
      return false;
    numbers[k] = e->items[k + 1].integer;
  }
  return true;
}

static neptune_status leaf(const np_json *e, const np_given *given, np_number *value, bool *done) {
  const char *head = e->items[0].string;
  const np_plan *plan = given->plan;
  int64_t at[2];
  *done = true;
  if (strcmp(head, "multiprocessors") == 0) {
    *value = whole(given->multiprocessors);
    return given->multiprocessors >= 0
               ? NEPTUNE_OK
               : np_fail(NEPTUNE_BAD_FILE, "the plan asks for the device where none is known");
  }
  if (strcmp(head, "dim") == 0) {
    if (!numbers_of(e, 2, at) || at[0] >= (int64_t)plan->arguments ||
        !plan->argument[at[0]].is_array || at[1] >= plan->argument[at[0]].rank)
      return unknown(e);
    *value = whole(given->views[at[0]].shape[at[1]]);
    return NEPTUNE_OK;
  }
  if (strcmp(head, "argument") == 0) {
    if (!numbers_of(e, 1, at) || at[0] >= (int64_t)plan->arguments ||
        plan->argument[at[0]].is_array)
      return unknown(e);
    *value = given->numbers[at[0]];
    return NEPTUNE_OK;
  }
  *done = false;
  return NEPTUNE_OK;
}

neptune_status np_evaluate(const np_json *e, const np_given *given, np_number *value) {
  if (e->kind == NP_INT || e->kind == NP_BOOL || e->kind == NP_FLOAT) {
    *value = e->kind == NP_FLOAT ? real(e->number) : whole(e->integer);
    return NEPTUNE_OK;
  }
  if (e->kind != NP_ARRAY || !e->count || e->items[0].kind != NP_STRING)
    return unknown(e);
  bool done;
  neptune_status status = leaf(e, given, value, &done);
  if (done)
    return status;
  const char *head = e->items[0].string;
  bool select = strcmp(head, "select") == 0;
  np_number operands[3] = {{0}};
  if (e->count > 4)
    return unknown(e);
  for (size_t k = 1; k < e->count; ++k)
    if ((status = np_evaluate(&e->items[k], given, &operands[k - 1])))
      return status;
  if (select && e->count == 4) {
    *value = as_real(operands[0]) != 0 ? operands[1] : operands[2];
    return NEPTUNE_OK;
  }
  for (size_t k = 0; k < sizeof operations / sizeof *operations; ++k)
    if (strcmp(head, operations[k].name) == 0 && e->count == operations[k].operands + 1)
      return operations[k].apply(head, operands[0], operands[1], value);
  return unknown(e);
}

neptune_status np_evaluate_int(const np_json *e, const np_given *given, int64_t *value) {
  np_number found;
  neptune_status status = np_evaluate(e, given, &found);
  if (!status)
    status = conversion("int", found, found, &found);
  *value = status ? 0 : found.i;
  return status;
}

static const char *infix_of(const char *head) {
  static const char *const table[][2] = {{"add", "+"},       {"sub", "-"}, {"mul", "*"},
                                         {"floordiv", "//"}, {"mod", "%"}, {"le", "<="}};
  for (size_t k = 0; k < sizeof table / sizeof *table; ++k)
    if (strcmp(head, table[k][0]) == 0)
      return table[k][1];
  return NULL;
}

void np_describe(const np_json *e, const np_plan *plan, np_text *text) {
  int64_t at[2];
  if (e->kind == NP_FLOAT) {
    np_add(text, "%g", e->number);
  } else if (e->kind != NP_ARRAY || !e->count || e->items[0].kind != NP_STRING) {
    np_add(text, "%lld", (long long)e->integer);
  } else if (strcmp(e->items[0].string, "dim") == 0 && numbers_of(e, 2, at) &&
             at[0] < (int64_t)plan->arguments) {
    np_add(text, "%s.shape[%lld]", plan->argument[at[0]].name, (long long)at[1]);
  } else if (strcmp(e->items[0].string, "argument") == 0 && numbers_of(e, 1, at) &&
             at[0] < (int64_t)plan->arguments) {
    np_add(text, "%s", plan->argument[at[0]].name);
  } else if (e->count == 1) {
    np_add(text, "%s", e->items[0].string);
  } else {
    const char *infix = e->count == 3 ? infix_of(e->items[0].string) : NULL;
    np_add(text, "%s(", infix ? "" : e->items[0].string);
    for (size_t k = 1; k < e->count; ++k) {
      if (k > 1)
        np_add(text, infix ? " %s " : "%s ", infix ? infix : ",");
      np_describe(&e->items[k], plan, text);
    }
    np_add(text, ")");
  }
}
