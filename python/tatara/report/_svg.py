"""The pictures of the report, as SVG text."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from tatara.report._history import Event
from tatara.report._layout import layered
from tatara.report._model import CapturedGraph

# Beyond this many nodes a drawing is no longer read: the steps table says the same.
MAX_NODES = 900


def escape(text: object) -> str:
    """For SVG text and attributes."""
    return html.escape(str(text), quote=True)


def hue(index: int) -> str:
    """A hue per kernel; neighbours differ (golden angle)."""
    return f"{(index * 137.508 + 205) % 360:.0f}"


def fill(index: int) -> str:
    """The colour of a kernel's area."""
    return f"hsl({hue(index)} 62% 84%)"


def stroke(index: int) -> str:
    """The colour of a kernel's outline."""
    return f"hsl({hue(index)} 45% 45%)"


def bytes_text(count: float) -> str:
    """1234567 -> '1.23 MB'."""
    if count < 0:
        return "unknown"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError("not reached")


def time_text(microseconds: float) -> str:
    """1234 -> '1.23 ms'."""
    if microseconds < 1000:
        return f"{microseconds:.3g} µs"
    return f"{microseconds / 1e3:.3g} ms" if microseconds < 1e6 else f"{microseconds / 1e6:.3g} s"


def _svg(width: float, height: float, body: Iterable[str], kind: str) -> str:
    return (
        f'<svg class="{kind}" xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.1f} {height:.1f}" role="img">{"".join(body)}</svg>'
    )


def _curve(points: list[tuple[float, float]], half: float) -> str:
    (x0, y0), *rest = points
    path = f"M{x0:.1f} {y0 + half:.1f}"
    px, py = x0, y0 + half
    for i, (x, y) in enumerate(rest):
        at = y - half if i == len(rest) - 1 else y
        middle = (py + at) / 2
        path += f"C{px:.1f} {middle:.1f} {x:.1f} {middle:.1f} {x:.1f} {at:.1f}"
        px, py = x, at
    return path


def _owners(details: dict[str, Any]) -> tuple[dict[int, list[int]], set[int]]:
    """Node -> kernels that compute it; nodes that the host computes."""
    kernels: dict[int, list[int]] = {}
    for number, kernel in enumerate(details.get("kernels", [])):
        for node in kernel["nodes"]:
            kernels.setdefault(node, []).append(number)
    return kernels, {step["node"] for step in details.get("steps", []) if step["kind"] == "host"}


