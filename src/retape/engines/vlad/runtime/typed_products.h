/* Products of rows, and their adjoints; rows that an adjoint will need as they are. */

#ifndef VLAD_TYPED_PRODUCTS_H
#define VLAD_TYPED_PRODUCTS_H

#include "typed_rows.h"

double row_dot(const Row *a, const Row *b) {
  double result;
  G.work += a->length;
  dots(1, a->length, a->value, a->length, b->value, &result);
  return result;
}

void row_dot_back(double g, Row *a, Row *b) {
  if (g == 0.0) return;
  tiles()->add_multiple(a->length, g, b->value, adjoint_of(a));
  tiles()->add_multiple(a->length, g, a->value, adjoint_of(b));
}

/* A product of so many rows and columns; NULL if these are no factors of one. */
Row *row_product(double rows, double columns, const Row *a, const Row *b) {
  int are_whole = rows >= 0.0 && rows <= MAX_LENGTH && floor(rows) == rows &&
                  columns >= 0.0 && columns <= MAX_LENGTH && floor(columns) == columns;
  double inner = are_whole ? inner_of(rows, columns, a->length, b->length) : -1.0;
  if (inner < 0.0) return NULL;
  size_t m = (size_t)rows, k = (size_t)inner, n = (size_t)columns;
  Row *c = new_row(m * n);
  G.work += (int64_t)(m * n * k);
  product(m, k, n, a->value, b->value, c->value);
  return c;
}

void row_product_back(const Row *c, double columns, Row *a, Row *b) {
  if (!row_is_used(c)) return;
  size_t n = (size_t)columns, m = c->length / n, k = a->length / m;
  product_adjoints(m, k, n, a->value, b->value, c->adjoint, adjoint_of(a),
                   adjoint_of(b));
}

/* A row with the values of one that an adjoint needs as it is. */
Row *own_row(const Row *r) {
  Row *own = new_row(r->length);
  memcpy(own->value, r->value, r->length * sizeof(double));
  return own;
}

/* The adjoints of a row of whose values another has been made. */
void row_back(const Row *own, Row *r) {
  if (!own->adjoint) return;
  double *to = adjoint_of(r);
  for (uint32_t i = 0; i < r->length; i++) to[i] += own->adjoint[i];
}

#endif
