/* Lists of reals in typed code: cells, of pairs and to pairs. */

#ifndef VLAD_TYPED_CELLS_H
#define VLAD_TYPED_CELLS_H

#include "typed_products.h"

#define FRESH box(-0.0)

/* The cells of a list, which are noted, and where it ends; 0 if it is none of reals. */
static int load_list(Val v, Cell **place) {
  for (; v != EMPTY; place = &(*place)->next, v = object(v)->field[1]) {
    if (tag_of(v) != TAG_PAIR || !is_double(object(v)->field[0])) return 0;
    CELL(*place, unbox(object(v)->field[0]), NULL)
    push(&T.cells, (uint64_t)(uintptr_t)*place);
  }
  push(&T.cells, 0);
  *place = NULL;
  return 1;
}

/* The pairs of a list. */
static Val unload_list(const Cell *c) {
  Val list = EMPTY, *place = &list;
  for (; c; c = c->next) {
    *place = make_pair(box(c->value), EMPTY);
    place = &object(*place)->field[1];
  }
  return list;
}

/* Where nothing is to be reversed, copy what a list has of cells, each once: the adjoint's
   place has where it is now. */
static void keep_cells(Cell **place) {
  for (Cell *c = *place; c; c = *place) {
    uint64_t known = box(c->adjoint);
    if (known != FRESH) {
      *place = (Cell *)(uintptr_t)known;
      return;
    }
    Cell *copy;
    CELL(copy, c->value, c->next)
    c->adjoint = unbox((Val)(uintptr_t)copy);
    *place = copy;
    place = &copy->next;
  }
}

/* Number the cells of a list that have none, from 1, in place of their adjoints. */
static void number_cells(Cell *c) {
  for (; c && box(c->adjoint) == FRESH; c = c->next) {
    push(&T.cells, (uint64_t)(uintptr_t)c);
    c->adjoint = unbox((Val)T.cells.count);
  }
}

static uint64_t number_of_cell(const Cell *c) { return c ? box(c->adjoint) : 0; }

static Cell *numbered_cell(uint64_t number) {
  return number ? (Cell *)(uintptr_t)T.cells.at[number - 1] : NULL;
}

#endif
