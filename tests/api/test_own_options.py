"""Options of one compiled function hold for all that is ever compiled for it, also long after its first call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402

OWN = {"opt_level": 0, "vector_width": 256}


@pytest.fixture(autouse=True)
def dump_and_log(fresh: None, own_cache: None, tmp_path: Path) -> Iterator[None]:
    with tatara.config.patch(dump=str(tmp_path / "dump"), log="llvm"):
        yield


class Compilations:
    """What was compiled since the last look: LLVM's levels, and the widest vectors in the code, in bits."""

    def __init__(self, folder: Path, capfd: Any) -> None:
        self.folder, self.capfd = folder, capfd
        self.seen: set[Path] = set()

    def look(self) -> tuple[set[str], int]:
        levels = set(re.findall(r"compiled at level (\d)", self.capfd.readouterr().err))
        found = set(self.folder.rglob("*.ll")) - self.seen
        self.seen |= found
        widths = [
            int(count) * int(bits or 32)
            for path in found
            for count, bits in re.findall(r"<(\d+) x (?:float|i(32))>", path.read_text())
        ]
        return levels, max(widths, default=0)


def two_results(x: Any, y: Any) -> tuple[Any, Any]:
    shared = torch.tanh(x * y)  # so passes go through both together
    return shared.exp(), (shared + y).sigmoid()


def pair() -> tuple[Any, Any]:
    return torch.randn(64, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)


def test_later_backward_plans(tmp_path: Path, capfd: Any) -> None:
    made = Compilations(tmp_path / "dump", capfd)
    compiled = tatara.compile(two_results, options=OWN)
    x, y = pair()
    for used in ((True, True), (True, False), (False, True)):
        results = compiled(x, y)
        if used == (True, True):
            assert made.look()[0] == {"0"}  # forward, and backward of both
        loss = sum(result.sum() for result, use in zip(results, used, strict=True) if use)
        expected = torch.autograd.grad(
            sum(result.sum() for result, use in zip(two_results(x, y), used, strict=True) if use), (x, y)
        )
        gradients = torch.autograd.grad(loss, (x, y))
        for ours, theirs in zip(gradients, expected, strict=True):
            torch.testing.assert_close(ours, theirs)
        levels, width = made.look()
        if used != (True, True):
            assert levels == {"0"}, used  # a plan of its own for this set of cotangents
            assert 0 < width <= 256


def test_second_derivatives(tmp_path: Path, capfd: Any) -> None:
    made = Compilations(tmp_path / "dump", capfd)
    compiled = tatara.compile(lambda x: torch.tanh(x).exp().sum(), options=OWN)
    x, _ = pair()
    (first,) = torch.autograd.grad(compiled(x), x, create_graph=True)
    made.look()
    (second,) = torch.autograd.grad(first.square().sum(), x)
    levels, width = made.look()
    assert levels <= {"0"}
    assert width <= 256
    (expected,) = torch.autograd.grad(torch.tanh(x).exp().sum(), x, create_graph=True)
    torch.testing.assert_close(second, torch.autograd.grad(expected.square().sum(), x)[0])


def test_the_process_has_others(tmp_path: Path, capfd: Any) -> None:
    """What another function is compiled with is not changed by it."""
    made = Compilations(tmp_path / "dump", capfd)
    x, y = pair()
    tatara.compile(lambda x, y: two_results(x * 5, y), options=OWN)(x, y)  # kernels that no other test has made
    assert made.look()[0] == {"0"}
    tatara.compile(lambda x, y: two_results(x * 3, y))(x, y)
    assert made.look()[0] == {"1"}


def test_passes_stay_off_in_later_plans(tmp_path: Path) -> None:
    """Without fusion every operator is a kernel, in a backward plan that is compiled later too."""
    kernels = {}
    for name, options in {"fused": {}, "apart": {"disable": "fusion"}}.items():
        folder = tmp_path / name
        with tatara.config.patch(dump=str(folder)):
            x, y = pair()
            results = tatara.compile(two_results, options=options)(x, y)
            before = set(folder.rglob("*.loops"))
            results[0].sum().backward()
            kernels[name] = len(set(folder.rglob("*.loops")) - before)
    assert 0 < kernels["fused"] < kernels["apart"]


@pytest.mark.parametrize(
    ("wrong", "nearest"), [("csee", "cse"), ("dce, fusoin", "fusion"), ("channel_last", "channels_last")]
)
def test_unknown_passes_are_refused_with_the_nearest_name(wrong: str, nearest: str) -> None:
    for attempt in (
        lambda: tatara.compile(two_results, options={"disable": wrong}),
        lambda: setattr(tatara.config, "disable", wrong),
    ):
        with pytest.raises(tatara.InvalidArgument, match=f"did you mean '{nearest}'"):
            attempt()
