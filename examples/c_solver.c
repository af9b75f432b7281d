/* Burgers' equation, as a code that was never meant to be differentiated twice: it
   changes its argument in place, and works in an array of its own. */
#include <stddef.h>

static double work[1 << 16];

static size_t left(size_t i, size_t n) { return i == 0 ? n - 1 : i - 1; }
static size_t right(size_t i, size_t n) { return i == n - 1 ? 0 : i + 1; }

/* Steps k0, ..., k1 - 1. */
void advance(double *u, size_t n, double nu, double dt, double dx, long k0, long k1) {
  double a = dt / (4 * dx), b = nu * dt / (dx * dx);
  for (long k = k0; k < k1; k++) {
    for (size_t i = 0; i < n; i++) {
      double l = u[left(i, n)], r = u[right(i, n)];
      work[i] = u[i] - a * (r * r - l * l) + b * (r - 2 * u[i] + l);
    }
    for (size_t i = 0; i < n; i++) u[i] = work[i];
  }
}

/* The adjoint of one step: g is the cotangent of the state after it, and becomes that
   of the state u before it; the result is what the step adds to the cotangent of nu. */
double adjoint(const double *u, double *g, size_t n, double nu, double dt, double dx) {
  double a = dt / (2 * dx), b = dt / (dx * dx), of_nu = 0;
  for (size_t i = 0; i < n; i++) {
    double l = g[left(i, n)], r = g[right(i, n)];
    work[i] = g[i] + a * u[i] * (r - l) + nu * b * (r - 2 * g[i] + l);
    of_nu += g[i] * b * (u[right(i, n)] - 2 * u[i] + u[left(i, n)]);
  }
  for (size_t i = 0; i < n; i++) g[i] = work[i];
  return of_nu;
}
