"""Compiled modules stay modules."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh", "no_grad")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.drop = nn.Dropout(0.5)
        self.second = nn.Linear(8, 3)
        self.register_buffer("shift", torch.ones(3))
        self.scale = 2.0

    def forward(self, x: Any, *, twice: bool = False) -> Any:
        y = self.second(self.drop(self.first(x).relu())) * self.scale + self.shift
        return y * 2 if twice else y

    def predict(self, x: Any) -> Any:
        return self(x).argmax(-1)

    @property
    def width(self) -> int:
        return int(self.first.out_features)


X = torch.randn(5, 4)


@pytest.fixture
def net() -> Any:
    return Net().eval()


def runs_compiled(compiled: Any, *args: Any) -> bool:
    compiled(*args)
    with tatara.kernel_history() as history:
        compiled(*args)
    return bool(history.launches or history.host_calls)


def test_is_the_module(net: Any) -> None:
    compiled = tatara.compile(net)
    assert isinstance(compiled, Net)
    assert isinstance(compiled, nn.Module)
    assert isinstance(compiled, tatara.CompiledModule)
    assert type(compiled).__name__ == "Net"
    assert compiled.__doc__ == net.__doc__
    assert repr(compiled) == f"tatara.compile({net!r})"
    assert compiled._orig_mod is net
    assert compiled.width == 8
    assert str(inspect.signature(compiled.forward)) == "(x: 'Any', *, twice: 'bool' = False) -> 'Any'"
    torch.testing.assert_close(compiled(X), net(X))
    torch.testing.assert_close(compiled(X, twice=True), net(X, twice=True))
    assert runs_compiled(compiled, X)
    again = tatara.compile(compiled)
    assert again._orig_mod is net


def test_state_is_shared(net: Any) -> None:
    compiled = tatara.compile(net)
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in net.parameters()]
    assert dict(compiled.named_modules()).keys() == dict(net.named_modules()).keys()
    assert list(compiled.children()) == list(net.children())
    compiled(X)
    state = {name: torch.randn_like(value) for name, value in net.state_dict().items()}
    compiled.load_state_dict(state)
    torch.testing.assert_close(compiled(X), net(X))
    net.second = nn.Linear(8, 3)
    torch.testing.assert_close(compiled(X), net(X))
    del compiled.second
    assert not hasattr(net, "second")
    compiled.second = nn.Identity()
    assert isinstance(net.second, nn.Identity)
    compiled.register_buffer("shift", torch.zeros(8))
    torch.testing.assert_close(compiled(X), net(X))


def test_attribute_writes(net: Any) -> None:
    compiled = tatara.compile(net)
    before = compiled(X)
    compiled.scale = 4.0
    assert net.scale == 4.0
    torch.testing.assert_close(compiled(X) - 1, (before - 1) * 2)
    net.scale = 2.0
    torch.testing.assert_close(compiled(X), before)


def test_train_and_eval(net: Any) -> None:
    compiled = tatara.compile(net)
    still = compiled(X)
    assert compiled.train() is compiled
    assert net.training and net.drop.training
    torch.manual_seed(3)
    ours = compiled(X)
    torch.manual_seed(3)
    torch.testing.assert_close(ours, net(X))
    compiled.eval()
    assert not net.drop.training
    torch.testing.assert_close(compiled(X), still)


def test_moves_and_casts(net: Any) -> None:
    compiled = tatara.compile(net)
    compiled(X)
    assert compiled.double() is compiled
    result = compiled(X.double())
    assert result.dtype == torch.float64
    torch.testing.assert_close(result, net(X.double()))
    assert compiled.to(torch.float32) is compiled
    torch.testing.assert_close(compiled(X), net(X))


def test_hooks(net: Any) -> None:
    compiled = tatara.compile(net)
    compiled(X)
    plain = net(X)
    calls = []
    handle = compiled.register_forward_hook(lambda module, args, output: (calls.append(type(module)), output + 1)[1])
    inner = net.first.register_forward_pre_hook(lambda module, args: (args[0] * 0,))
    for _ in range(2):
        calls.clear()
        ours = compiled(X)
        assert len(calls) == 1
        torch.testing.assert_close(ours, net(X))
    handle.remove()
    inner.remove()
    torch.testing.assert_close(compiled(X), plain)


def test_methods_use_the_compiled_call(net: Any) -> None:
    compiled = tatara.compile(net)
    torch.testing.assert_close(compiled.predict(X), net.predict(X))
    with tatara.kernel_history() as history:
        compiled.predict(X)
    assert history.launches or history.host_calls


def test_pickles_and_copies_are_of_the_original(net: Any) -> None:
    compiled = tatara.compile(net)
    compiled(X)
    loaded = pickle.loads(pickle.dumps(compiled))
    assert type(loaded) is Net
    torch.testing.assert_close(loaded(X), net(X))
    stream = io.BytesIO()
    torch.save(compiled, stream)
    stream.seek(0)
    assert type(torch.load(stream, weights_only=False)) is Net
    deep = copy.deepcopy(compiled)
    assert type(deep) is Net
    deep.first.weight.zero_()
    assert not bool((net.first.weight == 0).all())
    assert copy.copy(compiled).first is net.first


def test_containers_and_nesting(net: Any) -> None:
    chain = tatara.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    assert len(chain) == 2
    assert isinstance(chain[1], nn.ReLU)
    assert [type(module) for module in chain] == [nn.Linear, nn.ReLU]
    outer = nn.Sequential(chain, net)
    expected = net(chain._orig_mod(X))
    torch.testing.assert_close(outer(X), expected)
    whole = tatara.compile(outer)
    for _ in range(2):
        torch.testing.assert_close(whole(X), expected)
    assert len(list(outer.parameters())) == len(list(whole.parameters()))


def test_modules_with_a_forward_of_their_own() -> None:
    net = nn.Linear(4, 4)
    net.forward = lambda x: x * 3  # type: ignore[method-assign]
    compiled = tatara.compile(net)
    torch.testing.assert_close(compiled(X), X * 3)
    scripted = torch.jit.script(nn.Linear(4, 4))
    torch.testing.assert_close(tatara.compile(scripted)(X), scripted(X))


def test_compiled_forward_inside_a_plain_module(net: Any) -> None:
    net.forward = tatara.compile(net.forward)
    expected = Net.forward(net, X)
    for _ in range(2):
        torch.testing.assert_close(net(X), expected)
    assert tatara.stats()["graphs"] >= 1


def test_weak_references_and_garbage(net: Any) -> None:
    import gc
    import weakref

    compiled = tatara.compile(net)
    compiled(X)
    gone = weakref.ref(compiled)
    del compiled
    gc.collect()
    assert gone() is None
    net(X)


def tens(self: Any, x: Any) -> Any:
    return x[:, :3] * 10


def puts_a_function_on_the_module(net: Any) -> None:
    net.forward = lambda x: x[:, :3] - 1


def puts_a_method_of_another_module(net: Any) -> None:
    net.forward = nn.Linear(4, 2).forward


def wraps_its_forward(net: Any) -> None:
    inner = net.forward
    net.forward = lambda x: inner(x) * 2 + 1


def puts_a_function_on_the_class(net: Any) -> None:
    type(net).forward = tens


def puts_a_call_on_the_class(net: Any) -> None:
    type(net).__call__ = tens


def gives_another_class(net: Any) -> None:
    net.__class__ = type("Other", (type(net),), {"forward": tens})


def puts_a_function_on_a_layer(net: Any) -> None:
    net.first.forward = lambda x: torch.ones(1, 8) * x.sum()


CHANGES = [
    puts_a_function_on_the_module,
    puts_a_method_of_another_module,
    wraps_its_forward,
    puts_a_function_on_the_class,
    puts_a_call_on_the_class,
    gives_another_class,
    puts_a_function_on_a_layer,
]


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_functions_that_are_put_there(change: Any, before: bool) -> None:
    """Before it is compiled or after: a call does what the module's own does, and is compiled."""
    mine: Any = type("Mine", (Net,), {})
    net, x = mine().eval(), torch.randn(5, 4)
    if before:
        torch.manual_seed(0)
        change(net)
    compiled = tatara.compile(net)
    for _ in range(2):
        assert torch.allclose(compiled(x), net(x), atol=1e-6)
    if not before:
        change(net)
    graphs = tatara.stats()["graphs"]
    for _ in range(3):
        assert torch.allclose(compiled(x), net(x), atol=1e-6)
    assert tatara.stats()["graphs"] == graphs + (not before)
    assert tatara.stats()["breaks"] == 0
    net.__dict__.pop("forward", None)
    for _ in range(2):
        assert torch.allclose(compiled(x), net(x), atol=1e-6)


def test_a_forward_that_is_put_on_the_class_is_the_methods_too() -> None:
    mine: Any = type("Mine", (Net,), {})
    net, x = mine().eval(), torch.randn(5, 4)
    compiled = tatara.compile(net)
    compiled(x)
    mine.forward = tens
    assert torch.equal(compiled.forward(x), tens(net, x))
    assert torch.equal(compiled.predict(x), tens(net, x).argmax(-1))


def test_a_class_with_a_call_of_its_own() -> None:
    class Own(Net):
        def __call__(self, x: Any, times: int = 3) -> Any:
            return super().__call__(x) * times

    net, x = Own().eval(), torch.randn(5, 4)
    compiled = tatara.compile(net)
    for _ in range(2):
        assert torch.allclose(compiled(x), net(x), atol=1e-6)
        assert torch.allclose(compiled(x, times=2), net(x, times=2), atol=1e-6)
    assert (tatara.stats()["graphs"], tatara.stats()["breaks"]) == (2, 0)
