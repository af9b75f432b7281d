/* In a program of which some parts are compiled later: the way to them. */

#ifndef VLAD_LATER_H
#define VLAD_LATER_H

#include "there.h"

#define MEMBER(type, name, parameters, arguments) name,
static const There here = {&G, &X, passed, closure, fail, USED_LATER(MEMBER)};
#undef MEMBER

static const Part *later;

static Part later_part(uint32_t at) {
  if (!later) later = (const Part *)G.host_later(&here);
  if (!later) fail(FROM_HOST, "", -1, NOTHING, NOTHING);
  return later[at];
}

#define PART(at) (parts[at] ? parts[at] : later_part(at))

#endif
