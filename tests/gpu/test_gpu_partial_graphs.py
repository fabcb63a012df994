"""Passes of training as CUDA graphs of stretches of steps, whose memory is the host's between calls: gradients are right whatever
else happens to that memory, and a step takes no more of it than one launched step by step.
"""

from __future__ import annotations

import pytest
import torch
from graph_counts import counted

import tatara

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

MEGABYTE = 1 << 20


class Layer(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width) for _ in range(2)])
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norms[1](x))))


def alike(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    """Each gradient, as far as all of them together are exact: those of the keys' biases are nothing but rounding errors."""
    assert len(ours) == len(theirs) > 0
    norms = [b.norm().item() for b in theirs]
    whole = sum(norm**2 for norm in norms) ** 0.5
    for a, b, norm in zip(ours, theirs, norms, strict=True):
        assert (a - b).norm().item() <= 2e-2 * norm + 2e-3 * whole


class Trained:
    """A model, and the same as compiled, on one set of parameters."""

    def __init__(self, seed: int = 0, layers: int = 3, width: int = 512, **options: object) -> None:
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(*[Layer(width, 8) for _ in range(layers)]).cuda()
        self.width = width
        self.compiled = tatara.compile(self.loss, **options)

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return (self.model(x).float() * x).square().sum() * 1e-2  # gradients that float16 holds

    def batch(self, rows: int = 16) -> torch.Tensor:
        return torch.randn(rows, 512, self.width, device="cuda")

    def forward(self, x: torch.Tensor, compiled: bool = True) -> torch.Tensor:
        self.model.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.float16):
            return self.compiled(x) if compiled else self.loss(x)

    def step(self, x: torch.Tensor, compiled: bool = True) -> torch.Tensor:
        loss = self.forward(x, compiled)
        loss.backward()
        return loss.detach()

    def gradients(self) -> list[torch.Tensor]:
        return [p.grad.clone() for p in self.model.parameters() if p.grad is not None]

    def warm(self, rows: int = 16, steps: int = 8) -> None:
        for _ in range(steps):
            self.step(self.batch(rows))

    def check(self, x: torch.Tensor, loss: torch.Tensor | None = None) -> None:
        """What the last step of ours left, against one of eager's."""
        ours = self.gradients()
        expected = self.step(x, compiled=False)
        if loss is not None:
            torch.testing.assert_close(loss, expected, rtol=1e-2, atol=1e-4)
        alike(ours, self.gradients())

    def check_step(self, rows: int = 16) -> None:
        x = self.batch(rows)
        self.check(x, self.step(x))


def peak(step: Trained, x: torch.Tensor) -> int:
    step.model.zero_grad(set_to_none=True)
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    step.step(x)
    return torch.cuda.max_memory_allocated() - held


def test_both_passes_are_graphs() -> None:
    trained = Trained()
    trained.check_step()
    for _ in range(3):
        trained.check_step()
    trained.warm()
    x = trained.batch()
    with counted(launched=8, recorded=0):
        for _ in range(4):
            trained.step(x)
    for _ in range(3):
        trained.check_step()


def test_a_step_takes_no_more_memory() -> None:
    plain, graphs = Trained(options={"cuda_graphs": 0}), Trained()
    x = plain.batch()
    for trained in (plain, graphs):
        trained.warm()
        for _ in range(3):
            trained.step(x)
    with counted(launched=2, recorded=0):
        ours = peak(graphs, x)
    assert ours <= peak(plain, x) + 16 * MEGABYTE


def test_no_memory_is_held_between_steps() -> None:
    trained = Trained()
    x = trained.batch()
    trained.step(x)
    trained.model.zero_grad(set_to_none=True)
    before = torch.cuda.memory_allocated()
    for _ in range(10):
        trained.step(x)
    trained.model.zero_grad(set_to_none=True)
    workspaces = 2 * 36 * MEGABYTE  # what the host's libraries work in, of a thread and a stream
    assert torch.cuda.memory_allocated() <= before + workspaces


def test_models_in_turns() -> None:
    first, second = Trained(0), Trained(1, layers=2)
    for i in range(12):
        x, y = first.batch(), second.batch(16 if i < 6 else 8)
        one, two = first.forward(x), second.forward(y)
        two.backward()
        one.backward()
        if i % 3 == 2:
            first.check(x)
            second.check(y)


def test_passes_of_one_model_in_turns() -> None:
    """Two forward passes, then their backward passes, of which the gradients add up."""
    trained = Trained()
    for i in range(10):
        x, y = trained.batch(), trained.batch()
        trained.model.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.float16):
            one, two = trained.compiled(x), trained.compiled(y)
        (one.backward(), two.backward()) if i % 2 else (two.backward(), one.backward())
        ours = trained.gradients()
        trained.step(x, compiled=False)
        expected = trained.gradients()
        trained.step(y, compiled=False)
        alike(ours, [a + b for a, b in zip(expected, trained.gradients(), strict=True)])


