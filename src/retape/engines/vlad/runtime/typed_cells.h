/* Lists of reals in typed code: cells, from the pairs of a state and back to them.

   A cell that was loaded knows its pair where nothing is to be reversed, so that the next
   state has the same pairs, and no copies: what states have in common they share, as those
   of the general way do. */

#ifndef VLAD_TYPED_CELLS_H
#define VLAD_TYPED_CELLS_H

#include "typed_products.h"

#define FRESH box(-0.0)
#define IS_MOVED ((uint64_t)1)         /* the rest is where a cell is now */
#define IS_CELL ((uint64_t)1 << 63)    /* of what `met` has for a pair */

/* Note the place of the adjoint of an item of the first state. */
static void note_cell(const Cell *c) {
  Words *w = &T.cell_ordinals;
  size_t ordinal = T.ordinals++;
  uint64_t *last = w->count ? w->at + w->count - 3 : NULL;
  if (last && last[0] + last[2] * sizeof(Cell) == (uint64_t)(uintptr_t)c &&
      last[1] + last[2] == ordinal) {
    last[2]++;
    return;
  }
  push(w, (uint64_t)(uintptr_t)c);
  push(w, ordinal);
  push(w, 1);
}

/* The cells of a list; 0 if it is none of reals, or there are more than T.most_loaded. */
static int load_list(Val v, Cell **place) {
  for (; v != EMPTY; place = &(*place)->next, v = object(v)->field[1]) {
    if (tag_of(v) != TAG_PAIR || (object(v)->header & IS_STATIC)) return 0;
    const Object *o = object(v);
    size_t i = met_place(o);
    if (met.key[i]) {
      *place = (Cell *)(uintptr_t)(met.copy[i] & ~IS_CELL);
      return (met.copy[i] & IS_CELL) != 0;
    }
    if (!is_double(o->field[0]) || T.most_loaded-- == 0) return 0;
    CELL(*place, unbox(o->field[0]), NULL)
    met.key[i] = o;
    met.copy[i] = (Val)(uintptr_t)*place | IS_CELL;
    if (2 * ++met.count > met.room) met_grow();
    if (T.forgetful)
      (*place)->adjoint = unbox((Val)(uintptr_t)o);
    else
      note_cell(*place);
  }
  *place = NULL;
  return 1;
}

/* What was loaded stays where it is, and what comes now goes elsewhere. */
static void all_loaded(void) {
  T.loaded = T.block;
  T.cell = T.cell_end = NULL;
}

/* The pairs of a list. A cell that has one knows it then. */
static void unload_list(Cell *c, Val *place) {
  for (; c; c = c->next) {
    if (box(c->adjoint) != FRESH) {
      *place = tagged(TAG_PAIR, (void *)(uintptr_t)box(c->adjoint));
      return;
    }
    Object *o = old_object(0, 2);
    o->field[0] = box(c->value);
    *place = tagged(TAG_PAIR, o);
    place = &o->field[1];
    c->adjoint = unbox((Val)(uintptr_t)o);
  }
  *place = EMPTY;
}

/* Copy what a list has of cells that were not loaded, each once. */
static void keep_cells(Cell **place) {
  for (Cell *c = *place; c; c = *place) {
    uint64_t known = box(c->adjoint);
    if (known != FRESH) {
      if (known & IS_MOVED) *place = (Cell *)(uintptr_t)(known & ~IS_MOVED);
      return;
    }
    Cell *copy;
    CELL(copy, c->value, c->next)
    c->adjoint = unbox((Val)(uintptr_t)copy | IS_MOVED);
    *place = copy;
    place = &copy->next;
  }
}

/* Take the cotangents of a list from *n on, but of what a walk has seen. */
static int seed_list(Cell *c, const Val *given, size_t count, size_t *n) {
  for (; c && box(c->adjoint) == FRESH; c = c->next) {
    if (*n >= count || !is_double(given[*n])) return 0;
    c->adjoint = unbox(given[(*n)++]) + 0.0;
  }
  return 1;
}

#endif
