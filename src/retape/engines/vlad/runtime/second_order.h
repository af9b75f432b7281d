/* Reverse mode over a derivative: one operation of the outer tape, of any length. See
   `evaluators/_second_order.py`, which does the same, and says why it is right.

   On the tape stands a number that only marks the place, with the record of the call,
   and after it a number for each real of the results. */

#ifndef VLAD_SECOND_ORDER_H
#define VLAD_SECOND_ORDER_H

#include "derivatives.h"

enum {
  CALL_OPERATOR,
  CALL_START,
  CALL_SEED,
  CALL_VALUE,
  CALL_INPUT_AT,
  CALL_WRITES,
  CALL_WORDS
};

static const char *const operator_name[] = {
    [FORWARD] = "j*", [REVERSE] = "*j", [CHECKPOINT] = "checkpoint-*j"};

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

/* The level of the tape that a derivative is one operation of, or 0; what it is applied
   to is then in leaves_b, and its seed or tangent in leaves_c. */
static int tape_around(enum Operator op, Val start, Val seed) {
  if (G.asymmetric || !(op == FORWARD ? G.planned : G.level)) return 0;
  graph_leaves(start, &leaves_b);
  tree_leaves(seed, &leaves_c);
  return enclosing(&leaves_b, &leaves_c);
}

