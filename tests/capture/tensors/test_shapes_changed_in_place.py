"""Methods that change a tensor's shape in place: what the program then asks of it, also where sizes vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from results import same
from tatara.report._report import report_of

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.filterwarnings("ignore:An output with one or more")]

Tensor = torch.Tensor


def asked(y: Tensor) -> list[Any]:
    return [
        y,
        tuple(y.shape),
        y.dim(),
        len(y),
        y.size(0),
        y.numel(),
        y.stride(),
        torch.zeros(y.shape),
        y.view(y.shape) + 1,
    ]


CHANGES: dict[str, Callable[[Tensor], Any]] = {
    "unsqueeze_": lambda y: y.unsqueeze_(0),
    "squeeze_": lambda y: y.unsqueeze_(0).squeeze_(),
    "t_": lambda y: y.t_(),
    "transpose_": lambda y: y.transpose_(0, 1),
    "swapaxes_": lambda y: y.swapaxes_(0, 1),
    "resize_": lambda y: y.resize_(1, 2),
    "resize_as_": lambda y: y.resize_as_(torch.ones(1, 3)),
    "as_strided_": lambda y: y.as_strided_((2,), (1,)),
    "as_strided_ by a size": lambda y: y.as_strided_((y.size(0) - 1, 2), (1, 1)),
    "set_": lambda y: y.set_(y.clone()[0]),
    "data": lambda y: setattr(y, "data", y.clone()[0]),
    "out of another shape": lambda y: torch.add(torch.ones(5, 2), 1, out=y),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("own", [True, False])
def test_later_questions_see_the_new_shape(name: str, own: bool) -> None:
    def program(x: Tensor) -> list[Any]:
        y = x * 2 if own else x
        CHANGES[name](y)
        return asked(y)

    compiled = tatara.compile(program)
    for i in range(6):
        x = torch.rand(2 + i % 3, 3)
        ours, theirs = x.clone(), x.clone()
        same(compiled(ours), program(theirs))
        same(ours, theirs)


def flipped_views(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    row = y[0]
    y.t_()
    row.add_(1)
    return y, row


def flat_view(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    flat = y.view(-1)
    y.unsqueeze_(1)
    y.squeeze_(1)
    y.swapaxes_(0, 1)
    return flat, y


def written_behind(x: Tensor) -> Tensor:
    x.t_()
    x.add_(1)
    return x


def written_view(x: Tensor) -> Tensor:
    row = x[0]
    row.unsqueeze_(0)
    row.mul_(2)
    return row


def mask_of_lengths(x: Tensor) -> Tensor:
    lengths = (x > 0.5).sum(1)
    places = torch.arange(0, x.size(1))
    places.unsqueeze_(0)
    mask = places < lengths.unsqueeze_(-1)
    return x.masked_fill_(mask, 0)


def sizes_before(x: Tensor) -> tuple[int, int, torch.Size]:
    n = x.size(0)
    x.unsqueeze_(0)
    return n, x.size(1) + n, x.shape


def one_object(x: Tensor) -> tuple[bool, torch.Size]:
    items, found = [x.unsqueeze_(0)], {"x": x}
    return found["x"] is items[0], x.unsqueeze_(1).shape


def nothing_else(x: Tensor) -> None:
    x.transpose_(0, 1)


def number_as_index(x: Tensor) -> tuple[Tensor, Tensor]:
    place = torch.tensor([1])
    place.squeeze_()
    y = x * 1
    row = y[place]
    row.add_(1)
    return y, row


def counted(x: Tensor) -> tuple[int, int]:
    y = x * 2
    before = y._version
    y.unsqueeze_(0)
    return before, y._version


def of_the_host(x: Tensor) -> Tensor:
    y = x.sort(0)[0]
    y.t_()
    y.squeeze_()
    return y


PROGRAMS = [
    flipped_views,
    flat_view,
    written_behind,
    written_view,
    mask_of_lengths,
    sizes_before,
    one_object,
    nothing_else,
    number_as_index,
    counted,
    of_the_host,
]


def views(result: Any) -> list[bool]:
    return [t._is_view() for t in (result if isinstance(result, tuple) else (result,)) if isinstance(t, Tensor)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_one_graph_for_all_sizes(program: Callable[[Tensor], Any]) -> None:
    compiled = tatara.compile(program)
    for size in (2, 2, 3, 4, 5, 2):
        x = torch.rand(size, 3)
        ours, theirs = x.clone(), x.clone()
        found, wanted = compiled(ours), program(theirs)
        same(found, wanted)
        same(ours, theirs)
        assert ours._version == theirs._version
        assert views(found) == views(wanted)
    report = report_of(compiled)
    assert [b.reason for b in report.breaks] == []
    assert [g.fallback for g in report.graphs] == [""] * 2


def test_views_share_memory_with_what_has_changed() -> None:
    compiled = tatara.compile(flipped_views)
    for _ in range(3):
        whole, row = compiled(torch.rand(4, 3))
        row.zero_()
        assert whole[:, 0].eq(0).all()


def history(x: Tensor, weight: Tensor) -> Tensor:
    y = x @ weight
    y.unsqueeze_(0)
    return y * 2


def history_of_a_view(x: Tensor, weight: Tensor) -> Tensor:
    y = x @ weight
    row = y[0]
    y.t_()
    row.add_(1)
    return y * y


def argument_kept_for_gradients(x: Tensor, weight: Tensor) -> Tensor:
    x.unsqueeze_(0)
    return x @ weight


def kept_and_changed_later(x: Tensor, weight: Tensor) -> Tensor:
    y = (x @ weight).exp()
    y.t_()
    return y


@pytest.mark.parametrize("program", [history, history_of_a_view, argument_kept_for_gradients, kept_and_changed_later])
def test_gradients(program: Callable[[Tensor, Tensor], Tensor]) -> None:
    compiled = tatara.compile(program)

    def step(call: Callable[[Tensor, Tensor], Tensor], x: Tensor, weight: Tensor) -> Any:
        y = call(x, weight)
        try:
            y.sum().backward()
        except RuntimeError as error:
            return y.shape, str(error)[:70]  # what it keeps was changed
        return y, weight.grad

    for size in (2, 2, 3, 4):
        x = torch.rand(size, 3)
        ours, theirs = (torch.full((3, 3), 0.5, requires_grad=True) for _ in range(2))
        a, b = x.clone(), x.clone()
        same(step(compiled, a, ours), step(program, b, theirs))
        same(a, b)
    assert [b.reason for b in report_of(compiled).breaks] == []


def test_parameter_without_gradients() -> None:
    weights = [torch.full((3, 3), 0.5, requires_grad=True) for _ in range(2)]

    def program(weight: Tensor) -> Tensor | None:
        with torch.no_grad():
            weight.squeeze_(0)
        found, weight.grad = weight.grad, None
        return found

    compiled = tatara.compile(program)
    for _ in range(3):
        for weight in weights:
            weight.grad = torch.ones(3, 3)
        same(compiled(weights[0]), program(weights[1]))
        assert weights[0].grad is None


def test_an_error_takes_the_shape_back() -> None:
    def program(x: Tensor) -> Tensor:
        x.t_()
        if x.size(1) > 3:
            raise ValueError(x.shape)
        return x + 1

    compiled = tatara.compile(program)
    for size in (2, 3, 4, 2, 5):
        x = torch.rand(size, 3)
        ours, theirs = x.clone(), x.clone()
        found = []
        for call, given in ((compiled, ours), (program, theirs)):
            try:
                found.append(call(given))
            except ValueError as error:
                found.append(str(error))
        same(found[0], found[1])
        same(ours, theirs)


class TestVariable:
    """torch.autograd.Variable, which old programs make of tensors."""

    @pytest.mark.parametrize("flag", [None, False, True, "named"])
    def test_of_a_tensor_made_here(self, flag: Any) -> None:
        layer = torch.nn.Linear(3, 4)

        def program(x: Tensor) -> tuple[Tensor, bool, bool]:
            data = torch.ones(len(x), 3) * 2
            if flag is None:
                v = torch.autograd.Variable(data)
            elif flag == "named":
                v = torch.autograd.Variable(data, requires_grad=True)
            else:
                v = torch.autograd.Variable(data, flag)
            return layer(v * x), v.requires_grad, v.is_leaf

        compiled = tatara.compile(program)
        for size in (2, 2, 3, 4):
            x = torch.randn(size, 3)
            ours, theirs = compiled(x), program(x)
            same(ours, theirs)
            ours[0].sum().backward()
            found, layer.weight.grad = layer.weight.grad, None
            theirs[0].sum().backward()
            same(found, layer.weight.grad)
            layer.weight.grad = None

    def test_its_gradient(self) -> None:
        def program(x: Tensor) -> Tensor | None:
            v = torch.autograd.Variable(torch.zeros(x.size(0), 3), requires_grad=True)
            (v * x).sum().backward()
            return v.grad

        compiled = tatara.compile(program)
        for size in (2, 2, 3):
            x = torch.randn(size, 3)
            same(compiled(x), program(x))

    def test_of_an_argument_shares_its_memory(self) -> None:
        def program(x: Tensor) -> tuple[Tensor, bool]:
            v = torch.autograd.Variable(x)
            v += 1
            return v, v.requires_grad

        compiled = tatara.compile(program)
        for _ in range(3):
            ours, theirs = torch.zeros(3), torch.zeros(3)
            a, b = compiled(ours), program(theirs)
            same(a, b)
            same(ours, theirs)
            assert a[0].data_ptr() == ours.data_ptr()

    def test_states_of_a_cell(self) -> None:
        cell = torch.nn.LSTMCell(3, 4)

        def program(x: Tensor) -> Tensor:
            h = torch.autograd.Variable(cell.weight_hh.data.new(x.size(0), 4).zero_())
            return cell(x, (h, h))[0]

        compiled = tatara.compile(program)
        for size in (2, 3, 4, 2):
            x = torch.randn(size, 3)
            same(compiled(x), program(x))
