/* States that the run which counts the steps leaves on its way.

   A plan's sweeps come by there again. By the default plan, whose memory is ours to
   choose, an advance begins at the last such state before its end. There are at most 32,
   twice as far apart whenever there would be more, and of altogether no more bytes than
   a stage's tape; states that are larger are not kept. */

#ifndef VLAD_WAYPOINTS_H
#define VLAD_WAYPOINTS_H

#include "trees.h"

#define WAYPOINTS 32
#define WAYPOINT_BYTES ((size_t)8 * 1024)

static struct {
  int64_t handle[WAYPOINTS], position[WAYPOINTS], apart;
  int count;
} way;

/* As `run`, by typed code; 0 if `run` has to do it. */
static int typed_advance(Val frame, int64_t fuel, Val *state, int *stopped);

/* Whether the state of an advance had too many items in its lists for its steps. */
static int typed_was_large(void);

/* A bound of the words by which the state of a run of typed code grew. */
static size_t typed_grown(void);

/* Add what an advance took. */
static void add_counted(Counted *sum);

static void forget_waypoints(void) {
  while (way.count) free_handle(way.handle[--way.count]);
}

/* Every second one; those that stay are twice as far apart. */
static void thin_waypoints(void) {
  int kept = 0;
  for (int i = 0; i < way.count; i++) {
    if (i % 2 == 0) {
      free_handle(way.handle[i]);
      continue;
    }
    way.handle[kept] = way.handle[i];
    way.position[kept++] = way.position[i];
  }
  way.count = kept;
  way.apart *= 2;
}

/* As `typed_advance` to the end; the words by which the state grew are in *grown, and
   what it took in *counted, also where `run` has to do the rest. Of
   runs within others, whose plan is the same, none are kept. */
static int typed_count(Val frame, Val *done, size_t *grown, Counted *counted) {
  const int64_t no_limit = INT64_MAX / 2;
  int64_t position = 0;
  int stopped = 1, keeps = G.waypoints && G.planned == 1 && G.typed_stage > 0;
  if (G.planned == 1) forget_waypoints();
  way.apart = G.typed_stage;
  *grown = 0;
  for (Val state = frame;; state = *done) {
    int64_t steps = keeps ? way.apart : no_limit;
    int is_done = typed_advance(state, steps, done, &stopped);
    add_counted(counted);
    if (!is_done) {
      if (G.planned == 1) forget_waypoints();
      if (!keeps || !typed_was_large()) return 0;
      keeps = 0;
      *done = state;
      continue;
    }
    if (typed_grown() > *grown) *grown = typed_grown();
    position += steps - G.fuel;
    if (!stopped) break;
    if (steps == G.fuel || graph_bytes(*done) > WAYPOINT_BYTES) {
      keeps = 0;
      continue;
    }
    if (way.count == WAYPOINTS) thin_waypoints();
    way.handle[way.count] = new_handle(*done);
    way.position[way.count++] = position;
  }
  G.fuel = no_limit - position;
  return 1;
}

/* The state from which to advance, and by how much, from a handle's at a position. */
static Val nearest(int64_t handle, int64_t position, int64_t *steps) {
  int64_t target = position + *steps;
  if (G.planned == 1)
    for (int i = way.count; i-- > 0 && way.position[i] > position;)
      if (way.position[i] <= target) {
        *steps = target - way.position[i];
        return G.handle[way.handle[i]];
      }
  return G.handle[handle];
}

#endif
