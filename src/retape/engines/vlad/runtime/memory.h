/* Faults, and memory of the system. */

#ifndef VLAD_MEMORY_H
#define VLAD_MEMORY_H

#include "program.h"

_Noreturn void fail(enum Fault fault, const char *op, int32_t site, Val value, Val other) {
  G.fault = fault;
  G.fault_operator = op;
  G.fault_site = site;
  G.fault_value = value;
  G.fault_other = other;
  longjmp(*(jmp_buf *)G.handler, 1);
}

/* Memory that had so many bytes, or none, with so many: all of it is taken here. */
static void *resized(void *p, size_t before, size_t after) {
  void *grown = realloc(p, after);
  if (!grown) fail(NO_MEMORY, "", -1, NOTHING, NOTHING);
  G.mapped += after - before;
  if (G.mapped > G.peak_mapped) G.peak_mapped = G.mapped;
  return grown;
}

void *take(size_t bytes) { return resized(NULL, 0, bytes); }

/* Give back what is kept for a next row or cell. */
static void drop_spares(void);

/* Whether a run holds more than its plan's budget. Asked where nothing is half done: not
   in a collection. */
static void check_budget(void) {
  if (LIKELY(!G.most_mapped || G.mapped <= G.most_mapped)) return;
  drop_spares();
  if (G.mapped > G.most_mapped) fail(OVER_BUDGET, "", -1, NOTHING, NOTHING);
}

/* Memory of which a run takes the more the longer it is. */
static void *take_of_budget(size_t bytes) {
  check_budget();
  return take(bytes);
}

static void push(Words *w, uint64_t word) {
  if (UNLIKELY(w->count == w->room)) {
    size_t room = w->room ? 2 * w->room : 256;
    w->at = resized(w->at, w->room * sizeof(uint64_t), room * sizeof(uint64_t));
    w->room = room;
  }
  w->at[w->count++] = word;
}

static void give(void *p, size_t bytes) {
  free(p);
  G.mapped -= bytes;
}

#endif
