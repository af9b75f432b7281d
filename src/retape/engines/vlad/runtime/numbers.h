/* Arithmetic on any real. The rules do the same operations, in the same order, as those
   of `_numbers.py`, so that the implementations agree in every bit. */

#ifndef VLAD_NUMBERS_H
#define VLAD_NUMBERS_H

#include <math.h>
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

static double strip(Val v, const char *op, int32_t site) {
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

static inline double vlad_modulo(double a, double b) {
  if (b == 0.0 || isinf(a)) return NAN;
  double r = fmod(a, b);
  return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}

enum Binary { ADD, SUB, MUL, DIV, ATAN };
enum Unary { SQRT, EXP, LOG, SIN, COS };

static Val slow_add(Val, Val, int32_t);
static Val slow_sub(Val, Val, int32_t);
static Val slow_mul(Val, Val, int32_t);
static Val slow_div(Val, Val, int32_t);
static Val slow_atan(Val, Val, int32_t);
static Val slow_sin(Val, int32_t);
static Val slow_cos(Val, int32_t);

#define BINARY(name, symbol)                                   \
  static inline Val real_##name(Val a, Val b) {                       \
    if (LIKELY(is_double(a) & is_double(b)))                   \
      return box(unbox(a) symbol unbox(b));                    \
    return slow_##name(a, b, -1);                              \
  }
BINARY(add, +)
BINARY(sub, -)
BINARY(mul, *)
BINARY(div, /)
#undef BINARY

static inline Val binary(enum Binary op, Val a, Val b) {
  switch (op) {
    case ADD: return real_add(a, b);
    case SUB: return real_sub(a, b);
    case MUL: return real_mul(a, b);
    case DIV: return real_div(a, b);
    default:
      if (is_double(a) & is_double(b)) return box(atan2(unbox(a), unbox(b)));
      return slow_atan(a, b, -1);
  }
}

static inline Val by_left(enum Binary op, Val a, Val b) {
  switch (op) {
    case ADD:
    case SUB: return box(1.0);
    case MUL: return b;
    case DIV: return real_div(box(1.0), b);
    default: return real_div(b, real_add(real_mul(a, a), real_mul(b, b)));
  }
}

static inline Val by_right(enum Binary op, Val a, Val b, Val y) {
  switch (op) {
    case ADD: return box(1.0);
    case SUB: return box(-1.0);
    case MUL: return a;
    case DIV: return real_div(real_sub(box(0.0), y), b);
    default: return real_div(real_sub(box(0.0), a), real_add(real_mul(a, a), real_mul(b, b)));
  }
}

static inline __attribute__((always_inline)) Val lifted(enum Binary op, const char *name,
                                                       Val a, Val b, int32_t site) {
  int left = level_of(a, name, site), right = level_of(b, name, site);
  int level = left > right ? left : right;
  Val p = left == level ? primal_of(a) : a;
  Val q = right == level ? primal_of(b) : b;
  Val y = binary(op, p, q);
  Val dl = left == level ? by_left(op, p, q) : box(0.0);
  Val dr = right == level ? by_right(op, p, q, y) : box(0.0);
  if (tag_of(left == level ? a : b) == TAG_TAPED)
    return taped(level, new_node(level, y, left == level ? (uint32_t)a : NO_NODE, dl,
                                 right == level ? (uint32_t)b : NO_NODE, dr));
  if (left != level) return make_dual(level, y, real_mul(dr, object(b)->field[1]));
  Val tangent = real_mul(dl, object(a)->field[1]);
  if (right == level) tangent = real_add(tangent, real_mul(dr, object(b)->field[1]));
  return make_dual(level, y, tangent);
}

#define SLOW(name, op, text)                                                       \
  static __attribute__((noinline)) Val slow_##name(Val a, Val b, int32_t site) {   \
    return lifted(op, text, a, b, site);                                           \
  }
SLOW(add, ADD, "+")
SLOW(sub, SUB, "-")
SLOW(mul, MUL, "*")
SLOW(div, DIV, "/")
SLOW(atan, ATAN, "atan")
#undef SLOW

static Val unary(enum Unary op, Val a);

static inline double unary_double(enum Unary op, double a) {
  switch (op) {
    case SQRT: return sqrt(a);
    case EXP: return exp(a);
    case LOG: return log(a);
    case SIN: return sin(a);
    default: return cos(a);
  }
}

static inline __attribute__((always_inline)) Val lifted_unary(enum Unary op,
                                                             const char *name, Val a,
                                                             int32_t site) {
  int level = level_of(a, name, site);
  Val p = primal_of(a), y = unary(op, p), d;
  switch (op) {
    case SQRT: d = real_div(box(0.5), y); break;
    case EXP: d = y; break;
    case LOG: d = real_div(box(1.0), p); break;
    case SIN: d = unary(COS, p); break;
    default: d = real_sub(box(0.0), unary(SIN, p)); break;
  }
  if (tag_of(a) == TAG_TAPED)
    return taped(level, new_node(level, y, (uint32_t)a, d, NO_NODE, box(0.0)));
  return make_dual(level, y, real_mul(d, object(a)->field[1]));
}

#define SLOW(name, op, text)                                                 \
  static __attribute__((noinline)) Val slow_##name(Val a, int32_t site) {    \
    return lifted_unary(op, text, a, site);                                  \
  }
SLOW(sqrt, SQRT, "sqrt")
SLOW(exp, EXP, "exp")
SLOW(log, LOG, "log")
SLOW(sin, SIN, "sin")
SLOW(cos, COS, "cos")
#undef SLOW

static Val unary(enum Unary op, Val a) {
  if (is_double(a)) return box(unary_double(op, unbox(a)));
  switch (op) {
    case SQRT: return slow_sqrt(a, -1);
    case EXP: return slow_exp(a, -1);
    case LOG: return slow_log(a, -1);
    case SIN: return slow_sin(a, -1);
    default: return slow_cos(a, -1);
  }
}

/* Whether an argument is the constant that a parameter demands. */
static inline int is_constant(Val constant, Val v) {
  while (tag_of(v) == TAG_TAPED || tag_of(v) == TAG_DUAL) v = primal_of(v);
  if (is_double(constant)) return is_double(v) && unbox(constant) == unbox(v);
  return constant == v;
}

static inline Val read_real(int32_t site) {
  if (G.input_at == G.input_count) {
    if (G.input_count == G.input_room) {
      size_t room = G.input_room ? 2 * G.input_room : 64;
      double *grown = realloc(G.inputs, room * sizeof(double));
      if (!grown) fail(NO_MEMORY, "", site, NOTHING, NOTHING);
      G.inputs = grown;
      G.input_room = room;
    }
    int status = G.host_read(&G.inputs[G.input_count]);
    if (status < 0) fail(FROM_HOST, "read-real", site, NOTHING, NOTHING);
    if (status == 0) fail(END_OF_INPUT, "read-real", site, NOTHING, NOTHING);
    G.input_count++;
  }
  return box(G.inputs[G.input_at++]);
}

static inline Val write_real(Val v, int32_t site) {
  double d = strip(v, "write-real", site);
  if (G.writes == G.printed) {
    if (G.host_write(d) < 0) fail(FROM_HOST, "write-real", site, NOTHING, NOTHING);
    G.printed++;
  }
  G.writes++;
  return v;
}

#endif
