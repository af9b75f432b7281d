/* The three derivatives: (2i), (2j), and the stages of Fig. 18.

   A derivative runs the compiled code again, one C call deeper. What it needs
   afterwards stands on the shadow stack, where collections find and move it. */

#ifndef VLAD_DERIVATIVES_H
#define VLAD_DERIVATIVES_H

#include "signals.h"
#include "waypoints.h"
#include "image.h"

#define NO_LIMIT (INT64_MAX / 2)

#ifndef RUN_SLICE
#define RUN_SLICE ((int64_t)1000000)
#endif

int64_t end_slice(int64_t fuel) {
  G.saved += fuel;
  G.pauses = 1;
  G.work = 0;
  return 0;
}

/* The steps that a slice has left, and those that it saved; whether it had to pause. */
static int64_t left_of_slice(int64_t fuel, int *pauses) {
  fuel += G.saved;
  *pauses = G.pauses;
  G.saved = G.pauses = 0;
  return fuel;
}

/* Of a run whose states are looked at, the first slices are shorter: each is twice as
   long as the one before it. */
#define FIRST_SLICE ((int64_t)64)

/* Count what a slice took, and with `at_end` the last steps, of which there are few. At
   least so many are looked at together, so that an array that is made once is not taken
   for what each step makes. */
static void count_slice(Counted *all, Counted *window, size_t tape, size_t made,
                        int64_t steps, int64_t least, int at_end) {
  all->tape += tape, all->made += made, all->steps += steps;
  window->tape += tape, window->made += made, window->steps += steps;
  if (window->steps < least && !at_end) return;
  int64_t count = window->steps < least ? least : window->steps;
  if (count > all->steps) count = all->steps;
  double share = (double)(window->tape + window->made) / (double)(count ? count : 1);
  if (share > all->dearest) all->dearest = share;
  *window = (Counted){0};
}

static void count_state(Counted *all, size_t bytes) {
  if (bytes > all->state) all->state = bytes;
}

/* The same; signals are let in on the way. */
static int run(Val frame, int64_t fuel) {
  int64_t outer_saved = G.saved;
  int outer_pauses = G.pauses, pauses;
  Counted *counts = G.counts, window = {0};
  G.saved = G.pauses = 0;
  G.counts = NULL; /* it is of this run, and of none within it */
  for (int64_t slice = counts ? FIRST_SLICE : RUN_SLICE;;) {
    if (slice > fuel) slice = fuel;
    uint64_t made = G.made;
    int stopped = run_slice(frame, slice);
    int64_t left = left_of_slice(G.fuel, &pauses), used = slice - left;
    fuel -= used;
    int ends = !stopped || (fuel <= left && !pauses);
    if (counts) {
      count_slice(counts, &window, 0, (size_t)(G.made - made) * sizeof(Node), used,
                  COUNTED_SLICE, ends);
      if (G.most_mapped && stopped) count_state(counts, image_bytes(G.k));
      check_budget();
    }
    if (ends) {
      G.fuel = fuel;
      G.saved = outer_saved;
      G.pauses = outer_pauses;
      return stopped;
    }
    if (!used || (counts && slice < RUN_SLICE)) slice *= 2; /* a block takes more */
    let_signals_in();
    frame = G.k;
  }
}

/* As `boxed_stage`, by generated reverse code, if rows take no more than `most`. The last
   stage is LONGER if it does not end within its steps. */
enum { REFUSED, LONGER, DONE };
static int typed_stage(Val first, int64_t fuel, Val cotangents, int last, size_t most,
                       Val *value, Val *result);

/* The value of a function that is applied; 0 if `run` has to find it. */
static int typed_value(Val first, Val *value);

/* The same of a run that is to be reversed: what it takes is counted, and states are left
   on its way. The steps are in G.fuel. */
static int typed_count(Val first, Val *value, Counted *counted);

/* Free the memory of typed stages. */
static void typed_end(void);

static int shadow(Val v) {
  if (UNLIKELY(G.shadows == SHADOWS)) fail(TOO_DEEP, "checkpoint-*j", -1, NOTHING, NOTHING);
  G.shadow[G.shadows] = v;
  return G.shadows++;
}

