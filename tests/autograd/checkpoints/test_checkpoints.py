"""torch.utils.checkpoint inside of compiled code: part of the graph, and eager in every respect but that."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from checkpoint_steps import ROWS, WIDTH, agree, batch, check_one_graph, saved_bytes, step  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, noop_context_fn  # noqa: E402

import tatara  # noqa: E402
from counters import counts  # noqa: E402

keep = functools.partial(checkpoint, use_reentrant=False)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x)))) * scale


def _blocks(count: int = 3) -> Any:
    torch.manual_seed(0)
    return nn.ModuleList(Block() for _ in range(count))


def _each(blocks: Any, x: Any) -> Any:
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return x


def _with_keywords(blocks: Any, x: Any) -> Any:
    for block in blocks:
        x = keep(block, x, scale=0.5, preserve_rng_state=True, context_fn=noop_context_fn, determinism_check="none")
    return x


def _nested(blocks: Any, x: Any) -> Any:
    def two(x: Any) -> Any:
        return keep(blocks[1], keep(blocks[0], x).sin()).cos()

    return keep(blocks[2], keep(two, x))


def _closure(blocks: Any, x: Any) -> Any:
    for block in blocks:
        y = x.tanh()
        x = keep(lambda a, block=block, y=y: (block(a) * y, y.exp()), x)[0]
    return x


def _sequential(blocks: Any, x: Any) -> Any:
    return checkpoint_sequential(list(blocks), 2, x, use_reentrant=False)


def _in_part(blocks: Any, x: Any) -> Any:
    def both(x: Any, y: Any) -> tuple[Any, Any]:
        with torch.no_grad():
            scale = y.abs().amax()
        return blocks[0](x) / scale, y.detach() * 2

    first, second = keep(both, x, x.cos())
    return keep(blocks[2], first) + second


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "each": _each,
    "keywords": _with_keywords,
    "nested": _nested,
    "closure": _closure,
    "sequential": _sequential,
    "in part": _in_part,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name: str) -> None:
    check_one_graph(PROGRAMS[name], _blocks())


def test_only_what_enters_a_region_is_kept() -> None:
    blocks = _blocks(4)
    results = {}
    for name, program in {"plain": lambda x: nn.Sequential(*blocks)(x), "kept": lambda x: _each(blocks, x)}.items():
        compiled = tatara.compile(program)
        x = batch(0)
        for _ in range(2):
            result = compiled(x)
        results[name] = saved_bytes(result, [x, *blocks.parameters()])
    row = ROWS * WIDTH * 4
    assert results["kept"] <= 3 * row  # the inputs of three blocks; that of the first is a leaf
    assert results["plain"] > 4 * row * 4


@pytest.mark.smoke
def test_second_derivatives() -> None:
    blocks = _blocks()

    def penalty(run: Callable[[Any], Any]) -> list[Any]:
        blocks.zero_grad()
        x = batch(3)
        (g,) = torch.autograd.grad(run(x).square().sum(), x, create_graph=True)
        g.square().sum().backward()
        return [g.detach(), x.grad, *[p.grad for p in blocks.parameters()]]

    compiled = tatara.compile(lambda x: _each(blocks, x))
    for _ in range(2):
        agree(penalty(compiled), penalty(lambda x: _each(blocks, x)))


class Writes(nn.Module):
    """Changes itself in each call, and so twice in eager's steps."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("seen", torch.zeros(()))
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.seen += x.detach().abs().sum()
        return self.norm(self.linear(x)).relu()


def test_writes_happen_twice_as_in_eager() -> None:
    def made() -> Any:
        torch.manual_seed(0)
        return nn.ModuleList(Writes() for _ in range(2))

    ours, theirs = made(), made()
    compiled = tatara.compile(lambda x: _each(ours, x.sin()).cos())
    for seed in range(4):
        agree(step(compiled, ours, seed), step(lambda x: _each(theirs, x.sin()).cos(), theirs, seed))
        assert [m.calls for m in ours] == [m.calls for m in theirs]


@pytest.mark.parametrize("norm", [True, False])
def test_a_write_alone(norm: bool) -> None:
    def made() -> Any:
        torch.manual_seed(0)
        return nn.ModuleList([nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU())])

    def program(m: Any, x: Any) -> Any:
        if norm:
            return keep(m[0], x)
        return keep(lambda a: m[0][0](a).mul_(2).sin() + m[0][1].running_mean.view(-1).add_(1.0), x)

    ours, theirs = made(), made()
    compiled = tatara.compile(lambda x: program(ours, x))
    for seed in range(3):
        agree(step(compiled, ours, seed), step(lambda x: program(theirs, x), theirs, seed))


