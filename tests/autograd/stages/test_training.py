"""Gradients through compiled code: eager's semantics around the graph of gradients, networks, second derivatives."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tatara

pytestmark = pytest.mark.usefixtures("fresh")


def warm(compiled: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """The first call traces and compiles."""
    compiled(*args)
    assert tatara.stats()["fallbacks"] == 0
    return compiled


def leaf(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, requires_grad=True)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def train(step: Callable[..., Any], model: nn.Module, make: Callable[..., Any], batches: list[Any]) -> list[float]:
    optimizer = make(model.parameters())
    losses = []
    for batch in batches:
        loss = step(model, *batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_ten_steps(name: str) -> None:
    def step(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x), y)

    ours, theirs = mlp(), None
    theirs = copy.deepcopy(ours)
    batches = [(torch.randn(6, 8), torch.randint(0, 4, (6,))) for _ in range(10)]

    def make(parameters: Any) -> torch.optim.Optimizer:
        return getattr(torch.optim, name)(parameters, lr=0.01)

    compiled = tatara.compile(step, fullgraph=True)
    got, expected = train(compiled, ours, make, batches), train(step, theirs, make, batches)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    stats = tatara.stats()
    assert (stats["graphs"], stats["recompiles"], stats["fallbacks"]) == (1, 0, 0)
    assert stats["kernels_launched"] > 0


@pytest.mark.smoke
def test_results_that_depend_on_each_other() -> None:
    """Each result is a place of its own in the graph of gradients."""

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = (x @ w).tanh()
        return logits.square().sum(), logits

    x, w = leaf(3, 4), leaf(4, 5)
    compiled = warm(tatara.compile(f, fullgraph=True), x, w)
    for run in (f, compiled):
        loss, logits = run(x, w)
        (inner,) = torch.autograd.grad(loss, logits, retain_graph=True)
        torch.testing.assert_close(inner, 2 * logits.detach())
        logits.retain_grad()
        loss.backward()
        torch.testing.assert_close(logits.grad, 2 * logits.detach())
        if run is f:
            wanted, x.grad, w.grad = (x.grad, w.grad), None, None
    torch.testing.assert_close((x.grad, w.grad), wanted)


@pytest.mark.smoke
def test_hooks_on_results_change_gradients() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = x.sin()
        return h, h.exp()

    compiled = warm(tatara.compile(f), leaf(4))
    grads = []
    for run in (f, compiled):
        x = torch.arange(4.0, requires_grad=True)
        h, y = run(x)
        h.register_hook(lambda g: g * 10)
        y.sum().backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)


def test_unused_results_and_inputs_have_no_gradient() -> None:
    def f(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a.exp() * 2, b.log()

    compiled = warm(tatara.compile(f), leaf(3), leaf(3), leaf(3))
    a, b, c = leaf(3), torch.zeros(3, requires_grad=True), leaf(3)
    first, _ = compiled(a, b, c)
    first.sum().backward()
    torch.testing.assert_close(a.grad, a.detach().exp() * 2)
    assert b.grad is None and c.grad is None  # and not 0 / 0


def test_which_results_require_grad() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            frozen = x * w
        return {
            "product": x * w,
            "constant": x + 1,
            "detached": (x * w).detach(),
            "frozen": frozen,
            "index": (x * w).argmax(1),
            "mask": w > 0,
            "view": w[0],
            "detached_view": w.detach()[0],
            "zeros": torch.zeros_like(w),
        }

    x, w = torch.randn(3, 4), leaf(3, 4)
    compiled = warm(tatara.compile(f), x, w)
    for key, expected in f(x, w).items():
        got = compiled(x, w)[key]
        assert got.requires_grad == expected.requires_grad, key
        assert got.is_leaf == expected.is_leaf, key
        torch.testing.assert_close(got, expected)


def test_views_of_inputs_stay_views() -> None:
    def f(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return w[1:], w.exp()

    w = leaf(3, 4)
    compiled = warm(tatara.compile(f), w)
    view, _ = compiled(w)
    assert view.data_ptr() == w[1:].data_ptr()
    (view * 3).sum().backward()
    torch.testing.assert_close(w.grad, torch.tensor([[0.0], [3.0], [3.0]]).expand(3, 4))


@pytest.mark.parametrize(
    "view", [lambda x: x[1:], lambda x: x.t(), lambda x: x.chunk(2), lambda x: x.view(-1).split(3)]
)
def test_functions_of_views_alone(view: Callable[..., Any]) -> None:
    compiled = warm(tatara.compile(view), leaf(4, 3))
    x = leaf(4, 3)
    y = x.detach().clone().requires_grad_()
    ours, theirs = compiled(x), view(y)
    if isinstance(theirs, torch.Tensor):
        ours, theirs = (ours,), (theirs,)
    assert [t.requires_grad for t in ours] == [t.requires_grad for t in theirs]
    assert [t._base is x for t in ours] == [t._base is y for t in theirs]
    sum(t.square().sum() for t in ours).backward()
    sum(t.square().sum() for t in theirs).backward()
    assert torch.equal(x.grad, y.grad)


def test_gradients_by_comparison_do_not_require_grad() -> None:
    def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.clamp(-0.5, 0.5).sum() + torch.maximum(x, y).sum() + x.amax(0).sum()

    compiled = warm(tatara.compile(both), leaf(4, 3), leaf(4, 3))
    x, y = leaf(4, 3), leaf(4, 3)
    for function in (compiled, both):
        assert [g.requires_grad for g in torch.autograd.grad(function(x, y), (x, y), create_graph=True)] == [False] * 2


def test_backward_twice() -> None:
    compiled = warm(tatara.compile(lambda x: x.sin() * x), leaf(3))
    x = leaf(3)
    y = compiled(x).sum()
    y.backward(retain_graph=True)
    once = x.grad.clone()
    y.backward()
    torch.testing.assert_close(x.grad, 2 * once)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_saved_input_modified_in_place() -> None:
    compiled = warm(tatara.compile(lambda x, w: x * w), torch.randn(3), leaf(3))
    x, w = torch.randn(3), leaf(3)
    y = compiled(x, w).sum()
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_result_modified_in_place() -> None:
    """Exp saves its result."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    compiled = warm(tatara.compile(f), leaf(3))
    x = leaf(3)
    y = compiled(x)
    y.mul_(2)
    torch.testing.assert_close(y, x.exp() * 2)
    try:
        y.sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:  # the plan need not have saved it
        torch.testing.assert_close(x.grad, x.detach().exp() * 2)


