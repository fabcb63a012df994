"""`make factories`: every factory and sampler of torch with every combination of dtype, device, generator and layout.

A case is one call with some of these left out, given, or given as None, by Python's function and by the dispatcher's operator.
It is called three times, and once more with other numbers after the seeds have changed: results, what the program reads of their types, errors
and the states of all generators must be those of eager. `uncovered` names operators of torch that no case calls.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import torch

import tatara

AXES = {
    "dtype": ["", "None", *(f"torch.{t}" for t in
              ("float32", "float64", "bfloat16", "int64", "uint8", "bool", "complex64"))],
    "device": ["", "None", "'cpu'", "torch.device('cpu')", "'meta'"],
    "generator": ["", "None", "gen"],
    "layout": ["", "None", "torch.strided", "torch.sparse_coo"],
}  # fmt: skip
OPERANDS = ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool", "complex64"]
FACTORY, LIKE, SAMPLER = ("dtype", "device", "layout"), ("dtype", "device", "layout"), ("generator",)
DRAWN = (*FACTORY, "generator")

# {x}: a 3 x 2 tensor of each dtype. The keywords of the axes follow the other arguments.
TABLE: list[tuple[tuple[str, ...], list[str]]] = [
    (FACTORY, [
        "torch.zeros(3, 2)", "torch.zeros((3, 2))", "torch.zeros(size=[3, 2])", "torch.zeros(())", "torch.ones(3, 2)",
        "torch.ones([3, 0])", "torch.empty(3, 2)", "torch.full((3, 2), 2)", "torch.full((3, 2), 1.5)", "torch.full((3, 2), True)",
        "torch.full((2,), 1j)", "torch.full((2,), 300)", "torch.full((2,), -1)", "torch.full((), 3)", "torch.full(size=(2,), fill_value=2)", "torch.arange(5)",
        "torch.arange(5.0)", "torch.arange(1, 7, 2)", "torch.arange(0, 1, 0.3)", "torch.arange(end=4)",
        "torch.arange(7, 1, -2)", "torch.range(1, 5)", "torch.range(0, 4, 2)", "torch.linspace(0, 1, 5)",
        "torch.linspace(-3, 4, steps=1)", "torch.linspace(1, 9, 4)", "torch.linspace(t, 4, 5)", "torch.logspace(0, 1, 5)",
        "torch.logspace(0, 3, 4, base=2)", "torch.logspace(t, 2, 3)", "torch.eye(3)", "torch.eye(3, 2)", "torch.eye(0)",
        "torch.empty_strided((3, 2), (1, 3))", "torch.empty_permuted((2, 3, 4), (0, 2, 1))", "torch.tril_indices(3, 4)",
        "torch.triu_indices(3, 4, 1)", "torch.tril_indices(3, 3, offset=-1)", "torch.hann_window(5)",
        "torch.hann_window(5, False)", "torch.hann_window(1)", "torch.hamming_window(6)", "torch.hamming_window(6, True, 0.5)",
        "torch.hamming_window(6, False, alpha=0.5, beta=0.4)", "torch.blackman_window(6)", "torch.bartlett_window(5)",
        "torch.bartlett_window(6, periodic=False)", "torch.kaiser_window(5)", "torch.kaiser_window(5, True, 8.0)",
        "torch.fft.fftfreq(6)", "torch.fft.fftfreq(5, 0.5)", "torch.fft.rfftfreq(6)", "torch.scalar_tensor(2)",
        "torch.scalar_tensor(2.5)", "torch.scalar_tensor(True)", "torch.zeros(x.shape)", "torch.ones(n, 2)",
        "torch.arange(n)", "torch.full((n,), n)", "torch.full((2,), w)", "torch.linspace(0, w, 4)",
        "torch.zeros((3, 2), names=None)", "torch.empty(2, 3, 4, 5, memory_format=torch.channels_last)",
        "torch._efficientzerotensor((3, 2))",
    ]),
    (("dtype", "device"), [
        "torch.tensor([1, 2])", "torch.tensor([1.5, 2])", "torch.tensor(True)", "torch.tensor([[1, 2j]])", "torch.tensor(n)",
        "torch.tensor([])", "torch.as_tensor([1, 2])", "torch.as_tensor(2.5)", "torch.as_tensor({x})", "torch.asarray([1, 2])",
        "torch.asarray({x})", "torch.asarray({x}, copy=True)",
        "torch.sparse_coo_tensor(i, torch.arange(3), (4, 4))", "torch.sparse_coo_tensor(i, [1.0, 2, 3])",
        "torch.sparse_coo_tensor(size=(2, 2))", "torch.sparse_csr_tensor(rows, cols, [1, 2, 3], size=(2, 3))",
        "torch.sparse_csc_tensor(rows, cols, [1, 2, 3], size=(3, 2))",
        "torch.sparse_bsr_tensor(rows, cols, torch.ones(3, 1, 1), size=(2, 3))",
        "torch.sparse_bsc_tensor(rows, cols, torch.ones(3, 1, 1), size=(3, 2))",
        "torch.sparse_compressed_tensor(rows, cols, [1, 2, 3], size=(2, 3), layout=torch.sparse_csr)",
        "torch.signal.windows.bartlett(5)", "torch.signal.windows.blackman(5)", "torch.signal.windows.cosine(5)",
        "torch.signal.windows.exponential(5)", "torch.signal.windows.gaussian(5)", "torch.signal.windows.general_cosine(5, a=[0.5, 0.3])",
        "torch.signal.windows.general_hamming(5)", "torch.signal.windows.hamming(5)", "torch.signal.windows.hann(5)",
        "torch.signal.windows.kaiser(5)", "torch.signal.windows.nuttall(5)", "{x}.to(copy=True)", "{x}.to(t)",
        "torch.ops.aten._to_copy({x})", "torch.normal(0.0, 1.0, (3, 2))", "torch.nn.Parameter(torch.zeros(2))",
    ]),
    (LIKE, [
        "torch.zeros_like({x})", "torch.ones_like({x})", "torch.full_like({x}, 2)", "torch.full_like({x}, 1.5)",
        "torch.empty_like({x})", "torch.zeros_like({x}.t())", "torch.zeros_like({x}.t(), memory_format=torch.contiguous_format)",
        "torch.ones_like({x}[:, :1].expand(3, 2))", "{x}.new_zeros((3, 2))", "{x}.new_zeros(3, 2)", "{x}.new_ones((2,))",
        "{x}.new_full((2,), 2)", "{x}.new_full((2,), 2.5)", "{x}.new_empty((3, 2))", "{x}.new_empty_strided((3, 2), (1, 3))",
        "{x}.new_tensor([1, 2])", "{x}.new_tensor(2.5)",
    ]),
    (DRAWN, [
        "torch.rand(3, 2)", "torch.rand((3, 2))", "torch.rand(())", "torch.rand(0)", "torch.rand(size=[2])", "torch.randn(3, 2)",
        "torch.randn([3, 2])", "torch.randn(n, 17)", "torch.randint(5, (3, 2))", "torch.randint(2, 5, (3, 2))",
        "torch.randint(high=5, size=(3, 2))", "torch.randint(-3, 1, size=[4])", "torch.randint(0, 2**40, (2,))",
        "torch.randint(n, (2,))", "torch.randint(0, 2, ())", "torch.randperm(5)", "torch.randperm(n)", "torch.randperm(0)",
        "torch.normal(0.0, 1.0, (3, 2))", "torch.normal(mean=1.0, std=2.0, size=(2,))", "torch.rand_like({x})",
        "torch.randn_like({x})", "torch.randint_like({x}, 5)", "torch.randint_like({x}, 2, 5)", "torch.rand_like({x}.t())",
        "torch.randn_like({x}.t(), memory_format=torch.contiguous_format)", "torch.randint_like({x}, high=t5)",
    ]),
    (SAMPLER, [
        "torch.normal({x}, 2.0)", "torch.normal(1.0, {x}.abs())", "torch.normal({x}, {x}.abs())", "torch.normal({x})",
        "torch.bernoulli(p.to({x}.dtype))", "torch.bernoulli({x}, 0.3)", "p.to({x}.dtype).bernoulli()", "{x}.bernoulli(0.3)",
        "{x}.bernoulli(p=0.7)", "torch.multinomial(p.to({x}.dtype), 2)", "torch.multinomial(p.to({x}.dtype), 5, True)",
        "p.to({x}.dtype).multinomial(1)", "torch.poisson({x}.abs())", "torch.binomial(torch.full_like({x}, 6), p.to({x}.dtype))",
        "torch._standard_gamma({x}.abs() + 1)", "torch._sample_dirichlet({x}.abs() + 1)",
        *(f"{{x}}{copy}.{call}" for copy in ("", ".clone()", ".t()", "[1:]") for call in (
            "uniform_()", "uniform_(1, 3)", "normal_()", "normal_(1.0, 2.0)", "random_()", "random_(5)", "random_(2, 5)",
            "cauchy_()", "exponential_()", "exponential_(2.0)", "geometric_(0.3)", "log_normal_()", "bernoulli_()",
            "bernoulli_(0.3)", "bernoulli_(p[:1, :1].double())")),
        "torch.rrelu({x}, 0.1, 0.3, True)", "torch.rrelu_({x}, training=True)",
        "torch.ops.aten.rrelu_with_noise({x}, torch.zeros_like({x}), 0.1, 0.3, True)",
        "torch.ops.aten.rrelu_with_noise_({x}, torch.zeros_like({x}), 0.1, 0.3, True)",
        "torch.ops.aten.rrelu_with_noise_functional({x}, torch.zeros_like({x}), 0.1, 0.3, True)",
        *(f"torch.ops.aten.{call}" for call in (
            "uniform({x})", "uniform({x}, 1, 3)", "normal_functional({x})", "random({x})", "random({x}, 5)", "random({x}, 2, 5)",
            "cauchy({x})", "exponential({x})", "geometric({x}, 0.3)", "log_normal({x})", "bernoulli.p({x}, 0.3)",
            "bernoulli({x}, p)", "uniform_({x}, 0, 1)", "normal_({x})")),
        *(f"torch.nn.init.{call}" for call in (
            "uniform_({x})", "normal_({x})", "trunc_normal_({x})", "xavier_uniform_({x})", "xavier_normal_({x})",
            "kaiming_uniform_({x})", "kaiming_normal_({x})", "orthogonal_({x})", "sparse_({x}, 0.3)")),
    ]),
    ((), [
        "torch.nn.functional.dropout({x})", "torch.nn.functional.dropout({x}, 0.3, True, True)", "torch.dropout({x}, 0.4, True)",
        "torch.dropout_({x}, 0.4, True)", "torch.nn.functional.dropout1d({x})", "torch.nn.functional.dropout2d({x}[None, :, :, None])",
        "torch.nn.functional.dropout3d({x}[None, :, :, None, None])", "torch.nn.functional.alpha_dropout({x}, 0.5, True)",
        "torch.alpha_dropout_({x}, 0.5, True)", "torch.nn.functional.feature_alpha_dropout({x}, 0.5, True)",
        "torch.feature_alpha_dropout_({x}, 0.5, True)", "torch.feature_dropout({x}, 0.5, True)", "torch.feature_dropout_({x}, 0.5, True)",
        "torch.native_dropout({x}, 0.5, True)", "torch.native_dropout({x}, 0.5, None)", "torch.native_dropout({x}, 0.5, False)",
        "torch.nn.functional.rrelu({x}, training=True)", "torch.nn.functional.rrelu({x}, inplace=True, training=True)",
        "torch.nn.functional.gumbel_softmax({x})", "torch.nn.functional.gumbel_softmax({x}, hard=True, dim=0)",
        "torch.nn.functional.fractional_max_pool2d({x}.repeat(4, 4)[None, None], 2, output_ratio=0.5)",
        "torch.nn.functional.scaled_dot_product_attention({x}[None], {x}[None], {x}[None], dropout_p=0.5)",
        "torch.ops.aten._scaled_dot_product_attention_math({x}[None], {x}[None], {x}[None], None, 0.5)",
        "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*[{x}[None, None].contiguous()] * 3, 0.0)",
        "torch.ops.aten._fused_sdp_choice({x}[None, None], {x}[None, None], {x}[None, None])",
        "lstm({x})", "gru({x})", "rnn({x})", "relu_rnn({x})", "modules({x})",
        "torch.distributions.Normal({x}, 1.0).sample()", "torch.distributions.Normal(0.0, 1.0).sample((3,))",
        "torch.distributions.Uniform(0.0, {x}.abs() + 1).rsample()", "torch.distributions.Categorical(p).sample((2,))",
        "torch.distributions.Bernoulli(p).sample()", "torch.distributions.Gamma({x}.abs() + 1, 1.0).sample()",
        "torch.distributions.Beta({x}.abs() + 1, 2.0).rsample()", "torch.distributions.Dirichlet({x}.abs() + 1).sample()",
        "torch.distributions.Poisson({x}.abs()).sample()", "torch.distributions.Exponential({x}.abs() + 1).sample()",
        "torch.distributions.Geometric(p).sample()", "torch.distributions.Multinomial(4, p).sample()",
        "torch.distributions.Binomial(4, p).sample()", "torch.distributions.StudentT({x}.abs() + 3).sample()",
        "torch.distributions.Laplace({x}, 1.0).sample()", "torch.distributions.Gumbel({x}, 1.0).sample()",
        "torch.distributions.Cauchy({x}, 1.0).sample()", "torch.distributions.Chi2({x}.abs() + 1).sample()",
        "torch.distributions.LogNormal({x}, 1.0).sample()", "torch.distributions.VonMises({x}, 1.0).sample()",
        "torch.svd_lowrank({x})[1]", "torch.pca_lowrank({x}, 2)[1]", "torch.quasirandom.SobolEngine(2, True).draw(3)",
        "torch.random.initial_seed()", "torch.get_rng_state()[:8]", "torch.utils.data.random_split(range(5), [3, 2])[0].indices",
        "next(iter(torch.utils.data.RandomSampler(range(5))))",
    ]),
]  # fmt: skip

# Operators with a generator, or that make a tensor of a dtype, that no program of the CPU's calls, or not by itself.
ELSEWHERE = {
    "_assert_tensor_metadata": "makes nothing",
    "_make_dep_token": "gives a tensor without memory to a compiler of torch's",
    "_empty_affine_quantized": "quantized", "_empty_per_channel_affine_quantized": "quantized", "empty_quantized": "quantized",
    "_nested_tensor_from_tensor_list": "nested", "_nested_tensor_softmax_with_shape": "nested",
    "_sparse_bsc_tensor_unsafe": "inside of sparse_bsc_tensor", "_sparse_bsr_tensor_unsafe": "inside of sparse_bsr_tensor",
    "_sparse_csc_tensor_unsafe": "inside of sparse_csc_tensor", "_sparse_csr_tensor_unsafe": "inside of sparse_csr_tensor",
    "_sparse_compressed_tensor_unsafe": "inside of sparse_compressed_tensor",
    "_sparse_compressed_tensor_with_dims": "inside of sparse_compressed_tensor",
    "_sparse_coo_tensor_unsafe": "inside of sparse_coo_tensor", "_sparse_coo_tensor_with_dims": "inside of sparse_coo_tensor",
    "_sparse_coo_tensor_with_dims_and_tensors": "inside of sparse_coo_tensor",
    "from_file": "reads a file", "rnn_tanh": "rnn", "rnn_relu": "relu_rnn",
    "_lstm_mps": "mps", "_scaled_dot_product_attention_math_for_mps": "mps",
    **dict.fromkeys((
        "_cudnn_attention_backward", "_cudnn_attention_forward", "_cudnn_init_dropout_state", "_cudnn_rnn",
        "_efficient_attention_forward", "_fill_mem_eff_dropout_mask_", "_flash_attention_forward",
        "_flash_attention_forward_no_dropout_inplace", "_fused_dropout", "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_cudnn_attention_backward", "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_efficient_attention_backward", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_fused_attention_overrideable", "_triton_scaled_dot_attention", "miopen_rnn"), "a GPU"),
}  # fmt: skip
# Whatever lies in memory.
UNSPECIFIED = re.compile(r"\b(new_)?empty(_like|_strided|_permuted)?\(")
# What the host computes is compared to the last bit; these are kernels of our own.
COMPUTED = re.compile(
    r"(space|window|windows\.\w+|freq|range|arange)\(|distributions|dropout|gumbel|attention|rnn|lstm|gru|lowrank|modules"
)


@dataclass(frozen=True)
class Case:
    """A call: text of Python, the dtype of its operand, and torch's default dtype."""

    call: str
    operand: str
    default: str = "float32"

    def text(self) -> str:
        return f"{self.call}   # x: {self.operand}, default: {self.default}"


