/* A stage by typed code, from a state and back to the cotangents of it. */

#ifndef VLAD_TYPED_STAGE_H
#define VLAD_TYPED_STAGE_H

#include "typed_capsules.h"

/* The bytes of the tape. */
static size_t tape_bytes(void) {
  size_t bytes = 0;
  for (const Piece *p = T.first; p; p = p->after) {
    bytes += (size_t)((p == T.piece ? T.tape : p->filled) - p->word) * sizeof(Word);
    if (p == T.piece) break;
  }
  return bytes;
}

/* Note how much memory the tape and the rows took. */
static void note_typed(void) {
  size_t bytes = (size_t)(T.at - T.stack) * sizeof(Word) + tape_bytes() + T.peak_row_bytes +
                 cell_bytes();
  G.tape_nodes = (bytes + sizeof(Node) - 1) / sizeof(Node);
  if (G.tape_nodes > G.peak_tape_nodes) G.peak_tape_nodes = G.tape_nodes;
  if (G.exact)
    collect_all();
  else
    note_live();
  G.tape_nodes = 0;
}

/* The value that a run has given; 0 if a vector of it has changed since. */
static int unload_result(Val *value) {
  const char *type = typed_values[T.gives];
  const Word *word = T.at;
  return unload_value(&type, &word, value);
}

/* Put the adjoints of where a stage ends in their places; 0 if that is impossible. At a
   run's end its value is found. */
static int typed_ends(Val cotangents, int last, Val *value) {
  size_t room = (size_t)(T.top - T.stack);
  if (room > T.adjoint_room) {
    give(T.adjoint, T.adjoint_room * sizeof(double));
    T.adjoint_room = 0;
    T.adjoint = take(room * sizeof(double));
    T.adjoint_room = room;
  }
  if (!last) return seed_state(object(cotangents));
  const char *type = typed_values[T.gives];
  const Word *word = T.at;
  return seed_given(&type, &word, cotangents) && unload_result(value);
}

static void typed_begin(void) {
  T.forgetful = 0; /* a signal may have ended the run before */
  typed_clear();
  T.cells.count = 0;
  T.counted = (Counted){0};
  T.forgotten = 0;
  T.peak_live = T.peak_cells = T.most_bytes = T.peak_row_bytes = 0;
  T.sweep_at = SIZE_MAX;
  if (!T.first) {
    T.first = take(sizeof(Piece));
    T.first->before = T.first->after = NULL;
  }
  T.piece = T.first;
  T.piece->word[0].u = TAPE_BEGIN;
  T.tape = T.piece->word + 1;
  if (!T.stack) T.at = larger_stack(NULL);
  T.at = T.stack;
}

/* A run that is tried as one stage may take up to four times the steps of one, if its tape
   stays as small as that of stages that are as long may be (see `session/_stages`). */
#define LONGER_TAPE ((size_t)1024 * 1024)

static int typed_whole_run(int64_t fuel) {
  int how = typed_run(fuel), may_be_longer = G.waypoints;
  for (size_t parts = 4; parts < 16 && may_be_longer && how == STOPPED; parts++) {
    if ((tape_bytes() + cell_bytes()) / parts * (parts + 1) > LONGER_TAPE) break;
    how = typed_run(fuel / 4);
  }
  return how;
}

static int typed_stage(Val first, int64_t fuel, Val cotangents, int last, size_t most,
                       Val *value, Val *result) {
  if (!is_typed) return REFUSED;
  if (fuel <= 0) return LONGER;
  int done = REFUSED, at = shadow(cotangents), at_first = shadow(first);
  typed_begin();
  if (load_state(first)) {
    T.most_bytes = most;
    int how = last ? typed_whole_run(fuel) : typed_run(fuel);
    if (last && (how == STOPPED || how == FILLED)) done = LONGER;
    if (how == (last ? ENDED : STOPPED) && typed_ends(G.shadow[at], last, value)) {
      int at_value = shadow(last ? *value : NOTHING);
      leave_rows();
      Word *end = T.tape;
      Piece *piece = T.piece;
      typed_reverse();
      T.tape = end, T.piece = piece;
      note_typed();
      if (typed_cotangents(G.shadow[at_first], result)) done = DONE;
      if (last) *value = G.shadow[at_value];
    }
  }
  G.shadows = at;
  typed_clear();
  return done;
}

static void typed_end(void) {
  typed_clear();
  for (Piece *p = T.first, *next; p; p = next) {
    next = p->after;
    free(p);
  }
  drop_spares();
  free(T.trace);
  free(T.stack);
  free(T.adjoint);
  free(T.loaded_rows.at);
  free(T.cells.at);
}

#endif
