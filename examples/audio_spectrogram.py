"""The spectrogram of a sound: Hann windows, Fourier transforms of the frames, and a bank of filters on the mel scale."""

import gallery
import numpy as np
import tatara


def mel_filters(rate, size, count):
    def to_mel(hertz):
        return 2595 * np.log10(1 + hertz / 700)

    mels = np.linspace(to_mel(0), to_mel(rate / 2), count + 2)
    bins = np.floor((size + 1) * 700 * (10 ** (mels / 2595) - 1) / rate).astype(int)
    filters = np.zeros((count, size // 2 + 1))
    for m in range(1, count + 1):
        for k in range(bins[m - 1], bins[m]):
            filters[m - 1, k] = (k - bins[m - 1]) / (bins[m] - bins[m - 1])
        for k in range(bins[m], bins[m + 1]):
            filters[m - 1, k] = (bins[m + 1] - k) / (bins[m + 1] - bins[m])
    return filters


def spectrogram(signal, rate, size, hop, count):
    window = np.hanning(size)
    emphasised = np.append(signal[0], signal[1:] - 0.97 * signal[:-1])
    frames = np.stack([emphasised[i : i + size] * window for i in range(0, len(signal) - size + 1, hop)])
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2 / size
    energies = power @ mel_filters(rate, size, count).T
    return 10 * np.log10(np.maximum(energies, 1e-10))


compiled = tatara.compile(spectrogram)


def data(small):
    rate, seconds = 16000, 0.1 if small else 4.0
    time = np.arange(int(rate * seconds)) / rate
    signal = np.sin(2 * np.pi * (200 * time + 400 * time**2)) + 0.5 * np.sin(2 * np.pi * 3000 * time) * (
        np.sin(9 * time) > 0
    )
    return signal + 0.05 * np.random.default_rng(8).standard_normal(len(time)), rate, 512, 160, 40


def draw(pyplot, result):
    pyplot.figure(figsize=(5, 3))
    pyplot.imshow(result.T, origin="lower", aspect="auto", extent=(0, 4, 0, 40), vmin=-60)
    pyplot.xlabel("seconds")
    pyplot.ylabel("filter")


if __name__ == "__main__":
    gallery.show(compiled, spectrogram, data, draw)
