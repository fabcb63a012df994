"""What a program asks about the identity of its arguments: each way of asking, against each place where the other object lies."""

import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch

import numpy as np
import tatara

KINDS: dict[str, Callable[[], Any]] = {
    "tensor": lambda: torch.ones(3),
    "parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "array": lambda: np.ones(3),
    "instance": lambda: Thing(),
    "list": lambda: [1.0],
    "module": lambda: torch.nn.Linear(1, 1),
    "new module": lambda: torch.nn.Linear(1, 1),  # others have come and gone before: guarded by structure
}


class Thing:
    """Known by its identity alone."""


# Where the other object lies: the source of an expression for it. `keep` holds the object; `other` is the second argument.
PLACES = {
    "global": "GLOBAL",
    "class": "Holder.there",
    "attribute": "HOLDER.own",
    "item": "ITEMS[1]",
    "value": "TABLE['there']",
    "cell": "cell",
    "argument": "other",
}

# (statements that give `yes`, kinds that they are for)
ASKS = {
    "is": ("yes = x is {other}", None),
    "is not": ("yes = not (x is not {other})", None),
    "operator.is_": ("yes = operator.is_(x, {other})", None),
    "id": ("yes = id(x) == id({other})", None),
    "id as a key": ("yes = {{id({other}): True}}.get(id(x), False)", None),
    "hash": ("yes = hash(x) == hash({other})", ("tensor", "parameter", "instance", "module")),
    "dict display": ("yes = x in {{{other}: 1}}", ("tensor", "parameter", "instance", "module")),
    "dict.get": ("yes = {{{other}: True}}.get(x, False)", ("tensor", "parameter", "instance", "module")),
    "dict, assigned": ("d = {{}}\nd[x] = 1\nyes = {other} in d", ("tensor", "parameter", "instance", "module")),
    "dict comprehension": ("yes = len({{k: 1 for k in (x, {other})}}) == 1", ("tensor", "instance", "module")),
    "dict.setdefault": ("yes = {{{other}: True}}.setdefault(x, False)", ("tensor", "instance")),
    "set display": ("yes = len({{x, {other}}}) == 1", ("tensor", "parameter", "instance", "module")),
    "set of a tuple": ("yes = len(set((x, {other}))) == 1", ("tensor", "parameter", "instance", "module")),
    "set.add": ("s = set()\ns.add(x)\ns.add({other})\nyes = len(s) == 1", ("tensor", "instance", "module")),
    "set.update": ("s = {{x}}\ns.update([{other}])\nyes = len(s) == 1", ("tensor", "instance", "module")),
    "set comprehension": ("yes = len({{k for k in (x, {other})}}) == 1", ("tensor", "instance", "module")),
    "in a tuple": ("yes = x in ({other},)", ("instance", "module")),
    "any of a list": ("yes = any(x is each for each in [{other}])", None),
    "index": ("yes = [{other}, x].index(x) == 0", ("instance", "module")),
    "count": ("yes = [{other}].count(x) == 1", ("instance", "module")),
    "attribute": (
        "x.note = 5\nyes = getattr({other}, 'note', 0) == 5\ndel x.note",
        ("tensor", "parameter", "instance", "module"),
    ),
    "its dict": (
        "x.__dict__['note'] = 5\nyes = 'note' in {other}.__dict__\ndel x.__dict__['note']",
        ("instance",),
    ),
    "requires_grad": ("x.requires_grad_()\nyes = {other}.requires_grad\n", ("tensor",)),
    "grad": ("x.grad = torch.ones(3)\nyes = {other}.grad is not None\nx.grad = None", ("tensor",)),
    "transposed": ("x.unsqueeze_(0)\nyes = {other}.dim() == 2\nx.squeeze_(0)", ("tensor",)),
    "appended": ("x.append(1.0)\nyes = len({other}) == 2\nx.pop()", ("list",)),
    "written": ("x.add_(1)\nyes = bool(({other} == 2).all())\nx.sub_(1)", ("tensor",)),
    "array, written": ("x += 1\nyes = bool(({other} == 2).all())\nx -= 1", ("array",)),
}

ROWS = [
    pytest.param(ask, place, kind, id=f"{ask}-{place}-{kind}")
    for ask, (_, kinds) in ASKS.items()
    for place in PLACES
    for kind in (KINDS if kinds is None else (*kinds, *(["new module"] if "module" in kinds else [])))
]

SOURCE = """
import operator
import torch

def make(cell):
    def f(x, other, t):
{ask}
        return t + 1 if yes else t - 1
        cell
    return f
"""


def outcomes(wrap: Callable[[Any], Any], ask: str, place: str, kind: str) -> list[Any]:
    """Results of four calls: with another object, with the one that lies at the place, with others again."""
    the_one = KINDS[kind]()
    scope: dict[str, Any] = {}
    exec(SOURCE.format(ask=textwrap.indent(ASKS[ask][0].format(other=PLACES[place]), " " * 8)), scope)
    holder = type("Holder", (), {"there": the_one})
    scope.update(GLOBAL=the_one, Holder=holder, HOLDER=holder(), ITEMS=[None, the_one], TABLE={"there": the_one})
    scope["HOLDER"].own = the_one
    f = wrap(scope["make"](the_one))
    results: list[Any] = []
    for _ in range(3 if kind == "new module" else 0):
        f(KINDS[kind](), the_one if place == "argument" else None, torch.zeros(2))
    for x in (KINDS[kind](), the_one, KINDS[kind](), the_one):
        try:
            results.append(f(x, the_one if place == "argument" else None, torch.zeros(2)).tolist())
        except Exception as error:
            results.append((type(error), str(error)))
        if isinstance(the_one, torch.Tensor) and kind == "tensor":
            the_one.requires_grad_(False)
    return results


@pytest.mark.parametrize(("ask", "place", "kind"), ROWS)
def test_answers_are_those_of_each_call(ask: str, place: str, kind: str) -> None:
    expected = outcomes(lambda f: f, ask, place, kind)
    assert outcomes(tatara.compile, ask, place, kind) == expected
    assert len({str(each) for each in expected}) == 2 or ask in ("transposed", "written", "array, written")
