"""Bad input: eager's own errors from the user's line, and failures of the environment that must not break the program."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
tatara = pytest.importorskip("tatara")


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    tatara.reset()
    yield
    tatara.reset()


def _error_of(function: Any, *args: Any) -> BaseException:
    with pytest.raises(Exception) as info:
        function(*args)
    return info.value


def _line_of(error: BaseException, function: Any) -> int:
    """Line inside `function` at which the error passed."""
    return next(f.lineno for f in traceback.extract_tb(error.__traceback__) if f.name == function.__name__) or 0


def _mismatched(a: Any, b: Any) -> Any:
    c = a * 2
    return c + b


def test_shape_error_is_eagers_from_the_users_line() -> None:
    args = torch.randn(3), torch.randn(4)
    expected, actual = _error_of(_mismatched, *args), _error_of(tatara.compile(_mismatched), *args)
    assert type(actual) is type(expected)
    assert str(actual) == str(expected)
    assert _line_of(actual, _mismatched) == _line_of(expected, _mismatched)


def _gather(table: Any, index: Any) -> Any:
    return table[index] + 1


@pytest.mark.parametrize("bad", [5, -6])
def test_index_out_of_bounds(bad: int) -> None:
    compiled = tatara.compile(_gather)
    table = torch.randn(5, 2)
    compiled(table, torch.tensor([0, 4]))
    expected, actual = (
        _error_of(_gather, table, torch.tensor([0, bad])),
        _error_of(compiled, table, torch.tensor([0, bad])),
    )
    assert type(actual) is type(expected)
    assert str(bad) in str(actual)
    assert torch.equal(compiled(table, torch.tensor([1])), _gather(table, torch.tensor([1])))


class _Counter:
    def __init__(self) -> None:
        self.calls = 0
        self.seen: list[int] = []


def _fails_midway(counter: _Counter, x: Any) -> Any:
    for i in range(4):
        counter.calls += 1
        counter.seen.append(i)
        x = x + i
        if i == 2:
            raise ValueError("stop")
    return x


def test_exception_in_a_loop_leaves_objects_as_eager() -> None:
    ours, theirs = _Counter(), _Counter()
    compiled = tatara.compile(_fails_midway)
    for _ in range(2):
        expected, actual = _error_of(_fails_midway, theirs, torch.ones(2)), _error_of(compiled, ours, torch.ones(2))
        assert str(actual) == str(expected)
        assert (ours.calls, ours.seen) == (theirs.calls, theirs.seen)


_SCRIPT = """
import torch, tatara
f = tatara.compile(lambda x: torch.tanh(x * 2) + 1)
x = torch.linspace(-1, 1, 100)
torch.testing.assert_close(f(x), torch.tanh(x * 2) + 1)
print("right")
"""


def _run(environment: dict[str, str], script: str = _SCRIPT) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _cache_files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


@pytest.mark.parametrize("damage", ["truncate", "garbage", "empty"])
def test_damaged_cache(tmp_path: Path, damage: str) -> None:
    environment = {"TATARA_CACHE_DIR": str(tmp_path)}
    _run(environment)
    files = _cache_files(tmp_path)
    assert files
    for path in files:
        data = path.read_bytes()
        path.write_bytes(
            {"truncate": data[: len(data) // 2], "garbage": bytes(255 - b for b in data), "empty": b""}[damage]
        )
    assert "right" in _run(environment)


def test_cache_directory_that_cannot_be_written(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a directory")
    assert "right" in _run({"TATARA_CACHE_DIR": str(blocker / "cache")})
    read_only = tmp_path / "read_only"
    read_only.mkdir()
    read_only.chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert "right" in _run({"TATARA_CACHE_DIR": str(read_only)})


def test_full_disk() -> None:
    if not Path("/dev/full").exists():
        pytest.fail("this system has no /dev/full")
    script = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n" + _SCRIPT
    script = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n" + script
    assert "right" in _run({}, script)


def test_llvm_that_does_not_load(tmp_path: Path) -> None:
    environment = {"TATARA_LLVM": str(tmp_path / "missing.so"), "TATARA_CACHE_DIR": str(tmp_path / "cache")}
    assert "right" in _run(environment)


def test_empty_path(tmp_path: Path) -> None:
    assert "right" in _run({"PATH": "", "TATARA_CACHE_DIR": str(tmp_path)})


def test_eight_threads_compile_the_same_function() -> None:
    compiled = tatara.compile(lambda x: torch.exp(x) * 3)
    x = torch.randn(1000)
    expected = torch.exp(x) * 3
    problems: list[BaseException] = []
    barrier = threading.Barrier(8)

    def work() -> None:
        try:
            barrier.wait()
            for _ in range(20):
                torch.testing.assert_close(compiled(x), expected)
        except BaseException as error:  # noqa: BLE001 - reported by the assertion below
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert not problems


def test_fork_after_compile() -> None:
    script = (
        _SCRIPT
        + """
import os
big = torch.randn(1 << 20)
f(big)
child = os.fork()
if child == 0:
    torch.set_num_threads(1)
    torch.testing.assert_close(f(x), torch.tanh(x * 2) + 1)
    g = tatara.compile(lambda y: y * 3 - 1)
    torch.testing.assert_close(g(x), x * 3 - 1)
    os._exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
print("child right")
"""
    )
    assert "child right" in _run({}, script)
