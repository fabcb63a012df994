"""A disk cache that somebody else may have written to: not used, one warning that says what to do, right results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("tatara")

_SCRIPT = """
import json, sys, numpy as np, tatara
def program(x):
    return np.tanh(x * 2) + np.exp(x) / np.exp(x).sum()
def second(x):
    return np.cos(x) * 3
x = np.linspace(-1, 1, 100)
for function in (program, second):
    for _ in range(2):
        np.testing.assert_allclose(tatara.compile(function)(x), function(x))
print(json.dumps({**tatara.stats(), "llvm": any("llvmlite" in line for line in open("/proc/self/maps"))}))
"""


class _Run:
    def __init__(self, home: Path, cache: Path, *flags: str) -> None:
        self.done = subprocess.run(
            [sys.executable, *flags, "-c", _SCRIPT],
            env={**os.environ, "TATARA_CACHE_DIR": str(cache), "XDG_STATE_HOME": str(home / "state")},
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert self.done.returncode == 0, self.done.stdout + self.done.stderr
        self.counters = json.loads(self.done.stdout.splitlines()[-1])

    @property
    def from_disk(self) -> bool:
        return bool(self.counters["cache_hits"] > 0 and not self.counters["llvm"])

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.done.stderr.splitlines() if "RuntimeWarning" in line]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a cache that has the script's kernels."""
    home = tmp_path_factory.mktemp("home")
    first = _Run(home, home / "cache")
    assert first.counters["kernels_compiled"] == 2
    assert not first.warnings
    assert _Run(home, home / "cache").from_disk
    return home


def _open(home: Path) -> None:
    (home / "cache").chmod(0o777)


def _open_above(home: Path) -> None:
    home.chmod(0o777)


def _stranger(home: Path) -> None:
    os.chown(home / "cache", 65534, 65534)


def _link(home: Path) -> None:
    (home / "cache").rename(home / "elsewhere")
    (home / "cache").symlink_to(home / "elsewhere")


def _open_key(home: Path) -> None:
    (home / "state" / "tatara" / "cache-key").chmod(0o644)


_ATTACKS: list[tuple[Callable[[Path], None], str]] = [
    (_open, "chmod go-w"),
    (_open_above, "chmod go-w"),
    (_stranger, "belongs to user 65534"),
    (_link, "symbolic link"),
    (_open_key, "remove that file"),
]


@pytest.mark.parametrize(("attack", "says"), _ATTACKS, ids=[attack.__name__[1:] for attack, _ in _ATTACKS])
def test_not_used_and_said_once(tmp_path: Path, filled: Path, attack: Callable[[Path], None], says: str) -> None:
    if attack is _stranger and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    home = tmp_path / "home"
    shutil.copytree(filled, home)
    attack(home)
    before = sorted(path.name for path in (home / "cache").iterdir())
    run = _Run(home, home / "cache")
    assert not run.from_disk
    assert run.counters["kernels_compiled"] == 2
    assert len(run.warnings) == 1
    assert str(home / "cache") in run.warnings[0]
    assert says in run.warnings[0]
    assert "TATARA_CACHE_DIR" in run.warnings[0]
    assert sorted(path.name for path in (home / "cache").iterdir()) == before
    # A filter that makes errors of warnings does not make the program fail.
    assert "the disk cache" in _Run(home, home / "cache", "-W", "error").done.stderr
    told = subprocess.run(
        [sys.executable, "-m", "tatara", "cache"],
        env={**os.environ, "TATARA_CACHE_DIR": str(home / "cache"), "XDG_STATE_HOME": str(home / "state")},
        capture_output=True, text=True, timeout=240, check=True,
    ).stdout  # fmt: skip
    assert "not used: " in told
    assert says in told


def test_another_users_entries(tmp_path: Path, filled: Path) -> None:
    """The whole cache of somebody else, with his key in it or beside it, in a directory of one's own."""
    home = tmp_path / "home"
    shutil.copytree(filled / "cache", home / "cache")
    (home / "cache").chmod(0o700)
    shutil.copy(filled / "state" / "tatara" / "cache-key", home / "cache" / "cache-key")
    run = _Run(home, home / "cache")
    assert not run.from_disk
    assert run.counters["kernels_compiled"] == 2
    assert not run.warnings
    assert _Run(home, home / "cache").from_disk


def test_entries_under_other_names(tmp_path: Path, filled: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(filled, home)
    entries = sorted((home / "cache").glob("*.tatara"))
    contents = [path.read_bytes() for path in entries]
    for path, content in zip(entries, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)
    run = _Run(home, home / "cache")
    assert run.counters["kernels_compiled"] == 2
    assert not run.from_disk
