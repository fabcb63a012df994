"""What the examples share: `show` compares a compiled function with the plain one, times both in turns and draws the result."""

from __future__ import annotations

import argparse
import copy
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import tatara

TURNS = 7  # of each contender
MOST_SECONDS = 4.0  # of all turns together


def _parts(value: Any) -> list[Any]:
    """The arrays, tensors and numbers of a result."""
    if isinstance(value, (tuple, list)):
        return [part for item in value for part in _parts(item)]
    return [value.detach().numpy() if hasattr(value, "detach") else value]


def _check(found: Any, expected: Any, tolerance: float) -> None:
    import numpy as np

    ours, theirs = _parts(found), _parts(expected)
    assert len(ours) == len(theirs), "another number of results"
    for one, other in zip(ours, theirs, strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.dtype == other.dtype and one.shape == other.shape, (
            f"{one.dtype}{one.shape}: {other.dtype}{other.shape}"
        )
        np.testing.assert_allclose(
            one, other, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(other).max(initial=0)))
        )


def _timed(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[float, Any]:
    given = copy.deepcopy(arguments)  # a program may write to its arguments
    start = time.perf_counter()
    result = function(*given)
    return time.perf_counter() - start, result


def _make_small(picture: str) -> None:
    """A palette of 64 colours takes a third of the place."""
    from PIL import Image  # matplotlib brings it

    with Image.open(picture) as image:
        image.convert("RGB").quantize(64).save(picture, optimize=True)


def show(
    compiled: Callable[..., Any],
    plain: Callable[..., Any],
    data: Callable[[bool], Sequence[Any]],
    draw: Callable[..., None],
    tolerance: float = 1e-9,
) -> None:
    """Runs an example by its command line: `data(small)` gives the arguments, `draw(pyplot, result)` the figure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", help="the picture (.svg or .png)")
    parser.add_argument("--small", action="store_true", help="a small size, each contender once")
    options = parser.parse_args()

    arguments = data(options.small)
    cold, result = _timed(compiled, arguments)
    first, expected = _timed(plain, arguments)
    _check(result, expected, tolerance)
    stats = tatara.stats()
    second, again = _timed(compiled, arguments)
    _check(again, expected, tolerance)
    plain_times, compiled_times = [first], [second]
    turns = 0 if options.small else max(2, min(TURNS, int(MOST_SECONDS / (first + second))))
    for _ in range(turns):
        plain_times.append(_timed(plain, arguments)[0])
        compiled_times.append(_timed(compiled, arguments)[0])
    before, after = statistics.median(plain_times), statistics.median(compiled_times)
    print(
        f"plain {before * 1e3:.2f} ms, compiled {after * 1e3:.2f} ms: {before / after:.2f} times; first call {cold:.2f} s"
    )
    kept = ("graphs", "breaks", "native_loops", "native_loops_taken_back", "fallbacks")
    print(", ".join(f"{name} {stats[name]}" for name in kept))
    if options.out:
        os.environ.setdefault("MPLBACKEND", "agg")
        os.environ.setdefault("SOURCE_DATE_EPOCH", "0")  # the same picture in each run
        from matplotlib import pyplot

        pyplot.rcParams.update({"figure.dpi": 80, "savefig.bbox": "tight", "svg.hashsalt": "tatara", "font.size": 9})
        draw(pyplot, result)
        pyplot.savefig(options.out)
        if options.out.endswith(".png"):
            _make_small(options.out)
        print(f"{options.out}: {pathlib.Path(options.out).stat().st_size // 1024} kB")
