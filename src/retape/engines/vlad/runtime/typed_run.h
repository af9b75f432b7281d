/* Typed code in slices: for signals, and to free what is dead. */

#ifndef VLAD_TYPED_RUN_H
#define VLAD_TYPED_RUN_H

#include "typed_states.h"

/* Mark the rows that frames on the stack hold. */
static void mark_rows(void) {
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
}

/* Leave the others; the bytes of those that are held. */
static size_t sweep_rows(void) {
  size_t held = 0;
  for (Row **place = &T.rows; *place;) {
    Row *row = *place;
    if (row->seen == T.walk) {
      held += block_bytes(row->length);
      place = &row->next;
    } else {
      *place = row->next;
      leave_row(row);
    }
  }
  if (T.row_bytes > T.peak_live) T.peak_live = T.row_bytes;
  return held;
}

/* Rows that nothing holds are left when there are so many bytes more than there were held
   the last time: few, so that they are in the processor's memory when it is used again. */
static void sweep_dead(void) {
  mark_rows();
  size_t held = sweep_rows();
  T.sweep_at = T.row_bytes + held + (size_t)(T.at - T.stack) * sizeof(Word) + ROW_SLACK;
}

/* The same of all rows, before a reverse. */
static void leave_rows(void) {
  for (Row *r = T.rows, *next; r; r = next) {
    next = r->next;
    leave_row(r);
  }
  T.rows = NULL;
}

/* Where nothing is to be reversed, copy the cells that frames on the stack hold, and free
   the others. Those that were loaded stay where they are: they know their pairs. */
static void sweep_cells(void) {
  CellBlock **from = T.loaded ? &T.loaded->next : &T.blocks, *old = *from;
  size_t before = T.block_count;
  *from = NULL;
  T.block = T.loaded;
  T.cell = T.cell_end = NULL;
  for (Word *at = T.at; at[-1].u != HALT;) {
    const char *type = type_of_code(at[-1].u);
    Word *word = at - 1 - words_of_type(type);
    at = word;
    for (; *type; type++) {
      if (*type == 'l') keep_cells(&word->cell);
      word += *type == 'u' ? 0 : *type == 'v' ? 2 : 1;
    }
  }
  size_t left = (T.block_count - before) * sizeof(CellBlock);
  if (left > T.peak_cells) T.peak_cells = left;
  drop_blocks(old);
}

static size_t cell_bytes(void) {
  return T.block_count * sizeof(CellBlock) - (size_t)(T.cell_end - T.cell) * sizeof(Cell);
}

static size_t forgotten_bytes(void) {
  return T.forgotten + (size_t)(T.tape - T.piece->word) * sizeof(Word) + cell_bytes();
}

/* Count what a slice took, and with `at_end` the last steps, of which there are few. At
   least so many are looked at together, so that an array that is made once is not taken
   for what each step makes. */
static void count_slice(Counted *window, size_t tape, size_t made, int64_t steps,
                        int64_t least, int at_end) {
  Counted *all = &T.counted;
  all->tape += tape, all->made += made, all->steps += steps;
  window->tape += tape, window->made += made, window->steps += steps;
  if (window->steps < least && !at_end) return;
  int64_t count = window->steps < least ? least : window->steps;
  if (count > all->steps) count = all->steps;
  double share = (double)(window->tape + window->made) / (double)(count ? count : 1);
  if (share > all->dearest) all->dearest = share;
  *window = (Counted){0, 0, 0, 0.0};
}

/* As `typed_record`, a slice after another. Signals are let in between them. */
static int typed_slices(int64_t fuel) {
  Counted window = {0, 0, 0, 0.0};
  const int64_t least = G.planned && !G.typed_stage ? COUNTED_SLICE : SLICE;
  int64_t slice = T.forgetful ? least : SLICE;
  T.sweep_at = T.row_bytes + ROW_SLACK;
  size_t enough_blocks = T.block_count + BLOCK_SLACK;
  int pauses;
  for (;;) {
    if (slice > fuel) slice = fuel;
    size_t tape = forgotten_bytes(), made = T.made_bytes;
    int how = typed_record(slice);
    T.fuel = left_of_slice(T.fuel, &pauses);
    int64_t used = slice - T.fuel;
    fuel -= used;
    int ends = how != STOPPED || (fuel <= T.fuel && !pauses);
    if (T.forgetful)
      count_slice(&window, forgotten_bytes() - tape, T.made_bytes - made, used, least,
                  ends);
    if (!ends) {
      if (!used) slice *= 2;
      let_signals_in();
      if (T.row_bytes > T.sweep_at) sweep_dead();
      if (T.most_bytes && T.row_bytes > T.most_bytes) how = FILLED;
      if (T.forgetful && T.block_count > enough_blocks) {
        sweep_cells();
        enough_blocks = 2 * T.block_count + BLOCK_SLACK;
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