def test_streams() -> None:
    trained = Trained()
    trained.warm()
    streams = [torch.cuda.Stream() for _ in range(2)]
    batches = [trained.batch() for _ in range(2)]
    torch.cuda.synchronize()
    kept = []
    for _ in range(5):
        for stream, x in zip(streams, batches, strict=True):
            with torch.cuda.stream(stream):
                trained.step(x)
                kept.append((x, trained.gradients()))
    torch.cuda.synchronize()
    for x, ours in kept:
        trained.step(x, compiled=False)
        alike(ours, trained.gradients())


def test_memory_that_others_write_to() -> None:
    """Eager work between the passes and on another stream takes memory that the graphs were recorded with, and fills it."""
    trained = Trained()
    trained.warm()
    other = torch.cuda.Stream()
    held: list[torch.Tensor] = []
    for i in range(12):
        x = trained.batch()
        loss = trained.forward(x)
        for size in (3, 40, 90, 200):
            scratch = torch.full((size * MEGABYTE // 4,), float("nan"), device="cuda")
            del scratch
        with torch.cuda.stream(other):
            for _ in range(3):
                torch.full((60 * MEGABYTE // 4,), float("nan"), device="cuda")
        held.append(torch.full(((7 * i % 50 + 1) * MEGABYTE // 4,), float("nan"), device="cuda"))
        if i % 4 == 3:
            held.clear()
        loss.backward()
        trained.check(x, loss.detach())


def test_emptied_cache() -> None:
    trained = Trained()
    for i in range(8):
        trained.warm(steps=3)
        torch.cuda.empty_cache()
        if i % 2:
            blocker = torch.full((30 * MEGABYTE,), float("nan"), device="cuda")
            trained.check_step()
            del blocker
        trained.check_step()
    x = trained.batch()
    loss = trained.forward(x)
    torch.cuda.empty_cache()
    loss.backward()
    trained.check(x)


def test_sizes_that_grow() -> None:
    trained = Trained(dynamic=True)
    for rows in (8, 16, 32, 16, 8, 32):
        trained.warm(rows, steps=4)
        trained.check_step(rows)


def test_retained() -> None:
    trained = Trained()
    trained.warm()
    for _ in range(4):
        x = trained.batch()
        loss = trained.forward(x)
        loss.backward(retain_graph=True)
        first = trained.gradients()
        trained.model.zero_grad(set_to_none=True)
        loss.backward()
        alike(first, trained.gradients())
        trained.check(x)


def test_held_results_stay() -> None:
    trained = Trained()
    x = trained.batch()
    kept = []
    for _ in range(8):
        trained.step(x)
        kept.append([p.grad for p in trained.model.parameters() if p.grad is not None])
    trained.step(x, compiled=False)
    expected = trained.gradients()
    for ours in kept:
        alike(ours, expected)


def test_parameters_change() -> None:
    trained = Trained()
    optimizer = torch.optim.SGD(trained.model.parameters(), lr=1e-7)
    for i in range(12):
        x = trained.batch()
        trained.step(x)
        optimizer.step()
        if i == 8:
            for p in trained.model.parameters():
                p.data = p.data.clone()
        if i % 3 == 2:
            trained.check_step()


def test_out_of_memory() -> None:
    trained = Trained()
    x = trained.batch()
    for _ in range(8):
        trained.step(x)
    needed = peak(trained, x)
    total = torch.cuda.get_device_properties(0).total_memory
    raised = 0
    for percent in range(5, 100, 15):
        trained.model.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        limit = torch.cuda.memory_allocated() + needed * percent // 100
        torch.cuda.set_per_process_memory_fraction(max(limit, torch.cuda.memory_reserved()) / total)
        try:
            trained.step(x)
        except torch.OutOfMemoryError:
            raised += 1
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        trained.model.zero_grad(set_to_none=True)
        trained.check_step()
        trained.step(x)
        trained.check_step()
    assert raised >= 3


def test_batches_elsewhere() -> None:
    """What an operator of the host reads lies elsewhere in each call: that operator is left out of the graph."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(1024, 1024) for _ in range(12)]
    model = torch.nn.Sequential(*[part for layer in layers for part in (layer, torch.nn.GELU())]).cuda()

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        return model(x).square().mean()

    compiled = tatara.compile(loss_of)
    batches = [torch.randn(8192, 1024, device="cuda") for _ in range(30)]
    kept = []
    for i, x in enumerate(batches):
        model.zero_grad(set_to_none=True)
        with counted(*((2, 0) if i >= 20 else ())):
            compiled(x).backward()
        kept.append([p.grad.norm().item() for p in model.parameters()])
    for x, ours in list(zip(batches, kept, strict=True))[::3]:
        model.zero_grad(set_to_none=True)
        loss_of(x).backward()
        torch.testing.assert_close(ours, [p.grad.norm().item() for p in model.parameters()], rtol=1e-3, atol=1e-6)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_devices() -> None:
    first = Trained()
    with torch.cuda.device(1):
        second = Trained(1)
        for _ in range(6):
            second.step(second.batch())
    for _ in range(6):
        first.check_step()
        with torch.cuda.device(1):
            second.check_step()
