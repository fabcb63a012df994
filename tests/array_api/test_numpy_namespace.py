"""`tatara.array_api.numpy`: what NumPy does not do by the standard itself; and what importing loads."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import numpy as np
import tatara
import tatara.array_api.numpy as nx
from tatara.array_api import _names

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

INF, NAN = float("inf"), float("nan")


def test_every_name_is_there() -> None:
    assert [name for name in _names.ALL if not hasattr(nx, name)] == []
    assert [name for name in _names.LINALG if not hasattr(nx.linalg, name)] == []
    assert [name for name in _names.FFT if not hasattr(nx.fft, name)] == []
    assert nx.add is np.add and nx.float32 is np.float32


CASES: dict[str, tuple[Any, Any]] = {
    "floor_divide": (lambda x: nx.floor_divide(x, np.asarray([2.0, -INF, INF, 2.0])), [INF, -0.0, -0.0, 3.0]),
    "sort": (lambda x: nx.sort(x, descending=True), [INF, 7.0, 1.0, -1.0]),
    "argsort": (lambda x: nx.argsort(x, descending=True), [0, 3, 1, 2]),
    "clip": (lambda x: nx.clip(x, max=2.0, min=0.0), [2.0, 1.0, 0.0, 2.0]),
    "eigvals": (lambda x: nx.linalg.eigvals(nx.eye(2) * x[1]), [1 + 0j, 1 + 0j]),
    "fftfreq": (lambda x: nx.fft.fftfreq(4, dtype=nx.float32), np.asarray([0, 0.25, -0.5, -0.25], np.float32)),
    "tanh": (lambda x: nx.tanh(np.asarray([complex(INF, 4.5e152), complex(-INF, 1)])), [complex(1, 0.0), complex(-1, 0.0)]),
    "expm1": (lambda x: nx.expm1(np.asarray([complex(-INF, INF), complex(-0.0, -0.0)])), [complex(-1, 0), complex(0, -0.0)]),
    "sign": (lambda x: nx.sign(np.asarray([complex(INF, NAN), 3 + 4j])), [complex(NAN, NAN), 0.6 + 0.8j]),
    "tan": (lambda x: nx.tan(np.asarray([complex(4.5, INF)])), [complex(0.0, 1.0)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_where_numpy_deviates_the_standard_counts_eager_and_compiled(name: str) -> None:
    function, wanted = CASES[name]
    wanted = np.asarray(wanted)
    x = np.asarray([INF, 1.0, -1.0, 7.0])
    compiled = tatara.compile(function)
    for result in (function(x), compiled(x), compiled(x)):
        assert result.dtype == wanted.dtype
        np.testing.assert_array_equal(result, wanted)
        if wanted.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(result), np.signbit(wanted))


def test_equal_elements_stay_in_their_order_in_a_descending_sort() -> None:
    x = np.asarray([[2, 1, 2], [1, 1, 3]])
    np.testing.assert_array_equal(nx.argsort(x, descending=True), [[0, 2, 1], [2, 0, 1]])
    np.testing.assert_array_equal(nx.argsort(x, axis=0, descending=True), [[0, 0, 1], [1, 1, 0]])


def test_scalars_of_numpy_are_operands_too() -> None:
    assert nx.floor_divide(np.float64(INF), 2) == INF
    assert nx.expm1(np.complex64(0)) == 0 and nx.tanh(np.complex64(complex(INF, 1))) == 1
    assert nx.iinfo(np.asarray(1, dtype=np.int8)).max == 127 and nx.finfo(np.complex64).bits == 32


def loaded_after(program: str) -> str:
    check = f"import sys; {program}; print('torch' in sys.modules, 'numpy' in sys.modules, 'tatara.array_api' in sys.modules)"
    return subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout.strip()


def test_torch_is_loaded_with_the_first_name_only() -> None:
    assert loaded_after("import tatara") == "False False False"
    assert loaded_after("import tatara.array_api") == "False False True"
    assert loaded_after("import tatara.array_api.numpy as nx; nx.sum(nx.ones(3))") == "False True True"
    assert loaded_after("import tatara; tatara.array_api.ones") == "True True True"
