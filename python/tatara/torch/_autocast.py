"""Which dtype autocast gives an operator's operands.

Eager's autocast acts below Python, where each operator that has a kernel for it casts its floating operands. Which
operators have one is asked of the installed torch; what the kernel does is in its documentation ("Autocast Op Reference"):
the lists below, all others run in float32. `tests/capture/autocast/test_autocast.py` and the column "autocast" of `make opinfo`
compare every operator with eager.
"""

from __future__ import annotations

import functools
from typing import Any

LOWER, FLOAT32, PROMOTE, UNKNOWN = "lower", "float32", "promote", "unknown"
SAME = "same"  # no operand is cast

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
_BY_SIZES = frozenset(["einsum", "tensordot", "inner", "linalg_multi_dot", "kron"])
_COPIES = frozenset(
    ["_to_copy", "clone", "copy_", "_unsafe_view", "_reshape_alias", "empty", "empty_like", "empty_strided"]
)
# Without a kernel for autocast, and with kernels that call no operator in turn, which autocast would see.
_PLAIN = frozenset(["mul", "sum", "dot", "vdot"])


def inside(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> str:
    """What autocast does on a CPU to all that an operator made of others casts: LOWER, FLOAT32, SAME, or UNKNOWN.

    The host is asked, with small tensors in place of the operands. Where all that computes is cast alike, the operands may
    be cast first: views and copies in between give the same values.
    """
    import torch
    from torch.utils import _pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    if name not in _BY_SIZES:
        return UNKNOWN
    table, found = policies("cpu"), set[str]()

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            base = op._schema.name.partition("::")[2]
            if not op.is_view and base not in _COPIES:
                found.add(table.get(base, SAME if base in _PLAIN else UNKNOWN))
            return op(*args, **(kwargs or {}))

    def small(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.zeros([min(int(size), 2) for size in value.shape], dtype=value.dtype, device="cpu")

    try:
        args, kwargs = _pytree.tree_map(small, (args, kwargs or {}))
        with torch.no_grad(), Watch():
            func(*args, **kwargs)
    except Exception:
        return UNKNOWN
    return found.pop() if found in ({LOWER}, {SAME}, {FLOAT32}) else UNKNOWN
