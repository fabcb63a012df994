"""With gradients off, a view of what requires grad says that it requires grad, too; a copy does not. Both are used with gradients on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

ROWS = torch.tensor([[2, 0], [1, 1]])
NUMBER = torch.tensor(1)
MASK = torch.tensor([True, False, True])

COPIES: dict[str, Callable[[Any], Any]] = {
    "rows": lambda w: w[ROWS],
    "rows of a view": lambda w: w.t()[ROWS].permute(2, 0, 1),
    "rows and a column": lambda w: w[ROWS, 0],
    "columns": lambda w: w[:, ROWS],
    "columns of a slice": lambda w: w[0:2, ..., ROWS[0]],
    "rows with a new dimension": lambda w: w[None, ROWS[1]],
    "a view of rows": lambda w: w[ROWS][0],
    "pairs": lambda w: w[ROWS[0], ROWS[1]],
    "number and rows": lambda w: w[NUMBER, ROWS[0]],
}
VIEWS: dict[str, Callable[[Any], Any]] = {
    "number": lambda w: w[NUMBER],
    "two numbers": lambda w: w[NUMBER, NUMBER],
    "int": lambda w: w[1],
    "slice": lambda w: w[0:2],
    "turned": lambda w: w.t(),
}
OTHERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda w: w[[0, 2]],
    "mask": lambda w: w[MASK],
    "flag": lambda w: w[torch.tensor(True)],
}
USES: dict[str, Callable[[Any], Any]] = {
    "itself": lambda t: t,
    "contiguous": lambda t: t.contiguous(),
    "product": lambda t: t * 2,
    "view": lambda t: t.unsqueeze(0),
    "asked": lambda t: (t.requires_grad, t.is_leaf, t * 3),
    "written": lambda t: t.add_(1),
}


def rows(run: Callable[..., Any]) -> list[Any]:
    w = torch.nn.Parameter(torch.linspace(-1, 1, 9).reshape(3, 3))
    found: list[Any] = []
    for _ in range(3):
        try:
            result, scaled = run(w)
        except RuntimeError as error:
            found.append(str(error)[:60])
            continue
        for t in result if isinstance(result, tuple) else (result,):
            if not isinstance(t, torch.Tensor):
                found.append(t)
                continue
            found.append((t.requires_grad, t.is_leaf, t.grad_fn is None, t.stride()))
            found.append(t.detach().clone())
        scaled.sum().backward()
        found.append(w.grad.clone())
    found.append(w.detach().clone())
    return found


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("take", [*COPIES, *VIEWS, *OTHERS])
def test_what_is_taken_without_gradients(take: str, use: str) -> None:
    taken = {**COPIES, **VIEWS, **OTHERS}[take]

    def program(w: Any) -> Any:
        with torch.no_grad():
            t = taken(w)
        return USES[use](t), torch.tanh(w) * 2

    expected, result = rows(program), rows(tatara.compile(program))
    assert len(result) == len(expected)
    for ours, theirs in zip(result, expected, strict=True):
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(ours, theirs)
        else:
            assert ours == theirs
    if take in COPIES and use != "written":
        report = tatara.explain(program)(torch.nn.Parameter(torch.ones(3, 3)))
        assert not report.breaks, report.breaks
