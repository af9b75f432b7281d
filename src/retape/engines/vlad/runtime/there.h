/* What C that is compiled later has of the program that it belongs to. */

#ifndef VLAD_THERE_H
#define VLAD_THERE_H

#include "parts.h"

/* Functions of the runtime: their types, names, parameters and arguments. */
#define OF_TWO(X, name) X(Val, name, (Val a, Val b, int32_t site), (a, b, site))
#define OF_ONE(X, name) X(Val, name, (Val a, int32_t site), (a, site))
#define USED_LATER(X)                                             \
  X(Object *, small_object, (uint32_t code, uint32_t size), (code, size)) \
  X(Object *, paused_object, (uint32_t code, uint32_t size), (code, size)) \
  X(double, strip, (Val v, const char *op, int32_t site), (v, op, site)) \
  X(int, is_constant, (Val constant, Val v), (constant, v))       \
  X(int64_t, end_slice, (int64_t fuel), (fuel))                   \
  X(Val, read_real, (int32_t site), (site))                       \
  X(Val, external, (int32_t number, Val a, Val b, int32_t site), (number, a, b, site)) \
  X(Val, vector_set, (Val v, Val i, Val x, int32_t site), (v, i, x, site)) \
  OF_ONE(X, write_real) OF_TWO(X, make_vector) OF_ONE(X, vector_length) \
  OF_TWO(X, vector_ref) OF_TWO(X, vector_dot)                     \
  X(Val, matrix_product, (Val shape, Val a, Val b, int32_t site), (shape, a, b, site)) \
  X(Val, each, (const Each *e, const Val *args, int count, int32_t site),          \
    (e, args, count, site))                                       \
  OF_ONE(X, any_negation) LIFTED_OF_ONE(X) LIFTED_OF_TWO(X)

#define MEMBER(type, name, parameters, arguments) type (*name) parameters;
typedef struct There {
  State *state;
  struct Exchange *exchange;
  Val *passed, *closure;
  void (*fail)(enum Fault, const char *, int32_t, Val, Val);
  USED_LATER(MEMBER)
} There;
#undef MEMBER

#endif
