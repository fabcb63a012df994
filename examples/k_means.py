"""Lloyd's algorithm: points go to the nearest centre, centres to the mean of their points, until nothing moves."""

import gallery
import numpy as np
import tatara


def k_means(points, centres, most):
    for _ in range(most):
        distances = np.linalg.norm(points[:, None, :] - centres[None, :, :], axis=2)
        labels = np.argmin(distances, axis=1)
        moved = np.array([points[labels == k].mean(axis=0) for k in range(len(centres))])
        if np.allclose(moved, centres):
            break
        centres = moved
    return centres, labels


compiled = tatara.compile(k_means)


def data(small):
    count, clusters = (100, 3) if small else (20000, 8)
    rng = np.random.default_rng(3)
    middles = rng.uniform(-4, 4, (clusters, 2))
    points = middles[rng.integers(clusters, size=count)] + 0.6 * rng.standard_normal((count, 2))
    return points, points[:clusters].copy(), 50


def draw(pyplot, result):
    centres, labels = result
    points = data(False)[0][::10]
    pyplot.figure(figsize=(4, 4))
    pyplot.scatter(points[:, 0], points[:, 1], c=labels[::10], s=1.5, cmap="tab10", rasterized=True)
    pyplot.scatter(centres[:, 0], centres[:, 1], marker="x", color="black")


if __name__ == "__main__":
    gallery.show(compiled, k_means, data, draw)
