/* `hidden_state.f` in C, for machines without a Fortran compiler; with its names. */
#include <math.h>

enum { N = 20000 };
static const double dt = 1e-3;
static double u[N], w[N];

void start_(const double *shift) {
  for (int i = 0; i < N; i++) u[i] = 8 + sin(0.01 * (i + 1));
  u[0] += *shift;
}

void step_(void) {
  for (int i = 0; i < N; i++) {
    int r = (i + 1) % N, l = (i + N - 1) % N, ll = (i + N - 2) % N;
    w[i] = u[i] + dt * ((u[r] - u[ll]) * u[l] - u[i] + 8);
  }
  for (int i = 0; i < N; i++) u[i] = w[i];
}

void adj_(double *g) {
  for (int i = 0; i < N; i++) w[i] = (1 - dt) * g[i];
  for (int i = 0; i < N; i++) {
    int r = (i + 1) % N, l = (i + N - 1) % N, ll = (i + N - 2) % N;
    w[r] += dt * u[l] * g[i];
    w[ll] -= dt * u[l] * g[i];
    w[l] += dt * (u[r] - u[ll]) * g[i];
  }
  for (int i = 0; i < N; i++) g[i] = w[i];
}

double energy_(double *g) {
  double total = 0;
  for (int i = 0; i < N; i++) {
    total += 0.5 * u[i] * u[i];
    g[i] = u[i];
  }
  return total;
}
