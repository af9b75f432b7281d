/* Rows, and the memory of the tape and of the stack. */

#ifndef VLAD_TYPED_ROWS_H
#define VLAD_TYPED_ROWS_H

#include "derivatives.h"
#include "typed.h"

static size_t row_bytes(size_t length) {
  return sizeof(Row) + 2 * length * sizeof(double);
}

/* A row is not needed any more. */
static void drop_row(Row *r) {
  size_t bytes = row_bytes(r->length);
  if (r->length < SPARE_LENGTHS && T.spare_bytes + bytes <= SPARE_BYTES) {
    r->next = T.spare[r->length];
    T.spare[r->length] = r;
    T.spare_bytes += bytes;
  } else {
    give(r, bytes);
  }
}

static void typed_clear(void) {
  T.row_bytes = 0;
  for (Row *r = T.rows, *next; r; r = next) {
    next = r->next;
    drop_row(r);
  }
  T.rows = NULL;
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
  Row *r = length < SPARE_LENGTHS ? T.spare[length] : NULL;
  if (r) {
    T.spare[length] = r->next;
    T.spare_bytes -= row_bytes(length);
  } else {
    r = take(row_bytes(length));
  }
  T.row_bytes += row_bytes(length);
  G.made += length;
  G.work += (int64_t)length * WORK_OF_ELEMENT;
  r->next = T.rows;
  r->length = (uint32_t)length;
  r->version = 0;
  r->is_kept = 0;
  r->seen = 0;
  r->adjoint = r->value + length;
  if (!T.forgetful) memset(r->adjoint, 0, length * sizeof(double));
  T.rows = r;
  return r;
}

Row *full_row(size_t length, double value) {
  Row *r = new_row(length);
  for (size_t i = 0; i < length; i++) r->value[i] = value;
  return r;
}

/* The adjoint of what a vector was full of when it was made. */
double row_adjoint(const Row *r) {
  double sum = 0.0;
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
