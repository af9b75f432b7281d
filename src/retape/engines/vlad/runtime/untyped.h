/* A program without typed functions. */

#ifndef VLAD_UNTYPED_H
#define VLAD_UNTYPED_H

#include "typed_parts.h"

const int is_typed = 0;
const char *const typed_frames[1], *const typed_results[1], *const typed_entries[1];
const char *const typed_values[1];

int (*const record_parts[1])(int);
const uint16_t record_part_of_code[1], record_part_of_entry[1], record_part_of_function[1];

void typed_reverse(void) {}

#endif
