/* The parts of typed code: each does what it has, and says what is to be done next. */

#ifndef VLAD_TYPED_RECORD_H
#define VLAD_TYPED_RECORD_H

#include "typed_parts.h"

/* The part that a frame on the stack leads into. */
static int record_part_of(uint64_t code) {
  if (code & ENTER_BY) return record_part_of_entry[code & ~ENTER_BY];
  return record_part_of_code[code & ~RETURN_TO];
}

int typed_record(int64_t fuel) {
  int next = DO_POP, part;
  T.fuel = fuel;
  T.gives = 0;
  for (;;) {
    switch (next) {
      case DO_STOP: return STOPPED;
      case DO_END: return ENDED;
      case DO_GIVE_UP: return GAVE_UP;
      case DO_POP: part = record_part_of(T.at[-1].u); break;
      default: part = record_part_of_function[next - DO_CALL];
    }
    next = record_parts[part](next);
  }
}

#endif
