/* The heap: a nursery filled by bumping a pointer, and old chunks filled by copying.

   Objects never change, arrays apart, so an old one never points to a younger one, and a
   minor collection needs no remembered set: its roots are the registers, the handles, and
   the objects that the runtime itself put into the old space since the last collection.
   Only the safe points of compiled code collect; the runtime allocates without. */

#ifndef VLAD_HEAP_H
#define VLAD_HEAP_H

#include "memory.h"

#define CHUNK_WORDS ((size_t)16 * 1024)

static Chunk *new_chunk(size_t words) {
  size_t capacity = words > CHUNK_WORDS ? words : CHUNK_WORDS;
  Chunk *c = take(sizeof(Chunk) + capacity * sizeof(uint64_t));
  c->next = NULL;
  c->used = 0;
  c->capacity = capacity;
  return c;
}

/* An object in the old space: never moves before the next safe point. */
static Object *old_object(uint32_t code, uint32_t size) {
  size_t words = (size_t)size + 1;
  Chunk *c = G.old_last;
  if (UNLIKELY(c->capacity - c->used < words)) {
    c->next = new_chunk(words);
    G.old_last = c = c->next;
  }
  Object *o = (Object *)(void *)(c->word + c->used);
  c->used += words;
  G.old_words += words;
  o->header = HEADER(code, size);
  return o;
}

/* A small object of the runtime: in the nursery while its reserve lasts. */
Object *small_object(uint32_t code, uint32_t size) {
  Val *p = G.hp;
  if (UNLIKELY(p + size + 1 > G.hard_limit)) return old_object(code, size);
  G.hp = p + size + 1;
  Object *o = (Object *)(void *)p;
  o->header = HEADER(code, size);
  return o;
}

/* The same for a run that stops, where calls are not counted. */
__attribute__((noinline, cold)) Object *paused_object(uint32_t code, uint32_t size) {
  return small_object(code, size);
}

/* The last frame of every run. */
static Object halt_frame = {HEADER(HALT, 0) | IS_STATIC};

static Val make_pair(Val car, Val cdr) {
  Object *o = old_object(0, 2);
  o->field[0] = car;
  o->field[1] = cdr;
  return tagged(TAG_PAIR, o);
}

static inline int is_young(const Object *o) {
  return (const Val *)(const void *)o >= G.nursery &&
         (const Val *)(const void *)o < G.nursery_end;
}

#endif
