/* States of typed code in memory of their own, and cotangents of them.

   A capsule has the words of the stack, then its rows, and then the items of its lists,
   each in the order in which a walk of the words meets it. A word has the number of its
   row, or of its list's first cell, counted from 1; so has a cell, of the one after it. A
   cotangent is an array in the same order: for each word, each item of a row, each cell. */

#ifndef VLAD_TYPED_CAPSULES_H
#define VLAD_TYPED_CAPSULES_H

#include "typed_run.h"

/* The frames on the stack as a state; 0 if a vector in it has changed since. */
static int save_state(Val *state) {
  size_t words = (size_t)(T.at - T.stack), items = 0;
  int letter, is_current = 1;
  T.cells.count = T.loaded_rows.count = 0;
  T.walk++;
  for (Walk w = walk_from(T.at); (letter = next_word(&w));) {
    Row *row = w.word->row;
    if (letter == 'l') number_cells(w.word->cell);
    if (letter != 'v') continue;
    is_current &= row->version == w.word[1].u;
    if (row->seen == T.walk) continue;
    row->seen = T.walk;
    row->trace = T.loaded_rows.count;
    push(&T.loaded_rows, (uint64_t)(uintptr_t)row);
    items += row->length;
  }
  size_t rows = T.loaded_rows.count, cells = T.cells.count;
  Object *o = new_frozen(CAPSULE_HEAD + words + rows + items + 2 * cells);
  Val *to = o->field + 1;
  to[CAPSULE_WORDS] = words, to[CAPSULE_ROWS] = rows, to[CAPSULE_CELLS] = cells;
  to += CAPSULE_HEAD;
  memcpy(to, T.stack, words * sizeof(Word));
  for (Walk w = walk_from((Word *)to + words); (letter = next_word(&w));) {
    if (letter == 'l') w.word->u = number_of_cell(w.word->cell);
    if (letter == 'v') w.word[0].u = w.word->row->trace, w.word[1].u = 0;
  }
  to += words;
  for (size_t i = 0; i < rows; i++) {
    const Row *row = (const Row *)(uintptr_t)T.loaded_rows.at[i];
    *to++ = row->length;
    memcpy(to, row->value, row->length * sizeof(double));
    to += row->length;
  }
  for (size_t i = 1; i <= cells; i++, to += 2) {
    const Cell *c = numbered_cell(i);
    to[0] = box(c->value), to[1] = number_of_cell(c->next);
  }
  for (size_t i = 1; i <= cells; i++) numbered_cell(i)->adjoint = -0.0;
  *state = tagged(TAG_FRAME, o);
  if (!is_current) give(o, frozen_bytes(*state));
  return is_current;
}

static void load_capsule(const Val *from) {
  size_t words = from[CAPSULE_WORDS], rows = from[CAPSULE_ROWS], cells = from[CAPSULE_CELLS];
  from += CAPSULE_HEAD;
  while ((size_t)(T.top - T.stack) < words) larger_stack(T.stack);
  memcpy(T.stack, from, words * sizeof(Word));
  T.at = T.stack + words;
  from += words;
  T.loaded_rows.count = 0;
  for (size_t i = 0; i < rows; i++) {
    Row *row = new_row((size_t)*from++);
    memcpy(row->value, from, row->length * sizeof(double));
    from += row->length;
    push(&T.loaded_rows, (uint64_t)(uintptr_t)row);
  }
  for (size_t i = 0; i < cells; i++) {
    Cell *c;
    CELL(c, unbox(from[2 * i]), NULL)
    push(&T.cells, (uint64_t)(uintptr_t)c);
  }
  for (size_t i = 0; i < cells; i++)
    numbered_cell(i + 1)->next = numbered_cell(from[2 * i + 1]);
  if (!rows && !cells) return;
  int letter;
  for (Walk w = walk_from(T.at); (letter = next_word(&w));) {
    if (letter == 'l') w.word->cell = numbered_cell(w.word->u);
    if (letter == 'v') w.word->row = (Row *)(uintptr_t)T.loaded_rows.at[w.word->u];
  }
}

