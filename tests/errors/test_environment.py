"""Failures of what is around the program (cache, disk, LLVM, threads, fork, PATH): a right result, no hang, nothing half-written.

Each case is a process of its own with a time limit; it prints the counters of tatara.stats(), so a test sees which way was taken.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tatara")

_NUMPY = """
import json, numpy as np, tatara
def program(x):
    return np.tanh(x * 2) + np.exp(x) / np.exp(x).sum()
def check(function=None):
    x = np.linspace(-1, 1, 100)
    np.testing.assert_allclose((function or tatara.compile(program))(x), program(x))
"""
_TORCH = """
import json, torch, tatara
def program(x):
    return torch.tanh(x * 2) + torch.softmax(x, 0)
def check(function=None):
    x = torch.linspace(-1, 1, 100)
    torch.testing.assert_close((function or tatara.compile(program))(x), program(x))
"""
_REPORT = "\nprint(json.dumps(tatara.stats()))\n"
_LIMIT_SECONDS = 240


def _run(script: str, cache: Path, program: str = _NUMPY, **environment: str) -> dict[str, int]:
    """Counters that the script printed last. NumPy's programs take the same way as torch's and start sooner."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program + script + _REPORT],
        env={**os.environ, "TATARA_CACHE_DIR": str(cache), **environment},
        capture_output=True,
        text=True,
        timeout=_LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counters: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return counters


def _entries(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file() and path.suffix == ".tatara")


def _left_over(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.suffix == ".tmp"]


def _flip_each_byte(data: bytes) -> bytes:
    return bytes(255 - byte for byte in data)


