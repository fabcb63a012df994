"""Which dtype autocast gives an operator's operands.

Eager's autocast acts below Python, where each operator that has a kernel for it casts its floating operands. Which
operators have one is asked of the installed torch; what the kernel does is in its documentation ("Autocast Op Reference"):
the lists below, all others run in float32. `tests/capture/autocast/test_autocast.py` and the column "autocast" of `make opinfo`
compare every operator with eager.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

LOWER, FLOAT32, PROMOTE, UNKNOWN = "lower", "float32", "promote", "unknown"
SAME = "same"  # no operand is cast
HERE = "same of these sizes"

_LOWER = {
    "cpu": """conv1d conv2d conv3d bmm mm linalg_vecdot baddbmm addmm _addmm_activation addbmm linear _convolution matmul
        conv_tbc mkldnn_rnn_layer conv_transpose1d conv_transpose2d conv_transpose3d prelu scaled_dot_product_attention
        _native_multi_head_attention""",
    "cuda": """_convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution
        cudnn_convolution cudnn_convolution_transpose prelu addmm addmv addr matmul einsum mm mv linalg_vecdot
        linalg_multi_dot linear addbmm baddbmm bmm chain_matmul _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell
        gru_cell rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention scaled_dot_product_attention""",
}
_PROMOTE = {
    "cpu": "stack cat index_copy",
    "cuda": "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add cat stack",
}
# Operators that are made of others with kernels for autocast: what happens to their operands shows only inside.
_MADE_OF_OTHERS = [
    "einsum",
    "tensordot",
    "inner",
    "chain_matmul",
    "linalg_multi_dot",
    "linalg_matrix_power",
    "matrix_power",
    "cov",
    "corrcoef",
    "lstm",
    "gru",
    "rnn_tanh",
    "rnn_relu",
    "lstm_cell",
    "gru_cell",
    "rnn_tanh_cell",
    "rnn_relu_cell",
    "nuclear_norm",
    "linalg_cond",
    "linalg_pinv",
    "bilinear",
    "kron",
    "cosine_similarity",
    "block_diag",
    "combinations",
    "cartesian_prod",
    "trapezoid",
    "trapz",
    "cumulative_trapezoid",
    "_native_multi_head_attention",
    "_transformer_encoder_layer_fwd",
    "cdist",
    "pdist",
    "multi_head_attention_forward",
    "binary_cross_entropy",
    "grid_sampler",
    "fft_hfft2",
    "fft_hfftn",
    "fft_ihfft2",
    "fft_ihfftn",
]
# Python names of an operator's own, and operators that only hand their operands to one.
_ALIASES = {
    "concat": "cat",
    "concatenate": "cat",
    "hstack": "cat",
    "vstack": "cat",
    "dstack": "cat",
    "column_stack": "cat",
    "row_stack": "cat",
    "__matmul__": "matmul",
    "__rmatmul__": "matmul",
    "linalg_matmul": "matmul",
    "__pow__": "pow",
    "__rpow__": "pow",
    "det": "linalg_det",
    "special_softmax": "softmax",
    "special_log_softmax": "log_softmax",
    "cross_entropy_loss": "log_softmax",
}


@functools.lru_cache
def policies(device_type: str) -> dict[str, str]:
    """For each operator that autocast on "cpu" or "cuda" changes: one of the words above. Empty for other devices."""
    import torch

    if device_type not in _LOWER:
        return {}
    key = "AutocastCPU" if device_type == "cpu" else "AutocastCUDA"
    lower, promote = set(_LOWER[device_type].split()), set(_PROMOTE[device_type].split())
    table = dict.fromkeys(_MADE_OF_OTHERS, UNKNOWN)
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full.partition("::")
        if namespace != "aten" or not torch._C._dispatch_has_kernel_for_dispatch_key(full, key):
            continue
        base = name.partition(".")[0]
        table[base] = LOWER if base in lower else PROMOTE if base in promote else FLOAT32
    if device_type == "cuda":
        table["binary_cross_entropy"] = UNKNOWN  # an error there
    for alias, name in _ALIASES.items():
        if name in table and alias not in table:
            table[alias] = table[name]
    return table


# Of the operators above: what they call does not depend on values, and of sizes only on which are 0, 1 or more.
_BY_SIZES = frozenset(["einsum", "tensordot", "inner", "linalg_multi_dot", "linalg_matrix_power", "kron"])
_COPIES = frozenset(
    ["_to_copy", "clone", "copy_", "_unsafe_view", "_reshape_alias", "empty", "empty_like", "empty_strided"]
)
# Without a kernel for autocast, and with kernels that call no operator in turn, which autocast would see.
_PLAIN = frozenset(["mul", "sum", "dot", "vdot"])
_MOST_NUMBERS = 1 << 20  # in all operands of a call that is tried out


def _on_cpu(value: Any, make: Any) -> Any:
    import torch
    from torch.utils import _pytree

    return _pytree.tree_map(lambda v: make(v) if isinstance(v, torch.Tensor) else v, value)


def _casts_nothing(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call gives the same bits with autocast on as without, of random numbers. Kernels that call others are seen
    through, too: what these cast rounds.
    """
    import torch
    from torch.utils import _pytree

    generator, count = torch.Generator().manual_seed(0), 0

    def numbers(like: Any) -> Any:
        nonlocal count
        count += like.numel()
        if count > _MOST_NUMBERS:
            raise NotImplementedError("too big to be tried out")
        if not (like.is_floating_point() or like.is_complex()):
            return torch.zeros(like.shape, dtype=like.dtype)
        return torch.rand(like.shape, dtype=torch.float64, generator=generator).to(like.dtype)

    def same(a: Any, b: Any) -> bool:
        if not isinstance(a, torch.Tensor):
            return bool(a == b)
        alike = a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
        return alike and bool(torch.equal(a.nan_to_num(), b.nan_to_num()))

    try:
        operands = _on_cpu((args, kwargs), numbers)
        state = torch.get_rng_state()
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the program's own call says it
            on = func(*operands[0], **operands[1])
            with torch.autocast("cpu", enabled=False):
                off = func(*operands[0], **operands[1])
        if not torch.equal(state, torch.get_rng_state()):
            torch.set_rng_state(state)
            return False
        pairs = [_pytree.tree_flatten(made)[0] for made in (on, off)]
        return len(pairs[0]) == len(pairs[1]) and all(map(same, *pairs))
    except Exception:
        return False


