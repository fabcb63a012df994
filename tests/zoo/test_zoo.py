"""The sweep of architectures: three classes as it runs them, and that it finds what is wrong, dies or hangs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import tatara  # noqa: E402
from architectures import page, population, rows, workers  # noqa: E402

pytestmark = pytest.mark.models

OPTIONS = rows.Options(seconds=0.0)
NAMES = ["BertForTokenClassification", "ResNetForImageClassification", "T5ForConditionalGeneration"]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """With two, the kernel of torch 2.13 for the weights' gradient of a small strided convolution writes behind its memory."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def classes() -> dict[str, population.Architecture]:
    return population.classes()


def test_the_mappings_name_many_classes(classes: dict[str, population.Architecture]) -> None:
    tasks = {task for architecture in classes.values() for task in architecture.tasks}
    assert len(classes) >= 250
    assert {"", "causal_lm", "object_detection", "ctc", "image_text_to_text", "time_series_prediction"} <= tasks


@pytest.mark.parametrize("mode", rows.MODES)
@pytest.mark.parametrize("name", NAMES)
def test_classes_are_right(classes: dict[str, population.Architecture], name: str, mode: str) -> None:
    row = rows.measure(classes[name], mode, OPTIONS)
    assert row["state"] == "right", row.get("why") or row["wrong"]
    assert row["ratio"] > 0
    assert row["padded"] == (name != "ResNetForImageClassification")


@pytest.mark.parametrize("mode, word", [(rows.INFERENCE, "logits"), (rows.TRAINING, "gradient")])
def test_a_wrong_result_is_found(classes: dict[str, population.Architecture], mode: str, word: str) -> None:
    def planted(model: Any) -> Any:
        compiled = tatara.compile(model)

        def call(**inputs: Any) -> Any:
            result = compiled(**inputs)
            if mode == rows.INFERENCE:
                result["logits"] = result["logits"] * 1.001
            else:
                result["loss"] = result["loss"].detach() + (result["loss"] - result["loss"].detach()) * 1.01
            return result

        return call

    row = rows.measure(classes["BertForTokenClassification"], mode, OPTIONS, planted)
    assert row["state"] == "wrong"
    assert any(word in problem for problem in row["wrong"])
    assert page.finding(row).startswith("WRONG")


def test_another_type_of_output_is_found(classes: dict[str, population.Architecture]) -> None:
    row = rows.measure(
        classes["BertForTokenClassification"],
        rows.INFERENCE,
        OPTIONS,
        lambda model: lambda **inputs: dict(model(**inputs)),
    )
    assert row["state"] == "wrong"


def test_a_class_that_cannot_be_built_says_why() -> None:
    row = rows.measure(population.Architecture("NoSuchModel", "bert", ("",)), rows.INFERENCE, OPTIONS)
    assert row["state"] == "skipped"
    assert "NoSuchModel" in row["why"]


def test_crashes_and_hangs_are_rows(tmp_path: Path) -> None:
    def measure(architecture: population.Architecture, mode: str, stage: Any) -> dict[str, Any]:
        stage(mode)
        if architecture.name == "Dies":
            os._exit(3)
        if architecture.name == "Hangs":
            time.sleep(60)
        return {"class": architecture.name, "mode": mode, "state": "skipped", "why": "a test", "seconds": 0.0}

    tasks = [(population.Architecture(name, "bert", ("",)), "compiled") for name in ("Dies", "Hangs", "Good")]
    found = {row["class"]: row for row in workers.run_tasks(tasks, measure, 1, 2.0)}
    assert {name: row["state"] for name, row in found.items()} == {
        "Dies": "crashed",
        "Hangs": "timeout",
        "Good": "skipped",
    }
    assert "exit code 3" in found["Dies"]["why"]
    assert page.print_summary(list(found.values())) == 2
    page.write_page(tmp_path / "zoo.md", list(found.values()), "a test", "a machine")
    assert "took more than 2 s" in (tmp_path / "zoo.md").read_text()