/* A state on the stack: a capsule, or a function that is applied, as runs begin. */
static int load_state(Val first) {
  if (!is_frozen(first)) return load_application(object(first));
  load_capsule(object(first)->field + 1);
  return 1;
}

/* Put the cotangents of the state that a stage ends with where adjoints are. */
static int seed_state(const Object *given) {
  size_t n = (size_t)(T.at - T.stack), count = size_of(given);
  int letter;
  if (n > count) return 0;
  memcpy(T.adjoint, given->field, n * sizeof(double));
  T.walk++;
  for (Walk w = walk_from(T.at); (letter = next_word(&w));) {
    Row *row = w.word->row;
    if (letter != 'v' || row->seen == T.walk) continue;
    row->seen = T.walk;
    if (row->version != w.word[1].u || n + row->length > count) return 0;
    memcpy(adjoint_of(row->trace), given->field + n, row->length * sizeof(double));
    n += row->length;
  }
  for (Walk w = walk_from(T.at); (letter = next_word(&w));) {
    if (letter != 'l') continue;
    for (Cell *c = w.word->cell; c && box(c->adjoint) == FRESH; c = c->next) {
      if (n >= count) return 0;
      c->adjoint = unbox(given->field[n++]) + 0.0;
    }
  }
  return n == count;
}

/* The adjoints of the row that was loaded as such a one, in `walk_b`. */
static void find_row(size_t trace) {
  const Trace *t = &T.trace[trace];
  for (size_t i = 0; i < t->length; i++)
    push(&walk_b, box(t->adjoint ? t->adjoint->value[i] + 0.0 : 0.0));
}

static void find_cotangents(const Val *from) {
  size_t words = from[CAPSULE_WORDS];
  int letter;
  for (size_t i = 0; i < words; i++) push(&walk_b, box(0.0));
  Word *bottom = (Word *)(uintptr_t)(from + CAPSULE_HEAD);
  for (Walk w = walk_from(bottom + words); (letter = next_word(&w));)
    if (has_adjoint((char)letter))
      walk_b.at[w.word - bottom] = box(T.adjoint[w.word - bottom] + 0.0);
  for (size_t i = 0; i < from[CAPSULE_ROWS]; i++) find_row(i);
  for (size_t i = 1; i <= from[CAPSULE_CELLS]; i++)
    push(&walk_b, box(numbered_cell(i)->adjoint + 0.0));
}

/* Those of the reals of an argument, from left to right. */
static void find_of_argument(const char *type) {
  size_t slot = 1, row = 0, cell = 0;
  for (size_t left = 1; left--; type++) {
    if (*type == 'p') left += 2;
    if (*type == 'v') find_row(row++);
    if (*type == 'l')
      while (T.cells.at[cell++])
        push(&walk_b, box(numbered_cell(cell)->adjoint + 0.0));
    if (strchr("dWiw", *type))
      push(&walk_b, box(has_adjoint(*type) ? T.adjoint[slot] + 0.0 : 0.0));
    slot += words_of(*type);
  }
}

/* The cotangents of the state that a stage began with; of an application those of its
   argument. 0 if one is no number: boxed code does not multiply an infinite partial by an
   adjoint of zero, and knows whether it is one. */
static int typed_cotangents(Val first, Val *result) {
  const Object *state = object(first);
  walk_b.count = 0;
  if (is_frozen(first))
    find_cotangents(state->field + 1);
  else
    find_of_argument(type_of_code(ENTER_BY | code_of(object(state->field[2]))));
  for (size_t i = 0; i < walk_b.count; i++) {
    double d = unbox(walk_b.at[i]);
    if (d != d) return 0;
  }
  Object *o = old_object(0, (uint32_t)walk_b.count);
  memcpy(o->field, walk_b.at, walk_b.count * sizeof(Val));
  *result = tagged(TAG_FRAME, o);
  return 1;
}

#endif
