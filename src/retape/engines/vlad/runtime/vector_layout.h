/* Where the parts of vectors are: see `arrays.h`. */

#ifndef VLAD_VECTOR_LAYOUT_H
#define VLAD_VECTOR_LAYOUT_H

#include "value.h"

/* Fields of an array; the first is lost when it is moved, and told by its size too. */
enum { ARRAY_LENGTH, ARRAY_VERSION, ARRAY_LOG, ARRAY_HEAD };
enum { VECTOR_ARRAY, VECTOR_VERSION, VECTOR_WORDS };

#define MAX_LENGTH 100000000
static inline Object *array_of(const Object *h) { return object(h->field[VECTOR_ARRAY]); }
static inline uint32_t length_of(const Object *array) {
  return size_of(array) - ARRAY_HEAD;
}
static inline int is_current(const Object *h) {
  return h->field[VECTOR_VERSION] == array_of(h)->field[ARRAY_VERSION];
}

#endif
