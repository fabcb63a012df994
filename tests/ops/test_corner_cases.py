"""Cases that the host's suite has shown, or lacks: each is compiled, called twice, and compared with eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402

F = torch.nn.functional

index = torch.tensor([0, 1, 1, 0, 2])

# name: the function and what makes its argument.
CASES: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
    "meshgrid_xy": (lambda x: torch.meshgrid(x, x[:2], indexing="xy"), lambda: torch.arange(3.0)),
    "meshgrid_ij": (lambda x: torch.meshgrid(x, x[:2], indexing="ij"), lambda: torch.arange(3.0)),
    "ravel_with_gaps": (lambda x: torch.ravel(x), lambda: torch.arange(6.0).reshape(1, 6, 1)[:, ::2]),
    "as_strided_of_a_part": (lambda x: x.as_strided((2, 2), (2, 1), 0), lambda: torch.arange(30)[5:20]),
    "as_strided_copy_of_a_part": (
        lambda x: torch.as_strided_copy(x, (2, 2), (2, 1), 0),
        lambda: torch.arange(30)[5:20],
    ),
    "pixel_shuffle_of_nothing": (lambda x: torch.pixel_shuffle(x, 2), lambda: torch.ones(0, 8, 3, 3)),
    "pixel_unshuffle_of_nothing": (lambda x: torch.pixel_unshuffle(x, 2), lambda: torch.ones(2, 3, 4, 0)),
    "scatter_mean_of_integers": (
        lambda x: torch.scatter_reduce(x, 0, index, x * 7 - 9, "mean"),
        lambda: torch.arange(5),
    ),
    "scatter_mean_without_self": (
        lambda x: torch.scatter_reduce(x, 0, index, x * 7 - 9, "mean", include_self=False),
        lambda: torch.arange(5),
    ),
    "scatter_amax_without_self_of_bool": (
        lambda x: torch.scatter_reduce(x, 0, index, ~x, "amax", include_self=False),
        lambda: torch.arange(5) % 2 == 0,
    ),
    "scatter_one_place_of_each_row": (
        lambda x: (
            torch.zeros_like(x).scatter(1, x[:, :1].long(), x[:, 1:2]),
            torch.ones(4, 5).scatter(1, x[:, :1].long(), 7),
        ),
        lambda: torch.arange(20.0).reshape(4, 5) % 5,
    ),
    "scatter_add_one_place_of_each_column": (
        lambda x: torch.full_like(x, -0.0).scatter_add(0, x[:1].long() % 4, x[2:3].cos()),
        lambda: torch.arange(20.0).reshape(4, 5) % 5,
    ),
    "nothing_to_read": (lambda x: torch.cos(x), lambda: torch.empty(1, 0, 3)[..., :1]),
    "diagonal_scatter_with_gaps": (
        lambda x: torch.diagonal_scatter(x, torch.zeros(3)),
        lambda: torch.arange(18.0).reshape(3, 6)[:, ::2],
    ),
    "slice_scatter_with_gaps": (
        lambda x: torch.slice_scatter(x, torch.zeros(3, 1), 1, 0, 1),
        lambda: torch.arange(18.0).reshape(3, 6)[:, ::2],
    ),
    "put_across": (
        lambda x: torch.put(x, torch.tensor([1, 4]), torch.zeros(2)),
        lambda: torch.arange(6.0).reshape(2, 3).t(),
    ),
    "fill_with_gaps": (lambda x: torch.fill(x, 2.0), lambda: torch.arange(6.0)[::2]),
    "fill_in_place_with_gaps": (lambda x: x.fill_(2.0), lambda: torch.arange(6.0)[::2]),
    "renorm_across": (lambda x: torch.renorm(x, 2, 0, 1.0), lambda: torch.arange(6.0).reshape(2, 3).t()),
    "new_empty_strided_with_gaps": (
        lambda x: x.new_empty_strided((2, 2), (4, 2)).zero_(),
        lambda: torch.arange(6.0),
    ),
    "unbind_copy_of_one": (lambda x: torch.unbind_copy(x), lambda: torch.arange(3.0).reshape(1, 3)),
    "huber_of_two_dtypes": (lambda x: F.huber_loss(x, x.bfloat16() * 3), lambda: torch.arange(6.0)),
    "logits_of_two_dtypes": (
        lambda x: F.binary_cross_entropy_with_logits(x, torch.ones(6, dtype=torch.float64)),
        lambda: torch.arange(6.0),
    ),
    "channel_shuffle_of_one_group": (lambda x: F.channel_shuffle(x, 1), lambda: torch.arange(8.0).reshape(1, 4, 2)),
    "pixel_unshuffle_of_an_empty_batch": (lambda x: F.pixel_unshuffle(x, 2), lambda: torch.ones(0, 1, 4, 4)),
    "batch_norm_statistics_in_bfloat16": (
        lambda x: torch.native_batch_norm(x, None, None, x[0].clone(), x[0].abs(), True, 0.5, 1e-5),
        lambda: torch.tensor([[2.34375], [-6.671875]], dtype=torch.bfloat16),
    ),
    "batch_norm_running_mean_in_float16": (
        lambda x: (torch.native_batch_norm(x, None, None, x[0], x[1].abs(), True, 0.5, 1e-5), x)[1],
        lambda: torch.tensor([[2.337890625], [-6.673828125]], dtype=torch.float16),
    ),
    "batch_norm_running_mean_in_bfloat16": (
        lambda x: (torch.native_batch_norm(x, None, None, x[0], x[1].abs(), True, 0.5, 1e-5), x)[1],
        lambda: torch.tensor([[2.34375], [-6.671875]], dtype=torch.bfloat16),
    ),
    "sum_of_nothing": (lambda x: x.sum((0, 1)), lambda: torch.empty(1, 0, 3)[..., :1]),
}


def _layout(value: Any) -> list[Any]:
    values = value if isinstance(value, (tuple, list)) else [value]
    return [(type(value), v.dtype, v.shape, v.stride(), v.storage_offset()) for v in values]


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    function, make = CASES[name]
    compiled = tatara.compile(function)
    expected = function(make())
    for _ in range(2):
        got = compiled(make())
        assert _layout(got) == _layout(expected)
        torch.testing.assert_close(got, expected)


BAD = {
    "unbind": lambda x: torch.unbind(x, 0),
    "split": lambda x: torch.split(x, 1),
    "chunk": lambda x: torch.chunk(x, 2),
    "tensor_split": lambda x: torch.tensor_split(x, 2),
    "unflatten": lambda x: torch.unflatten(x, 0, (1,)),
    "narrow": lambda x: torch.narrow(x, 0, 0, 1),
    "narrow_before_the_start": lambda x: torch.narrow(x.expand(3), 0, -4, 1),
    "narrow_by_a_negative_length": lambda x: torch.narrow(x.expand(3), 0, 1, -1),
    "roll": lambda x: torch.roll(x, 1, 0),
    "diff": lambda x: torch.diff(x),
    "tensordot": lambda x: torch.tensordot(x, x, ([0], [0])),
    "scatter_add": lambda x: torch.scatter_add(x.expand(3), 0, torch.tensor([0, 1, 2]), x),
    "group_norm": lambda x: torch.native_group_norm(x.expand(2), None, None, 2, 1, 1, 1, 1e-5),
    "topk": lambda x: torch.topk(x, 2),
    "convolution_of_rank_zero": lambda x: F.conv2d(x.expand(1, 1, 4, 4), x.expand(1, 2, 2), padding="same"),
    "convolution_stride": lambda x: F.conv2d(x.expand(1, 1, 4, 4), x.expand(1, 1, 2, 2), stride=0),
    "convolution_kernel": lambda x: F.conv2d(x.expand(1, 1, 4, 4), x.expand(1, 1, 5, 2), stride=3),
    "convolution_bias": lambda x: F.conv2d(x.expand(1, 1, 4, 4), x.expand(2, 1, 2, 2), x.expand(3)),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_raises_the_error_of_eager(name: str) -> None:
    function = BAD[name]
    scalar = torch.ones(())
    with pytest.raises(Exception) as expected:
        function(scalar)
    compiled = tatara.compile(function)
    for _ in range(2):
        with pytest.raises(type(expected.value)) as got:
            compiled(scalar)
        # Some messages end with a trace of C++ frames.
        assert str(got.value).split("\nException raised")[0] == str(expected.value).split("\nException raised")[0]
