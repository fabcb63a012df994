"""Compiled functions inside of function transforms that were entered outside of compiled code.

A call with tensors of such a transform goes through an ``autograd.Function``, which torch.func takes apart level by level: at
the bottom the compiled function runs on plain tensors. Its derivatives and its batched form are compiled functions of the same
kind, made with torch.func inside of compiled code, so transforms nest to any depth. What is no function of its tensor
arguments alone (effects, random numbers, parameters that require grad) runs in eager, and the report says why.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch._C import _functorch
from torch.utils import _pytree as pytree

from tatara._core import CompiledFunction
from tatara._errors import Unsupported
from tatara.torch._batches import each_example, transformed
from tatara.torch._carried import (
    Places,
    alive,
    carried,
    carried_by_tangents,
    has_tangent,
    moved,
    outermost_grad_mode,
    stopped,
)

_ATOMS = (int, float, bool, str, complex, type(None), torch.dtype, torch.device)
_LIMIT = 16  # structures of arguments that are kept for a function


class _RefusedError(Exception):
    """The compiled function met something that it did not meet when it was looked at."""


class _Phase(threading.local):
    calling = False  # a compiled function is being called, so that it can still be called in eager instead


_phase = _Phase()


def _plain(tensors: Any) -> list[Any]:
    """The tensors without history and tangents, which are the business of the levels around."""
    return [t.data for t in tensors]


def _apart(tensors: Any) -> list[Any]:
    """The tensors as they can get tangents, where there are any: the host gives none to one whose elements share memory."""
    level = torch.autograd.forward_ad._current_level
    return [t.contiguous() if level >= 0 and 0 in t.stride() else t for t in tensors]


class Flat:
    """A function of tensors that gives a tuple of tensors, and what is derived from it."""

    def __init__(self, function: Callable[..., Any], grad: bool) -> None:
        self.function = function
        self.grad = grad  # the caller's grad mode: at the bottom, torch has switched it off
        self.compiled = CompiledFunction(function, None, True)
        self._derived: dict[Hashable, Flat] = {}
        self._reached: dict[Hashable, tuple[Places, ...]] = {}
        # Of turned(): the function, which operands have tangents, the number of its operands.
        self._moves: tuple[Callable[..., Any], tuple[int, ...], int] | None = None

    def _derive(self, key: Hashable, make: Callable[[], Callable[..., Any]]) -> Flat:
        if key not in self._derived:
            self._derived[key] = Flat(make(), self.grad)
        return self._derived[key]

    def values(self, tensors: Any) -> Any:
        tensors = _apart(_plain(tensors))
        with torch.set_grad_enabled(self.grad):
            try:
                return _apart(self.compiled(*tensors))
            except Unsupported as error:
                if _phase.calling:
                    raise _RefusedError(str(error)) from None
            return _apart(self.function(*tensors))  # a derivative of what has been called before

    def reached(self, histories: Places, tangents: Places, operands: tuple[Any, ...]) -> tuple[Places, ...]:
        """For each result: which of the operands with histories or tangents at these places it takes them from."""
        key = (histories, tangents, *[(tuple(t.shape), t.dtype, t.device) for t in operands])
        if key not in self._reached:
            if self._moves is None:
                back = carried(self.function, histories, operands)
            else:
                back = carried_by_tangents(*self._moves, histories, operands)
            forth = moved(self.function, tangents, operands) if tangents else ((),) * len(back)
            self._reached[key] = tuple((*a, *b) for a, b in zip(back, forth, strict=True))
        return self._reached[key]

    def some(self, kept: tuple[bool, ...]) -> Flat:
        """The function that gives these results alone."""
        if all(kept):
            return self

        def of(*operands: Any) -> Any:
            return tuple(itertools.compress(self.function(*operands), kept))

        return self._derive(("some", kept), lambda: of)

    def _at(self, places: tuple[int, ...], operands: tuple[Any, ...]) -> Callable[..., Any]:
        """The function of the operands at these places alone."""

        def of(*some: Any) -> Any:
            given = list(operands)
            for i, tensor in zip(places, some, strict=True):
                given[i] = tensor
            return self.function(*given)

        return of

    def vjp(self, wanted: tuple[int, ...], count: int) -> Flat:
        """(operands, cotangents) -> gradients of the wanted operands."""

        def make() -> Callable[..., Any]:
            def pull(*operands: Any) -> Any:
                of = self._at(wanted, operands[:count])
                return torch.func.vjp(of, *[operands[i] for i in wanted])[1](operands[count:])

            return pull

        return self._derive(("vjp", wanted, count), make)

    def jvp(self, moved: tuple[int, ...], count: int) -> Flat:
        """(operands, tangents of the moved ones) -> tangents of the results."""

        def make() -> Callable[..., Any]:
            def push(*operands: Any) -> Any:
                of = self._at(moved, operands[:count])
                return torch.func.jvp(of, tuple(operands[i] for i in moved), operands[count:])[1]

            return push

        return self._derive(("jvp", moved, count), make)

    def turned(self, moved: tuple[int, ...], count: int) -> Flat:
        """The same by reverse derivatives alone: the host's own levels of forward-mode derivatives do not nest."""

        def make() -> Callable[..., Any]:
            def push(*operands: Any) -> Any:
                of = self._at(moved, operands[:count])
                results, pull = torch.func.vjp(of, *[operands[i] for i in moved])
                zeros = [torch.zeros_like(result) for result in results]
                return torch.func.vjp(lambda *cotangents: pull(cotangents), *zeros)[1](operands[count:])

            return push

        turned = self._derive(("turned", moved, count), make)
        turned._moves = (self.function, moved, count)
        return turned

    def vmap(self, in_dims: tuple[int | None, ...], randomness: str) -> Flat:
        """The function over a batch, which comes first in the results."""
        return self._derive(
            ("vmap", in_dims, randomness),
            lambda: torch.func.vmap(self.function, in_dims=in_dims, randomness=randomness),
        )


