"""kernel_history: compilations and launches as events."""

from __future__ import annotations

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh", "no_grad", "own_cache", "host_products")


def program(x: Any, y: Any) -> Any:
    return torch.softmax(x @ y + 0.71875, -1)


X, Y = torch.randn(40, 24), torch.randn(24, 33)


def test_first_call_compiles_later_calls_launch() -> None:
    compiled = tatara.compile(program)
    with tatara.kernel_history() as first:
        compiled(X, Y)
    assert [event.kind for event in first.events if event.kind in ("compile", "graph")] == ["compile", "graph"]
    (compile_event,) = first.compiles
    assert compile_event.cache == "compiled"
    assert not compile_event.cache_hit
    assert {"add", "exp"} <= set(compile_event.operators)
    assert "parallel" in compile_event.loops
    assert (first.graphs, first.breaks, first.recompiles, first.compiled) == (1, 0, 0, 1)

    with tatara.kernel_history() as later:
        compiled(X, Y)
        assert later.launched == 1  # readable inside
    (launch,), (host,) = later.launches, later.host_calls
    assert launch.name == compile_event.name
    assert launch.graph == compile_event.graph == host.graph
    assert launch.run == host.run
    assert host.name == "aten::mm"
    assert host.step < launch.step
    assert host.start <= launch.start
    assert launch.bytes >= 2 * 40 * 33 * 4
    assert launch.iterations >= 1
    assert launch.microseconds > 0
    assert (later.graphs, later.compiled, later.recompiles) == (0, 0, 0)
    assert len(later.events) == 2
    compiled(X, Y)
    assert len(later.events) == 2  # closed
    assert "launch" in str(later)


def test_cache_hits() -> None:
    tatara.compile(program)(X, Y)
    with tatara.kernel_history() as history:
        tatara.compile(program)(X, Y)
    (event,) = history.compiles
    assert event.cache == "memory"
    assert event.cache_hit
    assert history.compiled == 0


def test_recompiles_are_counted() -> None:
    compiled = tatara.compile(lambda x, flag: x + 1 if flag else x - 1)
    with tatara.kernel_history() as history:
        compiled(X, True)
        compiled(X, False)
    assert history.recompiles == 1
    assert history.graphs == 2


def test_histories_nest_and_see_all_threads() -> None:
    compiled = tatara.compile(program)
    compiled(X, Y)

    def work() -> None:
        with torch.no_grad():
            for _ in range(5):
                compiled(X, Y)

    with tatara.kernel_history() as outer:
        with tatara.kernel_history() as inner:
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        work()
    assert inner.launched == 15
    assert outer.launched == 20
    assert len({event.run for event in outer.launches}) == 20
    assert len({event.thread for event in outer.launches}) == 4


def test_nothing_is_recorded_when_closed() -> None:
    compiled = tatara.compile(program)
    compiled(X, Y)
    with tatara.kernel_history() as history:
        pass
    compiled(X, Y)
    assert history.events == []
    with pytest.raises(KeyError), tatara.kernel_history() as broken:
        raise KeyError
    compiled(X, Y)
    assert broken.events == []
