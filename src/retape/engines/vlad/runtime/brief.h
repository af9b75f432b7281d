/* Brief calls: of numbers, for a few steps.

   Python is held up meanwhile, so a call that does not end soon, or meets a fault, or
   makes a long vector, is left to the ordinary way, which begins anew. */

#ifndef VLAD_BRIEF_H
#define VLAD_BRIEF_H

#include "typed_advance.h"

/* The numbers of a value, from left to right: how many, or -1 where there is anything
   else in it, or too many. */
static int64_t brief_value(Val v, double *real, int64_t room) {
  int64_t count = 0;
  for (;; v = object(v)->field[1]) {
    if (tag_of(v) == TAG_PAIR) {
      int64_t more = brief_value(object(v)->field[0], real + count, room - count);
      if (more < 0) return -1;
      count += more;
      continue;
    }
    if (count == room || !(is_double(v) || v == TRUE || v == FALSE)) return -1;
    real[count++] = is_double(v) ? unbox(v) : v == TRUE;
    return count;
  }
}

/* By typed code, whose frame is laid without any object. -1 if it is no function of so
   many numbers that gives one, or does not end. */
static int64_t brief_typed(uint32_t code, double *real, int64_t count) {
  const double *next = real, *end = real + count;
  typed_begin();
  T.forgetful = 1;
  push_word((Word){.u = HALT});
  for (const char *type = type_of_code(ENTER_BY | code); *type; type++) {
    if (*type == 'p') {
      push_word((Word){.u = ++T.marks});
      continue;
    }
    if (next == end || *type == 'u' || *type == 'v' || *type == 'l') return -1;
    double d = *next++;
    if ((*type == 'w' || *type == 'W') && !is_whole(d)) return -1;
    push_word(*type == 'b' ? (Word){.u = d != 0.0} : (Word){.d = d == d ? d : NAN});
  }
  push_word((Word){.u = ENTER_BY | code});
  int ended = typed_record(G.brief) == ENDED && gave_real();
  G.saved = G.pauses = 0;
  T.forgetful = 0;
  if (ended) *real = T.at->d;
  typed_clear();
  return ended ? 1 : -1;
}

static Val brief_argument(double d, int is_boolean) {
  return is_boolean ? boolean(d != 0.0) : box(d == d ? d : NAN);
}

/* By the general way, which does what there is to do around typed stages. */
static int64_t brief_general(Val f, double *real, int64_t count, int64_t booleans,
                             int64_t room) {
  Val argument = brief_argument(real[count - 1], booleans >> (count - 1) & 1);
  for (int64_t i = count - 1; i-- > 0;)
    argument = make_pair(brief_argument(real[i], booleans >> i & 1), argument);
  int at = shadow(application(f, argument));
  int stopped = run(G.shadow[at], G.brief);
  G.shadows = at;
  return stopped ? -1 : brief_value(G.result, real, room);
}

/* The arguments are *real and the ones behind it; the value is put there. */
static int64_t brief_call(Val f, double *real, int64_t count, int64_t booleans,
                          int64_t room) {
  int is_static = (object(f)->header & IS_STATIC) != 0;
  if (is_typed && is_static && type_of_code(ENTER_BY | code_of(object(f))))
    return brief_typed(code_of(object(f)), real, count);
  int64_t made = brief_general(f, real, count, booleans, room);
  if (G.old_words + G.log_words > G.major_at) {
    G.k = G.result = NOTHING;
    collect();
  }
  return made;
}

#endif
