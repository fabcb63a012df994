"""`make bench-transforms`: derivatives of derivatives, forward derivatives and batches of functions, beside eager and
torch.compile, in one run.

Each row runs in a process of its own with empty caches, so that compile times are cold. Results are compared with eager's
over several calls; times are medians of rounds in which the contenders take turns. Where torch.compile fails or breaks the
graph, its column says so.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import harness

Case = tuple[Callable[..., Any], list[Any]]


def _network(width: int, inputs: int, outputs: int = 1, depth: int = 3) -> Any:
    import torch

    layers: list[Any] = [torch.nn.Linear(inputs, width), torch.nn.Tanh()]
    for _ in range(depth - 1):
        layers += [torch.nn.Linear(width, width), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, outputs))


def pinn() -> Case:
    """A step on the loss of u_t + u u_x = u_xx / 100: second derivatives of the output in the loss."""
    import torch

    net = _network(32, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step(x: Any, t: Any) -> Any:
        optimizer.zero_grad()
        u = net(torch.stack([x, t], 1))[:, 0]
        u_x, u_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
        loss = (u_t + u * u_x - 0.01 * u_xx).pow(2).mean()
        loss.backward(inputs=list(net.parameters()))
        optimizer.step()
        return loss.detach()

    return step, [torch.rand(256).requires_grad_(), torch.rand(256).requires_grad_()]


def pinn_func() -> Case:
    """The gradient of the same loss, written with torch.func over one point."""
    import torch
    from torch.func import functional_call, grad, vmap

    net = _network(32, 2)
    parameters = {k: v.detach().clone() for k, v in net.named_parameters()}

    def u(p: Any, x: Any, t: Any) -> Any:
        return functional_call(net, p, (torch.stack([x, t]),))[0]

    def residual(p: Any, x: Any, t: Any) -> Any:
        u_xx = grad(grad(u, argnums=1), argnums=1)(p, x, t)
        return grad(u, argnums=2)(p, x, t) + u(p, x, t) * grad(u, argnums=1)(p, x, t) - 0.01 * u_xx

    def loss(p: Any, x: Any, t: Any) -> Any:
        return vmap(residual, in_dims=(None, 0, 0))(p, x, t).pow(2).mean()

    return lambda x, t: grad(loss)(parameters, x, t), [torch.rand(256), torch.rand(256)]


def force_field() -> Case:
    """A step on the error of forces, which are the gradient of an energy."""
    import torch

    net = _network(32, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step(positions: Any, forces: Any) -> Any:
        optimizer.zero_grad()
        apart = positions[:, :, None] - positions[:, None]
        energy = net((apart * apart).sum(-1, keepdim=True)).sum()
        (slope,) = torch.autograd.grad(energy, positions, create_graph=True)
        loss = (slope + forces).pow(2).mean()
        loss.backward(inputs=list(net.parameters()))
        optimizer.step()
        return loss.detach()

    return step, [torch.randn(8, 8, 3).requires_grad_(), torch.randn(8, 8, 3)]


def hessian_vector() -> Case:
    """Forward over reverse."""
    import torch
    from torch.func import grad, jvp

    net = _network(32, 16)

    def f(x: Any) -> Any:
        return net(x).pow(2).sum()

    return lambda x, v: jvp(grad(f), (x,), (v,))[1], [torch.randn(64, 16), torch.randn(64, 16)]


def forward() -> Case:
    """A directional derivative."""
    import torch
    from torch.func import jvp

    net = _network(64, 16, 16)
    return lambda x, v: jvp(net, (x,), (v,))[1], [torch.randn(128, 16), torch.randn(128, 16)]


def per_sample() -> Case:
    """A gradient by the parameters for every sample."""
    import torch
    from torch.func import functional_call, grad, vmap

    net = _network(32, 16)
    parameters = {k: v.detach().clone() for k, v in net.named_parameters()}

    def loss(p: Any, x: Any, y: Any) -> Any:
        return (functional_call(net, p, (x,)) - y).pow(2).sum()

    each = vmap(grad(loss), in_dims=(None, 0, 0))
    return lambda x, y: each(parameters, x, y), [torch.randn(64, 16), torch.randn(64, 1)]


def local_write() -> Case:
    """Vmap over grad over a function that writes to a tensor of its own."""
    import torch
    from torch.func import grad, vmap

    def f(x: Any) -> Any:
        y = x.sin()
        y[1:] += x[:-1].exp()
        y.mul_(2)
        y[0] = x[-1].cos()
        return (y * y).sum()

    return lambda x: vmap(grad(f))(x), [torch.randn(256, 64)]


def jacobian() -> Case:
    """A Jacobian by forward and one by reverse derivatives."""
    import torch
    from torch.func import jacfwd, jacrev

    net = _network(32, 8, 8)
    return lambda x: (jacfwd(net)(x), jacrev(net)(x)), [torch.randn(8)]


CASES: dict[str, Callable[[], Case]] = {
    "pinn": pinn,
    "pinn_func": pinn_func,
    "force_field": force_field,
    "hessian_vector": hessian_vector,
    "jvp": forward,
    "per_sample": per_sample,
    "local_write": local_write,
    "jacobians": jacobian,
}


def _error(ours: Any, theirs: Any) -> float:
    import torch
    from torch.utils._pytree import tree_leaves

    worst = 0.0
    for a, b in zip(tree_leaves(ours), tree_leaves(theirs), strict=True):
        if isinstance(b, torch.Tensor) and b.numel() > 0:
            worst = max(worst, ((a - b).abs().max() / b.abs().max().clamp(min=1e-6)).item())
    return worst


def measure(name: str, rounds: int, rival: bool) -> dict[str, Any]:
    import torch

    import tatara

    def made() -> Case:
        torch.manual_seed(0)
        return CASES[name]()

    result: dict[str, Any] = {}
    runs: dict[str, Callable[[], Any]] = {}
    first: dict[str, list[Any]] = {}
    for way in ["eager", "tatara", "rival"] if rival else ["eager", "tatara"]:
        f, arguments = made()
        if way == "tatara":
            f = tatara.compile(f)
        elif way == "rival":
            f = torch.compile(f)

        def run(f: Callable[..., Any] = f, arguments: list[Any] = arguments) -> Any:
            return f(*arguments)

        before = tatara.stats()
        start = time.perf_counter()
        try:
            first[way] = [copy.copy(run())]
        except Exception as error:  # the rival refuses some of these programs
            if way != "rival":
                raise
            result["rival"] = f"fails: {type(error).__name__}"
            continue
        result[f"{way}_cold_s"] = time.perf_counter() - start
        first[way] += [run() for _ in range(4)]
        if way == "tatara":
            after = tatara.stats()
            for key in ("graphs", "breaks", "fallbacks", "recompiles", "kernels_compiled"):
                result[key] = after.get(key, 0) - before.get(key, 0)
            start_launches = tatara.stats()
            run()
            end = tatara.stats()
            result["kernels"] = end["kernels_launched"] - start_launches["kernels_launched"]
            result["host_calls"] = end["host_calls"] - start_launches["host_calls"]
            first["eager"].append(runs["eager"]())
            first["tatara"].append(run())
        runs[way] = run
    worst = max(_error(a, b) for a, b in zip(first["tatara"][:5], first["eager"][:5], strict=True))
    result["error"] = f"{worst:.0e}"
    samples: dict[str, list[float]] = {way: [] for way in runs}
    for way in harness.in_turns(list(runs), rounds):
        start = time.perf_counter()
        for _ in range(5):
            runs[way]()
        samples[way].append((time.perf_counter() - start) / 5)
    for way, times in samples.items():
        result[f"{way}_ms"] = statistics.median(times) * 1e3
    return result


COLUMNS = [
    "case",
    *harness.TIMES,
    "error",
    "graphs",
    "breaks",
    "fallbacks",
    "recompiles",
    "kernels",
    "host_calls",
    "rival",
]


def main() -> int:
    return harness.run_cases(__file__, __doc__, "case", list(CASES), measure, COLUMNS, ("eager", "rival"), rounds=15)


if __name__ == "__main__":
    raise SystemExit(main())