def test_a_break_inside_of_a_region() -> None:
    blocks = _blocks()
    seen: list[float] = []

    def inner(x: Any) -> Any:
        x = blocks[0](x)
        seen.append(float(x.detach().sum()))
        return blocks[1](x)

    def program(x: Any) -> Any:
        return keep(inner, x.sin()) * 2

    compiled = tatara.compile(program)
    for seed in range(3):
        expected = step(program, blocks, seed)
        logged, seen[:] = list(seen), []
        agree(step(compiled, blocks, seed), expected)
        assert len(seen) == len(logged)
        seen.clear()


def test_an_error_inside_of_a_region() -> None:
    blocks = _blocks()

    def fails(x: Any) -> Any:
        if x.shape[0] == 3:
            raise KeyError("three")
        return blocks[0](x)

    def program(x: Any) -> Any:
        try:
            return keep(fails, x.sin())
        except KeyError:
            return x.cos()

    compiled = tatara.compile(program, dynamic=False)
    for rows in (2, 3, 4, 3):
        x = torch.randn(rows, WIDTH).requires_grad_()
        found = [torch.autograd.grad(f(x).sum(), x)[0] for f in (program, compiled)]
        torch.testing.assert_close(found[1], found[0])
    with pytest.raises(RuntimeError, match="normalized_shape"):
        compiled(torch.ones(2, 5).requires_grad_())
    # No hook of a region is left behind.
    assert torch.ones(2, requires_grad=True).exp().grad_fn._saved_result is not None


def test_without_gradients() -> None:
    blocks = _blocks()
    compiled = tatara.compile(lambda x: _each(blocks, x))
    with torch.no_grad():
        for seed in range(2):
            torch.testing.assert_close(compiled(batch(seed)), _each(blocks, batch(seed)))
    agree(step(compiled, blocks, 5), step(lambda x: _each(blocks, x), blocks, 5))


def test_what_is_not_supported_runs_in_eager() -> None:
    blocks = _blocks()
    entered: list[str] = []

    class Note:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            entered.append(self.name)

        def __exit__(self, *_: object) -> None:
            pass

    def program(x: Any) -> Any:
        return keep(blocks[0], x.sin(), context_fn=lambda: (Note("forward"), Note("again")))

    compiled = tatara.compile(program)
    for seed in range(3):
        entered.clear()
        expected = step(program, blocks, seed)
        logged, entered[:] = list(entered), []
        agree(step(compiled, blocks, seed), expected)
        assert entered == logged == ["forward", "again"]
    with pytest.raises(tatara.Unsupported, match="context_fn"):
        tatara.compile(program, fullgraph=True)(batch(0))


