/* Values: one 64-bit word each, a double or a tagged pointer in the space of NaNs.

   A double stands for itself, so that no real is ever allocated. The words above the
   one NaN that arithmetic produces carry a tag in their upper 16 bits. The test whether
   both operands are doubles is needed for type safety anyway; numbers with derivatives
   fail it and take the slow road. A program that takes no derivative therefore pays
   nothing for those that do. */

#ifndef VLAD_VALUE_H
#define VLAD_VALUE_H

#include "library.h"

typedef uint64_t Val;

#define FIRST_TAGGED 0xFFF9000000000000ull
#define TAG_ATOM 0xFFF9ull  /* (), #t, #f */
#define TAG_PAIR 0xFFFAull
#define TAG_CLOSURE 0xFFFBull
#define TAG_TAPED 0xFFFCull /* level << 32 | index: no pointer at all */
#define TAG_DUAL 0xFFFDull
#define TAG_FRAME 0xFFFEull /* and what only the runtime sees: arrays, cotangents */
#define TAG_VECTOR 0xFFFFull

#define EMPTY ((TAG_ATOM << 48) | 0)
#define FALSE ((TAG_ATOM << 48) | 1)
#define TRUE ((TAG_ATOM << 48) | 2)
#define NOTHING ((TAG_ATOM << 48) | 3)

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Every object: a header, then fields that are all values. */
typedef struct Object {
  uint64_t header; /* code << 32 | number of fields */
  Val field[];
} Object;

#define IS_STATIC (1ull << 63)
#define HEADER(code, size) (((uint64_t)(code) << 32) | (uint64_t)(size))

static inline uint32_t size_of(const Object *o) { return (uint32_t)o->header; }
static inline uint32_t code_of(const Object *o) {
  return (uint32_t)(o->header >> 32) & 0x3FFFFFFFu;
}

static inline int is_double(Val v) { return v < FIRST_TAGGED; }
static inline uint64_t tag_of(Val v) { return v >> 48; }
static inline Object *object(Val v) {
  return (Object *)(uintptr_t)(v & 0x0000FFFFFFFFFFFFull);
}
static inline Val tagged(uint64_t tag, const void *p) {
  return (tag << 48) | (uint64_t)(uintptr_t)p;
}
static inline int is_pointer(Val v) {
  return v >= (TAG_PAIR << 48) && tag_of(v) != TAG_TAPED;
}
static inline Val box(double d) {
  Val v;
  memcpy(&v, &d, sizeof v);
  return v;
}
static inline double unbox(Val v) {
  double d;
  memcpy(&d, &v, sizeof d);
  return d;
}
static inline Val boolean(int b) { return b ? TRUE : FALSE; }

static inline int is_real(Val v) {
  return is_double(v) || tag_of(v) == TAG_TAPED || tag_of(v) == TAG_DUAL;
}

#endif
