"""The programs of examples/ at a small size: each compares its own results; here is what was compiled, never how fast."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "gallery")

# Graphs, graph breaks, native loops and such that were taken back, and traces that ended in eager.
COUNTS = {
    "audio_spectrogram": (2, 1, 1, 0, 0),
    "cavity_flow": (1, 0, 0, 0, 0),  # so few turns are unrolled
    "gaussian_process": (2, 0, 0, 0, 0),
    "image_deconvolution": (1, 0, 0, 0, 0),
    "ising_model": (1, 1, 0, 0, 0),
    "k_means": (0, 1, 0, 0, 0),
    "kalman_smoother": (1, 0, 0, 0, 0),
    "n_body": (2, 1, 1, 0, 0),
    "pca": (1, 0, 0, 0, 0),
    "physics_informed_network": (2, 0, 0, 0, 0),
    "reaction_diffusion": (0, 1, 1, 0, 0),
    "shallow_water": (1, 0, 0, 0, 0),
}


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_right_and_compiled_as_before(name: str, tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "MPLBACKEND": "agg"}
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--small"]
    if importlib.util.find_spec("matplotlib") is not None and name != "physics_informed_network":  # which it trains for
        command += ["--out", str(tmp_path / "picture.png")]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    counts = dict(part.split(" ") for part in run.stdout.splitlines()[1].split(", "))
    assert tuple(int(n) for n in counts.values()) == COUNTS[name], run.stdout


def test_every_example_is_in_the_gallery() -> None:
    page = (EXAMPLES.parent / "docs" / "gallery.md").read_text()
    for name in NAMES:
        assert f"python examples/{name}.py" in page
        assert (EXAMPLES.parent / "docs" / "gallery" / f"{name}.png").stat().st_size < 60_000
