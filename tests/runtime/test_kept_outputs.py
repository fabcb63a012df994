"""Memory of dropped outputs serves the next call; memory that anything still sees never does."""

from __future__ import annotations

import gc
import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import forked
import tatara

N = 1 << 18  # floats: 1 MB


@pytest.fixture
def compiled() -> Any:
    tatara.reset()
    return tatara.compile(lambda x: x * 2 + 1)


def _drop_and_call(compiled: Callable[..., torch.Tensor]) -> bool:
    """Whether the output of the second call lies where the dropped one of the first lay."""
    with torch.no_grad():
        out = compiled(torch.randn(N))
        place = out.data_ptr()
        del out
        return compiled(torch.randn(N)).data_ptr() == place


def test_dropped_outputs_are_used_again(compiled: Any) -> None:
    _drop_and_call(compiled)  # the first call is traced
    assert all(_drop_and_call(compiled) for _ in range(4))


HUGE_PAGES = """
import json, pathlib, re, sys, torch, tatara

def asks_for_huge_pages(tensor):
    "Whether the mapping of its middle byte has the flag that MADV_HUGEPAGE sets, by /proc/self/smaps (proc(5))."
    middle = tensor.data_ptr() + tensor.nbytes // 2  # untyped_storage() would make an object that holds the memory
    inside = False
    for line in pathlib.Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(found[1], 16) <= middle < int(found[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return "hg" in line.split()
    raise AssertionError("the memory is in no mapping")

keep, calls, hold = json.loads(sys.argv[1])
compiled = tatara.compile(lambda x: x * 6 - 1, options={"keep_outputs_mb": keep})
x = torch.randn(48 << 18)  # from 32 MB on the C library gives each block a mapping of its own, where no freed one serves
asked, places, held = [], set(), []
with torch.no_grad():
    for call in range(calls):
        out = compiled(x)
        assert torch.allclose(out, x * 6 - 1)
        asked.append(asks_for_huge_pages(out))
        if call > 0:  # the first compiles: its output is not yet that of a kernel
            places.add(out.data_ptr())
        if hold:
            held.append(out)
        del out
print(json.dumps([asked, len(places)]))
"""


def _huge_pages(keep: int, calls: int, hold: bool) -> tuple[list[bool], int]:
    """Which outputs ask for huge pages, and at how many places later ones lie. In a process of its own: the flag outlives a block that
    the C library keeps for itself, so one of an earlier test may come back with it.
    """
    done = forked.run(["-c", HUGE_PAGES, json.dumps([keep, calls, hold])])
    assert done.returncode == 0, done.stderr[-2000:]
    asked, places = json.loads(done.stdout)
    return asked, places


needs_huge_pages = pytest.mark.skipif(
    not pathlib.Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="this system has no huge pages to ask for"
)


@needs_huge_pages
@pytest.mark.parametrize("keep", [1024, 0])
def test_huge_pages_are_for_memory_that_is_asked_for_again(keep: int) -> None:
    """The first block of an output is often the last, and a huge page comes late on some machines."""
    assert _huge_pages(keep, calls=4, hold=True) == ([False, False, True, True], 3)


@needs_huge_pages
def test_a_block_that_is_used_again_and_again_gets_huge_pages() -> None:
    assert _huge_pages(1024, calls=9, hold=False) == (6 * [False] + 3 * [True], 1)


def test_option_switches_it_off() -> None:
    compiled = tatara.compile(lambda x: x - 3, options={"keep_outputs_mb": 0})
    with torch.no_grad():
        for _ in range(3):
            out = compiled(torch.randn(N))
            assert torch._C._storage_Use_Count(torch._C._storage_address(out)) == 1


HOLDERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda t: t,
    "view": lambda t: t.view(2, -1)[1],
    "element": lambda t: t[5:6],
    "detached": lambda t: t.detach(),
    "data": lambda t: t.data,
    "numpy": lambda t: t.numpy(),
    "dlpack": lambda t: torch.utils.dlpack.to_dlpack(t),
    "storage": lambda t: t.untyped_storage(),
    "set": lambda t: torch.empty(0).set_(t),
    "parameter": lambda t: torch.nn.Parameter(t, requires_grad=False),
    "lazy clone": lambda t: t._lazy_clone(),
    "saved for backward": lambda t: torch.ones(N, requires_grad=True).mul(t),
    "shared": lambda t: t.share_memory_(),
}


def _values(held: Any) -> torch.Tensor:
    if isinstance(held, torch.Tensor):
        if held.grad_fn is not None:
            return held.grad_fn._saved_other.detach()
        return held.detach()
    if isinstance(held, torch.UntypedStorage):
        return torch.empty(0).set_(held)
    if "PyCapsule" in type(held).__name__:
        return torch.utils.dlpack.from_dlpack(held)
    return torch.from_numpy(held)


@pytest.mark.parametrize("holder", HOLDERS)
def test_held_memory_is_left_alone(compiled: Any, holder: str) -> None:
    with torch.no_grad():
        compiled(torch.randn(N))
        x = torch.randn(N)
        out = compiled(x)
        with torch.enable_grad():
            held = HOLDERS[holder](out)
        del out
        gc.collect()
        for _ in range(4):
            compiled(torch.randn(N))
        values = _values(held)
        expected = x * 2 + 1
        if holder == "view":
            expected = expected[N // 2 :]
        if holder == "element":
            expected = expected[5:6]
        torch.testing.assert_close(values.flatten(), expected[: values.numel()])


def test_resized_storages_are_given_up(compiled: Any) -> None:
    with torch.no_grad():
        for size in (0, N * 8, 100):
            out = compiled(torch.randn(N))
            out.untyped_storage().resize_(size)
            del out
            x = torch.randn(N)
            torch.testing.assert_close(compiled(x), x * 2 + 1)
        out = compiled(torch.randn(N))
        out.resize_(2 * N).fill_(7)
        del out
        x = torch.randn(N)
        torch.testing.assert_close(compiled(x), x * 2 + 1)


def test_result_as_next_argument(compiled: Any) -> None:
    with torch.no_grad():
        x = expected = torch.randn(N) / 1000
        places = set()
        for _ in range(8):
            x = compiled(x)
            places.add(x.data_ptr())
            expected = expected * 2 + 1
        torch.testing.assert_close(x, expected)
        assert len(places) <= 4  # the traced call's, then blocks in turn


def test_kept_tensors_look_like_new_ones(compiled: Any) -> None:
    for context in (torch.no_grad, torch.inference_mode):
        tatara.reset()
        with context():
            fresh = torch.randn(N) * 2 + 1
            first = compiled(torch.randn(N))
            del first
            out = compiled(torch.randn(N))
            assert torch._C._dispatch_keys(out) == torch._C._dispatch_keys(fresh)
            assert out.is_inference() == fresh.is_inference()
            assert not out._is_view() and out._base is None and not out.requires_grad
            assert out.untyped_storage().nbytes() == fresh.untyped_storage().nbytes()
            assert out.untyped_storage().resizable() == fresh.untyped_storage().resizable()
            if context is torch.no_grad:
                assert out._version == 0


def test_layouts_of_one_size_share_memory() -> None:
    compiled = tatara.compile(lambda x: x.t() + 1, dynamic=True)
    with torch.no_grad():
        for shape in ((512, 1024), (1024, 512), (256, 2048), (512, 1024)):
            x = torch.randn(*shape)
            out = compiled(x)
            torch.testing.assert_close(out, x.t() + 1)
            assert out.stride() == (x.t() + 1).stride()
            del out


def test_reset_gives_memory_back() -> None:
    compiled = tatara.compile(lambda x: x / 3)
    with torch.no_grad():
        compiled(torch.randn(N))
        out = compiled(torch.randn(N))
        address = torch._C._storage_address(out)
        assert torch._C._storage_Use_Count(address) == 2
        tatara.reset()
        del compiled
        gc.collect()
        assert torch._C._storage_Use_Count(address) == 1
