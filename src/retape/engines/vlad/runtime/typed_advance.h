/* Runs of typed code that are not to be reversed. */

#ifndef VLAD_TYPED_ADVANCE_H
#define VLAD_TYPED_ADVANCE_H

#include "typed_stage.h"

/* Begin one from a state; 0 if it is none of typed code. Arrays are then assigned in place,
   without logs. */
static int typed_starts(Val first) {
  if (!is_typed) return 0;
  typed_begin();
  T.forgetful = 1;
  return load_state(first);
}

static void typed_is_over(void) {
  typed_clear();
  T.forgetful = 0;
}

/* Run so many steps, as `run`: the new state, or the value at the end; the steps that are
   left in G.fuel. 0 if typed code gives up. */
static int typed_advance(Val first, int64_t fuel, Val *state, int *stopped) {
  int done = 0;
  if (typed_starts(first)) {
    int how = typed_run(fuel);
    *stopped = how == STOPPED;
    if (how == STOPPED) done = save_state(state);
    if (how == ENDED) done = unload_result(state);
    G.fuel = T.fuel;
  }
  typed_is_over();
  return done;
}

static int typed_value(Val first, Val *value) {
  int stopped;
  return typed_advance(first, NO_LIMIT, value, &stopped);
}

/* Leave the state that a run has come to on its way, if more are wanted. */
static int typed_waypoint(int64_t position) {
  Val state;
  if (state_bytes() > WAYPOINT_BYTES || !save_state(&state)) return 0;
  leave_waypoint(state, position);
  return 1;
}

/* Under a budget rows that are dead count, too: states are as large as those that live. */
static size_t typed_grown(void) {
  size_t rows = G.most_mapped ? T.peak_row_bytes : T.peak_live;
  return 2 * ((size_t)(T.top - T.stack) - FIRST_WORDS) + (rows + T.peak_cells) / sizeof(Word);
}

static int typed_count(Val first, Val *value, Counted *counted) {
  int64_t position = 0;
  /* Of runs within others, whose plan is the same, no states are left. */
  int leaves = G.waypoints && G.planned == 1 && G.typed_stage > 0, how = GAVE_UP;
  if (!is_typed) return 0;
  if (G.planned == 1) forget_waypoints();
  way.apart = G.typed_stage;
  if (typed_starts(first))
    do {
      int64_t steps = leaves ? way.apart : NO_LIMIT;
      how = typed_run(steps);
      position += steps - T.fuel;
      if (how == STOPPED) leaves = steps > T.fuel && typed_waypoint(position);
    } while (how == STOPPED);
  int done = how == ENDED && unload_result(value);
  *counted = T.counted;
  counted->grown = typed_grown();
  G.fuel = NO_LIMIT - position;
  typed_is_over();
  return done;
}

#endif
