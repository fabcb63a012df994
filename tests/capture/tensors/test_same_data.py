"""Conversions of modules inside of compiled code (`to`, `float`, `type`), and `tensor.data = ...`: without a break where they
change nothing, and as in eager where they do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402


class Block(torch.nn.Module):
    """A module that converts itself and one of its own before it uses them."""

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, bias=False), torch.nn.BatchNorm2d(4))
        self.scale = torch.nn.Parameter(torch.linspace(0.5, 1.5, 4))
        self.register_buffer("offset", torch.linspace(-1, 1, 4))
        self.register_buffer("count", torch.arange(3))
        self.register_buffer("none", None)
        self.convert = convert

    def forward(self, x: Any) -> Any:
        self.inner = self.convert(self.inner)
        self.convert(self)
        x = x.to(self.scale.dtype)
        y = self.inner(x).mean((2, 3)) * self.scale + self.offset
        return torch.relu(y) + self.count.sum()


CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "to dtype": lambda m: m.to(torch.float32),
    "to keyword": lambda m: m.to(dtype=torch.float32, non_blocking=True),
    "to text": lambda m: m.to("cpu"),
    "to device": lambda m: m.to(torch.device("cpu"), torch.float32),
    "to nothing": lambda m: m.to(),
    "to tensor": lambda m: m.to(next(m.parameters())),
    "to result": lambda m: m.to(next(m.parameters()) * 2),
    "float": lambda m: m.float(),
    "type": lambda m: m.type(torch.float32),
    "type text": lambda m: m.type("torch.FloatTensor"),
    "cpu": lambda m: m.cpu(),
    "chained": lambda m: m.to("cpu").float().type(torch.float32).cpu(),
}
CHANGES: dict[str, Callable[[Any], Any]] = {
    "double": lambda m: m.double(),
    "to": lambda m: m.to(torch.float64),
    "bfloat16": lambda m: m.to(torch.bfloat16),
    "type": lambda m: m.type(torch.float64),
    "format": lambda m: m.to(memory_format=torch.channels_last),
    "there and back": lambda m: m.double().float(),
}


def state(model: Any) -> list[tuple[Any, ...]]:
    rows = []
    for name, t in [*model.named_parameters(), *model.named_buffers()]:
        rows.append((name, t.dtype, t.stride(), t.requires_grad, t.is_leaf, t._version, t.grad is None))
    return rows


def made(convert: Callable[[Any], Any], gradients: bool) -> Any:
    torch.manual_seed(0)
    model = Block(convert)
    for p in model.parameters():
        p.grad = torch.ones_like(p) if gradients else None
    return model


def alike(ours: Any, model: Any) -> None:
    assert state(ours) == state(model)
    for (_, a), (_, b) in zip(ours.state_dict().items(), model.state_dict().items(), strict=True):
        torch.testing.assert_close(a, b)
    for a, b in zip(ours.parameters(), model.parameters(), strict=True):
        loose = {"rtol": 0.1, "atol": 0.01} if b.dtype == torch.bfloat16 else {}
        torch.testing.assert_close(a.grad, b.grad, **loose)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", CONVERSIONS)
def test_a_conversion_that_changes_nothing_is_no_break(name: str, gradients: bool, train: bool) -> None:
    x = torch.randn(2, 3, 5, 5)
    model, ours = (made(CONVERSIONS[name], gradients) for _ in range(2))
    objects = [*ours.parameters(), *(p.grad for p in ours.parameters())]
    places = [None if p is None else p.data_ptr() for p in objects]
    run = tatara.compile(ours)
    with torch.set_grad_enabled(train):
        for _ in range(3):
            expected, result = model(x), run(x)
            torch.testing.assert_close(result, expected)
            if train:
                expected.sum().backward()
                result.sum().backward()
            alike(ours, model)
        after = [*ours.parameters(), *(p.grad for p in ours.parameters())]
        if gradients:
            assert all(a is b for a, b in zip(objects, after, strict=True))
            assert places == [p.data_ptr() for p in after]
        report = tatara.explain(made(CONVERSIONS[name], gradients))(x)
    assert not report.breaks and len(report.graphs) == 1, report.breaks


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_a_conversion_that_changes_parameters(name: str, gradients: bool, train: bool) -> None:
    x = torch.randn(2, 3, 5, 5)
    model, ours = (made(CHANGES[name], gradients) for _ in range(2))
    run = tatara.compile(ours)
    with torch.set_grad_enabled(train):
        for _ in range(4):
            expected, result = model(x), run(x)
            assert (result.dtype, result.stride()) == (expected.dtype, expected.stride())
            torch.testing.assert_close(result, expected)
            if train:
                expected.sum().backward()
                result.sum().backward()
            alike(ours, model)
        report = tatara.explain(ours)(x)
        model(x)
    if name != "there and back":  # the first call has changed them
        assert not report.breaks and len(report.graphs) == 1, report.breaks
    alike(ours, model)


def test_parameters_that_others_convert_between_calls() -> None:
    x = torch.randn(2, 3, 5, 5)
    model, ours = (made(CONVERSIONS["to dtype"], False) for _ in range(2))
    run = tatara.compile(ours)
    for convert in (lambda m: m, lambda m: m.half(), lambda m: m.inner.double(), lambda m: m.to(torch.float32)):
        for m in (model, ours):
            convert(m)
        expected, result = model(x), run(x)
        assert result.dtype == expected.dtype
        torch.testing.assert_close(result, expected)
        alike(ours, model)


def test_integers_are_refused_as_in_eager() -> None:
    x = torch.randn(2, 3, 5, 5)
    run = tatara.compile(made(lambda m: m.to(torch.int64), False))
    for _ in range(2):
        with pytest.raises(TypeError, match="only accepts floating point"):
            run(x)


def _overwrite(flag: bool) -> Any:
    torch.__future__.set_overwrite_module_params_on_conversion(flag)


@pytest.mark.parametrize("name", ["to dtype", "float"])
def test_conversions_that_make_new_parameters(name: str) -> None:
    x = torch.randn(2, 3, 5, 5)
    _overwrite(True)
    try:
        model, ours = (made(CONVERSIONS[name], True) for _ in range(2))
        run = tatara.compile(ours)
        for _ in range(3):
            before = [list(m.parameters()) for m in (model, ours)]
            torch.testing.assert_close(run(x), model(x))
            alike(ours, model)
            after = [list(m.parameters()) for m in (model, ours)]
            same = [[a is b for a, b in zip(*each, strict=True)] for each in zip(before, after, strict=True)]
            assert same[0] == same[1]
    finally:
        _overwrite(False)


# ---- tensor.data = ... ---------------------------------------------------------------------------------------------------
def _itself(p: Any) -> None:
    p.data = p


def _data(p: Any) -> None:
    p.data = p.data


def _detached(p: Any) -> None:
    p.data = p.detach().data.detach()


def _converted(p: Any) -> None:
    p.data = p.data.to(torch.float32).contiguous()


def _written(p: Any) -> None:
    d = p.data
    d.mul_(0.5)
    p.data = d


def _doubled(p: Any) -> None:
    p.data = p.data * 2


def _copied(p: Any) -> None:
    p.data = p.data.clone()


def _turned(p: Any) -> None:
    p.data = p.data.t()


def _turned_in_place(p: Any) -> None:
    d = p.data
    d.t_()
    p.data = d


def _turned_itself(p: Any) -> None:
    d = p.data
    d.mul_(1.5)
    with torch.no_grad():
        p.t_()
    p.data = d


def _other_memory(p: Any) -> None:
    d = p.data
    p.data = p.data * 3
    p.data = d


def _of_another(p: Any) -> None:
    p.data = torch.ones(4, 4)


KEPT = [_itself, _data, _detached, _converted, _written]
MOVED = [_doubled, _copied, _turned, _turned_in_place, _turned_itself, _other_memory, _of_another]


@pytest.mark.parametrize("mode", ["train", "no_grad", "inference"])
@pytest.mark.parametrize("place", ["parameter", "argument", "result"])
@pytest.mark.parametrize("change", KEPT + MOVED)
def test_assignments_to_data(change: Callable[[Any], None], place: str, mode: str) -> None:
    def program(p: Any, x: Any) -> Any:
        y = torch.tanh(x @ p)
        t = {"parameter": p, "argument": x, "result": y}[place]
        change(t)
        return y * 2 + x @ p, t

    def rows(run: Any) -> list[Any]:
        torch.manual_seed(1)
        p, x = torch.nn.Parameter(torch.randn(4, 4)), torch.randn(4, 4)
        found: list[Any] = []
        for _ in range(3):
            first, second = p.data_ptr(), x.data_ptr()
            result, t = run(p, x)
            facts = (t.stride(), t.requires_grad, t is p, t is x, p.data_ptr() == first, x.data_ptr() == second)
            found.append((facts, result.detach().clone(), t.detach().clone(), p.detach().clone(), x.clone()))
            versions = () if t.is_inference() else (p._version, x._version)
            found.append(versions)
            if result.requires_grad:
                try:
                    result.sum().backward()
                except RuntimeError as error:
                    found.append(str(error)[:40])
                found.append(p.grad.clone() if p.grad is not None else None)
        return found

    modes = {"train": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}
    with modes[mode]():
        expected, result = rows(program), rows(tatara.compile(program))
        report = tatara.explain(program)(torch.nn.Parameter(torch.randn(4, 4)), torch.randn(4, 4))
    assert len(result) == len(expected)
    for ours, theirs in zip(result, expected, strict=True):
        if isinstance(theirs, tuple) and theirs and isinstance(theirs[0], tuple):
            assert ours[0] == theirs[0]
            torch.testing.assert_close(ours[1:], theirs[1:])
        elif isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(ours, theirs)
        else:
            assert ours == theirs
    if change in KEPT:
        assert not report.breaks, report.breaks
