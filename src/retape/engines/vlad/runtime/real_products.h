/* Products of vectors of any reals: one operation of a tape, whatever their size.

   `values/_products.py` does the same, and says why it is right. On the tape stands a
   number that only marks the place, with the record of the product, and after it a
   number for each item. */

#ifndef VLAD_REAL_PRODUCTS_H
#define VLAD_REAL_PRODUCTS_H

#include "products.h"
#include "vectors.h"

typedef struct Sizes {
  size_t rows, inner, columns;
} Sizes;

enum { PRODUCT_ROWS, PRODUCT_INNER, PRODUCT_COLUMNS, PRODUCT_LEFT, PRODUCT_RIGHT,
       PRODUCT_WORDS };

/* The code of such a record, which is no call of a derivative. */
enum { OF_PRODUCT = 1 };

static Val *elements(Object *array) { return array->field + ARRAY_HEAD; }

/* The words of doubles are those of values. */
static Item *doubles(Object *array) { return (Item *)(void *)elements(array); }

static Object *array_in(Val vector) {
  refresh(object(vector));
  return array_of(object(vector));
}

static Val vector_with(Object *array) {
  return version(old_object(0, VECTOR_WORDS), array);
}

/* Eight sums in pairs. */
static Val real_pairs(const Val *s) {
  Val a = real_add(s[0], s[4]), b = real_add(s[1], s[5]);
  Val c = real_add(s[2], s[6]), d = real_add(s[3], s[7]);
  return real_add(real_add(a, c), real_add(b, d));
}

/* Item by item: where some elements of a factor carry a derivative and some do not. */
static Object *product_by_items(Sizes s, const Val *a, const Val *b) {
  Object *result = new_array((uint32_t)(s.rows * s.columns));
  for (size_t i = 0; i < s.rows; i++)
    for (size_t j = 0; j < s.columns; j++) {
      Val sum[8];
      for (int l = 0; l < 8; l++) sum[l] = box(0.0);
      for (size_t k = 0; k < s.inner; k++) {
        Val *to = &sum[s.columns == 1 ? k % 8 : 0];
        *to = real_add(*to, real_mul(a[i * s.inner + k], b[k * s.columns + j]));
      }
      elements(result)[i * s.columns + j] = s.columns == 1 ? real_pairs(sum) : sum[0];
    }
  return result;
}

/* The highest level of an array's elements, if it is more; whether it is of a tape. */
static void highest(Object *array, int *level, int *is_tape) {
  for (uint32_t i = 0; i < length_of(array); i++) {
    Val v = elements(array)[i];
    if (is_double(v)) continue;
    int own = level_of(v, "", -1);
    if (own <= *level) continue;
    *level = own;
    *is_tape = tag_of(v) == TAG_TAPED;
  }
}

/* Whether all elements are of a level, or none: 1 or 0, and -1 if some are. */
static int carries(Object *array, int level) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < length_of(array); i++) {
    Val v = elements(array)[i];
    found += !is_double(v) && level_of(v, "", -1) == level;
  }
  return !found ? 0 : found == length_of(array) ? 1 : -1;
}

/* A vector's elements without their level, or with their tangents only. */
static Val primals(Val vector) {
  Object *from = array_in(vector), *to = new_array(length_of(from));
  for (uint32_t i = 0; i < length_of(from); i++)
    elements(to)[i] = primal_of(elements(from)[i]);
  return vector_with(to);
}

static Val tangents(Val vector) {
  Object *from = array_in(vector), *to = new_array(length_of(from));
  for (uint32_t i = 0; i < length_of(from); i++)
    elements(to)[i] = object(elements(from)[i])->field[1];
  return vector_with(to);
}

static void product_on_tape(int level, Sizes s, Object *values, Val a, Val b) {
  Object *call = old_object(OF_PRODUCT, PRODUCT_WORDS);
  call->field[PRODUCT_ROWS] = box((double)s.rows);
  call->field[PRODUCT_INNER] = box((double)s.inner);
  call->field[PRODUCT_COLUMNS] = box((double)s.columns);
  call->field[PRODUCT_LEFT] = a;
  call->field[PRODUCT_RIGHT] = b;
  uint32_t at =
      new_node(level, box(0.0), CALL_NODE, tagged(TAG_FRAME, call), NO_NODE, box(0.0));
  node_of(&G.tape[level], at)->adjoint = box(1.0); /* so that the sweep stops there */
  Val *value = elements(values);
  for (uint32_t i = 0; i < length_of(values); i++)
    value[i] = taped(level, new_node(level, value[i], NO_NODE, box(0.0), NO_NODE, box(0.0)));
}

