"""Methods that change a tensor's shape in place: what the program then asks of it, also where sizes vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from results import same

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
