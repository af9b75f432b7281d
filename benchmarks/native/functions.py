"""Ten plain Python functions, which Python runs, too: nothing here knows Retape."""

import math

import numpy as np


def newton(a, tolerance):
    """The square root of a number, by as many iterations as it takes."""
    x = 1.0
    while abs(x * x - a) > tolerance:
        x = 0.5 * (x + a / x)
    return x


def gravity(position, mass):
    """The accelerations of bodies in the plane, of which each row is one."""
    n, _ = position.shape
    acceleration = np.zeros((n, 2))
    for i in range(n):
        for j in range(n):
            if i != j:
                dx = position[j, 0] - position[i, 0]
                dy = position[j, 1] - position[i, 1]
                r2 = dx * dx + dy * dy + 0.01
                pull = mass[j] / (r2 * math.sqrt(r2))
                acceleration[i, 0] += pull * dx
                acceleration[i, 1] += pull * dy
    return acceleration


def n_body(position, velocity, mass, steps):
    """The distance of the first body from the origin, after leapfrog steps."""
    dt = 0.001
    velocity = velocity + 0.5 * dt * gravity(position, mass)
    for _ in range(steps):
        position = position + dt * velocity
        velocity = velocity + dt * gravity(position, mass)
    return position[0, 0] ** 2 + position[0, 1] ** 2


def pendulum(angle, length, steps):
    """The angle of a damped pendulum after semi-implicit Euler steps."""
    speed = 0.0
    for _ in range(steps):
        speed -= 0.001 * (9.81 / length * math.sin(angle) + 0.1 * speed)
        angle += 0.001 * speed
    return angle


def logistic_map(x, r, steps):
    """An orbit of the logistic map."""
    for _ in range(steps):
        x = r * x * (1.0 - x)
    return x


def adaptive_runge_kutta(mu, y, end, tolerance):
    """Van der Pol's oscillator, by Heun's method with steps of controlled error."""
    t, v, h = 0.0, 0.0, 0.01
    while t < end:
        h = min(h, end - t)
        k1, l1 = v, mu * (1.0 - y * y) * v - y
        p, q = y + h * k1, v + h * l1
        k2, l2 = q, mu * (1.0 - p * p) * q - p
        error = 0.5 * h * (abs(k2 - k1) + abs(l2 - l1)) + 1e-15
        if error <= tolerance:
            y += 0.5 * h * (k1 + k2)
            v += 0.5 * h * (l1 + l2)
            t += h
            if end - t < 1e-12:
                break
        h *= min(2.0, max(0.2, 0.9 * math.sqrt(tolerance / error)))
    return y


def ray_through_lenses(height, curvature, lenses):
    """Where a ray ends that is refracted at the surfaces of equal lenses."""
    slope = 0.0
    for i in range(lenses):
        glass = 1.5 if i % 2 == 0 else 1.0 / 1.5
        bend = curvature if i % 2 == 0 else -curvature
        normal = math.asin(bend * height)
        incoming = slope + normal
        outgoing = math.asin(math.sin(incoming) / glass)
        slope = outgoing - normal
        height += 0.05 * math.tan(slope)
    return height


def soft_alignment(a, b, gamma):
    """Dynamic programming: the soft-minimal cost of aligning two series."""
    n, m = len(a), len(b)
    cost = np.full((n + 1, m + 1), 1e6)
    cost[0, 0] = 0.0
    for i in range(n):
        for j in range(m):
            d = a[i] - b[j]
            x, y, z = cost[i, j], cost[i, j + 1], cost[i + 1, j]
            least = min(x, y, z)
            total = (
                math.exp((least - x) / gamma)
                + math.exp((least - y) / gamma)
                + math.exp((least - z) / gamma)
            )
            cost[i + 1, j + 1] = d * d + least - gamma * math.log(total)
    return cost[n, m]


def simpson(f, a, b, fa, fm, fb, tolerance):
    """Simpson's rule, on halves where it is not good enough: a recursion."""
    m = 0.5 * (a + b)
    left, right = f(0.5 * (a + m)), f(0.5 * (m + b))
    coarse = (b - a) / 6.0 * (fa + 4.0 * fm + fb)
    fine = (b - a) / 12.0 * (fa + 4.0 * left + 2.0 * fm + 4.0 * right + fb)
    if abs(fine - coarse) < tolerance:
        return fine
    half = 0.5 * tolerance
    return simpson(f, a, m, fa, left, fm, half) + simpson(f, m, b, fm, right, fb, half)


def recursive_quadrature(p, tolerance):
    """The integral of exp(-p x) sin(10 x)^2 from 0 to 4, p taken by a closure."""

    def f(x):
        return math.exp(-p * x) * math.sin(10.0 * x) ** 2

    return simpson(f, 0.0, 4.0, f(0.0), f(2.0), f(4.0), tolerance)


def adaptive_grid(x, outer, phi):
    """Figs. 8 and 28 of the paper: inner loops of lengths that only running tells."""
    x = x.copy()
    n = len(x)
    for i in range(1, outer + 1):
        r = (1013.0 * math.floor(3.0**phi) * i) % outer
        e = math.floor(math.log(outer) / math.log(2.0)) - math.floor(
            math.log(1.0 + r) / math.log(2.0)
        )
        for _ in range(2**e if e >= 0 else 0):
            total = 0.0
            for k in range(n):
                total += x[k] * x[k]
            y = math.sqrt(total)
            for first in range(2):
                theta = 1.2 * y if first == 0 else 1.4 * y
                c, s = math.cos(theta), math.sin(theta)
                for k in range(first, n - 1, 2):
                    a, b = x[k], x[k + 1]
                    x[k] = c * a - s * b
                    x[k + 1] = s * a + c * b
    total = 0.0
    for k in range(n):
        total += x[k] * x[k]
    return total / 2.0


def rnn_cell(w, u, h, steps):
    """A recurrent network's cell by hand: h = tanh(W h + u sin t)."""
    for t in range(steps):
        drive = math.sin(0.1 * t)
        h = np.tanh(w @ h + drive * u)
    return h.sum()


def _small_arguments():
    """Arguments for a quick look, and which of them are differentiated by."""
    position = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.5]])
    velocity = np.array([[0.0, 0.1], [0.0, 1.0], [-0.8, 0.0]])
    series = np.sin(np.arange(6.0)), np.cos(np.arange(5.0))
    weights = np.array([[0.5, -0.3, 0.1], [0.2, 0.4, -0.6], [-0.1, 0.3, 0.7]])
    return {
        newton: ((2.0, 1e-12), (0,)),
        n_body: ((position, velocity, np.array([1.0, 0.1, 0.2]), 20), (0, 1, 2)),
        pendulum: ((1.0, 0.5, 200), (0, 1)),
        logistic_map: ((0.3, 3.2, 20), (0, 1)),
        adaptive_runge_kutta: ((1.5, 2.0, 3.0, 1e-3), (0, 1)),
        ray_through_lenses: ((0.1, 0.9, 12), (0, 1)),
        soft_alignment: ((*series, 0.5), (0, 1, 2)),
        recursive_quadrature: ((0.7, 1e-4), (0,)),
        adaptive_grid: ((np.arange(4.0, 0.0, -1.0), 7, 1.5), (0,)),
        rnn_cell: ((weights, np.array([0.3, -0.2, 0.1]), np.zeros(3), 12), (0, 1)),
    }


SMALL = _small_arguments()