def _with(call: str, keywords: list[str]) -> str:
    if not keywords:
        return call
    return call[:-1] + (", " if not call.endswith("()") else "") + ", ".join(keywords) + ")"


def _dispatched(call: str) -> str | None:
    """The same by the dispatcher's operator, which takes sizes as a list only."""
    found = re.match(r"torch\.(\w+)\((.*)\)$", call)
    if found is None or not hasattr(torch.ops.aten, found[1]) or found[1] in ("tensor", "as_tensor"):
        return None
    arguments = (
        re.sub(r"^(\d|n), (\d+)$", r"[\1, \2]", found[2])
        if found[1] in ("zeros", "ones", "empty", "rand", "randn")
        else found[2]
    )
    return f"torch.ops.aten.{found[1]}({arguments})"


def cases_of(call: str, axes: tuple[str, ...], whole: bool) -> Iterator[Case]:
    """Every combination for one call (`whole`), or every combination of two."""
    forms = [call, *([other] if whole and (other := _dispatched(call)) else [])]
    operands = OPERANDS if "{x}" in call else ["float32"]
    for form, operand, values in itertools.product(forms, operands, itertools.product(*(AXES[axis] for axis in axes))):
        if len(axes) > 2 and operand not in ("float32", "int64", "float16"):
            continue
        keywords = [f"{axis}={value}" for axis, value in zip(axes, values, strict=True) if value]
        if not whole and len(keywords) > 2:
            continue
        text = _with(form, keywords)
        for default in ("float32", "float64"):
            if default == "float32" or not any(k.startswith("dtype=torch") for k in keywords):
                yield Case(text, operand, default)


