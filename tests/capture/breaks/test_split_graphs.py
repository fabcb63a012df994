"""A call that the compiler refuses is run by torch inside of its graph: what stands before it and behind it is compiled."""

import itertools
import weakref

import pytest
import torch

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

_SIZE = 16


@torch.library.custom_op("tatara_tests::plain", mutates_args=())
def _plain(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


@_plain.register_fake
def _(x):
    return torch.empty_like(x)


def _save(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def _backward(ctx, g):
    return 2 * g * ctx.saved_tensors[0].cos()


# Defined by its schema: only torch's dispatcher knows its derivative.
torch.library.define("tatara_tests::with_gradient", "(Tensor x) -> Tensor")
torch.library.impl("tatara_tests::with_gradient", "CPU", lambda x: x.sin() * 2)
torch.library.register_fake("tatara_tests::with_gradient", torch.empty_like)
torch.library.register_autograd("tatara_tests::with_gradient", _backward, setup_context=_save)
_with_gradient = torch.ops.tatara_tests.with_gradient


@torch.library.custom_op("tatara_tests::registered", mutates_args=())
def _registered(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


_registered.register_fake(torch.empty_like)
_registered.register_autograd(_backward, setup_context=_save)


@torch.library.custom_op("tatara_tests::without_meta", mutates_args=())
def _without_meta(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


@torch.library.custom_op("tatara_tests::failing_meta", mutates_args=())
def _failing_meta(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


@_failing_meta.register_fake
def _(x):
    raise RuntimeError("the sizes depend on the data")


@torch.library.custom_op("tatara_tests::in_place", mutates_args={"x"})
def _in_place(x: torch.Tensor) -> None:
    x.sin_()


def _written(x):
    y = x.clone()
    _in_place(y)
    return y


def _recurrent(kind):
    torch.manual_seed(0)
    layer = kind(_SIZE, _SIZE)
    return lambda x: layer(x[None])[0][0]


_lstm, _gru = _recurrent(torch.nn.LSTM), _recurrent(torch.nn.GRU)
_sparse = torch.eye(8).to_sparse()

# The call, and whether gradients go through it.
REFUSED = {
    "an operator of a library": (_plain, False),
    "an operator with a rule of its own": (_with_gradient, True),
    "an operator with a registered rule": (_registered, True),
    "an operator without a meta kernel": (_without_meta, False),
    "an operator whose meta kernel raises": (_failing_meta, False),
    "an operator that writes": (_written, False),
    "a sparse product": (lambda x: torch.sparse.mm(_sparse, x), True),
    "an LSTM": (_lstm, True),
    "a GRU": (_gru, True),
}


def _chain(x, count):
    for _ in range(count):
        x = (x * 1.01 + 0.1).tanh()
    return x


def _in_the_middle(call, x):
    return _chain(call(_chain(x, 34)), 34)


def _first(call, x):
    return _chain(call(x), 67)


def _last(call, x):
    return call(_chain(x, 67))


def _at_two_places(call, x):
    return _chain(call(_chain(call(_chain(x, 23)), 23)), 23)


def _in_a_loop(call, x):
    for _ in range(4):
        x = call(_chain(x, 17))
    return x


def _in_a_function(call, x):
    def inner(y):
        y = _chain(y, 20)
        return _chain(call(y), 20)

    return _chain(inner(_chain(x, 14)), 14) + x


def _beside_effects(call, x):
    seen = []
    y = _chain(x, 34)
    seen.append(y)
    y = call(y)
    seen.append(y * 2)
    return _chain(y, 34) + sum(seen)


PROGRAMS = [_in_the_middle, _first, _last, _at_two_places, _in_a_loop, _in_a_function, _beside_effects]


def _run(function, call, x, needs):
    x = x.clone().requires_grad_(needs)
    result = function(call, x)
    if not needs:
        return [result.detach()], result.requires_grad  # a layer's weights may have required it
    return [result.detach(), *torch.autograd.grad(result.square().sum(), x)], True


@pytest.mark.parametrize("name, program", list(itertools.product(REFUSED, PROGRAMS)))
@pytest.mark.parametrize("needs", [False, True])
def test_programs(name, program, needs):
    call, differentiable = REFUSED[name]
    if needs and not differentiable:
        pytest.skip("eager has no gradient either")
    tatara.reset()
    compiled = tatara.compile(program)
    for _ in range(3):
        x = torch.randn(8, _SIZE)
        expected, found = _run(program, call, x, needs), _run(compiled, call, x, needs)
        assert found[1] == expected[1]
        same(found[0], expected[0], atol=1e-4, rtol=1e-4)
    assert tatara.stats()["fallbacks"] == 0


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("needs", [False, True])
def test_two_graphs_and_a_call(name, needs):
    """Once the parts are known: one run of each, forward and backward, and nothing is traced any more."""
    call, differentiable = REFUSED[name]
    if needs and not differentiable:
        pytest.skip("eager has no gradient either")
    tatara.reset()
    compiled = tatara.compile(_in_the_middle)
    for _ in range(4):  # functions around the call have parts of their own from the call after the break on
        _run(compiled, call, torch.randn(8, _SIZE), needs)
    with tatara.kernel_history() as history:
        _run(compiled, call, torch.randn(8, _SIZE), needs)
    runs = {event.run for event in history.launches if "tanh" in event.operators}
    # An operator whose meta kernel tells its types is a step of one graph, where nothing is differentiated or its rule is known.
    known = name == "an operator with a registered rule"
    inside = known or (not needs and name in ("an operator of a library", "an operator with a rule of its own"))
    assert len(runs) == (1 if inside else 2) * (2 if needs else 1)
    assert (history.graphs, history.breaks, history.recompiles) == (0, 0, 0)


def test_the_report():
    report = tatara.explain(_in_the_middle)(_with_gradient, torch.randn(8, _SIZE, requires_grad=True))
    assert (len(report.graphs), report.breaks) == (2, [])
    assert all("tanh" in graph.text and graph.run for graph in report.graphs)
    calls = [each for each in report.host_calls if "with_gradient" in each.operator]
    assert len(calls) == 1 and "no derivative rule for tatara_tests::with_gradient" in calls[0].reason
    assert "runs in eager" not in str(report)


def test_small_parts_are_not_compiled():
    """A plan of its own costs more than a call or two."""
    compiled = tatara.compile(lambda x: _with_gradient(x * 2) + 1)
    for _ in range(3):
        x = torch.randn(8, _SIZE, requires_grad=True)
        torch.testing.assert_close(compiled(x), _with_gradient(x * 2) + 1)
    stats = tatara.stats()
    assert (stats["breaks"], stats["fallbacks"], stats["kernels_launched"]) == (0, 0, 0)
    assert stats["host_calls"] == 3 * 2  # the first call runs what was recorded


def test_one_graph():
    """What `fullgraph=True` asks for: no break."""
    compiled = tatara.compile(_in_the_middle, fullgraph=True)
    for needs in (False, True):
        x = torch.randn(8, _SIZE)
        same(
            _run(compiled, _with_gradient, x, needs)[0],
            _run(_in_the_middle, _with_gradient, x, needs)[0],
            atol=1e-4,
            rtol=1e-4,
        )
    assert tatara.stats()["breaks"] == 0


def test_sizes_that_vary():
    """One entry for all sizes: each part knows them."""

    def program(x, w):
        y = _chain(x.reshape(-1, 2), 8)
        return _chain(y[1:] * _plain(_chain(w, 8)) * y.shape[0], 8), x.shape[0]

    compiled = tatara.compile(program, dynamic=True)
    for rows in (3, 8, 5, 9, 12):
        x, w = torch.randn(rows, _SIZE), torch.randn(2)
        same(compiled(x, w), program(x, w), atol=1e-4, rtol=1e-4)
    assert (tatara.stats()["graphs"], tatara.stats()["fallbacks"]) == (1, 0)


# How a gradient lies in memory follows from rules; where there is no operator there are none, so `backward()` breaks the graph.
# No later call traces what the break leaves to eager.
@pytest.mark.parametrize(
    "name", ["an operator with a rule of its own", "an operator with a registered rule", "an LSTM"]
)
def test_a_whole_step(name):
    """Torch's engine goes through the parts and the call; what the optimizer does is a part again."""
    call = REFUSED[name][0]

    def make():
        torch.manual_seed(0)
        weights = [torch.randn(_SIZE, _SIZE, requires_grad=True) for _ in range(4)]
        optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9)

        def step(x):
            optimizer.zero_grad()
            for weight in weights[:2]:
                x = _chain(x @ weight, 8)
            x = call(x)
            for weight in weights[2:]:
                x = _chain(x @ weight, 8)
            loss = x.square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step, weights

    (eager, theirs), (ours, mine) = make(), make()
    compiled = tatara.compile(ours)
    for _ in range(4):
        x = torch.randn(8, _SIZE)
        same(compiled(x), eager(x), atol=1e-4, rtol=1e-4)
        same([w.detach() for w in mine], [w.detach() for w in theirs], atol=1e-4, rtol=1e-4)
        same([w.grad for w in mine], [w.grad for w in theirs], atol=1e-4, rtol=1e-4)
    with tatara.kernel_history() as history:
        compiled(torch.randn(8, _SIZE))
    runs = {event.run for event in history.launches if "tanh" in event.operators}
    assert len(runs) == (1 if "registered" in name else 4)  # two parts, forward and backward
    assert (history.graphs, history.breaks, history.recompiles) == (0, 0, 0)
    assert tatara.stats()["fallbacks"] == 0


def test_random_numbers_in_order():
    def program(x):
        y = _chain(torch.nn.functional.dropout(x, 0.5), 10)
        return _chain(torch.nn.functional.dropout(_plain(y), 0.5) + torch.rand_like(y), 10), torch.randn(3)

    compiled = tatara.compile(program)
    for seed in range(4):
        x = torch.randn(8, _SIZE)
        torch.manual_seed(seed)
        expected = program(x), torch.rand(2)
        torch.manual_seed(seed)
        same((compiled(x), torch.rand(2)), expected, atol=1e-4, rtol=1e-4)


def test_a_checkpoint_beside_it():
    def program(x):
        y = torch.utils.checkpoint.checkpoint(lambda z: _chain(z, 10), x, use_reentrant=False)
        return _chain(_with_gradient(y), 10)

    compiled = tatara.compile(program)
    for _ in range(3):
        x = torch.randn(8, _SIZE)
        expected, found = _run(lambda f, z: f(z), program, x, True), _run(lambda f, z: f(z), compiled, x, True)
        same(found[0], expected[0], atol=1e-4, rtol=1e-4)
    assert tatara.stats()["fallbacks"] == 0


def test_memory_goes_with_its_last_use():
    """What no later part reads is not held until the end."""
    seen = []

    @torch.library.custom_op("tatara_tests::watch", mutates_args=())
    def watch(x: torch.Tensor) -> torch.Tensor:
        seen.append(weakref.ref(x))
        return x.clone()

    watch.register_fake(torch.empty_like)

    @torch.library.custom_op("tatara_tests::look", mutates_args=())
    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(seen[-1]())
        return x.clone()

    look.register_fake(torch.empty_like)

    def program(x):
        return _chain(look(_chain(watch(_chain(x, 10)), 10)), 10)

    compiled = tatara.compile(program)
    for _ in range(3):
        compiled(torch.randn(8, _SIZE))
    assert seen[-1] is None
    assert tatara.stats()["fallbacks"] == 0


def test_an_operator_that_raises():
    @torch.library.custom_op("tatara_tests::raising", mutates_args=())
    def raising(x: torch.Tensor) -> torch.Tensor:
        if x[0, 0] > 100:
            raise ValueError("too large")
        return x * 1

    raising.register_fake(torch.empty_like)
    effects = []

    def program(x):
        y = _chain(x, 40)
        effects.append("before")
        y = raising(x + y)
        effects.append("behind")
        return _chain(y, 40)

    compiled = tatara.compile(program)
    for call in range(6):
        x = torch.randn(8, _SIZE)
        x[0, 0] = 1000.0 if call % 2 else 0.0
        seen = []
        for run in (program, compiled):
            effects.clear()
            try:
                seen.append(run(x).sum().item())
            except ValueError as error:
                seen.append(str(error))
            seen.append(list(effects))
        assert seen[0] == pytest.approx(seen[2], abs=1e-3) if call % 2 == 0 else seen[0] == seen[2] == "too large"
        assert seen[1] == seen[3]


def _compiles_with_gradients(program):
    """Results and gradients are eager's, without a break."""
    compiled = tatara.compile(program)
    for _ in range(3):
        x = torch.randn(8, _SIZE, requires_grad=True)
        expected, found = program(x), compiled(x)
        same(expected, found, atol=1e-5, rtol=1e-5)
        gradients = [torch.autograd.grad(sum(r.sum() for r in results), x)[0] for results in (expected, found)]
        torch.testing.assert_close(*gradients)
    assert tatara.stats()["breaks"] == tatara.stats()["fallbacks"] == 0


@pytest.mark.parametrize("late", [False, True])
def test_a_result_that_a_later_part_writes_to_is_not_what_gradients_count_on(late):
    """Eager saves the softmax's result, so a write to its operand spoils nothing."""

    def program(x):
        a = _chain(x, 20)
        b = torch.where(a > 0, a, a - 1)
        c = b.softmax(-1)
        d = _with_gradient(x)
        if late:
            d = _chain(d, 20)
        b.mul_(d)
        return b, c, d

    _compiles_with_gradients(program)


def test_a_result_of_a_refused_call_is_written_to():
    """It is no leaf, and no view of one: the operator's schema says so."""

    def program(x):
        y = _with_gradient(x)
        v = y.reshape(-1)
        z = _chain(v, 20)
        y.add_(1)
        return _chain(y * z.sum(), 20), v

    _compiles_with_gradients(program)


def test_views_of_an_argument_that_a_call_before_has_given_a_history():
    """A part that makes them is differentiated, though the argument required no grad at first."""

    def program(y, out):
        out[:, :-1, :, 4:] = y[:, :, :4, :5]
        out[:, 1:, :, :4] = y[:, :, -5:-1, 5:]
        turned = out.view(1, 2, 20, 9).transpose(2, 1)
        corner = turned[:, :4, :, :5]
        seen = turned.new_ones(4, 5).tril().flip(dims=[0])[None, :, None, :].expand(corner.size())
        turned[:, :4, :, :5] = torch.full_like(corner, -1e4).where(seen.bool(), corner)
        return _chain(turned, 20)

    compiled = tatara.compile(program)
    for _ in range(4):
        x = torch.randn(2, 4, 8, 12, requires_grad=True)
        found = []
        for f in (program, compiled):
            x.grad = None
            y = (x.sin() * 2)[..., :9]  # with gaps in memory
            out = y.new_zeros((2, 5, 4, 9))
            result = f(y, out)
            result.sum().backward()
            found.append((result, out, x.grad))
        for expected, got in zip(*found, strict=True):
            torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


def test_a_write_whose_result_comes_from_an_earlier_stage():
    """Results that are differentiated end stages; the write is refused where it stands, not with all of the graph."""

    def program(x, mask):
        x.masked_fill_(mask, 0.5)
        first = _chain(x, 20)
        second = _chain(first * 2, 20)
        return first, second

    compiled = tatara.compile(program)
    for _ in range(3):
        x = torch.randn(8, _SIZE, requires_grad=True)
        mask = torch.rand(8, _SIZE) > 0.5
        results = []
        for f in (program, compiled):
            x.grad = None
            first, second = f(x * 1, mask)
            (first.sum() + second.sum()).backward()
            results.append((first, second, x.grad))
        for expected, got in zip(*results, strict=True):
            torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
    assert tatara.stats()["breaks"] == tatara.stats()["fallbacks"] == 0
    assert tatara.stats()["kernels_launched"] > 0
