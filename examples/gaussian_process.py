"""Regression by a Gaussian process: gradients of the likelihood, through NumPy's Cholesky factor, fit the hyperparameters."""

import gallery
import numpy as np
import tatara


def kernel(x, y, log_scale, log_length):
    squares = (x[:, None] - y[None, :]) ** 2
    return np.exp(2 * log_scale) * np.exp(-0.5 * squares / np.exp(2 * log_length))


def negative_log_likelihood(parameters, x, y):
    k = kernel(x, x, parameters[0], parameters[1]) + np.exp(2 * parameters[2]) * np.eye(len(x))
    factor = np.linalg.cholesky(k)
    alpha = np.linalg.solve(factor.T, np.linalg.solve(factor, y))
    return 0.5 * y @ alpha + np.sum(np.log(np.diag(factor))) + 0.5 * len(x) * np.log(2 * np.pi)


value_and_gradient = tatara.value_and_grad(negative_log_likelihood)


def by_hand(parameters, x, y):
    """The value and its gradient by the formula of textbooks."""
    k = kernel(x, x, parameters[0], parameters[1])
    noise = np.exp(2 * parameters[2]) * np.eye(len(x))
    inverse = np.linalg.inv(k + noise)
    alpha = inverse @ y
    outer = np.outer(alpha, alpha) - inverse
    squares = (x[:, None] - x[None, :]) ** 2 / np.exp(2 * parameters[1])
    slopes = [-0.5 * np.trace(outer @ slope) for slope in (2 * k, k * squares, 2 * noise)]
    return negative_log_likelihood(parameters, x, y), np.array(slopes)


def fit(parameters, x, y, steps, rate, of=by_hand):
    """Gradient descent with momentum."""
    velocity = np.zeros_like(parameters)
    values = []
    for _ in range(steps):
        value, slope = of(parameters, x, y)
        velocity = 0.8 * velocity - rate * slope
        parameters = parameters + velocity
        values.append(float(value))
    return parameters, np.array(values)


def compiled(*arguments):
    return fit(*arguments, of=value_and_gradient)


def data(small):
    count, steps = (12, 3) if small else (150, 60)
    rng = np.random.default_rng(10)
    x = np.sort(rng.uniform(0, 10, count))
    return np.zeros(3), x, np.sin(x) + 0.5 * np.sin(3 * x) + 0.2 * rng.standard_normal(count), steps, 0.2 / count


def draw(pyplot, result):
    parameters, _ = result
    _, x, y, *_ = data(False)
    at = np.linspace(-1, 11, 200)
    k = kernel(x, x, *parameters[:2]) + np.exp(2 * parameters[2]) * np.eye(len(x))
    cross = kernel(at, x, *parameters[:2])
    mean = cross @ np.linalg.solve(k, y)
    spread = np.sqrt(np.exp(2 * parameters[0]) - np.sum(cross * np.linalg.solve(k, cross.T).T, axis=1))
    pyplot.figure(figsize=(5, 3))
    pyplot.fill_between(at, mean - 2 * spread, mean + 2 * spread, alpha=0.25)
    pyplot.plot(at, mean)
    pyplot.scatter(x, y, s=5, color="black")


if __name__ == "__main__":
    gallery.show(compiled, fit, data, draw, tolerance=1e-7)
