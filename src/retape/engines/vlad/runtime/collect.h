/* Collections, minor and major, and the handles in which the host keeps values.

   Both copy what is live and scan the copies in order, without a stack (Cheney 1970); a
   minor one copies the young alone, to the old (Lieberman and Hewitt 1983). Old objects
   never change but for arrays, whose writes are noted. */

#ifndef VLAD_COLLECT_H
#define VLAD_COLLECT_H

#include "arrays.h"
#include "tape.h"

static void move(Val *slot) {
  Val v = *slot;
  if (!is_pointer(v)) return;
  Object *o = object(v);
  if (!moving_all && !is_young(o)) return;
  if (o->header & IS_STATIC) return;
  if (size_of(o) == FORWARDED) {
    *slot = tagged(tag_of(v), (void *)(uintptr_t)o->field[0]);
    return;
  }
  if (UNLIKELY(moving_all && tag_of(v) == TAG_VECTOR)) refresh(o);
  uint32_t size = size_of(o);
  Object *copy = old_object(code_of(o), size);
  memcpy(copy->field, o->field, size * sizeof(Val));
  o->header = HEADER(code_of(o), FORWARDED);
  o->field[0] = (Val)(uintptr_t)copy;
  *slot = tagged(tag_of(v), copy);
}

static void scan(Chunk *c, size_t at) {
  for (; c; c = c->next, at = 0)
    while (at < c->used) {
      Object *o = (Object *)(void *)(c->word + at);
      uint32_t size = size_of(o);
      for (uint32_t i = 0; i < size; i++) move(&o->field[i]);
      at += (size_t)size + 1;
    }
}

static void move_tape(Tape *t, uint32_t from) {
  if (!t->has_pointers) return;
  for (uint32_t i = from; i < t->length; i++) {
    Node *n = node_of(t, i);
    move(&n->value);
    move(&n->adjoint);
    move(&n->by_left);
    move(&n->by_right);
  }
}

static void move_roots(void) {
  move(&G.k);
  move(&G.result);
  for (int i = 0; i < G.shadows; i++) move(&G.shadow[i]);
  for (size_t i = 0; i < G.handles; i++) move(&G.handle[i]);
  for (int level = 1; level <= G.level; level++) {
    Tape *t = &G.tape[level];
    move_tape(t, moving_all ? 0 : t->young_from);
    t->young_from = t->length;
  }
}

/* Arrays with young elements, and what the logs hold of such. */
static void move_arrays(void) {
  for (size_t i = 0; i < G.written.count; i++) {
    Object *a = (Object *)(uintptr_t)G.written.at[i];
    a->header &= ~IS_WRITTEN;
    for (uint32_t j = ARRAY_HEAD; j < size_of(a); j++) move(&a->field[j]);
  }
  G.written.count = 0;
  for (size_t i = 0; i < G.logs; i++)
    if (G.log[i].has_pointers)
      for (size_t j = 0; j < G.log[i].count; j++) move(&G.log[i].entry[j].old);
}

static void note_live(void) {
  size_t live = (G.old_words + G.log_words) * sizeof(Val) + G.tape_nodes * sizeof(Node);
  if (live > G.peak_live) G.peak_live = live;
}

static void collect_young(void) {
  G.allocated += (uint64_t)(G.hp - G.nursery) * sizeof(Val);
  moving_all = 0;
  move_roots();
  move_arrays();
  scan(G.scan_chunk, G.scan_at);
  G.hp = G.nursery;
  G.scan_chunk = G.old_last;
  G.scan_at = G.old_last->used;
  if (G.old_words > G.peak_old) G.peak_old = G.old_words;
  G.minor_count++;
}

static void collect_all(void) {
  collect_young();
  G.from_space = G.old_first;
  G.old_first = G.old_last = new_chunk(0);
  G.old_words = 0;
  moving_all = 1;
  move_roots();
  scan(G.old_first, 0);
  moving_all = 0;
  forget_logs();
  for (Chunk *c = G.from_space, *next; c; c = next) {
    next = c->next;
    give(c, sizeof(Chunk) + c->capacity * sizeof(uint64_t));
  }
  G.scan_chunk = G.old_last;
  G.scan_at = G.old_last->used;
  /* Under a budget what lives is copied more often, so that less that is dead is held. */
  G.major_at = (G.most_mapped ? 1 : 2) * G.old_words + (size_t)4 * CHUNK_WORDS;
  G.major_count++;
  note_live();
}

/* A safe point: everything that lives hangs on G.k, handles and shadows. */
void collect(void) {
  collect_young();
  if (G.old_words + G.log_words > G.major_at) collect_all();
  check_budget();
}

/* What is in memory of its own, which no collection copies: an image of a state, or a
   capsule. A number of words comes first. A handle owns it. */
#define FROZEN (HEADER(FIRST_CODE, 0) | IS_STATIC)

static int is_frozen(Val v) { return tag_of(v) == TAG_FRAME && object(v)->header == FROZEN; }

static size_t frozen_bytes(Val v) {
  return sizeof(Object) + (1 + (size_t)object(v)->field[0]) * sizeof(Val);
}

/* One with so many words, which are to be filled in. */
static Object *new_frozen(size_t words) {
  Object *o = take_of_budget(sizeof(Object) + (1 + words) * sizeof(Val));
  o->header = FROZEN;
  o->field[0] = words;
  return o;
}

static void drop_frozen(Val v) { give(object(v), frozen_bytes(v)); }

static int64_t new_handle(Val v) {
  if (G.free_handle == 0) {
    size_t before = G.handles, after = before ? 2 * before : 64;
    G.handle = resized(G.handle, before * sizeof(Val), after * sizeof(Val));
    G.handles = after;
    for (size_t i = after; i-- > before;) {
      G.handle[i] = box((double)G.free_handle);
      G.free_handle = i + 1;
    }
  }
  size_t i = G.free_handle - 1;
  G.free_handle = (size_t)unbox(G.handle[i]);
  G.handle[i] = v;
  return (int64_t)i;
}

static void free_handle(int64_t h) {
  if (is_frozen(G.handle[h])) drop_frozen(G.handle[h]);
  G.handle[h] = box((double)G.free_handle);
  G.free_handle = (size_t)h + 1;
}

/* Called where a tape is at its longest, with everything that lives rooted. */
static void count_tapes(void) {
  G.tape_nodes = 0;
  for (int level = 1; level <= G.level; level++) G.tape_nodes += G.tape[level].length;
  if (G.tape_nodes > G.peak_tape_nodes) G.peak_tape_nodes = G.tape_nodes;
  if (G.exact)
    collect_all();
  else
    note_live();
}

#endif