/* A derivative as one operation of the tape of a level. */
static Val operation(enum Operator op, int level, Val start, Val t, int32_t site) {
  int at_start = shadow(start), at_seed = shadow(t);
  Marks before = marks();
  strip_leaves(&leaves_b, level);
  strip_leaves(&leaves_c, level);
  Val seed = tree_with(t, leaves_c.at);
  const Object *plain = object(graph_with(start, leaves_b.at));
  Val result = differentiated(op, plain->field[2], plain->field[1], seed, site);
  Object *call = old_object(0, CALL_WORDS);
  call->field[CALL_OPERATOR] = box((double)op);
  call->field[CALL_START] = G.shadow[at_start];
  call->field[CALL_SEED] = G.shadow[at_seed];
  call->field[CALL_VALUE] = object(result)->field[0];
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

static Val differentiated(enum Operator op, Val f, Val x, Val t, int32_t site) {
  if (op == REVERSE && !G.planned) return reverse(f, x, t, site);
  if (op == FORWARD) {
    conforming_leaves("j*", site, x, t, &leaves_b);
    if (!G.planned) return forward(f, x, t, site);
  }
  tree_leaves(x, &leaves_a);
  Val start = application(f, tree_with(x, leaves_a.at));
  int level = tape_around(op, start, t);
  if (level) return operation(op, level, start, t, site);
  if (op == FORWARD) return forward(f, x, t, site);
  return checkpoint_from(start, t, 0, operator_name[op], site);
}

static Val adjoint_at(uint32_t i) { return node_of(&G.tape[G.level], i)->adjoint; }

/* Give reals their tangents; a real whose tangent is zero is a constant. */
static void with_tangents(Words *leaves, const Words *tangents) {
  for (size_t i = 0; i < tangents->count; i++)
    if (!is_zero(tangents->at[i]))
      leaves->at[i] = make_dual(G.level, leaves->at[i], tangents->at[i]);
}

/* The adjoints, at the level below, of numbers from one on. */
static void adjoints_below(Words *leaves, size_t count, uint32_t from) {
  leaves->count = 0;
  for (uint32_t i = 0; i < count; i++)
    push(leaves, node_of(&G.tape[G.level - 1], from + i)->adjoint);
}

static Val tangent_at(int level, Val v) {
  int has_one = tag_of(v) == TAG_DUAL && (int)code_of(object(v)) == level;
  return has_one ? object(v)->field[1] : box(0.0);
}

/* Add cotangents to the adjoints of those reals that are of the sweep's tape. */
static void add_adjoints(const Words *leaves, const uint64_t *cotangent) {
  for (size_t i = 0; i < leaves->count; i++) {
    if (!is_of(leaves->at[i], G.level)) continue;
    add_adjoint(&G.tape[G.level], (uint32_t)leaves->at[i], cotangent[i]);
  }
}

static Val primal_at(int level, Val v) {
  int has_one = tag_of(v) == TAG_DUAL && (int)code_of(object(v)) == level;
  return has_one ? object(v)->field[0] : v;
}

static Words leaves_d;

/* What the operator is run on for its cotangents, by the numbers of its two results: for
   `j*` its argument with the tangent, and the value's seed with the tangent's for its
   primal; else the argument and the seed, along their own cotangents. */
static void moved_call(const Object *call, uint32_t first, size_t values, size_t others,
                       Val *moved, Val *seeds) {
  Val seed = call->field[CALL_SEED];
  uint32_t second = first + (uint32_t)values;
  if (unbox(call->field[CALL_OPERATOR]) == FORWARD) {
    with_tangents(&leaves_b, &leaves_c);
    adjoints_below(&leaves_c, others, second);
    seed = call->field[CALL_VALUE];
  } else {
    adjoints_below(&leaves_d, others, second);
    with_tangents(&leaves_b, &leaves_d);
  }
  adjoints_below(&leaves_d, values, first);
  with_tangents(&leaves_c, &leaves_d);
  *moved = graph_with(call->field[CALL_START], leaves_b.at);
  *seeds = tree_with(seed, leaves_c.at);
}

static void propagate_call(uint32_t i) {
  const Object *record = object(node_of(&G.tape[G.level], i)->by_left);
  if (code_of(record) == OF_PRODUCT) {
    propagate_product(i, record);
    return;
  }
  int at = shadow(node_of(&G.tape[G.level], i)->by_left);
  const Object *call = object(G.shadow[at]);
  enum Operator op = (enum Operator)unbox(call->field[CALL_OPERATOR]);
  tree_leaves(call->field[CALL_VALUE], &leaves_a);
  size_t values = leaves_a.count, others = values;
  if (op != FORWARD) {
    tree_leaves(object(call->field[CALL_START])->field[1], &leaves_a);
    others = leaves_a.count;
  }
  uint32_t j = i + 1, end = i + 1 + (uint32_t)(values + others);
  while (j < end && is_zero(adjoint_at(j))) j++;
  G.shadows = j < end ? at + 1 : at;
  if (j == end) return;
  Marks now = marks();
  rewind_to((Marks){(size_t)unbox(call->field[CALL_INPUT_AT]),
                    (size_t)unbox(call->field[CALL_WRITES])});
  graph_leaves(call->field[CALL_START], &leaves_b);
  tree_leaves(call->field[CALL_SEED], &leaves_c);
  strip_leaves(&leaves_b, G.level);
  strip_leaves(&leaves_c, G.level);
  enter_level(operator_name[op], -1);
  int level = G.level;
  Val moved, seeds;
  moved_call(call, i + 1, values, others, &moved, &seeds);
  const Object *result = object(checkpoint_from(moved, seeds, 1, operator_name[op], -1));
  leave_level();
  rewind_to(now);
  call = object(G.shadow[at]);
  graph_leaves(call->field[CALL_START], &leaves_b);
  tree_leaves(call->field[CALL_SEED], &leaves_c);
  const Object *found = object(result->field[1]);
  leaves_a.count = leaves_d.count = 0;
  for (uint32_t n = 0; n < size_of(found); n++)
    push(&leaves_a, tangent_at(level, found->field[n]));
  add_adjoints(&leaves_b, leaves_a.at);
  if (op == FORWARD) {
    for (uint32_t n = 0; n < leaves_c.count; n++)
      push(&leaves_d, primal_at(level, found->field[n]));
  } else {
    tree_leaves(result->field[0], &leaves_a);
    for (size_t n = 0; n < leaves_a.count; n++)
      push(&leaves_d, tangent_at(level, leaves_a.at[n]));
  }
  add_adjoints(&leaves_c, leaves_d.at);
  G.shadows = at;
}

#endif
