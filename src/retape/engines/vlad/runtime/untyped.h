/* A program without typed functions. */

#ifndef VLAD_UNTYPED_H
#define VLAD_UNTYPED_H

#include "typed.h"

const int is_typed = 0;
const char *const typed_frames[1], *const typed_results[1], *const typed_entries[1];
const char *const typed_values[1];

int typed_record(int64_t fuel) {
  (void)fuel;
  return GAVE_UP;
}

void typed_reverse(void) {}

#endif
