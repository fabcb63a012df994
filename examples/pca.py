"""Principal components: the directions in which data vary most, by the eigenvectors of their covariance."""

import gallery
import numpy as np
import tatara


def pca(x, components):
    mean = x.mean(axis=0)
    scale = x.std(axis=0)
    z = (x - mean) / scale
    covariance = z.T @ z / (len(z) - 1)
    values, vectors = np.linalg.eigh(covariance)
    order = np.argsort(values)[::-1][:components]
    values, vectors = values[order], vectors[:, order]
    vectors = vectors * np.sign(vectors[np.argmax(np.abs(vectors), axis=0), np.arange(components)])
    scores = z @ vectors
    rebuilt = scores @ vectors.T * scale + mean
    return scores, values / np.trace(covariance), np.mean((x - rebuilt) ** 2)


compiled = tatara.compile(pca)


def data(small):
    count, features = (50, 5) if small else (20000, 32)
    rng = np.random.default_rng(4)
    hidden = rng.standard_normal((count, 3)) * [3, 2, 1]
    hidden[:, 1] += 0.3 * hidden[:, 0] ** 2
    return hidden @ rng.standard_normal((3, features)) + 0.5 * rng.standard_normal((count, features)), 2


def draw(pyplot, result):
    scores, share, _ = result
    pyplot.figure(figsize=(4.4, 3.4))
    pyplot.hexbin(scores[:, 0], scores[:, 1], gridsize=30, cmap="Blues", bins="log", linewidths=0.1)
    pyplot.xlabel(f"first component: {share[0]:.0%} of the variance")
    pyplot.ylabel(f"second: {share[1]:.0%}")


if __name__ == "__main__":
    gallery.show(compiled, pca, data, draw)
