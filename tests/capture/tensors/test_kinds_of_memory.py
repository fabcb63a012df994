"""Arguments of all kinds after plain ones: guards read torch's own objects, and must see where one is not as others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import numpy as np
import tatara
from results import same


def _storage_and_back() -> torch.Tensor:
    x = torch.randn(3, 4)
    size = x.untyped_storage().nbytes()
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(size)
    return x.copy_(torch.randn(3, 4))


def _without_memory() -> torch.Tensor:
    x = torch.randn(0, 4)
    x.untyped_storage().resize_(0)
    return x


def _with_gradient() -> torch.Tensor:
    x = torch.randn(3, 4, requires_grad=True)
    x.sum().backward()
    return x


def _in_inference_mode() -> torch.Tensor:
    with torch.inference_mode():
        return torch.randn(3, 4)


def _set_to_other() -> torch.Tensor:
    return torch.randn(5).set_(torch.randn(40).untyped_storage(), 8, (3, 4), (4, 1))


# fmt: off
KINDS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.randn(3, 4),
    "offset": lambda: torch.randn(30)[7:19].view(3, 4),
    "transposed": lambda: torch.randn(4, 3).t(),
    "expanded": lambda: torch.randn(1, 4).expand(3, 4),
    "one number": lambda: torch.randn(()),
    "five dims": lambda: torch.randn(1, 3, 1, 4, 1),
    "seven dims": lambda: torch.randn(1, 3, 1, 2, 2, 1, 1).transpose(1, 3),
    "empty": lambda: torch.randn(0, 4),
    "empty in the middle": lambda: torch.randn(5, 4)[2:2],
    "no memory": _without_memory,
    "double": lambda: torch.randn(3, 4, dtype=torch.float64),
    "half": lambda: torch.randn(3, 4).half(),
    "bfloat16": lambda: torch.randn(3, 4).bfloat16(),
    "integers": lambda: torch.arange(12).view(3, 4),
    "bytes": lambda: torch.arange(12, dtype=torch.uint8).view(3, 4),
    "truth": lambda: torch.randn(3, 4) > 0,
    "complex": lambda: torch.randn(3, 4, dtype=torch.complex64),
    "conjugate": lambda: torch.randn(3, 4, dtype=torch.complex64).conj(),
    "imaginary of conjugate": lambda: torch.randn(3, 4, dtype=torch.complex64).conj().imag,
    "negative": lambda: torch._neg_view(torch.randn(3, 4)),
    "zeros without memory": lambda: torch._efficientzerotensor(3, 4),
    "lazy copy": lambda: torch._lazy_clone(torch.randn(3, 4)),
    "float8": lambda: torch.randn(3, 4).to(torch.float8_e5m2),
    "of NumPy": lambda: torch.from_numpy(np.random.default_rng(0).random((3, 4), dtype=np.float32)),
    "shared": lambda: torch.randn(3, 4).share_memory_(),
    "inference": _in_inference_mode,
    "wants gradients": lambda: torch.randn(3, 4, requires_grad=True),
    "with gradient": _with_gradient,
    "parameter": lambda: torch.nn.Parameter(torch.randn(3, 4)),
    "buffer": lambda: torch.nn.Buffer(torch.randn(3, 4)),
    "with history": lambda: torch.randn(3, 4, requires_grad=True) * 2,
    "detached": lambda: (torch.randn(3, 4, requires_grad=True) * 2).detach(),
    "storage and back": _storage_and_back,
    "set to other": _set_to_other,
    "meta": lambda: torch.empty(3, 4, device="meta"),
    "sparse": lambda: torch.eye(4)[:3].to_sparse(),
    "quantised": lambda: torch.quantize_per_tensor(torch.randn(3, 4), 0.1, 3, torch.quint8),
}
# fmt: on


def _outcome(fn: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    try:
        return fn(x)
    except Exception as error:
        return type(error)


def _read(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def _write(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        x.add_(1)
    return x + 1


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("program", [_read, _write])
@pytest.mark.parametrize("name", KINDS)
def test_each_kind_after_plain_ones(name: str, program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    compiled = tatara.compile(program)
    for kind in ("plain", "plain", name, name, "plain"):
        torch.manual_seed(1)
        x = KINDS[kind]()
        torch.manual_seed(1)
        y = KINDS[kind]()
        ours, theirs = _outcome(compiled, x), _outcome(program, y)
        same(ours, theirs)
        if x.layout == torch.strided and not x.is_quantized and not x.is_meta:
            same(x.detach().clone(), y.detach().clone())


@pytest.mark.usefixtures("fresh")
def test_a_write_to_a_lazy_copy_leaves_the_original() -> None:
    compiled = tatara.compile(_write)
    for _ in range(2):
        compiled(torch.randn(3, 4))
    original = torch.randn(3, 4)
    before = original.tolist()
    copy = torch._lazy_clone(original)
    compiled(copy)
    assert original.tolist() == before
    second = torch._lazy_clone(original)
    compiled(original)
    assert second.tolist() == before


@pytest.mark.usefixtures("fresh")
def test_guards_of_plain_tensors_make_no_call_of_torch() -> None:
    """The reading of words is at work at all: a kind of tensor is asked for once."""
    compiled = tatara.compile(_read)
    x = torch.randn(3, 4)
    compiled(x)
    before = tatara.stats()["tensors_asked"]
    for _ in range(5):
        compiled(x)
    assert tatara.stats()["tensors_asked"] == before
