"""Symbolic shapes: a size that varies becomes a symbol, and no new size compiles again. Against eager, by counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from results import same  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh", "no_grad", "backend")


def check(f: Callable[..., Any], calls: list[tuple[Any, ...]], compiles: int, *, backend: str, **options: Any) -> Any:
    """Each call twice, right each time, with `compiles` entries in the end and no graph break."""
    compiled = tatara.compile(f, backend=backend, fullgraph=True, **options)
    for args in calls:
        for _ in range(2):
            same(compiled(*args), f(*args))
    entries = compiled._report()["entries"]
    assert len(entries) == compiles, [e["guards"] for e in entries]
    assert all(e["end"] == "return" for e in entries)
    if backend == "tatara":
        assert all(e["fallback"] == "" for e in entries), [e["fallback"] for e in entries]
    return compiled


def sized(*shapes: tuple[int, ...]) -> list[tuple[Any, ...]]:
    return [(torch.randn(*shape),) for shape in shapes]


@pytest.mark.smoke
def test_second_size_is_a_symbol(backend: str) -> None:
    check(lambda x: torch.relu(x) * 2 + 1, sized((3, 4), (5, 6), (7, 8), (2, 9)), 2, backend=backend)


def test_one_dimension(backend: str) -> None:
    compiled = check(lambda x: x.softmax(-1), sized((3, 8), (5, 8), (7, 8)), 2, backend=backend)
    assert any("float32[s0, 8]" in line for line in compiled._report()["entries"][1]["guards"])


def test_one_is_special(backend: str) -> None:
    check(lambda x: x.sum(0), sized((3, 4), (5, 4), (1, 4), (6, 4), (0, 4)), 4, backend=backend)


def test_equal_sizes_share_a_symbol(backend: str) -> None:
    def f(x: Any, y: Any) -> Any:
        return x + y

    pairs = [(torch.randn(n), torch.randn(n)) for n in (3, 5, 8)]
    compiled = check(f, pairs, 2, backend=backend)
    with pytest.raises(RuntimeError):
        compiled(torch.randn(3), torch.randn(4))


def test_unequal_after_equal(backend: str) -> None:
    def f(x: Any, y: Any) -> Any:
        return x.sum() + y.sum()

    check(
        f, [(torch.randn(a), torch.randn(b)) for a, b in ((3, 3), (4, 4), (5, 6), (7, 7), (8, 9))], 3, backend=backend
    )


def test_no_new_kernels_for_new_sizes(backend: str) -> None:
    if backend != "tatara":
        pytest.skip("kernels")

    def f(x: Any) -> Any:
        return torch.nn.functional.layer_norm(x, (16,)).softmax(-1).transpose(0, 1).contiguous()

    compiled = tatara.compile(f, fullgraph=True)
    for n in (4, 6):
        x = torch.randn(n, 3, 16)
        same(compiled(x), f(x))
    before = tatara.stats()["kernels_compiled"]
    for n in (8, 11, 30):
        x = torch.randn(n, 3, 16)
        same(compiled(x), f(x))
    after = tatara.stats()
    assert after["kernels_compiled"] == before
    assert after["recompiles"] == 1


# ---- Sizes in the program --------------------------------------------------------------------------------------------


def test_views(backend: str) -> None:
    def f(x: Any) -> Any:
        b, n, d = x.shape
        heads = x.view(b, n, 2, d // 2).transpose(1, 2)
        return heads.reshape(b * 2, n, -1), heads.permute(0, 2, 1, 3).contiguous().view(b, n, d)

    check(f, sized((2, 3, 8), (4, 5, 8), (3, 7, 8), (6, 6, 8)), 2, backend=backend)


def test_shape_arithmetic(backend: str) -> None:
    def f(x: Any) -> Any:
        shape = x.shape[:-1] + (2, x.shape[-1] // 2)
        return x.view(shape), x.view(*x.shape[:-1], -1), x.reshape(x.size(0), x.numel() // x.size(0))

    check(f, sized((3, 4, 6), (5, 7, 8), (2, 3, 10)), 2, backend=backend)


def test_cat_and_slices(backend: str) -> None:
    def f(x: Any, y: Any) -> Any:
        z = torch.cat([x, y])
        n = x.shape[0]
        return z[:n] * 2, z[n:], z[1 : n - 1], z.shape[0]

    check(f, [(torch.randn(a, 3), torch.randn(b, 3)) for a, b in ((4, 5), (6, 7), (9, 5), (12, 3))], 2, backend=backend)


def test_creation(backend: str) -> None:
    def f(x: Any) -> Any:
        n = x.size(1)
        mask = torch.arange(n)[None, :] <= torch.arange(n)[:, None]
        return torch.where(mask, x, torch.full((n, n), -1.0)), torch.zeros(x.shape), torch.ones(n, 2)

    check(f, sized((4, 4), (6, 6), (9, 9)), 2, backend=backend)


def test_padding(backend: str) -> None:
    def f(x: Any) -> Any:
        return torch.nn.functional.pad(x, (1, 8 - x.shape[-1] % 8))

    check(f, sized((2, 3), (2, 5), (2, 13), (2, 31)), 2, backend=backend)


def test_returned_sizes(backend: str) -> None:
    def f(x: Any) -> Any:
        return {"n": x.shape[0], "shape": x.shape, "numel": x.numel(), "list": [len(x), (x.size(1) + 1) * 2]}, x + 1

    compiled = check(f, sized((3, 4), (5, 6), (7, 9)), 2, backend=backend)
    result = compiled(torch.randn(8, 3))[0]
    assert type(result["n"]) is int and type(result["shape"]) is torch.Size
    assert all(type(n) is int for n in [*result["shape"], result["numel"], *result["list"]])


def test_sizes_as_numbers(backend: str) -> None:
    def f(x: Any) -> Any:
        n = x.shape[0]
        return x * n, n - x, x / n, x > n

    check(f, sized((3, 4), (5, 4), (7, 4)), 2, backend=backend)


@pytest.mark.smoke
def test_branch_on_a_size(backend: str) -> None:
    def f(x: Any) -> Any:
        if x.shape[0] > 6:
            return x * 2
        return x + 1

    compiled = check(f, sized((3, 4), (4, 4), (5, 4), (8, 4), (9, 4), (100, 4), (6, 4)), 3, backend=backend)
    assert any("s0 >= 7" in line or "7 <= s0" in line for e in compiled._report()["entries"] for line in e["guards"])


def test_loop_over_a_size_specialises(backend: str) -> None:
    def f(x: Any) -> Any:
        total = x[0]
        for i in range(1, x.shape[0]):
            total = total * 0.5 + x[i]
        return total

    check(f, sized((3, 4), (4, 4), (5, 4), (5, 4), (4, 4)), 3, backend=backend)


def test_integer_behaviour(backend: str) -> None:
    def f(x: Any) -> Any:
        n = x.shape[0]
        facts = [isinstance(n, int), type(n) is int, n.__class__ is int, isinstance(n, float), callable(n)]
        numbers = [
            n + 1,
            2 * n,
            n - 3,
            10 - n,
            n // 2,
            n % 3,
            -n,
            +n,
            abs(n),
            n**2,
            n << 2,
            n >> 1,
            ~n,
            max(n, 5),
            min(n, 5),
        ]
        tests = [n == 3, n != 3, n < 5, n >= 5, 4 in [n], bool(n), n == "a", n is None]
        return facts, numbers, tests, divmod(n, 3), sum([n, n, 1]), x + 1

    check(f, sized((3,), (4,), (4,), (6,)), 3, backend=backend)


def test_integers_in_c_code(backend: str) -> None:
    def f(x: Any) -> Any:
        n = x.shape[0]
        return (
            [0] * n, "%d" % n, f"{n:>4}", str(n), hash(n), {n: 1}[n], [5] * 9 == [5] * n, list(range(n)), n / 2, float(n),
            (1.5 * n, n * 1.5, n**0.5, round(n), int(n), n.bit_length(), "ab" * n, divmod(n, 2)), x * 2,
        )  # fmt: skip

    check(f, sized((3,), (4,), (6,), (4,)), 3, backend=backend)


def test_modes(backend: str) -> None:
    def f(x: Any) -> Any:
        return x * 2

    calls = sized((3, 4), (5, 6), (7, 8))
    check(f, calls, 1, dynamic=True, backend=backend)
    check(f, calls, 3, dynamic=False, backend=backend)
    marked = torch.randn(3, 4)
    tatara.mark_dynamic(marked, (0, 1))
    check(f, [(marked,), *calls[1:]], 1, backend=backend)


def test_strides(backend: str) -> None:
    def f(x: Any) -> Any:
        return x + 1, x.t().reshape(-1), x.stride(), x.is_contiguous()

    calls = [(torch.randn(n, m).t(),) for n, m in ((3, 4), (5, 6), (7, 9))]
    check(f, calls, 2, backend=backend)
    tatara.reset()
    windows = [(torch.randn(4, n)[:, :3],) for n in (5, 6, 9, 12)]
    check(f, windows, 2, backend=backend)


def test_break_keeps_sizes_apart(backend: str) -> None:
    def f(x: Any) -> Any:
        n = x.shape[0]
        y = x * n
        print(n, end="")
        return y.view(n, -1) + n

    compiled = tatara.compile(f, backend=backend)
    for n in (3, 4, 5, 6):
        x = torch.randn(n, 2, 2)
        same(compiled(x), f(x))
    first = [e for e in compiled._report()["entries"] if e["offset"] == 0]
    assert len(first) == 2


def test_error_is_eagers(backend: str) -> None:
    def f(x: Any) -> Any:
        return x.view(x.shape[0] // 2, 2, -1)

    compiled = tatara.compile(f, backend=backend)
    for n in (4, 6, 8):
        x = torch.randn(n, 3)
        same(compiled(x), f(x))
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        compiled(torch.randn(7, 3))


def test_values_made_from_sizes(backend: str) -> None:
    """A branch on a tensor made from sizes alone is a guard that later sizes answer."""

    def f(x: Any) -> Any:
        positions = torch.arange(x.shape[0])
        if (positions > 5).any():
            return x * 2
        return x + 1

    check(f, sized((3, 4), (4, 4), (5, 4), (6, 4), (9, 4), (12, 4), (2, 4)), 3, backend=backend)


# ---- Python numbers --------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_int_argument(backend: str) -> None:
    def f(x: Any, n: int, *, k: int = 3) -> Any:
        return x[:n] * n + k, x.new_zeros(n, k), n + k

    x = torch.randn(40, 3)
    check(f, [(x, 5), (x, 7), (x, 11), (x, 30)], 2, backend=backend)
    compiled = tatara.compile(f, backend=backend, fullgraph=True)
    for n, k in ((5, 3), (6, 4), (7, 9), (9, 5)):
        same(compiled(x, n, k=k), f(x, n, k=k))
    assert len(compiled._report()["entries"]) == 2


def test_small_and_negative_ints(backend: str) -> None:
    def f(x: Any, n: int) -> Any:
        return x * n, n // 2, n % 3, -n

    check(f, [(torch.ones(3), n) for n in (5, 6, 0, 1, -3, -7, 9, -100, 0)], 5, backend=backend)


def test_int_that_is_a_dimension(backend: str) -> None:
    def f(x: Any, dim: int) -> Any:
        return x.sum(dim)

    check(f, [(torch.randn(2, 3, 4, 5), dim) for dim in (2, 3, 1, 3)], 3, backend=backend)


def test_int_operand_dtypes(backend: str) -> None:
    def f(x: Any, n: int) -> Any:
        return x + n, x * n, x > n

    for dtype in (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.float16, torch.bool):
        compiled = tatara.compile(f, backend=backend)
        for n in (3, 5, 100, 7, -4, -9):
            x = torch.arange(6).to(dtype)
            same(compiled(x, n), f(x, n))


def test_bool_and_other_values_stay_constants(backend: str) -> None:
    def f(x: Any, flag: Any) -> Any:
        return x + 1 if flag else x - 1

    check(f, [(torch.ones(3), v) for v in (True, False, None, "a", True)], 4, backend=backend)


def test_ints_in_c_code_and_containers(backend: str) -> None:
    def f(x: Any, n: int) -> Any:
        items = [n, (n, {"n": n})]
        return items, str(n), [0] * n, x.view(n, -1), isinstance(n, int), sum(items[:1]), {n: n}

    check(f, [(torch.ones(24), n) for n in (4, 6, 8, 6)], 3, backend=backend)


def test_counter_across_a_break(backend: str) -> None:
    def f(x: Any, steps: int) -> Any:
        for i in range(steps):
            print(end="")
            x = x * 0.5 + i
        return x

    compiled = tatara.compile(f, backend=backend)
    x = torch.ones(4)
    for steps in (12, 12, 15):
        same(compiled(x, steps), f(x, steps))
    assert tatara.stats()["graphs"] <= 8


def test_dynamic_ints(backend: str) -> None:
    def f(x: Any, n: int) -> Any:
        return x[:n] + n

    x = torch.randn(20)
    check(f, [(x, n) for n in (3, 4, 9)], 1, dynamic=True, backend=backend)
    check(f, [(x, n) for n in (3, 4, 9)], 3, dynamic=False, backend=backend)


def test_settled_sizes_in_a_broken_frame(backend: str) -> None:
    """What C code asked of a size in the instruction that broke says nothing about the frame before it."""

    def f(x: Any) -> Any:
        n, m = x.shape
        held = [n, {"m": m}, (n + m, n * m)]
        y = x * n
        print(n, m, n + m, end="")
        return held, y.t().reshape(m, n) + m, n, m

    compiled = tatara.compile(f, backend=backend)
    for n, m in ((3, 4), (5, 6), (6, 5), (7, 7), (2, 9), (9, 2)):
        x = torch.randn(n, m)
        same(compiled(x), f(x))
    assert len([e for e in compiled._report()["entries"] if e["offset"] == 0]) <= 3


def test_equal_ints_stay_apart_across_a_break(backend: str) -> None:
    def f(x: Any, a: int, b: int) -> Any:
        c = a + 1
        print(end="")
        return x[:a] * b + c, x.new_zeros(b, c)

    compiled = tatara.compile(f, backend=backend)
    x = torch.randn(30)
    for a, b in ((3, 3), (4, 4), (5, 6), (6, 5), (7, 8), (8, 7), (8, 8), (2, 3)):
        same(compiled(x, a, b), f(x, a, b))


def test_iterators_in_a_broken_frame(backend: str) -> None:
    def f(x: Any, items: list[float]) -> Any:
        pairs = iter(items)
        total = []
        for i, factor in enumerate(items):
            print(end="")
            x = x * factor + i
            total.append(next(pairs))
        return x, total, list(pairs)

    compiled = tatara.compile(f, backend=backend)
    x = torch.randn(4)
    for items in ([0.5, 2.0, 3.0], [0.5, 2.0, 3.0], [1.0, 4.0], [0.5, 2.0, 3.0]):
        same(compiled(x, items), f(x, items))
    count = len(compiled._report()["entries"])
    same(compiled(x, [1.0, 4.0]), f(x, [1.0, 4.0]))
    assert len(compiled._report()["entries"]) == count


def test_iterators_from_outside(backend: str) -> None:
    def f(x: Any, numbers: Any) -> Any:
        first = next(numbers)
        for n in numbers:
            x = x * n
            if n > 3:
                break
        return x + first, [*numbers]

    compiled = tatara.compile(f, backend=backend)
    for _ in range(3):
        x = torch.randn(3)
        same(compiled(x, iter([1, 2, 3, 4, 5, 6])), f(x, iter([1, 2, 3, 4, 5, 6])))


def test_iterators_made_in_the_trace(backend: str) -> None:
    def f(x: Any, table: dict[str, float], many: Any) -> Any:
        doubled = {key: value * 2 for key, value in table.items()}
        total = [value for value in doubled.values() if value > 1] + sorted({*many})
        for a, b in zip(reversed(total), iter(many)):
            x = x * a + b
        first, *_ = table
        return x, doubled, first, list(zip(table, many))

    check(f, [(torch.randn(n), {"a": 0.5, "b": 1.5}, (1, 2, 3)) for n in (3, 4, 5)], 2, backend=backend)


# ---- Numbers from elsewhere, floats ----------------------------------------------------------------------------------


def test_float_operands(backend: str) -> None:
    def f(x: Any, scale: float, *, shift: float = 0.5) -> Any:
        y = x * scale + shift
        return y, shift - x, scale / x, x < scale, x.mul_(1.0).add(shift)

    compiled = check(
        f, [(torch.rand(4) + 0.5, s) for s in (0.1, 0.2, 1.7, -3.0, float("inf"), -0.0)], 2, backend=backend
    )
    for shift in (0.25, 0.75, 1e-30):
        x = torch.rand(4)
        same(compiled(x, 0.3, shift=shift), f(x, 0.3, shift=shift))
    assert len(compiled._report()["entries"]) <= 4


def test_floats_by_value(backend: str) -> None:
    """What is no operand of a float tensor with dimensions asks for the value."""

    def f(x: Any, a: float) -> Any:
        if a > 1:
            x = x + 1
        numbers = [a, a * 2, -a, abs(a), round(a), int(a), float(a), f"{a:.2f}", str(a), isinstance(a, float)]
        return x.half() * a, x.long() * a, x.sum() * a, (x > 0) * a, x.clamp(-a, a), numbers, type(a) is float, {a: a}

    check(f, [(torch.randn(5), a) for a in (0.1, 0.3, 2.5, 0.3)], 3, backend=backend)


def test_floats_across_a_break(backend: str) -> None:
    def f(x: Any, a: float, b: float) -> Any:
        y = x * a
        print(end="")
        return y + b, a, [b]

    compiled = tatara.compile(f, backend=backend)
    for a, b in ((0.1, 0.1), (0.2, 0.2), (0.3, 0.4), (0.5, 0.5), (0.7, 0.1)):
        x = torch.randn(3)
        same(compiled(x, a, b), f(x, a, b))
    assert len(compiled._report()["entries"]) <= 5


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.width = 0.5, 4

    def forward(self, x: Any) -> Any:
        return x[:, : self.width] * self.scale, self.width, self.scale


def test_attributes(backend: str) -> None:
    module = Scaled()
    compiled = tatara.compile(module, backend=backend, fullgraph=True)
    with torch.no_grad():
        for width, scale in ((4, 0.5), (5, 0.5), (6, 0.7), (7, 0.9), (3, 0.1), (8, 2.5)):
            module.width, module.scale = width, scale
            x = torch.randn(2, 9)
            same(compiled(x), module(x))
    assert len(compiled._compiled_forward._report()["entries"]) == 3


COUNT, RATE = 3, 0.5


def test_globals(backend: str) -> None:
    global COUNT, RATE

    def f(x: Any) -> Any:
        return x[:COUNT] * RATE + COUNT

    compiled = tatara.compile(f, backend=backend, fullgraph=True)
    for COUNT, RATE in ((3, 0.5), (4, 0.6), (5, 0.7), (6, 0.8), (9, 0.1)):  # noqa: B007
        x = torch.randn(12)
        same(compiled(x), f(x))
    assert len(compiled._report()["entries"]) == 2
    for COUNT in (1, 0, -2, 7):  # noqa: B007
        same(compiled(x), f(x))
    COUNT, RATE = 3, 0.5


def test_closures(backend: str) -> None:
    n, rate = 3, 0.5

    def f(x: Any) -> Any:
        return x[:n] * rate

    compiled = tatara.compile(f, backend=backend, fullgraph=True)
    for n, rate in ((3, 0.5), (4, 0.6), (5, 0.7), (7, 0.9)):
        x = torch.randn(12)
        same(compiled(x), f(x))
    assert len(compiled._report()["entries"]) == 2


def test_size_of_an_unused_tensor(backend: str) -> None:
    """An int with the value of a size is that size, also where nothing else reads the tensor."""

    def f(x: Any, z: Any, n: int) -> Any:
        print(end="")
        return x[:n] * n, z

    compiled = tatara.compile(f, backend=backend)
    for n in (3, 4, 5, 7):
        x, z = torch.randn(20), torch.randn(n)
        same(compiled(x, z, n), f(x, z, n))
    for n, m in ((4, 6), (6, 4), (6, 6)):
        x, z = torch.randn(20), torch.randn(m)
        same(compiled(x, z, n), f(x, z, n))


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps, self.rate = 2, 0.5

    def forward(self, x: Any) -> Any:
        before = self.steps
        self.steps += 2
        self.rate = self.rate * 0.5
        return x * self.steps + before, x[: self.steps] * self.rate


def test_counters(backend: str) -> None:
    """A number that the function itself changes: read before its write, its own value after it."""
    eager, module = Counter(), Counter()
    compiled = tatara.compile(module, backend=backend)
    for _ in range(6):
        x = torch.randn(40)
        same(compiled(x), eager(x))
        assert (module.steps, module.rate) == (eager.steps, eager.rate)
    module.steps = eager.steps = 5
    same(compiled(x), eager(x))


@pytest.mark.parametrize("columns", [(2, 4, 5, 6), (1, 3, 4)])
def test_strides_of_empty_views(columns: tuple[int, ...]) -> None:
    def function(x: Any) -> Any:
        return torch.relu(x * 2.5).transpose(0, 1)

    tatara.reset()
    compiled = tatara.compile(function)
    for n in columns:
        for rows in (3, 0, 1):
            x = torch.randn(rows, n)
            assert compiled(x).stride() == function(x).stride()


@pytest.mark.parametrize("shift", [0, 1, 3, -2, 100])
def test_roll(shift: int, backend: str) -> None:
    def f(x: Any) -> Any:
        return torch.roll(x, (shift, -shift), (0, 1)) * 2 + torch.roll(x, shift)

    check(f, sized((4, 5), (6, 7), (3, 9), (5, 2)), 2, backend=backend)
