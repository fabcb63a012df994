"""Whole functions of NumPy code: one graph, one kernel for a pointwise chain; breaks, mutation, aliasing, scalars."""

from __future__ import annotations

import sys

import pytest
from util import check, same

import numpy as np
import tatara

RNG = np.random.default_rng(7)
A = RNG.standard_normal((5, 7))
B = RNG.standard_normal((5, 7))
SCALE = np.float64(2.5)
TABLE = RNG.standard_normal(7)


@pytest.mark.smoke
def test_torch_is_not_loaded() -> None:
    assert "torch" not in sys.modules or sys.modules["torch"] is None


def test_chain_is_one_kernel() -> None:
    check(lambda a, b: np.sin(a) * b + 1, A, B, graphs=1, kernels=1, hosts=0)


@pytest.mark.smoke
def test_broadcast() -> None:
    check(lambda a, b: a * b + b, A, TABLE, graphs=1, kernels=1)


def test_global_array_and_scalar() -> None:
    check(lambda a: a * SCALE + TABLE, A, graphs=1, kernels=1)


def test_f_order_result() -> None:
    check(lambda a, b: np.exp(a) + b, np.asfortranarray(A), np.asfortranarray(B), graphs=1, kernels=1)


@pytest.mark.smoke
def test_branch_on_values() -> None:
    def f(a, b):
        x = a / (np.abs(a) + 1)
        if b.sum() < 0:
            b = -b
        return x * b

    compiled = check(f, A, np.abs(B), breaks=0)
    same(f(A, -np.abs(B)), compiled(A, -np.abs(B)))
    same(f(A, np.abs(B)), compiled(A, np.abs(B)))


def test_break_keeps_identity() -> None:
    seen = []

    def f(a):
        b = a * 2
        keep = [b, a]
        seen.append(b)
        c = b + 1
        return keep[0] is b and keep[1] is a, c

    compiled = tatara.compile(f)
    for _ in range(3):
        ok, c = compiled(A)
        assert ok is True
        same(A * 2 + 1, c)
        same(A * 2, seen.pop())


def test_python_number_from_array() -> None:
    check(lambda a: a * float(a[0, 0]), A, breaks=None)


@pytest.mark.smoke
def test_mutation() -> None:
    def f(a, b):
        a += b
        a[1:3] = 0
        return a * 2

    check(f, A, B, graphs=1)


def test_returns_argument_and_view() -> None:
    def f(a):
        return a, a[1:], a.T

    compiled = check(f, A, graphs=1)
    x, view, turned = compiled(A)
    assert x is A and np.shares_memory(view, A) and view.base is A and np.shares_memory(turned, A)


def test_scalars() -> None:
    check(lambda a: (a.sum(), a.max(axis=0), a[0, 0]), A, graphs=1)


def test_bool_scalar() -> None:
    check(lambda a: (a > 0).any(), A, breaks=0)
    check(lambda a: (a > 0).all() is np.False_, A, breaks=0)


@pytest.mark.smoke
def test_exception_is_numpys_own() -> None:
    compiled = tatara.compile(lambda a, b: (a * 2) @ b)
    for _ in range(2):
        with pytest.raises(ValueError, match="matmul"):
            compiled(A, B)


def test_warning_on_the_traced_call() -> None:
    compiled = tatara.compile(lambda a: 1 / a)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        compiled(np.zeros(3))


def test_errstate_raise_is_obeyed() -> None:
    compiled = tatara.compile(lambda a: 1 / a)
    with np.errstate(divide="raise"):
        same(1 / A, compiled(A))
        with pytest.raises(FloatingPointError):
            compiled(np.zeros((5, 7)))
        with pytest.raises(FloatingPointError):
            compiled(np.zeros((5, 7)))


def test_values_do_not_leak() -> None:
    check(lambda a: a * len(sorted([a[0, 0], a[0, 1]])), A, breaks=None)
    check(lambda a: max(a[0, 0], a[0, 1]) * a, A, breaks=None)
    compiled = tatara.compile(lambda a: max(a[0], a[1]))
    same(np.float64(2), compiled(np.array([1.0, 2.0])))
    same(np.float64(5), compiled(np.array([5.0, 2.0])))
    compiled = tatara.compile(lambda a: f"{a[0]}")
    assert compiled(np.array([1.0])) == "1.0"
    assert compiled(np.array([2.0])) == "2.0"
    compiled = tatara.compile(lambda xs: max(xs, key=lambda x: x.sum()))
    one, two = np.ones(3), np.full(3, 2.0)
    assert compiled([one, two]) is two
    one, two = np.full(3, 7.0), np.ones(3)
    assert compiled([one, two]) is one


@pytest.mark.smoke
def test_mask_index_breaks() -> None:
    compiled = tatara.compile(lambda a: len(a[a > 0]))
    for x in (A, -A, np.abs(A)):
        assert compiled(x) == len(x[x > 0])