def all_cases() -> dict[str, list[Case]]:
    """The cases by the calls of the table; the first call of a function has all combinations."""
    found: dict[str, list[Case]] = {}
    functions = set()
    for axes, calls in TABLE:
        for call in calls:
            function = call.split("(")[0] if "{x}." not in call else call.split(".")[-1].split("(")[0]
            found[call] = list(cases_of(call, axes, function not in functions))
            functions.add(function)
    return found


def uncovered() -> set[str]:
    """Operators of torch that make or draw tensors, and that no case calls."""
    wanted = set()
    for name in torch._C._dispatch_get_all_op_names():
        library, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        operator = (
            getattr(getattr(torch.ops.aten, base, None), overload or "default", None) if library == "aten" else None
        )
        if operator is None:
            continue
        kinds = {a.name: str(a.type) for a in operator._schema.arguments}
        makes = "dtype" in kinds and ("layout" in kinds or "device" in kinds)
        if makes or any("Generator" in t for t in kinds.values()) or torch.Tag.nondeterministic_seeded in operator.tags:
            wanted.add(base)
    text = "\n".join(call for _, calls in TABLE for call in calls)
    called = set(re.findall(r"(\w+)\(", text)) | {m.replace("fft.", "fft_") for m in re.findall(r"fft\.\w+", text)}
    return wanted - called - set(re.findall(r"aten\.(\w+)", text)) - set(ELSEWHERE)