class Noisy(nn.Module):
    """Draws random numbers in several ways."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        y = nn.functional.dropout(self.first(x).tanh(), 0.3, True)
        y = nn.functional.dropout(self.second(y)[:3], 0.5, True)  # so few that the host draws them
        return x + torch.nn.functional.pad(y, (0, 0, 0, x.shape[0] - 3)) * torch.rand_like(x)


def _noisy() -> Any:
    torch.manual_seed(0)
    return nn.ModuleList(Noisy() for _ in range(3))


@pytest.mark.parametrize("nested", [False, True])
def test_random_numbers_are_those_of_the_first_computation(nested: bool) -> None:
    blocks = _noisy()

    def program(x: Any) -> Any:
        x = nn.functional.dropout(x, 0.2, True)
        return keep(lambda a: _each(blocks, a), x) if nested else _each(blocks, x)

    compiled = tatara.compile(program)
    with counts() as grown:
        for seed in range(3):
            agree(step(compiled, blocks, seed), step(program, blocks, seed))
    assert (grown["breaks"], grown["fallbacks"]) == (0, 0)


def test_masks_are_not_kept() -> None:
    torch.manual_seed(0)
    rows, width = 256, 64
    linear = nn.Linear(width, width)

    def program(x: Any) -> Any:
        for _ in range(4):
            x = keep(lambda a: nn.functional.dropout(linear(a).tanh(), 0.5, True), x)
        return x

    compiled = tatara.compile(program)
    x = torch.randn(rows, width).requires_grad_()
    for _ in range(2):
        result = compiled(x)
    kept = saved_bytes(result, [x, *linear.parameters()])
    assert kept <= 3 * rows * width * 4 + 4 * 5056


def test_second_derivatives_draw_the_same_numbers() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(WIDTH, WIDTH)

    def program(x: Any) -> Any:
        for _ in range(2):
            x = keep(lambda a: nn.functional.dropout(linear(a).tanh(), 0.5, True), x)
        return x

    def penalty(run: Callable[[Any], Any]) -> list[Any]:
        linear.zero_grad()
        torch.manual_seed(4)
        x = torch.randn(128, WIDTH, dtype=torch.float32).requires_grad_()
        (g,) = torch.autograd.grad(run(x).square().sum(), x, create_graph=True)
        g.square().sum().backward()
        return [g.detach(), x.grad, linear.weight.grad, torch.get_rng_state()]

    compiled = tatara.compile(program)
    for _ in range(2):
        agree(penalty(compiled), penalty(program))


def test_numbers_that_eager_draws_anew() -> None:
    blocks = _noisy()

    def program(x: Any) -> Any:
        return keep(blocks[0], x.sin(), preserve_rng_state=False)

    compiled = tatara.compile(program)
    for seed in range(3):
        agree(step(compiled, blocks, seed), step(program, blocks, seed))


def _whole(compiled: bool, noisy: bool, checkpoints: bool = True, steps: int = 4) -> tuple[list[Any], Any]:
    model = _noisy() if noisy else _blocks(6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x = batch(1).detach()

    def step(x: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = (_each(model, x) if checkpoints else nn.Sequential(*model)(x)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = tatara.compile(step) if compiled else step
    torch.manual_seed(7)
    found = [run(x).clone() for _ in range(steps)]
    return [*found, torch.get_rng_state(), *[p.detach() for p in model.parameters()]], run


@pytest.mark.parametrize("noisy", [False, True])
def test_whole_steps(noisy: bool) -> None:
    expected, _ = _whole(False, noisy)
    tatara.reset()
    agree(_whole(True, noisy)[0], expected)
    assert (tatara.stats()["breaks"], tatara.stats()["fallbacks"]) == (0, 0)


def test_whole_steps_let_go_of_what_regions_compute() -> None:
    scratch = {}
    for checkpoints in (True, False):
        tatara.reset()
        _whole(False, False)  # imports
        _, run = _whole(True, False, checkpoints)
        scratch[checkpoints] = tatara.stats()["scratch_bytes"]
    hidden = ROWS * WIDTH * 4 * 4  # of one block
    assert scratch[True] + 2 * hidden <= scratch[False]


@pytest.mark.parametrize("rows", [4, 64])
def test_masks_lie_as_their_tensors(rows: int) -> None:
    def program(x: Any) -> list[Any]:
        shapes = [x.transpose(0, 1), x.permute(2, 0, 1), x.transpose(0, 2)]
        return [nn.functional.dropout(y, 0.4, True) for y in shapes]

    compiled = tatara.compile(program)
    before = tatara.stats()["fallbacks"]
    for seed in range(2):
        x = torch.randn(rows, 3, 5, generator=torch.Generator().manual_seed(seed))
        found = []
        for run in (compiled, program):
            torch.manual_seed(seed)
            found.append([*run(x), torch.get_rng_state()])
        assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(*found))
    assert tatara.stats()["fallbacks"] == before


def test_one_region_at_a_time_is_computed_again_in_a_wholestep() -> None:
    """Kernels of gradients may hold updates of parameters, which come late: what these wait for must not hold up the gradients
    until all regions are computed again.
    """

    def scratch(count: int) -> int:
        tatara.reset()
        torch.manual_seed(0)
        layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.1, batch_first=True) for _ in range(count)
        )
        optimizer = torch.optim.AdamW(layers.parameters())
        x = torch.randn(4, 128, 256)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            h = x
            for layer in layers:
                h = checkpoint(layer, h, use_reentrant=False)
            loss = h.square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled = tatara.compile(step)
        for _ in range(4):
            compiled()
        return int(tatara.stats()["scratch_bytes"])

    entering = 4 * 128 * 256 * 4
    assert scratch(3) - scratch(2) <= 3 * entering
