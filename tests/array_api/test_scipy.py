"""SciPy's functions on `Array`, by the standard alone: SciPy knows nothing of Tatara."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("scipy")

PROGRAM = """
import json, warnings
warnings.simplefilter("ignore")
import numpy as np, scipy
from scipy import cluster, fft, integrate, signal, special, stats
import tatara, tatara.array_api.arrays as ap

CALLS = {
    "zscore": lambda x: stats.zscore(x),
    "skew": lambda x: stats.skew(x),
    "kurtosis": lambda x: stats.kurtosis(x),
    "trapezoid": lambda x: integrate.trapezoid(x, axis=0),
    "cumulative_trapezoid": lambda x: integrate.cumulative_trapezoid(x, axis=0),
    "logsumexp": lambda x: special.logsumexp(x, axis=1),
    "softmax": lambda x: special.softmax(x, axis=1),
    "expit": lambda x: special.expit(x),
    "ttest_1samp": lambda x: stats.ttest_1samp(x, 0.0).pvalue,
    "pearsonr": lambda x: stats.pearsonr(x[:, 0], x[:, 1]).statistic,
    "whiten": lambda x: cluster.vq.whiten(x),
    "vq": lambda x: cluster.vq.vq(x, x[:3, :])[0],
    "fft": lambda x: fft.fft(x),
    "detrend": lambda x: signal.detrend(x),
    "entropy": lambda x: stats.entropy(abs(x)),
    "gmean": lambda x: stats.gmean(abs(x)),
    "mode": lambda x: stats.mode(x).mode,
    "rankdata": lambda x: stats.rankdata(x),
    "tmean": lambda x: stats.tmean(x, (-1, 1)),
    "quantile": lambda x: stats.quantile(x, 0.3, axis=0),
    "variation": lambda x: stats.variation(x),
    "lmoment": lambda x: stats.lmoment(x),
}
ONE_GRAPH = ("trapezoid", "cumulative_trapezoid", "softmax")
values = np.random.default_rng(0).standard_normal((30, 4))
found = {}
for name, call in CALLS.items():
    expected = np.asarray(call(values))
    report = tatara.explain(call)(ap.asarray(values))
    result = call(ap.asarray(values))
    compiled = tatara.compile(call)(ap.asarray(values))
    right = all(type(each) is ap.Array and np.allclose(np.asarray(each), expected) for each in (result, compiled, report.result))
    found[name] = [right, name not in ONE_GRAPH or (len(report.graphs), len(report.breaks)) == (1, 0)]
print(json.dumps(found))
"""


def test_functions_of_scipy_take_and_give_arrays_eager_and_compiled() -> None:
    # SciPy asks the environment when it is imported.
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert len(found) == 22
    assert {name: result for name, result in found.items() if result != [True, True]} == {}