# ---- Comparing ---------------------------------------------------------------------------------------------------------

# What the calls may name. A batch of calls is one function, which takes an operand for each.
NAMES = """
import torch
i, t, t5 = torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor(1.0), torch.tensor(5)
rows, cols, p = [0, 2, 3], [0, 1, 2], torch.tensor([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])
gen = torch.Generator()
torch.manual_seed(3)
lstm, gru = torch.nn.LSTM(2, 2, 2, dropout=0.5, dtype=torch.float32), torch.nn.GRU(2, 2, 2, dropout=0.5, dtype=torch.float32)
rnn = torch.nn.RNN(2, 2, 2, dropout=0.5, dtype=torch.float32)
relu_rnn = torch.nn.RNN(2, 2, 2, dropout=0.5, nonlinearity="relu", dtype=torch.float32)
modules = torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.RReLU(), torch.nn.AlphaDropout(0.2), torch.nn.Dropout1d(0.4))
def look(r, x):
    if isinstance(r, torch.Tensor):
        return r, r * 2, (r.dtype, r.shape, r.device, r.layout, r.requires_grad, r is x)
    return r, type(r)
def f(xs, n, w):
    out = []
"""
GOOD = """
    x = xs[{k}]
    out.append(look({call}, x))
"""
RAISES = """
    x = xs[{k}]
    try:
        out.append(look({call}, x))
    except Exception as error:
        out.append((type(error).__name__, str(error)))
"""
BATCH = 20


