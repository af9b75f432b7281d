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
  longjmp(*G.handler, 1);
}

static void push(Words *w, uint64_t word) {
  if (UNLIKELY(w->count == w->room)) {
    size_t room = w->room ? 2 * w->room : 256;
    uint64_t *grown = realloc(w->at, room * sizeof(uint64_t));
    if (!grown) fail(NO_MEMORY, "", -1, NOTHING, NOTHING);
    w->at = grown;
    w->room = room;
  }
  w->at[w->count++] = word;
}

void *take(size_t bytes) {
  void *p = malloc(bytes);
  if (!p) fail(NO_MEMORY, "", -1, NOTHING, NOTHING);
  G.mapped += bytes;
  if (G.mapped > G.peak_mapped) G.peak_mapped = G.mapped;
  return p;
}

static void give(void *p, size_t bytes) {
  free(p);
  G.mapped -= bytes;
}

#endif
