"""Flow in a box whose lid moves: the Navier-Stokes equations by finite differences, with Poisson's equation for pressure."""

import gallery
import numpy as np
import tatara


def source(u, v, rho, dt, dx, dy):
    b = np.zeros_like(u)
    ux = (u[1:-1, 2:] - u[1:-1, :-2]) / (2 * dx)
    vy = (v[2:, 1:-1] - v[:-2, 1:-1]) / (2 * dy)
    uy = (u[2:, 1:-1] - u[:-2, 1:-1]) / (2 * dy)
    vx = (v[1:-1, 2:] - v[1:-1, :-2]) / (2 * dx)
    b[1:-1, 1:-1] = rho * ((ux + vy) / dt - ux**2 - 2 * uy * vx - vy**2)
    return b


def pressure(p, b, dx, dy, iterations):
    for _ in range(iterations):
        old = p.copy()
        p[1:-1, 1:-1] = (
            (old[1:-1, 2:] + old[1:-1, :-2]) * dy**2
            + (old[2:, 1:-1] + old[:-2, 1:-1]) * dx**2
            - b[1:-1, 1:-1] * dx**2 * dy**2
        ) / (2 * (dx**2 + dy**2))
        p[:, -1] = p[:, -2]
        p[0, :] = p[1, :]
        p[:, 0] = p[:, 1]
        p[-1, :] = 0
    return p


def cavity(u, v, p, rho, nu, dt, dx, dy, steps, iterations):
    for _ in range(steps):
        un, vn = u.copy(), v.copy()
        b = source(un, vn, rho, dt, dx, dy)
        p = pressure(p, b, dx, dy, iterations)
        u[1:-1, 1:-1] = (
            un[1:-1, 1:-1]
            - un[1:-1, 1:-1] * dt / dx * (un[1:-1, 1:-1] - un[1:-1, :-2])
            - vn[1:-1, 1:-1] * dt / dy * (un[1:-1, 1:-1] - un[:-2, 1:-1])
            - dt / (2 * rho * dx) * (p[1:-1, 2:] - p[1:-1, :-2])
            + nu * dt / dx**2 * (un[1:-1, 2:] - 2 * un[1:-1, 1:-1] + un[1:-1, :-2])
            + nu * dt / dy**2 * (un[2:, 1:-1] - 2 * un[1:-1, 1:-1] + un[:-2, 1:-1])
        )
        v[1:-1, 1:-1] = (
            vn[1:-1, 1:-1]
            - un[1:-1, 1:-1] * dt / dx * (vn[1:-1, 1:-1] - vn[1:-1, :-2])
            - vn[1:-1, 1:-1] * dt / dy * (vn[1:-1, 1:-1] - vn[:-2, 1:-1])
            - dt / (2 * rho * dy) * (p[2:, 1:-1] - p[:-2, 1:-1])
            + nu * dt / dx**2 * (vn[1:-1, 2:] - 2 * vn[1:-1, 1:-1] + vn[1:-1, :-2])
            + nu * dt / dy**2 * (vn[2:, 1:-1] - 2 * vn[1:-1, 1:-1] + vn[:-2, 1:-1])
        )
        u[0, :] = u[:, 0] = u[:, -1] = 0
        u[-1, :] = 1
        v[0, :] = v[-1, :] = v[:, 0] = v[:, -1] = 0
    return u, v, p


compiled = tatara.compile(cavity)


def data(small):
    size, steps, iterations = (16, 5, 5) if small else (61, 400, 40)
    spacing = 2 / (size - 1)
    return *(np.zeros((size, size)) for _ in range(3)), 1.0, 0.05, 0.001, spacing, spacing, steps, iterations


def draw(pyplot, result):
    u, v, p = result
    x = np.linspace(0, 2, len(u))
    pyplot.figure(figsize=(4.6, 3.8))
    pyplot.contourf(x, x, p, levels=12, alpha=0.6, cmap="viridis")
    pyplot.colorbar()
    pyplot.quiver(x[::4], x[::4], u[::4, ::4], v[::4, ::4])


if __name__ == "__main__":
    gallery.show(compiled, cavity, data, draw)
