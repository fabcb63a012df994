"""Products of groups of rows with a matrix each in kernels of ours: every group exact, whatever the groups are, and what belongs to none."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import tatara

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs a Hopper GPU"
)

DEVICE = "cuda"
HALVES = [torch.float16, torch.bfloat16]
LENGTHS = {
    "even": [128] * 8,
    "one each": [1] * 16,
    "skewed": [700, 0, 3, 0, 0, 65, 1, 255],
    "all in one": [0, 0, 1024, 0],
    "one group": [321],
    "many": [3, 0, 17, 64] * 32,
    "none": [0, 0, 0],
}


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    torch.manual_seed(7)
    yield


def ends(lengths: list[int]) -> Tensor:
    return torch.tensor(lengths, device=DEVICE).cumsum(0).to(torch.int32)


def random(*sizes: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*sizes, device=DEVICE).to(dtype)


def exact_rows(x: Tensor, w: Tensor, lengths: list[int]) -> Tensor:
    parts, begin = [], 0
    for group, length in enumerate(lengths):
        parts.append(x[begin : begin + length].double() @ w[group].double())
        begin += length
    return torch.cat(parts) if parts else x.new_zeros(0, w.shape[2])


def exact_inner(x: Tensor, y: Tensor, lengths: list[int]) -> Tensor:
    """[k, rows] and [k, columns]: of each group x.T @ y."""
    parts, begin = [], 0
    for length in lengths:
        parts.append(x[begin : begin + length].double().T @ y[begin : begin + length].double())
        begin += length
    return torch.stack(parts)


def near(result: Tensor, exact: Tensor) -> None:
    assert result.shape == exact.shape
    scale = exact.abs().max().clamp(min=1e-3) if exact.numel() else torch.ones(())
    assert result.isfinite().all()
    assert (result.double() - exact).abs().max() <= 2 * torch.finfo(result.dtype).eps * scale if exact.numel() else True


def run(f: object, *args: Tensor, ours: int) -> Tensor:
    """The third call's result; so many kernels of ours multiply, and the host none."""
    compiled = tatara.compile(f)
    for _ in range(2):
        compiled(*args)
    with tatara.kernel_history() as history:
        result = compiled(*args)
    assert sum("rows_product" in e.name or "inner_product" in e.name for e in history.launches) == ours
    return result


def grouped(x: Tensor, w: Tensor, offs: Tensor) -> Tensor:
    return torch._grouped_mm(x, w, offs=offs)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("columns_first", [False, True])
def test_rows_of_groups(lengths: list[int], dtype: torch.dtype, columns_first: bool) -> None:
    total = sum(lengths) or 64
    for inner, columns in [(256, 384), (72, 200), (1024, 2048)]:
        x = random(total, inner, dtype=dtype)
        w = random(len(lengths), inner, columns, dtype=dtype) / inner**0.5
        if columns_first:
            w = w.mT.contiguous().mT
        # torch's own kernel takes bfloat16 alone on some versions; the values are checked against float64.
        result = run(lambda *args: torch.relu(grouped(*args)) * 2, x, w, ends(lengths), ours=1)
        assert (result.dtype, result.stride()) == (dtype, (columns, 1))
        near(result[: sum(lengths)], exact_rows(x, w, lengths).relu() * 2)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_parts_of_the_inner_dimension(lengths: list[int], dtype: torch.dtype) -> None:
    total = sum(lengths) or 64
    for rows, columns in [(256, 384), (72, 200), (1024, 512)]:
        x, y = random(total, rows, dtype=dtype), random(total, columns, dtype=dtype) / total**0.5
        result = run(lambda a, b, offs: grouped(a.T, b, offs), x, y, ends(lengths), ours=1)
        near(result, exact_inner(x, y, lengths))


def test_what_is_no_number_stays_in_its_group() -> None:
    lengths = [5, 60, 70, 1, 200]
    x, y = random(sum(lengths), 128, dtype=torch.float16), random(sum(lengths), 256, dtype=torch.float16) / 16
    x[5:65] = float("nan")
    y[135:136] = float("inf")
    result = run(lambda a, b, offs: grouped(a.T, b, offs), x, y, ends(lengths), ours=1)
    exact = exact_inner(x, y, lengths)
    for group in (0, 2, 4):
        near(result[group], exact[group])
    assert result[1].isnan().all()
    assert not result[3].isfinite().any()


