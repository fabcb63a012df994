"""The texts of docs/architecture.md, guards among them, are what the compiler prints for its function."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("torch")

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
CALL = """

if __name__ == "__main__":
    import tatara

    with torch.no_grad():
        report = tatara.explain(centre)(torch.randn(64, 256), torch.randn(256))
    print(report)
    print(*report.guards, sep="\\n")
"""


def blocks(text: str) -> list[list[str]]:
    """The indented blocks of the page after its function, as lines without indentation."""
    found = re.findall(r"(?:^(?: {4}.*)?\n)+", text.split("```")[-1], re.MULTILINE)
    return [textwrap.dedent(block).strip("\n").splitlines() for block in found if block.strip()]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All that a run prints and dumps, line by line without indentation."""
    place = tmp_path_factory.mktemp("stages")
    (function,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    # The page numbers lines as in a file that begins with two imports and a blank line.
    (place / "centre.py").write_text("import torch\n\n" + function + CALL)
    (place / "dump").mkdir()
    env = {**os.environ, "TATARA_DUMP": str(place / "dump"), "TATARA_CACHE": "0", "TATARA_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "centre.py"], cwd=place, env=env, capture_output=True, text=True, check=True)
    texts = [path.read_text() for path in sorted((place / "dump").rglob("*.*"))]
    return "\n".join([done.stdout, *texts]).replace(f"{place}/", "")


def test_the_stages_are_as_printed(printed: str) -> None:
    lines = {line.strip() for line in printed.splitlines()}
    shown = [line.strip() for block in blocks(PAGE.read_text()) for line in block]
    shown = [line for line in shown if line and line != "..."]
    avx512 = "avx512f" in pathlib.Path("/proc/cpuinfo").read_text()
    if not avx512:  # the page shows LLVM's text for AVX-512
        shown = [line for line in shown if not line.startswith("%v")]
    assert len(shown) > 20
    assert [line for line in shown if line not in lines] == []
