/* What C that is compiled later has of the program that it belongs to. */

#ifndef VLAD_THERE_H
#define VLAD_THERE_H

#include "parts.h"

/* Functions of the runtime: their types, names, parameters and arguments. */
#define OF_TWO(X, name) X(Val, name, (Val a, Val b, int32_t site), (a, b, site))
#define OF_ONE(X, name) X(Val, name, (Val a, int32_t site), (a, site))
#define ARITHMETIC_OF(X, kind)                                    \
  OF_TWO(X, kind##_add) OF_TWO(X, kind##_sub) OF_TWO(X, kind##_mul) \
  OF_TWO(X, kind##_div) OF_TWO(X, kind##_atan) OF_TWO(X, kind##_expt) \
  OF_TWO(X, kind##_remainder)
#define ELEMENTARY_OF(X, kind)                                    \
  OF_ONE(X, kind##_sqrt) OF_ONE(X, kind##_exp) OF_ONE(X, kind##_log) \
  OF_ONE(X, kind##_sin) OF_ONE(X, kind##_cos) OF_ONE(X, kind##_tan) \
  OF_ONE(X, kind##_asin) OF_ONE(X, kind##_acos) OF_ONE(X, kind##_sinh) \
  OF_ONE(X, kind##_cosh) OF_ONE(X, kind##_tanh) OF_ONE(X, kind##_expm1) \
  OF_ONE(X, kind##_log1p) OF_ONE(X, kind##_log2) OF_ONE(X, kind##_log10) \
  OF_ONE(X, kind##_erf) OF_ONE(X, kind##_abs) OF_ONE(X, kind##_negative)
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
  OF_ONE(X, any_negation)                                         \
  ARITHMETIC_OF(X, slow) ARITHMETIC_OF(X, any)                    \
  ELEMENTARY_OF(X, slow) ELEMENTARY_OF(X, any)

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
