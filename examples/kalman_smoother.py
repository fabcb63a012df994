"""Where a moving thing was, from noisy places: Kalman's filter forward, Rauch, Tung and Striebel's smoother backward."""

import gallery
import numpy as np
import tatara


def smoother(observations, a, c, q, r, mean, covariance):
    steps, states = len(observations), len(mean)
    predicted, filtered = np.zeros((steps, states)), np.zeros((steps, states))
    p_predicted, p_filtered = np.zeros((steps, states, states)), np.zeros((steps, states, states))
    for t in range(steps):
        if t > 0:
            mean = a @ mean
            covariance = a @ covariance @ a.T + q
        predicted[t], p_predicted[t] = mean, covariance
        innovation = observations[t] - c @ mean
        gain = covariance @ c.T @ np.linalg.inv(c @ covariance @ c.T + r)
        mean = mean + gain @ innovation
        covariance = (np.eye(states) - gain @ c) @ covariance
        filtered[t], p_filtered[t] = mean, covariance
    smooth, p_smooth = filtered.copy(), p_filtered.copy()
    for t in range(steps - 2, -1, -1):
        back = p_filtered[t] @ a.T @ np.linalg.inv(p_predicted[t + 1])
        smooth[t] = filtered[t] + back @ (smooth[t + 1] - predicted[t + 1])
        p_smooth[t] = p_filtered[t] + back @ (p_smooth[t + 1] - p_predicted[t + 1]) @ back.T
    return filtered, smooth, p_smooth


compiled = tatara.compile(smoother)


def data(small):
    steps, dt = (10, 0.1) if small else (1000, 0.1)
    a = np.eye(4) + dt * np.eye(4, k=2)
    c = np.eye(2, 4)
    q = 0.05 * np.block([[dt**3 / 3 * np.eye(2), dt**2 / 2 * np.eye(2)], [dt**2 / 2 * np.eye(2), dt * np.eye(2)]])
    r = 0.2 * np.eye(2)
    rng = np.random.default_rng(9)
    state, observations = np.array([0.0, 0.0, 0.4, 0.2]), np.empty((steps, 2))
    for t in range(steps):
        state = a @ state + rng.multivariate_normal(np.zeros(4), q)
        observations[t] = c @ state + rng.multivariate_normal(np.zeros(2), r)
    return observations, a, c, q, r, np.zeros(4), np.eye(4)


def draw(pyplot, result):
    observations = data(False)[0][:200]
    pyplot.figure(figsize=(4.6, 3.6))
    pyplot.scatter(observations[:, 0], observations[:, 1], s=3, color="silver", label="seen")
    pyplot.plot(result[0][:200, 0], result[0][:200, 1], linewidth=0.8, label="filtered")
    pyplot.plot(result[1][:200, 0], result[1][:200, 1], linewidth=1.2, label="smoothed")
    pyplot.legend()


if __name__ == "__main__":
    gallery.show(compiled, smoother, data, draw)
