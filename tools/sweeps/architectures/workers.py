"""A process for each row, so that a crash or a hang is one row of the table."""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from architectures.population import Architecture, loaded

Task = tuple[Architecture, str]
Measure = Callable[[Architecture, str, Callable[[str], None]], dict[str, Any]]


def _child(task: Task, measure: Measure, pipe: Any, folder: str, threads: int) -> None:
    import torch

    import tatara

    # What C code and libraries print belongs to the row's file, which is shown when the process dies.
    handle = os.open(f"{folder}/stderr", os.O_WRONLY | os.O_CREAT)
    os.dup2(handle, 2)
    os.dup2(handle, 1)
    # The variables of the environment were read when this process's parent started.
    tatara.config.cache_dir = folder
    torch.set_num_threads(threads)
    row = measure(*task, lambda text: pipe.send(text))
    pipe.send(row)
    pipe.close()


class _Worker:
    """The process of one row. It is a fork of this one, which has the libraries loaded and no CUDA."""

    def __init__(self, task: Task, measure: Measure, threads: int) -> None:
        self.task = task
        self._folder = tempfile.TemporaryDirectory()
        context = mp.get_context("fork")
        self._pipe, end = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_child, args=(task, measure, end, self._folder.name, threads), daemon=True
        )
        self._process.start()
        end.close()
        self._since = time.monotonic()
        self._stage = "starting"

    def poll(self, limit: float) -> dict[str, Any] | None:
        """The row, when there is one."""
        row: dict[str, Any] | None = None
        late = time.monotonic() - self._since > limit
        alive = self._process.is_alive()
        try:
            while row is None and self._pipe.poll(0.02):
                message = self._pipe.recv()
                if isinstance(message, str):
                    self._stage = message
                else:
                    row = message
        except EOFError:
            alive = False
        if row is None and alive and not late:
            return None
        if row is None:
            row = self._ended(limit, late and alive)
        self._process.join(1.0)
        self._process.kill()
        self._process.join()
        self._folder.cleanup()
        return row

    def _ended(self, limit: float, late: bool) -> dict[str, Any]:
        self._process.join(0 if late else 5)
        architecture, mode = self.task
        said = Path(self._folder.name, "stderr")
        tail = said.read_text(errors="replace").strip()[-300:] if said.exists() else ""
        how = f"took more than {limit:.0f} s" if late else f"died with exit code {self._process.exitcode}"
        return {
            "class": architecture.name,
            "mode": mode,
            "kind": architecture.kind,
            "tasks": list(architecture.tasks),
            # A library that hangs or dies before the compiler is asked is no finding of ours.
            "state": "skipped" if self._stage in EAGER_STAGES else "timeout" if late else "crashed",
            "why": f"{self._stage}: {how}{': ' if tail and not late else ''}{'' if late else tail}",
            "seconds": time.monotonic() - self._since,
        }


EAGER_STAGES = ("building", "eager", "eager training")


def run_tasks(
    tasks: list[Task], measure: Measure, jobs: int, limit: float, threads: int = 1
) -> Iterator[dict[str, Any]]:
    """Rows as they come."""
    pending = list(reversed(tasks))
    active: list[_Worker] = []
    while pending or active:
        while pending and len(active) < jobs:
            # Loaded here, a library's modules are there in all later children.
            with contextlib.suppress(Exception):
                loaded(pending[-1][0])
            active.append(_Worker(pending.pop(), measure, threads))
        for worker in list(active):
            row = worker.poll(limit)
            if row is not None:
                active.remove(worker)
                yield row
