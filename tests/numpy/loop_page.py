"""Sixty loops as people write them, over arrays and numbers: every construct that a loop may have. Each takes what `arguments`
makes. As a script it prints for each how many native loops it has, and its time in milliseconds, plain and compiled.
"""

# ruff: noqa: SIM102, SIM110, SIM113, B007, PLW2901, C416

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Callable
from typing import Any

import numpy as np

PAGE: list[Callable[..., Any]] = []
N = 60


def arguments(names: tuple[str, ...], size: int = N) -> list[Any]:
    """By the names of a program's parameters."""
    rng = np.random.default_rng(5)
    values: dict[str, Any] = {
        "a": rng.random(size) + 0.5,
        "b": rng.random(size) - 0.5,
        "m": rng.random((size, size)),
        "k": rng.integers(0, size, size),
        "u8": rng.integers(0, 256, size, dtype=np.uint8),
        "i32": rng.integers(-9, 9, size).astype(np.int32),
        "f32": rng.random(size).astype(np.float32),
        "z": rng.random(size) + 1j * rng.random(size),
        "flags": rng.random(size) > 0.5,
        "out": np.zeros(size),
        "n": 2 * size // 3,
        "x": 0.3,
    }
    return [values[name] for name in names]


def page(f: Callable[..., Any]) -> Callable[..., Any]:
    PAGE.append(f)
    return f


@page
def sum_of_elements(a):
    s = 0.0
    for i in range(len(a)):
        s += a[i]
    return s


@page
def sum_over_an_array(a):
    s = 0
    for v in a:
        s += v
    return s


@page
def largest_and_its_place(a):
    best, at = a[0], 0
    for i in range(1, a.shape[0]):
        if a[i] > best:
            best = a[i]
            at = i
    return best, at


@page
def running_sum(a, out):
    s = 0.0
    for i, v in enumerate(a):
        s += v
        out[i] = s


@page
def zip_of_two(a, b):
    s = 0.0
    for x, y in zip(a, b):
        s += x * y
    return s


@page
def zip_with_range(a, out):
    for v, i in zip(a, range(len(a))):
        out[i] = 2.0 * v


@page
def enumerate_of_zip(a, b, out):
    for i, (x, y) in enumerate(zip(a, b)):
        out[i] = x - y


@page
def backwards(a):
    for i in range(len(a) - 2, -1, -1):
        a[i] += 0.5 * a[i + 1]


@page
def in_steps_of_three(a):
    s = 0.0
    for i in range(0, len(a), 3):
        s += a[i]
    return s


@page
def triangle(m):
    s = 0.0
    for i in range(m.shape[0]):
        for j in range(i):
            s += m[i, j]
    return s


@page
def three_deep(m, out):
    for i in range(20):
        for j in range(20):
            for k in range(j, 20):
                out[i] += m[i, k] * m[k, j]


@page
def first_above(a, x):
    for i in range(len(a)):
        if a[i] > 1.0 + x:
            break
    return i


@page
def first_above_or_else(a):
    for i in range(len(a)):
        if a[i] > 5.0:
            break
    else:
        i = -1
    return i


@page
def break_of_the_inner_loop(m):
    count = 0
    for i in range(m.shape[0]):
        for j in range(m.shape[1]):
            if m[i, j] > 0.9:
                break
            count += 1
    return count


@page
def continue_in_the_middle(a):
    s = 0.0
    for i in range(len(a)):
        if a[i] < 1.0:
            continue
        s += a[i]
    return s


@page
def return_from_the_loop(a):
    for i in range(len(a)):
        if a[i] > 1.4:
            return i, a[i]
    return None


@page
def return_from_two_loops(m):
    for i in range(m.shape[0]):
        for j in range(m.shape[1]):
            if m[i, j] > 0.99:
                return i, j
    return None


@page
def raise_in_the_loop(a):
    s = 0
    for i in range(len(a)):
        if a[i] > 1.45:
            raise ValueError(i, s)
        s += i
    return s


