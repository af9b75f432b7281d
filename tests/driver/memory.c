/* Steps and adjoints as C and Fortran codes write them: they see pointers, and write.

   One step maps x to x + h*sin(x) + 1e-3*k, element by element. */
#include <math.h>

static const double h = 0.1;
static double work[1024]; /* A COMMON block, as it were. */

static double stepped(double x, long k) { return x + h * sin(x) + 1e-3 * (double)k; }

void step_out(long n, const double *x, double *y, long k) {
  for (long i = 0; i < n; i++) y[i] = stepped(x[i], k);
}

void step_in_place(long n, double *x, long k) { step_out(n, x, x, k); }

/* The argument is scratch space once it has been read. */
void step_and_spoil(long n, double *x, double *y, long k) {
  step_out(n, x, y, k);
  for (long i = 0; i < n; i++) x[i] = -1e6;
}

/* The state is the library's own memory. */
double *step_in_library(long n, const double *x, long k) {
  step_out(n, x, work, k);
  return work;
}

void reverse_in_place(long n, const double *x, double *g) {
  for (long i = 0; i < n; i++) g[i] *= 1.0 + h * cos(x[i]);
}

/* Overwrites the state with the local derivative. */
void reverse_and_spoil(long n, double *x, double *g) {
  for (long i = 0; i < n; i++) {
    x[i] = 1.0 + h * cos(x[i]);
    g[i] *= x[i];
  }
}