def _flip_in_the_middle(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


_DAMAGES: dict[str, Any] = {
    "truncated": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "header only": lambda data: data[:48],
    "empty": lambda data: b"",
    "garbage": _flip_each_byte,
    "one bit": _flip_in_the_middle,
    "longer": lambda data: data + b"\0",
}


@pytest.fixture(scope="module")
def good_cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Entries of a cache that is whole; a second process compiles nothing with it."""
    cache = tmp_path_factory.mktemp("good")
    assert _run("check()", cache)["kernels_compiled"] > 0
    again = _run("check()", cache)
    assert again["kernels_compiled"] == 0
    assert again["cache_hits"] > 0
    return {path.name: path.read_bytes() for path in _entries(cache)}


@pytest.mark.parametrize("damage", list(_DAMAGES))
def test_damaged_cache(tmp_path: Path, good_cache: dict[str, bytes], damage: str) -> None:
    for name, data in good_cache.items():
        (tmp_path / name).write_bytes(_DAMAGES[damage](data))
    assert _run("check()", tmp_path)["kernels_compiled"] > 0
    # The damaged entries were replaced by whole ones.
    assert {path.name for path in _entries(tmp_path)} == set(good_cache)
    assert _run("check()", tmp_path)["kernels_compiled"] == 0
    assert not _left_over(tmp_path)


def test_cache_entries_under_each_others_names(tmp_path: Path, good_cache: dict[str, bytes]) -> None:
    names = list(good_cache)
    assert len(names) > 1
    for name, other in zip(names, names[1:] + names[:1], strict=True):
        (tmp_path / name).write_bytes(good_cache[other])
    assert _run("check()", tmp_path)["kernels_compiled"] > 0


def test_directories_and_pipes_in_place_of_cache_entries(tmp_path: Path, good_cache: dict[str, bytes]) -> None:
    for i, name in enumerate(good_cache):
        if i % 2 == 0:
            (tmp_path / name).mkdir()
        else:
            os.mkfifo(tmp_path / name)  # reading one without a writer would wait for ever
    assert _run("check()", tmp_path)["kernels_compiled"] > 0


# Root may write anywhere: without this capability it may not, like anybody else.
_AS_ANYBODY = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
sets = (ctypes.c_uint32 * 6)()
assert libc.syscall(125, header, sets) == 0
sets[0] &= ~0b110
assert libc.syscall(126, header, sets) == 0
cache = os.environ["TATARA_CACHE_DIR"]
try:
    open(os.path.join(cache, "probe"), "w")
    raise SystemExit("the directory can be written")
except OSError:
    pass
"""


def test_read_only_cache(tmp_path: Path, good_cache: dict[str, bytes]) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    for directory in (empty, full):
        directory.mkdir()
    for name, data in good_cache.items():
        (full / name).write_bytes(data)
    for directory in (empty, full):
        directory.chmod(0o500)
    assert _run(_AS_ANYBODY + "check()", empty)["kernels_compiled"] > 0
    assert _run(_AS_ANYBODY + "check()", full)["kernels_compiled"] == 0  # it can still be read
    assert not list(empty.iterdir())


def test_cache_directory_that_cannot_be(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a directory")
    assert _run("check()", blocker / "cache")["kernels_compiled"] > 0
    assert _run("check()", blocker)["kernels_compiled"] > 0
    assert blocker.read_text() == "not a directory"


@pytest.mark.parametrize("room", [0, 60, 2000])
def test_full_disk(tmp_path: Path, room: int) -> None:
    """No file may grow over `room` bytes: writes fail at once or midway."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))\n"
    assert _run(limit + "check()", tmp_path)["kernels_compiled"] > 0
    assert not _left_over(tmp_path)
    assert all(path.stat().st_size <= room for path in tmp_path.rglob("*") if path.is_file())
    # What is there is whole: the disk has room again, and every entry is right.
    before = {path.name: path.read_bytes() for path in _entries(tmp_path)}
    assert _run("check()", tmp_path)["kernels_compiled"] > 0
    assert all((tmp_path / name).read_bytes() == data for name, data in before.items())
    assert _run("check()", tmp_path)["kernels_compiled"] == 0


@pytest.mark.parametrize("library", ["garbage", "another library"])
def test_llvm_that_does_not_load(tmp_path: Path, library: str) -> None:
    path = tmp_path / "libllvm.so"
    if library == "garbage":
        path.write_bytes(b"\x7fELF" + bytes(1000))
    name = "libm.so.6" if library == "another library" else str(path)
    script = """
check()
report = tatara.explain(program)(np.ones(8))
assert "LLVM" in str(report), str(report)
"""
    counters = _run(script, tmp_path / "cache", TATARA_LLVM=name)
    assert counters["kernels_compiled"] == 0
    assert counters["kernels_launched"] == 0
    assert not _entries(tmp_path / "cache")


def test_empty_path_and_no_subprocess(tmp_path: Path) -> None:
    watch = """
import sys
def watch(event, args):
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"):
        raise RuntimeError(f"a process is started: {event}")
sys.addaudithook(watch)
"""
    assert _run(watch + "check()", tmp_path, _TORCH, PATH="")["kernels_compiled"] > 0
    assert _run(watch + "check()", tmp_path, _TORCH, PATH="")["kernels_compiled"] == 0


_THREADS = """
import sys, threading
sys.setswitchinterval(1e-5)

def depth():
    # Calls that this thread may still make.
    try:
        return 1 + depth()
    except RecursionError:
        return 1

def make(k):
    def helper(x, i):
        return exp(x) * (i + k)
    def function(x):
        total = x
        for i in range(3):
            total = total + helper(x, i)
        if float(total.sum()) > 0:
            total = total * 2
        return total - 1
    return function

problems = []
for repeat in range(20):
    function = make(repeat)
    compiled = tatara.compile(function)
    inputs = [make_input(40 + 8 * i) for i in range(3)]
    expected = [function(x) for x in inputs]
    barrier = threading.Barrier(8)
    def work():
        try:
            before = depth()
            barrier.wait(60)
            for i in (0, 1, 2, 0):
                assert_close(compiled(inputs[i]), expected[i])
            assert depth() == before, "the recursion limit of a thread changed"
        except BaseException as error:
            problems.append(repr(error))
    before = depth()
    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    assert not problems, problems
    assert depth() == before
"""


# What the program takes from each library. NumPy's form runs without torch, on every version of Python.
_LIBRARIES = {
    "numpy": _NUMPY
    + """
exp, assert_close = np.exp, np.testing.assert_allclose
def make_input(n):
    return np.linspace(0, 1, n)
""",
    "torch": _TORCH
    + """
exp, assert_close, make_input = torch.exp, torch.testing.assert_close, torch.randn
""",
}


@pytest.mark.parametrize("library", list(_LIBRARIES))
def test_eight_threads_compile_the_same_function(tmp_path: Path, library: str) -> None:
    if library == "torch" and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not here")
    without_torch = "assert 'torch' not in sys.modules\n" if library == "numpy" else ""
    counters = _run(_THREADS + without_torch, tmp_path, _LIBRARIES[library])
    assert counters["graphs"] >= 20
    assert counters["kernels_launched"] > 0
    assert not _left_over(tmp_path)


def test_daemon_threads_at_the_end_of_the_interpreter(tmp_path: Path) -> None:
    """They ask for the GIL when it is gone for good: in eager NumPy the process ends as it would without them."""
    script = """
import threading, time
x = np.linspace(-1, 1, 1 << 18)
compiled = tatara.compile(program)
compiled(x)
def again():
    while True: compiled(x)
for _ in range(4): threading.Thread(target=again, daemon=True).start()
time.sleep(0.2)
class Late:
    def __del__(self, sleep=time.sleep):
        sleep(0.2)  # lets the others run in the midst of the end
late = Late()
"""
    for _ in range(2):
        assert _run(script, tmp_path)["kernels_launched"] > 0


_FORK = """
import faulthandler, os, shutil, signal, subprocess, sys, time, traceback
faulthandler.register(signal.SIGUSR1)

def start(work):
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(7)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    return child

def end(child, wanted=7, seconds=100):
    # A child that hangs says where.
    limit = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > limit:
            os.kill(child, signal.SIGUSR1)
            if shutil.which("gdb"):
                subprocess.run(["gdb", "-p", str(child), "-batch", "-ex", "bt 30"], stdout=sys.stderr)
            time.sleep(1)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError("a forked child hangs")
        time.sleep(0.002)
    assert os.waitstatus_to_exitcode(status) == wanted, status

big = torch.linspace(-1, 1, 1 << 20)
compiled = tatara.compile(program)
def work():
    check(compiled)
    torch.testing.assert_close(compiled(big), program(big))
    fresh = tatara.compile(lambda y: torch.exp(y) * 3 - 1)
    torch.testing.assert_close(fresh(big), torch.exp(big) * 3 - 1)
"""


def test_fork_after_compile(tmp_path: Path) -> None:
    """The threads of the host's pool do not live on in the child: it computes with one."""
    script = _FORK + "work()\nend(start(lambda: (torch.set_num_threads(1), work())))\nwork()\n"
    assert _run(script, tmp_path, _TORCH)["kernels_launched"] >= 4


# Nothing here draws random numbers while another thread may fork: torch's generators have a lock that a child may find taken,
# in eager as well.
_FORK_THREADS = """
import threading
torch.set_num_threads(1)
tatara.config.num_threads = 2
line = torch.linspace(-1, 1, 1 << 16)
def old(x):
    return torch.tanh(x * 2) + torch.softmax(x, 0), torch.sort(x * x).values
def make(k):
    return lambda y: torch.sin(y) * k + torch.cumsum(y, 0)
expected = old(line)
run_old = tatara.compile(old)
def check_old():
    torch.testing.assert_close(run_old(line), expected)
def check_new(k):
    y = torch.linspace(0, 1, 50 + k % 7)
    torch.testing.assert_close(tatara.compile(make(k))(y), make(k)(y))
count = {}
def compiles():
    check_new(count["compiles"])
def reads():
    with tatara.kernel_history() as own:
        check_old()
    assert len(own.events) > 0 and len(everything.events) > 0
def sets():
    tatara.config.keep_outputs_mb = 1000 + count["sets"] % 2
    time.sleep(0.0005)
stop, problems = False, []
def again(f):
    try:
        while not stop:
            f()
            count[f.__name__] += 1
    except BaseException as error:
        problems.append(repr(error))
listening = tatara.kernel_history()
everything = listening.__enter__()
check_old()
check_new(1)
works = (check_old, check_old, compiles, reads, sets)
count.update({f.__name__: 0 for f in works})
threads = [threading.Thread(target=again, args=(f,), daemon=True) for f in works]
for thread in threads: thread.start()
"""


def test_fork_while_other_threads_are_at_work(tmp_path: Path) -> None:
    """Whatever they do at that moment (run, compile, write the cache, read the history, set options), the child can do, too."""
    script = (
        _FORK
        + _FORK_THREADS
        + """
def child(k):
    check_old()
    check_new(k)
    seen = len(everything.events)
    reads()
    sets()
    assert len(everything.events) > seen  # this thread began to listen, and goes on
limit = time.monotonic() + 4
forks, children = 0, []
while forks < 10 or (forks < 200 and time.monotonic() < limit):
    forks += 1
    children.append(start(lambda: child(100000 + forks)))
    if len(children) == 3:
        end(children.pop(0))
for left in children: end(left)
stop = True
for thread in threads: thread.join(60)
assert not any(thread.is_alive() for thread in threads) and not problems, problems
assert all(count.values()), count
"""
    )
    assert _run(script, tmp_path, _TORCH)["host_calls"] > 0
    assert not _left_over(tmp_path)


def test_forked_child_ends_as_a_process_of_its_own(tmp_path: Path) -> None:
    """With the interpreter's end rather than os._exit, after work of its own, while the parent's threads are at work."""
    script = (
        _FORK
        + _FORK_THREADS
        + """
for wanted in (5, 6):
    child = os.fork()
    if child == 0:
        check_old()
        check_new(1000)
        sys.exit(wanted)
    end(child, wanted)
child = os.fork()
if child == 0:  # a child's child
    end(start(check_old))
    sys.exit(8)
end(child, 8)
stop = True
for thread in threads: thread.join(60)
assert not problems, problems
"""
    )
    _run(script, tmp_path, _TORCH)


def test_forked_workers(tmp_path: Path) -> None:
    """Pools of processes and DataLoader's workers run what the parent compiled, and compile."""
    script = (
        _FORK
        + """
import multiprocessing
work()
def of_worker(k):
    torch.set_num_threads(1)
    check(compiled)
    return float(tatara.compile(lambda y: torch.cos(y) * k + 1)(torch.linspace(0, 1, 77)).sum())
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, k):
        return compiled(torch.linspace(-1, 1, 100) + k)
expected = [float((torch.cos(torch.linspace(0, 1, 77)) * k + 1).sum()) for k in range(6)]
with multiprocessing.get_context("fork").Pool(2) as pool:
    results = pool.map_async(of_worker, range(6)).get(100)
torch.testing.assert_close(torch.tensor(results), torch.tensor(expected))
loader = torch.utils.data.DataLoader(Rows(), batch_size=3, num_workers=2, multiprocessing_context="fork", timeout=100)
rows = torch.cat(list(loader))
torch.testing.assert_close(rows, torch.stack([program(torch.linspace(-1, 1, 100) + k) for k in range(12)]))
work()
"""
    )
    _run(script, tmp_path, _TORCH)
