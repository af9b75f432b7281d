"""Shallow water in one dimension, as a numerical programmer would write it.

Nothing here knows of Retape. A channel with a bump on its bed, flux form, centred
differences on a periodic grid with a little diffusion, and a third-order Runge-Kutta
step (Shu and Osher). The state is one array of two rows, depth and momentum.

The adjoint is written by hand, line for line backwards.
"""

import numpy as np

GRAVITY = 9.81


class Channel:
    """A periodic channel of `cells` cells, 1 km long."""

    def __init__(self, cells: int, dt: float = 2e-3) -> None:
        self.dx = 1000.0 / cells
        self.dt = dt * self.dx
        self.nu = 0.05 * self.dx
        x = (np.arange(cells) + 0.5) * self.dx
        self.x = x
        self.slope = self.centred(0.3 * np.exp(-(((x - 600.0) / 60.0) ** 2)))

    def start(self) -> np.ndarray:
        """A hump of water at rest."""
        depth = 2.0 + 0.5 * np.exp(-(((self.x - 300.0) / 40.0) ** 2))
        return np.stack([depth, np.zeros_like(depth)])

    def centred(self, f: np.ndarray) -> np.ndarray:
        """The centred difference; its transpose is its negative."""
        out = np.empty_like(f)
        np.subtract(f[2:], f[:-2], out=out[1:-1])
        out[0], out[-1] = f[1] - f[-1], f[0] - f[-2]
        out *= 0.5 / self.dx
        return out

    def diffusion(self, f: np.ndarray) -> np.ndarray:
        """nu times the second difference, which is its own transpose."""
        out = np.empty_like(f)
        np.add(f[2:], f[:-2], out=out[1:-1])
        out[0], out[-1] = f[1] + f[-1], f[0] + f[-2]
        out -= 2 * f
        out *= self.nu / self.dx**2
        return out

    def rate(self, q: np.ndarray) -> np.ndarray:
        """The time derivative of the state."""
        h, m = q
        u = m / h
        dh = -self.centred(m) + self.diffusion(h)
        flux = m * u + 0.5 * GRAVITY * h * h
        dm = -self.centred(flux) - GRAVITY * h * self.slope + self.diffusion(m)
        return np.stack([dh, dm])

    def rate_adjoint(self, q: np.ndarray, g: np.ndarray) -> np.ndarray:
        """The transpose of the derivative of `rate` at q, applied to g."""
        h, m = q
        u = m / h
        gh, gm = g
        back = self.centred(gm)  # that of the flux
        to_h = self.diffusion(gh) + (GRAVITY * h - u * u) * back
        to_h -= GRAVITY * self.slope * gm
        to_m = self.centred(gh) + 2 * u * back + self.diffusion(gm)
        return np.stack([to_h, to_m])

    def step(self, q: np.ndarray, k: int) -> np.ndarray:
        """One Runge-Kutta step."""
        a = q + self.dt * self.rate(q)
        b = 0.75 * q + 0.25 * (a + self.dt * self.rate(a))
        return q / 3 + (2 / 3) * (b + self.dt * self.rate(b))

    def step_adjoint(self, q: np.ndarray, k: int, g: np.ndarray) -> np.ndarray:
        """The transpose of the derivative of `step`."""
        a = q + self.dt * self.rate(q)
        b = 0.75 * q + 0.25 * (a + self.dt * self.rate(a))
        gb = (2 / 3) * (g + self.dt * self.rate_adjoint(b, g))
        ga = 0.25 * (gb + self.dt * self.rate_adjoint(a, gb))
        return g / 3 + 0.75 * gb + ga + self.dt * self.rate_adjoint(q, ga)
