"""Conversions between arrays and tensors in compiled programs: errors, warnings, views, sizes, gradients, and what breaks graphs."""

from __future__ import annotations

from typing import Any

import pytest

import numpy as np

torch = pytest.importorskip("torch")

from test_mixed_programs import flat, same, sharing  # noqa: E402

import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


def outcome(function: Any, *args: Any) -> Any:
    try:
        return flat(function(*args))
    except Exception as error:
        return [type(error), str(error)]


def compare(program: Any, *makers: Any, breaks: int | None = 0) -> None:
    compiled = tatara.compile(program)
    for _ in range(3):
        want, got = (outcome(function, *[make() for make in makers]) for function in (program, compiled))
        assert len(want) == len(got)
        for w, g in zip(want, got, strict=True):
            same(w, g)
        assert sharing(want) == sharing(got)
    if breaks is not None:
        assert tatara.stats()["breaks"] == breaks


def four() -> Any:
    return torch.rand(4, generator=torch.Generator().manual_seed(5))


def leaf() -> Any:
    return four().requires_grad_()


def refused_with_gradients(w: Any) -> Any:
    return (w * 2).numpy()


def refused_conjugate(x: Any) -> Any:
    return (x * 1j).conj().numpy()


def refused_bfloat16(x: Any) -> Any:
    return x.bfloat16().numpy()


def caught_bfloat16(x: Any) -> Any:
    try:
        return x.bfloat16().numpy()
    except TypeError as error:
        return str(error)


def negative_strides(x: Any) -> Any:
    return torch.from_numpy(x.numpy()[::-1])


def not_a_type_of_torchs(x: Any) -> Any:
    return torch.from_numpy(np.array(["a"])), x


def sum_of_a_tensor(x: Any) -> Any:
    return np.sum(x)


def array_plus_tensor(x: Any) -> Any:
    return np.ones(4) + x


def singular(x: Any) -> Any:
    return np.linalg.inv(np.zeros((2, 2)) * x[0].numpy())


ERRORS = [
    (refused_with_gradients, leaf),
    (refused_conjugate, four),
    (refused_bfloat16, four),
    (caught_bfloat16, four),
    (negative_strides, four),
    (not_a_type_of_torchs, four),
    (sum_of_a_tensor, four),
    (array_plus_tensor, four),
    (singular, four),
]


@pytest.mark.parametrize(("program", "make"), ERRORS)
def test_errors_are_eagers(program: Any, make: Any) -> None:
    compare(program, make, breaks=None)


def all_kinds_of_arrays(x: Any) -> Any:
    return (
        [x.numpy(), x.numpy(force=True), np.asarray(x), np.array(x), np.asarray(x, dtype=np.float64)],
        [x.__array__(np.float64), np.stack([x, x]), np.array([x[0], x[1]]), np.float64(2.5) * x],
    )


def all_kinds_of_tensors(x: Any) -> Any:
    a = x.numpy() * 2
    return (
        [torch.from_numpy(a), torch.as_tensor(a), torch.tensor(a), torch.asarray(a), torch.Tensor(a)],
        [torch.as_tensor(a, dtype=torch.float64), torch.tensor([np.mean(a), 2.0]), x + np.ones(4)],
    )


def numbers_of_arrays(x: Any) -> Any:
    s = np.std(x.numpy())
    return x / s, x * s + 1, torch.mul(x, s), float(s), s.item(), x.numpy().max().item() * 2


def forced(w: Any) -> Any:
    return w.numpy(force=True), (w * 2).sum()


@pytest.mark.parametrize("program", [all_kinds_of_arrays, all_kinds_of_tensors, numbers_of_arrays])
def test_conversions_are_part_of_the_graph(program: Any) -> None:
    compare(program, four)


def test_an_array_of_a_leaf_by_force() -> None:
    compare(forced, leaf)


@pytest.mark.parametrize("decides", ["mask", "number", "int", "list", "index"])
def test_what_elements_decide_is_eagers(decides: str) -> None:
    def program(x: Any) -> Any:
        a = x.numpy()
        if decides == "mask":
            return x[a > 0.5], a[a > 0.5], np.where(a > 0.5)[0]
        if decides == "number":
            return x * 2 if a.mean() > 0.3 else x * 3
        if decides == "int":
            return int(a.sum()), x[: int(a.sum())]
        if decides == "list":
            return a.tolist(), x + 1
        return x[np.argmax(a)], x[np.argsort(a)[0]]

    compare(program, four, breaks=None)


def test_sizes_that_vary_do_not_use_up_entries() -> None:
    layer = torch.nn.Linear(8, 8)

    def program(x: Any) -> Any:
        with torch.no_grad():
            y = layer(x).relu().softmax(-1)
        return y.numpy() * 2

    compiled = tatara.compile(program)
    for n in range(3, 20):
        x = torch.rand(n, 8)
        np.testing.assert_allclose(compiled(x), program(x), rtol=1e-5)
    assert tatara.stats()["recompiles"] <= 2 and tatara.stats()["fallbacks"] == 0


def test_writes_before_and_after_arrays_are_in_order() -> None:
    def program(x: Any, a: Any) -> Any:
        y = x + 1
        view = y.numpy()
        before = y.sum()
        view *= 2
        between = y.sum()
        y.add_(1)
        after = view.sum()
        t = torch.from_numpy(a)
        t[1:] = 7
        a[0] = before.numpy()
        return before, between, after, y, view, t, a

    compare(program, four, lambda: np.zeros(3, dtype=np.float32))


def test_gradients_around_arrays() -> None:
    def program(w: Any, x: Any) -> Any:
        h = torch.tanh(x @ w)
        scale = 1 / (1 + np.abs(h.detach().numpy()).max())
        loss = (h * torch.from_numpy(np.linspace(0, 1, 6, dtype=np.float32))).sum() * float(scale)
        return loss, h.detach().numpy()

    compiled = tatara.compile(program)
    for _ in range(3):
        gradients = []
        for function in (program, compiled):
            w = torch.linspace(-1, 1, 4).requires_grad_()
            x = torch.rand(6, 4, generator=torch.Generator().manual_seed(2))
            loss, h = function(w, x)
            loss.backward()
            gradients.append((w.grad, loss.detach(), torch.from_numpy(h)))
        for w, g in zip(*gradients, strict=True):
            torch.testing.assert_close(g, w)
    assert tatara.stats()["breaks"] == 0


def test_the_report_names_what_runs_by_itself() -> None:
    def program(x: Any) -> Any:
        return torch.from_numpy(np.linalg.eigvals(np.outer(x.numpy(), x.numpy()))) * 2

    report = tatara.explain(program)(four())
    assert report.breaks == []
    text = str(report)
    assert "numpy" in text and "between arrays and tensors" in text and "eigvals" in text


def test_a_mode_of_the_program_and_a_backend_break_as_before() -> None:
    seen = []

    def backend(graph: Any, examples: Any) -> Any:
        seen.append(str(graph))
        return graph

    def program(x: Any) -> Any:
        return torch.from_numpy((x * 2).numpy() + 1) * 3

    compiled = tatara.compile(program, backend=backend)
    for _ in range(2):
        torch.testing.assert_close(compiled(four()), program(four()))
    assert seen


def test_inside_of_a_batch_and_of_a_derivative() -> None:
    def inner(x: Any) -> Any:
        return (x * torch.from_numpy(np.arange(4.0, dtype=np.float32))).sum()

    def program(x: Any) -> Any:
        return torch.func.grad(inner)(x), x.numpy() + 1

    compare(program, four, breaks=None)
