"""Torch's fused optimizers and what GradScaler calls, one tensor at a time: what stands in for them in a trace.

Each computes what the host's kernel for CPUs does, in its order: in the tensor's own type, halves in float32. A gradient that
was scaled is written back unscaled, and nothing at all is written where `found_inf` is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Tensors = Sequence[Any]


def _wide(tensor: Any) -> Any:
    """The tensor in the type that kernels compute in."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _like(value: Any, tensor: Any) -> Any:
    """A factor in the tensor's type: a tensor of one number would widen it."""
    return value.to(tensor.dtype) if isinstance(value, torch.Tensor) else value


def _rate(lr: Any) -> Any:
    return lr.double() if isinstance(lr, torch.Tensor) else lr


def _count(step: Any) -> Any:
    """The step as a number that a graph computes, where the host's memory has it."""
    return (step + 0).item() if step.device.type == "cpu" else step.double()


def _put(target: Any, value: Any, skip: Any) -> None:
    target.copy_(value if skip is None else torch.where(skip, target, value))


def _skips(found_inf: Any) -> Any:
    return None if found_inf is None else found_inf == 1


def _operands(
    param: Any, grad: Any, maximize: bool, grad_scale: Any, skip: Any, weight_decay: float
) -> tuple[Any, Any]:
    """The parameter, and its gradient with the weight decay that is not decoupled."""
    p, g = _wide(param), _wide(grad)
    if grad_scale is not None:
        g = g / _like(grad_scale, g)
        _put(grad, g, skip)
    g = -g if maximize else g
    return p, g + p * weight_decay if weight_decay != 0 else g


def _adam(
    decoupled: bool,
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors,
    state_steps: Tensors,
    *,
    lr: Any,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
    grad_scale: Any = None,
    found_inf: Any = None,
) -> None:
    skip, rate = _skips(found_inf), _rate(lr)
    for i in range(len(params)):
        step = _count(state_steps[i])
        step_size = rate / (1 - beta1**step)
        root = (1 - beta2**step) ** 0.5
        p, g = _operands(params[i], grads[i], maximize, grad_scale, skip, 0 if decoupled else weight_decay)
        if decoupled and weight_decay != 0:
            p = p * _like(1 - rate * weight_decay, p)
        mean = torch.lerp(_wide(exp_avgs[i]), g, 1 - beta1)
        square = _wide(exp_avg_sqs[i]) * beta2 + (1 - beta2) * g * g
        largest = torch.maximum(_wide(max_exp_avg_sqs[i]), square) if amsgrad else square
        p = p - _like(step_size, p) * mean / (largest.sqrt() / _like(root, p) + eps)
        _put(exp_avgs[i], mean, skip)
        _put(exp_avg_sqs[i], square, skip)
        if amsgrad:
            _put(max_exp_avg_sqs[i], largest, skip)
        _put(params[i], p, skip)


def _fused_adam_(*args: Any, **kwargs: Any) -> None:
    _adam(False, *args, **kwargs)


def _fused_adamw_(*args: Any, **kwargs: Any) -> None:
    _adam(True, *args, **kwargs)


def _fused_sgd_(
    params: Tensors,
    grads: Tensors,
    momentum_buffer_list: Tensors,
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Any = None,
    found_inf: Any = None,
) -> None:
    skip, rate = _skips(found_inf), _rate(lr)
    for i in range(len(params)):
        p, g = _operands(params[i], grads[i], maximize, grad_scale, skip, weight_decay)
        if momentum != 0:
            buffer = g if is_first_step else _wide(momentum_buffer_list[i]) * momentum + g * (1 - dampening)
            _put(momentum_buffer_list[i], buffer, skip)
            g = g + buffer * momentum if nesterov else buffer
        _put(params[i], p - g * _like(rate, p), skip)


def _fused_adagrad_(
    params: Tensors,
    grads: Tensors,
    state_sums: Tensors,
    state_steps: Tensors,
    *,
    lr: Any,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: Any = None,
    found_inf: Any = None,
) -> None:
    skip, rate = _skips(found_inf), _rate(lr)
    for i in range(len(params)):
        now = rate / (1 + (_count(state_steps[i]) - 1) * lr_decay)
        p, g = _operands(params[i], grads[i], maximize, grad_scale, skip, weight_decay)
        total = _wide(state_sums[i]) + g * g
        _put(state_sums[i], total, skip)
        _put(params[i], p - _like(now, p) * g / (total.sqrt() + eps), skip)


def _amp_foreach_non_finite_check_and_unscale_(grads: Tensors, found_inf: Any, inv_scale: Any) -> None:
    for grad in grads:
        g = _wide(grad)
        found_inf.copy_(torch.where(g.isfinite().all(), found_inf, 1.0))
        grad.copy_(g * _like(inv_scale, g))


def _amp_update_scale_(
    scale: Any, growth_tracker: Any, found_inf: Any, growth: float, backoff: float, interval: int
) -> Any:
    bad, count = found_inf != 0, growth_tracker + 1
    grown = (scale.double() * growth).float()
    due = count == interval
    kept = torch.where(due & grown.isfinite(), grown, scale)
    growth_tracker.copy_(torch.where(bad | due, 0, count))
    return scale.copy_(torch.where(bad, (scale.double() * backoff).float(), kept))


def step_if_finite(optimizer: Any, state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    """GradScaler's step of an optimizer: each flag is a condition, which a graph can hold, where GradScaler adds up numbers."""
    for found in state["found_inf_per_device"].values():
        if found:
            return None
    return optimizer.step(*args, **kwargs)


def keep_states(scaler: Any, states: dict[int, Any]) -> None:
    """After GradScaler.update(): what it knew of its optimizers is forgotten, in the same dict as before."""
    if scaler._per_optimizer_states is not states:
        states.clear()
        scaler._per_optimizer_states = states
