"""tatara.wrap_numpy: a NumPy function as a function of tensors, in eager and in compiled code."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import pytest

import numpy as np

torch = pytest.importorskip("torch")

import tatara  # noqa: E402
from counters import counts  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

SCALE = np.array([1.0, 2.0, 3.0])


def smooth(x: Any) -> Any:
    out = np.zeros_like(x)
    out[1:-1] = (x[:-2] + x[1:-1] + x[2:]) / 3.0
    out[0], out[-1] = x[0], x[-1]
    return out


def test_rows_that_are_written_one_by_one_have_gradients_and_batches() -> None:
    def rows(x: Any) -> Any:
        out = np.empty((3, x.shape[0]))
        for i in range(3):
            out[i] = np.sin(x * (i + 1))
        return out

    wrapped = tatara.wrap_numpy(rows)
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(wrapped(x), torch.stack([torch.sin(x * (i + 1)) for i in range(3)]))
    assert torch.autograd.gradcheck(wrapped, (x,))
    batch = torch.rand(5, 4, dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(wrapped)(batch), torch.stack([wrapped(each) for each in batch]))
    tangent = torch.ones_like(batch[0])
    value, moved = torch.func.jvp(wrapped, (batch[0],), (tangent,))
    torch.testing.assert_close(moved, torch.func.jacrev(wrapped)(batch[0]) @ tangent)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.uint8, torch.bool, torch.complex64])
def test_element_types_are_numpys(dtype: torch.dtype) -> None:
    x = torch.tensor([1, 0, 3], dtype=dtype)
    programs = [lambda a: a * 2.5, lambda a: a + SCALE, lambda a: np.sum(a), lambda a: np.mean(a), lambda a: a > 0]
    programs += [lambda a: np.true_divide(a, 3), lambda a: a.astype(np.float64), lambda a: np.add(a, np.float32(1))]
    for program in programs:
        expected = np.asarray(program(x.numpy()))
        result = tatara.wrap_numpy(program)(x)
        assert result.numpy().dtype == expected.dtype
        np.testing.assert_allclose(result.numpy(), expected, rtol=2e-3)


def test_an_element_type_that_numpy_lacks_is_an_error() -> None:
    with pytest.raises(tatara.InvalidArgument, match="bfloat16"):
        tatara.wrap_numpy(np.sin)(torch.ones(2, dtype=torch.bfloat16))


class Pair(NamedTuple):
    first: Any
    second: Any


def test_arguments_and_results_keep_their_structure() -> None:
    def program(pair: Any, table: Any, *, factor: float, name: str = "none") -> Any:
        return {"sum": pair.first + pair.second, name: [table["x"] * factor, factor]}, Pair(pair.second, "text")

    x, y = torch.rand(3), torch.rand(3)
    wrapped = tatara.wrap_numpy(program)
    made, pair = wrapped(Pair(x, y), {"x": x}, factor=2.0, name="other")
    assert list(made) == ["sum", "other"]
    torch.testing.assert_close(made["sum"], x + y)
    torch.testing.assert_close(made["other"][0], x * 2)
    assert made["other"][1] == 2.0 and isinstance(pair, Pair) and pair.first is y and pair.second == "text"
    again, _ = wrapped(Pair(x, y), {"x": x}, factor=3.0)
    torch.testing.assert_close(again["none"][0], x * 3)


def test_a_result_that_is_a_view_shares_memory_with_the_argument() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    view, whole = tatara.wrap_numpy(lambda a: (a.T[1:], a))(x)
    assert whole is x
    view.zero_()
    assert x.tolist() == [[0, 0, 0], [3, 0, 0]]


def test_writes_go_through_to_the_argument() -> None:
    def program(a: Any) -> Any:
        a[0] = 7.0
        a *= 2
        return a.sum()

    x = torch.ones(3)
    expected = x.numpy().copy()
    assert tatara.wrap_numpy(program)(x).item() == program(expected)
    assert x.tolist() == expected.tolist()
    compiled = tatara.compile(lambda t: tatara.wrap_numpy(program)(t) + t)
    y = torch.ones(3)
    assert compiled(y).tolist() == [32.0, 20.0, 20.0] and y.tolist() == [14.0, 2.0, 2.0]


def test_what_the_function_reads_from_outside_is_guarded() -> None:
    global SCALE
    wrapped = tatara.wrap_numpy(lambda a: a * SCALE)
    compiled = tatara.compile(lambda t: wrapped(t + 1))
    x = torch.ones(3, dtype=torch.float64)
    before = SCALE
    try:
        for _ in range(2):
            assert wrapped(x).tolist() == SCALE.tolist()
            assert compiled(x).tolist() == (SCALE * 2).tolist()
        SCALE[1] = 5.0  # in place
        assert wrapped(x).tolist() == [1.0, 5.0, 3.0] and compiled(x).tolist() == [2.0, 10.0, 6.0]
        SCALE = np.array([9.0, 9.0, 9.0])
        assert wrapped(x).tolist() == [9.0] * 3 and compiled(x).tolist() == [18.0] * 3
    finally:
        SCALE = before
        SCALE[1] = 2.0


def test_compiled_code_holds_it_in_one_graph() -> None:
    wrapped = tatara.wrap_numpy(smooth)

    def step(x: Any, w: Any) -> Any:
        return (wrapped(torch.tanh(x @ w)) ** 2).sum()

    x, w = torch.rand(6, 4), torch.rand(4, 4, requires_grad=True)
    expected = step(x, w)
    (gradient,) = torch.autograd.grad(expected, w)
    report = tatara.explain(step)(x, w)
    assert len(report.graphs) == 1 and not report.breaks
    compiled = tatara.compile(step, fullgraph=True)
    for _ in range(3):
        result = compiled(x, w)
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(torch.autograd.grad(result, w)[0], gradient)


def test_compiled_code_takes_other_sizes() -> None:
    wrapped = tatara.wrap_numpy(smooth)
    compiled = tatara.compile(lambda x: wrapped(x * 2) + 1, fullgraph=True)
    for size in (5, 6, 7, 8, 6):
        x = torch.rand(size, dtype=torch.float64)
        np.testing.assert_allclose(compiled(x).numpy(), smooth(x.numpy() * 2) + 1)


def test_transforms_within_compiled_code_are_one_graph() -> None:
    wrapped = tatara.wrap_numpy(lambda a: np.sum(np.sin(a) * a))
    compiled = tatara.compile(torch.func.vmap(torch.func.grad(wrapped)), fullgraph=True)
    x = torch.rand(3, 4)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), torch.cos(x) * x + torch.sin(x))


def test_autocast_goes_through_products() -> None:
    wrapped = tatara.wrap_numpy(lambda a, b: a @ b)
    a, b = torch.rand(4, 4), torch.rand(4, 4)
    with torch.autocast("cpu", dtype=torch.float16):
        torch.testing.assert_close(wrapped(a, b), (a @ b).float())


def branchy(a: Any) -> Any:
    return a * 2 if a.sum() > 0 else -a


def test_a_branch_on_values_runs_by_numpy_where_values_are_all_that_is_wanted() -> None:
    wrapped = tatara.wrap_numpy(branchy)
    for x in (torch.tensor([1.0, 2.0]), torch.tensor([-1.0, -2.0])):
        torch.testing.assert_close(wrapped(x), branchy(x))
        with torch.no_grad():
            torch.testing.assert_close(wrapped(x.clone().requires_grad_()), branchy(x))
    compiled = tatara.compile(lambda t: wrapped(t + 1) * 3)
    for x in (torch.tensor([1.0, 2.0]), torch.tensor([-3.0, -4.0])):
        torch.testing.assert_close(compiled(x), branchy(x + 1) * 3)


def test_a_branch_on_values_is_an_error_where_gradients_are_wanted() -> None:
    wrapped = tatara.wrap_numpy(branchy)
    with pytest.raises(tatara.Unsupported, match=r"NumPy bool.*test_wrap_numpy.py"):
        wrapped(torch.ones(2, requires_grad=True))
    with pytest.raises(tatara.Unsupported, match="NumPy bool"):
        torch.func.vmap(wrapped)(torch.ones(2, 2))


def test_random_numbers_are_drawn_in_each_call() -> None:
    wrapped = tatara.wrap_numpy(lambda a: a + np.random.rand(3))
    x = torch.zeros(3, dtype=torch.float64)
    np.random.seed(3)
    drawn = [wrapped(x).tolist() for _ in range(3)]
    np.random.seed(3)
    assert drawn == [np.random.rand(3).tolist() for _ in range(3)]
    compiled = tatara.compile(lambda t: wrapped(t * 2))
    np.random.seed(3)
    assert [compiled(x).tolist() for _ in range(3)] == drawn


def test_an_array_from_outside_is_not_written_to_with_values_that_stand_for_others() -> None:
    total, log = np.zeros(3), []

    def adds(a: Any) -> Any:
        np.add(total, a, out=total)
        return total.copy()

    def logs(a: Any) -> Any:
        log.append(a)
        return a * 2

    x = torch.ones(3, dtype=torch.float64)
    assert tatara.wrap_numpy(adds)(x).tolist() == [1.0] * 3 and total.tolist() == [1.0] * 3
    with pytest.raises(tatara.Unsupported, match="a write to an array that is no argument"):
        tatara.wrap_numpy(adds)(x.requires_grad_())
    assert total.tolist() == [1.0] * 3
    with pytest.raises(tatara.Unsupported, match="writes to objects from before the call"):
        tatara.wrap_numpy(logs)(x)
    assert log == []


def test_errors_are_numpys() -> None:
    wrapped = tatara.wrap_numpy(lambda a, b: a + b)
    with pytest.raises(ValueError, match="could not be broadcast"):
        wrapped(torch.ones(2), torch.ones(3))
    with pytest.raises(np.linalg.LinAlgError):
        tatara.wrap_numpy(lambda a: np.linalg.inv(a[:, :1]))(torch.ones(3, 3))


def test_arrays_scalars_and_numbers_go_in_beside_tensors() -> None:
    wrapped = tatara.wrap_numpy(lambda a, b, c, d: a * b + c + d)
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    result = wrapped(x, np.array([1.0, 2.0, 3.0]), np.float64(0.5), 1)
    assert result.tolist() == [2.5, 3.5, 4.5]
    result.sum().backward()
    assert x.grad.tolist() == [1.0, 2.0, 3.0]


def test_constants_are_computed_once_and_given_anew() -> None:
    wrapped = tatara.wrap_numpy(lambda a: (np.hanning(4), a * np.hanning(4)))
    x = torch.ones(4, dtype=torch.float64)
    window, product = wrapped(x)
    window.zero_()
    torch.testing.assert_close(wrapped(x)[0], product)


def test_ufuncs_methods_and_callable_objects_can_be_wrapped() -> None:
    class Model:
        weight = np.array([2.0, 3.0])

        def method(self, a: Any) -> Any:
            return a * self.weight

        def __call__(self, a: Any) -> Any:
            return a + self.weight

    x = torch.ones(2, dtype=torch.float64)
    assert tatara.wrap_numpy(np.exp)(x).tolist() == np.exp(x.numpy()).tolist()
    assert tatara.wrap_numpy(Model().method)(x).tolist() == [2.0, 3.0]
    assert tatara.wrap_numpy(Model())(x).tolist() == [3.0, 4.0]
    with pytest.raises(tatara.InvalidArgument, match="takes a callable"):
        tatara.wrap_numpy(3)


def test_it_works_where_compilation_is_disabled_and_in_threads() -> None:
    wrapped = tatara.wrap_numpy(smooth)
    x = torch.rand(5, dtype=torch.float64)
    with tatara.disable():
        torch.testing.assert_close(wrapped(x), torch.from_numpy(smooth(x.numpy())))
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(wrapped(x))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for result in results:
        torch.testing.assert_close(result, torch.from_numpy(smooth(x.numpy())))


def test_a_function_is_captured_once_for_a_kind_of_operands() -> None:
    wrapped = tatara.wrap_numpy(smooth)
    x = torch.rand(5)
    wrapped(x)
    with counts() as grown:
        for _ in range(3):
            wrapped(torch.rand(5))
    assert grown["graphs"] == 0 and grown["recompiles"] == 0 and grown["breaks"] == 0


def test_everything_that_is_made_is_on_the_tensors_device() -> None:
    def program(a: Any) -> Any:
        grid = np.linspace(0.0, 1.0, 4) + np.arange(4)
        out = np.zeros((2, 4))
        out[0] = a * np.hanning(4) + SCALE.sum()
        out[1] = np.pad(a[:2], 1, mode="edge") + np.array([1.0, 2.0, 3.0, 4.0])
        return out @ np.eye(4), np.where(grid > 2, a, 0.5)

    made = tatara.wrap_numpy(program)(torch.ones(4, dtype=torch.float64, device="meta"))
    assert [(tensor.device.type, tuple(tensor.shape)) for tensor in made] == [("meta", (2, 4)), ("meta", (4,))]


def test_a_kind_of_writes_has_the_gradients_of_its_torch_spelling() -> None:
    def scattered(a: Any, b: Any) -> Any:
        out = np.linspace(0.0, 1.0, 5)
        out[[0, 2]] = a[:2]
        out[::2] += b
        np.add.at(out, np.array([1, 1, 3]), b)
        out[a > 1.0] = 0.0
        return out * out

    def spelled(a: Any, b: Any) -> Any:
        out = torch.linspace(0.0, 1.0, 5, dtype=torch.float64)
        out[[0, 2]] = a[:2]
        out[::2] = out[::2] + b
        out = out.index_put((torch.tensor([1, 1, 3]),), b, accumulate=True)
        return torch.where(a > 1.0, 0.0, out) ** 2

    a = torch.tensor([0.5, 1.5, 0.2, 0.7, 2.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    wrapped = tatara.wrap_numpy(scattered)
    np.testing.assert_allclose(wrapped(a, b).detach().numpy(), scattered(a.detach().numpy(), b.detach().numpy()))
    torch.testing.assert_close(wrapped(a, b), spelled(a, b))
    for got, want in zip(
        torch.autograd.grad(wrapped(a, b).sum(), (a, b)), torch.autograd.grad(spelled(a, b).sum(), (a, b)), strict=True
    ):
        torch.testing.assert_close(got, want)
    batch = torch.stack([b, b * 2]).detach()
    result = torch.func.vmap(lambda each: wrapped(a.detach(), each))(batch)
    torch.testing.assert_close(result, torch.stack([wrapped(a.detach(), each) for each in batch]))


def test_arguments_that_share_memory_are_not_written_through_another() -> None:
    def program(a: Any, b: Any) -> Any:
        a += 1
        return b * 2

    x = torch.zeros(4)
    expected = np.zeros(4, dtype=np.float32)
    want = program(expected, expected[1:])
    result = tatara.wrap_numpy(program)(x, x[1:])
    assert x.tolist() == expected.tolist() and result.tolist() == want.tolist()
