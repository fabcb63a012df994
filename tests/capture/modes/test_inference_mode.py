"""Inference mode that programs enter themselves: part of the graph where nothing comes before it, and results are its tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from counters import counts
from results import same

LAYER = torch.nn.Linear(4, 4)


@torch.inference_mode()
def _decorated(x: Any, n: int) -> Any:
    return LAYER(x) * n


def _in_with(x: Any, n: int) -> Any:
    with torch.inference_mode():
        return LAYER(x) * n, torch.is_inference_mode_enabled(), torch.is_grad_enabled()


def _called(x: Any, n: int) -> Any:
    y = _decorated(x, n)
    return y, torch.is_inference_mode_enabled(), torch.is_grad_enabled(), y.requires_grad


def _views(x: Any, n: int) -> Any:
    with torch.inference_mode(True):
        return x[0], x[1:] * n, x.t()


def _writes(x: Any, n: int) -> Any:
    with torch.inference_mode():
        x.add_(n)
        return x * 2


def _goes_on(x: Any, n: int) -> Any:
    with torch.inference_mode():
        y = LAYER(x) * n
    return y + 1


def _begins_late(x: Any, n: int) -> Any:
    x = LAYER(x).relu()
    with torch.inference_mode():
        y = x * n
    return y, x.sum()


def _breaks_inside(x: Any, n: int) -> Any:
    with torch.inference_mode():
        y = LAYER(x) * n
        print(end="")
        return y.exp() + 1


def _off_again(x: Any, n: int) -> Any:
    with torch.inference_mode():
        with torch.inference_mode(False):
            y = LAYER(x)
        return y * n


def _asked(x: Any, n: int) -> Any:
    with torch.inference_mode():
        y = x * n
        inside = y.is_inference(), x.is_inference()
    return y, inside, y.is_inference()


def _twice(x: Any, n: int) -> Any:
    with torch.inference_mode():
        y = x.sin()
    with torch.inference_mode():
        return y.cos() * n


def _raises(x: Any, n: int) -> Any:
    with torch.inference_mode():
        y = LAYER(x)
        if n > 3:
            raise ValueError(f"{n} is too many")
        return y * n


def _fails(x: Any, n: int) -> Any:
    with torch.inference_mode():
        return torch.linalg.cholesky(x[:, :4] * (n - 4))


def _drops(x: Any, n: int) -> Any:
    with torch.inference_mode():
        return torch.dropout(x, 0.5, train=True) * n


ONE_GRAPH = [_decorated, _in_with, _called, _views, _writes, _raises, _drops]
OTHERS = [_goes_on, _begins_late, _breaks_inside, _off_again, _asked, _twice, _fails]


def _outcome(f: Callable[..., Any], x: Any, n: int) -> Any:
    torch.manual_seed(n)
    try:
        result = f(x, n)
    except (ValueError, RuntimeError) as error:
        result = type(error), str(error)
    tensors = [t for t in (result if isinstance(result, tuple) else (result,)) if isinstance(t, torch.Tensor)]
    kinds = [(t.is_inference(), t.requires_grad, t._is_view()) for t in tensors]
    state = torch.is_inference_mode_enabled(), torch.is_grad_enabled(), torch.rand(2)
    plain = (
        tuple(t.clone() if isinstance(t, torch.Tensor) else t for t in result) if isinstance(result, tuple) else result
    )
    return plain, kinds, state, x, x._version


@pytest.mark.parametrize("program", ONE_GRAPH + OTHERS)
def test_as_in_eager(program: Callable[..., Any]) -> None:
    compiled = tatara.compile(program)
    for turn, rows in enumerate((4, 4, 6, 4, 2, 4)):
        x = torch.randn(rows, 4)
        mine, theirs = x.clone(), x.clone()
        same(_outcome(compiled, mine, turn + 1), _outcome(program, theirs, turn + 1), equal_nan=True)


@pytest.mark.parametrize("program", ONE_GRAPH)
def test_one_graph(program: Callable[..., Any]) -> None:
    tatara.reset()
    compiled = tatara.compile(program)
    for rows, n in ((4, 1), (4, 2), (6, 3), (4, 1), (2, 2)):
        compiled(torch.randn(rows, 4), n)
    with counts() as stats:
        compiled(torch.randn(8, 4), 3)
    assert stats["guard_hits"] == 1
    assert tatara.stats()["breaks"] == 0


def test_results_are_refused_by_autograd() -> None:
    y = tatara.compile(_decorated)(torch.randn(2, 4), 1)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        y * torch.ones(4, requires_grad=True)


def test_a_decorated_method_that_keeps_a_cache() -> None:
    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)
            self.cache = torch.zeros(16, 4)

        @torch.inference_mode()
        def forward(self, x: Any, start: int) -> Any:
            self.cache[start : start + len(x)] = self.layer(x)
            return self.cache[: start + len(x)].mean(0)

    torch.manual_seed(0)
    ours, theirs = Decoder(), Decoder()
    theirs.load_state_dict(ours.state_dict())
    tatara.reset()
    compiled = tatara.compile(ours)
    for start, rows in ((0, 5), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1), (10, 1)):
        x = torch.randn(rows, 4)
        same(compiled(x, start).clone(), theirs(x, start).clone())
        same(ours.cache, theirs.cache)
    stats = tatara.stats()
    assert (stats["breaks"], stats["graphs"] <= 4) == (0, True), stats


def _again(x: Any, n: int) -> Any:
    with torch.inference_mode():
        y = _decorated(x, n)
        with torch.inference_mode():
            z = LAYER(y)
        return y, z, torch.is_inference_mode_enabled()


def _again_from_outside(x: Any, n: int) -> Any:
    y = _decorated(x, n)
    return y, _decorated(y, 2), torch.is_inference_mode_enabled(), torch.is_grad_enabled()


def _breaks_in_the_inner_one(x: Any, n: int) -> Any:
    y = LAYER(x)
    with torch.inference_mode():
        y = y * n
        print(end="")
        y = y + 1
    return y, torch.is_inference_mode_enabled()


def _raises_in_the_inner_one(x: Any, n: int) -> Any:
    try:
        with torch.inference_mode():
            y = LAYER(x) * n
            raise ValueError
    except ValueError:
        y = LAYER(x)
    return y, torch.is_inference_mode_enabled()


def _off_in_the_inner_one(x: Any, n: int) -> Any:
    with torch.inference_mode():
        with torch.inference_mode(False):
            y = torch.ones(2)
        return LAYER(x) * n, y.is_inference()


def _with_gradients_inside(x: Any, n: int) -> Any:
    with torch.enable_grad():
        before = torch.is_grad_enabled()
        with torch.inference_mode():
            y = LAYER(x) * n
            inside = torch.is_grad_enabled()
        return y, before, inside, torch.is_grad_enabled()


INNER = [
    (_again, 0),
    (_again_from_outside, 0),
    (_breaks_in_the_inner_one, None),
    (_raises_in_the_inner_one, None),
    (_off_in_the_inner_one, None),
    (_with_gradients_inside, None),
]


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize(("program", "breaks"), INNER)
def test_entered_again(program: Callable[..., Any], breaks: int | None, outside: bool) -> None:
    run = tatara.compile(program)
    with counts() as grown:
        for n in (2, 3, 3, 4):
            x = torch.randn(3, 4)
            with torch.inference_mode(outside):
                ours, theirs = run(x, n), program(x, n)
                state = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
            same(ours, theirs)
            assert ours[0].is_inference() == theirs[0].is_inference()
            assert state == (outside, not outside)
    if breaks is not None and (outside or program is _again):
        assert grown["breaks"] == breaks
