"""The Python programs of README.md and docs/tutorial.md run as they stand."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
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
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
