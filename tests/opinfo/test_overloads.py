"""One call of each of the dispatcher's overloads, compiled, and its variants captured; `make overloads` compiles the variants
of every sample's calls.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import overloads  # noqa: E402
import sweep  # noqa: E402
import tatara  # noqa: E402

PARTS = 4
REACHED = 1000  # overloads, at least


def _gather() -> list[Any]:
    wanted = overloads.served()
    found: dict[str, Any] = {}
    torch.set_num_threads(1)
    entries = sweep.entries_by_name()
    for dtype in (torch.float32, torch.int64):
        for op in entries.values():
            if dtype not in op.supported_dtypes("cpu"):
                continue
            torch.manual_seed(0)
            for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), 1):
                for call in overloads.calls_of(op, sample, wanted):
                    found.setdefault(str(call[0]), call)
    return [found[name] for name in sorted(found)]


@pytest.fixture(scope="module")
def calls() -> Any:
    """The first call of each overload."""
    threads = torch.get_num_threads()
    # torch's suite looks at the whole stack for each entry and sample, which is deep here and short in a thread.
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(_gather).result()
    torch.set_num_threads(threads)


@pytest.mark.filterwarnings("ignore")
def test_most_overloads_are_reached(calls: list[Any]) -> None:
    assert len(calls) >= REACHED


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_calls(calls: list[Any], part: int) -> None:
    wrong = []
    for number, (overload, args, kwargs) in enumerate(calls[part::PARTS]):
        asks = overloads.asking(overload, args, kwargs) if number % 2 else (args, kwargs)
        for place, arguments in enumerate(overloads.variants(overload, *asks)):
            problem = overloads.check(overload, arguments, number, "eager" if place else "tatara")
            if problem:
                wrong.append(f"{overloads.text_of(overload, arguments)}: {problem}")
        if number % 16 == 15:
            tatara.reset()
    tatara.reset()
    assert wrong == []


@pytest.mark.parametrize(
    "ours, word",
    [
        (lambda x: torch.return_types.topk((x, x)), "taken"),
        (lambda x: (x, x.double()), "taken"),
        (lambda x: [x, x], "taken"),
        (lambda x: (x, x.view(2)), "taken"),
        (lambda x: (x * 1, x * 1 + 1), "values"),
        (lambda x: (y := x * 1, y), "aliasing"),
        (lambda x: (x + 0, x.add_(1) - 1), "arguments"),
        (lambda x: (torch.rand(1), (x * 1, x * 1))[1], "random"),
        (lambda x: ((x * 1).requires_grad_(), x * 1), "taken"),
    ],
)
def test_differences_are_seen(ours: Any, word: str) -> None:
    def run(function: Any) -> Any:
        return overloads.Run(
            lambda args, kwargs: (r := function(*args), overloads.seen(r, list(args))), ((torch.zeros(2),), {}), 1
        )

    theirs = run(lambda x: (x * 1, x * 1))
    problem = run(ours).differs(theirs, lambda: theirs, True)
    assert problem is not None
    assert word in problem


def test_each_optional_argument_is_left_out() -> None:
    made = list(overloads.variants(torch.ops.aten.topk.default, (torch.ones(3), 2, 0), {"sorted": False}))
    given = [set(range(len(args))) | set(kwargs) for args, kwargs in made]
    assert {0, 1, 2, "sorted"} in given  # all
    assert {0, 1} in given  # none
    assert {0, 1, 2} in given
    assert {0, 1, "sorted"} in given
