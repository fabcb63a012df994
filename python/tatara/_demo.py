"""`tatara demo`: two real models, compiled, checked against eager and timed beside it."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from tatara import _core
from tatara._api import compile as tatara_compile
from tatara._api import stats
from tatara._config import config
from tatara._errors import InvalidArgument
from tatara.report._history import kernel_history
from tatara.report._report import Report, report_of

BATCH, LENGTH, LAYERS = 4, 128, 4


@dataclasses.dataclass
class Row:
    """What was measured of one model."""

    name: str
    compile_seconds: float
    eager_ms: float
    tatara_ms: float
    ratio: float
    error: float
    eager_error: float
    graphs: int
    breaks: int
    kernels: int
    host_calls: int
    report: Report

    @property
    def right(self) -> bool:
        """At most twice eager's own error against float64."""
        return self.error <= 2 * self.eager_error


def _models() -> dict[str, Callable[[], Any]]:
    from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

    # Random weights in the default widths: nothing is downloaded.
    return {
        "BERT": lambda: BertModel(BertConfig(num_hidden_layers=LAYERS)),
        "GPT-2": lambda: GPT2LMHeadModel(GPT2Config(n_layer=LAYERS)),
    }


@contextlib.contextmanager
def _empty_cache() -> Iterator[None]:
    # The time to compile is meant cold: neither an earlier run of the demo nor the user's own cache may help.
    with tempfile.TemporaryDirectory(prefix="tatara-demo-") as directory, config.patch(cache_dir=directory):
        yield


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(name: str, make: Callable[[], Any], rounds: int, stage: Callable[[str], None]) -> Row:
    """Compiles, checks and times one model; `stage` hears what is being done."""
    import torch

    torch.manual_seed(0)
    stage("building the model")
    model = make().eval()
    ids = torch.randint(0, 1000, (BATCH, LENGTH))
    with torch.no_grad():
        stage("computing in float64")
        exact = copy.deepcopy(model).double()(input_ids=ids)[0]
        stage("running eager")
        eager = model(input_ids=ids)[0]
        compiled = tatara_compile(model)
        stage("compiling")
        before = stats()
        level = _core.set_explaining(1)
        try:
            with kernel_history() as history:
                compile_seconds = _seconds(functools.partial(compiled, input_ids=ids))
                after = stats()
                result = compiled(input_ids=ids)[0]
                run = stats()
        finally:
            _core.set_explaining(level)
        samples: list[tuple[float, float]] = []
        for i in range(rounds):
            # Side by side, so that whatever else the machine does slows both.
            stage(f"timing, round {i + 1} of {rounds}")
            samples.append(
                (
                    _seconds(functools.partial(model, input_ids=ids)),
                    _seconds(functools.partial(compiled, input_ids=ids)),
                )
            )
        report = report_of(compiled, result, history)
    return Row(
        name=name,
        compile_seconds=compile_seconds,
        eager_ms=statistics.median(e for e, _ in samples) * 1e3,
        tatara_ms=statistics.median(t for _, t in samples) * 1e3,
        ratio=statistics.median(e / t for e, t in samples),
        error=(result.double() - exact).abs().max().item(),
        eager_error=(eager.double() - exact).abs().max().item(),
        graphs=after["graphs"] - before["graphs"],
        breaks=after["breaks"] - before["breaks"],
        kernels=run["kernels_launched"] - after["kernels_launched"],
        host_calls=run["host_calls"] - after["host_calls"],
        report=report,
    )


def _table(rows: list[Row]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(
        title=f"batch {BATCH}, {LENGTH} tokens, {LAYERS} layers, float32, no_grad",
        caption="first call: capture, compilation in an empty cache, one run; times: medians, side by side",
        box=box.SIMPLE_HEAVY,
    )
    table.add_column("")
    for row in rows:
        table.add_column(row.name, justify="right")
    for title, cell in CELLS.items():
        table.add_row(title, *(cell(row) for row in rows))
    return table


def _coloured(good: bool, text: str) -> str:
    return f"[{'green' if good else 'red'}]{text}[/]"


CELLS: dict[str, Callable[[Row], str]] = {
    "compile (first call), s": lambda row: f"{row.compile_seconds:.2f}",
    "eager, ms": lambda row: f"{row.eager_ms:.1f}",
    "Tatara, ms": lambda row: f"{row.tatara_ms:.1f}",
    "eager / Tatara": lambda row: _coloured(row.ratio >= 1, f"{row.ratio:.2f}"),
    "largest error against float64": lambda row: _coloured(row.right, f"{row.error:.1e}"),
    "eager's own": lambda row: f"{row.eager_error:.1e}",
    "graphs": lambda row: str(row.graphs),
    "graph breaks": lambda row: str(row.breaks),
    "kernel launches a run": lambda row: str(row.kernels),
    "host calls a run": lambda row: str(row.host_calls),
}


def run(html: str, rounds: int) -> int:
    """The demo: 0 when both models are right."""
    if rounds < 1:
        raise InvalidArgument(f"--rounds takes a positive number, not {rounds}")
    try:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        models = _models()
    except ImportError as error:
        raise InvalidArgument(f"the demo needs {error.name}: pip install 'tatara[demo]'") from error
    from tatara.report._html import save_reports

    rows = []
    console = Console()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with _empty_cache(), Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        for name, make in models.items():
            task = progress.add_task(name, total=None)

            def stage(text: str, name: str = name, task: Any = task) -> None:
                if not progress.console.is_terminal:
                    progress.console.print(f"{name}: {text}")
                progress.update(task, description=f"{name}: {text}")

            rows.append(measure(name, make, rounds, stage))
            progress.update(task, total=1, completed=1, description=f"{name}: done")
    console.print(_table(rows))
    for row in rows:
        for graph in row.report.graphs:
            if graph.fallback:
                console.print(f"a graph of {row.name} runs in eager: {graph.fallback}", style="red")
        for item in row.report.breaks:
            console.print(f"{row.name}: graph break at {item}", style="yellow")
    save_reports(html, {row.name: row.report for row in rows})
    console.print(f"report: {html}", soft_wrap=True)
    return 0 if all(row.right for row in rows) else 1
