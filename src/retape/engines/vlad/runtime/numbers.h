/* Arithmetic on any real. The rules are made of the table of operators, as those of
   `values/_dual_and_taped.py` are, so that the implementations agree in every bit. */

#ifndef VLAD_NUMBERS_H
#define VLAD_NUMBERS_H

#include "collect.h"

static Val primal_of(Val v) {
  if (tag_of(v) == TAG_TAPED) return node_of(&G.tape[taped_level(v)], (uint32_t)v)->value;
  return object(v)->field[0];
}

static int level_of(Val v, const char *op, int32_t site) {
  if (is_double(v)) return 0;
  if (tag_of(v) == TAG_TAPED) return taped_level(v);
  if (tag_of(v) != TAG_DUAL) fail(NOT_REAL, op, site, v, NOTHING);
  return (int)code_of(object(v));
}

double strip(Val v, const char *op, int32_t site) {
  while (!is_double(v)) {
    if (tag_of(v) != TAG_TAPED && tag_of(v) != TAG_DUAL)
      fail(NOT_REAL, op, site, v, NOTHING);
    v = primal_of(v);
  }
  return unbox(v);
}

static Val make_dual(int level, Val primal, Val tangent) {
  Object *o = small_object((uint32_t)level, 2);
  o->field[0] = primal;
  o->field[1] = tangent;
  return tagged(TAG_DUAL, o);
}

#define X(name, text) OP_##name,
enum Unary { OPERATORS_OF_ONE(X) };
enum Binary { OPERATORS_OF_TWO(X) };
#undef X

static Val unary(enum Unary op, Val a);

#define X(name, text)                                           \
  static inline Val real_##name(Val a, Val b) {                 \
    if (LIKELY(is_double(a) & is_double(b)))                    \
      return box(double_##name(unbox(a), unbox(b)));            \
    return slow_##name(a, b, -1);                               \
  }
OPERATORS_OF_TWO(X)
#undef X

static inline Val binary(enum Binary op, Val a, Val b) {
  switch (op) {
#define X(name, text) \
  case OP_##name: return real_##name(a, b);
    OPERATORS_OF_TWO(X)
#undef X
  }
  return NOTHING;
}

/* The partials of the table: of y = op(a, b) by either operand, and of y = op(a). */
static inline Val by_left(enum Binary op, Val a, Val b, Val y) {
  (void)y;
  switch (op) { BY_LEFT }
  return NOTHING;
}

static inline Val by_right(enum Binary op, Val a, Val b, Val y) {
  switch (op) { BY_RIGHT }
  return NOTHING;
}

static inline Val derivative(enum Unary op, Val a, Val y) {
  switch (op) { PARTIALS_OF_ONE }
  return NOTHING;
}

/* The result of an operation at a level, recorded there, or with its tangent. */
static inline Val recorded(int level, Val y, Val a, Val da, int by_a, Val b, Val db,
                           int by_b) {
  if (tag_of(by_a ? a : b) == TAG_TAPED)
    return taped(level, new_node(level, y, by_a ? (uint32_t)a : NO_NODE, da,
                                 by_b ? (uint32_t)b : NO_NODE, db));
  if (!by_a) return make_dual(level, y, real_mul(db, object(b)->field[1]));
  Val tangent = real_mul(da, object(a)->field[1]);
  if (by_b) tangent = real_add(tangent, real_mul(db, object(b)->field[1]));
  return make_dual(level, y, tangent);
}

/* Add to the adjoint of a number. If that is a young object now, the next minor collection
   looks at the tape from there on: code runs in the middle of a sweep, too. */
static inline void add_adjoint(Tape *t, uint32_t i, Val more) {
  Node *n = node_of(t, i);
  n->adjoint = real_add(n->adjoint, more);
  if (UNLIKELY(is_pointer(n->adjoint))) {
    t->has_pointers = 1;
    if (i < t->young_from) t->young_from = i;
  }
}

static int is_zero(Val v) { return is_double(v) && unbox(v) == 0.0; }

/* The number of a tape whose value is a double, or NULL. */
static inline const Node *plain_node(Val v) {
  if (tag_of(v) != TAG_TAPED) return NULL;
  const Node *n = node_of(&G.tape[taped_level(v)], (uint32_t)v);
  return is_double(n->value) ? n : NULL;
}

/* An operation on doubles and on numbers of one tape whose values are doubles, as nearly
   all are: the same as `lifted` without its questions. NOTHING if they are not. */
static inline __attribute__((always_inline)) Val on_one_tape(enum Binary op, Val a, Val b) {
  const Node *left = plain_node(a), *right = plain_node(b);
  if (left ? !right && !is_double(b) : !right || !is_double(a)) return NOTHING;
  int level = taped_level(left ? a : b);
  if (left && right && taped_level(b) != level) return NOTHING;
  Val p = left ? left->value : a, q = right ? right->value : b;
  Val y = binary(op, p, q);
  Val dl = left ? by_left(op, p, q, y) : box(0.0);
  Val dr = right ? by_right(op, p, q, y) : box(0.0);
  uint32_t i = left ? (uint32_t)a : NO_NODE, j = right ? (uint32_t)b : NO_NODE;
  return taped(level, plain_new_node(level, y, i, dl, j, dr));
}

