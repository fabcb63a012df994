"""Pointwise, view and creation operators: types, strides and values against eager, over dtypes and layouts."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

if "TATARA_REFERENCE_LIB" not in os.environ:
    pytest.skip("needs the reference evaluator (make test builds it)", allow_module_level=True)

from reference import Reference  # noqa: E402

REF = Reference()
DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
]
TOLERANCE = {
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
    torch.float32: 4e-6,
    torch.float64: 1e-9,
    torch.complex64: 4e-6,
    torch.complex128: 1e-9,
}


def make(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(*shape, generator=g) > 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(0 if dtype == torch.uint8 else -9, 10, shape, generator=g).to(dtype)
    if dtype.is_complex:
        return torch.complex(torch.randn(*shape, generator=g), torch.randn(*shape, generator=g)).to(dtype)
    return (torch.randn(*shape, generator=g) * 2).to(dtype)


def layouts(dtype: torch.dtype) -> list[torch.Tensor]:
    x = make(2, 3, 4, dtype=dtype)
    return [
        x,
        x.transpose(0, 2),
        make(2, 3, 4, 5, dtype=dtype).contiguous(memory_format=torch.channels_last),
        make(4, 6, dtype=dtype)[:, ::2],
        make(3, 1, dtype=dtype).expand(3, 4),
        make(1, 4, dtype=dtype).t().t(),
        make(4, 1, dtype=dtype).t(),
        make(0, 3, dtype=dtype),
        make(1, dtype=dtype)[0],
    ]


def same(got: list[Any], expected: Any) -> None:
    wanted = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    assert len(got) == len(wanted)
    for have, want in zip(got, wanted, strict=True):
        assert have.dtype == want.dtype
        assert have.sizes == tuple(want.shape)
        assert have.strides == want.stride(), f"strides {have.strides}, eager {want.stride()}"
        want = want.resolve_conj()
        if want.dtype in TOLERANCE:
            tol = TOLERANCE[want.dtype]
            torch.testing.assert_close(have.values, want, rtol=tol, atol=tol, equal_nan=True, check_stride=False)
        else:
            assert torch.equal(have.values, want)


def check(op: str, args: list[Any], eager: Callable[[], Any], native: bool = False) -> None:
    """Tatara may refuse (Unsupported: the host does it), but neither compute what eager refuses nor differ from it."""
    try:
        expected = eager()
    except (RuntimeError, IndexError, TypeError, NotImplementedError, ValueError):
        with pytest.raises(RuntimeError, match="InvalidArgument|Unsupported"):
            REF(op, *args)
        return
    try:
        got = REF(op, *args)
    except RuntimeError as error:
        if not str(error).startswith("Unsupported") or native:
            raise
        return
    same(got, expected)


UNARY = """abs neg sign square floor ceil trunc round frac bitwise_not isnan isinf isfinite isposinf isneginf logical_not
signbit sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
erf erfc angle sigmoid deg2rad rad2deg sinc sgn conj_physical logit positive""".split()
BINARY = """add sub mul div floor_divide remainder fmod maximum minimum fmax fmin atan2 hypot copysign nextafter bitwise_and
bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift eq ne lt le gt ge logical_and logical_or logical_xor pow xlogy
logaddexp heaviside logaddexp2 float_power""".split()
ALPHA = {"add", "sub"}
TENSORS = set(
    "maximum minimum fmax fmin atan2 hypot nextafter logical_and logical_or logical_xor logaddexp logaddexp2 heaviside".split()
)
TWICE_SMALL = {"bitwise_left_shift", "bitwise_right_shift", "ldexp"}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: torch.dtype) -> None:
    for x in layouts(dtype):
        extra = [None] if name == "logit" else []
        check(name, [x, *extra], lambda x=x: getattr(torch, name)(x))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, dtype: torch.dtype) -> None:
    fn = getattr(torch, name)
    tail = [1] if name in ALPHA else []
    x = make(2, 3, 4, dtype=dtype)
    small = name in TWICE_SMALL
    others: list[Any] = [make(3, 4, dtype=d, seed=1) for d in DTYPES] if not small else []
    others += [x.transpose(0, 2).contiguous().transpose(0, 2), make(3, 1, dtype=dtype, seed=2), 3, True]
    others += [torch.tensor(2, dtype=d) for d in (torch.int64, torch.float64)]
    if not small:
        others += [2.5, -2]
    for y in others:
        if name in TENSORS and not isinstance(y, torch.Tensor):
            continue
        if small and isinstance(y, torch.Tensor):
            y = y.clone()
            y = torch.where(y < 0, torch.zeros_like(y), y) if not y.dtype.is_complex and y.dtype != torch.bool else y
        check(name, [x, y, *tail], lambda y=y: fn(x, y))
        check(
            name,
            [x.transpose(0, 2), *([y] if not isinstance(y, torch.Tensor) else [x[0, 0, 0]]), *tail],
            lambda y=y: fn(x.transpose(0, 2), y if not isinstance(y, torch.Tensor) else x[0, 0, 0]),
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ternary(dtype: torch.dtype) -> None:
    x, y, z = (make(3, 4, dtype=dtype, seed=s) for s in range(3))
    c = make(3, 1, dtype=torch.bool)
    check("where", [c, x, y], lambda: torch.where(c, x, y))
    check("where", [c, x, 2.5], lambda: torch.where(c, x, 2.5))
    check("where", [c, 1, y.t().contiguous().t()], lambda: torch.where(c, 1, y.t().contiguous().t()))
    for lo, hi in ((-1, 2), (None, 1.5), (0, None), (y, None), (y, z), (3, 1)):
        check("clamp", [x, lo, hi], lambda lo=lo, hi=hi: torch.clamp(x, lo, hi))
    check("clamp_min", [x, 1], lambda: torch.clamp_min(x, 1))
    check("clamp_max", [x, y], lambda: torch.clamp_max(x, y))
    for value in (1, 2):
        check("addcmul", [x, y, z, value], lambda v=value: torch.addcmul(x, y, z, value=v))
        check("addcdiv", [x, y, z, value], lambda v=value: torch.addcdiv(x, y, z, value=v))
    check("lerp", [x, y, 0.3], lambda: torch.lerp(x, y, 0.3))
    check("lerp", [x, y, z], lambda: torch.lerp(x, y, z))
    check("add", [x, y, 2], lambda: torch.add(x, y, alpha=2))
    check("sub", [x, 3, 2], lambda: torch.sub(x, 3, alpha=2))
    for mode in ("floor", "trunc", None):
        for other in (y, 3, 2.5):
            check("div.mode", [x, other, mode], lambda m=mode, o=other: torch.div(x, o, rounding_mode=m))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_casts(dtype: torch.dtype) -> None:
    x = make(3, 4, dtype=dtype).t()
    for to in DTYPES:
        check("cast", [x, to], lambda to=to: x.to(to), native=True)
    for source in layouts(dtype):
        check("clone", [source, None], lambda s=source: s.clone(), native=True)
        check(
            "clone",
            [source, "contiguous_format"],
            lambda s=source: s.clone(memory_format=torch.contiguous_format),
            native=True,
        )


VIEWS: list[tuple[str, list[Any], Callable[[torch.Tensor], Any]]] = [
    ("view", [[4, 30]], lambda x: x.view(4, 30)),
    ("view", [[-1, 3]], lambda x: x.view(-1, 3)),
    ("view", [[2, 3, 2, 2, 5]], lambda x: x.view(2, 3, 2, 2, 5)),
    ("reshape", [[10, 12]], lambda x: x.reshape(10, 12)),
    ("reshape", [[2, 1, 60]], lambda x: x.reshape(2, 1, 60)),
    ("reshape", [[-1]], lambda x: x.reshape(-1)),
    ("permute", [[0, 3, 1, 2]], lambda x: x.permute(0, 3, 1, 2)),
    ("permute", [[-1, 0, 2, 1]], lambda x: x.permute(-1, 0, 2, 1)),
    ("transpose", [1, -1], lambda x: x.transpose(1, -1)),
    ("movedim", [[0, 1], [-1, 0]], lambda x: x.movedim((0, 1), (-1, 0))),
    ("select", [2, -1], lambda x: x.select(2, -1)),
    ("slice", [1, 1, None, 1], lambda x: x[:, 1:]),
    ("slice", [3, -4, -1, 2], lambda x: x[..., -4:-1:2]),
    ("slice", [2, 3, 1, 1], lambda x: x[:, :, 3:1]),
    ("slice", [0, -9, 99, 1], lambda x: x[-9:99]),
    ("narrow", [3, 1, 3], lambda x: x.narrow(3, 1, 3)),
    ("diagonal", [0, 0, 1], lambda x: x.diagonal()),
    ("diagonal", [1, 2, 3], lambda x: x.diagonal(1, 2, 3)),
    ("diagonal", [-2, 3, 1], lambda x: x.diagonal(-2, 3, 1)),
    ("unfold", [3, 2, 2], lambda x: x.unfold(3, 2, 2)),
    ("unsqueeze", [0], lambda x: x.unsqueeze(0)),
    ("unsqueeze", [-1], lambda x: x.unsqueeze(-1)),
    ("unsqueeze", [2], lambda x: x.unsqueeze(2)),
    ("flatten", [1, 2], lambda x: x.flatten(1, 2)),
    ("flatten", [0, -1], lambda x: x.flatten()),
    ("unflatten", [2, [2, -1]], lambda x: x.unflatten(2, (2, -1))),
    ("expand", [[3, 2, 3, 4, 5], False], lambda x: x.expand(3, 2, 3, 4, 5)),
    ("expand", [[-1, 3, -1, 5], False], lambda x: x.expand(-1, 3, -1, 5)),
    ("split.int", [2, 1], lambda x: x.split(2, 1)),
    ("split.sizes", [[1, 4], 3], lambda x: x.split([1, 4], 3)),
    ("chunk", [3, 3], lambda x: x.chunk(3, 3)),
    ("unbind", [1], lambda x: x.unbind(1)),
    ("tensor_split.sections", [2, 3], lambda x: x.tensor_split(2, 3)),
    ("tensor_split.indices", [[1, 3], 3], lambda x: x.tensor_split([1, 3], 3)),
    ("hsplit.array", [[1, 2]], lambda x: torch.hsplit(x, [1, 2])),
    ("vsplit.int", [2], lambda x: torch.vsplit(x, 2)),
    ("dsplit.int", [3], lambda x: torch.dsplit(x, 3)),
    ("permute_copy", [[0, 3, 1, 2]], lambda x: torch.permute_copy(x, [0, 3, 1, 2])),
    ("diagonal_copy", [1, 2, 3], lambda x: torch.diagonal_copy(x, 1, 2, 3)),
    ("unbind_copy", [1], lambda x: torch.unbind_copy(x, 1)),
    ("select_copy", [1, 0], lambda x: torch.select_copy(x, 1, 0)),
    ("diag_embed", [1, 0, 2], lambda x: torch.diag_embed(x, 1, 0, 2)),
    ("diag_embed", [-2, -2, -1], lambda x: torch.diag_embed(x, -2)),
    ("squeeze", [], lambda x: x.squeeze()),
    ("mT", [], lambda x: x.mT),
    ("view", [[7, 7]], lambda x: x.view(7, 7)),
    ("select", [0, 5], lambda x: x.select(0, 5)),
    ("permute", [[0, 1]], lambda x: x.permute(0, 1)),
    (
        "slice_scatter",
        [torch.ones(2, 3, 2, 5), 2, 1, 3, 1],
        lambda x: torch.slice_scatter(x, torch.ones(2, 3, 2, 5), 2, 1, 3, 1),
    ),
    (
        "slice_scatter",
        [torch.ones(2, 3, 2, 5), 2, 0, None, 2],
        lambda x: torch.slice_scatter(x, torch.ones(2, 3, 2, 5), 2, 0, None, 2),
    ),
    ("select_scatter", [torch.ones(2, 3, 5), 2, -1], lambda x: torch.select_scatter(x, torch.ones(2, 3, 5), 2, -1)),
    (
        "diagonal_scatter",
        [torch.ones(4, 5, 1), 1, 0, 1],
        lambda x: torch.diagonal_scatter(x, torch.ones(4, 5, 1), 1, 0, 1),
    ),
]


@pytest.mark.parametrize("index", range(len(VIEWS)), ids=lambda i: f"{i}-{VIEWS[i][0]}")
def test_views(index: int) -> None:
    name, args, eager = VIEWS[index]
    base = make(2, 3, 4, 5, dtype=torch.float32)
    for x in (
        base,
        make(5, 4, 3, 2, dtype=torch.float32).permute(3, 2, 1, 0),
        base.contiguous(memory_format=torch.channels_last),
        *([] if name.endswith("scatter") else [make(2, 3, 4, 10, dtype=torch.float32)[..., ::2]]),
        make(2, 1, 4, 1, dtype=torch.float32).expand(2, 3, 4, 5)
        if name != "squeeze" and not name.endswith("scatter")
        else base[:, :1],
        make(2, 1, 4, 1, dtype=torch.float32) if name == "expand" else base,
    ):
        check(name, [x, *args], lambda x=x: eager(x))


def test_view_of_complex() -> None:
    z = make(3, 4, dtype=torch.complex64)
    check("view_as_real", [z.t()], lambda: torch.view_as_real(z.t()), native=True)
    check("real", [z], lambda: z.real, native=True)
    check("imag", [z.t()], lambda: z.t().imag, native=True)
    p = make(3, 4, 2, dtype=torch.float32)
    check("view_as_complex", [p], lambda: torch.view_as_complex(p), native=True)
    check("as_strided", [p, [2, 3], [1, 5], 2], lambda: p.as_strided((2, 3), (1, 5), 2), native=True)


NONE5 = [None, None, None, None, False]


@pytest.mark.parametrize("dtype", [None, *DTYPES], ids=str)
def test_creation(dtype: torch.dtype | None) -> None:
    tail = [dtype, None, None, None, False]
    check("zeros", [[2, 3], *tail], lambda: torch.zeros(2, 3, dtype=dtype), native=True)
    check("ones", [[2, 0], *tail], lambda: torch.ones(2, 0, dtype=dtype), native=True)
    for value in (1, 2.5, True):
        check("full", [[3], value, *tail], lambda v=value: torch.full((3,), v, dtype=dtype))
    for args in ((0, 5, 1), (2, 11, 3), (5, -4, -2), (0.0, 1.0, 0.3), (1, 4, 0.5), (3, 3, 1), (0, 5, -1)):
        check("arange.step", [*args, *tail], lambda a=args: torch.arange(*a, dtype=dtype))
    for x in layouts(torch.float32):
        got = REF("empty_like", x, *tail, None)[0]
        assert (got.sizes, got.strides) == (tuple(x.shape), torch.empty_like(x, dtype=dtype).stride())
    check("scalar_tensor", [2, *tail], lambda: torch.scalar_tensor(2, dtype=dtype))
    check("tensor", [2.5, *tail], lambda: torch.tensor(2.5, dtype=dtype))
    check("linspace", [-1.0, 2.0, 7, *tail], lambda: torch.linspace(-1, 2, 7, dtype=dtype))
    for x in layouts(torch.float32):
        for name in ("zeros_like", "ones_like"):
            check(name, [x, *tail, None], lambda n=name, x=x: getattr(torch, n)(x, dtype=dtype), native=True)
        check("full_like", [x, 3, *tail, None], lambda x=x: torch.full_like(x, 3, dtype=dtype), native=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "name", "add sub mul div maximum minimum atan2 hypot copysign pow xlogy logaddexp heaviside".split()
)
def test_special_values(name: str, dtype: torch.dtype) -> None:
    """Every pair of NaN, infinities, zeros of both signs and some others."""
    nan, inf = float("nan"), float("inf")
    values = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, -3.0], dtype=dtype)
    x, y = values.repeat_interleave(len(values)), values.repeat(len(values))
    check(name, [x, y, *([1] if name in ALPHA else [])], lambda: getattr(torch, name)(x, y))
