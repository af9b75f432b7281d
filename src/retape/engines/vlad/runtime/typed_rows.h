/* Rows, and the memory of the tape and of the stack. */

#ifndef VLAD_TYPED_ROWS_H
#define VLAD_TYPED_ROWS_H

#include "typed_traces.h"

void next_block(void) {
  CellBlock *b = T.spare_blocks;
  if (b) {
    T.spare_blocks = b->next;
    T.spare_block_count--;
  } else {
    b = take_of_budget(sizeof(CellBlock));
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

static void drop_spares(void) {
  for (size_t i = 0; i < 2 * SPARE_LENGTHS; i++)
    for (Row *r = T.spare[i]; r; r = T.spare[i]) {
      T.spare[i] = r->next;
      give(r, block_bytes(r->length));
    }
  for (CellBlock *b = T.spare_blocks; b; b = T.spare_blocks) {
    T.spare_blocks = b->next;
    give(b, sizeof(CellBlock));
  }
  T.spare_bytes = T.spare_block_count = 0;
}

static void clear_cells(void) {
  drop_blocks(T.blocks);
  T.blocks = T.block = NULL;
  T.cell = T.cell_end = NULL;
}

static void typed_clear(void) {
  clear_cells();
  for (Row *r = T.rows, *next; r; r = next) {
    next = r->next;
    drop_block(r);
  }
  T.rows = NULL;
  clear_traces();
  Piece *last = T.first;
  for (int i = 1; last && last->after && i < KEPT_PIECES; i++) last = last->after;
  while (last && last->after) {
    Piece *next = last->after;
    last->after = next->after;
    give(next, sizeof(Piece));
  }
  T.piece = T.first;
}

/* A row that is made; its bytes, those of its adjoint, and of what a reverse has of it,
   in a table that is twice as large when it is full. */
static void count_made(size_t length) {
  T.made_bytes += 2 * block_bytes(length) + 2 * sizeof(Trace);
}

static Row *new_row(size_t length) {
  Row *r = new_block(length);
  count_made(length);
  G.made += length;
  G.work += (int64_t)length * WORK_OF_ELEMENT;
  r->next = T.rows;
  r->version = r->seen = r->is_kept = 0;
  r->trace = T.forgetful ? 0 : new_trace(length);
  T.rows = r;
  if (UNLIKELY(T.row_bytes > T.sweep_at)) G.work = MOST_WORK;
  return r;
}

/* A row that nothing holds: its trace's, if the reverse reads it, or nobody's. */
static void leave_row(Row *r) {
  if (r->is_kept && !T.forgetful)
    T.trace[r->trace].row = r;
  else
    drop_block(r);
}

Row *made_row(size_t length) { return new_row(length); }

Row *full_row(size_t length, double value) {
  Row *r = new_row(length);
  for (size_t i = 0; i < length; i++) r->value[i] = value;
  return r;
}

/* The next piece of the tape, after one that is filled up to `tape`. */
Word *next_piece(Word *tape) {
  Piece *p = T.piece;
  if (T.forgetful) {
    T.forgotten += (size_t)(tape - p->word - 1) * sizeof(Word);
    return p->word + 1;
  }
  p->filled = tape;
  if (!p->after) {
    p->after = take_of_budget(sizeof(Piece));
    p->after->before = p;
    p->after->after = NULL;
  }
  T.piece = p->after;
  T.piece->word[0].u = TAPE_PIECE;
  return T.piece->word + 1;
}

/* Words of the stack that a program holds at any rate. */
#define FIRST_WORDS ((size_t)1024)

/* A larger stack; its contents move. */
Word *larger_stack(Word *at) {
  size_t used = T.stack ? (size_t)(at - T.stack) : 0;
  size_t room = T.stack ? (size_t)(T.top - T.stack) : 0, larger = room ? 2 * room : FIRST_WORDS;
  check_budget();
  T.stack = resized(T.stack, room * sizeof(Word), larger * sizeof(Word));
  T.top = T.stack + larger;
  return T.stack + used;
}

#endif
