/* Functions of the runtime for parts that are compiled later: each is called there. */

#include "there.h"

There there;
extern const Part parts[];

/* Take the program's side, and give the parts. */
__attribute__((visibility("default"))) const void *vlad_apart(const There *program) {
  there = *program;
  return parts;
}

_Noreturn void fail(enum Fault fault, const char *op, int32_t site, Val value, Val other) {
  there.fail(fault, op, site, value, other);
  __builtin_unreachable();
}

#define FORWARDED(type, name, parameters, arguments) \
  type name parameters { return there.name arguments; }
USED_LATER(FORWARDED)