/* The state before a function has been entered; the argument comes first, so that its
   reals are the first of the state. */
static Val application(Val function, Val argument) {
  Object *o = old_object(APPLY, 3);
  o->field[0] = tagged(TAG_FRAME, &halt_frame);
  o->field[1] = argument;
  o->field[2] = function;
  return tagged(TAG_FRAME, o);
}

static void enter_level(const char *op, int32_t site) {
  if (G.level == MAX_LEVEL) fail(TOO_DEEP, op, site, NOTHING, NOTHING);
  if (G.level == 0) G.outermost = op;
  G.level++;
  open_tape(G.level);
}

static void leave_level(void) {
  close_tape(G.level);
  G.level--;
}

/* (2i). */
static Val forward(Val f, Val x, Val t, int32_t site) {
  conforming_leaves("j*", site, x, t, &leaves_b);
  tree_leaves(x, &leaves_a);
  enter_level("j*", site);
  for (size_t i = 0; i < leaves_a.count; i++) {
    Object *o = old_object((uint32_t)G.level, 2);
    o->field[0] = leaves_a.at[i];
    o->field[1] = leaves_b.at[i];
    leaves_a.at[i] = tagged(TAG_DUAL, o);
  }
  run(application(f, tree_with(x, leaves_a.at)), NO_LIMIT);
  Val y = G.result;
  tree_leaves(y, &leaves_a);
  leaves_b.count = 0;
  for (size_t i = 0; i < leaves_a.count; i++) {
    Val v = leaves_a.at[i];
    int mine = tag_of(v) == TAG_DUAL && (int)code_of(object(v)) == G.level;
    push(&leaves_b, mine ? object(v)->field[1] : box(0.0));
    if (mine) leaves_a.at[i] = object(v)->field[0];
  }
  Val primal = tree_with(y, leaves_a.at);
  Val tangent = tree_with(y, leaves_b.at);
  leave_level();
  return make_pair(primal, tangent);
}

/* Propagate the adjoints of the results of an operator, which follow a number. */
static void propagate_call(uint32_t i);

/* Propagate adjoints from the last number to the first; one that is zero is not. */
static void sweep(void) {
  Tape *t = &G.tape[G.level];
  for (uint32_t i = t->length; i-- > 0;) {
    const Node *n = node_of(t, i);
    Val adjoint = n->adjoint;
    if (is_double(adjoint) && unbox(adjoint) == 0.0) continue;
    if (UNLIKELY(n->left == CALL_NODE)) {
      propagate_call(i);
      continue;
    }
    if (n->left != NO_NODE) add_adjoint(t, n->left, real_mul(n->by_left, adjoint));
    if (n->right != NO_NODE) add_adjoint(t, n->right, real_mul(n->by_right, adjoint));
  }
}

/* Add a value's cotangent to its adjoints; the value without the tape. */
static Val seed_value(const char *op, Val y, Val cotangent, int32_t site) {
  conforming_leaves(op, site, y, cotangent, &leaves_b);
  tree_leaves(y, &leaves_a);
  for (size_t i = 0; i < leaves_a.count; i++) {
    Val v = leaves_a.at[i];
    if (tag_of(v) != TAG_TAPED || taped_level(v) != G.level) continue;
    Tape *t = &G.tape[G.level];
    add_adjoint(t, (uint32_t)v, leaves_b.at[i]);
    leaves_a.at[i] = node_of(t, (uint32_t)v)->value;
  }
  return tree_with(y, leaves_a.at);
}

