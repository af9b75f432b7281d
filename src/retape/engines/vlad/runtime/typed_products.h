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

void row_dot_back(double g, uint64_t a, uint64_t b) {
  if (g == 0.0) return;
  tiles()->add_multiple(row_length(a), g, values_of(b), adjoint_of(a));
  tiles()->add_multiple(row_length(a), g, values_of(a), adjoint_of(b));
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

void row_product_back(uint64_t c, double columns, uint64_t a, uint64_t b) {
  if (!row_is_used(c)) return;
  size_t n = (size_t)columns, m = row_length(c) / n, k = row_length(a) / m;
  product_adjoints(m, k, n, values_of(a), values_of(b), adjoint_of(c), adjoint_of(a),
                   adjoint_of(b));
}

/* A row with the values of one that an adjoint needs as it is. */
Row *own_row(Row *r) {
  if (T.forgetful) {
    count_made(r->length);
    r->is_kept = 0;
    return r;
  }
  Row *own = new_row(r->length);
  memcpy(own->value, r->value, r->length * sizeof(double));
  return own;
}

/* The adjoints of a row of whose values another has been made. */
void row_back(uint64_t own, uint64_t row) {
  if (!row_is_used(own)) return;
  const double *from = adjoint_of(own);
  double *to = adjoint_of(row);
  for (size_t i = 0; i < row_length(row); i++) to[i] += from[i];
}

#endif
