"""docs/status.md: it is what its two files say, and a sweep takes the place of its last one alone."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import table  # noqa: E402


def row(name: str, dtype: str, state: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "state": state, "samples": 3, "seconds": 0.5, "wrong": [], **more}


def line(page: Path, name: str) -> str:
    (found,) = (line for line in page.read_text().splitlines() if line.startswith(f"| {name} |"))
    return found


def test_the_page_is_current() -> None:
    assert table.render(table.PAGE) == table.PAGE.read_text()


def test_the_page_has_all_sweeps() -> None:
    with table.PAGE.with_suffix(".csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 600
    for sweep, _ in table.SWEEPS.values():
        columns = [name for name in rows[0] if name.startswith(f"{sweep} ")]
        assert len(columns) >= 2
        assert {row[name] for row in rows for name in columns} <= {"", *table.STATES}
    assert line(table.PAGE, "add").startswith("| add | native | native | native | native |")


def test_sweeps_fill_their_own_columns(tmp_path: Path) -> None:
    page = tmp_path / "status.md"
    table.write_page(
        page,
        [
            row("mul", "int64", "native"),
            row("mul", "float32", "host", hosts={"aten::mul": 2}),
            row("add", "int64", "native"),
        ],
        ["-j", "2", "--page", str(page)],
        "sweep.py",
    )
    assert line(page, "mul") == "| mul | host | `aten::mul` (run) |"
    assert "`python tools/sweeps/sweep.py -j 2`" in page.read_text()
    grad = [
        row("mul", "float64", "broke", reasons={"break: a | b<c": 1}),
        row("sub", "float64", "wrong", wrong=["values"]),
    ]
    table.write_page(page, grad, [], "gradients.py")
    assert line(page, "mul") == "| mul | host | broke | `aten::mul` (run); break: a \\| b&lt;c (grad) |"
    assert line(page, "add") == "| add | native |  |  |"
    assert line(page, "sub") == "| sub |  | wrong | float64: values (grad) |"
    # A later sweep without the defect, without the break, and without sub.
    table.write_page(page, [row("mul", "float64", "native")], [], "gradients.py")
    assert line(page, "mul") == "| mul | host | native | `aten::mul` (run) |"
    assert "| sub |" not in page.read_text()
    assert "| grad | float64 | 1 | 3 | 0 | 1 |" in page.read_text()
    assert table.render(page) == page.read_text()


def test_a_changed_page_is_not_current(tmp_path: Path) -> None:
    page = tmp_path / "status.md"
    table.write_page(page, [row("add", "int64", "native")], [], "sweep.py")
    data = page.with_suffix(".csv")
    data.write_text(data.read_text().replace("native", "wrong"))
    assert table.render(page) != page.read_text()
