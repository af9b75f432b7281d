/* Typed code in slices: for signals, and to free what is dead. */

#ifndef VLAD_TYPED_RUN_H
#define VLAD_TYPED_RUN_H

#include "typed_states.h"

/* Words of the stack that are walked to tell the bytes of a state: in 0.5 us. */
#define WALKED_WORDS ((size_t)512)

/* Mark the rows that frames on the stack hold. */
static void mark_rows(void) {
  int letter;
  T.walk++;
  for (Walk w = walk_from(T.at); (letter = next_word(&w));)
    if (letter == 'v') w.word->row->seen = T.walk;
}

/* Bytes that dead rows may have under a budget: fewer, so that a small one can be kept. */
#define SLACK_OF_BUDGET ((size_t)32 * 1024)

static size_t row_slack(void) { return G.most_mapped ? SLACK_OF_BUDGET : ROW_SLACK; }

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
  T.sweep_at = T.row_bytes + held + (size_t)(T.at - T.stack) * sizeof(Word) + row_slack();
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
   the others. */
static void sweep_cells(void) {
  CellBlock *old = T.blocks;
  size_t before = T.block_count;
  int letter;
  T.blocks = T.block = NULL;
  T.cell = T.cell_end = NULL;
  for (Walk w = walk_from(T.at); (letter = next_word(&w));)
    if (letter == 'l') keep_cells(&w.word->cell);
  size_t left = (T.block_count - before) * sizeof(CellBlock);
  if (left > T.peak_cells) T.peak_cells = left;
  drop_blocks(old);
}

static size_t cell_bytes(void) {
  return T.block_count * sizeof(CellBlock) - (size_t)(T.cell_end - T.cell) * sizeof(Cell);
}

/* The bytes of a capsule of the frames on the stack. Of a deep one it is a bound: a
   recursion that goes on would walk all of them in each slice. */
static size_t state_bytes(void) {
  size_t words = CAPSULE_HEAD + 2 + (size_t)(T.at - T.stack) + 2 * cell_bytes() / sizeof(Cell);
  int letter;
  if ((size_t)(T.at - T.stack) > WALKED_WORDS) return words * sizeof(Word) + T.row_bytes;
  T.walk++;
  for (Walk w = walk_from(T.at); (letter = next_word(&w));) {
    if (letter != 'v' || w.word->row->seen == T.walk) continue;
    w.word->row->seen = T.walk;
    words += 1 + w.word->row->length;
  }
  return words * sizeof(Word);
}

static size_t forgotten_bytes(void) {
  return T.forgotten + (size_t)(T.tape - T.piece->word) * sizeof(Word) + cell_bytes();
}

/* As `typed_record`, a slice after another. Signals are let in between them. */
static int typed_slices(int64_t fuel) {
  Counted window = {0};
  const int64_t least = G.planned && !G.typed_stage ? COUNTED_SLICE : SLICE;
  const int has_limit = T.forgetful && G.most_mapped;
  int64_t slice = has_limit ? FIRST_SLICE : T.forgetful ? least : SLICE;
  if (T.sweep_at == SIZE_MAX) { /* a run that goes on has dead ones from before */
    T.sweep_at = T.row_bytes + row_slack();
    T.enough_blocks = T.block_count + BLOCK_SLACK;
  }
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
      count_slice(&T.counted, &window, forgotten_bytes() - tape, T.made_bytes - made, used,
                  least, ends);
    if (has_limit && how == STOPPED) count_state(&T.counted, state_bytes());
    if (!ends) {
      if (!used || (has_limit && slice < least)) slice *= 2;
      let_signals_in();
      if (T.row_bytes > T.sweep_at) sweep_dead();
      if (T.most_bytes && T.row_bytes > T.most_bytes) how = FILLED;
      if (T.forgetful && T.block_count > T.enough_blocks) {
        sweep_cells();
        T.enough_blocks = 2 * T.block_count + BLOCK_SLACK;
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
