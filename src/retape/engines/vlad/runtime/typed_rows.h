/* Rows, and the memory of the tape and of the stack. */

#ifndef VLAD_TYPED_ROWS_H
#define VLAD_TYPED_ROWS_H

#include "typed_items.h"

static void drop_values(Row *r) {
  if (r->value) drop_items(r->value, r->length);
  r->value = NULL;
}

static void drop_adjoint(Row *r) {
  if (r->adjoint) drop_items(r->adjoint, r->length);
  r->adjoint = NULL;
}

/* A row is not needed any more. */
static void drop_row(Row *r) {
  drop_values(r);
  drop_adjoint(r);
  T.row_bytes -= sizeof(Row);
  if (T.spare_bytes + sizeof(Row) > SPARE_BYTES) {
    give(r, sizeof(Row));
    return;
  }
  r->next = T.spare_rows;
  T.spare_rows = r;
  T.spare_bytes += sizeof(Row);
}

void next_block(void) {
  CellBlock *b = T.spare_blocks;
  if (b) {
    T.spare_blocks = b->next;
    T.spare_block_count--;
  } else {
    b = take(sizeof(CellBlock));
  }
  b->next = NULL;
  *(T.block ? &T.block->next : &T.blocks) = b;
  T.block = b;
  T.block_count++;
  T.cell = b->cell;
  T.cell_end = b->cell + BLOCK_CELLS;
}

/* Blocks are not needed any more. */
static void drop_blocks(CellBlock *b) {
  for (CellBlock *next; b; b = next) {
    next = b->next;
    T.block_count--;
    if (T.spare_block_count == SPARE_BLOCKS) {
      give(b, sizeof(CellBlock));
      continue;
    }
    b->next = T.spare_blocks;
    T.spare_blocks = b;
    T.spare_block_count++;
  }
}

static void clear_cells(void) {
  drop_blocks(T.blocks);
  T.blocks = T.block = T.loaded = NULL;
  T.cell = T.cell_end = NULL;
}

static void typed_clear(void) {
  clear_cells();
  for (Row *r = T.rows, *next; r; r = next) {
    next = r->next;
    drop_row(r);
  }
  T.rows = T.young = NULL;
  Piece *last = T.first;
  for (int i = 1; last && last->after && i < KEPT_PIECES; i++) last = last->after;
  while (last && last->after) {
    Piece *next = last->after;
    last->after = next->after;
    give(next, sizeof(Piece));
  }
  T.piece = T.first;
}

static Row *new_row(size_t length) {
  if (UNLIKELY(G.brief && length > BRIEF_ROW)) not_brief();
  Row *r = T.spare_rows;
  if (r) {
    T.spare_rows = r->next;
    T.spare_bytes -= sizeof(Row);
  } else {
    r = take(sizeof(Row));
  }
  T.row_bytes += sizeof(Row);
  T.made_bytes += sizeof(Row) + 2 * length * sizeof(double);
  G.made += length;
  G.work += (int64_t)length * WORK_OF_ELEMENT;
  *r = (Row){.next = T.rows, .young = T.young, .length = (uint32_t)length};
  T.rows = T.young = r;
  r->value = new_items(length);
  if (UNLIKELY(T.row_bytes > T.sweep_at)) G.work = MOST_WORK;
  return r;
}

Row *made_row(size_t length) { return new_row(length); }

double *new_adjoint(Row *r) {
  r->adjoint = new_items(r->length);
  return memset(r->adjoint, 0, r->length * sizeof(double));
}

void row_ends(Row *r) {
  drop_adjoint(r);
  drop_values(r);
}

int row_is_used(const Row *r) {
  if (!r->adjoint) return 0;
  uint32_t i = 0;
  while (i < r->length && r->adjoint[i] == 0.0) i++;
  return i < r->length;
}

Row *full_row(size_t length, double value) {
  Row *r = new_row(length);
  for (size_t i = 0; i < length; i++) r->value[i] = value;
  return r;
}

/* The adjoint of what a vector was full of when it was made. */
double row_adjoint(const Row *r) {
  double sum = 0.0;
  if (!r->adjoint) return 0.0;
  for (uint32_t i = r->length; i-- > 0;) sum += r->adjoint[i];
  return sum;
}

/* The next piece of the tape, after one that is filled up to `tape`. */
Word *next_piece(Word *tape) {
  Piece *p = T.piece;
  if (T.forgetful) return p->word + 1;
  p->filled = tape;
  if (!p->after) {
    p->after = take(sizeof(Piece));
    p->after->before = p;
    p->after->after = NULL;
  }
  T.piece = p->after;
  T.piece->word[0].u = TAPE_PIECE;
  return T.piece->word + 1;
}

/* A larger stack; its contents move. */
Word *larger_stack(Word *at) {
  size_t used = T.stack ? (size_t)(at - T.stack) : 0;
  size_t room = T.stack ? (size_t)(T.top - T.stack) : 0, larger = room ? 2 * room : 1024;
  Word *grown = realloc(T.stack, larger * sizeof(Word));
  if (!grown) fail(NO_MEMORY, "", -1, NOTHING, NOTHING);
  G.mapped += (larger - room) * sizeof(Word);
  if (G.mapped > G.peak_mapped) G.peak_mapped = G.mapped;
  T.stack = grown;
  T.top = grown + larger;
  return grown + used;
}

#endif