def graph_svg(graph: CapturedGraph) -> str:
    """The lowered graph from top to bottom; a node has the colour of its kernel, host calls are dark."""
    details = graph.details
    nodes = details.get("nodes", [])
    if not nodes or len(nodes) > MAX_NODES:
        return ""
    kernels, host = _owners(details)
    inputs = [i for i in details["inputs"] if any(i["value"] in node["inputs"] for node in nodes)]
    outputs = [value for value in details["outputs"] if value >= 0]
    place = {i["value"]: n for n, i in enumerate(inputs)}
    labels = [i["name"] or f"%{i['value']}" for i in inputs]
    for n, node in enumerate(nodes):
        place.update(dict.fromkeys(node["outputs"], len(inputs) + n))
        labels.append(node["op"])
    labels += [f"output {n}" for n in range(len(outputs))]
    edges = [(place[v], len(inputs) + n) for n, node in enumerate(nodes) for v in dict.fromkeys(node["inputs"])]
    first_output = len(inputs) + len(nodes)
    edges += [(place[value], first_output + n) for n, value in enumerate(outputs)]
    widths = [max(26.0, 6.6 * len(label) + 14) for label in labels]
    layout = layered(widths, edges)
    height = 24.0
    body = [
        f'<path class="edge" data-from="{a}" data-to="{b}" d="{_curve(points, height / 2)}"/>'
        for (a, b), points in zip(edges, layout.paths, strict=True)
    ]
    for n, label in enumerate(labels):
        x, y = layout.x[n] - widths[n] / 2, layout.y[n] - height / 2
        style, radius, css, key = "", 4.0, "node", ""
        if n < len(inputs):
            css, radius = "node input", height / 2
            title = f"input {inputs[n]['name']}\n{inputs[n]['type']}\n{bytes_text(inputs[n]['bytes'])}"
        elif n >= first_output:
            css, radius, title = "node output", height / 2, label
        else:
            node = nodes[n - len(inputs)]
            title = node["text"]
            if node["file"]:
                title += f"\n{node['file']}:{node['line']} in {node['function']}"
            if node["id"] in host:
                css, key = "node host", "host"
                title += "\nrun by the host"
            elif node["id"] in kernels:
                own = kernels[node["id"]]
                style, key = f' style="fill:{fill(own[0])};stroke:{stroke(own[0])}"', f"k{own[0]}"
                title += "\nin kernel " + ", ".join(f"{k} {details['kernels'][k]['name']}" for k in own)
                if len(own) > 1:
                    title += " (computed again where it is used)"
            else:
                css = "node view"
                title += "\nno work of its own: a view, or folded into its users' addresses"
        body.append(
            f'<g class="{css}" data-node="{n}" data-key="{key}"><title>{escape(title)}</title>'
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{widths[n]:.1f}" height="{height}" rx="{radius:.0f}"{style}/>'
            f'<text x="{layout.x[n]:.1f}" y="{layout.y[n] + 4:.1f}">{escape(label)}</text></g>'
        )
    margin = 12
    shifted = f'<g transform="translate({margin} {margin})">{"".join(body)}</g>'
    return _svg(layout.width + 2 * margin, layout.height + 2 * margin, [shifted], "graph")


def _axis(left: float, right: float, y: float, total: float) -> list[str]:
    body = [f'<line class="axis" x1="{left}" y1="{y}" x2="{right}" y2="{y}"/>']
    for n in range(5):
        x = left + (right - left) * n / 4
        anchor = "start" if n == 0 else "end" if n == 4 else "middle"
        body.append(f'<line class="axis" x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{y + 4}"/>')
        body.append(
            f'<text class="tick" x="{x:.1f}" y="{y + 16}" text-anchor="{anchor}">{time_text(total * n / 4)}</text>'
        )
    return body


def stages_svg(graph: CapturedGraph, width: float = 1060) -> str:
    """Stages of the compilation one after another; below, the kernels' own compilations by thread."""
    stages = [("capture", graph.capture_seconds), *graph.stages]
    total = sum(seconds for _, seconds in stages)
    if total <= 0:
        return ""
    left, right = 0.0, width
    scale = (right - left) / total
    body = []
    at = 0.0
    code_start = 0.0
    for n, (name, seconds) in enumerate(stages):
        if name == "code":
            code_start = at
        x, w = left + at * scale, max(seconds * scale, 0.5)
        body.append(
            f'<g class="stage s{n % 6}"><title>{escape(name)}: {time_text(seconds * 1e6)}</title>'
            f'<rect x="{x:.1f}" y="0" width="{w:.1f}" height="30" rx="2"/>'
        )
        label = f"{name} {time_text(seconds * 1e6)}"
        if w > 6.6 * len(label) + 8:
            body.append(f'<text x="{x + w / 2:.1f}" y="19">{escape(label)}</text>')
        body.append("</g>")
        at += seconds
    y = 36.0
    own = [event for event in graph.compiles if event.microseconds > 0]
    if own:
        zero = min(event.start for event in own)
        lanes = sorted({event.thread for event in own})
        for event in own:
            lane = lanes.index(event.thread)
            x = left + (code_start + event.start - zero) * scale
            w = max(event.microseconds / 1e6 * scale, 0.8)
            body.append(
                f'<g data-key="k{event.kernel}"><title>kernel {event.kernel} {escape(event.name)}: {event.cache}, '
                f"{time_text(event.microseconds)}</title>"
                f'<rect x="{x:.1f}" y="{y + lane * 14:.1f}" width="{w:.1f}" height="12" rx="1" '
                f'style="fill:{fill(event.kernel)};stroke:{stroke(event.kernel)}"/></g>'
            )
        y += len(lanes) * 14 + 2
    body += _axis(left, right, y + 2, total * 1e6)
    return _svg(width, y + 24, body, "timeline")


