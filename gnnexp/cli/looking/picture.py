"""A picture of a graph: how many edges its vertices have, and how many vertices its classes have."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np

from gnnexp.datasets.looking.facts import Facts
from gnnexp.files.disk import write_bytes
from gnnexp.graph.graph import Graph

_MOST_CLASSES = 30


def draw_picture(graph: Graph, facts: Facts, classes: Sequence[str], path: Path) -> None:
    """Write the picture to `path`, whose ending says the format (`.png`, `.svg`, `.pdf`)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    degree = (graph.in_degree + graph.out_degree).numpy()
    values, counts = np.unique(degree, return_counts=True)
    left.loglog(values[values > 0], counts[values > 0], ".")
    left.set(xlabel="edges of a vertex", ylabel="vertices", title=f"{facts.isolated:,} vertices without edges")
    names = list(classes) or [str(number) for number in range(len(facts.classes))]
    shown = sorted(zip(facts.classes, names, strict=True), reverse=True)[:_MOST_CLASSES]
    right.bar([name for _, name in shown], [count for count, _ in shown])
    right.set(ylabel="vertices", title=f"{len(facts.classes)} classes")
    right.tick_params(axis="x", rotation=90)
    content = BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix(".") or "png")
    write_bytes(path, content.getvalue())
