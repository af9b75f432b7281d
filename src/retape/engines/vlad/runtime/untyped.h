/* A program without typed functions. */

#ifndef VLAD_UNTYPED_H
#define VLAD_UNTYPED_H

static int typed_stage(Val frame, int64_t fuel, Val cotangents, int last, Val *value,
                       Val *result) {
  (void)frame, (void)fuel, (void)cotangents, (void)last, (void)value, (void)result;
  return 0;
}

static int typed_loads(Val frame) {
  (void)frame;
  return 0;
}

static size_t typed_density(Val frame, int64_t steps) {
  (void)frame, (void)steps;
  return 0;
}

static int typed_advance(Val frame, int64_t fuel, Val *state, int *stopped) {
  (void)frame, (void)fuel, (void)state, (void)stopped;
  return 0;
}

static size_t typed_grown(void) { return 0; }

static int typed_value(Val frame, Val *value) {
  (void)frame, (void)value;
  return 0;
}

static void typed_counts(int64_t *done, int64_t *given_up) { *done = *given_up = 0; }

static void typed_end(void) {}

#endif
