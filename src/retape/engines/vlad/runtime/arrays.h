/* Arrays, of which a vector is a version: a handle with an array and a number.

   An update writes in place and makes a handle of the next version; what was there goes
   to the array's log. A handle whose number is the array's own is current: its elements
   are in the array, at once. Another one is an old version that somebody still has: when
   it is looked at, it is given an array of its own, in which the log's updates are
   undone. So a vector that nobody else has is never copied, and one that somebody has is
   copied once, and only if it is used again.

   Logs last until the next major collection, which gives every old version that lives an
   array of its own. Arrays are old objects and change: those with young elements are
   listed for the next minor collection. */

#ifndef VLAD_ARRAYS_H
#define VLAD_ARRAYS_H

#include "heap.h"

#define FORWARDED 0xFFFFFFFFu

static int moving_all; /* a major collection moves old objects too */

#define IS_WRITTEN (1ull << 62)

/* An array is copied after so many updates more than it has elements: to bound its log. */
#define LOG_SLACK 1024

/* The next safe point collects: arrays may fill the memory while the nursery is empty. */
static void hurry(void) {
  if (G.hp >= G.limit) return;
  G.allocated -= (uint64_t)(G.limit - G.hp) * sizeof(Val);
  G.hp = G.limit;
}

/* An array whose elements are to be filled in. While old objects are moved it is one of
   them. */
static Object *new_array(uint32_t length) {
  uint32_t size = ARRAY_HEAD + length;
  Object *a;
  if (moving_all) {
    Chunk *c = new_chunk((size_t)size + 1);
    c->next = G.from_space;
    G.from_space = c;
    a = (Object *)(void *)c->word;
    a->header = HEADER(0, size);
  } else {
    a = old_object(0, size);
    if (G.old_words + G.log_words > G.major_at) hurry();
  }
  a->field[ARRAY_LENGTH] = box(length);
  a->field[ARRAY_VERSION] = box(0.0);
  a->field[ARRAY_LOG] = box(-1.0);
  G.arrays++;
  G.array_words += size;
  G.made += length;
  G.work += (int64_t)length * WORK_OF_ELEMENT;
  return a;
}

static Log *log_of(Object *array) {
  double id = unbox(array->field[ARRAY_LOG]);
  if (id >= (double)G.log_base) return &G.log[(size_t)id - G.log_base];
  if (G.logs == G.log_room) {
    size_t room = G.log_room ? 2 * G.log_room : 16;
    G.log = resized(G.log, G.log_room * sizeof(Log), room * sizeof(Log));
    G.log_room = room;
  }
  array->field[ARRAY_LOG] = box((double)(G.log_base + G.logs));
  Log *log = &G.log[G.logs++];
  *log = (Log){.first = unbox(array->field[ARRAY_VERSION])};
  return log;
}

static void write_log(Log *log, uint32_t index, Val old) {
  if (UNLIKELY(log->count == log->room)) {
    size_t room = log->room ? 2 * log->room : 4;
    log->entry = resized(log->entry, log->room * sizeof(Entry), room * sizeof(Entry));
    G.log_words += (room - log->room) * (sizeof(Entry) / sizeof(Val));
    log->room = room;
  }
  log->entry[log->count++] = (Entry){index, old};
  if (is_pointer(old)) log->has_pointers = 1;
}

static void forget_logs(void) {
  for (size_t i = 0; i < G.logs; i++)
    give(G.log[i].entry, G.log[i].room * sizeof(Entry));
  G.log_base += G.logs;
  G.logs = G.log_words = 0;
}

static Object *copy_array(const Object *array, uint32_t length) {
  Object *copy = new_array(length);
  memcpy(copy->field + ARRAY_HEAD, array->field + ARRAY_HEAD, length * sizeof(Val));
  return copy;
}

/* Give an old version an array of its own. */
static void refresh(Object *h) {
  if (LIKELY(is_current(h))) return;
  const Object *a = array_of(h);
  int moved = size_of(a) == FORWARDED;
  const Object *sized = moved ? (Object *)(uintptr_t)a->field[ARRAY_LENGTH] : a;
  Object *own = copy_array(a, length_of(sized));
  const Log *log = &G.log[(size_t)unbox(a->field[ARRAY_LOG]) - G.log_base];
  size_t from = (size_t)(unbox(h->field[VECTOR_VERSION]) - log->first);
  for (size_t j = log->count; j-- > from;)
    own->field[ARRAY_HEAD + log->entry[j].index] = log->entry[j].old;
  h->field[VECTOR_ARRAY] = tagged(TAG_FRAME, own);
  h->field[VECTOR_VERSION] = box(0.0);
}

/* A handle of the array's current version. */
static Val version(Object *h, const Object *array) {
  h->field[VECTOR_ARRAY] = tagged(TAG_FRAME, array);
  h->field[VECTOR_VERSION] = array->field[ARRAY_VERSION];
  return tagged(TAG_VECTOR, h);
}

static void set_element(Object *array, uint32_t index, Val v) {
  array->field[ARRAY_HEAD + index] = v;
  if (is_pointer(v) && is_young(object(v)) && !(array->header & IS_WRITTEN)) {
    array->header |= IS_WRITTEN;
    push(&G.written, (uint64_t)(uintptr_t)array);
  }
}

#endif
