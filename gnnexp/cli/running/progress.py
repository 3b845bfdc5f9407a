"""How far a pass over a stream is, on the console: edges, edges per second, time left."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from gnnexp.graph.stream import EdgeChunk, EdgeStream


class _Rate(ProgressColumn):
    """Edges so far, and per second."""

    def render(self, task: Task) -> Text:
        """As text."""
        rate = "–" if task.speed is None else f"{task.speed / 1e6:.1f}"
        return Text(f"{task.completed / 1e6:.1f} M edges, {rate} M/s")


class WatchedStream(EdgeStream):
    """A stream whose passes are shown while they last; on no terminal a line is printed after each.

    Args:
        edges: what is streamed.
        console: where.
        passes: numbers them.
    """

    def __init__(self, edges: EdgeStream, console: Console, passes: Iterator[int] | None = None) -> None:
        self.name, self._edges, self._console = edges.name, edges, console
        self._passes = count(1) if passes is None else passes

    @property
    def num_nodes(self) -> int:
        """V."""
        return self._edges.num_nodes

    @property
    def num_edges(self) -> int:
        """E."""
        return self._edges.num_edges

    def sequential(self) -> EdgeStream:
        """The same edges in the order that is cheapest to pass over."""
        return WatchedStream(self._edges.sequential(), self._console, self._passes)

    def chunks(self) -> Iterator[EdgeChunk]:
        """One pass."""
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), _Rate(), TimeRemainingColumn())
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task(f"pass {next(self._passes)} over {self.name}", total=self.num_edges)
            for chunk in self._edges.chunks():
                yield chunk
                progress.advance(task, int(np.size(chunk.sources)))
