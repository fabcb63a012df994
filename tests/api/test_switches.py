"""disable, is_compiling, config, stats, reset."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh", "no_grad")

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def test_disable_as_a_context() -> None:
    compiled = tatara.compile(lambda x: x + 1)
    with tatara.disable():
        with tatara.disable():
            compiled(X)
        compiled(X)
        assert tatara.stats()["graphs"] == 0
    compiled(X)
    assert tatara.stats()["graphs"] == 1


def test_disable_ends_with_an_exception() -> None:
    compiled = tatara.compile(lambda x: x + 1)
    with pytest.raises(KeyError), tatara.disable():
        raise KeyError
    compiled(X)
    assert tatara.stats()["graphs"] == 1


def test_disable_is_of_its_thread() -> None:
    compiled = tatara.compile(lambda x: x + 1)

    def work() -> None:
        with torch.no_grad():
            compiled(X)

    with tatara.disable():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert tatara.stats()["graphs"] == 1


@tatara.disable
def in_eager(x: Any) -> Any:
    assert not tatara.is_compiling()
    return x.sin()


def test_disabled_functions_break_the_graph() -> None:
    def fn(x: Any) -> Any:
        y = in_eager(x + 1)
        return y * 2 + 1

    report = tatara.explain(fn)(X)
    torch.testing.assert_close(report.result, fn(X))
    assert len(report.breaks) == 1
    texts = [str(graph) for graph in report.graphs]
    assert len(texts) == 2
    assert not any("sin" in text for text in texts)


def test_disable_inside_compiled_code() -> None:
    def fn(x: Any) -> Any:
        x = x + 1
        with tatara.disable():
            x = x.sin()
        return x * 3

    report = tatara.explain(fn)(X)
    torch.testing.assert_close(report.result, fn(X))
    assert not any("sin" in str(graph) for graph in report.graphs)
    assert any("mul" in str(graph) for graph in report.graphs)


def test_disable_around_a_compiled_function() -> None:
    plain = tatara.disable(tatara.compile(lambda x: x + 1))
    plain(X)
    assert tatara.stats()["graphs"] == 0


def test_is_compiling() -> None:
    def fn(x: Any) -> Any:
        return x + 1 if tatara.is_compiling() else x - 1

    assert not tatara.is_compiling()
    torch.testing.assert_close(fn(X), X - 1)
    compiled = tatara.compile(fn, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), X + 1)
    assert tatara.stats()["breaks"] == 0
    with tatara.disable():
        torch.testing.assert_close(compiled(X), X - 1)


def test_config() -> None:
    before = tatara.config.opt_level
    with tatara.config.patch(opt_level=3, log=""):
        assert tatara.config.opt_level == 3
        with tatara.config.patch(opt_level=0):
            assert tatara.config.opt_level == 0
        assert tatara.config.opt_level == 3
    assert tatara.config.opt_level == before

    @tatara.config.patch(opt_level=2)
    def decorated() -> Any:
        return tatara.config.opt_level

    assert decorated() == 2
    tatara.config.opt_level = 3
    tatara.config.reset("opt_level")
    assert tatara.config.opt_level == before
    assert "opt_level" in dir(tatara.config)
    assert tatara.config.as_dict()["opt_level"] == before
    assert "opt_level" in repr(tatara.config)


def test_config_refuses_what_it_does_not_know() -> None:
    with pytest.raises(tatara.InvalidArgument, match="did you mean 'cache_dir'"):
        tatara.config.cachedir = "/tmp"
    with pytest.raises(AttributeError, match="did you mean 'cache_dir'"):
        tatara.config.cachedir  # noqa: B018
    with pytest.raises(tatara.InvalidArgument, match="takes an integer from 0 to 3, not str"):
        tatara.config.opt_level = "2"
    with pytest.raises(tatara.InvalidArgument, match="takes True or False"):
        tatara.config.cache = 1
    with pytest.raises(tatara.InvalidArgument, match="unknown option"), tatara.config.patch(optlevel=1):
        pass
    assert not hasattr(tatara.config, "no_such_option")
    with pytest.raises(tatara.InvalidArgument), tatara.config.patch(opt_level=3, cache_dir=5):
        pass
    assert tatara.config.opt_level == 1


def test_config_takes_paths(tmp_path: Path) -> None:
    with tatara.config.patch(cache_dir=tmp_path):
        assert tatara.config.cache_dir == str(tmp_path)
        tatara.compile(lambda x: (x * 3).cosh())(X)
    assert any(path.is_file() for path in tmp_path.rglob("*"))


def test_dump(tmp_path: Path) -> None:
    with tatara.config.patch(dump=str(tmp_path)):
        tatara.compile(lambda x: (x * 3).sin())(X)
    (place,) = (path for path in tmp_path.iterdir() if "-entry-" not in path.name)
    assert {"graph.txt", "lowered.txt", "schedule.txt", "kernel-0.loops", "kernel-0.ll", "pass-0.graph"} <= {
        path.name for path in place.iterdir()
    }
    assert "sin" in (place / "graph.txt").read_text()
    assert "define" in (place / "kernel-0.ll").read_text()


@pytest.mark.usefixtures("host_products")
def test_stats_count_runs() -> None:
    compiled = tatara.compile(lambda x, y: torch.softmax(x @ y, -1))
    compiled(X, X.T.contiguous())
    after = tatara.stats()
    assert (after["graphs"], after["breaks"], after["recompiles"], after["fallbacks"]) == (1, 0, 0, 0)
    for _ in range(3):
        compiled(X, X.T.contiguous())
    runs = tatara.stats()
    assert runs["guard_hits"] - after["guard_hits"] == 3
    assert runs["kernels_launched"] - after["kernels_launched"] == 3
    assert runs["host_calls"] - after["host_calls"] == 3
    gc.collect()  # plans of other tests have memory
    tatara.reset()
    assert set(tatara.stats().values()) == {0}
    compiled(X, X.T.contiguous())
    assert tatara.stats()["graphs"] == 1


def test_stats_in_threads() -> None:
    compiled = tatara.compile(lambda x: x * 2 + 1)
    with torch.no_grad():
        compiled(X)
    start = tatara.stats()["kernels_launched"]

    def work() -> None:
        with torch.no_grad():
            for _ in range(50):
                compiled(X)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tatara.stats()["kernels_launched"] - start == 200
