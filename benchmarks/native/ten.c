/* The ten functions in plain C, for `python -m benchmarks.native`: gcc -O2. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

double newton(double a, double tolerance) {
  double x = 1.0;
  while (fabs(x * x - a) > tolerance) x = 0.5 * (x + a / x);
  return x;
}

static void gravity(const double *position, const double *mass, int n, double *a) {
  memset(a, 0, 2 * (size_t)n * sizeof(double));
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++)
      if (i != j) {
        double dx = position[2 * j] - position[2 * i];
        double dy = position[2 * j + 1] - position[2 * i + 1];
        double r2 = dx * dx + dy * dy + 0.01;
        double pull = mass[j] / (r2 * sqrt(r2));
        a[2 * i] += pull * dx;
        a[2 * i + 1] += pull * dy;
      }
}

double n_body(const double *position, const double *velocity, const double *mass,
              int n, long steps) {
  double dt = 0.001, p[64], v[64], a[64];
  gravity(position, mass, n, a);
  for (int i = 0; i < 2 * n; i++) {
    p[i] = position[i];
    v[i] = velocity[i] + 0.5 * dt * a[i];
  }
  for (long s = 0; s < steps; s++) {
    for (int i = 0; i < 2 * n; i++) p[i] += dt * v[i];
    gravity(p, mass, n, a);
    for (int i = 0; i < 2 * n; i++) v[i] += dt * a[i];
  }
  return p[0] * p[0] + p[1] * p[1];
}

double pendulum(double angle, double length, long steps) {
  double speed = 0.0;
  for (long i = 0; i < steps; i++) {
    speed -= 0.001 * (9.81 / length * sin(angle) + 0.1 * speed);
    angle += 0.001 * speed;
  }
  return angle;
}

double logistic_map(double x, double r, long steps) {
  for (long i = 0; i < steps; i++) x = r * x * (1.0 - x);
  return x;
}

double adaptive_runge_kutta(double mu, double y, double end, double tolerance) {
  double t = 0.0, v = 0.0, h = 0.01;
  while (t < end) {
    h = fmin(h, end - t);
    double k1 = v, l1 = mu * (1.0 - y * y) * v - y;
    double p = y + h * k1, q = v + h * l1;
    double k2 = q, l2 = mu * (1.0 - p * p) * q - p;
    double error = 0.5 * h * (fabs(k2 - k1) + fabs(l2 - l1)) + 1e-15;
    if (error <= tolerance) {
      y += 0.5 * h * (k1 + k2);
      v += 0.5 * h * (l1 + l2);
      t += h;
      if (end - t < 1e-12) break;
    }
    h *= fmin(2.0, fmax(0.2, 0.9 * sqrt(tolerance / error)));
  }
  return y;
}

double ray_through_lenses(double height, double curvature, long lenses) {
  double slope = 0.0;
  for (long i = 0; i < lenses; i++) {
    double glass = i % 2 == 0 ? 1.5 : 1.0 / 1.5;
    double bend = i % 2 == 0 ? curvature : -curvature;
    double normal = asin(bend * height), incoming = slope + normal;
    double outgoing = asin(sin(incoming) / glass);
    slope = outgoing - normal;
    height += 0.05 * tan(slope);
  }
  return height;
}

double soft_alignment(const double *a, const double *b, long n, double gamma) {
  long w = n + 1;
  double *cost = malloc((size_t)(w * w) * sizeof(double));
  for (long i = 0; i < w * w; i++) cost[i] = 1e6;
  cost[0] = 0.0;
  for (long i = 0; i < n; i++)
    for (long j = 0; j < n; j++) {
      double d = a[i] - b[j];
      double x = cost[i * w + j], y = cost[i * w + j + 1], z = cost[(i + 1) * w + j];
      double least = fmin(fmin(x, y), z);
      double total = exp((least - x) / gamma) + exp((least - y) / gamma) +
                     exp((least - z) / gamma);
      cost[(i + 1) * w + j + 1] = d * d + least - gamma * log(total);
    }
  double result = cost[w * w - 1];
  free(cost);
  return result;
}

static double wave(double p, double x) {
  double s = sin(10.0 * x);
  return exp(-p * x) * (s * s);
}

static double simpson(double p, double a, double b, double fa, double fm, double fb,
                      double tolerance) {
  double m = 0.5 * (a + b), left = wave(p, 0.5 * (a + m)), right = wave(p, 0.5 * (m + b));
  double coarse = (b - a) / 6.0 * (fa + 4.0 * fm + fb);
  double fine = (b - a) / 12.0 * (fa + 4.0 * left + 2.0 * fm + 4.0 * right + fb);
  if (fabs(fine - coarse) < tolerance) return fine;
  double half = 0.5 * tolerance;
  return simpson(p, a, m, fa, left, fm, half) + simpson(p, m, b, fm, right, fb, half);
}

double recursive_quadrature(double p, double tolerance) {
  return simpson(p, 0.0, 4.0, wave(p, 0.0), wave(p, 2.0), wave(p, 4.0), tolerance);
}

double adaptive_grid(const double *given, long n, long outer, double phi) {
  double *x = malloc((size_t)n * sizeof(double)), sum = 0.0;
  memcpy(x, given, (size_t)n * sizeof(double));
  for (long i = 1; i <= outer; i++) {
    double r = fmod(1013.0 * floor(pow(3.0, phi)) * (double)i, (double)outer);
    double e = floor(log((double)outer) / log(2.0)) - floor(log(1.0 + r) / log(2.0));
    long times = e >= 0 ? (long)pow(2.0, e) : 0;
    for (long t = 0; t < times; t++) {
      double total = 0.0;
      for (long k = 0; k < n; k++) total += x[k] * x[k];
      double y = sqrt(total);
      for (int first = 0; first < 2; first++) {
        double theta = (first == 0 ? 1.2 : 1.4) * y, c = cos(theta), s = sin(theta);
        for (long k = first; k < n - 1; k += 2) {
          double a = x[k], b = x[k + 1];
          x[k] = c * a - s * b;
          x[k + 1] = s * a + c * b;
        }
      }
    }
  }
  for (long k = 0; k < n; k++) sum += x[k] * x[k];
  free(x);
  return sum / 2.0;
}

double rnn_cell(const double *w, const double *u, const double *start, int n, long steps) {
  double h[64], next[64], sum = 0.0;
  memcpy(h, start, (size_t)n * sizeof(double));
  for (long t = 0; t < steps; t++) {
    double drive = sin(0.1 * (double)t);
    for (int i = 0; i < n; i++) {
      double dot = 0.0;
      for (int j = 0; j < n; j++) dot += w[i * n + j] * h[j];
      next[i] = tanh(dot + drive * u[i]);
    }
    memcpy(h, next, (size_t)n * sizeof(double));
  }
  for (int i = 0; i < n; i++) sum += h[i];
  return sum;
}
