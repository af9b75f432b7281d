/* What goes between the C functions that a program is made of.

   Each is called with what it is to do, and returns what is to be done next: something
   that all share, or what another one has. Everything else is in registers. */

#ifndef VLAD_PARTS_H
#define VLAD_PARTS_H

#include "code.h"

enum { TO_RESUME, TO_ENTER, TO_OPERATE, TO_PAUSE_RETURN, TO_PAUSE, TO_FUNCTION };

typedef int (*Part)(int);

/* Of the program: its parts, and those that frames and functions lead into. */
extern const Part parts[];
extern const uint16_t part_of_code[], part_of_function[];

extern struct Exchange {
  Val *hp;
  Val k, ret, s0, s1, s2;
  int64_t fuel, need;
  int32_t site;
  enum Operator op;
} X;

/* In a part: the variables that all parts have. */
#define PART_VARIABLES                                            \
  Val *hp = X.hp, *limit = G.limit;                               \
  Val k = X.k, ret = X.ret, s0 = X.s0, s1 = X.s1, s2 = NOTHING, unused; \
  int64_t fuel = X.fuel, need = 0;                                \
  int32_t site = 0;                                               \
  enum Operator op = FORWARD;                                     \
  (void)limit, (void)unused;

#define PART_END                                                  \
  OPERATE: __attribute__((unused)); next = TO_OPERATE; goto LEAVE; \
  PAUSE_RETURN: __attribute__((unused)); next = TO_PAUSE_RETURN; goto LEAVE; \
  PAUSE: __attribute__((unused)); next = TO_PAUSE;                \
  LEAVE: X.hp = hp, X.k = k, X.ret = ret, X.fuel = fuel, X.need = need; \
  X.s0 = s0, X.s1 = s1, X.s2 = s2, X.site = site, X.op = op;      \
  return next;

/* Around the parts. */
#define TO_PART(part)                                             \
  X.hp = hp, X.k = k, X.ret = ret, X.fuel = fuel, X.s0 = s0, X.s1 = s1; \
  next = (part)(next);                                            \
  hp = X.hp, k = X.k, ret = X.ret, fuel = X.fuel, need = X.need;  \
  s0 = X.s0, s1 = X.s1, s2 = X.s2, site = X.site, op = X.op;

#endif