def test_requires_grad_is_guarded() -> None:
    model = nn.Linear(4, 4)
    compiled = tatara.compile(lambda m, x: m(x).relu())
    x = torch.randn(2, 4)
    for _ in range(2):
        assert compiled(model, x).requires_grad
    model.requires_grad_(False)
    for _ in range(2):
        assert not compiled(model, x).requires_grad
    y = x.clone().requires_grad_()
    for _ in range(2):
        assert compiled(model, y).requires_grad
    with torch.no_grad():
        assert not compiled(model, y).requires_grad


def test_writes_to_leaves_are_eagers_errors() -> None:
    def f(w: torch.Tensor) -> torch.Tensor:
        w.mul_(2)
        return w + 1

    compiled = tatara.compile(f)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        compiled(leaf(3))
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        compiled(leaf(3))


def test_writes_to_inputs_with_history() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x.mul_(w)
        return x.sum()

    grads = []
    compiled = tatara.compile(f)
    for run in (f, compiled, compiled):
        w = torch.arange(3.0, requires_grad=True)
        x = w * 2
        run(x, w).backward()
        grads.append(w.grad)
    torch.testing.assert_close(grads[1], grads[0])
    torch.testing.assert_close(grads[2], grads[0])


def test_batch_norm_in_training_updates_its_statistics() -> None:
    ours = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU())
    theirs = copy.deepcopy(ours)
    compiled = tatara.compile(ours)
    for _ in range(3):
        x = torch.randn(5, 4)
        compiled(x).square().sum().backward()
        theirs(x).square().sum().backward()
    for (name, got), expected in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(got, expected, msg=name)
    for got, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(got.grad, expected.grad, rtol=1e-4, atol=1e-4)


def test_dropout_draws_eagers_numbers() -> None:
    model = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.3), nn.Linear(32, 2))
    x = torch.randn(4, 8)
    compiled = warm(tatara.compile(lambda m, x: m(x).square().sum()), model, x)
    grads = []
    for run in (lambda m, x: m(x).square().sum(), compiled):
        torch.manual_seed(3)
        model.zero_grad()
        run(model, x).backward()
        grads.append([p.grad.clone() for p in model.parameters()])
        state = torch.get_rng_state()
    torch.testing.assert_close(grads[1], grads[0])
    assert torch.equal(state, torch.get_rng_state())