def _program(cases: list[Case], guarded: bool) -> dict[str, Any]:
    body = "".join(
        (RAISES if guarded else GOOD).replace("{k}", str(k)).replace("{call}", case.call.replace("{x}", "x"))
        for k, case in enumerate(cases)
    )
    space: dict[str, Any] = {}
    exec(NAMES + body + "    return out\n", space)  # noqa: S102 - the text is the table's
    return space


def _operand(case: Case) -> torch.Tensor:
    return (torch.arange(6).reshape(3, 2) % 4).to(getattr(torch, case.operand))


def _parts(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [type(value), *(part for item in value for part in _parts(item))]
    return [value]


def _step(function: Any, arguments: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
    try:
        return function(*arguments), None
    except Exception as error:  # noqa: BLE001 - the exception is the result that is compared
        return None, error


def _differs(ours: Any, theirs: Any, case: Case) -> str | None:
    """What two results differ in."""
    a, b = _parts(ours), _parts(theirs)
    if len(a) != len(b):
        return f"{ours!r} instead of {theirs!r}"
    for mine, other in zip(a, b, strict=True):
        if not isinstance(other, torch.Tensor):
            if type(mine) is not type(other) or mine != other:
                return f"{mine!r} instead of {other!r}"
            continue
        if problem := _tensors_differ(mine, other, case):
            return problem
    return None


def _tensors_differ(mine: Any, other: torch.Tensor, case: Case) -> str | None:
    def seen(t: Any) -> Any:
        strides = t.stride() if t.layout is torch.strided else None
        return type(t), t.dtype, t.shape, strides, t.device, t.layout, t.requires_grad

    if not isinstance(mine, torch.Tensor) or seen(mine) != seen(other):
        return f"{seen(mine) if isinstance(mine, torch.Tensor) else mine!r} instead of {seen(other)}"
    if other.device.type == "meta" or UNSPECIFIED.search(case.call):
        return None
    if other.layout is not torch.strided:
        mine, other = mine.to_dense(), other.to_dense()
    if torch.equal(mine, other):
        return None
    try:
        tolerances = {} if COMPUTED.search(case.call) else {"rtol": 0, "atol": 0}
        torch.testing.assert_close(mine, other, equal_nan=True, **tolerances)
    except AssertionError as error:
        return "values: " + " ".join(str(error).split())[:150]
    return None


def _problem(ours: Any, theirs: Any, cases: list[Case]) -> str | None:
    if type(ours[1]) is not type(theirs[1]) or str(ours[1]) != str(theirs[1]):
        return f"raised {ours[1]!r} instead of {theirs[1]!r}"
    for k, case in enumerate(cases):
        results = (None, None) if theirs[0] is None else (ours[0][k], theirs[0][k])
        for mine, other in (results, (ours[2][k], theirs[2][k])):
            if problem := _differs(mine, other, case):
                return problem if len(cases) == 1 else f"{case.text()}: {problem}"
    same = torch.equal(ours[3], theirs[3]) and torch.equal(ours[4], theirs[4])
    return None if same else "the state of a generator"


def check(cases: list[Case], guarded: bool = False, backend: str = "tatara") -> str | None:
    """What compiled code does otherwise than eager, in one function of these cases; None: nothing."""
    steps: list[list[Any]] = [[], []]
    torch.set_default_dtype(getattr(torch, cases[0].default))
    try:
        for log, compiled in zip(steps, (False, True), strict=True):
            space = _program(cases, guarded)
            function, gen = space["f"], space["gen"]
            function = tatara.compile(function, backend=backend) if compiled else function
            torch.manual_seed(11), gen.manual_seed(12)
            for number in range(4):
                if number == 3:
                    torch.manual_seed(13), gen.manual_seed(14)
                operands = [_operand(case) for case in cases]
                result, error = _step(function, (operands, *((3, 0.75) if number < 3 else (4, 1.25))))
                log.append((result, error, operands, torch.get_rng_state(), gen.get_state()))
    finally:
        torch.set_default_dtype(torch.float32)
    for number, (theirs, ours) in enumerate(zip(*steps, strict=True)):
        if problem := _problem(ours, theirs, cases):
            return f"call {number + 1}: {problem}"
    return None


def _raises(case: Case) -> bool:
    torch.set_default_dtype(getattr(torch, case.default))
    try:
        return _step(_program([case], False)["f"], ([_operand(case)], 3, 0.75))[1] is not None
    finally:
        torch.set_default_dtype(torch.float32)


def _batches(cases: list[Case]) -> Iterator[tuple[list[Case], bool]]:
    sorts: dict[tuple[bool, str], list[Case]] = {}
    for case in cases:
        sorts.setdefault((_raises(case), case.default), []).append(case)
    for (raises, _), alike in sorts.items():
        for at in range(0, len(alike), BATCH):
            yield alike[at : at + BATCH], raises


def check_call(call: str, cases: list[Case]) -> tuple[int, list[str]]:
    """The cases of one call of the table, many in one function; those of a function that differs, one by one."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    wrong = []
    for batch, raises in _batches(cases):
        problem = check(batch, raises)
        if problem is None:
            continue
        alone = [f"{case.text()}: {found}" for case in batch if (found := check([case]))]
        wrong += alone or [f"{len(batch)} cases of {call} in one function: {problem}"]
    tatara.reset()
    return len(cases), wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("calls", nargs="*", help="only calls that contain one of these")
    parser.add_argument("--count", type=int, help="at most so many cases of each call, chosen at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    table = {c: v for c, v in all_cases().items() if not arguments.calls or any(part in c for part in arguments.calls)}
    if arguments.count is not None:
        rng = random.Random(arguments.seed)
        table = {call: rng.sample(cases, min(arguments.count, len(cases))) for call, cases in table.items()}
    start, total, wrong = time.monotonic(), 0, 0
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for done in as_completed([pool.submit(check_call, call, cases) for call, cases in table.items()]):
            count, problems = done.result()
            total += count
            wrong += len(problems)
            for problem in problems:
                print(problem, flush=True)
    print(f"{len(table)} calls, {total} cases, {wrong} differ, {time.monotonic() - start:.0f} s")
    print("operators without a case:", ", ".join(sorted(uncovered())) or "none")
    return 1 if wrong or uncovered() else 0


if __name__ == "__main__":
    sys.exit(main())
