"""Gravity between all pairs of bodies, with the leapfrog scheme: a cold disc of stars collapses and turns."""

import gallery
import numpy as np
import tatara


def acceleration(position, mass, softening):
    x, y, z = position[:, 0:1], position[:, 1:2], position[:, 2:3]
    dx, dy, dz = x.T - x, y.T - y, z.T - z
    inverse = (dx**2 + dy**2 + dz**2 + softening**2) ** -1.5
    return np.hstack([(dx * inverse) @ mass, (dy * inverse) @ mass, (dz * inverse) @ mass])


def energy(position, velocity, mass, softening):
    kinetic = 0.5 * np.sum(mass * velocity**2)
    potential = 0.0
    for i in range(len(mass) - 1):
        distance = np.sqrt(np.sum((position[i + 1 :] - position[i]) ** 2, axis=1) + softening**2)
        potential -= np.sum(mass[i] * mass[i + 1 :, 0] / distance)
    return kinetic + potential


def simulate(position, velocity, mass, softening, step, steps):
    paths = np.empty((steps + 1, *position.shape))
    paths[0] = position
    a = acceleration(position, mass, softening)
    for t in range(steps):
        velocity = velocity + a * step / 2
        position = position + velocity * step
        a = acceleration(position, mass, softening)
        velocity = velocity + a * step / 2
        paths[t + 1] = position
    return paths, energy(position, velocity, mass, softening)


compiled = tatara.compile(simulate)


def data(small):
    count, steps = (20, 10) if small else (200, 200)
    rng = np.random.default_rng(1)
    radius, angle = np.sqrt(rng.random(count)), 2 * np.pi * rng.random(count)
    position = np.stack([radius * np.cos(angle), radius * np.sin(angle), 0.05 * rng.standard_normal(count)], axis=1)
    velocity = 0.6 * np.stack([-position[:, 1], position[:, 0], np.zeros(count)], axis=1)
    return position, velocity, np.full((count, 1), 1 / count), 0.1, 0.01, steps


def draw(pyplot, result):
    paths, _ = result
    pyplot.figure(figsize=(4, 4))
    for body in range(0, paths.shape[1], 3):
        pyplot.plot(paths[::4, body, 0], paths[::4, body, 1], linewidth=0.4, color="tab:blue")
    pyplot.scatter(paths[-1, :, 0], paths[-1, :, 1], s=4, color="black", zorder=2)
    pyplot.axis("equal")


if __name__ == "__main__":
    gallery.show(compiled, simulate, data, draw)
