"""torch's settings (cuDNN's flags, precision of products, threads): read by compiled code, which guards them, and set by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")

cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul


def _state() -> dict[str, Any]:
    flags = {name: getattr(cudnn, name) for name in ("enabled", "benchmark", "deterministic", "allow_tf32")}
    backends = {
        "mkldnn": torch.backends.mkldnn.enabled,
        "mkldnn's": torch.backends.mkldnn.deterministic,
        "tf32": matmul.allow_tf32,
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "always": torch.is_warn_always_enabled(),
        "threads": torch.get_num_threads(),
        "cudnn's": torch.backends.cudnn.fp32_precision,
    }
    return flags | backends


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # torch's own test tools, which other tests here import, forbid to set flags but by their context managers.
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)
    flags = {name: getattr(cudnn, name) for name in ("enabled", "benchmark", "deterministic", "allow_tf32")}
    precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    tf32, flash, mkldnn = matmul.allow_tf32, torch.backends.cuda.flash_sdp_enabled(), torch.backends.mkldnn.enabled
    yield
    for name, value in flags.items():
        setattr(cudnn, name, value)
    torch.set_float32_matmul_precision(precision)
    torch.set_num_threads(threads)
    torch.set_warn_always(False)
    torch.backends.cuda.enable_flash_sdp(flash)
    matmul.allow_tf32 = tf32
    torch._C._set_mkldnn_enabled(mkldnn)


SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], tuple[Any, Any]]] = {
    "threads": (torch.get_num_threads, torch.set_num_threads, (1, 2)),
    "precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, ("highest", "high")),
    "warnings": (torch.is_warn_always_enabled, torch.set_warn_always, (True, False)),
    "flash": (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp, (True, False)),
    "mkldnn": (lambda: torch.backends.mkldnn.enabled, torch._C._set_mkldnn_enabled, (True, False)),
    "tf32": (lambda: matmul.allow_tf32, lambda value: setattr(matmul, "allow_tf32", value), (True, False)),
} | {
    name: (lambda name=name: getattr(cudnn, name), lambda value, name=name: setattr(cudnn, name, value), (True, False))
    for name in ("enabled", "benchmark", "deterministic", "allow_tf32")
}


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_read_is_guarded(name: str) -> None:
    read, write, values = SETTINGS[name]
    compiled = tatara.compile(lambda x: x * (2 if read() == values[0] else 3))
    for value in values * 2:
        write(value)
        for _ in range(3):
            assert compiled(torch.ones(2)).tolist() == [2.0 if value == values[0] else 3.0] * 2
    assert tatara.stats()["breaks"] == 0


def _flags(x: Any) -> Any:
    before = cudnn.enabled, cudnn.benchmark
    with cudnn.flags(enabled=False, benchmark=True):
        y, within = x.sin(), (cudnn.enabled, cudnn.benchmark)
    return y * 2, before, within, (cudnn.enabled, cudnn.benchmark)


def _nested(x: Any) -> Any:
    with cudnn.flags(enabled=False), cudnn.flags(enabled=True, deterministic=True):
        x = x * 2 if cudnn.deterministic else x * 3
    return x + 1, cudnn.enabled


def _stays(x: Any) -> Any:
    cudnn.benchmark = True
    cudnn.deterministic = False
    return x * 2 + cudnn.benchmark


def _turns(x: Any) -> Any:
    cudnn.benchmark = not cudnn.benchmark
    return x * 2 + cudnn.benchmark


def _as_it_is(x: Any) -> Any:
    torch.set_float32_matmul_precision("highest")
    torch.backends.mkldnn.deterministic = False
    torch._C._set_mkldnn_enabled(torch.backends.mkldnn.enabled)
    return (x * 2).cos()


@pytest.mark.parametrize("program", [_flags, _nested, _stays, _turns, _as_it_is], ids=lambda f: f.__name__)
@pytest.mark.parametrize("needs", [False, True])
def test_what_is_set(program: Callable[[Any], Any], needs: bool) -> None:
    compiled = tatara.compile(program)
    with counts() as grown:
        for call in range(8):
            cudnn.benchmark = call in (3, 4)
            states, results = [], []
            before = cudnn.benchmark
            for function in (compiled, program):
                cudnn.benchmark = before
                results.append(function(torch.linspace(0, 1, 4).requires_grad_(needs)))
                states.append(_state())
            assert states[0] == states[1]
            torch.testing.assert_close(*results)
    assert (grown["breaks"], grown["fallbacks"]) == (0, 0)


def test_a_break_inside() -> None:
    """What stands between the parts sees the flags."""
    seen = []

    def program(x: Any) -> Any:
        with cudnn.flags(enabled=False):
            x = x * 2
            seen.append(float(x.sum()) > 1 and cudnn.enabled)
            print(end=f"{x[0].item():.0f}"[:0])
            x = x.sin()
        return x, cudnn.enabled

    compiled = tatara.compile(program)
    for _ in range(5):
        before = cudnn.enabled
        torch.testing.assert_close(compiled(torch.ones(4)), program(torch.ones(4)))
        assert cudnn.enabled == before
    assert seen == [False] * 10


def test_errors_put_the_flags_back() -> None:
    def program(x: Any, y: Any) -> Any:
        with cudnn.flags(enabled=False):
            return x.sin() @ y

    compiled = tatara.compile(program)
    for rows in (4, 4, 4, 3, 4):
        before = _state()
        if rows == 3:
            with pytest.raises(RuntimeError):
                compiled(torch.ones(4), torch.ones(rows))
        else:
            compiled(torch.ones(4), torch.ones(rows))
        assert _state() == before


def test_a_setting_that_changes_what_the_graph_does_breaks_it() -> None:
    def program(x: Any) -> Any:
        torch.set_float32_matmul_precision("high" if torch.get_float32_matmul_precision() == "highest" else "highest")
        return (x @ x).sin()

    compiled = tatara.compile(program)
    for _ in range(4):
        before = torch.get_float32_matmul_precision()
        compiled(torch.ones(2, 2))
        assert torch.get_float32_matmul_precision() != before
    assert tatara.stats()["breaks"] > 0
