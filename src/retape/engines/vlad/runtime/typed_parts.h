/* What goes between the C functions that typed code is made of. */

#ifndef VLAD_TYPED_PARTS_H
#define VLAD_TYPED_PARTS_H

#include "typed.h"

enum { DO_POP, DO_STOP, DO_END, DO_GIVE_UP, DO_CALL };

/* Of the program. */
extern int (*const record_parts[])(int);
extern const uint16_t record_part_of_code[], record_part_of_entry[],
    record_part_of_function[];

#define RECORD_PART_END                                           \
  STOP: __attribute__((unused)); next = DO_STOP; goto LEAVE;      \
  GIVE_UP: __attribute__((unused)); next = DO_GIVE_UP;            \
  LEAVE: T.at = sp, T.tape = tp, T.fuel = fuel;                   \
  return next;

#define REVERSE_BY_PARTS                                          \
  T.reversed = T.tape;                                            \
  T.adjoint_at = T.adjoint + (T.at - T.stack);                    \
  for (uint64_t next = TAPE_END; next != TAPE_BEGIN;)             \
    next = reverse_parts[reverse_part_of[next]](next);

#endif
