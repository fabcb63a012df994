"""Two substances that react and spread (Gray and Scott): spots that divide fill the plane."""

import gallery
import numpy as np
import tatara


def gray_scott(u, v, du, dv, feed, kill, steps):
    for _ in range(steps):
        lu = u[:-2, 1:-1] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1] + u[1:-1, 2:] + u[2:, 1:-1]
        lv = v[:-2, 1:-1] + v[1:-1, :-2] - 4 * v[1:-1, 1:-1] + v[1:-1, 2:] + v[2:, 1:-1]
        uvv = u[1:-1, 1:-1] * v[1:-1, 1:-1] ** 2
        u[1:-1, 1:-1] += du * lu - uvv + feed * (1 - u[1:-1, 1:-1])
        v[1:-1, 1:-1] += dv * lv + uvv - (feed + kill) * v[1:-1, 1:-1]
        for field in (u, v):
            field[0, :] = field[-2, :]
            field[-1, :] = field[1, :]
            field[:, 0] = field[:, -2]
            field[:, -1] = field[:, 1]
    return u, v


compiled = tatara.compile(gray_scott)


def data(small):
    size, steps = (24, 20) if small else (128, 3000)
    rng = np.random.default_rng(2)
    u, v = np.ones((size + 2, size + 2)), np.zeros((size + 2, size + 2))
    middle = slice(size // 2 - size // 10, size // 2 + size // 10)
    u[middle, middle], v[middle, middle] = 0.5, 0.25
    u += 0.02 * rng.random(u.shape)
    v += 0.02 * rng.random(v.shape)
    return u, v, 0.16, 0.08, 0.035, 0.065, steps


def draw(pyplot, result):
    pyplot.figure(figsize=(4, 4))
    pyplot.imshow(result[1][1:-1, 1:-1], cmap="magma")
    pyplot.axis("off")


if __name__ == "__main__":
    gallery.show(compiled, gray_scott, data, draw)