/* (2j). */
static Val reverse(Val f, Val x, Val cotangent, int32_t site) {
  int at_x = shadow(x), at_cotangent = shadow(cotangent);
  tree_leaves(x, &leaves_a);
  int at_start = shadow(application(f, tree_with(x, leaves_a.at)));
  Val value, found;
  if (typed_stage(G.shadow[at_start], NO_LIMIT, cotangent, 1, 0, &value, &found) == DONE)
    return make_pair(value, tree_with(G.shadow[at_x], object(found)->field));
  x = G.shadow[at_x];
  f = object(G.shadow[at_start])->field[2];
  tree_leaves(x, &leaves_a);
  enter_level("*j", site);
  size_t inputs = leaves_a.count;
  for (size_t i = 0; i < inputs; i++)
    leaves_a.at[i] = taped(G.level, new_node(G.level, leaves_a.at[i], NO_NODE, box(0.0),
                                             NO_NODE, box(0.0)));
  run(application(f, tree_with(x, leaves_a.at)), NO_LIMIT);
  count_tapes();
  int at_value = shadow(seed_value("*j", G.result, G.shadow[at_cotangent], site));
  sweep(); /* in which code may run, and collect */
  leaves_a.count = 0;
  for (size_t i = 0; i < inputs; i++)
    push(&leaves_a, node_of(&G.tape[G.level], (uint32_t)i)->adjoint);
  Val result = make_pair(G.shadow[at_value], tree_with(G.shadow[at_x], leaves_a.at));
  leave_level();
  return result;
}

/* Tape a stage from a state, and sweep it back. `cotangents` is a vector for the reals
   of the state at its end, or, for the last stage, the cotangent of the value; the
   value is then left in *value. Returns the vector for the reals of the state. */
static Val boxed_stage(Val frame, int64_t fuel, Val cotangents, int last, Val *value,
                       const char *op, int32_t site) {
  size_t reals, end;
  int at = shadow(cotangents);
  open_tape(G.level);
  G.result = NOTHING;
  Val copy = graph_walk(frame, G.level, 0, NULL, &reals);
  int stopped = run(copy, fuel);
  count_tapes();
  int at_value = shadow(NOTHING);
  if (last) {
    G.shadow[at_value] = seed_value(op, G.result, G.shadow[at], site);
  } else {
    const Object *given = object(G.shadow[at]);
    graph_walk(G.k, 0, G.level, given->field, &end);
    if (!stopped || end != size_of(given))
      fail(NO_FAULT, op, site, NOTHING, NOTHING);
  }
  sweep();
  if (last) *value = G.shadow[at_value];
  Object *o = old_object(0, (uint32_t)reals);
  for (size_t i = 0; i < reals; i++)
    o->field[i] = node_of(&G.tape[G.level], (uint32_t)i)->adjoint;
  close_tape(G.level);
  G.shadows = at;
  return tagged(TAG_FRAME, o);
}

typedef struct Marks {
  size_t input_at, writes;
} Marks;

static Marks marks(void) { return (Marks){G.input_at, G.writes}; }
static void rewind_to(Marks m) {
  G.input_at = m.input_at;
  G.writes = m.writes;
}

/* The pair of the value and the cotangent of the argument of a first state; or, with
   `whole`, a vector of those of all its reals. */
static Val swept(Val value, Val start, Val cotangents, int whole) {
  if (whole) return make_pair(value, cotangents);
  return make_pair(value, tree_with(object(start)->field[1], object(cotangents)->field));
}

/* What a run may take beside its budget: the runtime takes memory for its tapes and its
   heap by the piece, and collects where there are 0.5 MB more than there were. */
#define GRAIN ((size_t)1024 * 1024)

static void end_planned(void) {
  if (--G.planned) return;
  forget_waypoints();
  G.most_mapped = 0;
}

/* Find a run's value and its steps, and count what it takes; by boxed code if typed code
   gives up. */
static int64_t counted_run(int at_start, int *is_boxed, Val *done, Counted *counted) {
  size_t peak = G.peak_old, base = G.old_words;
  G.peak_old = base;
  if (*is_boxed || !typed_count(G.shadow[at_start], done, counted)) {
    *is_boxed = 1;
    *counted = (Counted){0};
    G.counts = counted;
    run(G.shadow[at_start], NO_LIMIT);
    *done = G.result;
  }
  counted->grown += G.peak_old - base;
  if (peak > G.peak_old) G.peak_old = peak;
  if (G.most_mapped) count_state(counted, image_bytes(G.shadow[at_start]));
  return NO_LIMIT - G.fuel;
}

