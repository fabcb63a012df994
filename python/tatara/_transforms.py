"""Steps of torch.func's transforms as eager does them: what a recorded graph calls where it runs as it stands."""

from __future__ import annotations

from typing import Any

import torch

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
