"""`make estimators`: scikit-learn's estimators and metrics that speak the array API, on tensors, compiled and in eager.

Results are compared, and graphs, breaks and the ratio to eager printed, a JSON line each. scikit-learn and what it needs (joblib,
threadpoolctl, array-api-compat) are not among the packages of development: install them, or name their folder in PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("SCIPY_ARRAY_API", "1")
warnings.simplefilter("ignore")

import torch  # noqa: E402

import tatara  # noqa: E402

TURNS = 9


def rows(n: int, d: int) -> dict[str, Callable[[], Any]]:
    """What is called, by name; inputs are made here, once."""
    from sklearn import decomposition, discriminant_analysis, linear_model, metrics, mixture, preprocessing

    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=g, dtype=torch.float64)
    x[:, 0] += 3 * (torch.arange(n) % 2)
    w = torch.randn(d, generator=g, dtype=torch.float64)
    y = x @ w + 0.1 * torch.randn(n, generator=g, dtype=torch.float64)
    labels, guesses = (x[:, 0] > 1.5).long(), (x[:, 0] + x[:, 1] > 1.5).long()
    near = y + 0.3 * torch.randn(n, generator=g, dtype=torch.float64)
    up, up_near = y.abs() + 0.1, near.abs() + 0.1
    some = x[: min(n, 200)]

    def transforms(make: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: make().fit(x).transform(x)

    found: dict[str, Callable[[], Any]] = {
        "StandardScaler": transforms(preprocessing.StandardScaler),
        "MinMaxScaler": transforms(preprocessing.MinMaxScaler),
        "MaxAbsScaler": transforms(preprocessing.MaxAbsScaler),
        "Normalizer": transforms(preprocessing.Normalizer),
        "Binarizer": transforms(lambda: preprocessing.Binarizer(threshold=0.5)),
        "KernelCenterer": lambda: preprocessing.KernelCenterer().fit_transform(some @ some.T),
        "PolynomialFeatures": transforms(preprocessing.PolynomialFeatures),
        "PCA, full": transforms(lambda: decomposition.PCA(3, svd_solver="full")),
        "PCA, covariance": transforms(lambda: decomposition.PCA(3, svd_solver="covariance_eigh")),
        "Ridge": lambda: linear_model.Ridge(solver="svd").fit(x, y).predict(x),
        "LinearDiscriminantAnalysis": lambda: (
            discriminant_analysis.LinearDiscriminantAnalysis().fit(x, labels).predict_proba(x)
        ),
        "GaussianMixture": lambda: (
            mixture.GaussianMixture(2, init_params="random", random_state=0, max_iter=5).fit(x).predict_proba(x)
        ),
    }
    pairs = {
        "accuracy_score": (labels, guesses),
        "zero_one_loss": (labels, guesses),
        "f1_score": (labels, guesses),
        "precision_score": (labels, guesses),
        "recall_score": (labels, guesses),
        "jaccard_score": (labels, guesses),
        "hamming_loss": (labels, guesses),
        "confusion_matrix": (labels, guesses),
        "mean_squared_error": (y, near),
        "mean_absolute_error": (y, near),
        "mean_absolute_percentage_error": (y, near),
        "mean_squared_log_error": (up, up_near),
        "root_mean_squared_error": (y, near),
        "r2_score": (y, near),
        "explained_variance_score": (y, near),
        "max_error": (y, near),
        "mean_gamma_deviance": (up, up_near),
        "mean_poisson_deviance": (up, up_near),
        "d2_tweedie_score": (up, up_near),
        "median_absolute_error": (y, near),
        "mean_pinball_loss": (y, near),
    }
    for name, pair in pairs.items():
        found[name] = lambda f=getattr(metrics, name), pair=pair: f(*pair)
    for name in ("euclidean_distances", "rbf_kernel", "linear_kernel", "polynomial_kernel", "cosine_similarity"):
        found[name] = lambda f=getattr(metrics.pairwise, name): f(some, some)
    return found


def is_same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.allclose(a, b, rtol=1e-9, atol=1e-9)
    return type(a) is type(b) and bool(abs(a - b) <= 1e-9 * max(1, abs(a))) if isinstance(a, float) else a == b


def outcome(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]}"


def look(name: str, function: Callable[[], Any]) -> dict[str, Any]:
    tatara.reset()
    expected = outcome(function)
    compiled = tatara.compile(function)
    start = time.perf_counter()
    found = [outcome(compiled)]
    cold = time.perf_counter() - start
    found += [outcome(compiled) for _ in range(3)]
    stats = tatara.stats()
    times: list[list[float]] = [[], []]
    for _ in range(TURNS):
        for each, side in ((function, times[0]), (compiled, times[1])):
            start = time.perf_counter()
            outcome(each)
            side.append(time.perf_counter() - start)
    eager, ours = (statistics.median(side) for side in times)
    return {
        "name": name,
        "equal": all(is_same(expected, each) for each in found),
        "error": expected if isinstance(expected, str) else None,
        "graphs": stats["graphs"],
        "breaks": stats["breaks"],
        "ratio": round(eager / ours, 2),
        "eager_ms": round(eager * 1e3, 2),
        "cold_s": round(cold, 2),
        "why": sorted({str(each.reason) for each in tatara.explain(function)().breaks})
        if not isinstance(expected, str)
        else [],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    try:
        import sklearn
    except ImportError as error:
        print(f"scikit-learn is not here: {error}", file=sys.stderr)
        return 1
    wrong = 0
    with sklearn.config_context(array_api_dispatch=True):
        for name, function in rows(options.rows, options.features).items():
            if options.names and name not in options.names:
                continue
            row = look(name, function)
            wrong += not row["equal"]
            print(json.dumps(row), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