def _calls(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The operators that the host makes of a call on tensors of a CPU, which have no memory."""
    import torch
    from torch.utils import _pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    class Part(torch.Tensor):  # type: ignore[misc]
        """Of a CPU, so that autocast sees it; what computes is another tensor."""

        @staticmethod
        def __new__(cls, inner: torch.Tensor) -> Any:
            offset = inner.storage_offset()
            return torch.Tensor._make_wrapper_subclass(
                cls, inner.shape, strides=inner.stride(), storage_offset=offset, dtype=inner.dtype, device="cpu"
            )

        @classmethod
        def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise NotImplementedError

    inner_of: dict[int, torch.Tensor] = {}
    part_of: dict[int, Any] = {}
    alive: list[Any] = []  # so that no identity is taken twice
    calls: list[Any] = []

    def part(inner: torch.Tensor) -> Any:
        if id(inner) not in part_of:
            made = Part(inner)
            alive.extend((made, inner))
            part_of[id(inner)], inner_of[id(made)] = made, inner
        return part_of[id(inner)]

    def inside_of(value: Any) -> Any:
        return torch.device("meta") if isinstance(value, torch.device) else inner_of.get(id(value), value)

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            args, kwargs = _pytree.tree_map(inside_of, (args, kwargs or {}))
            calls.append(op)
            return _on_cpu(op(*args, **kwargs), part)

    def operand(like: Any) -> Any:
        return part(torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device="meta"))

    args, kwargs = _on_cpu((args, kwargs), operand)
    with torch.no_grad(), Watch():
        func(*args, **kwargs)
    return calls


def inside(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> str:
    """What autocast does on a CPU to all that an operator made of others casts: LOWER, FLOAT32, SAME, HERE, or UNKNOWN.

    The host is asked. Where all that computes inside is cast alike, the operands may be cast first: views and copies in
    between give the same values.
    """
    if _casts_nothing(func, args, kwargs or {}):
        return SAME if name in _BY_SIZES else HERE
    if name not in _BY_SIZES:
        return UNKNOWN
    try:
        calls = _calls(func, args, kwargs or {})
    except Exception:
        return UNKNOWN
    table, found = policies("cpu"), set[str]()
    for op in calls:
        base = op._schema.name.partition("::")[2]
        if not op.is_view and base not in _COPIES:
            found.add(table.get(base, SAME if base in _PLAIN else UNKNOWN))
    return found.pop() if found in ({LOWER}, {SAME}, {FLOAT32}) else UNKNOWN