def test_graph_break_inside() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = (x * w).tanh()
        if y.sum() > 0:
            y = y * 2
        return (y * w).sum()

    compiled = tatara.compile(f)
    for sign in (1, -1, 1, -1):
        x = torch.full((3,), 0.5 * sign)
        w1, w2 = (torch.ones(3, requires_grad=True) for _ in range(2))
        compiled(x, w1).backward()
        f(x, w2).backward()
        torch.testing.assert_close(w1.grad, w2.grad)


def test_sizes_that_vary() -> None:
    model = mlp()
    compiled = tatara.compile(lambda m, x: m(x).square().mean())
    for batch in (3, 5, 7, 9, 2):
        x = torch.randn(batch, 8)
        model.zero_grad()
        compiled(model, x).backward()
        got = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model(x).square().mean().backward()
        torch.testing.assert_close(got, [p.grad for p in model.parameters()], rtol=1e-4, atol=1e-5)
    assert tatara.stats()["recompiles"] <= 1


def pinn() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 1)).double()


def residual(net: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
    u = net(x)
    (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (ddx,) = torch.autograd.grad(du[:, 0].sum(), x, create_graph=True)
    (ddt,) = torch.autograd.grad(du[:, 1].sum(), x, create_graph=True)
    return (ddx[:, 0] - ddt[:, 1] + du[:, 1] * u[:, 0]).square().mean()


def test_physics_informed_network() -> None:
    net = pinn()
    compiled = tatara.compile(net, fullgraph=True)
    x = torch.rand(7, 2, dtype=torch.float64, requires_grad=True)
    warm(compiled, x)
    grads = []
    for run in (net, compiled):
        net.zero_grad()
        loss = residual(run, x)
        loss.backward()
        grads.append((loss.detach(), [p.grad.clone() for p in net.parameters() if p.grad is not None]))
    torch.testing.assert_close(grads[1], grads[0])


def test_force_field() -> None:
    """Forces are a gradient of the energy, and are trained on."""
    net = nn.Sequential(nn.Linear(1, 8), nn.Softplus(), nn.Linear(8, 1)).double()

    def energy(net: nn.Module, positions: torch.Tensor) -> torch.Tensor:
        distance = (positions[:, None] - positions[None]).square().sum(-1) + 1.0
        return net(distance.sqrt()[..., None]).sum()

    compiled = warm(tatara.compile(energy), net, torch.rand(5, 3, dtype=torch.float64, requires_grad=True))
    target = torch.rand(5, 3, dtype=torch.float64)
    grads = []
    for run in (energy, compiled):
        net.zero_grad()
        positions = torch.linspace(0, 1, 15, dtype=torch.float64).reshape(5, 3).requires_grad_()
        (force,) = torch.autograd.grad(-run(net, positions), positions, create_graph=True)
        F.mse_loss(force, target).backward()
        grads.append([p.grad.clone() for p in net.parameters() if p.grad is not None])
    torch.testing.assert_close(grads[1], grads[0])


def test_gradient_inside_the_function() -> None:
    def f(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        y = (x * w).sin().sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return (g**2).sum()

    compiled = tatara.compile(f)
    x = torch.randn(4)
    grads = []
    for run in (f, compiled, compiled):
        w = torch.ones(4, requires_grad=True)
        run(w, x).backward()
        grads.append(w.grad)
    torch.testing.assert_close(grads[1], grads[0])
    torch.testing.assert_close(grads[2], grads[0])


def test_nodes_of_the_users_keep_their_backward() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g * 100  # not what forward says

    def f(x: torch.Tensor) -> torch.Tensor:
        return Double.apply(x.sin()).exp().sum()

    compiled = tatara.compile(f)
    grads = []
    for run in (f, compiled, compiled):
        x = torch.linspace(0, 1, 4, requires_grad=True)
        run(x).backward()
        grads.append(x.grad)
    torch.testing.assert_close(grads[1], grads[0])
    torch.testing.assert_close(grads[2], grads[0])


def test_fourth_derivative() -> None:
    compiled = warm(tatara.compile(lambda x: x.tanh()), leaf(3))
    values = []
    for run in (torch.tanh, compiled):
        x = torch.linspace(-1, 1, 3, dtype=torch.float32, requires_grad=True)
        y = run(x)
        for _ in range(4):
            (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        values.append(y)
    torch.testing.assert_close(values[1], values[0])


def test_torch_runs_calls_without_a_rule() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eig(x.view(2, 2)).eigenvalues.abs().sum()

    compiled = tatara.compile(f)
    x, y = leaf(4), leaf(4)
    y.data.copy_(x.data)
    for _ in range(2):
        x.grad = y.grad = None
        compiled(x).backward()
        f(y).backward()
        torch.testing.assert_close(x.grad, y.grad)
    assert tatara.stats()["fallbacks"] == 0
    assert "no derivative rule for" in str(tatara.explain(compiled)(x))


def test_nothing_leaks() -> None:
    model = mlp()
    compiled = tatara.compile(lambda m, x: m(x).square().mean())
    import gc

    def live() -> int:
        gc.collect()
        return sum(isinstance(o, torch.Tensor) for o in gc.get_objects())

    counts = []
    for i in range(60):
        compiled(model, torch.randn(4, 8)).backward()
        model.zero_grad()
        if i in (20, 59):
            counts.append(live())
    assert counts[0] == counts[1]


def _bert() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    ids = torch.randint(0, 200, (2, 12))
    return BertModel(config), {"input_ids": ids}


def _gpt2() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=200, n_positions=64, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        use_cache=False,
    )  # fmt: skip
    ids = torch.randint(0, 200, (2, 12))
    return GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids}


@pytest.mark.parametrize("make", [_bert, _gpt2])
def test_models(make: Callable[[], tuple[nn.Module, dict[str, torch.Tensor]]]) -> None:
    ours, batch = make()
    theirs = copy.deepcopy(ours)
    compiled = tatara.compile(ours)
    losses: list[list[float]] = []
    for model, run in ((theirs, theirs), (ours, compiled)):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses.append([])
        for _ in range(10):
            out = run(**batch)
            loss = out.loss if "labels" in batch else out.last_hidden_state[:, 0].square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[-1].append(loss.item())
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-3, atol=1e-4)
    stats = tatara.stats()
    assert stats["fallbacks"] == 0
    assert stats["kernels_launched"] > 0


def test_gradients_of_a_tied_table_are_summed_in_place() -> None:
    """The rows of the look-up are added to what the product gives: no table of zeros, no sum of two tables."""
    rows, width = 3000, 32
    ids = torch.randint(0, rows, (40,))

    def function(table: Any) -> Any:
        hidden = torch.nn.functional.embedding(ids, table) + torch.nn.functional.embedding(ids.flip(0), table)
        return torch.nn.functional.linear(hidden, table).square().mean()

    table = torch.randn(rows, width)
    grads = []
    compiled = tatara.compile(function)
    for run in (function, compiled, compiled):
        leaf = table.clone().requires_grad_()
        with tatara.kernel_history() as history:
            run(leaf).backward()
        grads.append(leaf.grad)
    for grad in grads[1:]:
        torch.testing.assert_close(grad, grads[0])
        assert grad.stride() == grads[0].stride()
    # A whole table is read and written by no kernel: the look-ups and their gradients touch forty rows.
    touched = [event for event in history.launches if event.bytes >= 2 * rows * width * 4]
    assert not [event for event in touched if "add" in event.operators or "full" in event.operators]


@pytest.mark.parametrize("retained", [False, True])
def test_saved_values_stay_where_the_graph_is_retained(retained: bool) -> None:
    """Else a backward pass lets go of each when its plan does not need it any more."""

    def function(x: Any, weights: list[Any]) -> Any:
        for weight in weights:
            x = torch.nn.functional.gelu(x @ weight)
        return x.sum()

    weights = [(torch.randn(64, 64) / 8).requires_grad_() for _ in range(4)]  # values stay near one
    x = torch.randn(256, 64, requires_grad=True)
    compiled = tatara.compile(function)
    compiled(x, weights).backward()  # the first backward pass is eager's
    expected = [p.grad.clone() for p in (x, *weights)]
    for p in (x, *weights):
        p.grad = None
    loss = compiled(x, weights)
    loss.backward(retain_graph=retained)
    for p, theirs in zip((x, *weights), expected):
        torch.testing.assert_close(p.grad, theirs)
    if retained:
        loss.backward()
        torch.testing.assert_close(x.grad, 2 * expected[0])
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
