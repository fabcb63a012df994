"""x[n] with a tensor n of one number is a view in eager, as x[int(n)] is: what is written to it is written to x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

TAKES: dict[str, Callable[[Any, Any], Any]] = {
    "row": lambda x, n: x[n],
    "column": lambda x, n: x[:, n],
    "part": lambda x, n: x[n, 0:2],
    "element": lambda x, n: x[n, n],
    "view of a row": lambda x, n: x[n].unsqueeze(0),
    "with a new dimension": lambda x, n: x[None, ..., n],
    "of a view": lambda x, n: x.t()[n],
    "row of a row": lambda x, n: x[n].unsqueeze(1)[n],
}


def written(take: Any, x: Any, n: Any) -> Any:
    take(x, n).add_(1)
    return x * 2


def written_of_a_result(take: Any, x: Any, n: Any) -> Any:
    y = x * 2
    take(y, n).mul_(3)
    return y


def read_behind_a_write(take: Any, x: Any, n: Any) -> Any:
    y = x * 2
    r = take(y, n)
    y.add_(1)
    return r * 2


def read_behind_a_write_to_an_input(take: Any, x: Any, n: Any) -> Any:
    r = take(x, n)
    x.mul_(2)
    return r + 1


def given_back(take: Any, x: Any, n: Any) -> Any:
    return take(x, n), x.sum()


def given_back_with_its_base(take: Any, x: Any, n: Any) -> Any:
    y = x * 2
    return take(y, n), y


def given_back_alone(take: Any, x: Any, n: Any) -> Any:
    y = x * 2
    return take(y, n)


def view_given_back(take: Any, x: Any, n: Any) -> Any:
    return take(x, n).unsqueeze(0).expand(2, *take(x, n).shape)


def kept(take: Any, x: Any, n: Any) -> Any:
    HELD.append(take(x, n))
    return x.exp()


def across_a_break(take: Any, x: Any, n: Any) -> Any:
    r = take(x, n)
    print(end="")
    r.add_(1)
    return x * 2


def through_out(take: Any, x: Any, n: Any) -> Any:
    torch.add(take(x, n), 1, out=take(x, n))
    return x * 2


def only_read(take: Any, x: Any, n: Any) -> Any:
    return torch.relu(take(x * 2, n)) + 1


def read_of_an_input(take: Any, x: Any, n: Any) -> Any:
    return torch.relu(take(x, n)) + x.sum()


def written_elsewhere(take: Any, x: Any, n: Any) -> Any:
    y = torch.zeros(3)
    y.add_(take(x, n).sum())
    return y * 2


HELD: list[Any] = []
SEEN = [
    written,
    written_of_a_result,
    read_behind_a_write,
    read_behind_a_write_to_an_input,
    given_back,
    given_back_with_its_base,
    given_back_alone,
    view_given_back,
    kept,
    across_a_break,
    through_out,
]
UNSEEN = [only_read, read_of_an_input, written_elsewhere]


def rows(run: Any, take: Any, grad: bool) -> list[Any]:
    """Results, what writes to them do to the operand, and what that has become, of three calls."""
    HELD.clear()
    x = torch.arange(9.0).reshape(3, 3)
    found: list[Any] = []
    for call in range(3):
        n = torch.tensor(1 if call < 2 else 2)
        w = torch.ones(()).requires_grad_(grad)
        given = x * w if grad else x
        result = run(take, given, n)
        results = result if isinstance(result, tuple) else (result,)
        found += [t.detach().clone() for t in results]
        if grad:
            sum(t.sum() for t in results).backward()
            found.append(w.grad)
            continue
        for t in (*results, *HELD):
            if t.dim() < 3 and (t.dim() == 0 or t.stride(0) != 0):
                t.add_(1)
        found += [t.clone() for t in (x, *results, *HELD)]
    return found


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("take", TAKES)
@pytest.mark.parametrize("program", SEEN + UNSEEN)
def test_numbers_as_indices(program: Callable[..., Any], take: str, grad: bool) -> None:
    if grad and program in (kept, through_out, view_given_back):
        pytest.skip("not with gradients")
    expected = rows(program, TAKES[take], grad)
    result = rows(tatara.compile(program), TAKES[take], grad)
    assert len(result) == len(expected)
    for ours, theirs in zip(result, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("program", UNSEEN)
def test_one_graph_where_nobody_sees_the_difference(program: Callable[..., Any]) -> None:
    report = tatara.explain(program)(TAKES["row"], torch.ones(3, 3), torch.tensor(1))
    assert not report.breaks and [graph.fallback for graph in report.graphs] == [""]


def test_added_and_put_back() -> None:
    """x[n] += y writes to the view, and then sets what is there already: one graph."""

    def program(x: Any, n: Any) -> Any:
        y = x * 2
        y[n] += x.sum(0)
        x[n] *= 3
        return y

    def again(x: Any, n: Any) -> Any:
        y = x * 2
        r = y[n]
        r += 1
        y[n] = r
        return y, r

    def other(x: Any, n: Any) -> Any:
        y = x * 2
        r = y[n]
        r += 1
        y[n - 1] = r
        r += 1
        return y

    for function in (program, again, other):
        run = tatara.compile(function)
        x, ours = (torch.arange(9.0).reshape(3, 3) for _ in range(2))
        for number in (1, 2, 1, -1):
            expected, result = function(x, torch.tensor(number)), run(ours, torch.tensor(number))
            torch.testing.assert_close(result, expected)
            torch.testing.assert_close(ours, x)
    report = tatara.explain(program)(torch.ones(3, 3), torch.tensor(1))
    assert not report.breaks and [graph.fallback for graph in report.graphs] == [""]


PLACES = torch.tensor([0, 2, 1, 3])
MIXED: dict[str, Callable[[Any, Any], Any]] = {
    "number first": lambda x, n: x[n, :, PLACES],
    "number last": lambda x, n: x[PLACES, :, n],
    "new dimension between": lambda x, n: x[n, None, PLACES],
    "side by side": lambda x, n: x[n, PLACES],
    "ellipsis": lambda x, n: x[..., n, PLACES],
    "two numbers": lambda x, n: x[n, PLACES, n],
    "slice first": lambda x, n: x[1:, n, PLACES],
    "list": lambda x, n: x[n, :, [0, 2, 1, 3]],
}


@pytest.mark.parametrize("take", MIXED)
def test_numbers_beside_places(take: str) -> None:
    """The dimension of the places stays where it is, or comes first, as without the number."""

    def read(x: Any, n: Any) -> Any:
        return MIXED[take](x, n) * 2

    def write(x: Any, n: Any) -> Any:
        y = x * 2
        MIXED_WRITES[take](y, n, torch.arange(16.0).reshape(4, 4))
        return y

    x = torch.arange(64.0).reshape(4, 4, 4)
    for function in (read, write) if take in MIXED_WRITES else (read,):
        run = tatara.compile(function)
        for number in (1, 1, 3, -2):
            torch.testing.assert_close(run(x, torch.tensor(number)), function(x, torch.tensor(number)))


MIXED_WRITES = {
    "number first": lambda y, n, v: y.__setitem__((n, slice(None), PLACES), v),
    "number last": lambda y, n, v: y.__setitem__((PLACES, slice(None), n), v),
    "side by side": lambda y, n, v: y.__setitem__((n, PLACES), v),
}
