"""In-place writes that the host refuses at once (to leaves that require grad and views of them), and questions whose answer
depends on what a tensor is a view of: error, line, what was done before, and answers are eager's, in every call.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402

WRITES: dict[str, Callable[[Any], Any]] = {
    "add_": lambda t: t.add_(1),
    "+=": lambda t: t.__iadd__(1),
    "[...] =": lambda t: t.__setitem__(0, 2.0),
    "relu": lambda t: torch.nn.functional.relu(t, inplace=True),
    "out": lambda t: torch.add(t.detach(), 1, out=t),
    "foreach": lambda t: torch._foreach_add_([t], 1),
    "fill_": lambda t: t.fill_(0.5),
    "copy_": lambda t: t.copy_(torch.ones_like(t)),
    "uniform_": lambda t: t.uniform_(),
    "masked_fill_": lambda t: t.masked_fill_(t > 0, 0.0),
}
TARGETS: dict[str, Callable[[Any], Any]] = {
    "the leaf": lambda a: a,
    "a row": lambda a: a[0],
    "transposed": lambda a: a.t(),
    "a view of a view": lambda a: a.view(-1)[2:6],
    "chunk": lambda a: a.chunk(2)[1],
    "detached": lambda a: a.detach(),
    "data": lambda a: a.data,
    "a copy": lambda a: a * 1,
    "contiguous": lambda a: a.contiguous(),
    "diagonal": lambda a: a.diagonal(),
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("write", WRITES)
def test_the_line_that_writes_raises(write: str, target: str, grad: bool) -> None:
    said: list[str] = []

    def function(a: Any) -> Any:
        said.append("before")
        t = TARGETS[target](a)
        b = a.detach() * 2
        WRITES[write](t)
        said.append("behind")
        return b + 1, t * 2

    def outcome(f: Any) -> Any:
        torch.manual_seed(0)
        said.clear()
        leaf = torch.full((4, 4), 0.25, requires_grad=True)
        try:
            with torch.set_grad_enabled(grad):
                result = [(r.detach().tolist(), r.requires_grad) for r in f(leaf)]
        except RuntimeError as error:
            lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.name == "function"]
            # Of views of several results the host names the operator that made them.
            result = [str(error) if target != "chunk" else "", lines]
        return result, list(said), leaf.tolist(), leaf._version

    compiled = tatara.compile(function)
    expected = outcome(function)
    for _ in range(3):
        assert outcome(compiled) == expected


ASKED: dict[str, Callable[[Any], Any]] = {
    "storage_offset": lambda t: t.storage_offset(),
    "_is_view": lambda t: t._is_view(),
    "is_inference": lambda t: t.is_inference(),
}
VIEWS: dict[str, Callable[[Any], Any]] = {
    **{name: make for name, make in TARGETS.items() if name != "the leaf"},
    "as_strided": lambda a: a.as_strided((2,), (1,), 1),
    "unfold": lambda a: a[1].unfold(0, 1, 1),
    "expand": lambda a: a[1:2].expand(4, 4),
    "a result": lambda a: a + 1,
    "of a result": lambda a: (a + 1)[1:],
}


@pytest.mark.parametrize("mode", [False, True])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("asked", ASKED)
def test_questions_about_views(asked: str, view: str, mode: bool) -> None:
    def function(a: Any) -> Any:
        t = VIEWS[view](a)
        return ASKED[asked](t), t.sin() if ASKED[asked](t) else t.cos()

    compiled = tatara.compile(function)
    with torch.inference_mode():
        within = torch.ones(4, 4)
    for given in (torch.ones(4, 4), torch.ones(5, 4)[1:], within):
        for _ in range(3):
            with torch.inference_mode(mode):
                (answer, expected), (found, result) = function(given), compiled(given)
            assert found == answer
            assert result.is_inference() == expected.is_inference()
            torch.testing.assert_close(result.clone(), expected.clone())
