"""Steps of torch.func's transforms as eager does them: what a recorded graph calls where it runs as it stands."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch.utils import _pytree as pytree

_C = torch._C._functorch


_forward: list[bool] = []  # whether tangents were on where a level was entered


def enter_jvp() -> int:
    """Begins a level of forward-mode derivatives, in which tangents are on."""
    _forward.append(torch._C._is_fwd_grad_enabled())
    torch._C._set_fwd_grad_enabled(True)
    return int(_C._jvp_increment_nesting())


def exit_jvp() -> int:
    """Ends it."""
    level = int(_C._jvp_decrement_nesting())
    torch._C._set_fwd_grad_enabled(_forward.pop())
    return level


def leave(name: str) -> None:
    """Ends a level whose run failed; `name` is of the step that entered it."""
    if name == "enter_grad":
        _C._grad_decrement_nesting()
    elif name == "enter_jvp":
        exit_jvp()
    elif name == "enter_vmap":
        _C._vmap_decrement_nesting()
    else:
        torch._C._exit_dual_level(level=0)


def enter_vmap(size: int, randomness: str) -> int:
    """Begins a level of vmap. Some operators have their rules only once they are asked for, as in eager."""
    torch.func.vmap.__globals__["vmap_impl"].__globals__["lazy_load_decompositions"]()
    return int(_C._vmap_increment_nesting(size, randomness))


def variable(tensor: torch.Tensor) -> None:
    """Makes a tensor of the innermost level one that gradients are asked by."""
    before = _C.get_inplace_requires_grad_allowed()
    _C.set_inplace_requires_grad_allowed(True)
    try:
        tensor.requires_grad_()
    finally:
        _C.set_inplace_requires_grad_allowed(before)


def unpack_dual(tensor: torch.Tensor, level: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Primal and tangent of a tensor that is known to have one, be it zeros."""
    primal, tangent = torch._VF._unpack_dual(tensor, level=level)
    return primal, torch.zeros_like(primal) if tangent is None else tangent


def gradients(
    roots: Any, cotangents: Any, variables: Any, keep: bool, _accumulate: bool, create: bool
) -> tuple[torch.Tensor, ...]:
    """Gradients of a level; zeros where none comes."""
    pairs = [(r, c) for r, c in zip(roots, cotangents, strict=True) if r.requires_grad]
    if not pairs:
        return tuple(torch.zeros_like(v) for v in variables)
    with torch.inference_mode(False), torch.set_grad_enabled(torch.is_grad_enabled()):
        found = torch.autograd.grad(
            [r for r, _ in pairs],
            variables,
            [c for _, c in pairs],
            retain_graph=keep,
            create_graph=create,
            allow_unused=True,
        )
    return tuple(torch.zeros_like(v) if g is None else g for g, v in zip(found, variables, strict=True))


_host: Any = sys.modules[torch.func.jvp.__globals__["__name__"]]  # torch's own module of transforms


def _record(function: Callable[..., Any], tensors: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]] | None:
    """What the function (tensors -> a list) does with tensors, and what it reads beside them. Without a trace: unknown."""
    return None


def _replay(recording: Any, values: tuple[Any, ...], tensors: tuple[Any, ...]) -> Any:
    """The tensors among the results of what was recorded, from other tensors."""
    return recording(values, tensors, _C.maybe_current_level() or 0)


def _push(recording: Any, values: tuple[Any, ...], primals: Any, tangents: list[Any]) -> list[Any]:
    """Tangents of what was recorded; None where there is none."""
    with _host.jvp_increment_nesting() as level, forward_ad._set_fwd_grad_enabled(True):
        around = forward_ad.dual_level if _host.JVP_NESTING == 1 else contextlib.nullcontext
        with around():
            duals = tuple([forward_ad.make_dual(p, t) for p, t in zip(primals, tangents, strict=True)])
            found = [forward_ad.unpack_dual(result).tangent for result in _replay(recording, values, duals)]
            return [None if t is None else _host._undo_create_differentiable(t, level) for t in found]


def linearize(func: Callable[..., Any], *primals: Any) -> Any:
    """Stands in for torch's in a trace."""
    flat, spec = pytree.tree_flatten(primals)
    found = _record(lambda *given: pytree.tree_leaves(func(*pytree.tree_unflatten(given, spec))), tuple(flat))
    if found is None:
        return torch.func.linearize(func, *primals)
    recording, values = found
    output = func(*primals)
    leaves, output_spec = pytree.tree_flatten(output)
    others = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def jvp_fn(*tangents: Any) -> Any:
        given, given_spec = pytree.tree_flatten(tangents)
        if given_spec != spec:
            raise RuntimeError(f"Expected the tangents {given_spec} to have the same argspec as the primals {spec}")
        for i, (tangent, primal) in enumerate(zip(given, flat, strict=True)):
            for what in ("shape", "device", "dtype"):
                ours, theirs = getattr(tangent, what), getattr(primal, what)
                if ours != theirs:
                    raise RuntimeError(
                        f"tangent:{i} with {what} {ours} in flattened pytree doesn't match the {what} {theirs} of the "
                        "corresponding primal."
                    )
        # Torch's graph makes copies where a tensor is no single number.
        given = [t if t.numel() == 1 else t.clone() for t in given]
        moved = _push(recording, values, flat, given)
        results = list(others)
        for i, tangent in zip(places, moved, strict=True):
            constant = tangent is None
            results[i] = torch.nn.Parameter(torch.zeros_like(leaves[i]), False) if constant else tangent
        return pytree.tree_unflatten(results, output_spec)

    return output, jvp_fn
