"""Forward derivatives of calls that have no rule of ours: the host's own, of that one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402

import tatara  # noqa: E402
from results import same  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


def _complex(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.complex128)


def _floats(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.float64)


CALLS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "addr": (torch.addr, lambda: (_complex(3, 4), _complex(3), _complex(4))),
    "eig": (lambda x: torch.linalg.eig(x)[0].abs(), lambda: (_floats(3, 3) + 5 * torch.eye(3).double(),)),
    "sgn": (torch.sgn, lambda: (_floats(5),)),
    "logsumexp": (lambda x: torch.logsumexp(x, 1), lambda: (_complex(3, 4),)),
    "sinc": (torch.sinc, lambda: (_complex(5),)),
    "lerp by a number": (lambda x, y: torch.lerp(x, y, 0.3), lambda: (_complex(5), _complex(5))),
    "lerp": (torch.lerp, lambda: (_complex(5), _complex(5), _complex(5))),
    "logcumsumexp": (lambda x: torch.logcumsumexp(x, 0), lambda: (_complex(5),)),
    "logaddexp": (torch.logaddexp, lambda: (_complex(5), _complex(5))),
    "rms_norm": (lambda x: torch.nn.functional.rms_norm(x, (4,)), lambda: (_complex(3, 4),)),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_jvp(name: str) -> None:
    call, make = CALLS[name]

    def pushed(primals: Any, tangents: Any) -> Any:
        return torch.func.jvp(lambda *a: call(*a) * 2, primals, tangents)

    compiled = tatara.compile(pushed)
    for seed in range(3):
        torch.manual_seed(seed)
        primals, tangents = make(), make()
        same(list(compiled(primals, tangents)), list(pushed(primals, tangents)))
    assert compiled._report()["breaks"] == []
    assert tatara.stats()["fallbacks"] == 0


@pytest.mark.parametrize("name", list(CALLS))
def test_gradients(name: str) -> None:
    call, make = CALLS[name]
    compiled = tatara.compile(lambda *a: call(*a) * 2)
    for seed in range(3):
        torch.manual_seed(seed)
        given = make()
        mine, own = ([x.clone().requires_grad_() for x in given] for _ in range(2))
        got, want = compiled(*mine), call(*own) * 2
        weight = torch.randn_like(want)
        (got * weight).abs().sum().backward()
        (want * weight).abs().sum().backward()
        same([got.detach(), *(x.grad for x in mine)], [want.detach(), *(x.grad for x in own)])


@pytest.mark.parametrize("name", [n for n in CALLS if n != "eig"])
def test_vmap(name: str) -> None:
    call, make = CALLS[name]
    compiled = tatara.compile(torch.vmap(call))
    for seed in range(3):
        torch.manual_seed(seed)
        batch = [torch.stack(each) for each in zip(make(), make(), strict=True)]
        same([compiled(*batch)], [torch.vmap(call)(*batch)])


WHOLE_LEVELS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "padding": (lambda x: F.pad(x, (-1, 2), mode="replicate"), lambda: (_floats(2, 3, 6),)),
    "strides": (lambda x: x.as_strided((2, 2), (1, 2), 1) * 2, lambda: (_floats(3, 4),)),
    "one of a product": (lambda x: torch.cartesian_prod(x) * 2, lambda: (_floats(4),)),
    "one of a sum": (lambda x: torch.einsum("ij->ji", x).sin(), lambda: (_floats(3, 4),)),
    "antialias": (
        lambda x: F.interpolate(x, size=(3, 3), mode="bilinear", antialias=True),
        lambda: (_floats(1, 2, 6, 6),),
    ),
    "channels dropped": (lambda x: F.dropout2d(x, 0.5), lambda: (_floats(2, 6, 3, 3),)),
    "alpha": (lambda x: F.alpha_dropout(x, 0.5, training=True), lambda: (_floats(6, 6),)),
    "zeros": (lambda x: (x * 2).zero_() + x, lambda: (_floats(4),)),
}


@pytest.mark.parametrize("name", list(WHOLE_LEVELS))
def test_levels_run_by_torch(name: str) -> None:
    """Where a level has no graph, torch runs that level, and what is around it is compiled."""
    call, make = WHOLE_LEVELS[name]

    def pushed(x: Any, t: Any) -> Any:
        y = (x.sin() * x + 1).cos()
        primal, tangent = torch.func.jvp(call, (y,), (t * 2,))
        return (primal * tangent + 1).sin(), primal, tangent

    def outcome(run: Any) -> list[Any]:
        results: list[Any] = []
        for seed in (0, 1, 2):
            torch.manual_seed(seed)
            (x,), (t,) = make(), make()
            made = run(x, t)
            results += [*made, torch.get_rng_state(), x, t]
            results += [torch.tensor(each.stride()) for each in made]
        return results

    compiled = tatara.compile(pushed)
    same(outcome(compiled), outcome(pushed))
    assert compiled._report()["breaks"] == []
    assert all(not entry["fallback"] for entry in compiled._report()["entries"])


def test_tangents_that_are_not_there() -> None:
    """What has no tangent in eager, or another one than was expected, is eager's."""
    calls: list[Callable[[Any], Any]] = [
        lambda x: F.pad(x, (-1, 2), mode="replicate").detach(),
        lambda x: F.pad(x, (-1, 2), mode="replicate").round(),
        lambda x: torch.nextafter(x, x + 1),
    ]
    for call in calls:

        def pushed(x: Any, t: Any, call: Callable[[Any], Any] = call) -> Any:
            return torch.func.jvp(call, (x * 2,), (t,))

        compiled = tatara.compile(pushed)
        for _ in range(3):
            x, t = _floats(2, 3, 6), _floats(2, 3, 6)
            results = []
            for run in (compiled, pushed):
                try:
                    results.append(list(run(x, t)))
                except (RuntimeError, NotImplementedError) as error:
                    results.append([str(error)])
            if isinstance(results[1][0], str):
                assert results[0] == results[1]
            else:
                same(results[0], results[1])


def test_beside_gradients_and_other_levels() -> None:
    def nested(x: Any, t: Any) -> Any:
        def inner(y: Any) -> Any:
            return torch.func.jvp(lambda z: F.pad(z, (-1, 2), mode="replicate") ** 2, (y,), (t,))[1]

        return torch.func.jvp(inner, (x,), (t,))

    def trained(x: Any, t: Any) -> Any:
        return torch.func.jvp(lambda z: F.pad(z, (-1, 2), mode="replicate") ** 2, (x,), (t,))

    for function, grad in ((nested, False), (trained, True)):
        compiled = tatara.compile(function)
        for seed in range(3):
            torch.manual_seed(seed)
            x, t = _floats(2, 3, 6), _floats(2, 3, 6)
            found = []
            for run in (compiled, function):
                mine = x.clone().requires_grad_(grad)
                made = run(mine, t)
                if grad:
                    sum(m.sum() for m in made).backward()
                found.append([*(m.detach() for m in made), *([mine.grad] if grad else [])])
            same(found[0], found[1])
