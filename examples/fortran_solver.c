/* What `fortran_solver.f90` does, for a machine without gfortran: the same names and
   the same arguments, by reference. */
static double work[65536];

void advance_(double *u, const int *n, const double *nu, const double *f,
              const double *dt, const double *dx, const int *k0, const int *k1) {
  for (int k = *k0; k < *k1; k++) {
    for (int i = 0; i < *n; i++) {
      double l = u[(i + *n - 1) % *n], r = u[(i + 1) % *n];
      work[i] = u[i] - *dt / (4 * *dx) * (r * r - l * l) +
                *nu * *dt / (*dx * *dx) * (r - 2 * u[i] + l) + *dt * f[i];
    }
    for (int i = 0; i < *n; i++) u[i] = work[i];
  }
}

void adjoint_(const double *u, double *g, double *gf, double *gnu, const int *n,
              const double *nu, const double *dt, const double *dx) {
  for (int i = 0; i < *n; i++) {
    int l = (i + *n - 1) % *n, r = (i + 1) % *n;
    double b = *dt / (*dx * *dx);
    work[i] = g[i] + *dt / (2 * *dx) * u[i] * (g[r] - g[l]) +
              *nu * b * (g[r] - 2 * g[i] + g[l]);
    *gnu += g[i] * b * (u[r] - 2 * u[i] + u[l]);
    gf[i] += *dt * g[i];
  }
  for (int i = 0; i < *n; i++) g[i] = work[i];
}
