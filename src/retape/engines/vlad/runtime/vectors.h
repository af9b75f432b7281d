/* The builtins of vectors, an extension of the paper's language. */

#ifndef VLAD_VECTORS_H
#define VLAD_VECTORS_H

#include "numbers.h"

/* The handle of a vector, current, or a fault. */
static Object *vector_of(Val v, const char *op, int32_t site) {
  if (tag_of(v) != TAG_VECTOR) fail(NOT_VECTOR, op, site, v, NOTHING);
  Object *h = object(v);
  refresh(h);
  return h;
}

/* A whole number from 0 to below `bound`, or -1. */
static double whole_below(Val i, double bound, const char *op, int32_t site) {
  double d = is_real(i) ? strip(i, op, site) : -1.0;
  return d >= 0.0 && d < bound && floor(d) == d ? d : -1.0;
}

static uint32_t index_of(const Object *array, Val i, const char *op, int32_t site) {
  double d = whole_below(i, length_of(array), op, site);
  if (d < 0.0) fail(BAD_INDEX, op, site, i, box(length_of(array)));
  return (uint32_t)d;
}

Val make_vector(Val n, Val x, int32_t site) {
  double d = whole_below(n, MAX_LENGTH + 1.0, "make-vector", site);
  if (d < 0.0) fail(BAD_LENGTH, "make-vector", site, n, NOTHING);
  uint32_t length = (uint32_t)d;
  Object *a = new_array(length);
  for (uint32_t i = 0; i < length; i++) a->field[ARRAY_HEAD + i] = x;
  return version(small_object(0, VECTOR_WORDS), a);
}

Val vector_length(Val v, int32_t site) {
  return box(length_of(array_of(vector_of(v, "vector-length", site))));
}

__attribute__((noinline)) Val vector_ref(Val v, Val i, int32_t site) {
  const Object *a = array_of(vector_of(v, "vector-ref", site));
  return a->field[ARRAY_HEAD + index_of(a, i, "vector-ref", site)];
}

Val vector_set(Val v, Val i, Val x, int32_t site) {
  Object *a = array_of(vector_of(v, "vector-set", site));
  uint32_t index = index_of(a, i, "vector-set", site);
  Log *log = log_of(a);
  if (UNLIKELY(log->count >= (size_t)length_of(a) + LOG_SLACK)) {
    a = copy_array(a, length_of(a));
    log = log_of(a);
  }
  write_log(log, index, a->field[ARRAY_HEAD + index]);
  set_element(a, index, x);
  a->field[ARRAY_VERSION] = box(unbox(a->field[ARRAY_VERSION]) + 1.0);
  return version(small_object(0, VECTOR_WORDS), a);
}

#endif
