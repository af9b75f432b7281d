/* A code whose state nobody can copy: it is static, and the adjoint reads it. */
#include <math.h>

enum { N = 500 };
static double u[N];
static long made;

void start(double shift) {
  for (int i = 0; i < N; i++) u[i] = 0.2 + 0.001 * i + shift;
  made = 0;
}

void make_step(void) {
  for (int i = 0; i < N; i++) u[i] += 0.1 * sin(u[i]) + 0.001 * (double)made;
  made++;
}

void reverse(double *g) {
  for (int i = 0; i < N; i++) g[i] *= 1.0 + 0.1 * cos(u[i]);
}

double energy(double *out) {
  double total = 0;
  for (int i = 0; i < N; i++) {
    out[i] = u[i];
    total += 0.5 * u[i] * u[i];
  }
  return total;
}
