/* What the bodies of compiled functions are made of. `hp`, `fuel`, `k` and `ret` are
   local to `run`; they are written back before the runtime is called. */

#ifndef VLAD_CODE_H
#define VLAD_CODE_H

#include "program.h"

/* Operators with a rule: their values on doubles are given. */
#define LIFTED_2(to, value, name, a, b, site)                     \
  if (LIKELY(is_double(a) & is_double(b))) {                      \
    to = box(value);                                              \
  } else {                                                        \
    G.hp = hp, G.k = k;                                           \
    to = slow_##name(a, b, site);                                 \
    hp = G.hp;                                                    \
  }

#define LIFTED_1(to, value, name, a, site)                        \
  if (LIKELY(is_double(a))) {                                     \
    to = box(value);                                              \
  } else {                                                        \
    G.hp = hp, G.k = k;                                           \
    to = slow_##name(a, site);                                    \
    hp = G.hp;                                                    \
  }

/* The negative of a real, or the difference of the parts of a pair. */
#define NEGATE(to, a, site)                                       \
  if (LIKELY(is_double(a))) {                                     \
    to = box(-unbox(a));                                          \
  } else if (tag_of(a) == TAG_PAIR) {                             \
    Val left = object(a)->field[0], right = object(a)->field[1];  \
    LIFTED_2(to, unbox(left) - unbox(right), sub, left, right, site)                         \
  } else {                                                        \
    G.hp = hp, G.k = k;                                           \
    to = slow_negative(a, site);                                  \
    hp = G.hp;                                                    \
  }

/* A real below its derivatives; sees through them for tests and what has none. */
#define PRIMAL(a, text, site) \
  (LIKELY(is_double(a)) ? unbox(a) : (G.k = k, strip(a, text, site)))

/* A function whose boxed form is in another object: see `Compiled.brief`. */
#define GIVEN_UP fail(GAVE_UP_TYPED, "", -1, NOTHING, NOTHING);

#define UNCONS(a, site, whole)                                    \
  if (UNLIKELY(tag_of(a) != TAG_PAIR)) {                          \
    G.k = k;                                                      \
    fail(NO_MATCH, "", site, a, boolean(whole));                  \
  }

#define MATCH(a, constant, site, whole)                           \
  if (UNLIKELY((is_double(constant) || (a) != (constant)) &&       \
               !is_constant(constant, a))) {                      \
    G.k = k;                                                      \
    fail(NO_MATCH, "", site, a, boolean(whole));                  \
  }

/* An element of the current version of an array, at a place that it has. */
#define VECTOR_REF(to, v, i, site)                                \
  {                                                               \
    double at = is_double(i) ? unbox(i) : -1.0;                   \
    const Object *h = tag_of(v) == TAG_VECTOR ? object(v) : NULL; \
    if (LIKELY(h && is_current(h) && at >= 0.0 &&                 \
               at < length_of(array_of(h)) &&                     \
               (double)(uint32_t)at == at)) {                     \
      to = array_of(h)->field[ARRAY_HEAD + (uint32_t)at];         \
    } else {                                                      \
      RUNTIME(to, vector_ref(v, i, site))                         \
    }                                                             \
  }

#define RUNTIME(to, call)                                         \
  G.hp = hp, G.k = k;                                             \
  to = call;                                                      \
  hp = G.hp;

#define ALLOCATE(object_, code, size)                             \
  Object *object_ = (Object *)(void *)hp;                         \
  hp += (size) + 1;                                               \
  object_->header = HEADER(code, size);

#endif
