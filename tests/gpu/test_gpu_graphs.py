"""Plans as CUDA graphs: right under changed inputs, parameters, streams, sizes and kept outputs; counts of graphs, never times."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from graph_counts import counted

import tatara

pytestmark = [pytest.mark.usefixtures("no_grad"), pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]

Function = Callable[..., torch.Tensor]


class Block(torch.nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first = torch.nn.Linear(width, 2 * width)
        self.norm = torch.nn.LayerNorm(2 * width)
        self.second = torch.nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.second(self.norm(torch.relu(self.first(x))))) + x


def model(layers: int = 2) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(*[Block() for _ in range(layers)]).cuda()


def randn(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, device="cuda")


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def warm(compiled: Function, *inputs: torch.Tensor) -> None:
    """Past the calls that are launched step by step."""
    for _ in range(4):
        compiled(*inputs)


def test_one_graph_a_call() -> None:
    eager = model()
    compiled = tatara.compile(eager)
    x = randn(32, 64)
    with counted(launched=0):
        compiled(x)
        compiled(x)
    with counted(recorded=1):
        warm(compiled, x)
    for _ in range(5):
        x.copy_(randn(32, 64))
        with counted(launched=1, recorded=0):
            y = compiled(x)
        same(y, eager(x))


def test_inputs_elsewhere() -> None:
    eager = model()
    compiled = tatara.compile(eager)
    warm(compiled, randn(32, 64))
    inputs = [randn(32, 64) for _ in range(20)]
    outputs = [compiled(x) for x in inputs]
    for x, y in zip(inputs, outputs):
        same(y, eager(x))
    with counted(launched=20, recorded=0):
        outputs = [compiled(x) for x in inputs]
    for x, y in zip(inputs, outputs):
        same(y, eager(x))


def test_results_stay_while_they_are_held() -> None:
    eager = model()
    compiled = tatara.compile(eager)
    held, expected = [], []
    for _ in range(30):
        x = randn(16, 64)
        held.append(compiled(x))
        expected.append(eager(x))
    assert len({y.data_ptr() for y in held}) == len(held)
    for y, e in zip(held, expected):
        same(y, e)


def test_results_of_products_stay() -> None:
    """The last step is the host's and writes to the result."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.relu(x @ w) * 0.1
        return x @ w

    compiled = tatara.compile(f)
    w = randn(64, 64)
    held, expected = [], []
    for _ in range(30):
        x = randn(16, 64)
        held.append(compiled(x, w))
        expected.append(f(x, w))
    for y, e in zip(held, expected):
        same(y, e)
    with counted(launched=5):
        for _ in range(5):
            x = randn(16, 64)
            same(compiled(x, w), f(x, w))


def test_results_of_other_operators_stay() -> None:
    """What the host allocates within the graph is copied out of it."""

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.nn.functional.conv2d(torch.relu(x), w, padding=1)
        y = torch.nn.functional.conv2d(torch.tanh(y), w, padding=1)
        z = torch.nn.functional.conv2d(y * 0.1, w, padding=1)
        return z, y

    compiled = tatara.compile(f)
    w = randn(8, 8, 3, 3) * 0.1
    held, expected = [], []
    for _ in range(12):
        x = randn(2, 8, 16, 16)
        held.append(compiled(x, w))
        expected.append(f(x, w))
    for ours, theirs in zip(held, expected):
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)
            assert a.stride() == b.stride()
    with counted(launched=3):
        for _ in range(3):
            compiled(randn(2, 8, 16, 16), w)


