"""explain: what the report says, and the page that it writes."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("jinja2")
import tatara  # noqa: E402
from tatara.report._html import render  # noqa: E402
from tatara.report._layout import layered  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh", "no_grad", "own_cache", "host_products")


X, W = torch.randn(48, 32), torch.randn(32, 40)


def program(x: Any, w: Any) -> Any:
    y = torch.nn.functional.gelu(x @ w + 0.3125)
    if y.sum().item() > 1e9:
        y = y - 1
    z = torch.softmax(y, -1)
    return (z * y).t().cumsum(0)


BRANCH = program.__code__.co_firstlineno + 2


def test_everything_is_in_the_report() -> None:
    report = tatara.explain(program)(X, W)
    torch.testing.assert_close(report.result, program(X, W))
    assert report.name == "program"
    assert len(report.graphs) == 2
    assert "gelu" in str(report.graphs[0])
    assert "softmax" in str(report.graphs[1])
    assert report.graphs[0].end == "break"
    assert report.graphs[1].end == "return"
    assert not any(graph.fallback for graph in report.graphs)
    (item,) = report.breaks
    assert (item.line, item.file, item.function) == (BRANCH, __file__, "program")
    assert any(number == BRANCH and "if y.sum()" in text for number, text in item.source())
    assert f"test_report.py:{BRANCH} in program" in str(item)
    assert "without dimensions" in item.hint
    assert tatara.Break("something new", "", 0, "").hint == ""
    (host,) = report.host_calls
    assert (host.operator, host.graph, host.line) == ("aten::mm", 0, program.__code__.co_firstlineno + 1)
    assert "host's own kernels" in host.reason
    assert host.microseconds > 0
    for kernel in report.kernels:
        assert kernel.operators
        assert kernel.bytes == kernel.bytes_read + kernel.bytes_written > 0
        assert kernel.loops.startswith("kernel ")
        assert "define" in kernel.llvm
        assert kernel.cache == "compiled"
        assert kernel.microseconds > 0
        assert kernel.launches == 1
        assert kernel.nodes
    assert {"add", "gelu"} <= set(report.kernels[0].operators)
    assert report.guards
    assert report.recompiles == []
    assert {"capture", "rewrite", "schedule", "code", "load"} <= set(report.compile_seconds)
    assert all(seconds >= 0 for seconds in report.compile_seconds.values())
    text = str(report)
    for part in ("2 graphs, 1 breaks", "kernel add_gelu", "host call aten::mm", "break: test_report.py", "capture"):
        assert part in text


def test_every_operator_has_its_place() -> None:
    report = tatara.explain(program)(X, W)
    for graph in report.graphs:
        steps = graph.details["steps"]
        placed = {node for kernel in report.kernels if kernel.graph == graph.index for node in kernel.nodes}
        placed |= {step["node"] for step in steps if step["kind"] == "host"}
        work = {node["id"] for node in graph.details["nodes"] if not node["view"]}
        assert work <= placed
        assert [event.step for event in graph.run] == list(range(len(steps)))


def test_bytes_are_those_of_the_tensors() -> None:
    report = tatara.explain(lambda x: (x + 1).exp() * 2)(torch.randn(1000))
    (kernel,) = report.kernels
    assert (kernel.bytes_read, kernel.bytes_written) == (4000, 4000)


def test_measuring_leaves_no_trace() -> None:
    def program(x: Any, count: Any) -> Any:
        count.add_(1)
        return torch.nn.functional.dropout(x, 0.5) + torch.rand(3)

    x, count = torch.ones(3), torch.zeros(3)
    torch.manual_seed(5)
    report = tatara.explain(program)(x, count)
    after = torch.rand(2)
    torch.testing.assert_close(count, torch.ones(3))
    torch.manual_seed(5)
    torch.testing.assert_close(report.result, program(torch.ones(3), torch.zeros(3)))
    torch.testing.assert_close(after, torch.rand(2))


def test_measuring_leaves_what_the_graph_holds() -> None:
    count, means = torch.tensor(0), torch.zeros(2, 2000)

    def running(x: Any) -> Any:
        count.add_(1)
        means[0].lerp_(x, 0.5)
        print("between graphs")
        means.t().mul_(2)
        return x + count

    x = torch.ones(2000)
    for calls in range(1, 4):
        report = tatara.explain(running)(x)
        torch.testing.assert_close(report.result, x + calls)
        assert (int(count), count._version, means._version) == (calls, calls, 2 * calls)
        assert float(means[0, 0]) == calls  # half of it and a half, twice
    assert len(report.graphs) == 2 and all(graph.run for graph in report.graphs)


def test_recompiles_say_which_guard_failed() -> None:
    compiled = tatara.compile(lambda x, n: x * n, dynamic=False)
    compiled(X, "a" == "a")
    compiled(X, False)
    report = tatara.explain(compiled)(torch.randn(3, 32), False)
    assert len(report.recompiles) == 2
    assert "sizes [48, 32] became [3, 32]" in report.recompiles[1]
    assert "recompile: " in str(report)
    with pytest.raises(tatara.InvalidArgument, match="compiled already"):
        tatara.explain(compiled, fullgraph=True)


def test_modules_methods_and_partials() -> None:
    import functools

    net = torch.nn.Sequential(torch.nn.Linear(32, 8), torch.nn.ReLU()).eval()
    report = tatara.explain(net)(X)
    assert report.name == "Sequential"
    assert len(report.graphs) == 1
    compiled = tatara.compile(net)
    assert len(tatara.explain(compiled)(X).graphs) == 1
    assert len(tatara.explain(functools.partial(program, w=W))(X).graphs) == 2
    assert len(tatara.explain(net.forward)(X).graphs) == 1
    with pytest.raises(tatara.InvalidArgument, match="not callable"):
        tatara.explain(3)


class Page(HTMLParser):
    """Checks nesting and collects what a test looks at."""

    VOID = frozenset({"meta", "br", "path", "rect", "line", "i"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        values = dict(attrs)
        self.tags.append((tag, values))
        self.links += [str(values[key]) for key in ("src", "href") if key in values]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(text: str) -> Page:
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


def test_the_page_is_whole_and_alone(tmp_path: Path) -> None:
    report = tatara.explain(program)(X, W)
    report.save(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = parsed(text)
    assert page.links == []
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text)
    shown = " ".join(page.text)
    for part in (
        "Why did the graph break?",
        "What fused",
        "What did not fuse",
        "compile time",
        "One run",
        "Memory plan",
    ):
        assert part in shown
    assert "if y.sum().item() > 1e9:" in shown
    assert "define" in shown
    nodes = [values for tag, values in page.tags if tag == "g" and "data-node" in values]
    lowered = sum(len(graph.details["nodes"]) for graph in report.graphs)
    inputs = sum(len(graph.details["inputs"]) for graph in report.graphs)
    outputs = sum(len(graph.details["outputs"]) for graph in report.graphs)
    assert len(nodes) == lowered + inputs + outputs
    assert sum("host" in values["class"].split() for values in nodes) == 1


def test_names_are_escaped(tmp_path: Path) -> None:
    report = tatara.explain(program)(X, W)
    report.breaks.append(tatara.Break("<script>alert(1)</script>", "<b>.py", 1, "<i>"))
    text = render({"<u>name</u>": report})
    assert "<script>alert" not in text
    assert "<u>name" not in text
    parsed(text)


def test_pages_of_programs_without_graphs(tmp_path: Path) -> None:
    report = tatara.explain(lambda x: x)(3)
    assert report.graphs == []
    report.save(tmp_path / "empty.html")
    parsed((tmp_path / "empty.html").read_text())
    failing = tatara.explain(lambda x: torch.softmax(x, 0), options={"disable": "decompose"})(X)
    assert "softmax" in failing.graphs[0].fallback
    page = parsed(render({"failing": failing}))
    assert any("runs in eager" in text for text in page.text)
    eager = tatara.explain(lambda x: x + 1, backend="eager")(X)
    parsed(render({"eager": eager}))


def test_layout_keeps_nodes_apart() -> None:
    edges = [(0, 2), (1, 2), (2, 3), (2, 4), (3, 5), (4, 5), (0, 5), (5, 6)]
    widths = [30.0, 50.0, 40.0, 60.0, 20.0, 30.0, 90.0]
    layout = layered(widths, edges)
    for a, b in edges:
        assert layout.y[a] < layout.y[b]
    boxes = list(zip(layout.x, layout.y, widths, strict=True))
    for i, (x, y, w) in enumerate(boxes):
        assert x - w / 2 >= -1e-6
        assert x + w / 2 <= layout.width + 1e-6
        assert y <= layout.height
        for x2, y2, w2 in boxes[i + 1 :]:
            assert y != y2 or abs(x - x2) >= (w + w2) / 2
    for (a, b), path in zip(edges, layout.paths, strict=True):
        assert path[0] == (layout.x[a], layout.y[a])
        assert path[-1] == (layout.x[b], layout.y[b])
    assert layered([], []).height == 0
