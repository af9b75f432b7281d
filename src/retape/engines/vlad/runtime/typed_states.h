/* States as typed frames, and cotangents as the adjoints beside them. */

#ifndef VLAD_TYPED_STATES_H
#define VLAD_TYPED_STATES_H

#include "typed_cells.h"

static void push_word(Word w) {
  if (UNLIKELY(T.at == T.top)) T.at = larger_stack(T.at);
  *T.at++ = w;
}

static void push_origin(size_t ordinal) {
  if (UNLIKELY(T.origins == T.origin_room)) {
    size_t room = T.origin_room ? 2 * T.origin_room : 64;
    T.origin =
        resized(T.origin, T.origin_room * sizeof(Origin), room * sizeof(Origin));
    T.origin_room = room;
  }
  T.origin[T.origins++] = (Origin){(size_t)(T.at - T.stack), ordinal};
}

/* Types as text: `d` a real, `i` one whose adjoint is always zero, `W` and `w` such that
   are whole, `b` a boolean, `u`
   the empty tuple, `v` a vector of reals, `l` a list of reals, `p` and two types a pair. */

/* The number that a thing was given when a walk met it first, or a new one. */
static size_t numbered(const void *thing, size_t fresh, int *is_new) {
  size_t i = met_place(thing);
  *is_new = !met.key[i];
  if (met.key[i]) return (size_t)met.copy[i];
  met.key[i] = thing;
  met.copy[i] = fresh;
  if (2 * ++met.count > met.room) met_grow();
  return fresh;
}

static int load_row(Val v) {
  int is_new;
  if (tag_of(v) != TAG_VECTOR) return 0;
  refresh(object(v));
  const Object *a = array_of(object(v));
  uint32_t length = length_of(a);
  size_t i = met_place(object(v));
  Row *row;
  if (met.key[i]) {
    row = (Row *)(uintptr_t)met.copy[i];
  } else {
    for (uint32_t j = 0; j < length; j++)
      if (!is_double(a->field[ARRAY_HEAD + j])) return 0;
    row = new_row(length);
    memcpy(row->value, a->field + ARRAY_HEAD, length * sizeof(double));
    numbered(object(v), (size_t)(uintptr_t)row, &is_new);
    push(&T.row_ordinals, row->trace);
    push(&T.row_ordinals, T.ordinals);
    T.ordinals += length;
  }
  push_word((Word){.row = row});
  push_word((Word){.u = row->version});
  return 1;
}

/* What typed code has as an integer: not the negative zero, which is none. */
static int is_whole(double d) {
  return fabs(d) <= (double)MOST_WHOLE && floor(d) == d && !(d == 0.0 && signbit(d));
}

/* Push what is at a place of the state, as words; 0 if it is not of the type. The walk
   is that of `graph_walk`, so that the ordinals of reals are its. */
static int load_typed(const char **type, const Val *place) {
  int is_new;
  Val v = *place;
  switch (*(*type)++) {
    case 'W':
    case 'w':
      if (!is_double(v) || !is_whole(unbox(v))) return 0;
      /* fall through */
    case 'd':
    case 'i': {
      if (!is_double(v)) return 0;
      size_t ordinal = numbered(place, T.ordinals, &is_new);
      if (is_new) T.ordinals++;
      if ((*type)[-1] == 'd' || (*type)[-1] == 'W') push_origin(ordinal);
      push_word((Word){.d = unbox(v)});
      return 1;
    }
    case 'b':
      if (v != TRUE && v != FALSE) return 0;
      push_word((Word){.u = v == TRUE});
      return 1;
    case 'u': return v == EMPTY;
    case 'v': return load_row(v);
    case 'l': {
      Cell *list;
      if (!load_list(v, &list)) return 0;
      push_word((Word){.cell = list});
      return 1;
    }
    case 'p': {
      if (tag_of(v) != TAG_PAIR || (object(v)->header & IS_STATIC)) return 0;
      size_t mark = numbered(object(v), T.marks + 1, &is_new);
      if (mark & IS_CELL) return 0;
      push_word((Word){.u = mark});
      T.marks += (uint64_t)is_new;
      return load_typed(type, &object(v)->field[0]) &&
             load_typed(type, &object(v)->field[1]);
    }
    default: return 0;
  }
}

/* Take from `given` the cotangents of words from `*slot` on, as a walk of the last state
   would meet them. 0 if there are too few, or one where there can be none. */