def test_operands_that_move_are_copied() -> None:
    """Operators of the host use memory that the caller brings anew in each call: two graphs at most, then none."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.nn.functional.conv2d(x, w, padding=1)
        return x.tanh() + 1

    compiled = tatara.compile(f)
    w = randn(8, 8, 3, 3) * 0.1
    held = [randn(2, 8, 16, 16) for _ in range(24)]
    with counted(recorded=1):
        for x in held[:4]:
            compiled(x, w)
    with counted(recorded=0, launched=20):
        results = [compiled(x, w) for x in held[4:]]
    for x, y in zip(held[4:], results):
        torch.testing.assert_close(y, f(x, w), rtol=1e-2, atol=1e-2)
    weights = [w.clone() for _ in range(6)]
    with counted(recorded=1):
        for moved in weights:
            torch.testing.assert_close(compiled(held[0], moved), f(held[0], moved), rtol=1e-2, atol=1e-2)


def test_many_results_of_any_length_and_place() -> None:
    """What the host computes is copied out of the graph, many at once: odd lengths, bytes, and places that are not aligned."""

    def f(x: torch.Tensor, weights: list[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.nn.functional.conv1d(x.to(w.dtype), w) for w in weights]

    compiled = tatara.compile(f)
    weights = [randn(n, 1, n % 5 + 1).to(torch.float16 if n % 2 else torch.float32) for n in range(1, 150)]
    for _ in range(5):
        x = randn(1, 1, 41)
        for a, b in zip(compiled(x, weights), f(x, weights), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)
            assert a.dtype == b.dtype and a.stride() == b.stride()
    with counted(launched=1):
        compiled(randn(1, 1, 41), weights)


def test_parameters_replaced_and_moved() -> None:
    eager = model()
    compiled = tatara.compile(eager)
    x = randn(32, 64)
    warm(compiled, x)
    eager[0].first.weight.mul_(2)
    same(compiled(x), eager(x))
    eager[0].first.weight.data = randn(128, 64)
    same(compiled(x), eager(x))
    eager[1].second.weight = torch.nn.Parameter(randn(64, 128))
    same(compiled(x), eager(x))
    eager[1].norm.bias.data = randn(128)
    for _ in range(4):
        same(compiled(x), eager(x))


def test_sizes() -> None:
    eager = model()
    compiled = tatara.compile(eager, dynamic=True, options={"cuda_graphs": 3})
    rows = [4, 8, 12, 16, 20]
    for _ in range(4):
        for n in rows:
            x = randn(n, 64)
            same(compiled(x), eager(x))
    with counted(launched=3):  # recorded before, or for memory that is elsewhere now
        for n in rows:
            x = randn(n, 64)
            same(compiled(x), eager(x))


def test_turned_off() -> None:
    eager = model()
    compiled = tatara.compile(eager, options={"cuda_graphs": 0})
    x = randn(32, 64)
    with counted(launched=0, recorded=0):
        for _ in range(6):
            same(compiled(x), eager(x))
    assert "one by one: the option cuda_graphs is 0" in str(tatara.explain(compiled)(x))


def test_other_streams() -> None:
    eager = model()
    compiled = tatara.compile(eager)
    x = randn(512, 64)
    warm(compiled, x)
    expected = eager(x)
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    results = []
    for _ in range(10):
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append(compiled(x))
    torch.cuda.synchronize()
    for y in results:
        same(y, expected)
    with counted(launched=1), torch.cuda.stream(streams[0]):
        compiled(x)


def test_threads() -> None:
    eager = model()
    compiled = tatara.compile(eager)
    warm(compiled, randn(32, 64))
    wrong: list[float] = []

    def work(seed: int) -> None:
        stream = torch.cuda.Stream()
        generator = torch.Generator(device="cuda").manual_seed(seed)
        with torch.no_grad(), torch.cuda.stream(stream):
            for _ in range(50):
                x = torch.randn(32, 64, device="cuda", generator=generator)
                wrong.append((compiled(x) - eager(x)).abs().max().item())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 200
    assert max(wrong) < 1e-4


def test_inside_of_a_graph_of_the_user() -> None:
    eager = model()
    compiled = tatara.compile(eager)
    x = randn(32, 64)
    warm(compiled, x)
    graph = torch.cuda.CUDAGraph()
    with counted(launched=0), torch.cuda.graph(graph):
        y = compiled(x)
    x.copy_(randn(32, 64))
    graph.replay()
    same(y, eager(x))
    with counted(launched=1):
        same(compiled(x), eager(x))


def test_writes_to_inputs() -> None:
    def f(state: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = torch.relu(x @ w) * 0.1
        state.mul_(0.5).add_(x)
        return state @ w

    compiled = tatara.compile(f)
    w = randn(64, 64)
    ours = randn(16, 64)
    theirs = ours.clone()
    for i in range(12):
        x = randn(16, 64)
        same(compiled(ours, x, w), f(theirs, x, w))
        same(ours, theirs)
        if i == 6:
            ours, theirs = ours.clone(), theirs.clone()


def test_random_numbers_are_drawn_between_graphs() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            for _ in range(3):
                x = torch.tanh(x @ w / 10)
            x = x + torch.nn.functional.dropout(torch.rand_like(x), 0.3)
        return x @ w

    compiled = tatara.compile(f)
    x, w = randn(100, 100), randn(100, 100)
    before = tatara.stats()["cuda_graphs_launched"]
    for seed in range(12):
        torch.manual_seed(seed)
        expected = f(x, w)
        state = torch.cuda.get_rng_state()
        torch.manual_seed(seed)
        same(compiled(x, w), expected)
        assert torch.equal(torch.cuda.get_rng_state(), state)
        if seed % 3 == 2:
            x, w = randn(100, 100), randn(100, 100)
    assert tatara.stats()["cuda_graphs_launched"] > before


def test_an_operator_that_waits() -> None:
    """It cannot be recorded: its steps are launched one by one, and what comes after is as before."""

    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.linalg.inv(torch.tanh(x) + 8 * torch.eye(16, device="cuda"))
        return x * 2

    compiled = tatara.compile(f)
    for _ in range(6):
        x = randn(16, 16)
        same(compiled(x), f(x))


def test_numbers_of_the_host() -> None:
    def f(x: torch.Tensor, w: torch.Tensor, scale: float) -> torch.Tensor:
        for _ in range(3):
            x = torch.relu(x @ w) * scale
        return x.sum(0) * scale

    compiled = tatara.compile(f)
    x, w = randn(16, 64), randn(64, 64)
    for i in range(10):
        number = 0.1 + 0.01 * i
        same(compiled(x, w, number), f(x, w, number))
    zero_dim = tatara.compile(f)
    for i in range(10):
        number = torch.tensor(0.1 + 0.01 * i)
        same(zero_dim(x, w, number), f(x, w, number))


def test_memory_of_a_dropped_graph_is_free_again() -> None:
    def once() -> None:
        eager = model(4)
        compiled = tatara.compile(eager)
        x = randn(4096, 64)
        warm(compiled, x)
        same(compiled(x), eager(x))
        tatara.reset()

    once()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        once()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before + (1 << 20)


def test_workspaces_of_the_host_dropped() -> None:
    eager = model()
    compiled = tatara.compile(eager)
    x = randn(256, 64)
    warm(compiled, x)
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    for _ in range(4):
        scratch = torch.full((1 << 22,), 7.0, device="cuda")
        same(compiled(x), eager(x))
        assert (scratch == 7).all()


def test_an_operator_that_cannot_be_recorded() -> None:
    """It asks the device for an answer; its operands lie elsewhere at each call, so that copies would stand in for them."""

    def turned(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        product = a.transpose(1, 2) @ b
        u, s, v = torch.linalg.svd(product)
        return product, s, v.transpose(1, 2) @ torch.relu(product + 1) @ u.transpose(1, 2)

    compiled = tatara.compile(turned)
    held = []
    for seed in range(8):
        torch.manual_seed(seed)
        held.append((randn(64, 100, 3), randn(64, 100, 3)))
        for got, expected in zip(compiled(*held[-1]), turned(*held[-1]), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
