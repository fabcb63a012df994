"""Richardson and Lucy's iteration: a blurred, noisy picture becomes sharp again, by products of Fourier transforms."""

import gallery
import numpy as np
import tatara


def convolve(image, transfer):
    return np.fft.irfft2(np.fft.rfft2(image) * transfer, s=image.shape)


def richardson_lucy(observed, kernel, iterations):
    transfer = np.fft.rfft2(np.fft.ifftshift(kernel))
    estimate = np.full_like(observed, observed.mean())
    for _ in range(iterations):
        blurred = np.maximum(convolve(estimate, transfer), 1e-12)
        estimate *= convolve(observed / blurred, np.conj(transfer))
    return estimate


compiled = tatara.compile(richardson_lucy)


def picture(size):
    """Stars, a ring and a bar."""
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    image = 0.05 + ((np.abs(np.hypot(x, y) - 0.6) < 0.05) | ((np.abs(x) < 0.3) & (np.abs(y) < 0.06))).astype(float)
    rng = np.random.default_rng(6)
    image[rng.integers(size, size=20), rng.integers(size, size=20)] = 3.0
    return image


def data(small):
    size, iterations = (32, 5) if small else (256, 40)
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    kernel = np.exp(-(x**2 + y**2) / (2 * (6 / size) ** 2))
    kernel /= kernel.sum()
    blurred = np.fft.irfft2(np.fft.rfft2(picture(size)) * np.fft.rfft2(np.fft.ifftshift(kernel)), s=(size, size))
    noisy = np.random.default_rng(7).poisson(np.maximum(blurred, 0) * 500) / 500
    return noisy, kernel, iterations


def draw(pyplot, result):
    _, (left, right) = pyplot.subplots(1, 2, figsize=(6, 3))
    for axes, image in ((left, data(False)[0]), (right, result)):
        axes.imshow(image, cmap="gray", vmin=0, vmax=1)
        axes.axis("off")


if __name__ == "__main__":
    gallery.show(compiled, richardson_lucy, data, draw)