@page
def while_with_a_counter(a, n):
    i = 0
    s = 0.0
    while i < n:
        s += a[i]
        i += 1
    return s


@page
def while_true(a):
    i = 0
    while True:
        if a[i] > 1.4:
            break
        i += 1
    return i


@page
def while_in_for(k):
    steps = 0
    for i in range(len(k)):
        v = i + 1
        while v != 1:
            v = v // 2 if v % 2 == 0 else 3 * v + 1
            steps += 1
    return steps


@page
def two_ends_of_a_list(a, x):
    lo, hi = 0, len(a) - 1
    while lo < hi:
        if a[lo] + a[hi] > 2.0 + x:
            hi -= 1
        else:
            lo += 1
    return lo


@page
def greatest_common_divisor(n):
    total = 0
    for i in range(1, n):
        p, q = n * i, 36
        while q:
            p, q = q, p % q
        total += p
    return total


@page
def fibonacci(n):
    p, q = 0, 1
    for _ in range(n):
        p, q = q, p + q
    return p


@page
def factorial_beyond_64_bits(n):
    f = 1
    for i in range(1, n):
        f *= i
    return f


@page
def sieve(n):
    prime = np.ones(10 * n, dtype=np.bool_)
    for i in range(2, 10 * n):
        if prime[i]:
            for j in range(i * i, 10 * n, i):
                prime[j] = False
    return prime


@page
def bits_of_numbers(n):
    count = 0
    for i in range(4 * n):
        v = i
        while v:
            v &= v - 1
            count += 1
    return count


@page
def hash_of_bytes(u8):
    h = 5381
    for v in u8:
        h = ((h << 5) + h + int(v)) & 0xFFFFFFFF
    return h


@page
def random_numbers_by_congruence(out):
    state = 12345
    for i in range(len(out)):
        state = (1103515245 * state + 12345) % 2147483648
        out[i] = state / 2147483648


@page
def histogram(k):
    counts = np.zeros(60, dtype=np.int64)
    for i in range(len(k)):
        counts[k[i]] += 1
    return counts


@page
def indices_by_an_array(a, k):
    s = 0.0
    for i in range(len(k)):
        s += a[k[i]]
    return s


@page
def negative_indices(a, out):
    for i in range(len(a)):
        out[-1 - i] = a[i]


@page
def index_out_of_range(a, out):
    for i in range(len(a) + 1):
        out[i] = a[i]


@page
def division_by_zero(n):
    s = 0.0
    for i in range(n, -1, -1):
        s += 1.0 / i
    return s


@page
def elif_chain(a):
    low = middle = high = 0
    for i in range(len(a)):
        if a[i] < 0.8:
            low += 1
        elif a[i] < 1.2:
            middle += 1
        else:
            high += 1
    return low, middle, high


@page
def and_or_not(a, b):
    count = 0
    for i in range(len(a)):
        if (a[i] > 1.0 and b[i] > 0.0) or not a[i] > 0.6:
            count += 1
    return count


@page
def chained_comparisons(a):
    count = 0
    for i in range(len(a)):
        if 0.7 < a[i] <= 1.1:
            count += 1
    return count


@page
def conditional_expressions(a, out):
    for i in range(len(a)):
        out[i] = a[i] if a[i] > 1.0 else -a[i]


@page
def flags_in_locals(a):
    rising = True
    count = 0
    for i in range(1, len(a)):
        up = bool(a[i] > a[i - 1])
        if up != rising:
            count += 1
        rising = up
    return count, rising


def square_or_zero(v):
    if v > 0.0:
        return v * v
    return 0.0


@page
def calls_of_a_function(b):
    s = 0.0
    for i in range(len(b)):
        s += square_or_zero(float(b[i]))
    return s


def digits(v):
    count = 0
    while v > 0:
        v //= 10
        count += 1
    return count


@page
def calls_of_a_function_with_a_loop(n):
    total = 0
    for i in range(5 * n):
        total += digits(i)
    return total


@page
def minimum_and_maximum(a, b):
    s = 0.0
    for i in range(len(a)):
        s += max(a[i], b[i]) - min(a[i], b[i])
    return s


