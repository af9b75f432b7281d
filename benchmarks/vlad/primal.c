/* The example's primal, as a C programmer writes it: the physical limit. Reads n, l and
   phi; prints the value and the seconds of the second of two runs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double norm2(int n, const double *x) {
  double y = 0.0;
  for (int k = 0; k < n; k++) y += x[k] * x[k];
  return y;
}

static void rotate_pairs(double theta, int first, int n, double *x) {
  double c = cos(theta), s = sin(theta);
  for (int k = first; k + 1 < n; k += 2) {
    double a = x[k], b = x[k + 1];
    x[k] = c * a - s * b;
    x[k + 1] = s * a + c * b;
  }
}

static double f(int n, double *x, int l, double phi) {
  for (int i = 1; i <= l; i++) {
    double r = fmod(1013.0 * floor(pow(3.0, phi)) * i, l);
    double e = floor(log(l) / log(2.0)) - floor(log(1.0 + r) / log(2.0));
    for (int j = 1; j <= pow(2.0, e); j++) {
      double y = sqrt(norm2(n, x));
      rotate_pairs(1.2 * y, 0, n, x);
      rotate_pairs(1.4 * y, 1, n, x);
    }
  }
  return norm2(n, x) / 2.0;
}

int main(void) {
  int n, l;
  double phi, value = 0.0, seconds = 0.0;
  if (scanf("%d %d %lf", &n, &l, &phi) != 3) return 1;
  double *x = malloc((size_t)n * sizeof *x);
  for (int run = 0; run < 2; run++) {
    for (int k = 0; k < n; k++) x[k] = n - k;
    struct timespec a, b;
    timespec_get(&a, TIME_UTC);
    value = f(n, x, l, phi);
    timespec_get(&b, TIME_UTC);
    seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
  }
  printf("%.17g %.9g\n", value, seconds);
  free(x);
  return 0;
}
