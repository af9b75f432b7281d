/* Traces of rows: their adjoints, and the rows themselves where a reverse reads them. */

#ifndef VLAD_TYPED_TRACES_H
#define VLAD_TYPED_TRACES_H

#include "typed_blocks.h"

/* Room for more of them after a stage that made many. */
#define KEPT_TRACES ((size_t)16 * 1024)

static uint64_t new_trace(size_t length) {
  if (UNLIKELY(T.traces == T.trace_room)) {
    size_t room = T.trace_room ? 2 * T.trace_room : 64;
    check_budget();
    T.trace = resized(T.trace, T.trace_room * sizeof(Trace), room * sizeof(Trace));
    T.trace_room = room;
  }
  count_row_bytes(sizeof(Trace));
  T.trace[T.traces] = (Trace){.length = length};
  return T.traces++;
}

static void clear_traces(void) {
  for (size_t i = 0; i < T.traces; i++) row_ends(i);
  T.row_bytes -= T.traces * sizeof(Trace);
  T.traces = 0;
  if (T.trace_room <= KEPT_TRACES) return;
  give(T.trace, T.trace_room * sizeof(Trace));
  T.trace = NULL;
  T.trace_room = 0;
}

Row *new_adjoint(uint64_t trace) {
  Trace *t = &T.trace[trace];
  t->adjoint = new_block(t->length);
  memset(t->adjoint->value, 0, t->length * sizeof(double));
  return t->adjoint;
}

void row_ends(uint64_t trace) {
  Trace *t = &T.trace[trace];
  if (t->adjoint) drop_block(t->adjoint);
  if (t->row) drop_block(t->row);
  t->adjoint = t->row = NULL;
}

int row_is_used(uint64_t trace) {
  const Trace *t = &T.trace[trace];
  if (!t->adjoint) return 0;
  size_t i = 0;
  while (i < t->length && t->adjoint->value[i] == 0.0) i++;
  return i < t->length;
}

/* The adjoint of what a vector was full of when it was made. */
double row_adjoint(uint64_t trace) {
  const Trace *t = &T.trace[trace];
  double sum = 0.0;
  if (!t->adjoint) return 0.0;
  for (size_t i = t->length; i-- > 0;) sum += t->adjoint->value[i];
  return sum;
}

#endif
