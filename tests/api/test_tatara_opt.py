"""tools/tatara-opt: any pass on the text of any graph, with the pipeline's own result."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

F = torch.nn.functional
ROOT = Path(__file__).parents[2]
TOOLS = sorted((ROOT / "build").glob("*/tatara-opt"), key=lambda path: path.stat().st_mtime)


def opt(*arguments: str | Path, text: str | None = None, fails: bool = False) -> str:
    """What it prints; to stderr where it fails."""
    assert TOOLS, "make build makes tatara-opt"
    done = subprocess.run([TOOLS[-1], *arguments], input=text, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


def trained(program: Callable[..., Any], *args: Any) -> Any:
    result = program(*args)
    result.sum().backward()
    return result


X, W = torch.randn(8, 16), torch.randn(16, 16)
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "pointwise": lambda compile: compile(lambda x: torch.relu(x * 2 + 1) - x.exp())(X),
    "softmax": lambda compile: compile(lambda x: F.softmax(x, -1).log())(X),
    "layer_norm": lambda compile: compile(lambda x: F.layer_norm(x, (16,)))(X),
    "attention": lambda compile: compile(lambda x: F.scaled_dot_product_attention(x, x, x))(torch.randn(1, 2, 8, 16)),
    "convolution": lambda compile: compile(lambda x, w: F.conv2d(x, w, padding=1).relu())(
        torch.randn(4, 16, 32, 32), torch.randn(32, 16, 3, 3)
    ),
    "views": lambda compile: compile(lambda x: (x.t()[1:, ::2] + 1, x.view(4, 32)[0]))(X),
    "write": lambda compile: compile(lambda x: x.mul_(2).add_(1))(X.clone()),
    "twice": lambda compile: compile(lambda x: (x.sin() + x.sin()) * (x @ W) + (x @ W) * 1.0)(X),
    "gelu": lambda compile: compile(lambda x: F.gelu(F.linear(x, W, W[0])))(X),
    "loss": lambda compile: trained(
        compile(lambda x, w: F.cross_entropy(torch.tanh(x @ w), torch.arange(8))), X, W.clone().requires_grad_()
    ),
    "normalization": lambda compile: trained(
        compile(lambda x, w: F.batch_norm(x @ w, None, None, training=True).square()), X, W.clone().requires_grad_()
    ),
    "dropout": lambda compile: trained(
        compile(lambda x, w: F.dropout(x @ w, 0.5).sigmoid()), X, W.clone().requires_grad_()
    ),
    "numbers": lambda compile: [compile(lambda x, n: x * n + x[:n].sum())(X, n) for n in (2, 3, 4)][0],
    "sizes": lambda compile: [
        f(torch.randn(n, 16)) for f in [compile(lambda x: x.softmax(0).cumsum(-1))] for n in (4, 6)
    ],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_pass_alone_gives_the_pipelines_text(name: str, tmp_path: Path) -> None:
    with tatara.config.patch(dump=str(tmp_path)):
        PROGRAMS[name](tatara.compile)
    folders = {path.parent for path in tmp_path.rglob("pass-0.graph")}
    assert folders
    for folder in sorted(folders):
        stages = sorted(folder.glob("pass-*.graph"), key=lambda path: int(re.findall(r"\d+", path.name)[0]))
        assert opt(stages[0]) == stages[0].read_text()
        for before, after in zip(stages, stages[1:], strict=False):
            (which,) = re.findall(r"pass-\d+-(\w+)", after.name)
            assert opt("--pass", which, "--verify", before) == after.read_text(), (folder, after.name)
        assert opt("--all", stages[0]) == stages[-1].read_text()


def test_passes_of_all_kinds_change_something(tmp_path: Path) -> None:
    """The programs above are not all too simple for the passes."""
    with tatara.config.patch(dump=str(tmp_path)):
        for program in PROGRAMS.values():
            program(tatara.compile)
    changed = set()
    for folder in {path.parent for path in tmp_path.rglob("pass-0.graph")}:
        stages = sorted(folder.glob("pass-*.graph"), key=lambda path: int(re.findall(r"\d+", path.name)[0]))
        for before, after in zip(stages, stages[1:], strict=False):
            if before.read_text() != after.read_text():
                changed |= set(re.findall(r"pass-\d+-(\w+)", after.name))
    assert changed >= {"canonicalize", "channels_last", "decompose", "cse", "dce"}


GRAPH = """graph(%0: f32[4]) {
  %1: f32[4] = exp(%0)
  %2: f32[4] = exp(%0)
  %3: f32[4] = sin(%0)
  %4: f32[4] = mul(%1, %2)
  return (%4)
}
"""


def test_passes_by_name() -> None:
    assert opt("-", text=GRAPH) == GRAPH
    once = opt("--pass", "cse", "-", text=GRAPH)
    assert once.count("exp") == 1 and "sin" in once
    assert "sin" not in opt("--pass", "cse", "--pass", "dce", "-", text=GRAPH)
    assert opt("--pass", "dce", "-", text=once) == opt("--pass", "cse", "--pass", "dce", "-", text=GRAPH)


def test_list_is_the_pipelines() -> None:
    names = opt("--list").split()
    assert names[:5] == ["canonicalize", "fuse_attention", "attention_gradients", "split_biases", "channels_last"]
    assert {"cse", "dce"} <= set(names)
    assert len(names) == len(set(names))


def test_symbols_keep_what_is_known_of_them() -> None:
    text = "symbol s0 [2, 50] = 6\nfact s0 <= 50\n" + GRAPH.replace("f32[4]", "f32[s0]")
    assert opt("-", text=text) == text
    assert "symbol" not in opt("-", text=GRAPH)


def test_text_says_what_gradients_may_share() -> None:
    text = GRAPH.replace("(%4)", "(%4 may share, %3 must not share, %2 given, %0 alias of input 0)")
    assert opt("-", text=text) == text


@pytest.mark.parametrize(
    ("arguments", "text", "says"),
    [
        (["--pass", "csee", "-"], GRAPH, "no pass 'csee'"),
        (["--pass"], GRAPH, "--pass wants a name"),
        (["--passes", "-"], GRAPH, "usage:"),
        ([], GRAPH, "usage:"),
        (["/no/such/file"], None, "cannot read /no/such/file"),
        (["-"], "graph(%0: f32[4]) {\n  %1: f32[4] = nothing(%0)\n", "line 2: no operator nothing"),
        (["-"], "symbol s0 2 to 5\n" + GRAPH, "line 1: expected a range"),
    ],
)
def test_errors(arguments: list[str], text: str | None, says: str) -> None:
    assert says in opt(*arguments, text=text, fails=True)
