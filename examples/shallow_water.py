"""Waves on a turning pond: the linear shallow-water equations on a staggered grid with walls."""

import gallery
import numpy as np
import tatara


def shallow_water(height, depth, gravity, coriolis, dx, dt, steps):
    n, m = height.shape
    u = np.zeros((n, m + 1))  # on the sides between cells
    v = np.zeros((n + 1, m))
    volume = np.zeros(steps)
    for t in range(steps):
        v_at_u = 0.25 * (v[:-1, :-1] + v[:-1, 1:] + v[1:, :-1] + v[1:, 1:])
        u[:, 1:-1] += dt * (coriolis * v_at_u - gravity * np.diff(height, axis=1) / dx)
        u_at_v = 0.25 * (u[:-1, :-1] + u[:-1, 1:] + u[1:, :-1] + u[1:, 1:])
        v[1:-1, :] += dt * (-coriolis * u_at_v - gravity * np.diff(height, axis=0) / dx)
        height = height - dt * depth * (np.diff(u, axis=1) + np.diff(v, axis=0)) / dx
        volume[t] = height.sum()
    return height, u, v, volume


compiled = tatara.compile(shallow_water)


def data(small):
    size, steps = (16, 10) if small else (150, 600)
    x = np.linspace(-1, 1, size)
    bump = np.exp(-40 * ((x[None, :] + 0.4) ** 2 + (x[:, None] + 0.3) ** 2))
    return bump, 1.0, 1.0, 1.5, 2 / size, 0.5 / size, steps


def draw(pyplot, result):
    pyplot.figure(figsize=(4.4, 3.6))
    pyplot.imshow(result[0], cmap="RdBu", vmin=-0.3, vmax=0.3, origin="lower")
    pyplot.colorbar()
    pyplot.axis("off")


if __name__ == "__main__":
    gallery.show(compiled, shallow_water, data, draw)
