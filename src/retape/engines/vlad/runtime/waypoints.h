/* States that the run which counts the steps leaves on its way.

   A plan's sweeps come by there again. By the default plan, whose memory is ours to
   choose, an advance begins at the last such state before its end. There are at most 32,
   twice as far apart whenever there would be more, and of altogether no more bytes than
   a stage's tape; states that are larger are not kept. */

#ifndef VLAD_WAYPOINTS_H
#define VLAD_WAYPOINTS_H

#include "collect.h"

#define WAYPOINTS 32
#define WAYPOINT_BYTES ((size_t)8 * 1024)

static struct {
  int64_t handle[WAYPOINTS], position[WAYPOINTS], apart;
  int count;
} way;

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

static void leave_waypoint(Val state, int64_t position) {
  if (way.count == WAYPOINTS) thin_waypoints();
  way.handle[way.count] = new_handle(state);
  way.position[way.count++] = position;
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
