"""Sparse and quantised tensors: calls on them are torch's, between compiled parts of one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import tatara
from results import same

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse"),
    pytest.mark.filterwarnings("ignore:.*is deprecated"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
torch.manual_seed(0)
N = 16
DENSE = torch.randn(N, N) * (torch.rand(N, N) < 0.4)
BLOCKS = torch.randn(N, N) * (torch.rand(4, 4) < 0.5).repeat_interleave(4, 0).repeat_interleave(4, 1)
COO = DENSE.to_sparse_coo()
PLACES = COO.coalesce().indices()
Y, X, B = torch.randn(N, N), torch.randn(3, N), torch.randn(N)


def _of(layout: str) -> torch.Tensor:
    make = {
        "coo": DENSE.to_sparse_coo,
        "csr": DENSE.to_sparse_csr,
        "csc": DENSE.to_sparse_csc,
        "bsr": lambda: BLOCKS.to_sparse_bsr((4, 4)),
        "uncoalesced": lambda: torch.sparse_coo_tensor(torch.randint(0, N, (2, 40)), torch.randn(40), (N, N)),
    }
    return make[layout]()


# Of a sparse matrix; one graph.
CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "mm": lambda w: torch.mm(w, Y * 2).relu() + 1,
    "matmul": lambda w: (w @ (Y * 2)).sum(),
    "mv": lambda w: torch.mv(w, B * 2) + 1,
    "addmm": lambda w: torch.addmm(Y * 2, w, Y, beta=0.5).relu(),
    "to_dense": lambda w: w.to_dense() * 2 + 1,
    "times a number": lambda w: (w * 2).to_dense() + 1,
    "transposed": lambda w: torch.mm(w.t(), Y * 2) + 1,
    "facts": lambda w: (w.shape, w.layout, w.dtype, w.is_sparse, w.dim(), w.size(0), w.requires_grad, Y * w.shape[1]),
    "returned": lambda w: (w, Y * 2),
}
OF_LIST: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda w: torch.sparse.sum(w) * 2,
    "sum of a dim": lambda w: torch.sparse.sum(w, 0).to_dense() * 2,
    "softmax": lambda w: torch.sparse.softmax(w, 1).to_dense() * 2,
    "log_softmax": lambda w: torch.sparse.log_softmax(w, 1).to_dense() * 2,
    "sparse with sparse": lambda w: torch.sparse.mm(w, w).to_dense() * 2,
    "sum of two": lambda w: (w + w).to_dense().relu(),
    "beside a dense one": lambda w: (Y * 2 + w).relu(),
    "coalesce": lambda w: (w.coalesce().is_coalesced(), w.is_coalesced(), w.coalesce().to_dense() * 2),
}


def _equal(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, list | tuple):
        assert type(ours) is type(theirs) and len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            _equal(one, other)
    elif isinstance(theirs, torch.Tensor) and theirs.layout != torch.strided:
        assert (ours.layout, ours.dtype, ours.shape) == (theirs.layout, theirs.dtype, theirs.shape)
        assert (ours.requires_grad, ours.is_leaf) == (theirs.requires_grad, theirs.is_leaf)
        torch.testing.assert_close(ours.detach().to_dense(), theirs.detach().to_dense())
    else:
        same(ours, theirs)


def _check(function: Callable[..., Any], args: Callable[[], tuple[Any, ...]]) -> None:
    compiled = tatara.compile(function, fullgraph=True)
    for _ in range(4):
        given = args()
        _equal(compiled(*given), function(*given))
    assert tatara.explain(function)(*args()).breaks == []


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "uncoalesced"])
@pytest.mark.parametrize("call", CALLS)
def test_calls(call: str, layout: str) -> None:
    weight = _of(layout)
    try:
        CALLS[call](weight)
    except (RuntimeError, NotImplementedError):
        pytest.skip("no kernel of eager's")
    _check(CALLS[call], lambda: (_of(layout),))


@pytest.mark.parametrize("layout", ["coo", "uncoalesced"])
@pytest.mark.parametrize("call", OF_LIST)
def test_calls_of_lists_of_places(call: str, layout: str) -> None:
    if layout == "uncoalesced" and "softmax" in call:
        pytest.skip("takes coalesced ones alone")
    _check(OF_LIST[call], lambda: (_of(layout),))


INSIDE: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "to_sparse": (lambda w: torch.sparse.mm((w * 2).to_sparse(), Y) + 1, (DENSE,)),
    "to_sparse_csr": (lambda w: (w * 2).to_sparse_csr() @ Y + 1, (DENSE,)),
    "to_sparse_bsr": (lambda w: F.linear(X * 2, w.to_sparse_bsr((4, 4))) + 1, (BLOCKS,)),
    "sparse_coo_tensor": (
        lambda i, v: torch.sparse.mm(torch.sparse_coo_tensor(i, v * 2, (N, N)), Y) + 1,
        (PLACES, COO.coalesce().values()),
    ),
    "sparse_csr_tensor": (
        lambda c, i, v: torch.sparse_csr_tensor(c, i, v * 2, (N, N)) @ Y + 1,
        (_of("csr").crow_indices(), _of("csr").col_indices(), _of("csr").values()),
    ),
    "sampled_addmm": (lambda w, y: torch.sparse.sampled_addmm(w.to_sparse_csr(), y * 2, y).to_dense(), (DENSE, Y)),
    "sparse_mask": (lambda w, y: torch.sparse.sum((y * 2).sparse_mask(w.to_sparse().coalesce())), (DENSE, Y)),
    "returned": (lambda w: (w * 2).to_sparse(), (DENSE,)),
}


@pytest.mark.parametrize("call", INSIDE)
def test_made_inside(call: str) -> None:
    function, args = INSIDE[call]
    _check(function, lambda: args)


GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], tuple[int, ...]]] = {
    "dense operand": (lambda w, y: torch.sparse.mm(w, y * 2).relu(), (COO, Y), (1,)),
    "both": (lambda w, y: torch.sparse.mm(w, y * 2).relu(), (COO, Y), (0, 1)),
    "csr": (lambda w, y: torch.mm(w, y * 2).relu(), (_of("csr"), Y), (1,)),
    "both of csr": (lambda w, y: torch.mm(w, y * 2).relu(), (_of("csr"), Y), (0, 1)),
    "made inside": (
        lambda v, y: torch.sparse.mm(torch.sparse_coo_tensor(PLACES, v * 2, (N, N)), y * 3),
        (COO.coalesce().values(), Y),
        (0, 1),
    ),
    "softmax": (
        lambda v: torch.sparse.softmax(torch.sparse_coo_tensor(PLACES, v * 2, (N, N)), 1).to_dense(),
        (COO.coalesce().values(),),
        (0,),
    ),
    "to_sparse": (lambda w, y: torch.sparse.mm((w * 2).to_sparse(), y), (DENSE, Y), (0, 1)),
}


@pytest.mark.parametrize("call", GRADIENTS)
def test_gradients(call: str) -> None:
    function, args, wanted = GRADIENTS[call]

    def step(f: Callable[..., Any]) -> list[Any]:
        given = [a.detach().clone().requires_grad_(i in wanted) for i, a in enumerate(args)]
        result = f(*given)
        (result * torch.linspace(0, 1, result.numel()).reshape(result.shape)).sum().backward()
        return [result.detach(), *(given[i].grad for i in wanted)]

    compiled = tatara.compile(function)
    for _ in range(4):
        _equal(step(compiled), step(function))
    assert not compiled._report()["breaks"]


class Graph(nn.Module):
    def __init__(self, adjacency: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("adjacency", adjacency)
        self.layer = nn.Linear(N, N)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.sparse.mm(self.adjacency, self.layer(x)) + 1)


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_modules(layout: str) -> None:
    module = Graph(_of(layout))
    compiled = tatara.compile(module)
    for _ in range(4):
        results = []
        for each in (compiled, module):
            module.zero_grad()
            out = each(Y)
            out.sum().backward()
            results.append([out, module.layer.weight.grad, module.layer.bias.grad])
        _equal(*results)
    assert tatara.explain(module)(Y).breaks == []


def test_guards() -> None:
    """Another layout, type, size or state is another graph; other elements, and how many, are not."""
    compiled = tatara.compile(lambda w: torch.mm(w, torch.ones(w.shape[1], 2, dtype=w.dtype)) * 2)
    for _ in range(3):
        for count in (0, 1, 40):
            weight = torch.sparse_coo_tensor(torch.randint(0, N, (2, count)), torch.randn(count), (N, N))
            _equal(compiled(weight), torch.mm(weight, torch.ones(N, 2)) * 2)
    before = len(compiled._report()["entries"])
    for weight in (_of("csr"), _of("uncoalesced").double(), COO.coalesce(), DENSE[:5].to_sparse(), DENSE):
        for _ in range(3):
            expected = torch.mm(weight, torch.ones(N, 2, dtype=weight.dtype)) * 2
            _equal(compiled(weight), expected)
    assert len(compiled._report()["entries"]) - before == 4  # coalesced ones had been there


def test_numbers_of_rows_vary() -> None:
    """No graph for each: how sizes of results depend on those of operands is asked of the stand-ins."""
    weight = _of("csr")
    compiled = tatara.compile(lambda x, w: F.linear(x * 2, w).relu() + 1)
    for rows in (3, 4):
        compiled(torch.randn(rows, N), weight)
    before = len(compiled._report()["entries"])
    for rows in (5, 6, 7, 9, 12):
        x = torch.randn(rows, N)
        _equal(compiled(x, weight), F.linear(x * 2, weight).relu() + 1)
    assert len(compiled._report()["entries"]) - before <= 1


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda w: w.values() * 2, "how many elements"),
        (lambda w: w.clone().mul_(2).to_dense(), "a write"),
        (lambda w: torch.sparse_coo_tensor(w.coalesce().indices(), w.coalesce().values()).to_dense(), "how many"),
    ],
)
def test_what_breaks(function: Callable[..., Any], reason: str) -> None:
    weight = COO.coalesce()
    compiled = tatara.compile(function)
    for _ in range(3):
        _equal(compiled(weight), function(weight))
    assert reason in compiled._report()["breaks"][0]["reason"]


LAYER = nn.Linear(N, N)
PACKED = torch.ops.quantized.linear_prepack(
    torch.quantize_per_tensor(LAYER.weight.detach(), 0.01, 0, torch.qint8), LAYER.bias.detach()
)
DYNAMIC = torch.ao.quantization.quantize_dynamic(nn.Sequential(LAYER, nn.ReLU()), {nn.Linear}, dtype=torch.qint8)
QUANTISED: dict[str, Callable[[torch.Tensor], Any]] = {
    "dequantize": lambda x: torch.quantize_per_tensor(x * 2, 0.05, 64, torch.quint8).dequantize() + 1,
    "int_repr": lambda x: torch.quantize_per_tensor(x * 2, 0.05, 64, torch.quint8).int_repr() + 1,
    "by channel": lambda x: torch.quantize_per_channel(
        x, torch.full((3,), 0.1), torch.zeros(3, dtype=torch.long), 0, torch.qint8
    ).dequantize(),
    "facts": lambda x: torch.quantize_per_tensor(x, 0.05, 64, torch.quint8).q_scale() * x,
    "dynamic": lambda x: torch.ops.quantized.linear_dynamic(x * 2, PACKED) + 1,
    "dynamic module": lambda x: DYNAMIC(x * 2) + 1,
    "static": lambda x: torch.ops.quantized.linear(
        torch.quantize_per_tensor(x, 0.05, 64, torch.quint8), PACKED, 0.1, 64
    ).dequantize(),
}


@pytest.mark.parametrize("call", QUANTISED)
def test_quantised(call: str) -> None:
    _check(QUANTISED[call], lambda: (X,))


def test_quantised_arguments() -> None:
    compiled = tatara.compile(lambda q: q.dequantize() * 2, fullgraph=True)
    for scale in (0.05, 0.05, 0.05, 0.1, 0.1):
        given = torch.quantize_per_tensor(X, scale, 64, torch.quint8)
        _equal(compiled(given), given.dequantize() * 2)


def test_scales_that_data_decide_break() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.quantize_per_tensor(x, x.abs().max() / 127, torch.tensor(0), torch.qint8).dequantize() * 2

    compiled = tatara.compile(function)
    for i in range(1, 5):
        _equal(compiled(X * i), function(X * i))
    assert "depends on the elements" in compiled._report()["breaks"][0]["reason"]


def test_under_autocast() -> None:
    """Calls on sparse tensors are made of others, which autocast sees: eager casts."""

    def function(w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(w, y * 2) + 1

    compiled = tatara.compile(function)
    for _ in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            same(compiled(COO, Y), function(COO, Y), rtol=0.02, atol=0.1)
    assert "under autocast" in compiled._report()["breaks"][0]["reason"]


def test_a_write_to_memory_that_a_sparse_tensor_has() -> None:
    crow, col = _of("csr").crow_indices(), _of("csr").col_indices()

    def function(v: torch.Tensor) -> torch.Tensor:
        v = v * 2
        w = torch.sparse_csr_tensor(crow, col, v, (N, N))
        before = w @ Y
        v.mul_(3)
        return before + w @ Y

    compiled = tatara.compile(function, fullgraph=True)
    for _ in range(4):
        given = torch.randn(col.numel())
        same(compiled(given), function(given))


def test_inside_of_transforms_and_checkpoints() -> None:
    def vmapped(w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda r: torch.mv(w, r) * 2)(y)

    def again(w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda y: torch.sparse.mm(w, y.sin()).cos(), y, use_reentrant=False)

    for function in (vmapped, again):
        compiled = tatara.compile(function)
        for _ in range(4):
            _equal(compiled(COO, Y.clone().requires_grad_()), function(COO, Y.clone().requires_grad_()))
