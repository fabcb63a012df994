"""Composites: lists of views, numerical composites, sampling, losses; what they leave to the host."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402
from results import same  # noqa: E402
from tatara.report._report import report_of  # noqa: E402

F = torch.nn.functional


def _inputs() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    return torch.randn(4, 5), torch.randn(4, 5), torch.randint(0, 4, (3,))


def _run(function: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    compiled = tatara.compile(function)
    result = compiled(*args)
    report = report_of(compiled)
    assert not report.breaks, report.breaks
    assert all(not g.fallback for g in report.graphs), [g.fallback for g in report.graphs]
    return result, report


CASES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "broadcast_tensors": lambda x, y, i: torch.broadcast_tensors(x[:1], y),
    "meshgrid": lambda x, y, i: torch.meshgrid(x[0], y[0], indexing="xy"),
    "atleast_3d": lambda x, y, i: torch.atleast_3d([x, y[0]]),
    "sum_to_size": lambda x, y, i: x.sum_to_size(1, 5),
    "kron": lambda x, y, i: torch.kron(x, y),
    "block_diag": lambda x, y, i: torch.block_diag(x, y),
    "cartesian_prod": lambda x, y, i: torch.cartesian_prod(x[0], y[1]),
    "fftshift": lambda x, y, i: torch.fft.fftshift(x),
    "trapezoid": lambda x, y, i: torch.trapezoid(x, y),
    "cumulative_trapezoid": lambda x, y, i: torch.cumulative_trapezoid(x, dx=0.5),
    "dist": lambda x, y, i: torch.dist(x, y, 3),
    "cdist": lambda x, y, i: torch.cdist(x, y, 1.0),
    "renorm": lambda x, y, i: torch.renorm(x, 2, 0, 1.0),
    "cross": lambda x, y, i: torch.linalg.cross(x[:, :3], y[:, :3]),
    "vander": lambda x, y, i: torch.linalg.vander(x[0], N=4),
    "addr": lambda x, y, i: torch.addr(x, y[:, 0], y[0], beta=0.5, alpha=2),
    "isin": lambda x, y, i: torch.isin(i, torch.arange(2)),
    "searchsorted": lambda x, y, i: torch.searchsorted(x.flatten().cummax(0).values, y),
    "bucketize": lambda x, y, i: torch.bucketize(x, y[0].cummax(0).values, right=True),
    "index_reduce": lambda x, y, i: x.index_reduce(0, i, y[:3], "amax"),
    "masked_scatter": lambda x, y, i: x.masked_scatter(x > 0, y),
    "put": lambda x, y, i: x.put(i, y[0, :3], accumulate=True),
    "entr": lambda x, y, i: torch.special.entr(x),
    "ndtr": lambda x, y, i: torch.special.ndtr(x * 3),
    "hinge": lambda x, y, i: F.hinge_embedding_loss(x, y.sign()),
    "triplet": lambda x, y, i: F.triplet_margin_loss(x, y, x * 0.5, swap=True),
    "cosine": lambda x, y, i: F.cosine_embedding_loss(x, y, x[:, 0].sign()),
    "multi_margin": lambda x, y, i: F.multi_margin_loss(x[:3], i, p=2),
    "unfold": lambda x, y, i: F.unfold(x[None, None], (2, 3), padding=1, stride=2),
    "grid_sample": lambda x, y, i: F.grid_sample(
        x[None, None], y[None, :, :4].reshape(1, 4, 2, 2).tanh() * 1.2, padding_mode="reflection", align_corners=False
    ),
    "adaptive_max_pool": lambda x, y, i: F.adaptive_max_pool2d(x[None], (3, 2), return_indices=True),
    "bicubic": lambda x, y, i: F.interpolate(x[None, None], size=(7, 9), mode="bicubic"),
    "nearest_exact": lambda x, y, i: F.interpolate(x[None, None], size=(7, 3), mode="nearest-exact"),
    "logspace": lambda x, y, i: torch.logspace(-1, 2, 7) + x[0, 0],
    "to_channels_last": lambda x, y, i: x[None, None].expand(2, 3, 4, 5).double(memory_format=torch.channels_last),
    "scalar_index_copy": lambda x, y, i: x[0, 0].index_copy(0, torch.zeros(1, dtype=torch.long), y[0, :1]),
    "unfold_scalar": lambda x, y, i: x[0, 0].unfold(0, 1, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_without_host_kernels(name: str) -> None:
    inputs = _inputs()
    expected = CASES[name](*inputs)
    actual, report = _run(CASES[name], *inputs)
    assert report.host_calls == []
    same(actual, expected, rtol=1e-5, atol=1e-5)


def test_lists_of_views_are_written_through() -> None:
    def write(x: Any, y: Any) -> Any:
        a, b = torch.atleast_2d([x, y])
        a.mul_(2)
        b.add_(a)
        return x + y

    x, y = torch.arange(3.0), torch.ones(3)
    ours_x, ours_y = x.clone(), y.clone()
    expected = write(x, y)
    actual, _ = _run(write, ours_x, ours_y)
    assert torch.equal(actual, expected)
    assert torch.equal(ours_x, x)
    assert torch.equal(ours_y, y)


def test_broadcast_tensors_gives_back_what_needs_no_view() -> None:
    x, y = torch.ones(4, 5), torch.ones(1, 5)
    (a, b), _ = _run(lambda p, q: torch.broadcast_tensors(p, q), x, y)
    assert a is x
    assert b.data_ptr() == y.data_ptr()
    assert b.stride() == (0, 1)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (2, 3, 0, 5), (2, 3, 4, 5, 6), (2, 3)])
def test_contiguous_in_channels_last(sizes: tuple[int, ...], dynamic: bool) -> None:
    """A copy where the strides are others, the tensor itself where they are not."""
    last = torch.channels_last_3d if len(sizes) == 5 else torch.channels_last

    def function(x: Any) -> Any:
        z = x.contiguous(memory_format=last)
        return z, z * 2, z is x

    x = torch.randn(sizes)
    operands = [x, x.transpose(0, 1).contiguous().transpose(0, 1), x[:1]]
    if len(sizes) == 2:
        with pytest.raises(RuntimeError, match="required rank 4 tensor to use channels_last format"):
            tatara.compile(function, dynamic=dynamic)(x)
        return
    for y in [*operands, x.to(memory_format=last)]:
        compiled = tatara.compile(function, dynamic=dynamic)
        expected = function(y)
        for _ in range(2):
            actual = compiled(y)
            assert actual[2] == expected[2]
            assert (actual[0].data_ptr() == y.data_ptr()) == (expected[0].data_ptr() == y.data_ptr())
            for a, b in zip(actual[:2], expected[:2], strict=True):
                assert a.stride() == b.stride()
                assert torch.equal(a, b)
    tatara.reset()
    tatara.compile(function)(x)
    assert tatara.stats()["fallbacks"] == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.cdist(x, y),  # by a matrix product in eager
        lambda x, y: torch.searchsorted(x[0].cummax(0).values, y),
        lambda x, y: torch.linalg.vecdot(x[0], y[0]),
        lambda x, y: torch.linalg.inv(x[:7, :7]),
        lambda x, y: torch.special.zeta(x.abs() + 1, y.abs() + 1),
    ],
)
def test_what_loops_refuse_runs_by_the_host(function: Callable[[Any, Any], Any]) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(40, 100), torch.randn(40, 100)
    actual, report = _run(function, x, y)
    assert report.host_calls
    torch.testing.assert_close(actual, function(x, y))


SCRIPT = """
import sys, torch, tatara
x = torch.rand(4) + 1
def f(x):
    return torch.special.zeta(x, x) + torch.special.i0e(x)
assert torch.allclose(tatara.compile(f)(x), f(x))
assert "torch._dynamo" not in sys.modules
from torch._compile import _disable_dynamo
import torch._refs.special as refs
def caches(f, seen):
    if id(f) in seen or not callable(f) or not hasattr(f, "__closure__"):
        return []
    seen.add(id(f))
    inside = [c.cell_contents for c in f.__closure__ or ()]
    return ["__dynamo_disable" in getattr(f, "__dict__", {})] + [x for g in inside for x in caches(g, seen)]
assert not any(caches(refs.zeta, set()))
"""


def test_inference_by_the_host_imports_no_compiler() -> None:
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
