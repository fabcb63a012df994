"""What all tests share. Those of tests/numpy and tests/pyvm run without torch: nothing here imports it before a test asks."""

from __future__ import annotations

import gc
import operator
import pathlib
import random
import sys
import types
from collections.abc import Iterator

import pytest

# Helpers with assertions: what failed is shown with its values.
pytest.register_assert_rewrite("results", "checkpoint_steps", "util")

_loaded = 0  # modules that the collector leaves out
_seeds_are_cheap = False


def _leave_modules_out() -> None:
    """The collector no longer walks the million objects of torch's modules, for which each `gc.collect()` takes 0.3 s."""
    global _loaded
    if len(sys.modules) > _loaded + 50:
        _loaded = len(sys.modules)
        gc.collect()
        gc.freeze()


def _make_seeds_cheap() -> None:
    """For each kind of accelerator that this machine lacks, torch.manual_seed() notes its caller's stack as text, in case one is
    initialised later. Below pytest that takes 3 ms.
    """
    global _seeds_are_cheap
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "accelerator") or _seeds_are_cheap:
        return
    _seeds_are_cheap = True
    if not torch.accelerator.is_available():
        for kind in (torch.cuda, torch.mtia, torch.xpu):
            kind.traceback = types.SimpleNamespace(format_stack=list)


def _seed() -> None:
    """Each test draws the same numbers in each run, in whatever order and processes the tests run."""
    random.seed(0)
    for name, seed in (("numpy", "random.seed"), ("torch", "manual_seed")):
        if (module := sys.modules.get(name)) is not None:
            operator.attrgetter(seed)(module)(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    _leave_modules_out()
    _make_seeds_cheap()
    _seed()
    return (yield)


@pytest.fixture
def fresh() -> Iterator[None]:
    """No entries from other tests, and the same random numbers in each, whatever fixtures of whole modules drew."""
    pytest.importorskip("torch")
    import tatara

    tatara.reset()
    _seed()
    yield
    tatara.reset()


@pytest.fixture
def host_products() -> Iterator[None]:
    """Products of matrices are the host's calls, whatever their size."""
    import tatara

    with tatara.config.patch(disable="cpu_products"):
        yield


@pytest.fixture
def no_grad() -> Iterator[None]:
    """The test runs under torch.no_grad()."""
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        yield


@pytest.fixture
def own_cache(tmp_path: pathlib.Path) -> Iterator[None]:
    """The disk cache is an empty folder of this test's."""
    import tatara

    with tatara.config.patch(cache_dir=str(tmp_path / "cache")):
        yield


@pytest.fixture(params=["eager", "tatara"])
def backend(request: pytest.FixtureRequest) -> str:
    """The name to give to `tatara.compile(..., backend=...)`: graphs run call by call, or compiled."""
    return str(request.param)