/* The array of a product of vectors of reals, which have the sizes. */
static Object *real_product(Sizes s, Val a, Val b) {
  int level = 0, is_tape = 0;
  Object *x = array_in(a), *y = array_in(b);
  highest(x, &level, &is_tape);
  highest(y, &level, &is_tape);
  if (!level) {
    Object *result = new_array((uint32_t)(s.rows * s.columns));
    G.work += (int64_t)(s.rows * s.columns * s.inner);
    product(s.rows, s.inner, s.columns, doubles(x), doubles(y), doubles(result));
    return result;
  }
  int of_a = carries(x, level), of_b = carries(y, level);
  if (of_a < 0 || of_b < 0) {
    G.work += (int64_t)(s.rows * s.columns * s.inner) * WORK_OF_REAL;
    return product_by_items(s, elements(x), elements(y));
  }
  Val p = of_a ? primals(a) : a, q = of_b ? primals(b) : b;
  Object *values = real_product(s, p, q);
  if (is_tape) {
    product_on_tape(level, s, values, a, b);
    return values;
  }
  Object *left = of_a ? real_product(s, tangents(a), q) : NULL;
  Object *right = of_b ? real_product(s, p, tangents(b)) : NULL;
  for (uint32_t i = 0; i < length_of(values); i++) {
    Val tangent = elements(left ? left : right)[i];
    if (left && right) tangent = real_add(tangent, elements(right)[i]);
    elements(values)[i] = make_dual(level, elements(values)[i], tangent);
  }
  return values;
}

static Val transposed(Val vector, size_t rows, size_t columns) {
  Object *from = array_in(vector), *to = new_array(length_of(from));
  for (size_t i = 0; i < rows; i++)
    for (size_t j = 0; j < columns; j++)
      elements(to)[j * rows + i] = elements(from)[i * columns + j];
  return vector_with(to);
}

/* The adjoints of factors, where some of g are zero, which are not propagated. */
static void adjoints_by_items(Sizes s, const Val *g, const Val *p, const Val *q,
                              Object *left, Object *right) {
  for (uint32_t i = 0; i < length_of(left); i++) elements(left)[i] = box(0.0);
  for (uint32_t i = 0; i < length_of(right); i++) elements(right)[i] = box(0.0);
  for (size_t at = 0; at < s.rows * s.columns; at++) {
    if (is_zero(g[at])) continue;
    size_t i = at / s.columns, j = at % s.columns;
    for (size_t k = 0; k < s.inner; k++) {
      Val *x = &elements(left)[i * s.inner + k], *y = &elements(right)[k * s.columns + j];
      *x = real_add(*x, real_mul(q[k * s.columns + j], g[at]));
      *y = real_add(*y, real_mul(p[i * s.inner + k], g[at]));
    }
  }
}

static void add_all(Object *factor, Object *adjoints) {
  for (uint32_t i = 0; i < length_of(factor); i++)
    add_adjoint(&G.tape[G.level], (uint32_t)elements(factor)[i], elements(adjoints)[i]);
}

/* Propagate the adjoints of a product's items, which follow a number. */
static void propagate_product(uint32_t at, const Object *call) {
  Sizes s = {(size_t)unbox(call->field[PRODUCT_ROWS]),
             (size_t)unbox(call->field[PRODUCT_INNER]),
             (size_t)unbox(call->field[PRODUCT_COLUMNS])};
  uint32_t items = (uint32_t)(s.rows * s.columns), zeros = 0;
  Object *g = new_array(items), *left, *right;
  for (uint32_t i = 0; i < items; i++) {
    elements(g)[i] = node_of(&G.tape[G.level], at + 1 + i)->adjoint;
    zeros += is_zero(elements(g)[i]);
  }
  if (zeros == items) return;
  Val a = call->field[PRODUCT_LEFT], b = call->field[PRODUCT_RIGHT];
  int of_a = carries(array_in(a), G.level), of_b = carries(array_in(b), G.level);
  Val p = of_a ? primals(a) : a, q = of_b ? primals(b) : b;
  if (zeros) {
    left = new_array((uint32_t)(s.rows * s.inner));
    right = new_array((uint32_t)(s.inner * s.columns));
    adjoints_by_items(s, elements(g), elements(array_in(p)), elements(array_in(q)), left,
                      right);
  } else {
    Val given = vector_with(g);
    left = real_product((Sizes){s.rows, s.columns, s.inner}, given,
                        transposed(q, s.inner, s.columns));
    right = real_product((Sizes){s.inner, s.rows, s.columns},
                         transposed(p, s.rows, s.inner), given);
  }
  if (of_a) add_all(array_in(a), left);
  if (of_b) add_all(array_in(b), right);
}

#endif
