"""Where torch's meta kernel gives another type than the kernel, the first call shows it, and the program sees eager's in each."""

import pytest
import torch
import torch.nn.functional as F

import tatara
from counters import counts


def _reads(x):
    found = torch.ops.aten.nonzero_static.default(x, size=3)
    return found, found.stride(), found.is_contiguous()


def _returns(x):
    return torch.ops.aten.nonzero_static.default(x, size=3)


@pytest.mark.parametrize("needs", [False, True])
def test_strides_that_the_program_reads(needs):
    compiled = tatara.compile(_reads)
    for _ in range(3):
        x = torch.eye(5).requires_grad_(needs)
        found, strides, dense = compiled(x)
        expected = _reads(x)
        assert torch.equal(found, expected[0])
        assert (found.stride(), strides, dense) == (expected[0].stride(), *expected[1:])


@pytest.mark.parametrize("needs", [False, True])
def test_strides_of_results(needs):
    compiled = tatara.compile(_returns)
    for _ in range(3):
        x = torch.eye(5).requires_grad_(needs)
        assert compiled(x).stride() == _returns(x).stride()


def test_in_a_forked_child_of_a_process_that_uses_a_gpu(monkeypatch):
    class Unreadable:
        def get_state(self):
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess.")

    monkeypatch.setattr(torch.cuda, "default_generators", (Unreadable(),))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    compiled = tatara.compile(_reads)
    for _ in range(3):
        assert compiled(torch.eye(5))[1] == _reads(torch.eye(5))[1]


@pytest.mark.parametrize("name", ["atleast_1d", "atleast_2d", "atleast_3d"])
@pytest.mark.parametrize("count", [1, 2])
def test_lists_of_the_dispatcher(name, count):
    for function in (getattr(torch, name), getattr(torch.ops.aten, name), getattr(torch.ops.aten, name).Sequence):
        compiled = tatara.compile(lambda each, function=function: function(each))
        for _ in range(3):
            tensors = [torch.zeros(()), torch.ones(3)][:count]
            found, expected = compiled(tensors), function(tensors)
            assert type(found) is type(expected)
            assert [t.shape for t in found] == [t.shape for t in expected]


@pytest.mark.parametrize("count", [1, 2, 7, 33, 64])
@pytest.mark.parametrize("right", [False, True])
def test_boundaries_that_are_not_sorted(count, right):
    generator = torch.Generator().manual_seed(count)
    rows = torch.randn(4, count, generator=generator)
    values = torch.tensor([[-3.0, -0.5, 0.0, 0.25, float("nan"), float("inf")]] * 4)

    def function(rows, values):
        searched = torch.searchsorted(rows, values, right=right)
        return searched, torch.searchsorted(rows[0], values, right=right), torch.bucketize(values, rows[1], right=right)

    compiled = tatara.compile(function)
    for _ in range(3):
        for found, expected in zip(compiled(rows, values), function(rows, values), strict=True):
            assert torch.equal(found, expected)


BAGS = torch.tensor([[0, 3, 1], [2, 3, 3], [5, 0, 1]])
WEIGHTS = torch.linspace(0.5, 1.5, 9).reshape(3, 3)
OF_BAGS = {
    "sum": lambda w: F.embedding_bag(BAGS, w, mode="sum"),
    "mean": lambda w: F.embedding_bag(BAGS, w),
    "max": lambda w: F.embedding_bag(BAGS, w, mode="max"),
    "padded": lambda w: F.embedding_bag(BAGS, w, mode="mean", padding_idx=3),
    "weighted": lambda w: F.embedding_bag(BAGS, w, mode="sum", per_sample_weights=WEIGHTS),
    "offsets": lambda w: F.embedding_bag(BAGS.flatten(), w, torch.tensor([0, 4, 4]), mode="sum"),
}


@pytest.mark.parametrize("name", OF_BAGS)
def test_a_result_of_another_size_that_nobody_has(name):
    # Torch's meta kernels give the counts and places, which come with a sum of rows, sizes of their own.
    bag = OF_BAGS[name]
    for needs in (False, True):
        table = torch.linspace(-1, 1, 24).reshape(6, 4).requires_grad_(needs)
        compiled = tatara.compile(lambda w, bag=bag: bag(w).sin())
        with counts() as grown:
            for _ in range(3):
                seen, expected = compiled(table), bag(table).sin()
                torch.testing.assert_close(seen, expected)
                assert (seen.requires_grad, seen.stride()) == (expected.requires_grad, expected.stride())
        assert (grown["graphs"], grown["breaks"], grown["recompiles"]) == (1, 0, 0)


@pytest.mark.parametrize("name", OF_BAGS)
def test_a_step_with_such_a_result_is_one_graph(name):
    bag = OF_BAGS[name]
    ours, theirs = (torch.linspace(-1, 1, 24).reshape(6, 4).requires_grad_() for _ in range(2))

    def step(w):
        w.grad = None
        bag(w).sin().sum().backward()

    compiled = tatara.compile(lambda: step(ours))
    for _ in range(4):
        with counts() as grown:
            compiled()
        step(theirs)
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert (grown["graphs"], grown["breaks"], grown["recompiles"]) == (0, 0, 0)


def test_a_result_of_another_size_that_the_program_has():
    held = []

    def program(w, hold):
        found = torch.embedding_bag(w, BAGS.flatten(), torch.tensor([0, 4, 4]), mode=0)
        return found if hold == "all" else held.append(found[3]) if hold == "list" else found[3] + 1

    compiled = tatara.compile(program)
    table = torch.linspace(-1, 1, 24).reshape(6, 4)
    for hold in ("all", "list", "used") * 3:
        seen, expected = compiled(table, hold), program(table, hold)
        if hold == "list":
            seen, expected = held[-2:]
        torch.testing.assert_close(seen, expected)
