/* Tapes: arrays of numbers, referred to by index, that are freed as a whole. */

#ifndef VLAD_TAPE_H
#define VLAD_TAPE_H

#include "memory.h"

static inline Node *node_of(const Tape *t, uint32_t index) {
  return &t->chunk[index >> TAPE_SHIFT][index & (TAPE_CHUNK - 1)];
}

static uint32_t new_node(int level, Val value, uint32_t left, Val by_left,
                         uint32_t right, Val by_right) {
  Tape *t = &G.tape[level];
  uint32_t i = t->length;
  size_t c = i >> TAPE_SHIFT;
  if (UNLIKELY((i & (TAPE_CHUNK - 1)) == 0 && c == t->chunks)) {
    if (c == t->table) {
      size_t table = t->table ? 2 * t->table : 16;
      t->chunk = resized(t->chunk, t->table * sizeof(Node *), table * sizeof(Node *));
      t->table = table;
    }
    if (i >= CALL_NODE - TAPE_CHUNK) fail(NO_MEMORY, "", -1, NOTHING, NOTHING);
    t->chunk[c] = take_of_budget(TAPE_CHUNK * sizeof(Node));
    t->chunks++;
  }
  t->length = i + 1;
  Node *n = node_of(t, i);
  n->value = value;
  n->adjoint = box(0.0);
  n->by_left = by_left;
  n->by_right = by_right;
  n->left = left;
  n->right = right;
  if (UNLIKELY(is_pointer(value) | is_pointer(by_left) | is_pointer(by_right)))
    t->has_pointers = 1;
  return i;
}

/* The same for doubles; in line while a chunk has room. */
static inline uint32_t plain_new_node(int level, Val value, uint32_t left, Val by_left,
                                      uint32_t right, Val by_right) {
  Tape *t = &G.tape[level];
  uint32_t i = t->length;
  if (UNLIKELY((i & (TAPE_CHUNK - 1)) == 0))
    return new_node(level, value, left, by_left, right, by_right);
  t->length = i + 1;
  Node *n = node_of(t, i);
  n->value = value;
  n->adjoint = box(0.0);
  n->by_left = by_left;
  n->by_right = by_right;
  n->left = left;
  n->right = right;
  return i;
}

static void open_tape(int level) {
  Tape *t = &G.tape[level];
  t->length = t->young_from = 0;
  t->has_pointers = 0;
}

/* Ends a tape; keeps a few chunks for the next one. */
static void close_tape(int level) {
  Tape *t = &G.tape[level];
  t->length = t->young_from = 0;
  while (t->chunks > 8) give(t->chunk[--t->chunks], TAPE_CHUNK * sizeof(Node));
}

static inline Val taped(int level, uint32_t index) {
  return (TAG_TAPED << 48) | ((uint64_t)level << 32) | index;
}
static inline int taped_level(Val v) { return (int)((v >> 32) & 0xFFFF); }

#endif
