"""Outputs that start as zeros, of which few elements are written, take memory for those only."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")

ROWS, WIDTH = 1 << 12, 256  # of float32: 4 MB
PAGE = 4096
LIBRARY = ctypes.CDLL(None)
NO_HUGE_PAGES = 41  # PR_SET_THP_DISABLE


@pytest.fixture(autouse=True)
def small_pages() -> Iterator[None]:
    """NumPy asks for huge pages under large arrays, whose memory the heap may give to others later in the same process."""
    assert LIBRARY.prctl(NO_HUGE_PAGES, 1, 0, 0, 0) == 0
    yield
    assert LIBRARY.prctl(NO_HUGE_PAGES, 0, 0, 0, 0) == 0


def pages_in_memory(tensor: torch.Tensor) -> int:
    begin = -(-tensor.data_ptr() // PAGE) * PAGE
    count = (tensor.data_ptr() + tensor.untyped_storage().nbytes() - begin) // PAGE
    present = (ctypes.c_ubyte * count)()
    assert LIBRARY.mincore(ctypes.c_void_p(begin), ctypes.c_size_t(count * PAGE), present) == 0
    return sum(flags & 1 for flags in present)


def kernels_of(call: Callable[[], Any]) -> int:
    with counts() as grown:
        call()
    return grown["kernels_launched"]


def dirty_heap() -> None:
    """Blocks of the heap that the allocator hands out next hold anything but zeros."""
    for _ in range(2):
        blocks = [torch.full((ROWS, WIDTH), float("nan")) for _ in range(4)]
        del blocks


def lean(function: Callable[..., Any]) -> Any:
    return tatara.compile(function, options={"keep_outputs_mb": 0})


def rows_of(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return (torch.nn.functional.embedding(index, table) * 2).sum()


def test_gradient_of_an_embedding() -> None:
    index = torch.randint(ROWS, (3, 5))
    table = torch.randn(ROWS, WIDTH)

    def gradient(function: Callable[..., Any]) -> torch.Tensor:
        leaf = table.clone().requires_grad_()
        function(leaf, index).backward()
        assert leaf.grad is not None
        return leaf.grad

    compiled = lean(rows_of)
    wanted = gradient(rows_of)
    for _ in range(3):
        dirty_heap()
        grad = gradient(compiled)
        assert pages_in_memory(grad) < 40  # of 1,024
        assert torch.equal(grad, wanted)
        grad.mul_(3).sub_(wanted)
        torch.testing.assert_close(grad, wanted * 2)


def test_kept_memory_is_cleared_by_a_kernel() -> None:
    index = torch.randint(ROWS, (15,))

    def scattered(values: torch.Tensor) -> torch.Tensor:
        return torch.zeros(ROWS, WIDTH).index_add(0, index, values)

    values = torch.randn(15, WIDTH)
    launches = []
    for compiled in (lean(scattered), tatara.compile(scattered)):
        for _ in range(3):
            out = compiled(values)
        dirty_heap()
        launches.append(kernels_of(lambda run=compiled: run(values)))
        for _ in range(3):
            out = compiled(values * 2)
            assert torch.equal(out, scattered(values * 2))
            out.fill_(5)
            del out
    assert launches == [1, 2]


Make = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# The zeros that are left out, and whether they may be.
MADE: dict[str, tuple[Make, bool]] = {
    "zeros": (lambda i, x: torch.zeros(ROWS, WIDTH).index_add(0, i, x), True),
    "zeros_like": (lambda i, x: torch.zeros_like(x[:1].expand(ROWS, WIDTH)).index_copy(0, i, x), True),
    "new_zeros": (lambda i, x: x.new_zeros(ROWS, WIDTH).index_put((i,), x), True),
    "in place": (lambda i, x: torch.zeros(ROWS, WIDTH).index_put_((i,), x, accumulate=True), True),
    "int": (lambda i, x: torch.zeros(ROWS, WIDTH, dtype=torch.int64).index_add(0, i, x.long()), True),
    "bool": (lambda i, x: torch.zeros(ROWS, WIDTH, dtype=torch.bool).index_put((i,), x > 0), True),
    "bfloat16": (lambda i, x: torch.zeros(ROWS, WIDTH, dtype=torch.bfloat16).index_put((i,), x.bfloat16()), True),
    "scatter": (lambda i, x: torch.zeros(ROWS, WIDTH).scatter(0, i[:, None].expand(-1, WIDTH), x), True),
    "columns first": (lambda i, x: torch.zeros(WIDTH, ROWS).index_add(1, i, x.T), True),
    "negative zero": (lambda i, x: torch.full((ROWS, WIDTH), -0.0).index_put((i,), x), False),
    "ones": (lambda i, x: torch.ones(ROWS, WIDTH).index_add(0, i, x), False),
    "many rows": (
        lambda i, x: torch.zeros(ROWS, WIDTH).index_add(0, torch.arange(ROWS), x[:1].expand(ROWS, -1)),
        False,
    ),
    "few elements": (lambda i, x: torch.zeros(64, WIDTH).index_add(0, i % 64, x), False),
    "twice": (lambda i, x: torch.zeros(ROWS, WIDTH).index_add(0, i, x).index_add(0, i + 1, x), True),
    "read": (lambda i, x: torch.zeros(ROWS, WIDTH).index_add(0, i, x) + 1, False),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_left_out(name: str) -> None:
    make, may_be = MADE[name]
    index, values = torch.randperm(ROWS - 1)[:15], torch.randn(15, WIDTH)
    wanted = make(index, values)
    compiled, kept = lean(make), tatara.compile(make)
    for _ in range(3):
        dirty_heap()
        out = compiled(index, values)
        assert torch.equal(out, wanted) and torch.equal(torch.signbit(out), torch.signbit(wanted))
        assert out.dtype == wanted.dtype and out.stride() == wanted.stride()
        kept(index, values)
    few = kernels_of(lambda: compiled(index, values))
    assert (kernels_of(lambda: kept(index, values)) - few > 0) == may_be


def test_rows_of_any_number() -> None:
    """Sizes that are symbols: how many rows are written is known when it runs, and does not matter to the result."""
    compiled = tatara.compile(
        lambda i, x: torch.zeros(ROWS, WIDTH).index_add(0, i, x), options={"keep_outputs_mb": 0}, dynamic=True
    )
    for count in (15, 7, 1, 1000, ROWS):
        index, values = torch.randperm(ROWS)[:count], torch.randn(count, WIDTH)
        dirty_heap()
        assert torch.equal(compiled(index, values), torch.zeros(ROWS, WIDTH).index_add(0, index, values))


def test_history_has_what_ran() -> None:
    index, values = torch.randperm(ROWS)[:15], torch.randn(15, WIDTH)
    compiled = lean(lambda i, x: torch.zeros(ROWS, WIDTH).index_add(0, i, x))
    for _ in range(2):
        compiled(index, values)
    with tatara.kernel_history() as history:
        compiled(index, values)
    assert history.launched == 1


def test_a_fault_leaves_no_trace() -> None:
    compiled = lean(lambda i, x: torch.zeros(ROWS, WIDTH).index_add(0, i, x))
    values = torch.randn(15, WIDTH)
    for _ in range(2):
        compiled(torch.arange(15), values)
    with pytest.raises(RuntimeError, match="out of bounds"):
        compiled(torch.arange(15) + ROWS, values)
    assert torch.equal(compiled(torch.arange(15), values)[:15], values)
