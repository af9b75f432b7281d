/* A stage by typed code, from a state and back to the cotangents of its reals. */

#ifndef VLAD_TYPED_STAGE_H
#define VLAD_TYPED_STAGE_H

#include "typed_run.h"

/* The cotangents of the first state; 0 if one is no number: the general way does not
   multiply an infinite partial by an adjoint of zero, and knows whether it is one. */
static int typed_cotangents(Val *result) {
  Object *o = old_object(0, (uint32_t)T.ordinals);
  for (size_t i = 0; i < T.ordinals; i++) o->field[i] = box(0.0);
  for (size_t i = 0; i < T.origins; i++) {
    Val *place = &o->field[T.origin[i].ordinal];
    *place = box(unbox(*place) + T.adjoint[T.origin[i].slot]);
  }
  for (size_t i = 0; i < T.row_ordinals.count; i += 2) {
    const Trace *t = &T.trace[T.row_ordinals.at[i]];
    for (size_t j = 0; t->adjoint && j < t->length; j++)
      o->field[T.row_ordinals.at[i + 1] + j] = box(t->adjoint->value[j] + 0.0);
  }
  for (size_t i = 0; i < T.cell_ordinals.count; i += 3) {
    const uint64_t *run = T.cell_ordinals.at + i;
    const Cell *cell = (const Cell *)(uintptr_t)run[0];
    for (size_t j = 0; j < run[2]; j++)
      o->field[run[1] + j] = box(cell[j].adjoint + 0.0);
  }
  for (size_t i = 0; i < T.ordinals; i++) {
    double d = unbox(o->field[i]);
    if (d != d) return 0;
  }
  *result = tagged(TAG_FRAME, o);
  return 1;
}

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

/* Whether what a run has given is a real. */
static int gave_real(void) { return !strcmp(typed_values[T.gives], "d"); }

static int typed_ends(int how, Val cotangents, int last, double *seed) {
  if (!last) return how == STOPPED && seed_state(object(cotangents));
  if (how != ENDED || !gave_real() || !is_double(cotangents)) return 0;
  *seed = unbox(cotangents) + 0.0;
  return 1;
}

static void typed_begin(void) {
  T.forgetful = 0; /* a signal may have ended the run before */
  typed_clear();
  T.origins = T.row_ordinals.count = T.cell_ordinals.count = T.ordinals = 0;
  T.counted = (Counted){0};
  T.forgotten = 0;
  T.marks = T.peak_live = T.peak_cells = T.most_bytes = T.peak_row_bytes = 0;
  T.most_loaded = INT64_MAX;
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

/* As `stage`; 0 if the general way has to do it, or if rows take more than `most`. */
static int typed_stage(Val frame, int64_t fuel, Val cotangents, int last, size_t most,
                       Val *value, Val *result) {
  if (!is_typed || fuel <= 0) return 0;
  double seed = 0.0;
  int done = 0, at = shadow(cotangents);
  typed_begin();
  if (load_state(frame)) {
    T.most_bytes = most;
    int how = last ? typed_whole_run(fuel) : typed_run(fuel);
    if (how == STOPPED || how == ENDED) {
      size_t room = (size_t)(T.top - T.stack);
      if (room > T.adjoint_room) {
        give(T.adjoint, T.adjoint_room * sizeof(double));
        T.adjoint_room = 0;
        T.adjoint = take(room * sizeof(double));
        T.adjoint_room = room;
      }
      if (typed_ends(how, G.shadow[at], last, &seed)) {
        double given = last ? T.at->d : 0.0;
        leave_rows();
        Word *end = T.tape;
        Piece *piece = T.piece;
        typed_reverse(seed);
        T.tape = end, T.piece = piece;
        note_typed();
        done = typed_cotangents(result);
        if (last) *value = box(given);
      }
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
  free(T.origin);
  free(T.row_ordinals.at);
  free(T.cell_ordinals.at);
}

#endif
