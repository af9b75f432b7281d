/* The memory of rows and of adjoints: blocks of one kind, by length.

   What is given back is kept for the next one of its length, up to some bytes: malloc and
   free took half the time of a loop over vectors of six, and the pages of larger ones
   more than all that was done with them. */

#ifndef VLAD_TYPED_BLOCKS_H
#define VLAD_TYPED_BLOCKS_H

#include "derivatives.h"
#include "typed.h"

static size_t block_bytes(size_t length) { return sizeof(Row) + length * sizeof(double); }

/* Short lengths have a list each, others share one where the first comer's length counts. */
static Row **spares_of(size_t length) {
  if (length < SPARE_LENGTHS) return &T.spare[length];
  return &T.spare[SPARE_LENGTHS + length % SPARE_LENGTHS];
}

static void count_row_bytes(size_t more) {
  T.row_bytes += more;
  if (T.row_bytes > T.peak_row_bytes) T.peak_row_bytes = T.row_bytes;
}

static Row *new_block(size_t length) {
  Row **list = spares_of(length), *r = *list;
  size_t bytes = block_bytes(length);
  if (r && r->length == length) {
    *list = r->next;
    T.spare_bytes -= bytes;
  } else {
    r = take_of_budget(bytes);
    r->length = (uint32_t)length;
  }
  count_row_bytes(bytes);
  return r;
}

static void drop_block(Row *r) {
  Row **list = spares_of(r->length);
  size_t bytes = block_bytes(r->length);
  T.row_bytes -= bytes;
  if ((*list && (*list)->length != r->length) || T.spare_bytes + bytes > SPARE_BYTES) {
    give(r, bytes);
    return;
  }
  r->next = *list;
  *list = r;
  T.spare_bytes += bytes;
}

#endif
