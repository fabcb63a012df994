"""Attention that trains on a GPU: eager's kernels, with eager's numbers, masks and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs an NVIDIA GPU", allow_module_level=True)
from torch.nn.functional import dropout, scaled_dot_product_attention  # noqa: E402

import tatara  # noqa: E402

HALF = torch.float16


def _normal(*sizes: int) -> Any:
    generator = torch.Generator("cuda").manual_seed(sum(sizes))
    return torch.randn(sizes, device="cuda", dtype=HALF, generator=generator)


QUERY, KEY, VALUE = (_normal(2, 4, length, 64) for length in (128, 144, 144))
BIAS, ODD_BIAS = _normal(1, 4, 128, 144), _normal(1, 4, 128, 123)
SEEN = torch.rand(2, 1, 128, 144, device="cuda", generator=torch.Generator("cuda").manual_seed(0)) > 0.3
attend = scaled_dot_product_attention

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "plain": (lambda q, k, v, p: attend(q, k, v, dropout_p=p), (QUERY, KEY, VALUE)),
    "causal": (lambda q, k, v, p: attend(q, k, v, dropout_p=p, is_causal=True), (QUERY, QUERY * 2, QUERY + 1)),
    "scaled": (lambda q, k, v, p: attend(q, k, v, dropout_p=p, scale=0.3), (QUERY, KEY, VALUE)),
    "bias": (lambda q, k, v, m, p: attend(q, k, v, m, dropout_p=p), (QUERY, KEY, VALUE, BIAS)),
    "permuted bias": (
        lambda q, k, v, m, p: attend(q, k, v, m.transpose(2, 3), dropout_p=p),
        (QUERY, KEY, VALUE, BIAS.transpose(2, 3).contiguous()),
    ),
    "odd bias": (
        lambda q, k, v, m, p: attend(q, k[:, :, :123], v[:, :, :123], m, dropout_p=p),
        (QUERY, KEY, VALUE, ODD_BIAS),
    ),
    "mask": (lambda q, k, v, m, p: attend(q, k, v, m, dropout_p=p), (QUERY, KEY, VALUE, SEEN)),
    "grouped": (
        lambda q, k, v, p: attend(q, k, v, dropout_p=p, enable_gqa=True),
        (QUERY, KEY[:, :2].contiguous(), VALUE[:, :2].contiguous()),
    ),
    "float32": (lambda q, k, v, p: attend(q.float(), k.float(), v.float(), dropout_p=p), (QUERY, KEY, VALUE)),
    "heads inside": (
        lambda q, k, v, p: attend(*(x.transpose(1, 2) for x in (q, k, v)), dropout_p=p).transpose(1, 2) * 2,
        tuple(x.transpose(1, 2).contiguous() for x in (QUERY, KEY, VALUE)),
    ),
    "more random numbers": (lambda q, k, v, p: dropout(attend(q, k, v, dropout_p=p), 0.3), (QUERY, KEY, VALUE)),
    "between products": (
        lambda q, k, v, p: (attend(q * 2, k + 1, v, dropout_p=p) @ v.transpose(2, 3)).float().sin(),
        (QUERY, KEY, VALUE),
    ),
}


def _run(function: Callable[..., Any], inputs: tuple[Any, ...], p: float) -> tuple[list[Any], Any]:
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    torch.manual_seed(7)
    result = function(*leaves, p)
    result.backward(torch.ones_like(result) * 0.1)
    return [result.detach(), *(leaf.grad for leaf in leaves)], torch.cuda.get_rng_state()


@pytest.mark.parametrize("p", [0.0, 0.2])
@pytest.mark.parametrize("name", CASES)
def test_as_in_eager(name: str, p: float) -> None:
    function, inputs = CASES[name]
    expected, state = _run(function, inputs, p)
    compiled = tatara.compile(function)
    for turn in range(5):  # of which the last may be CUDA graphs
        actual, own_state = _run(compiled, inputs, p)
        assert torch.equal(own_state, state)
        for place, (ours, theirs) in enumerate(zip(actual, expected)):
            assert (ours is None) == (theirs is None)
            if theirs is None:
                continue
            assert ours.dtype == theirs.dtype
            # Eager's kernel for a bias that wants a gradient lays its result out otherwise.
            assert ours.stride() == theirs.stride() or ("bias" in name and place == 0)
            error = (ours.float() - theirs.float()).norm() / (theirs.float().norm() + 1e-6)
            assert error.item() < 1e-2, (turn, place)
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    report = str(tatara.explain(function)(*leaves, p))
    assert "in eager" not in report and "to eager" not in report, report


def test_products_with_odd_rows() -> None:
    weight, x = _normal(5025, 256), _normal(2048, 256)

    def function(x: Any, weight: Any) -> Any:
        return torch.log_softmax((x @ weight.t()).float(), -1)[:, ::7].mean()

    results = []
    for run in (function, tatara.compile(function)):
        leaves = [t.clone().requires_grad_() for t in (x, weight)]
        value = run(*leaves)
        value.backward()
        results.append([value.detach(), *(leaf.grad for leaf in leaves)])
    for ours, theirs in zip(results[1], results[0]):
        assert ours.stride() == theirs.stride()
        error = (ours.float() - theirs.float()).norm() / (theirs.float().norm() + 1e-6)
        assert error.item() < 1e-2