def run_svg(run: list[Event], width: float = 1060) -> str:
    """One run: kernels and host calls one after another, in proportion to their time."""
    if not run:
        return ""
    zero = min(event.start for event in run)
    total = max(event.start + event.microseconds / 1e6 for event in run) - zero
    scale = width / max(total, 1e-9)
    body = []
    for event in run:
        x, w = (event.start - zero) * scale, max(event.microseconds / 1e6 * scale, 0.6)
        host = event.kind == "host_call"
        style = "" if host else f' style="fill:{fill(event.kernel)};stroke:{stroke(event.kernel)}"'
        key = f"s{event.step}" if host else f"k{event.kernel}"
        label = event.name.removeprefix("aten::")
        body.append(
            f'<g class="{"host" if host else "kernel"}" data-key="{key}">'
            f"<title>step {event.step}: {escape(event.name)}, {time_text(event.microseconds)}</title>"
            f'<rect x="{x:.1f}" y="{34 if host else 0}" width="{w:.1f}" height="30" rx="1"{style}/>'
        )
        if w > 6.6 * len(label) + 6:
            body.append(f'<text x="{x + w / 2:.1f}" y="{53 if host else 19}">{escape(label)}</text>')
        body.append("</g>")
    body += _axis(0, width, 70, total * 1e6)
    return _svg(width, 92, body, "timeline")


def arena_svg(graph: CapturedGraph, width: float = 1060, height: float = 260) -> str:
    """The arena over the steps of a run: a box per buffer, from its first to its last use, at its place."""
    details = graph.details
    steps, buffers = details.get("steps", []), details.get("buffers", [])
    size = details.get("arena_bytes", 0)
    lives: dict[int, tuple[int, int]] = {}
    for n, step in enumerate(steps):
        for buffer in step["buffers"]:
            if buffer >= 0 and buffers[buffer]["home"] == "arena":
                lives[buffer] = (lives.get(buffer, (n, n))[0], n)
    if not lives or size <= 0 or any(buffers[b]["offset"] < 0 or buffers[b]["bytes"] < 0 for b in lives):
        return ""
    left, top = 70.0, 8.0
    across, down = (width - left - 4) / len(steps), (height - 34) / size
    body = []
    for share in (0, 0.5, 1):
        y = top + share * size * down
        body.append(f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{width}" y2="{y:.1f}"/>')
        body.append(
            f'<text class="tick" x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{bytes_text(share * size)}</text>'
        )
    for buffer, (first, last) in sorted(lives.items()):
        info = buffers[buffer]
        step = steps[first]
        style, css = "", "buffer host"
        if step["kind"] == "launch":
            style, css = f' style="fill:{fill(step["kernel"])};stroke:{stroke(step["kernel"])}"', "buffer"
        x, y = left + first * across, top + info["offset"] * down
        w, h = max((last - first + 1) * across - 1, 1), max(info["bytes"] * down, 1.5)
        body.append(
            f'<g class="{css}"><title>buffer {buffer}: {escape(info["type"])}, {bytes_text(info["bytes"])} at '
            f"{info['offset']}, steps {first} to {last}</title>"
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}"{style}/>'
        )
        if h > 14 and w > 60:
            body.append(f'<text x="{x + w / 2:.1f}" y="{y + h / 2 + 4:.1f}">{bytes_text(info["bytes"])}</text>')
        body.append("</g>")
    bottom = top + size * down
    for n in range(0, len(steps), max(1, len(steps) // 12)):
        x = left + (n + 0.5) * across
        body.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">step {n}</text>')
    return _svg(width, height, body, "arena")
