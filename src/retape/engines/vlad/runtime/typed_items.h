/* The memory of rows: their items and adjoints, by length.

   What is given back is kept for the next row of its length, up to some bytes: malloc and
   free took half the time of a loop over vectors of six, and the pages of larger ones
   more than all that was done with them. */

#ifndef VLAD_TYPED_ITEMS_H
#define VLAD_TYPED_ITEMS_H

#include "derivatives.h"
#include "typed.h"

static size_t items_bytes(size_t length) {
  return (length < 2 ? 2 : length) * sizeof(double);
}

/* Short lengths have a list each, others share one where the first comer's length counts. */
static Spare **spares_of(size_t length) {
  if (length < SPARE_LENGTHS) return &T.spare[length];
  return &T.spare[SPARE_LENGTHS + length % SPARE_LENGTHS];
}

static double *new_items(size_t length) {
  Spare **list = spares_of(length), *s = *list;
  size_t bytes = items_bytes(length);
  if (s && s->length == length) {
    *list = s->next;
    T.spare_bytes -= bytes;
  } else {
    s = take(bytes);
  }
  T.row_bytes += bytes;
  if (T.row_bytes > T.peak_row_bytes) T.peak_row_bytes = T.row_bytes;
  return (double *)(void *)s;
}

static void drop_items(double *items, size_t length) {
  Spare **list = spares_of(length), *s = (Spare *)(void *)items;
  size_t bytes = items_bytes(length);
  T.row_bytes -= bytes;
  if ((*list && (*list)->length != length) || T.spare_bytes + bytes > SPARE_BYTES) {
    give(items, bytes);
    return;
  }
  s->length = length;
  s->next = *list;
  *list = s;
  T.spare_bytes += bytes;
}

static void free_spares(void) {
  for (size_t i = 0; i < 2 * SPARE_LENGTHS; i++)
    for (Spare *s = T.spare[i], *next; s; s = next) {
      next = s->next;
      free(s);
    }
}

#endif