class HostFlat:
    """The same for a function that the host's autograd differentiates: one of plain tensors, which runs as it stands."""

    def __init__(self, function: Callable[..., Any], reached: Callable[..., Any] | None = None) -> None:
        self.function = function
        self._reached = reached  # where it is not what a run of the function tells

    def values(self, tensors: Any) -> Any:
        return _apart(result.detach() for result in self.function(*_apart(_plain(tensors))))

    def reached(self, histories: Places, tangents: Places, operands: tuple[Any, ...]) -> tuple[Places, ...]:
        reached = self._reached or functools.partial(carried, self.function)
        return tuple(each + tangents for each in reached(histories, operands))

    def some(self, kept: tuple[bool, ...]) -> HostFlat:
        if all(kept):
            return self
        return HostFlat(lambda *operands: list(itertools.compress(self.function(*operands), kept)))

    def vjp(self, wanted: tuple[int, ...], count: int) -> HostFlat:
        def pull(*operands: Any) -> Any:
            with torch.enable_grad():
                given = [
                    t.detach().requires_grad_() if i in wanted and not t.requires_grad else t
                    for i, t in enumerate(operands[:count])
                ]
                roots = [
                    (r, c) for r, c in zip(self.function(*given), operands[count:], strict=True) if r.requires_grad
                ]
                sources = [given[i] for i in wanted]
                if not roots:
                    return [torch.zeros_like(t) for t in sources]
                results, cotangents = zip(*roots, strict=True)
                found = torch.autograd.grad(results, sources, cotangents, create_graph=True, allow_unused=True)
                return [torch.zeros_like(t) if g is None else g for t, g in zip(sources, found, strict=True)]

        return HostFlat(pull)

    def turned(self, moved: tuple[int, ...], count: int) -> HostFlat:
        pull = self.vjp(moved, count)

        def push(*operands: Any) -> Any:
            primals, tangents = operands[:count], operands[count:]
            zeros = [torch.zeros_like(result) for result in self.function(*primals)]
            places = tuple(range(count, count + len(zeros)))
            return pull.vjp(places, count + len(zeros)).function(*primals, *zeros, *tangents)

        return HostFlat(push)

    jvp = turned

    def vmap(self, in_dims: tuple[int | None, ...], _randomness: str) -> HostFlat:
        def each(*operands: Any) -> Any:
            size = next(t.shape[d] for t, d in zip(operands, in_dims, strict=True) if d is not None)
            rows = [
                self.function(*[t if d is None else t.select(d, i) for t, d in zip(operands, in_dims, strict=True)])
                for i in range(size)
            ]
            return [torch.stack(column) for column in zip(*rows, strict=True)]

        return HostFlat(each, self._reached)


