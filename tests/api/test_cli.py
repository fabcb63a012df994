"""The command line, as users call it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import forked

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import torch

def fn(x, y):
    print("called")
    return torch.softmax(x @ y, -1)

def keywords(x):
    return x + 1

class Holder:
    @staticmethod
    def method(x):
        return x * 2

net = torch.nn.Linear(4, 2)

def inputs():
    return torch.ones(3, 4), torch.ones(4, 5)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def tatara(tmp_path: Path, *arguments: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "python"),
        "TATARA_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONWARNINGS": "ignore",
    }
    result = forked.run(["-m", "tatara", *arguments], env=environment, cwd=tmp_path)
    assert not ok or result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    return result


def test_help_names_every_command(tmp_path: Path) -> None:
    text = tatara(tmp_path, "--help").stdout
    for name in ("demo", "env", "explain", "cache"):
        assert name in text
    assert "--input" in tatara(tmp_path, "explain", "--help").stdout
    assert tatara(tmp_path, "--version").stdout.startswith("tatara 0.")


@pytest.mark.parametrize("arguments", [[], ["explan"], ["demo", "--rounds", "many"]])
def test_wrong_commands_say_how(tmp_path: Path, arguments: list[str]) -> None:
    result = tatara(tmp_path, *arguments, ok=False)
    assert result.returncode == 2
    assert "usage: tatara" in result.stderr


def test_env(tmp_path: Path) -> None:
    text = tatara(tmp_path, "env").stdout
    for part in ("tatara 0.", "python 3.", "torch 2.", "llvm: ", "cpu: ", "vectors: ", "threads: ", "opt_level = 1"):
        assert part in text
    assert f"cache: {tmp_path / 'cache'} (0 entries" in text


def test_explain(tmp_path: Path, program: Path) -> None:
    result = tatara(tmp_path, "explain", f"{program}:fn", "--html", "out.html")
    assert result.stdout.count("called") == 1
    for part in (
        "fn: 1 graphs, 1 breaks",
        "call of print",
        "program.py:5 in fn",
        "cpu_product",
        "report: out.html",
    ):
        assert part in result.stdout
    assert (tmp_path / "out.html").read_text().startswith("<!doctype html>")


def test_explain_with_given_inputs(tmp_path: Path, program: Path) -> None:
    assert "keywords: 1 graphs" in tatara(tmp_path, "explain", f"{program}:keywords", "--input", "i64[3]<5").stdout
    assert "1 graphs" in tatara(tmp_path, "explain", f"{program}:Holder.method", "--input", "f32[3, 2]").stdout
    assert "Linear: 1 graphs" in tatara(tmp_path, "explain", f"{program}:net", "--input", "f32[3,4]").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py:fn"], "there is no file nowhere.py"),
        (["program.py"], "FILE:FUNCTION"),
        (["program.py:other"], "has no 'other'; it has: Holder, fn, inputs, keywords"),
        (["program.py:Holder"], "Holder is a class"),
        (["program.py:keywords", "--input", "f33[2]"], "--input takes a dtype"),
        (["program.py:keywords", "--input", "f32(2)"], "--input takes a dtype"),
        (["program.py:fn", "--fullgraph"], "call of print"),
        (["program.py:fn", "--input", "f32[2]"], "missing a required argument: 'y'"),
        (["program.py:fn", "--html", "nowhere/page.html"], "no page can be written to nowhere/page.html"),
        (["broken.py:fn"], "broken.py:1: invalid syntax"),
    ],
)
def test_explain_refuses(tmp_path: Path, program: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "broken.py").write_text("def fn(:\n")
    result = tatara(tmp_path, "explain", *arguments, ok=False)
    assert result.returncode == 2
    assert message in result.stderr


def test_cache(tmp_path: Path, program: Path) -> None:
    assert ": 0 entries, 0 B" in tatara(tmp_path, "cache").stdout
    tatara(tmp_path, "explain", f"{program}:fn")
    assert ": 2 entries" in tatara(tmp_path, "cache").stdout
    assert "cleared: 0 entries" in tatara(tmp_path, "cache", "--clear").stdout
    assert ": 0 entries" in tatara(tmp_path, "cache").stdout


def test_demo_refuses_before_it_works(tmp_path: Path) -> None:
    result = tatara(tmp_path, "demo", "--html", "nowhere/page.html", ok=False)
    assert result.returncode == 2
    assert result.stderr == "tatara: no page can be written to nowhere/page.html\n"


@pytest.mark.models
@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    result = tatara(tmp_path, "demo", "--rounds", "1")
    for part in ("BERT", "GPT-2", "largest error against float64", "kernel launches a run", "report: report.html"):
        assert part in result.stdout
    page = (tmp_path / "report.html").read_text()
    assert "BERT" in page and "One run" in page
    assert tatara(tmp_path, "demo", "--rounds", "0", ok=False).returncode == 2


@pytest.mark.parametrize("arguments", [["env"], ["cache"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_reader_that_has_gone(arguments: list[str], unbuffered: str, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "tatara", *arguments],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered, "TATARA_CACHE_DIR": str(tmp_path)},
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=240,
        check=False,
    )
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 1
