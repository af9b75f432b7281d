/* Typed code in slices: for signals, and to free what is dead. */

#ifndef VLAD_TYPED_RUN_H
#define VLAD_TYPED_RUN_H

#include "typed_states.h"

/* Free the rows that no frame on the stack holds. */
static void sweep_rows(void) {
  T.walk++;
  for (const Word *at = T.at; at[-1].u != HALT;) {
    const char *type = type_of_code(at[-1].u);
    const Word *word = at - 1 - words_of_type(type);
    at = word;
    for (; *type; type++) {
      if (*type == 'v') word->row->seen = T.walk;
      word += *type == 'u' ? 0 : *type == 'v' ? 2 : 1;
    }
  }
  T.row_bytes = 0;
  for (Row **place = &T.rows; *place;) {
    Row *row = *place;
    if (row->seen == T.walk) {
      T.row_bytes += row_bytes(row->length);
      place = &row->next;
    } else {
      *place = row->next;
      drop_row(row);
    }
  }
  if (T.row_bytes > T.peak_live) T.peak_live = T.row_bytes;
}

/* As `typed_record`, a slice after another. Signals are let in between them; and where
   nothing is to be reversed rows that are dead are freed, when there are twice as many
   bytes of them as there were left the last time. */
static int typed_slices(int64_t fuel) {
  int64_t slice = SLICE;
  size_t enough = T.row_bytes + ROW_SLACK;
  int pauses;
  for (;;) {
    if (slice > fuel) slice = fuel;
    int how = typed_record(slice);
    T.fuel = left_of_slice(T.fuel, &pauses);
    int64_t used = slice - T.fuel;
    fuel -= used;
    if (how == STOPPED && (fuel > T.fuel || pauses)) {
      if (!used) slice *= 2;
      let_signals_in();
      if (T.most_bytes && T.row_bytes > T.most_bytes) how = FILLED;
      if (T.forgetful && T.row_bytes > enough) {
        sweep_rows();
        enough = 2 * T.row_bytes + ROW_SLACK;
      }
      if (how == STOPPED) continue;
    }
    T.fuel = fuel;
    return how;
  }
}

static int typed_run(int64_t fuel) {
  int pauses = G.pauses;
  int64_t saved = G.saved;
  G.saved = G.pauses = 0;
  int how = typed_slices(fuel);
  G.saved = saved;
  G.pauses = pauses;
  return how;
}

#endif
