"""The Python programs of the pages run as they stand. (That of docs/architecture.md: test_docs_stages.py.)"""

from __future__ import annotations

import os
import pathlib
import re

import pytest

import forked

pytest.importorskip("torch")

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What pieces of a page take for granted.
BEFORE = """
import tatara, torch

def fn(x):
    return torch.nn.functional.gelu(x).sum(1)

x = torch.randn(8, 16)
torch.set_grad_enabled(False)
"""


def pages() -> list[str]:
    found = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "internals").glob("*.md"), *ROOT.glob("*.md")]
    with_programs = [path.relative_to(ROOT).as_posix() for path in found if "```py" in path.read_text()]
    return sorted(set(with_programs) - {"docs/architecture.md"})


def test_the_pages_with_programs_are_found() -> None:
    assert {"README.md", "docs/tutorial.md", "docs/debugging.md"} <= set(pages())


@pytest.mark.parametrize("page", pages())
def test_the_programs_run(page: str, tmp_path: pathlib.Path) -> None:
    pieces = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    assert pieces
    program = BEFORE
    for piece in pieces:
        # The page shows one decorator without a function.
        piece = re.sub(r"^(@tatara\.disable +#.*)$", r"\1\ndef left_out(x): return x", piece, flags=re.MULTILINE)
        program += f"\nexec(compile({piece!r}, {page!r}, 'exec'))\n"
    (tmp_path / "program.py").write_text(program)
    env = {**os.environ, "TATARA_CACHE": "0"}
    done = forked.run(["program.py"], env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
