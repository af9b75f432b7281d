/* A run of boxed code: what is to be done next is done here, or by the part that has it. */

#ifndef VLAD_RUN_PARTS_H
#define VLAD_RUN_PARTS_H

#include "parts.h"

struct Exchange X;

int run_slice(Val frame, int64_t fuel) {
  Val *hp = G.hp;
  Val k = frame, ret = NOTHING, s0 = NOTHING, s1 = NOTHING, s2 = NOTHING;
  int64_t need;
  int32_t site;
  enum Operator op;
  int next;
  uint32_t at;
RESUME:
  switch (code_of(object(k))) {
  case HALT:
    G.hp = hp;
    G.fuel = fuel;
    G.result = ret;
    G.k = NOTHING;
    return 0;
  case RETURN:
    ret = object(k)->field[1];
    k = object(k)->field[0];
    goto RESUME;
  case APPLY:
    s1 = object(k)->field[1];
    s0 = object(k)->field[2];
    k = object(k)->field[0];
    goto ENTER;
  default:
    next = TO_RESUME;
    at = part_of_code[code_of(object(k))];
  }
GO:
  TO_PART(parts[at])
  switch (next) {
  case TO_RESUME: goto RESUME;
  case TO_ENTER: goto ENTER;
  case TO_OPERATE: goto OPERATE;
  case TO_PAUSE_RETURN: goto PAUSE_RETURN;
  case TO_PAUSE: goto PAUSE;
  default:
    at = part_of_function[next - TO_FUNCTION];
    goto GO;
  }
ENTER:
  if (UNLIKELY(tag_of(s0) != TAG_CLOSURE)) {
    G.k = k;
    fail(NOT_FUNCTION, "", G.site, s0, NOTHING);
  }
  next = TO_ENTER;
  at = part_of_function[code_of(object(s0))];
  goto GO;
OPERATE:
  G.hp = hp;
  ret = apply_operator(op, s0, s1, s2, &k, site);
  hp = G.hp;
  goto RESUME;
PAUSE_RETURN: {
    G.hp = hp;
    Object *o = small_object(RETURN, 2);
    o->field[0] = k;
    o->field[1] = ret;
    k = tagged(TAG_FRAME, o);
    hp = G.hp;
  }
PAUSE:
  G.hp = hp;
  G.k = k;
  if (fuel < need) {
    G.fuel = fuel;
    return 1;
  }
  collect();
  k = G.k;
  hp = G.hp;
  goto RESUME;
}

#endif
