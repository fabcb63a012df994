"""The hit path: what a call of a compiled function checks, and the tensors it hands back."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from results import same  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


def test_parameter_whose_data_is_swapped() -> None:
    layer = torch.nn.Linear(4, 4)
    compiled = tatara.compile(lambda x: layer(x) + 1)
    with torch.no_grad():
        x = torch.randn(3, 4)
        same(compiled(x), layer(x) + 1)
        layer.weight.data = torch.randn(4, 4)
        same(compiled(x), layer(x) + 1)
        assert tatara.stats()["recompiles"] == 0
        layer.weight.data = torch.randn(7, 4)
        layer.bias.data = torch.randn(7)
        same(compiled(x), layer(x) + 1)
        assert tatara.stats()["recompiles"] == 1
        layer.double()
        x = x.double()
        same(compiled(x), layer(x) + 1)
        layer.weight.data = layer.weight.data.t().contiguous().t()
        same(compiled(x), layer(x) + 1)
        same(compiled(x), layer(x) + 1)


@pytest.mark.parametrize("state", ["grad", "inference", "deterministic", "dtype", "mode"])
def test_state_of_the_host_is_guarded(state: str) -> None:
    x = torch.randn(5)

    def function(value: Any) -> Any:
        return value + torch.ones(5)

    class Mode(torch.overrides.TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Mode.calls += 1
            return func(*args, **(kwargs or {}))

    compiled = tatara.compile(function)
    same(compiled(x), function(x))
    same(compiled(x), function(x))
    assert tatara.stats()["graphs"] == 1
    try:
        if state == "grad":
            with torch.no_grad():
                compiled(x)
        elif state == "inference":
            with torch.inference_mode():
                assert compiled(x).is_inference()
        elif state == "deterministic":
            torch.use_deterministic_algorithms(True)
            compiled(x)
        elif state == "dtype":
            torch.set_default_dtype(torch.float64)
            assert compiled(x).dtype == torch.float64
        else:
            with Mode():
                compiled(x)
            assert Mode.calls > 0
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_default_dtype(torch.float32)
    before = tatara.stats()["recompiles"]
    assert before == (0 if state == "mode" else 1)  # under a mode all runs in eager
    same(compiled(x), function(x))
    assert tatara.stats()["recompiles"] == before


def test_outputs_are_fresh_tensors() -> None:
    compiled = tatara.compile(lambda x: (x + 1, x * 2))
    x = torch.randn(6)
    first, second = compiled(x), compiled(x)
    for a, b in zip(first, second, strict=True):
        assert a is not b
        assert a.data_ptr() != b.data_ptr()
        assert not a.requires_grad
        assert a._base is None
        assert a.untyped_storage().nbytes() == 24
    first[0].zero_()
    same(second[0], x + 1)


@pytest.mark.smoke
def test_outputs_on_one_memory() -> None:
    def function(x: Any) -> Any:
        y = x + 1
        return y, y.t(), y[1:], x.t(), x

    compiled = tatara.compile(function)
    x = torch.randn(3, 4)
    for _ in range(2):
        y, yt, tail, xt, itself = compiled(x)
        for actual, expected in zip((y, yt, tail, xt), function(x)[:4], strict=True):
            same(actual, expected)
        assert itself is x
        assert yt.data_ptr() == y.data_ptr()
        assert tail.data_ptr() == y[1].data_ptr()
        assert xt.data_ptr() == x.data_ptr()


def test_call_within_a_call() -> None:
    inner = tatara.compile(lambda x: x * 2)

    class Key:
        """Compares by running compiled code."""

        def __init__(self, value: Any) -> None:
            self.value = value

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Key) and bool((inner(self.value) == inner(other.value)).all())

        def __hash__(self) -> int:
            return 1

    @tatara.compile
    def outer(x: Any, keys: Any) -> Any:
        return inner(x) + len(keys)

    x = torch.randn(4)
    keys = {Key(torch.ones(2)): 1}
    for _ in range(3):
        same(outer(x, keys), x * 2 + 1)
