/* Reverse mode over `checkpoint-*j`: one operation of the outer tape, of any length. See
   `evaluators/_second_order.py`, which does the same, and says why it is right.

   On the tape stands a number that only marks the place, with the record of the call,
   and after it a number for each real of the results. */

#ifndef VLAD_SECOND_ORDER_H
#define VLAD_SECOND_ORDER_H

#include "derivatives.h"

enum { CALL_START, CALL_SEED, CALL_VALUES, CALL_INPUT_AT, CALL_WRITES, CALL_WORDS };

static Words leaves_c;

/* The level of the innermost derivative whose numbers are in these, if it is of reverse
   mode; else 0. */
static int enclosing(const Words *a, const Words *b) {
  int top = 0, is_tape = 0;
  const Words *both[] = {a, b};
  for (int w = 0; w < 2; w++)
    for (size_t i = 0; i < both[w]->count; i++) {
      Val v = both[w]->at[i];
      int level = level_of(v, "checkpoint-*j", -1);
      if (level <= top) continue;
      top = level;
      is_tape = tag_of(v) == TAG_TAPED;
    }
  return is_tape ? top : 0;
}

static int is_of(Val v, int level) {
  return tag_of(v) == TAG_TAPED && taped_level(v) == level;
}

/* Take a level's tape off. */
static void strip_leaves(Words *leaves, int level) {
  for (size_t i = 0; i < leaves->count; i++)
    if (is_of(leaves->at[i], level)) leaves->at[i] = primal_of(leaves->at[i]);
}

static Val checkpoint(Val f, Val x, Val cotangent, int32_t site) {
  tree_leaves(x, &leaves_a);
  Val start = application(f, tree_with(x, leaves_a.at));
  int level = 0;
  if (G.level > 0 && !G.asymmetric) {
    graph_leaves(start, &leaves_b);
    tree_leaves(cotangent, &leaves_c);
    level = enclosing(&leaves_b, &leaves_c);
  }
  if (!level) return checkpoint_from(start, cotangent, 0, site);
  int at_start = shadow(start), at_seed = shadow(cotangent);
  Marks before = marks();
  strip_leaves(&leaves_b, level);
  strip_leaves(&leaves_c, level);
  Val seed = tree_with(cotangent, leaves_c.at);
  const Object *plain = object(graph_with(start, leaves_b.at));
  Val result = checkpoint(plain->field[2], plain->field[1], seed, site);
  Object *call = old_object(0, CALL_WORDS);
  call->field[CALL_START] = G.shadow[at_start];
  call->field[CALL_SEED] = G.shadow[at_seed];
  tree_leaves(object(result)->field[0], &leaves_a);
  call->field[CALL_VALUES] = box((double)leaves_a.count);
  call->field[CALL_INPUT_AT] = box((double)before.input_at);
  call->field[CALL_WRITES] = box((double)before.writes);
  uint32_t at =
      new_node(level, box(0.0), CALL_NODE, tagged(TAG_FRAME, call), NO_NODE, box(0.0));
  node_of(&G.tape[level], at)->adjoint = box(1.0); /* so that the sweep stops there */
  tree_leaves(result, &leaves_a);
  for (size_t i = 0; i < leaves_a.count; i++)
    leaves_a.at[i] = taped(level, new_node(level, leaves_a.at[i], NO_NODE, box(0.0),
                                           NO_NODE, box(0.0)));
  G.shadows = at_start;
  return tree_with(result, leaves_a.at);
}

static Val adjoint_at(uint32_t i) { return node_of(&G.tape[G.level], i)->adjoint; }

static int is_zero(Val v) { return is_double(v) && unbox(v) == 0.0; }

/* Give reals their tangents: the adjoints, at the level below, of numbers from one on. A
   real whose tangent is zero is a constant. */
static void with_tangents(Words *leaves, size_t count, uint32_t from) {
  for (size_t i = 0; i < count; i++) {
    Val tangent = node_of(&G.tape[G.level - 1], from + (uint32_t)i)->adjoint;
    if (!is_zero(tangent)) leaves->at[i] = make_dual(G.level, leaves->at[i], tangent);
  }
}

static Val tangent_at(int level, Val v) {
  int has_one = tag_of(v) == TAG_DUAL && (int)code_of(object(v)) == level;
  return has_one ? object(v)->field[1] : box(0.0);
}

/* Add cotangents to the adjoints of those reals that are of the sweep's tape. */
static void add_adjoints(const Words *leaves, const uint64_t *cotangent) {
  for (size_t i = 0; i < leaves->count; i++) {
    if (!is_of(leaves->at[i], G.level)) continue;
    Node *n = node_of(&G.tape[G.level], (uint32_t)leaves->at[i]);
    n->adjoint = real_add(n->adjoint, cotangent[i]);
  }
}

static void propagate_call(uint32_t i) {
  int at = shadow(node_of(&G.tape[G.level], i)->by_left);
  const Object *call = object(G.shadow[at]);
  Val start = call->field[CALL_START], seed = call->field[CALL_SEED];
  uint32_t values = (uint32_t)unbox(call->field[CALL_VALUES]);
  tree_leaves(object(start)->field[1], &leaves_a);
  uint32_t arguments = (uint32_t)leaves_a.count, end = i + 1 + values + arguments;
  uint32_t j = i + 1;
  while (j < end && is_zero(adjoint_at(j))) j++;
  G.shadows = j < end ? at + 1 : at;
  if (j == end) return;
  Marks now = marks();
  rewind_to((Marks){(size_t)unbox(call->field[CALL_INPUT_AT]),
                    (size_t)unbox(call->field[CALL_WRITES])});
  graph_leaves(start, &leaves_b);
  tree_leaves(seed, &leaves_c);
  strip_leaves(&leaves_b, G.level);
  strip_leaves(&leaves_c, G.level);
  enter_level("checkpoint-*j", -1);
  int level = G.level;
  with_tangents(&leaves_b, arguments, i + 1 + values);
  with_tangents(&leaves_c, values, i + 1);
  Val moved = graph_with(start, leaves_b.at), seeds = tree_with(seed, leaves_c.at);
  const Object *result = object(checkpoint_from(moved, seeds, 1, -1));
  leave_level();
  rewind_to(now);
  call = object(G.shadow[at]);
  graph_leaves(call->field[CALL_START], &leaves_b);
  const Object *found = object(result->field[1]);
  leaves_a.count = 0;
  for (uint32_t n = 0; n < size_of(found); n++)
    push(&leaves_a, tangent_at(level, found->field[n]));
  add_adjoints(&leaves_b, leaves_a.at);
  tree_leaves(result->field[0], &leaves_a);
  for (size_t n = 0; n < leaves_a.count; n++)
    leaves_a.at[n] = tangent_at(level, leaves_a.at[n]);
  tree_leaves(call->field[CALL_SEED], &leaves_b);
  add_adjoints(&leaves_b, leaves_a.at);
  G.shadows = at;
}

#endif
