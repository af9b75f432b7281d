/* Operators on doubles. The macros OPERATORS_... are made of the table of operators
   (`compiler/ir/_c_text.py`), and stand before every file. */

#ifndef VLAD_ELEMENTARY_H
#define VLAD_ELEMENTARY_H

#include "value.h"

static inline double vlad_modulo(double a, double b) {
  if (b == 0.0 || isinf(a)) return NAN;
  double r = fmod(a, b);
  return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}

/* The operators % and // of Python's floats; b is not zero. */
static inline double python_remainder(double a, double b) {
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

/* What a row of the table says, as functions double_sqrt and so on. */
OPERATORS_ON_DOUBLES

#endif
