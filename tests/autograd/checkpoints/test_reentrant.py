"""torch.utils.checkpoint with use_reentrant=True inside of compiled code: a region as without it, with that form's rules."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from checkpoint_steps import ROWS, WIDTH, agree, batch, check_one_graph, saved_bytes, step  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint, checkpoint_sequential  # noqa: E402

import tatara  # noqa: E402

keep = functools.partial(checkpoint, use_reentrant=True)


class Block(nn.Module):
    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.p = p
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        hidden = nn.functional.gelu(self.up(x))
        return x + self.down(nn.functional.dropout(hidden, self.p) if self.p > 0 else hidden)


def _blocks(count: int = 3, p: float = 0.0) -> Any:
    torch.manual_seed(0)
    return nn.ModuleList(Block(p) for _ in range(count))


def _each(blocks: Any, x: Any) -> Any:
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=True)
    return x


def _nested(blocks: Any, x: Any) -> Any:
    def two(x: Any) -> Any:
        return keep(blocks[1], keep(blocks[0], x).sin()).cos()

    return keep(blocks[2], keep(two, x))


def _sequential(blocks: Any, x: Any) -> Any:
    return checkpoint_sequential(list(blocks), 2, x, use_reentrant=True)


def _several(blocks: Any, x: Any) -> Any:
    def both(x: Any, y: Any, scale: float) -> tuple[Any, Any, Any]:
        return blocks[0](x) * scale, blocks[1](y).exp(), x.argmax(1)

    first, second, places = keep(both, x, x.cos(), 0.5)
    return keep(blocks[2], first) + second * places[:, None]


def _beside_the_other(blocks: Any, x: Any) -> Any:
    x = keep(blocks[0], x)
    return keep(blocks[1], checkpoint(blocks[2], x, use_reentrant=False))


def _an_argument_comes_back(blocks: Any, x: Any) -> Any:
    same, y = keep(lambda a: (a, blocks[0](a)), x.sin())
    return same * y


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "each": _each,
    "nested": _nested,
    "sequential": _sequential,
    "several": _several,
    "beside the other": _beside_the_other,
    "an argument comes back": _an_argument_comes_back,
}


@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name: str, p: float) -> None:
    check_one_graph(PROGRAMS[name], _blocks(p=p))


def test_only_what_enters_is_kept() -> None:
    blocks = _blocks(4)
    compiled = tatara.compile(lambda x: _each(blocks, x))
    x = batch(0)
    for _ in range(2):
        result = compiled(x)
    assert saved_bytes(result, [x, *blocks.parameters()]) <= 3 * ROWS * WIDTH * 4


def _error_of(call: Callable[[], Any]) -> str:
    with pytest.raises(RuntimeError) as found:
        call()
    return str(found.value)


def test_gradients_by_inputs_are_an_error() -> None:
    blocks = _blocks()

    def program(x: Any) -> Any:
        return _each(blocks, x)

    def by_grad(run: Any, x: Any) -> Any:
        return torch.autograd.grad(run(x).sum(), x)

    def by_inputs(run: Any, x: Any) -> Any:
        run(x).sum().backward(inputs=[x])

    compiled = tatara.compile(program)
    for way in (by_grad, by_inputs):
        expected = _error_of(lambda way=way: way(program, batch(0)))
        assert "use_reentrant=True" in expected
        for _ in range(3):
            assert _error_of(lambda way=way: way(compiled, batch(0))) == expected
    agree(step(compiled, blocks, 1), step(program, blocks, 1))


def test_gradients_beside_it_are_none() -> None:
    """autograd.grad() past a checkpoint is fine."""
    blocks = _blocks()

    def program(x: Any) -> Any:
        return keep(blocks[0], x), blocks[1](x)

    compiled = tatara.compile(program)
    for seed in range(3):
        x = batch(seed)
        found = [torch.autograd.grad(run(x)[1].sum(), x)[0] for run in (compiled, program)]
        torch.testing.assert_close(found[0], found[1])


def test_gradients_of_gradients_are_refused() -> None:
    blocks = _blocks()
    compiled = tatara.compile(lambda x: _each(blocks, x))
    compiled(batch(0))
    with pytest.raises(RuntimeError, match="create_graph=True"):
        compiled(batch(0)).sum().backward(create_graph=True)


def test_autograd_grad_inside_of_astep() -> None:
    blocks = _blocks()

    def step(x: Any) -> Any:
        return torch.autograd.grad(_each(blocks, x).sum(), x)

    compiled = tatara.compile(step)
    expected = _error_of(lambda: step(batch(0)))
    for _ in range(3):
        assert _error_of(lambda: compiled(batch(0))) == expected


def test_without_an_argument_that_requires_grad() -> None:
    blocks = _blocks(1)

    def program(x: Any) -> Any:
        return _each(blocks, x)

    compiled = tatara.compile(program)
    for seed in range(3):
        x = batch(seed).detach()
        with warnings.catch_warnings(record=True) as theirs:
            warnings.simplefilter("always")
            expected = program(x)
        with warnings.catch_warnings(record=True) as ours:
            warnings.simplefilter("always")
            found = compiled(x)
        assert [str(w.message) for w in ours] == [str(w.message) for w in theirs] != []
        assert not found.requires_grad and not expected.requires_grad
        torch.testing.assert_close(found, expected)


def test_without_gradients() -> None:
    blocks = _blocks()
    compiled = tatara.compile(lambda x: _each(blocks, x))
    with torch.no_grad():
        for seed in range(2):
            found, expected = compiled(batch(seed)), _each(blocks, batch(seed))
            torch.testing.assert_close(found, expected)
            assert not found.requires_grad
    agree(step(compiled, blocks, 5), step(lambda x: _each(blocks, x), blocks, 5))


def _reads_a_history(blocks: Any, x: Any) -> Any:
    y = x.tanh()
    return keep(lambda a: blocks[0](a) * y, x)


def _in_a_list(blocks: Any, x: Any) -> Any:
    return keep(lambda a, more: blocks[0](a) * more[0], x, [x.cos()])


def _without_a_history(blocks: Any, x: Any) -> Any:
    y, z = keep(lambda a: (blocks[0](a), a.detach() * 2), x.sin())
    assert z.requires_grad
    return y * z


def _nested_results(blocks: Any, x: Any) -> Any:
    y, (z, _) = keep(lambda a: (blocks[0](a), [blocks[1](a), 3]), x.sin())
    assert not z.requires_grad
    return y * z


def _writes(blocks: Any, x: Any) -> Any:
    seen = torch.zeros(ROWS, WIDTH)

    def inner(a: Any) -> Any:
        seen.add_(1)
        return blocks[0](a) * 2

    return keep(inner, x) + seen


@pytest.mark.parametrize(
    "program", [_reads_a_history, _in_a_list, _without_a_history, _nested_results, _writes], ids=lambda p: p.__name__
)
def test_what_differs_from_a_region_is_as_in_eager(program: Any) -> None:
    blocks = _blocks()
    compiled = tatara.compile(lambda x: program(blocks, x))
    for seed in range(3):
        agree(step(compiled, blocks, seed), step(lambda x: program(blocks, x), blocks, seed))


def test_nothing_with_a_history() -> None:
    def program(x: Any) -> Any:
        return keep(lambda a: a.detach() * 2, x.sin())

    compiled = tatara.compile(program)
    expected = _error_of(lambda: program(batch(0)).sum().backward())
    for _ in range(3):
        result = compiled(batch(0))
        assert result.requires_grad
        assert _error_of(lambda result=result: result.sum().backward()) == expected


@pytest.mark.parametrize("p", [0.0, 0.4])
def test_whole_steps(p: float) -> None:
    def run(compiled: bool) -> list[Any]:
        blocks = _blocks(p=p)
        optimizer = torch.optim.AdamW(blocks.parameters(), lr=1e-2)
        x = batch(1)

        def step(x: Any) -> Any:
            optimizer.zero_grad(set_to_none=True)
            loss = _each(blocks, x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        go = tatara.compile(step) if compiled else step
        torch.manual_seed(7)
        losses = [go(x).clone() for _ in range(4)]
        return [*losses, torch.get_rng_state(), *[p.detach() for p in blocks.parameters()]]

    expected = run(False)
    tatara.reset()
    agree(run(True), expected)
    assert (tatara.stats()["breaks"], tatara.stats()["fallbacks"]) == (0, 0)
