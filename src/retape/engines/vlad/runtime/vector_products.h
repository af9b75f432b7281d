/* The builtins of products: of vectors, and of matrices that lie in vectors row by row. */

#ifndef VLAD_VECTOR_PRODUCTS_H
#define VLAD_VECTOR_PRODUCTS_H

#include "real_products.h"

/* The array of a vector of reals. */
static Object *array_of_reals(Val v, const char *op, int32_t site) {
  Object *array = array_of(vector_of(v, op, site));
  for (uint32_t i = 0; i < length_of(array); i++)
    if (!is_real(elements(array)[i])) fail(NOT_REAL, op, site, elements(array)[i], NOTHING);
  return array;
}

Val vector_dot(Val a, Val b, int32_t site) {
  uint32_t n = length_of(array_of_reals(a, "vector-dot", site));
  uint32_t other = length_of(array_of_reals(b, "vector-dot", site));
  if (n != other) fail(NOT_ALIKE, "vector-dot", site, box(n), box(other));
  return elements(real_product((Sizes){1, n, 1}, a, b))[0];
}

/* How many columns the left factor has; -1 if the lengths are not those of factors. */
static double inner_of(double rows, double columns, double a, double b) {
  double inner = rows > 0.0 ? a / rows : columns > 0.0 ? b / columns : 0.0;
  int fits = floor(inner) == inner && rows * inner == a && inner * columns == b;
  return fits && rows * columns <= MAX_LENGTH ? inner : -1.0;
}

Val matrix_product(Val shape, Val a, Val b, int32_t site) {
  const char *op = "matrix-product";
  uint32_t x = length_of(array_of_reals(a, op, site));
  uint32_t y = length_of(array_of_reals(b, op, site));
  double rows = -1.0, columns = -1.0, inner = -1.0;
  if (tag_of(shape) == TAG_PAIR) {
    rows = whole_below(object(shape)->field[0], MAX_LENGTH + 1.0, op, site);
    columns = whole_below(object(shape)->field[1], MAX_LENGTH + 1.0, op, site);
  }
  if (rows >= 0.0 && columns >= 0.0) inner = inner_of(rows, columns, x, y);
  if (inner < 0.0) fail(NO_PRODUCT, op, site, shape, make_pair(box(x), box(y)));
  Sizes s = {(size_t)rows, (size_t)inner, (size_t)columns};
  return version(small_object(0, VECTOR_WORDS), real_product(s, a, b));
}

#endif