def test_other_groups_need_no_other_kernel() -> None:
    x, w = random(1024, 256, dtype=torch.bfloat16), random(8, 256, 512, dtype=torch.bfloat16) / 16
    compiled = tatara.compile(grouped)
    generator = torch.Generator().manual_seed(3)
    for _ in range(12):
        cuts = torch.randint(0, 1025, (7,), generator=generator).sort().values.tolist()
        lengths = [b - a for a, b in zip([0, *cuts], [*cuts, 1024], strict=True)]
        near(compiled(x, w, ends(lengths)), exact_rows(x, w, lengths))
    assert len(tatara.explain(grouped)(x, w, ends([128] * 8)).graphs) == 1


def test_ends_out_of_order_touch_no_other_memory() -> None:
    """What eager makes of them nobody says; memory beside the result is left alone."""
    x, w = random(512, 256, dtype=torch.bfloat16), random(4, 256, 256, dtype=torch.bfloat16)
    compiled = tatara.compile(grouped)
    for _ in range(3):
        compiled(x, w, ends([128] * 4))
    for odd in ([900, 100, -5, 2000], [512, 0, 512, 0], [-1, -2, -3, -4], [2**31 - 1] * 4):
        assert compiled(x, w, torch.tensor(odd, dtype=torch.int32, device=DEVICE)).shape == (512, 256)
    torch.cuda.synchronize()
    near(compiled(x, w, ends([128] * 4)), exact_rows(x, w, [128] * 4))


@pytest.mark.parametrize(
    "lengths", [LENGTHS["skewed"], LENGTHS["even"], LENGTHS["many"]], ids=["skewed", "even", "many"]
)
@pytest.mark.parametrize("columns_first", [False, True])
def test_gradients(lengths: list[int], columns_first: bool) -> None:
    x = random(sum(lengths), 256, dtype=torch.bfloat16).requires_grad_()
    w = random(len(lengths), 256, 512, dtype=torch.bfloat16) / 16
    w = (w.mT.contiguous().mT if columns_first else w).requires_grad_()
    g = random(sum(lengths), 512, dtype=torch.bfloat16) / 32
    compiled = tatara.compile(lambda a, b, offs: torch.tanh(grouped(a, b, offs)))
    for _ in range(3):
        x.grad = w.grad = None
        with tatara.kernel_history() as history:
            compiled(x, w, ends(lengths)).backward(g)
    assert sum("rows_product" in e.name or "inner_product" in e.name for e in history.launches) == 3
    y = torch.tanh(exact_rows(x.detach(), w.detach(), lengths))
    before = (g.double() * (1 - y * y)).to(torch.bfloat16)
    assert (x.grad.stride(), w.grad.stride()) == (x.stride(), w.stride())
    for found, exact in [
        (x.grad, exact_rows(before, w.detach().mT, lengths)),
        (w.grad, exact_inner(x.detach(), before, lengths)),
    ]:
        assert (found.double() - exact).abs().max() <= 0.03 * exact.abs().max()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_the_form_of_the_transformers_library(dtype: torch.dtype) -> None:
    moe = pytest.importorskip("transformers.integrations.moe")
    if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        pytest.skip("a version without it")
    assert moe is not None
    lengths = [100, 0, 300, 50]
    x = random(500, 256, dtype=dtype).requires_grad_()  # 50 rows belong to no group
    w = (random(4, 256, 512, dtype=dtype) / 16).requires_grad_()
    g = random(500, 512, dtype=dtype) / 32

    def f(a: Tensor, b: Tensor, offs: Tensor) -> Tensor:
        return torch.ops.transformers.grouped_mm_fallback(a, b, offs)

    compiled = tatara.compile(f)
    for _ in range(3):
        x.grad = w.grad = None
        with tatara.kernel_history() as history:
            result = compiled(x, w, ends(lengths))
            result.backward(g)
    assert sum("rows_product" in e.name or "inner_product" in e.name for e in history.launches) == 3
    found = [result.detach(), x.grad, w.grad]
    x.grad = w.grad = None
    eager = f(x, w, ends(lengths))
    eager.backward(g)
    for ours, theirs in zip(found, [eager.detach(), x.grad, w.grad], strict=True):
        assert (ours.dtype, ours.stride()) == (theirs.dtype, theirs.stride())
        near(ours, theirs.double())


def test_the_same_bits_each_time() -> None:
    lengths = LENGTHS["skewed"]
    x, w = random(sum(lengths), 512, dtype=torch.float16), random(len(lengths), 512, 1024, dtype=torch.float16)
    compiled = tatara.compile(grouped)
    compiled(x, w, ends(lengths))
    first = compiled(x, w, ends(lengths))
    for _ in range(20):
        assert torch.equal(compiled(x, w, ends(lengths)), first)
