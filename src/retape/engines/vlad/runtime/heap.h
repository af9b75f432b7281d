/* The heap: a nursery filled by bumping a pointer, and old chunks filled by copying.

   Objects never change, so an old one never points to a younger one, and a minor
   collection needs no remembered set: its roots are the registers, the handles, and the
   objects that the runtime itself put into the old space since the last collection.
   Only the safe points of compiled code collect; the runtime allocates without. */

#ifndef VLAD_HEAP_H
#define VLAD_HEAP_H

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include "value.h"

typedef struct Chunk {
  struct Chunk *next;
  size_t used, capacity; /* in words */
  uint64_t word[];
} Chunk;

/* One number of a tape: its value, its adjoint, the partials, and the operands. */
typedef struct Node {
  Val value, adjoint, by_left, by_right;
  uint32_t left, right;
} Node;

#define NO_NODE 0xFFFFFFFFu
#define TAPE_SHIFT 12
#define TAPE_CHUNK (1u << TAPE_SHIFT)

typedef struct Tape {
  Node **chunk;
  size_t chunks, table; /* chunks allocated, places in the table */
  uint32_t length;
  uint32_t young_from; /* numbers from here on may point into the nursery */
  int has_pointers;
} Tape;

#define MAX_LEVEL 100

enum Fault {
  NO_FAULT,
  NOT_REAL,
  NOT_FUNCTION,
  NO_MATCH,
  END_OF_INPUT,
  WRONG_SHAPE,
  TOO_DEEP,
  NO_MEMORY,
  FROM_HOST
};

typedef struct {
  Val *nursery, *limit, *hard_limit; /* limit leaves room for the slow road */
  size_t nursery_words;
  Chunk *old_first, *old_last;
  Chunk *scan_chunk; /* old objects from here on may point into the nursery */
  size_t scan_at;
  size_t old_words, old_after_major, major_at;
  Val *handle;
  size_t handles, free_handle;
  Val shadow[8 * (MAX_LEVEL + 2)];
  int shadows;
  Tape tape[MAX_LEVEL + 2];
  int level;
  size_t tape_nodes, peak_tape_nodes;
  size_t mapped, peak_mapped; /* bytes taken from the system */
  size_t peak_live; /* bytes in objects and tapes, as seen at collections */
  int exact; /* collect before the live bytes are noted */
  uint64_t minor_count, major_count, allocated;
  /* registers shared by compiled code and the runtime */
  Val *hp;
  Val k;
  int64_t fuel;
  Val result;
  int32_t site;
  /* a fault, for the host to tell */
  jmp_buf *handler;
  enum Fault fault;
  int32_t fault_site;
  Val fault_value, fault_other;
  const char *fault_operator;
  /* what the run under way has read and printed */
  double *inputs;
  size_t input_count, input_room, input_at;
  size_t printed, writes;
  /* the host */
  int (*host_read)(double *);
  int (*host_write)(double);
  int64_t (*host_checkpoint)(int64_t, int64_t, int64_t);
  int64_t single_stage; /* runs no longer than this are one stage */
} State;

static State G;

static _Noreturn void fail(enum Fault fault, const char *op, int32_t site, Val value, Val other) {
  G.fault = fault;
  G.fault_operator = op;
  G.fault_site = site;
  G.fault_value = value;
  G.fault_other = other;
  longjmp(*G.handler, 1);
}

static void *take(size_t bytes) {
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
static Object *small_object(uint32_t code, uint32_t size) {
  Val *p = G.hp;
  if (UNLIKELY(p + size + 1 > G.hard_limit)) return old_object(code, size);
  G.hp = p + size + 1;
  Object *o = (Object *)(void *)p;
  o->header = HEADER(code, size);
  return o;
}

static Val make_pair(Val car, Val cdr) {
  Object *o = old_object(0, 2);
  o->field[0] = car;
  o->field[1] = cdr;
  return tagged(TAG_PAIR, o);
}

static inline int is_young(const Object *o) {
  return (const Val *)(const void *)o >= G.nursery &&
         (const Val *)(const void *)o < G.hard_limit;
}

#define FORWARDED 0xFFFFFFFFu

static int moving_all; /* a major collection moves old objects too */

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

static inline Node *node_of(const Tape *t, uint32_t index) {
  return &t->chunk[index >> TAPE_SHIFT][index & (TAPE_CHUNK - 1)];
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

static void note_live(void) {
  size_t live = G.old_words * sizeof(Val) + G.tape_nodes * sizeof(Node);
  if (live > G.peak_live) G.peak_live = live;
}

static void collect_young(void) {
  G.allocated += (uint64_t)(G.hp - G.nursery) * sizeof(Val);
  moving_all = 0;
  move_roots();
  scan(G.scan_chunk, G.scan_at);
  G.hp = G.nursery;
  G.scan_chunk = G.old_last;
  G.scan_at = G.old_last->used;
  G.minor_count++;
}

static void collect_all(void) {
  collect_young();
  Chunk *c = G.old_first;
  G.old_first = G.old_last = new_chunk(0);
  G.old_words = 0;
  moving_all = 1;
  move_roots();
  scan(G.old_first, 0);
  moving_all = 0;
  while (c) {
    Chunk *next = c->next;
    give(c, sizeof(Chunk) + c->capacity * sizeof(uint64_t));
    c = next;
  }
  G.scan_chunk = G.old_last;
  G.scan_at = G.old_last->used;
  G.old_after_major = G.old_words;
  G.major_at = 2 * G.old_words + (size_t)4 * CHUNK_WORDS;
  G.major_count++;
  note_live();
}

/* A safe point: everything that lives hangs on G.k, handles and shadows. */
static void collect(void) {
  collect_young();
  if (G.old_words > G.major_at) collect_all();
}

static int64_t new_handle(Val v) {
  if (G.free_handle == 0) {
    size_t before = G.handles, after = before ? 2 * before : 64;
    Val *grown = realloc(G.handle, after * sizeof(Val));
    if (!grown) fail(NO_MEMORY, "", -1, NOTHING, NOTHING);
    G.handle = grown;
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
  G.handle[h] = box((double)G.free_handle);
  G.free_handle = (size_t)h + 1;
}

/* Tapes */

static uint32_t new_node(int level, Val value, uint32_t left, Val by_left,
                         uint32_t right, Val by_right) {
  Tape *t = &G.tape[level];
  uint32_t i = t->length;
  size_t c = i >> TAPE_SHIFT;
  if (UNLIKELY((i & (TAPE_CHUNK - 1)) == 0 && c == t->chunks)) {
    if (c == t->table) {
      size_t table = t->table ? 2 * t->table : 16;
      Node **grown = realloc(t->chunk, table * sizeof *grown);
      if (!grown) fail(NO_MEMORY, "", -1, NOTHING, NOTHING);
      t->chunk = grown;
      t->table = table;
    }
    if (i == NO_NODE) fail(NO_MEMORY, "", -1, NOTHING, NOTHING);
    t->chunk[c] = take(TAPE_CHUNK * sizeof(Node));
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

static inline Val taped(int level, uint32_t index) {
  return (TAG_TAPED << 48) | ((uint64_t)level << 32) | index;
}
static inline int taped_level(Val v) { return (int)((v >> 32) & 0xFFFF); }

#endif
