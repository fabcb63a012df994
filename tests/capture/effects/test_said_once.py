"""What a function with a cache (functools.lru_cache) says, it says once, within a graph; what loggers note of themselves."""

from __future__ import annotations

import functools
import io
import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402


def _print(text: str, out: io.StringIO) -> None:
    print(text, len(text), file=out)


def _log(text: str, out: io.StringIO) -> None:
    logger = logging.Logger("said")
    logger.addHandler(logging.StreamHandler(out))
    logger.warning("%s: %d", text, len(text))


class Handler(logging.Handler):
    """Writes to the stream of the moment."""

    out = io.StringIO()

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=self.out)


LOGGER = logging.Logger("kept")
LOGGER.addHandler(Handler())


def _kept(text: str, out: io.StringIO) -> None:
    LOGGER.error("%s: %d", text, len(text))
    LOGGER.log(logging.WARNING, text)


def _warn(text: str, out: io.StringIO) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn(text, UserWarning, stacklevel=2)
    print([str(each.message) for each in caught], file=out)


def _program(say: Callable[[str, io.StringIO], None]) -> tuple[io.StringIO, Callable[[Any, str], Any]]:
    out = Handler.out = io.StringIO()

    @functools.lru_cache
    def once(text: str) -> int:
        say(text, out)
        return len(text)

    def program(x: Any, text: str) -> Any:
        y = torch.tanh(x) * 2
        return (y + once(text)).relu()

    return out, program


@pytest.mark.parametrize("say", [_print, _log, _kept, _warn])
def test_each_text_is_said_once(say: Callable[[str, io.StringIO], None]) -> None:
    x = torch.linspace(-1, 1, 5)
    seen = []
    for compiled in (False, True):
        out, program = _program(say)
        run = tatara.compile(program) if compiled else program
        rows = []
        for text in ("one", "one", "three", "one", "three"):
            rows.append((run(x, text), out.getvalue()))
        seen.append(rows)
    for (expected, said), (result, ours) in zip(*seen, strict=True):
        torch.testing.assert_close(result, expected)
        assert said == ours
    assert seen[1][-1][1].count("\n") == (4 if say is _kept else 2)


@pytest.mark.parametrize("say", [_print, _kept])
def test_what_is_said_once_breaks_no_graph(say: Callable[[str, io.StringIO], None]) -> None:
    out, program = _program(say)
    tatara.reset()
    run = tatara.compile(program, fullgraph=True)
    x = torch.linspace(-1, 1, 5)
    for _ in range(3):
        torch.testing.assert_close(run(x, "one"), (torch.tanh(x) * 2 + 3).relu())
    stats = tatara.stats()
    assert (stats["graphs"], stats.get("breaks", 0), stats.get("recompiles", 0)) == (1, 0, 0)
    assert out.getvalue().count("one") == (2 if say is _kept else 1)


def test_a_tensor_is_said_by_its_value() -> None:
    out = io.StringIO()

    def program(x: Any) -> Any:
        y = x * 2

        @functools.lru_cache
        def outer() -> int:
            print(y, file=out)
            print([y.sum()], file=out)
            return 1

        return y + outer()

    x = torch.ones(2)
    run = tatara.compile(program)
    for _ in range(2):
        torch.testing.assert_close(run(x), x * 2 + 1)
    assert out.getvalue() == "tensor([2., 2.])\n[tensor(4.)]\n" * 2


def test_errors_are_not_cached() -> None:
    seen = []
    for compiled in (False, True):
        out = io.StringIO()

        @functools.lru_cache
        def once(n: int, out: io.StringIO = out) -> int:
            print("asked", n, file=out)
            raise KeyError(n)

        def program(x: Any, once: Any = once) -> Any:
            y = torch.tanh(x)
            try:
                once(3)
            except KeyError as error:
                y = y + error.args[0]
            return y * 2

        run = tatara.compile(program) if compiled else program
        x = torch.linspace(-1, 1, 5)
        seen.append([(run(x).tolist(), out.getvalue()) for _ in range(3)])
    assert [said for _, said in seen[0]] == [said for _, said in seen[1]]
    for (expected, _), (result, _) in zip(*seen, strict=True):
        assert result == pytest.approx(expected)


def test_what_a_logger_notes_of_itself_compiles_nothing_again() -> None:
    logger = logging.Logger("quiet", level=logging.WARNING)

    def program(x: Any) -> Any:
        logger.debug("x has %d items", 5)
        logger.info("unseen")
        return torch.sin(x) + 1

    tatara.reset()
    run = tatara.compile(program)
    x = torch.linspace(-1, 1, 5)
    for _ in range(3):
        torch.testing.assert_close(run(x), torch.sin(x) + 1)
    stats = tatara.stats()
    assert (stats["graphs"], stats.get("breaks", 0), stats.get("recompiles", 0)) == (1, 0, 0)


def test_a_level_that_changes_is_seen() -> None:
    out = io.StringIO()
    logger = logging.Logger("louder", level=logging.WARNING)
    logger.addHandler(logging.StreamHandler(out))

    def program(x: Any) -> Any:
        logger.info("seen")
        return torch.sin(x) + 1

    run = tatara.compile(program)
    x = torch.linspace(-1, 1, 5)
    run(x), run(x)
    assert out.getvalue() == ""
    logger.setLevel(logging.DEBUG)
    logger._cache.clear()  # a logger outside of the tree has no manager that does it
    for count in (1, 2, 3):
        torch.testing.assert_close(run(x), torch.sin(x) + 1)
        assert out.getvalue() == "seen\n" * count
