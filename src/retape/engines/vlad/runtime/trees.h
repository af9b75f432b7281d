/* Walks over values: as trees, where the program sees them; as graphs, in capsules.
   Neither recurses. See `_trees.py`, which does the same. */

#ifndef VLAD_TREES_H
#define VLAD_TREES_H

#include "each.h"

/* Scratch lists: kept between walks, so that a fault in the middle loses nothing. */
static Words walk_a, walk_b, leaves_a, leaves_b;

static int is_compound(Val v) {
  return tag_of(v) == TAG_PAIR || tag_of(v) == TAG_CLOSURE || tag_of(v) == TAG_VECTOR;
}

/* The values directly inside one: a vector's are its elements. */
static Val *contents(Val v, uint32_t *size) {
  Object *o = object(v);
  if (tag_of(v) != TAG_VECTOR) {
    *size = size_of(o);
    return o->field;
  }
  refresh(o);
  *size = length_of(array_of(o));
  return array_of(o)->field + ARRAY_HEAD;
}

/* A value of the same kind, whose contents are to be filled in. */
static Val another(Val v, uint32_t size, Val **field) {
  if (tag_of(v) == TAG_VECTOR) {
    Object *array = new_array(size);
    *field = array->field + ARRAY_HEAD;
    return version(old_object(0, VECTOR_WORDS), array);
  }
  Object *o = old_object(code_of(object(v)), size);
  *field = o->field;
  return tagged(tag_of(v), o);
}

/* What a (co)tangent must share with its primal, as one word. */
static uint64_t shape_of(Val v) {
  if (is_real(v)) return box(0.0);
  if (tag_of(v) == TAG_PAIR) return TAG_PAIR << 48;
  if (tag_of(v) == TAG_CLOSURE) return (TAG_CLOSURE << 48) | code_of(object(v));
  if (tag_of(v) == TAG_VECTOR) return (TAG_VECTOR << 48) | length_of(array_of(object(v)));
  return v;
}

static void push_fields(Words *w, Val v) {
  uint32_t size;
  const Val *field = contents(v, &size);
  for (uint32_t i = size; i-- > 0;) push(w, field[i]);
}

/* The reals of a tree, from left to right. */
static void tree_leaves(Val v, Words *leaves) {
  leaves->count = 0;
  walk_a.count = 0;
  push(&walk_a, v);
  while (walk_a.count) {
    v = walk_a.at[--walk_a.count];
    if (is_compound(v))
      push_fields(&walk_a, v);
    else if (is_real(v))
      push(leaves, v);
  }
}

/* The reals of `given`, which must have the shape of `v`. */
static void conforming_leaves(const char *op, int32_t site, Val v, Val given,
                              Words *leaves) {
  leaves->count = 0;
  walk_a.count = walk_b.count = 0;
  push(&walk_a, v);
  push(&walk_b, given);
  while (walk_a.count) {
    v = walk_a.at[--walk_a.count];
    given = walk_b.at[--walk_b.count];
    if (shape_of(v) != shape_of(given)) fail(WRONG_SHAPE, op, site, v, given);
    if (is_compound(v)) {
      push_fields(&walk_a, v);
      push_fields(&walk_b, given);
    } else if (is_real(v)) {
      push(leaves, given);
    }
  }
}

/* A copy of a tree whose reals are those given, from left to right. The copy is built
   from its root: the walk keeps the place where each part belongs. */
static Val tree_with(Val v, const uint64_t *leaf) {
  Val root = NOTHING;
  walk_a.count = walk_b.count = 0;
  push(&walk_a, v);
  push(&walk_b, (uint64_t)(uintptr_t)&root);
  while (walk_a.count) {
    v = walk_a.at[--walk_a.count];
    Val *place = (Val *)(uintptr_t)walk_b.at[--walk_b.count];
    if (is_real(v)) {
      *place = *leaf++;
    } else if (is_compound(v)) {
      uint32_t size;
      const Val *from = contents(v, &size);
      Val *to;
      *place = another(v, size, &to);
      for (uint32_t i = size; i-- > 0;) {
        to[i] = NOTHING;
        push(&walk_a, from[i]);
        push(&walk_b, (uint64_t)(uintptr_t)&to[i]);
      }
    } else {
      *place = v;
    }
  }
  return root;
}

/* A table from the objects that a walk of a graph has met to their copies. */
static struct {
  const Object **key;
  Val *copy;
  size_t room, count;
} met;

static size_t met_place(const Object *o) {
  size_t mask = met.room - 1;
  size_t i = (size_t)(((uintptr_t)o >> 3) * 0x9E3779B97F4A7C15ull >> 20) & mask;
  while (met.key[i] && met.key[i] != o) i = (i + 1) & mask;
  return i;
}

static void met_grow(void) {
  size_t room = met.room, larger = room ? 2 * room : 1024;
  const Object **key = met.key;
  Val *copy = met.copy;
  met.key = take(larger * sizeof *met.key);
  met.copy = take(larger * sizeof *met.copy);
  memset(met.key, 0, larger * sizeof *met.key);
  met.room = larger;
  for (size_t i = 0; i < room; i++)
    if (key[i]) {
      size_t j = met_place(key[i]);
      met.key[j] = key[i];
      met.copy[j] = copy[i];
    }
  give(key, room * sizeof *key);
  give(copy, room * sizeof *copy);
}

