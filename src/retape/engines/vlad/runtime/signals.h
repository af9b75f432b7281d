/* A signal of the host, such as Ctrl-C, in the middle of a long run.

   Python runs the handlers of signals when its main thread comes back to it, which a run
   may never do. So a run is made in slices, and between two of them, every tenth of a
   second, Python is asked to run what handlers wait. What one of them raises is kept,
   and ends the run as a fault does. */

#ifndef VLAD_SIGNALS_H
#define VLAD_SIGNALS_H

#include "memory.h"

#ifndef PAUSE_SECONDS
#define PAUSE_SECONDS 0.1
#endif

/* Functions of Python's C interface; none where the host is no CPython. */
static struct {
  int (*ensure)(void);
  void (*release)(int);
  int (*check)(void);
  void (*fetch)(void **, void **, void **);
  void (*restore)(void *, void *, void *);
} python;

static struct {
  double last;
  void *type, *value, *traceback;
} paused;

/* Nobody may call the program meanwhile. */
__attribute__((visibility("default"))) int vlad_paused;

static double seconds(void) {
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Between two slices of a run. */
static void let_signals_in(void) {
  double now = seconds();
  if (!python.check || (now >= paused.last && now < paused.last + PAUSE_SECONDS)) return;
  int held = python.ensure();
  vlad_paused = 1;
  int raised = python.check();
  vlad_paused = 0;
  if (raised) python.fetch(&paused.type, &paused.value, &paused.traceback);
  python.release(held);
  paused.last = seconds();
  if (raised) fail(FROM_HOST, "", -1, NOTHING, NOTHING);
}

#endif
