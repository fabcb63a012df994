"""The checked-in stub of the extension is what the extension says, and the package's public names are documented."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import tatara

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff lays the stub out")
def test_stub_is_up_to_date() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "make_stubs.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_public_names_exist_and_are_documented() -> None:
    for name in tatara.__all__:
        value = getattr(tatara, name)
        assert inspect.getdoc(value), name
    assert sorted(tatara.__all__) == tatara.__all__