class Around(torch.autograd.Function):  # type: ignore[misc]
    """Applies a Flat or a HostFlat. `recorded`: whether operations below all levels have histories."""

    @classmethod
    def apply(cls, flat: Flat | HostFlat, recorded: bool, *tensors: Any) -> tuple[Any, ...]:
        """Below all levels each result gets a history and a tangent where it has one in eager: of what it is computed from."""
        if _functorch.peek_interpreter_stack() is not None:
            return tuple(super().apply(flat, recorded, *tensors))
        tensors = tuple(alive(t) for t in tensors)
        histories = tuple(i for i, t in enumerate(tensors) if recorded and t.requires_grad)
        tangents = tuple(i for i, t in enumerate(tensors) if has_tangent(t))
        free = [t if i in histories or i in tangents else stopped(t) for i, t in enumerate(tensors)]
        if not histories and not tangents:
            return tuple(super().apply(flat, recorded, *free))
        reached = flat.reached(histories, tangents, tensors)
        results: dict[int, Any] = {}
        for places in dict.fromkeys(reached):
            members = tuple(each == places for each in reached)
            given = [t if i in places else stopped(t) for i, t in enumerate(free)]
            indices = itertools.compress(range(len(members)), members)
            results.update(zip(indices, super().apply(flat.some(members), recorded, *given), strict=True))
        return tuple(results[i] for i in range(len(reached)))

    @staticmethod
    def forward(flat: Flat | HostFlat, _recorded: bool, *tensors: Any) -> Any:
        return tuple(flat.values(tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        flat, _, *tensors = inputs
        ctx.flat = flat
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        tensors = ctx.saved_tensors
        wanted = tuple(i for i, needs in enumerate(ctx.needs_input_grad[2:]) if needs)
        given = tuple(c is not None for c in cotangents)
        gradients: list[Any] = [None] * (2 + len(tensors))
        if not any(given):
            return tuple(gradients)
        flat = ctx.flat.some(given).vjp(wanted, len(tensors))
        cotangents = tuple(itertools.compress(cotangents, given))
        found = each_example(lambda each, _: apply(flat, *tensors, *each), cotangents)
        for i, gradient in zip(wanted, found, strict=True):
            gradients[2 + i] = gradient
        return tuple(gradients)

    @staticmethod
    def jvp(ctx: Any, _flat: Any, _recorded: Any, *tangents: Any) -> Any:
        tensors = ctx.saved_tensors
        moved = tuple(i for i, tangent in enumerate(tangents) if tangent is not None)
        host = torch.func.jvp.__globals__["JVP_NESTING"] == 0  # torch.autograd.forward_ad without torch.func
        if host:
            # The saved operands still have the tangents that are arguments here. Levels of torch.func have taken them apart.
            with torch.autograd.forward_ad._set_fwd_grad_enabled(True):
                tensors = tuple(torch.autograd.forward_ad.unpack_dual(t).primal for t in tensors)
        push = (ctx.flat.turned if host else ctx.flat.jvp)(moved, len(tensors))
        return apply(push, *tensors, *[tangents[i] for i in moved])

    @staticmethod
    def vmap(info: Any, in_dims: Any, flat: Flat, recorded: bool, *tensors: Any) -> Any:
        results = Around.apply(flat.vmap(tuple(in_dims[2:]), info.randomness), recorded, *tensors)
        return results, (0,) * len(results)


def apply(flat: Flat | HostFlat, *operands: Any) -> tuple[Any, ...]:
    """The results of the function in the levels that are open."""
    return Around.apply(flat, outermost_grad_mode(), *operands)


class _Structure:
    """A function with all but its tensor arguments given."""

    def __init__(self, function: Any, leaves: list[Any], spec: Any) -> None:
        self.spec = spec
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.others = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

        def whole(*tensors: Any) -> Any:
            given = list(self.others)
            for i, tensor in zip(self.places, tensors, strict=True):
                given[i] = tensor
            args, kwargs = pytree.tree_unflatten(given, spec)
            return function(*args, **kwargs)

        self.whole = CompiledFunction(whole)
        self.flats = {
            grad: Flat(lambda *tensors: tuple(pytree.tree_leaves(whole(*tensors))), grad) for grad in (False, True)
        }
        self.known: dict[Hashable, Any] = {}  # of kinds of tensors: the structure of results, or why not

    def fits(self, leaves: list[Any], spec: Any) -> bool:
        if spec != self.spec:
            return False
        return all(
            isinstance(leaf, torch.Tensor)
            if i in self.places
            else leaf is other or (type(leaf) is type(other) and isinstance(leaf, _ATOMS) and leaf == other)
            for i, (leaf, other) in enumerate(zip(leaves, self.others, strict=True))
        )

    def look(self, tensors: list[Any], duals: bool) -> Any:
        """The structure of the results, or a str that says why the call is to run in eager."""
        with torch._C._DisableFuncTorch():
            plain = [torch.zeros(tuple(t.shape), dtype=t.dtype, device=t.device) for t in tensors]
            problem, result, switches = self.whole._look(*plain)
            if problem is not None:
                return str(problem)
            if duals and not torch.is_grad_enabled():  # with gradients on, the function's switches show
                with torch.enable_grad():
                    other, _, switches = self.whole._look(*plain)
                switches = switches or other is not None
            if switches and duals:  # turned() differentiates backwards, which stops at no_grad() as tangents do not
                return "gradients are switched on or off beside tangents"
            results, spec = pytree.tree_flatten(result)
            if not results or not all(
                isinstance(r, torch.Tensor) and (r.is_floating_point() or r.is_complex()) for r in results
            ):
                return "a result is no floating-point tensor"
            if len({id(r) for r in [*results, *plain]}) < len(results) + len(plain):
                return "a result is another one, or an argument"
        return spec


def call(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a compiled function; NotImplemented where it is to run in eager."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    levels = torch._C._functorch.get_interpreter_stack() or ()
    if any(level.key() == torch._C._functorch.TransformType.Functionalize for level in levels):
        compiled._note("torch.func.functionalize is at work: this runs in eager")
        return NotImplemented
    if not any(transformed(t) for t in tensors):
        compiled._note("a transform of torch.func is at work on other tensors than the arguments: this runs in eager")
        return NotImplemented
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        compiled._note("hooks on saved tensors are on inside of a transform or level: this runs in eager")
        return NotImplemented
    table = compiled.__dict__.setdefault("_tatara_around", [])
    structure = next((s for s in table if s.fits(leaves, spec)), None)
    if structure is None:
        if len(table) >= _LIMIT:
            return NotImplemented
        structure = _Structure(compiled._tatara_function, leaves, spec)
        table.append(structure)
    duals = any(has_tangent(t) for t in tensors)
    kind = (torch.is_grad_enabled(), duals, *[(type(t), tuple(t.shape), t.dtype, t.device) for t in tensors])
    if kind not in structure.known:
        structure.known[kind] = structure.look(tensors, duals)
    found = structure.known[kind]
    if not isinstance(found, str):
        before, _phase.calling = _phase.calling, True
        try:
            return pytree.tree_unflatten(list(apply(structure.flats[torch.is_grad_enabled()], *tensors)), found)
        except _RefusedError as error:
            found = structure.known[kind] = str(error)
        finally:
            _phase.calling = before
    compiled._note("inside of a transform of torch.func that compiled code is not part of: " + found)
    return NotImplemented
