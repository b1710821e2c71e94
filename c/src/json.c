/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * JSON as Python's `json` writes it: also NaN and Infinity, whole numbers of at most 64 bits. */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 200 };

typedef struct reader {
  np_arena *arena;
  const char *at, *end;
  int depth;
  const char *wrong; /* what was found instead of JSON */
} reader;

static bool read_value(reader *r, np_json *into);

static bool refuse(reader *r, const char *what) {
  if (!r->wrong)
    r->wrong = what;
  return false;
}

static void skip(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
    ++r->at;
}

static bool taken(reader *r, char wanted) {
  skip(r);
  if (r->at == r->end || *r->at != wanted)
    return false;
  ++r->at;
  return true;
}

static bool word(reader *r, const char *text) {
  size_t size = strlen(text);
  if ((size_t)(r->end - r->at) < size || memcmp(r->at, text, size) != 0)
    return false;
  r->at += size;
  return true;
}

static bool read_hex(reader *r, unsigned *value) {
  *value = 0;
  for (int k = 0; k < 4; ++k, ++r->at) {
    if (r->at == r->end)
      return refuse(r, "an escape without its end");
    char c = *r->at;
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0)
      return refuse(r, "a bad escape");
    *value = *value * 16 + (unsigned)digit;
  }
  return true;
}

static char *put_utf8(char *out, unsigned code) {
  if (code < 0x80) {
    *out++ = (char)code;
  } else if (code < 0x800) {
    *out++ = (char)(0xC0 | code >> 6);
    *out++ = (char)(0x80 | (code & 63));
  } else if (code < 0x10000) {
    *out++ = (char)(0xE0 | code >> 12);
    *out++ = (char)(0x80 | (code >> 6 & 63));
    *out++ = (char)(0x80 | (code & 63));
  } else {
    *out++ = (char)(0xF0 | code >> 18);
    *out++ = (char)(0x80 | (code >> 12 & 63));
    *out++ = (char)(0x80 | (code >> 6 & 63));
    *out++ = (char)(0x80 | (code & 63));
  }
  return out;
}

static bool read_escape(reader *r, char **out) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  if (r->at == r->end)
    return refuse(r, "a text without its end");
  char c = *r->at++;
  const char *found = c ? strchr(from, c) : NULL;
  if (found) {
    *(*out)++ = to[found - from];
    return true;
  }
  unsigned code, low;
  if (c != 'u' || !read_hex(r, &code))
    return refuse(r, "a bad escape");
  if (code >= 0xD800 && code < 0xDC00 && r->end - r->at >= 6 && r->at[0] == '\\') {
    r->at += 2;
    if (!read_hex(r, &low))
      return false;
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) % 0x400;
  }
  *out = put_utf8(*out, code);
  return true;
}

static const char *read_string(reader *r) {
  if (!taken(r, '"')) {
    refuse(r, "no text where one is needed");
    return NULL;
  }
  size_t longest = 0; /* an escape of six bytes becomes at most three, two of them four */
  for (const char *c = r->at; c < r->end && *c != '"'; c += *c == '\\' && c + 1 < r->end ? 2 : 1)
    longest += 2;
  char *text = np_take(r->arena, longest + 8, 1), *out = text;
  if (!text) {
    refuse(r, "more text than there is memory");
    return NULL;
  }
  while (r->at < r->end && *r->at != '"') {
    if (*r->at != '\\')
      *out++ = *r->at++;
    else if (++r->at, !read_escape(r, &out))
      return NULL;
  }
  if (!taken(r, '"')) {
    refuse(r, "a text without its end");
    return NULL;
  }
  return text;
}

static bool read_number(reader *r, np_json *into) {
  char text[64];
  size_t used = 0;
  bool whole = true;
  while (r->at < r->end && strchr("+-0123456789.eE", *r->at) && *r->at && used < sizeof text - 1) {
    whole = whole && *r->at != '.' && *r->at != 'e' && *r->at != 'E';
    text[used++] = *r->at++;
  }
  text[used] = 0;
  char *end;
  errno = 0;
  if (whole) {
    into->kind = NP_INT;
    into->integer = strtoll(text, &end, 10);
  } else {
    into->kind = NP_FLOAT;
    into->number = strtod(text, &end);
  }
  if (!used || *end || (whole && errno == ERANGE))
    return refuse(r, "a bad number");
  return true;
}

