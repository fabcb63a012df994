"""Sizes, numbers and conditions that data decide: symbols and checked decisions of one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from data_programs import OTHERS, WHOLE, check_draws, check_program, compare, mask, operands

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", WHOLE + OTHERS)
def test_as_eager(program: Callable[..., Any], dynamic: bool, needs: bool) -> None:
    check_program(program, dynamic, needs)


def test_kernels_stand_behind_the_call() -> None:
    """Inputs alone decide: torch asks them first."""
    compiled = tatara.compile(mask)
    for call in range(3):
        compiled(*operands(0, False))
    with tatara.kernel_history() as history:
        compiled(*operands(call, False))
    assert len(history.launches) == 2 and (history.graphs, history.breaks, history.recompiles) == (0, 0, 0)


def test_a_decision_that_varies_ends_the_graph_from_then_on() -> None:
    """As it falls in the first call, until it falls otherwise twice: such calls run as eager, and the next is compiled, at last
    with a break.
    """

    def program(x: Tensor) -> Tensor:
        y = x.sin() * 2
        return (y.cos() + 1) if y.sum() > 0 else (y.exp() + 2)

    compiled = tatara.compile(program)
    up, down = torch.full((8, 4), 0.5), torch.full((8, 4), -0.5)
    calls = [(up, 0)] * 3 + [(down, 0)] * 3 + [(up, 0), (up, 1), (down, 1), (up, 1), (down, 1)]
    for x, breaks in calls:
        torch.testing.assert_close(compiled(x), program(x))
        assert tatara.stats()["breaks"] == breaks
    assert tatara.stats()["fallbacks"] == 0
    (item,) = tatara.explain(compiled)(up).breaks
    assert item.reason == "call of __bool__" and "torch.where" in item.hint


def test_a_decision_that_changes_once_surprises_each_size_once() -> None:
    """Graphs of other sizes, made before it changed, say nothing about what it does since."""

    def program(x: Tensor) -> Tensor:
        y = x.sin() * 2
        return (y.cos() + 1) if y.sum() > 0 else (y.exp() + 2)

    compiled = tatara.compile(program, dynamic=False)
    for value in (0.5, -0.5):
        for rows in (8, 6, 4, 2) * 3:
            x = torch.full((rows, 4), value)
            torch.testing.assert_close(compiled(x), program(x))
    stats = tatara.stats()
    assert (stats["breaks"], stats["fallbacks"], stats["graphs"]) == (0, 0, 8)


class Observed(torch.nn.Module):
    """Makes its range ready in its first call, as observers of quantization do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.low, self.high, self.ready = (torch.nn.Buffer(torch.zeros(1)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x).tanh()
        low, high = y.data.min(), y.data.max()
        assert low.isnan().sum() == 0
        if self.low > -1e-5 and self.high < 1e-5:
            self.low, self.high = self.low + low, self.high + high
        else:
            self.low, self.high = self.low * 0.9 + low * 0.1, self.high * 0.9 + high * 0.1
        if not self.ready:
            self.ready = self.ready + 1
        return y / (self.high - self.low)


def test_what_a_first_call_makes_ready_is_one_graph_from_then_on() -> None:
    models = [torch.nn.Sequential(*(Observed() for _ in range(5))) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    compiled = tatara.compile(models[0])
    for _ in range(6):
        before, x = tatara.stats(), torch.randn(3, 4)
        results = [function(x) for function in (compiled, models[1])]
        for result in results:
            result.square().sum().backward()
        torch.testing.assert_close(*results)
        torch.testing.assert_close(models[0].state_dict(), models[1].state_dict())
        torch.testing.assert_close(*([p.grad for p in model.parameters()] for model in models))
    assert (tatara.stats()["breaks"], tatara.stats()["fallbacks"]) == (0, 0)
    assert tatara.stats()["graphs"] == before["graphs"] == 2


def test_what_cannot_be_made_twice_ends_the_graph() -> None:
    """The values of the first call come from a second run of the calls before, so code of the program's is not among them."""
    calls = []

    @torch.library.custom_op("tatara_tests::seen", mutates_args=())
    def seen(x: Tensor) -> Tensor:
        calls.append(1)
        return x * 2

    seen.register_fake(torch.empty_like)

    def program(x: Tensor) -> Tensor:
        y = seen(x)
        return y[y[:, 0] > 0] + 1

    compiled = tatara.compile(program)
    for count in range(1, 4):
        x = torch.randn(8, 4)
        torch.testing.assert_close(compiled(x), x[x[:, 0] > 0] * 2 + 1)
        assert len(calls) == count


def test_numbers_beyond_the_ends() -> None:
    def program(x: Tensor) -> tuple[Any, Tensor]:
        n = x.max().item()
        return n, x * 2

    compiled = tatara.compile(program)
    for value in (3, 5, -(2**62), 2**63 - 1, -(2**63), 7):
        x = torch.full((4,), value)
        result = compiled(x)
        assert result[0] == value and type(result[0]) is int and result[1].equal(x * 2)


def test_random_numbers_are_drawn_once() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        drawn = torch.rand(8)
        chosen = x[drawn > 0.5]
        return chosen * 2, torch.rand(3)

    check_draws(program, (8, 3), exact=True)
    assert tatara.stats()["breaks"] == 0


def test_the_report_names_the_calls() -> None:
    report = tatara.explain(mask)(*operands(0, False))
    calls = {each.operator: each.reason for each in report.host_calls}
    assert "data decide the size of its result" in calls["nonzero"] and report.breaks == []


def test_a_run_that_turns_out_otherwise_leaves_nothing() -> None:
    """Its own memory may be written by then, more of it than is kept; random numbers have been drawn."""

    def program(x: Tensor) -> tuple[Tensor, Tensor, int]:
        out = torch.zeros(1 << 21)
        first, second = (x[:2] % 4 + 1).tolist()
        out[:first] = 1
        out.mul_(2)
        drawn = torch.rand(4)
        third = (x[2] + drawn.gt(2).sum()).item()
        out[first : first + third].add_(1)
        return out[:8] + (1 if third > second else 2), drawn, abs(third - first)

    compiled = tatara.compile(program)
    for x in ([0, 1, 3], [0, 1, 3], [3, 3, 2], [1, 2, 9], [2, 0, 1], [0, 1, 3]):
        results = []
        for function in (program, compiled):
            torch.manual_seed(len(results) * 0)
            results.append([*function(torch.tensor(x)), torch.rand(2)])
        compare(results[1], results[0])
    assert tatara.stats()["fallbacks"] == 0


def test_a_whole_graph_takes_no_decision() -> None:
    """What `fullgraph=True` asks for is said in the first call, not in one that comes out otherwise."""

    def branch(x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x * 3

    def count(x: Tensor) -> Tensor:
        y = x[x > 0] * 2
        return y if y.shape[0] > 3 else y + 1

    for program in (branch, count):
        with pytest.raises(tatara.Unsupported):
            tatara.compile(program, fullgraph=True)(torch.ones(8))
    compiled = tatara.compile(lambda x: x[x > 0] * 2, fullgraph=True)
    for n in (3, 5, 0, 8):
        x = torch.arange(8.0) - 8 + n
        assert compiled(x).equal(x[x > 0] * 2)


def test_many_decisions_that_vary_cost_few_compilations() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if x[0] > 0:
            y = y + 1
        if x[1] > 0:
            y = y * 3
        if x[2] > 0:
            y = y.sin()
        if x[3] > 0:
            y = y.exp()
        return y

    compiled = tatara.compile(program)
    for call in range(24):
        x = torch.tensor([1.0 if call >> k & 1 else -1.0 for k in range(4)])
        torch.testing.assert_close(compiled(x), program(x))
        if call == 7:
            early = tatara.stats()["recompiles"]
    assert early <= 3 and tatara.stats()["fallbacks"] == 0


def test_draws_of_distributions_are_in_order() -> None:
    """Their kernels draw as many numbers as their values ask for; conditions on parameters stand between them."""

    def program(x: Tensor) -> tuple[Tensor, ...]:
        first = torch.distributions.Chi2(x.abs() + 1).sample()
        second = torch.distributions.Dirichlet(first.abs() + 1).sample()
        kept = second[second > second.mean()]
        return first, second, kept, torch.distributions.Normal(kept, 1.0).sample()

    check_draws(program, (3, 4), exact=False)


DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "randn": lambda x: torch.randn(x.shape),
    "normal": lambda x: torch.normal(x, 1.0),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "exponential": lambda x: torch.empty_like(x).exponential_(),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5),
    "randperm": lambda x: torch.randperm(x.shape[0]).to(x.dtype)[:, None],
}

# What data decide between two parts of a training graph: a condition, a number, a size.
DECIDED: dict[str, Callable[[Tensor], Any]] = {
    "bool": lambda x: bool((x == x).all()),
    "int": lambda x: int((x == x).sum()),
    "item": lambda x: (x == x).sum().item(),
    "tolist": lambda x: (x == x).sum(0).tolist()[0],
    "size": lambda x: x[x == x].shape[0],
}


@pytest.mark.parametrize("decided", DECIDED)
@pytest.mark.parametrize("draw", DRAWS)
def test_training_runs_both_parts(draw: str, decided: str) -> None:
    """Each part is run once, compiled, in each call: no draw is lost or made twice, and nothing runs in eager instead."""

    def program(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            drawn = DRAWS[draw](x * w)
        place, scale = x * w, w.exp().expand_as(x)
        if not DECIDED[decided](place):
            raise ValueError
        loss = ((drawn - place) ** 2 / (2 * scale**2) - scale.log()).mean()
        return loss, drawn

    compiled = tatara.compile(program)
    for call in range(4):
        results = []
        for run in (program, compiled):
            torch.manual_seed(call)
            x, w = torch.randn(16, 2), torch.zeros(2, requires_grad=True)
            with tatara.kernel_history() as history:
                loss, drawn = run(x, w)
                loss.backward()
            results.append((loss.detach(), drawn, w.grad, torch.get_rng_state()))
        for expected, found in zip(*results, strict=True):
            torch.testing.assert_close(found, expected)
        assert call < 2 or len(history.launches) >= 3, history.launches  # before the decision, behind it, and backward
    assert (tatara.stats()["fallbacks"], tatara.stats()["breaks"]) == (0, 0)


class Padding(torch.nn.Module):
    """Sizes of a layer that are buffers, as those of audio codecs are."""

    def __init__(self) -> None:
        super().__init__()
        for name, value in (("kernel", 7), ("stride", 2), ("before", 3)):
            self.register_buffer(name, torch.tensor(value))

    def extra(self, x: Tensor) -> Tensor:
        frames = torch.ceil((x.shape[-1] - self.kernel + self.before) / self.stride + 1).to(torch.int64) - 1
        return frames * self.stride + self.kernel - self.before - x.shape[-1]


WITH_NUMBERS: dict[str, Callable[[Padding, Tensor], Any]] = {
    "pad by a buffer": lambda m, x: torch.nn.functional.pad(x, (m.before, m.before)) * 2,
    "pad by a buffer and a result": lambda m, x: torch.nn.functional.pad(x, (m.before, m.extra(x))) * 2,
    "pad by a larger one": lambda m, x: torch.nn.functional.pad(x, (0, max(m.before, m.extra(x)))) + 1,
    "narrow": lambda m, x: x.narrow(2, 0, m.before) + 1,
    "arange": lambda m, x: x[..., :7] + torch.arange(0, m.kernel),
}


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_tensors_of_one_number_as_numbers(name: str, needs: bool) -> None:
    """Also those that come with the call: buffers, whatever they hold then."""
    module = Padding()
    compiled = tatara.compile(lambda x: WITH_NUMBERS[name](module, x))
    for call, size in enumerate((9, 9, 10, 11, 16, 15, 9)):
        if call == 4:
            module.before.add_(1)
        results = []
        for run in (compiled, lambda x: WITH_NUMBERS[name](module, x)):
            x = torch.arange(6.0 * size).view(2, 3, size).requires_grad_(needs)
            y = run(x)
            if needs:
                y.square().sum().backward()
            results.append((y, x.grad))
        compare(*results)
    assert (tatara.stats()["fallbacks"], tatara.stats()["breaks"]) == (0, 0)
    assert tatara.stats()["recompiles"] <= 1


def test_generators_go_on_once_beside_calls_without_types() -> None:
    """No call that draws runs twice, whosever the generator is."""

    def program(x: Tensor, own: torch.Generator) -> Any:
        drawn = torch.multinomial(x.abs() + 0.1, 2, generator=own), torch.binomial(x.abs().ceil(), x * 0 + 0.5, own)
        pairs = torch.combinations(x[0][x[0] > 0])
        return *drawn, pairs * 2, torch.poisson(x.abs(), own), torch.rand(2)

    compiled = tatara.compile(program)
    generators = [torch.Generator().manual_seed(1) for _ in range(2)]
    for seed in range(4):
        x = torch.randn(3, 6)
        results = []
        for function, own in zip((program, compiled), generators, strict=True):
            torch.manual_seed(seed)
            results.append([*function(x, own), torch.rand(2), own.get_state()])
        for ours, theirs in zip(*results, strict=True):
            torch.testing.assert_close(ours, theirs)