/* What the host makes of a run, by many stages; NOTHING if typed code gave up in one. */
static Val reversed_by_host(int at_start, int at_cotangent, Val done, int64_t steps,
                            int whole, int is_boxed, const char *op, int32_t site) {
  int32_t was_site = G.site;
  int was_whole = G.whole, was_boxed = G.is_boxed;
  const char *was_swept_by = G.swept_by;
  G.site = site;
  G.whole = whole;
  G.is_boxed = is_boxed;
  G.swept_by = op;
  int64_t end = new_handle(done);
  int64_t first = new_handle(G.shadow[at_start]);
  int64_t seed = new_handle(G.shadow[at_cotangent]);
  int64_t h = G.host_checkpoint(first, seed, end, steps);
  free_handle(end);
  free_handle(first);
  free_handle(seed);
  G.whole = was_whole;
  G.is_boxed = was_boxed;
  G.swept_by = was_swept_by;
  if (h == -1) fail(FROM_HOST, op, site, NOTHING, NOTHING);
  G.site = was_site;
  if (h < 0) return NOTHING;
  Val result = G.handle[h];
  free_handle(h);
  return result;
}

/* Fig. 18, from an application. Of more than an argument's cotangent typed code knows
   nothing. */
static Val checkpoint_from(Val start, Val cotangent, int whole, const char *op,
                           int32_t site) {
  enter_level(op, site);
  int deepest = G.deepest, is_boxed = whole;
  G.deepest = ++G.planned;
  size_t limit = G.mapped + G.budget + GRAIN, room = G.budget;
  if (G.planned == 1 && G.budget) G.most_mapped = SIZE_MAX; /* until the steps are counted */
  if (limit > G.most_mapped) {
    size_t over = limit - G.most_mapped; /* others hold it, pieces that were new too */
    over -= over < GRAIN ? over : GRAIN;
    room = over < room ? room - over : 0;
  }
  int at_start = shadow(start);
  int at_cotangent = shadow(cotangent);
  Val value, found, result = NOTHING;
  if (!is_boxed) {
    int how = typed_stage(start, G.typed_stage, cotangent, 1, STAGE_BYTES, &value, &found);
    if (how == DONE) result = swept(value, G.shadow[at_start], found, 0);
    is_boxed = how == REFUSED;
  }
  Marks before = marks(), after = before;
  for (; result == NOTHING; is_boxed = 1) {
    Val done;
    Counted counted = {0};
    uint64_t made = G.made;
    G.deepest = G.planned;
    if (G.planned == 1 && G.budget) G.most_mapped = SIZE_MAX;
    rewind_to(before);
    int64_t steps = counted_run(at_start, &is_boxed, &done, &counted);
    G.counted = counted;
    G.room = room;
    if (G.planned == 1 && G.budget) G.most_mapped = limit;
    G.holds_others = G.deepest > G.planned;
    if (deepest > G.deepest) G.deepest = deepest;
    after = marks();
    rewind_to(before);
    if (steps > G.single_stage || G.made - made >= STAGE_ELEMENTS) {
      result = reversed_by_host(at_start, at_cotangent, done, steps, whole, is_boxed, op, site);
      continue;
    }
    if (is_boxed || typed_stage(G.shadow[at_start], NO_LIMIT, G.shadow[at_cotangent], 1, 0,
                                &value, &found) != DONE)
      found = boxed_stage(G.shadow[at_start], NO_LIMIT, G.shadow[at_cotangent], 1, &value, op,
                          site);
    result = swept(value, G.shadow[at_start], found, whole);
  }
  if (deepest > G.deepest) G.deepest = deepest;
  rewind_to(after);
  end_planned();
  leave_level();
  return result;
}

/* A derivative; inside of a reverse mode, one operation of its tape if that is not to
   grow with it. */
static Val differentiated(enum Operator op, Val f, Val x, Val t, int32_t site);

/* An operator met by compiled code; its continuation comes back in *k, moved. */
Val apply_operator(enum Operator op, Val f, Val x, Val t, Val *k, int32_t site) {
  int shadows = G.shadows;
  int at_k = shadow(*k);
  G.k = *k;
  Val result = differentiated(op, f, x, t, site);
  *k = G.shadow[at_k];
  G.shadows = shadows;
  return result;
}

#endif
