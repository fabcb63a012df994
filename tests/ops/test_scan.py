"""Running totals along every dimension, through the whole pipeline."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from results import same  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.uint8, torch.bool, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(7,), (1003,), (5, 130), (3, 17, 9)], ids=str)
@pytest.mark.parametrize("op", [torch.cumsum, torch.cumprod], ids=["sum", "product"])
def test_totals(op: object, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 3, shape).to(dtype) if not dtype.is_floating_point else torch.rand(shape).to(dtype) + 0.5
    for dim in range(len(shape)):
        for y in (x, x.flip(-1), x.transpose(0, -1)):
            fn = lambda y, dim=dim: op(y * 1 if dtype != torch.bool else y, dim)  # noqa: E731
            expected = fn(y)
            got = tatara.compile(fn, fullgraph=True)(y)
            same(got, expected)
