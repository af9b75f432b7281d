/* What comes into typed code from outside, and what goes out: a function's argument, its
   value, and the cotangent of that. And a walk of what frames on the stack hold.

   Types are text: `d` a real, `i` one whose adjoint is always zero, `W` and `w` such that
   are whole, `b` a boolean, `v` a vector of reals, `l` a list of reals; `u` the empty tuple
   and `p` with two types a pair, which have no words of their own. */

#ifndef VLAD_TYPED_STATES_H
#define VLAD_TYPED_STATES_H

#include "typed_cells.h"

static void push_word(Word w) {
  if (UNLIKELY(T.at == T.top)) T.at = larger_stack(T.at);
  *T.at++ = w;
}

static int has_adjoint(char letter) { return letter == 'd' || letter == 'W'; }
static size_t words_of(char letter) {
  return letter == 'p' || letter == 'u' ? 0 : letter == 'v' ? 2 : 1;
}

static const char *type_of_code(uint64_t code) {
  if (code & RETURN_TO) return typed_results[code & ~RETURN_TO];
  if (code & ENTER_BY) return typed_entries[code & ~ENTER_BY];
  return typed_frames[code];
}

/* A walk of the words of frames, from the top one down. */
typedef struct Walk {
  Word *below, *word, *next;
  const char *type;
} Walk;

static Walk walk_from(Word *at) { return (Walk){at, NULL, NULL, ""}; }

/* The letter of the next one, which is then at `word`; 0 at the end. */
static int next_word(Walk *w) {
  for (;;) {
    if (!*w->type) {
      uint64_t code = w->below[-1].u;
      if (code == HALT) return 0;
      w->type = type_of_code(code);
      w->below--;
      for (const char *t = w->type; *t; t++) w->below -= words_of(*t);
      w->next = w->below;
      continue;
    }
    char letter = *w->type++;
    w->word = w->next;
    w->next += words_of(letter);
    if (w->next != w->word) return letter;
  }
}

static int load_row(Val v) {
  if (tag_of(v) != TAG_VECTOR) return 0;
  refresh(object(v));
  const Object *a = array_of(object(v));
  uint32_t length = length_of(a);
  for (uint32_t j = 0; j < length; j++)
    if (!is_double(a->field[ARRAY_HEAD + j])) return 0;
  Row *row = new_row(length);
  memcpy(row->value, a->field + ARRAY_HEAD, length * sizeof(double));
  push_word((Word){.row = row});
  push_word((Word){.u = 0});
  return 1;
}

/* What typed code has as an integer: not the negative zero, which is none. */
static int is_whole(double d) {
  return fabs(d) <= (double)MOST_WHOLE && floor(d) == d && !(d == 0.0 && signbit(d));
}

/* Push a value of a type as words; 0 if it is of another. */
static int load_value(const char **type, Val v) {
  Cell *list;
  switch (*(*type)++) {
    case 'W':
    case 'w':
      if (!is_double(v) || !is_whole(unbox(v))) return 0;
      /* fall through */
    case 'd':
    case 'i':
      if (!is_double(v)) return 0;
      push_word((Word){.d = unbox(v)});
      return 1;
    case 'b':
      if (v != TRUE && v != FALSE) return 0;
      push_word((Word){.u = v == TRUE});
      return 1;
    case 'u': return v == EMPTY;
    case 'v': return load_row(v);
    case 'l':
      if (!load_list(v, &list)) return 0;
      push_word((Word){.cell = list});
      return 1;
    default:
      return tag_of(v) == TAG_PAIR && load_value(type, object(v)->field[0]) &&
             load_value(type, object(v)->field[1]);
  }
}

/* The argument and the variables of a closure, in the order of `application`. */
static int load_application(const Object *o) {
  Val f = o->field[2];
  if (tag_of(f) != TAG_CLOSURE) return 0;
  uint64_t code = ENTER_BY | code_of(object(f));
  const char *type = type_of_code(code);
  push_word((Word){.u = HALT});
  if (!type || !load_value(&type, o->field[1])) return 0;
  if (!(object(f)->header & IS_STATIC))
    for (uint32_t i = 0; i < size_of(object(f)); i++)
      if (!load_value(&type, object(f)->field[i])) return 0;
  push_word((Word){.u = code});
  return *type == 0;
}

/* The value of words of a type; 0 if a vector of it has changed since. */
static int unload_value(const char **type, const Word **word, Val *value) {
  switch (*(*type)++) {
    case 'b': *value = boolean((int)(*word)++->u); return 1;
    case 'u': *value = EMPTY; return 1;
    case 'l': *value = unload_list((*word)++->cell); return 1;
    case 'v': {
      const Row *row = (*word)[0].row;
      if (row->version != (*word)[1].u) return 0;
      *word += 2;
      Object *array = new_array(row->length);
      memcpy(array->field + ARRAY_HEAD, row->value, row->length * sizeof(double));
      *value = version(old_object(0, VECTOR_WORDS), array);
      return 1;
    }
    case 'p': {
      Val car, cdr;
      if (!unload_value(type, word, &car) || !unload_value(type, word, &cdr)) return 0;
      *value = make_pair(car, cdr);
      return 1;
    }
    default: *value = box((*word)++->d); return 1;
  }
}

/* Add the cotangent of an array to the adjoints of its row; 0 if it is none. */
static int seed_row(const Row *row, Val given) {
  if (tag_of(given) != TAG_VECTOR) return 0;
  refresh(object(given));
  const Object *a = array_of(object(given));
  if (length_of(a) != row->length) return 0;
  double *adjoint = adjoint_of(row->trace);
  for (uint32_t j = 0; j < row->length; j++) {
    if (!is_double(a->field[ARRAY_HEAD + j])) return 0;
    adjoint[j] += unbox(a->field[ARRAY_HEAD + j]);
  }
  return 1;
}

static int seed_list(Cell *c, Val given) {
  for (; c; c = c->next, given = object(given)->field[1]) {
    if (tag_of(given) != TAG_PAIR || !is_double(object(given)->field[0])) return 0;
    c->adjoint += unbox(object(given)->field[0]) + 0.0;
  }
  return given == EMPTY;
}

/* Put the cotangent of a run's value where the adjoints of its words are; 0 if it has
   another shape, or derivatives. */
static int seed_given(const char **type, const Word **word, Val given) {
  const Word *w = *word;
  char letter = *(*type)++;
  *word += words_of(letter);
  switch (letter) {
    case 'b': return given == boolean((int)w->u);
    case 'u': return given == EMPTY;
    case 'l': return seed_list(w->cell, given);
    case 'v': return w->row->version == w[1].u && seed_row(w->row, given);
    case 'p':
      return tag_of(given) == TAG_PAIR && seed_given(type, word, object(given)->field[0]) &&
             seed_given(type, word, object(given)->field[1]);
    default:
      if (!is_double(given)) return 0;
      T.adjoint[w - T.stack] = unbox(given) + 0.0;
      return 1;
  }
}

#endif
