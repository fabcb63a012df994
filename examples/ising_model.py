"""Magnets on a grid by Metropolis' rule: a spin turns over if that costs little energy at this temperature."""

import gallery
import numpy as np
import tatara


def ising(spins, beta, sweeps, rng):
    n, m = spins.shape
    magnetisation = np.zeros(sweeps)
    for sweep in range(sweeps):
        for _ in range(n * m):
            i = rng.integers(n)
            j = rng.integers(m)
            around = spins[(i + 1) % n, j] + spins[(i - 1) % n, j] + spins[i, (j + 1) % m] + spins[i, (j - 1) % m]
            cost = 2 * spins[i, j] * around
            if cost <= 0 or rng.random() < np.exp(-beta * cost):
                spins[i, j] = -spins[i, j]
        magnetisation[sweep] = abs(spins.mean())
    return spins, magnetisation


compiled = tatara.compile(ising)


def data(small):
    size, sweeps = (8, 3) if small else (64, 30)
    rng = np.random.default_rng(5)
    return rng.choice([-1, 1], size=(size, size)), 0.5, sweeps, rng


def draw(pyplot, result):
    _, (left, right) = pyplot.subplots(1, 2, figsize=(6, 2.6))
    left.imshow(result[0], cmap="binary", interpolation="nearest")
    left.axis("off")
    right.plot(result[1])
    right.set_xlabel("sweep")
    right.set_ylabel("magnetisation")


if __name__ == "__main__":
    gallery.show(compiled, ising, data, draw)
