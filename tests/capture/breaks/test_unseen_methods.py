"""Methods of tensors that no mode for torch functions sees: they run in eager, between graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.overrides import TorchFunctionMode  # noqa: E402

import tatara  # noqa: E402


class Seen(Exception):
    pass


class Stops(TorchFunctionMode):  # type: ignore[misc]
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Seen


def _arguments() -> list[tuple[Any, ...]]:
    t = torch.ones(2)
    index, mask = torch.tensor([0, 1]), torch.tensor([True, False])
    return [
        (), (t,), (1,), (None,), (t.untyped_storage(),), (t, t), (0, t), (0, 1), ((2,),), ((2,), (1,)), (torch.Tensor,),
        (0, 0, 1), (0, index, t), (0, index), (0, index, 1.0), ((index,), t), ((index,),), (t, 0.5), (mask, t),
        (mask, 1.0), (index, t), ((2,), 1.0), ((2,), 2, 0), (t, 0, 0), (0, (1, 2)), ([1, 1],), (1, 0, 1.0),
        (0, index, t, "sum"), (True, True, torch.bfloat16, torch.bfloat16), (t, lambda a, b: a),
    ]  # fmt: skip


def _unseen() -> list[str]:
    """Methods in C that gave something, other than "not implemented", without a call of the mode."""
    found = []
    for name, method in vars(torch._C.TensorBase).items():
        if type(method).__name__ not in ("method_descriptor", "wrapper_descriptor"):
            continue
        for args in _arguments():
            tensor, result = torch.ones(2), NotImplemented
            try:
                with Stops():
                    result = getattr(tensor, name)(*args)
            except (Seen, TypeError, RuntimeError, ValueError, IndexError, AttributeError, NotImplementedError):
                continue
            if result is not NotImplemented:
                found.append(name)
                break
    return found


def test_no_unseen_method_of_the_host_becomes_part_of_a_graph() -> None:
    found = _unseen()
    assert {"set_", "as_subclass", "_use_count"} <= set(found)
    for name in found:

        def asks(x: Any, name: str = name) -> Any:
            y = x + 1
            method = getattr(y, name)
            try:
                method()
            except (TypeError, RuntimeError):
                pass
            return x + 2

        compiled = tatara.compile(asks)
        compiled(torch.ones(2))
        reasons = [entry.get("why") or "" for entry in compiled._report()["entries"]]
        assert any(name in str(reason) for reason in reasons), (name, reasons)


def _nothing(b: Any, o: Any) -> Any:
    b.set_()
    return b


def _other(b: Any, o: Any) -> Any:
    b.set_(o)
    return b + 1


def _storage(b: Any, o: Any) -> Any:
    b.set_(o.untyped_storage(), 1, (2,), (1,))
    return b * 2


def _then_data(b: Any, o: Any) -> Any:
    b.set_()
    b.data = o.t()
    return b + o.sum()


def _unbound(b: Any, o: Any) -> Any:
    torch.Tensor.set_(b, o)
    return b + 1


def _bound(b: Any, o: Any) -> Any:
    method = b.set_
    method(*[o])
    return b + 1


def _made(b: Any, o: Any) -> Any:
    b, o = b + 1, o * 2
    b.set_(o)
    return b + 1


def _partial(b: Any, o: Any) -> Any:
    functools.partial(b.set_, o)()
    return b + 1


def _mapped(b: Any, o: Any) -> Any:
    list(map(torch.Tensor.set_, [b], [o]))
    return b + 1


PROGRAMS = [_nothing, _other, _storage, _then_data, _unbound, _bound, _made, _partial, _mapped]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_other_memory_under_a_tensor(program: Callable[..., Any]) -> None:
    compiled = tatara.compile(program)
    for call in range(4):
        ours, theirs = [(torch.arange(3.0), torch.arange(4.0).reshape(2, 2) * call) for _ in range(2)]
        result, expected = compiled(*ours), program(*theirs)
        for a, b in zip((result, *ours), (expected, *theirs), strict=True):
            assert torch.equal(a, b)
            assert a.stride() == b.stride()
        assert (result is ours[0]) == (expected is theirs[0])
        shares = [x[0].untyped_storage().data_ptr() == x[1].untyped_storage().data_ptr() for x in (ours, theirs)]
        assert shares[0] == shares[1]