static void met_clear(void) {
  if (met.room > 4096 && met.count < met.room / 16) {
    give(met.key, met.room * sizeof *met.key);
    give(met.copy, met.room * sizeof *met.copy);
    met.key = NULL;
    met.copy = NULL;
    met.room = 0;
    met_grow();
  } else if (met.room) {
    memset(met.key, 0, met.room * sizeof *met.key);
  } else {
    met_grow();
  }
  met.count = 0;
}

/* What is done with the reals of a graph: a copy is made with an input of a level's tape
   for each, or with those given; or they are listed; or cotangents are added to the
   adjoints of those that are of a level. */
typedef struct Visit {
  int level;
  const uint64_t *leaf;
  Words *found;
  int seeded;
  const Val *given;
} Visit;

/* Visit every real of a graph, each object once, in an order that depends on the graph
   alone. Static objects are constants of the program: they are neither copied nor
   entered. */
static Val visit_graph(Val v, Visit visit, size_t *reals) {
  int level = visit.level, seeded = visit.seeded, copies = level || visit.leaf;
  const Val *given = visit.given;
  Val root = NOTHING;
  size_t n = 0;
  met_clear();
  walk_a.count = walk_b.count = 0;
  push(&walk_a, v);
  push(&walk_b, (uint64_t)(uintptr_t)&root);
  while (walk_a.count) {
    v = walk_a.at[--walk_a.count];
    Val *place = (Val *)(uintptr_t)walk_b.at[--walk_b.count];
    if (is_real(v)) {
      if (level)
        *place = taped(level, new_node(level, v, NO_NODE, box(0.0), NO_NODE, box(0.0)));
      else if (visit.leaf)
        *place = visit.leaf[n];
      else if (visit.found)
        push(visit.found, v);
      else if (given && tag_of(v) == TAG_TAPED && taped_level(v) == seeded)
        add_adjoint(&G.tape[seeded], (uint32_t)v, given[n]);
      n++;
      continue;
    }
    if (!is_pointer(v) || (object(v)->header & IS_STATIC)) {
      *place = v;
      continue;
    }
    const Object *from = object(v);
    size_t i = met_place(from);
    if (met.key[i]) {
      if (copies) *place = met.copy[i];
      continue;
    }
    uint32_t size;
    const Val *field = contents(v, &size);
    Val *to = NULL;
    met.key[i] = from;
    if (copies) *place = met.copy[i] = another(v, size, &to);
    if (2 * ++met.count > met.room) met_grow();
    for (uint32_t j = size; j-- > 0;) {
      if (copies) to[j] = NOTHING;
      push(&walk_a, field[j]);
      push(&walk_b, (uint64_t)(uintptr_t)(copies ? &to[j] : &root));
    }
  }
  *reals = n;
  return root;
}

/* Copy a graph with an input of a level's tape for each real; without a level, add the
   given cotangents to the adjoints of the reals that are of `seeded`. */
static Val graph_walk(Val v, int level, int seeded, const Val *given, size_t *reals) {
  return visit_graph(v, (Visit){.level = level, .seeded = seeded, .given = given}, reals);
}

/* The reals of a graph. */
static void graph_leaves(Val v, Words *leaves) {
  size_t reals;
  leaves->count = 0;
  visit_graph(v, (Visit){.found = leaves}, &reals);
}

/* A copy of a graph whose reals are those given. */
static Val graph_with(Val v, const uint64_t *leaf) {
  size_t reals;
  return visit_graph(v, (Visit){.leaf = leaf}, &reals);
}

/* The bytes of a graph's objects, of which there are so many. */
static size_t graph_bytes_and(Val v, size_t *objects) {
  size_t bytes = 0;
  met_clear();
  walk_a.count = 0;
  push(&walk_a, v);
  while (walk_a.count) {
    v = walk_a.at[--walk_a.count];
    if (!is_pointer(v) || (object(v)->header & IS_STATIC)) continue;
    const Object *o = object(v);
    size_t i = met_place(o);
    if (met.key[i]) continue;
    met.key[i] = o;
    if (2 * ++met.count > met.room) met_grow();
    size_t count = walk_a.count;
    push_fields(&walk_a, v);
    bytes += (walk_a.count - count + 1) * sizeof(Val);
    if (tag_of(v) == TAG_VECTOR) bytes += (VECTOR_WORDS + 1 + ARRAY_HEAD) * sizeof(Val);
  }
  *objects = met.count;
  return bytes;
}

static size_t graph_bytes(Val v) {
  size_t objects;
  return graph_bytes_and(v, &objects);
}

/* The bytes of its image, at most. */
static size_t image_bytes(Val v) {
  size_t objects, bytes = graph_bytes_and(v, &objects);
  return bytes + objects * sizeof(Val);
}

#endif
