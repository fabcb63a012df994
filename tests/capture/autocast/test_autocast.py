"""Autocast, entered inside a compiled function or around it: eager's dtypes, values and state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from results import same  # noqa: E402

F = torch.nn.functional


def _net() -> Any:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)]
    return torch.nn.Sequential(*layers)


X = torch.linspace(-2, 2, 24).reshape(3, 8)
Y = torch.tensor([0, 1, 2])


def _state() -> tuple[Any, ...]:
    devices = ("cpu", "cuda")
    return (
        tuple(torch.is_autocast_enabled(d) for d in devices),
        tuple(torch.get_autocast_dtype(d) for d in devices),
        torch.is_autocast_cache_enabled(),
    )


def _region(net: Any, x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = net(x)
        z = y.softmax(-1)
        inner = torch.is_autocast_enabled("cpu")
    return y, z, inner, y.float() @ torch.ones(4, 2), torch.is_autocast_enabled("cpu")


def _nested(net: Any, x: Any) -> Any:
    with torch.autocast("cpu"):
        a = net[0](x)
        with torch.autocast("cpu", enabled=False):
            b = net[0](a.float()) if a.shape[1] == 8 else a.float() @ torch.ones(16, 2)
        with torch.autocast("cpu", dtype=torch.float16):
            c = x @ x.t()
        return a, b, c, x @ x.t(), torch.cat([a, a.float()]), torch.stack([a, a])


def _losses(net: Any, x: Any) -> Any:
    with torch.autocast("cpu"):
        y = net(x)
        return F.cross_entropy(y, Y), F.mse_loss(y, torch.zeros_like(y)), y.exp().sum(), y.prod()


def _double(net: Any, x: Any) -> Any:
    with torch.autocast("cpu"):
        wide = x.double()
        return wide @ wide.t(), x @ x.t()


@torch.autocast("cpu")  # type: ignore[untyped-decorator]
def _decorated(net: Any, x: Any) -> Any:
    return net(x)


@pytest.mark.parametrize("program", [_region, _nested, _losses, _double, _decorated])
@pytest.mark.parametrize("grad", [False, True])
def test_regions_inside(program: Callable[..., Any], grad: bool) -> None:
    net = _net()
    tatara.reset()
    compiled = tatara.compile(program, fullgraph=True)
    before = _state()
    with torch.set_grad_enabled(grad):
        expected = program(net, X)
        for _ in range(3):
            same(compiled(net, X), expected)
            assert _state() == before
    assert tatara.stats()["graphs"] == 1
    assert tatara.stats()["fallbacks"] == 0


def test_a_break_inside_a_region() -> None:
    net = _net()

    def program(x: Any) -> Any:
        with torch.autocast("cpu"):
            y = net[0](x)
            if y.sum().item() > 1e9:
                return y
            z = net[3](y)
        return z, y, z + 1, torch.is_autocast_enabled("cpu")

    tatara.reset()
    compiled = tatara.compile(program)
    for _ in range(3):
        same(compiled(X), program(X))
        assert not torch.is_autocast_enabled("cpu")
    assert tatara.stats()["graphs"] == 2


def test_an_error_inside_a_region_leaves_it() -> None:
    def program(x: Any) -> Any:
        with torch.autocast("cpu"):
            return x @ torch.ones(3, 3)

    compiled = tatara.compile(program)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            compiled(X)
        assert not torch.is_autocast_enabled("cpu")


@pytest.mark.smoke
def test_a_region_around() -> None:
    net = _net()

    def program(x: Any) -> Any:
        y = net(x)
        return y, F.cross_entropy(y, Y), torch.is_autocast_enabled("cpu")

    tatara.reset()
    compiled = tatara.compile(program, fullgraph=True)
    for dtype in (torch.bfloat16, torch.float16, torch.bfloat16, None):
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            expected = program(X)
            for _ in range(2):
                same(compiled(X), expected)
    assert tatara.stats()["graphs"] == 3
    assert tatara.stats()["fallbacks"] == 0


def test_leaving_a_region_that_is_around() -> None:
    """Without the state of the caller: an outer region comes back after an inner one."""

    def program(x: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            a = x @ x.t()
        return a, x @ x.t()

    compiled = tatara.compile(program, fullgraph=True)
    with torch.autocast("cpu"):
        for _ in range(3):
            same(compiled(X), program(X))
            assert torch.is_autocast_enabled("cpu")


def test_a_switch_that_stays() -> None:
    def program(x: Any, on: bool) -> Any:
        torch.set_autocast_enabled("cpu", on)
        return x @ x.t()

    compiled = tatara.compile(program)
    try:
        for on in (True, False, True, True, False):
            torch.set_autocast_enabled("cpu", not on)
            assert compiled(X, on).dtype == (torch.bfloat16 if on else torch.float32)
            assert torch.is_autocast_enabled("cpu") == on
    finally:
        torch.set_autocast_enabled("cpu", False)


@pytest.mark.parametrize("scaled", [False, True])
def test_gradients(scaled: bool) -> None:
    net = _net()

    def program(x: Any) -> Any:
        return F.cross_entropy(net(x), Y)

    tatara.reset()
    compiled = tatara.compile(program, fullgraph=True)
    found = []
    for run in (program, compiled, compiled):
        net.zero_grad()
        with torch.autocast("cpu"):
            loss = run(X)
        (loss * 1024 if scaled else loss).backward()
        found.append([(p.grad.dtype, p.grad.clone()) for p in net.parameters()])
    for ours in found[1:]:
        for (dtype, grad), (expected_dtype, expected) in zip(ours, found[0]):
            assert dtype == expected_dtype
            # Gradients of the two layers are sums of bfloat16 products.
            torch.testing.assert_close(grad, expected, rtol=2**-7, atol=2**-7 * float(expected.abs().max()))
    assert tatara.stats()["fallbacks"] == 0


W = torch.linspace(-1, 1, 64).reshape(8, 8)
MADE_OF_OTHERS: dict[str, Callable[[Any], Any]] = {
    "product": lambda x: torch.einsum("ij,kj->ik", x, x),
    "batches": lambda x: torch.einsum("bij,bjk->bik", x.reshape(3, 2, 4), x.reshape(3, 4, 2)),
    "outer": lambda x: torch.einsum("i,j->ij", x[0], x[1]),
    "pointwise": lambda x: torch.einsum("ij,ij->ij", x, x),
    "dot": lambda x: torch.einsum("i,i->", x[0], x[1]),
    "three": lambda x: torch.einsum("ij,jk,lk->il", x, W, x),
    "half": lambda x: torch.einsum("ij,kj->ik", x.bfloat16(), x),
    "double": lambda x: torch.einsum("ij,kj->ik", x.double(), x.double()),
    "one": lambda x: torch.einsum("ij,kj->ik", x[:, :1], x[:, :1]),
    "tensordot": lambda x: torch.tensordot(x, W, dims=1),
    "inner": lambda x: torch.inner(x, x),
    "multi_dot": lambda x: torch.linalg.multi_dot([x, W, W]),
    "kron": lambda x: torch.kron(x[:2, :2], x),
    "summed alone": lambda x: torch.einsum("ij,kl->ik", x, x),
    "power": lambda x: torch.linalg.matrix_power(x[:, :3], 3),
    "no power": lambda x: torch.linalg.matrix_power(x[:, :3], 0) + x[:, :3],
    "similarity": lambda x: F.cosine_similarity(x, x.flip(0)),
    "blocks": lambda x: torch.block_diag(x, x[0], x.bfloat16()),
    "trapezoid": lambda x: torch.trapezoid(x, dx=0.5),
    "cumulative": lambda x: torch.cumulative_trapezoid(x.bfloat16()),
    "pairs": lambda x: torch.cartesian_prod(x[0], x[1]),
    "distances": lambda x: F.pdist(x),
    "transform": lambda x: torch.fft.ihfftn(x).real,
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", MADE_OF_OTHERS)
def test_made_of_others(name: str, grad: bool) -> None:
    """The host is asked what it casts inside of an operator that is made of others."""

    def program(x: Any) -> Any:
        with torch.autocast("cpu"):
            y = MADE_OF_OTHERS[name](x)
        return y, y.float().cos()

    run = tatara.compile(program)
    for _ in range(2):
        xs = [X.clone().requires_grad_(grad) for _ in range(2)]
        ours, eager = run(xs[0]), program(xs[1])
        for a, b in zip(ours, eager):
            assert (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad)
            torch.testing.assert_close(a, b, rtol=2**-7, atol=2**-7)
        if grad:
            ours[1].sum().backward()
            eager[1].sum().backward()
            torch.testing.assert_close(xs[0].grad, xs[1].grad, rtol=2**-5, atol=2**-5)
    assert tatara.stats()["breaks"] == 0


def test_what_it_calls_is_decided_by_sizes() -> None:
    def program(x: Any) -> Any:
        with torch.autocast("cpu"):
            return torch.einsum("ij,kj->ik", x, x)

    run = tatara.compile(program)
    for n in (4, 5, 1, 6, 0, 1):
        x = torch.randn(3, n)
        a, b = run(x), program(x)
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=2**-7, atol=2**-7)


def test_what_only_eager_knows_runs_under_autocast() -> None:
    """What such calls cast inside is torch's to say: it runs them with autocast on, between compiled parts."""

    def program(x: Any) -> Any:
        with torch.autocast("cpu"):
            return torch.linalg.pinv(x) @ F.bilinear(x, x, torch.ones(3, 8, 8))

    def with_gradients(x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.float16):
            power = torch.linalg.matrix_power(x, 3)
        return (power.float() * 2 + torch.cov(x)).sin().sum()

    run = tatara.compile(program, fullgraph=True)
    for _ in range(3):
        same(run(X), program(X))
    run = tatara.compile(with_gradients, fullgraph=True)
    for _ in range(3):
        a, b = (X[:, :3].detach().clone().requires_grad_() for _ in range(2))
        run(a).backward()
        with_gradients(b).backward()
        same(a.grad, b.grad)


def test_what_it_casts_is_known_of_these_sizes() -> None:
    """Few rows are compared one by one, many by a product, which is cast."""

    def program(x: Any) -> Any:
        with torch.autocast("cpu"):
            return torch.cdist(x, x)

    run = tatara.compile(program)
    for n in (4, 5, 40, 6, 41, 3):
        x = torch.randn(n, 7)
        a, b = run(x), program(x)
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=2**-9, atol=2**-9)
