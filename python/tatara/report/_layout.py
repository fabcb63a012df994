"""Layered layout of a directed acyclic graph: layers by longest path, crossings reduced by medians, straight long edges."""

from __future__ import annotations

import dataclasses
import itertools


@dataclasses.dataclass
class Layout:
    """Centres of the nodes, and per edge the points that its line goes through."""

    x: list[float]
    y: list[float]
    width: float
    height: float
    paths: list[list[tuple[float, float]]]


def _layers(count: int, edges: list[tuple[int, int]]) -> list[int]:
    """Longest path from the sources. Sources, and chains that start at one (a weight and its transpose), then move down to
    just above their first user. Edges go from lower to higher numbers.
    """
    layer = [0] * count
    before: list[list[int]] = [[] for _ in range(count)]
    after: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        before[b].append(a)
        after[a].append(b)
    light = [False] * count
    for node in range(count):
        layer[node] = max((layer[a] + 1 for a in before[node]), default=0)
        light[node] = len(before[node]) <= 1 and all(light[a] for a in before[node])
    for node in reversed(range(count)):
        if light[node] and after[node]:
            layer[node] = min(layer[b] for b in after[node]) - 1
    return layer


def _order(rows: list[list[int]], up: list[list[int]], down: list[list[int]], sweeps: int) -> None:
    """Sorts each row by the mean place of its neighbours in the row before it, forth and back."""
    place: dict[int, int] = {}
    for row in rows:
        place.update({node: i for i, node in enumerate(row)})
    for sweep in range(sweeps):
        neighbours = up if sweep % 2 == 0 else down
        for row in rows if sweep % 2 == 0 else reversed(rows):
            keys = {
                node: sum(place[n] for n in neighbours[node]) / len(neighbours[node])
                if neighbours[node]
                else float(place[node])
                for node in row
            }
            row.sort(key=lambda node: keys[node])
            place.update({node: i for i, node in enumerate(row)})


def _spread(row: list[int], want: list[float], width: list[float], gap: float) -> list[float]:
    """Places near `want` in the order of the row and without overlap: blocks that would overlap share their mean."""
    blocks: list[tuple[list[int], float]] = []  # positions in the row, left end of the first
    for i in range(len(row)):
        members, left = [i], want[i] - width[row[i]] / 2
        while blocks:
            before, before_left = blocks[-1]
            end = before_left + sum(width[row[k]] + gap for k in before)
            if left >= end:
                break
            blocks.pop()
            offset = end - before_left
            merged = before + members
            left = (before_left * len(before) + (left - offset) * len(members)) / len(merged)
            members = merged
        blocks.append((members, left))
    result = [0.0] * len(row)
    for members, left in blocks:
        for k in members:
            result[k] = left + width[row[k]] / 2
            left += width[row[k]] + gap
    return result


def layered(
    widths: list[float],
    edges: list[tuple[int, int]],
    *,
    height: float = 24.0,
    gap_x: float = 14.0,
    gap_y: float = 34.0,
    sweeps: int = 12,
) -> Layout:
    """Lays out nodes 0..n-1 from top to bottom. An edge (a, b) needs a < b."""
    count = len(widths)
    layer = _layers(count, edges)
    width = list(widths)
    level = list(layer)
    chains: list[list[int]] = []
    links: list[tuple[int, int]] = []
    for a, b in edges:
        chain = [a]
        for between in range(layer[a] + 1, layer[b]):
            # A place to pass by in every layer between.
            chain.append(len(width))
            width.append(2.0)
            level.append(between)
        chain.append(b)
        chains.append(chain)
        links += list(itertools.pairwise(chain))
    up: list[list[int]] = [[] for _ in width]
    down: list[list[int]] = [[] for _ in width]
    for a, b in links:
        down[a].append(b)
        up[b].append(a)
    rows: list[list[int]] = [[] for _ in range(max(level, default=-1) + 1)]
    for node, depth in enumerate(level):
        rows[depth].append(node)
    _order(rows, up, down, sweeps)
    x = [0.0] * len(width)
    for row in rows:
        left = 0.0
        for node in row:
            x[node] = left + width[node] / 2
            left += width[node] + gap_x
    for sweep in range(sweeps):
        neighbours = up if sweep % 2 == 0 else down
        for row in rows if sweep % 2 == 0 else reversed(rows):
            want = [
                sum(x[n] for n in neighbours[node]) / len(neighbours[node]) if neighbours[node] else x[node]
                for node in row
            ]
            for node, at in zip(row, _spread(row, want, width, gap_x), strict=True):
                x[node] = at
    left = min((x[n] - width[n] / 2 for n in range(len(width))), default=0.0)
    x = [at - left for at in x]
    y = [depth * (height + gap_y) + height / 2 for depth in level]
    return Layout(
        x=x[:count],
        y=y[:count],
        width=max((x[n] + width[n] / 2 for n in range(len(width))), default=0.0),
        height=len(rows) * (height + gap_y) - gap_y if rows else 0.0,
        paths=[[(x[n], y[n]) for n in chain] for chain in chains],
    )