/* Arrays and objects: items are gathered in a list that doubles. */
static bool read_items(reader *r, np_json *into, bool keyed) {
  size_t room = 0;
  if (++r->depth > DEEPEST)
    return refuse(r, "too many levels");
  skip(r);
  char close = keyed ? '}' : ']';
  while (!taken(r, close)) {
    if (into->count && !taken(r, ','))
      return refuse(r, "no comma between items");
    if (into->count == room) {
      size_t more = room ? 2 * room : 4;
      np_json *items = np_take(r->arena, more, sizeof *items);
      const char **keys = keyed ? np_take(r->arena, more, sizeof *keys) : NULL;
      if (!items || (keyed && !keys))
        return refuse(r, "more than there is memory");
      if (room) {
        memcpy(items, into->items, room * sizeof *items);
        if (keyed)
          memcpy(keys, into->keys, room * sizeof *keys);
      }
      into->items = items;
      into->keys = keys;
      room = more;
    }
    skip(r);
    if (keyed) {
      if (!(into->keys[into->count] = read_string(r)))
        return false;
      if (!taken(r, ':'))
        return refuse(r, "no colon behind a name");
    }
    if (!read_value(r, &into->items[into->count]))
      return false;
    ++into->count;
  }
  --r->depth;
  return true;
}

static bool read_value(reader *r, np_json *into) {
  skip(r);
  memset(into, 0, sizeof *into);
  if (r->at == r->end)
    return refuse(r, "an early end");
  switch (*r->at) {
  case '{':
  case '[':
    into->kind = *r->at == '{' ? NP_OBJECT : NP_ARRAY;
    return read_items(r, into, *r->at++ == '{');
  case '"':
    into->kind = NP_STRING;
    return (into->string = read_string(r)) != NULL;
  }
  if (word(r, "null"))
    return true;
  if (word(r, "true") || word(r, "false")) {
    into->kind = NP_BOOL;
    into->integer = r->at[-2] == 'u';
    return true;
  }
  double sign = word(r, "-Infinity") ? -1 : word(r, "Infinity") ? 1 : 0;
  if (sign != 0 || word(r, "NaN")) {
    into->kind = NP_FLOAT;
    into->number = sign != 0 ? sign * INFINITY : NAN;
    return true;
  }
  return read_number(r, into);
}

const np_json *np_parse(np_arena *arena, const char *text, size_t size) {
  reader r = {arena, text, text + size, 0, NULL};
  np_json *root = np_take(arena, 1, sizeof *root);
  if (!root || !read_value(&r, root)) {
    np_fail(NEPTUNE_BAD_FILE, "no JSON at byte %zu: %s", (size_t)(r.at - text),
            r.wrong ? r.wrong : "more than there is memory");
    return NULL;
  }
  skip(&r);
  if (r.at != r.end) {
    np_fail(NEPTUNE_BAD_FILE, "more than JSON at byte %zu", (size_t)(r.at - text));
    return NULL;
  }
  return root;
}

const np_json *np_get(const np_json *object, const char *key) {
  if (object && object->kind == NP_OBJECT)
    for (size_t k = 0; k < object->count; ++k)
      if (strcmp(object->keys[k], key) == 0)
        return &object->items[k];
  return NULL;
}

const np_json *np_get_kind(const np_json *object, const char *key, np_kind kind) {
  const np_json *found = np_get(object, key);
  return found && found->kind == kind ? found : NULL;
}

bool np_get_size(const np_json *object, const char *key, size_t *value) {
  const np_json *found = np_get_kind(object, key, NP_INT);
  if (!found || found->integer < 0)
    return false;
  *value = (size_t)found->integer;
  return true;
}
