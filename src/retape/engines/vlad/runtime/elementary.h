/* Operators on doubles. */

#ifndef VLAD_ELEMENTARY_H
#define VLAD_ELEMENTARY_H

#include <math.h>
#include "value.h"

static inline double vlad_modulo(double a, double b) {
  if (b == 0.0 || isinf(a)) return NAN;
  double r = fmod(a, b);
  return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}

/* Functions of one real: the name in C, the name in the language. */
#define ELEMENTARY(X)                                                              \
  X(sqrt, "sqrt") X(exp, "exp") X(log, "log") X(sin, "sin") X(cos, "cos")          \
  X(tan, "tan") X(asin, "asin") X(acos, "acos") X(sinh, "sinh") X(cosh, "cosh")    \
  X(tanh, "tanh") X(expm1, "expm1") X(log1p, "log1p") X(log2, "log2")              \
  X(log10, "log10") X(erf, "erf") X(abs, "abs") X(negative, "-")

#define PLAIN(name) \
  static inline double double_##name(double a) { return name(a); }
PLAIN(sqrt) PLAIN(exp) PLAIN(log) PLAIN(sin) PLAIN(cos) PLAIN(tan) PLAIN(asin)
PLAIN(acos) PLAIN(sinh) PLAIN(cosh) PLAIN(tanh) PLAIN(expm1) PLAIN(log1p) PLAIN(log2)
PLAIN(log10) PLAIN(erf)
#undef PLAIN
static inline double double_abs(double a) { return fabs(a); }
static inline double double_negative(double a) { return -a; }
static inline double double_add(double a, double b) { return a + b; }
static inline double double_sub(double a, double b) { return a - b; }
static inline double double_mul(double a, double b) { return a * b; }
static inline double double_div(double a, double b) { return a / b; }
static inline double double_atan(double a, double b) { return atan2(a, b); }
/* The operators % and // of Python's floats; b is not zero. */
static inline double double_remainder(double a, double b) {
  if (b == 0.0 || !isfinite(a)) return NAN;
  double r = fmod(a, b);
  if (r == 0.0) return copysign(0.0, b);
  return (r < 0.0) != (b < 0.0) ? r + b : r;
}
static inline double python_floor_divide(double a, double b) {
  if (b == 0.0) return NAN;
  double r = fmod(a, b), quotient = (a - r) / b;
  if (r != 0.0 && (b < 0.0) != (r < 0.0)) quotient -= 1.0;
  if (quotient == 0.0) return copysign(0.0, a / b);
  double whole = floor(quotient);
  return quotient - whole > 0.5 ? whole + 1.0 : whole;
}
static inline double double_expt(double a, double b) { return pow(a, b); }

#endif
