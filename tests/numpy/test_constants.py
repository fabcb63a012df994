"""Arrays that are made of constants alone: their elements are plain numbers."""

from __future__ import annotations

from typing import Any

from util import check

import numpy as np
import tatara

A = np.linspace(0.0, 1.0, 5)


def test_a_branch_on_an_element_of_a_constant_is_no_break() -> None:
    def program(a: Any) -> Any:
        bounds = np.array([0.0, 4.0])
        if bounds[1] > 3:
            a = a * 2
        return a + np.hanning(5)

    check(program, A, graphs=1, breaks=0)


def test_elements_of_a_constant_as_pythons_numbers() -> None:
    def program(a: Any) -> Any:
        steps = np.arange(4.0)
        total = steps[2].item() + float(steps[3]) + steps.tolist()[1] + steps[:1].item()
        return a * total

    check(program, A, graphs=1, breaks=0)


def test_what_was_written_to_with_values_that_vary_is_no_constant() -> None:
    def program(a: Any) -> Any:
        whole = np.zeros(4)
        part = whole[1:]
        part[0] = a[1]
        return a * 2 if whole[1] > 0.1 else a * 3

    compiled = tatara.compile(program)
    for a in (A, -A, A, -A, A, -A):
        np.testing.assert_array_equal(compiled(a), program(a))


def test_what_was_written_to_with_constants_is_one() -> None:
    def program(a: Any) -> Any:
        table = np.zeros(4)
        table[2] = 7.0
        table += 1
        return a * 2 if table[2] == 8 else a * 3

    check(program, A, graphs=1, breaks=0)


def test_methods_of_ufuncs_are_part_of_the_graph() -> None:
    check(lambda a: np.add.reduce(a.reshape(5, 1), axis=0) * 2, A, graphs=1, breaks=0)