@page
def absolute_values_and_powers(b):
    s = 0.0
    for i in range(len(b)):
        s += abs(b[i]) + b[i] ** 2
    return s


@page
def roots_and_exponentials(a):
    s = 0.0
    for i in range(len(a)):
        s += np.sqrt(a[i]) * np.exp(-a[i])
    return s


@page
def ints_of_32_bits(i32):
    s = np.int32(0)
    for i in range(len(i32)):
        s = s + i32[i]
    return s


@page
def floats_of_32_bits(f32):
    s = np.float32(0)
    for i in range(len(f32)):
        s += f32[i]
    return s


@page
def complex_elements(z, out):
    for i in range(len(z)):
        z[i] = z[i] * z[i] + z[0]


@page
def complex_locals(n):
    z, c, count = 0j, -0.4 + 0.3j, 0
    for _ in range(n):
        z = z * z + c
        count += 1
    return z, count


@page
def slices_of_rows(m, a):
    for i in range(1, m.shape[0]):
        m[i, :] += a * m[i - 1, :]


@page
def slices_that_grow(a, out):
    for i in range(1, len(a)):
        out[i] = a[:i] @ a[:i]


@page
def rows_of_a_matrix(m):
    s = 0.0
    for row in m:
        s += row[0] * row[-1]
    return s


@page
def recurrence_of_two_terms(out):
    out[0] = out[1] = 1.0
    for i in range(2, len(out)):
        out[i] = 0.5 * out[i - 1] + 0.25 * out[i - 2]


@page
def dynamic_programming(i32):
    n = len(i32)
    table = np.zeros((n + 1, n + 1), np.int64)
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            if i32[i - 1] == i32[n - j]:
                table[i, j] = table[i - 1, j - 1] + 1
            else:
                table[i, j] = max(table[i - 1, j], table[i, j - 1])
    return table[n, n]


@page
def bisection(x):
    lo, hi = 0.0, 1.0
    for _ in range(50):
        middle = 0.5 * (lo + hi)
        if middle * middle > x:
            hi = middle
        else:
            lo = middle
    return lo


@page
def newton_until_it_stands(x):
    g, steps = 1.0, 0
    while abs(g * g - x) > 1e-12 and steps < 100:
        g = 0.5 * (g + x / g)
        steps += 1
    return g, steps


@page
def swaps(a):
    for i in range(len(a) // 2):
        a[i], a[len(a) - 1 - i] = a[len(a) - 1 - i], a[i]


@page
def bubble_sort(a):
    for i in range(len(a)):
        for j in range(len(a) - 1 - i):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]


@page
def insertion_sort(a):
    for i in range(1, len(a)):
        v = a[i]
        j = i - 1
        while j >= 0 and a[j] > v:
            a[j + 1] = a[j]
            j -= 1
        a[j + 1] = v


@page
def appended_list(a):
    found = []
    for i in range(len(a)):
        if a[i] > 1.0:
            found.append(i)
    return found


@page
def list_of_numbers(n):
    values = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4]
    s = 0
    for v in values:
        s += v * v
    return s


def main() -> None:
    import tatara

    def milliseconds(f: Callable[..., Any], given: list[Any]) -> float:
        fresh = copy.deepcopy(given)
        start = time.perf_counter()
        try:
            f(*fresh)
        except Exception:  # some of the page raise
            pass
        return 1e3 * (time.perf_counter() - start)

    for f in PAGE:
        given = arguments(tuple(inspect.signature(f).parameters))
        compiled = tatara.compile(f)
        before = tatara.stats()
        cold = milliseconds(compiled, given)
        made = tatara.stats()["native_loops"] - before["native_loops"]
        best = [min(milliseconds(g, given) for _ in range(20)) for g in (f, compiled)]
        print(f"{f.__name__:36} native loops {made}  cold {cold:7.2f}  plain {best[0]:8.3f}  compiled {best[1]:8.3f}")


if __name__ == "__main__":
    main()