static inline __attribute__((always_inline)) Val lifted(enum Binary op, const char *name,
                                                       Val a, Val b, int32_t site) {
  Val fast = on_one_tape(op, a, b);
  if (LIKELY(fast != NOTHING)) return fast;
  int left = level_of(a, name, site), right = level_of(b, name, site);
  int level = left > right ? left : right;
  Val p = left == level ? primal_of(a) : a;
  Val q = right == level ? primal_of(b) : b;
  Val y = binary(op, p, q);
  Val dl = left == level ? by_left(op, p, q, y) : box(0.0);
  Val dr = right == level ? by_right(op, p, q, y) : box(0.0);
  return recorded(level, y, a, dl, left == level, b, dr, right == level);
}

#define X(name, text)                                                      \
  __attribute__((noinline)) Val slow_##name(Val a, Val b, int32_t site) { \
    return lifted(OP_##name, text, a, b, site);                            \
  }
OPERATORS_OF_TWO(X)
#undef X

static inline __attribute__((always_inline)) Val lifted_unary(enum Unary op,
                                                             const char *name, Val a,
                                                             int32_t site) {
  const Node *n = plain_node(a);
  if (LIKELY(n != NULL)) {
    Val y = unary(op, n->value), d = derivative(op, n->value, y);
    int on = taped_level(a);
    return taped(on, plain_new_node(on, y, (uint32_t)a, d, NO_NODE, box(0.0)));
  }
  int level = level_of(a, name, site);
  Val p = primal_of(a), y = unary(op, p), d = derivative(op, p, y);
  if (tag_of(a) == TAG_TAPED)
    return taped(level, new_node(level, y, (uint32_t)a, d, NO_NODE, box(0.0)));
  return make_dual(level, y, real_mul(d, object(a)->field[1]));
}

#define X(name, text)                                                              \
  __attribute__((noinline)) Val slow_##name(Val a, int32_t site) {  \
    return lifted_unary(OP_##name, text, a, site);                                 \
  }
OPERATORS_OF_ONE(X)
#undef X

static Val unary(enum Unary op, Val a) {
  switch (op) {
#define X(name, text) \
  case OP_##name: return is_double(a) ? box(double_##name(unbox(a))) : slow_##name(a, -1);
    OPERATORS_OF_ONE(X)
#undef X
  }
  return NOTHING;
}

/* Operators that are called where some operand of a row of operators is no double. */

#define X(name, text)                                                               \
  __attribute__((noinline)) Val any_##name(Val a, Val b, int32_t site) { \
    if (is_double(a) & is_double(b)) return box(double_##name(unbox(a), unbox(b))); \
    return slow_##name(a, b, site);                                                 \
  }
OPERATORS_OF_TWO(X)
#undef X

#define X(name, text)                                                               \
  __attribute__((noinline)) Val any_##name(Val a, int32_t site) {    \
    return is_double(a) ? box(double_##name(unbox(a))) : slow_##name(a, site);      \
  }
OPERATORS_OF_ONE(X)
#undef X

/* The negative of a real, or the difference of the parts of a pair. */
__attribute__((noinline)) Val any_negation(Val a, int32_t site) {
  if (tag_of(a) == TAG_PAIR) return any_sub(object(a)->field[0], object(a)->field[1], site);
  return any_negative(a, site);
}

static Val external_partial(const External *e, int operand, Val p, Val q, int32_t site) {
  if (e->partial[operand] < 0)
    fail(NO_DERIVATIVE, e->name, site, box(operand), NOTHING);
  return external(e->partial[operand], p, q, site);
}

/* An external function of any reals; b is 0 for one of one operand. */
Val external(int32_t number, Val a, Val b, int32_t site) {
  const External *e = external_of(number);
  int left = level_of(a, e->name, site), right = level_of(b, e->name, site);
  int level = left > right ? left : right;
  if (level == 0) {
    double operand[2] = {unbox(a), unbox(b)}, result;
    if (G.host_external(number, operand, &result) < 0)
      fail(FROM_HOST, e->name, site, NOTHING, NOTHING);
    return box(isnan(result) ? NAN : result);
  }
  Val p = left == level ? primal_of(a) : a;
  Val q = right == level ? primal_of(b) : b;
  Val y = external(number, p, q, site);
  Val dl = left == level ? external_partial(e, 0, p, q, site) : box(0.0);
  Val dr = right == level ? external_partial(e, 1, p, q, site) : box(0.0);
  return recorded(level, y, a, dl, left == level, b, dr, right == level);
}

/* Whether an argument is the constant that a parameter demands. */
int is_constant(Val constant, Val v) {
  while (tag_of(v) == TAG_TAPED || tag_of(v) == TAG_DUAL) v = primal_of(v);
  if (is_double(constant)) return is_double(v) && unbox(constant) == unbox(v);
  return constant == v;
}

Val read_real(int32_t site) {
  if (G.input_at == G.input_count) {
    if (G.input_count == G.input_room) {
      size_t room = G.input_room ? 2 * G.input_room : 64;
      G.inputs =
          resized(G.inputs, G.input_room * sizeof(double), room * sizeof(double));
      G.input_room = room;
    }
    int status = G.host_read(&G.inputs[G.input_count]);
    if (status < 0) fail(FROM_HOST, "read-real", site, NOTHING, NOTHING);
    if (status == 0) fail(END_OF_INPUT, "read-real", site, NOTHING, NOTHING);
    /* the words of other NaNs are tagged values */
    if (isnan(G.inputs[G.input_count])) G.inputs[G.input_count] = NAN;
    G.input_count++;
  }
  return box(G.inputs[G.input_at++]);
}

Val write_real(Val v, int32_t site) {
  double d = strip(v, "write-real", site);
  if (G.writes == G.printed) {
    if (G.host_write(d) < 0) fail(FROM_HOST, "write-real", site, NOTHING, NOTHING);
    G.printed++;
  }
  G.writes++;
  return v;
}

#endif