static int seed_typed(const char **type, size_t *slot, const Val *given, size_t count,
                      size_t *n, int seen) {
  int is_new;
  switch (*(*type)++) {
    case 'W':
    case 'd':
      T.adjoint[(*slot)++] = 0.0;
      if (seen) return 1;
      if (*n >= count || !is_double(given[*n])) return 0;
      T.adjoint[*slot - 1] = unbox(given[(*n)++]);
      return 1;
    case 'w':
    case 'i':
      ++*slot;
      if (seen) return 1;
      return *n < count && is_double(given[*n]) && unbox(given[(*n)++]) == 0.0;
    case 'b': ++*slot; return 1;
    case 'u': return 1;
    case 'l': return seed_list(T.stack[(*slot)++].cell, given, count, n);
    case 'v': {
      Row *row = T.stack[*slot].row;
      if (row->version != T.stack[*slot + 1].u) return 0;
      *slot += 2;
      if (row->seen == T.walk) return 1;
      row->seen = T.walk;
      if (*n + row->length > count) return 0;
      double *adjoint = adjoint_of(row->trace);
      for (uint32_t j = 0; j < row->length; j++, ++*n) {
        if (!is_double(given[*n])) return 0;
        adjoint[j] = unbox(given[*n]);
      }
      return 1;
    }
    default: {
      uint64_t mark = T.stack[(*slot)++].u;
      numbered((const void *)(uintptr_t)(mark << 4 | 1), 0, &is_new);
      return seed_typed(type, slot, given, count, n, seen || !is_new) &&
             seed_typed(type, slot, given, count, n, seen || !is_new);
    }
  }
}

static size_t words_of_type(const char *type) {
  size_t words = 0;
  for (; *type; type++) words += *type == 'u' ? 0 : *type == 'v' ? 2 : 1;
  return words;
}

static const char *type_of_code(uint64_t code) {
  if (code & RETURN_TO) return typed_results[code & ~RETURN_TO];
  if (code & ENTER_BY) return typed_entries[code & ~ENTER_BY];
  return typed_frames[code];
}

static int load_fields(uint64_t code, const Object *o, size_t first, size_t end) {
  const char *type = type_of_code(code);
  if (!type) return 0;
  for (size_t i = first; i < end; i++)
    if (!load_typed(&type, &o->field[i])) return 0;
  push_word((Word){.u = code});
  return *type == 0;
}

/* The argument and the variables of a closure, in the order of `application`. */
static int load_application(const Object *o) {
  Val f = o->field[2];
  if (tag_of(f) != TAG_CLOSURE) return 0;
  uint64_t code = ENTER_BY | code_of(object(f));
  const char *type = type_of_code(code);
  if (!type || !load_typed(&type, &o->field[1])) return 0;
  if (!(object(f)->header & IS_STATIC))
    for (uint32_t i = 0; i < size_of(object(f)); i++)
      if (!load_typed(&type, &object(f)->field[i])) return 0;
  push_word((Word){.u = code});
  return *type == 0;
}

/* A state as typed frames, the outermost first. */
static int load_state(Val frame) {
  met_clear();
  walk_a.count = 0;
  for (Val k = frame; code_of(object(k)) != HALT; k = object(k)->field[0])
    push(&walk_a, k);
  push_word((Word){.u = HALT});
  while (walk_a.count) {
    const Object *o = object(walk_a.at[--walk_a.count]);
    uint64_t code = code_of(o);
    if (code == RETURN) {
      uint64_t to = T.at[-1].u;
      if (to == HALT || !load_fields(RETURN_TO | to, o, 1, 2)) return 0;
    } else if (code == APPLY) {
      if (!load_application(o)) return 0;
    } else if (!load_fields(code, o, 1, size_of(o))) {
      return 0;
    }
  }
  return 1;
}

/* The cotangents of the last state, in the order in which a walk meets its reals. */
static int seed_state(const Object *given) {
  size_t count = size_of(given), n = 0;
  met_clear();
  T.walk++;
  walk_a.count = 0;
  for (const Word *at = T.at; at[-1].u != HALT;) {
    push(&walk_a, (uint64_t)(at - T.stack - 1));
    at -= words_of_type(type_of_code(at[-1].u)) + 1;
  }
  while (walk_a.count) {
    size_t end = walk_a.at[--walk_a.count];
    const char *type = type_of_code(T.stack[end].u);
    size_t slot = end - words_of_type(type);
    while (*type)
      if (!seed_typed(&type, &slot, given->field, count, &n, 0)) return 0;
  }
  return n == count;
}

#endif
