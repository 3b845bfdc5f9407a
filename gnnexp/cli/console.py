"""Output for the user: the prepared data, one line per epoch, the result."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gnnexp.files.regular import parse_json
from gnnexp.measure.merit import is_share
from gnnexp.record.records import EPOCHS_FILE
from gnnexp.record.shape import check_line

if TYPE_CHECKING:  # it imports torch and numba, which commands that only show something do not need
    from gnnexp.graph.graph import Graph

_POLL_S = 0.2
_PIPE_WIDTH = 180  # characters, if there is no terminal: tables must not be folded in a log file


def make_console(*, quiet: bool = False) -> Console:
    """Standard output. Without a terminal it is plain, with the width of `COLUMNS` or a large width.

    Text is printed unchanged. Rich would take `[dgl]` as a style and turn `:100:` into a picture. Much of the text is a
    user's own: paths, values, labels, errors. Styled text must be a `Text` (`marked`).

    Args:
        quiet: whether to print nothing.
    """
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(
        highlight=False,
        markup=False,
        emoji=False,
        width=None if has_width else _PIPE_WIDTH,
        quiet=quiet,
        force_jupyter=False,
    )  # in a notebook, rich would make a box of HTML for every line


def marked(words: str, style: str, rest: str = "", before: str = "") -> Text:
    """A line in which only `words` have the style `yellow`, `bold` or `dim`."""
    return Text.assemble(before, (words, style), rest)


def describe_presample(counted: Mapping[str, Any]) -> str:
    """One line about pre-sampled epochs (`gnnexp.cli.running.prepare.describe_counts`)."""
    moved = counted["convergence"][-1:]
    last = "".join(
        f"; the last one changed the mean visit counts of vertices by {100 * line['vertices']:.2f} %, "
        f"of edges by {100 * line['edges']:.2f} %"
        for line in moved
    )
    return f"pre-sampled {counted['epochs']} epochs in {counted['seconds']:.2f} s{last}"


def describe_graph(graph: Graph) -> str:
    """One line about the data."""
    splits = graph.splits
    relations = "" if graph.edge_types is None else f" of {graph.num_relations} relations"
    links = ", ".join(f"{name} {pairs.shape[0]:,}" for name, pairs in graph.links.items())
    classes = "real numbers as labels" if graph.real_labels else f"{graph.num_classes} classes"
    return (
        f"{graph.name}: {graph.num_nodes:,} vertices, {graph.num_edges:,} edges{relations}, {graph.num_features} "
        f"features, {classes}; train {splits.train.numel():,}, val {splits.val.numel():,}, "
        f"test {splits.test.numel():,}" + (f"; links: {links}" if links else "")
    )


def epoch_line(line: Mapping[str, Any]) -> str:
    """One epoch: loss, accuracy and the phases in seconds (D, the decoder, is a part of FB)."""
    metrics: Mapping[str, float] = line["metrics"]
    if "counts/batches" in metrics:
        return _counted_line(line["epoch"], metrics)
    loss = f"loss {metrics['loss/train']:.4f}" if "loss/train" in metrics else "loss –"
    parts = [f"epoch {int(line['epoch']):>3}", loss]
    for name, value in metrics.items():
        kind, _, split = name.partition("/")
        if split in ("val", "test") and kind != "loss":
            shown = f"{value:.5g}" if not is_share(kind) else f"{100 * value:.2f}" if value <= 1 else f"{value:.4f}"
            parts.append(f"{kind} {split} {shown}")
    phases = (
        ("S", "sample"),
        ("N", "negatives"),
        ("L", "load"),
        ("FB", "fb"),
        ("D", "decode"),
        ("sync", "sync"),
        ("wait", "wait"),
    )
    for label, phase in phases:
        spent = metrics.get(f"time/{phase}_s", math.nan)
        if label not in ("N", "D") or spent >= 0.0005:  # only for links, and only in records that have these times
            parts.append(f"{label} {'–' if math.isnan(spent) else format(spent, '.3f')}")
    if "time/wall_s" in metrics:  # an external system, which may report no time
        parts.append(f"wall {metrics['time/wall_s']:.3f} s")
    if "time/epoch_s" in metrics:
        parts.append(f"epoch {metrics['time/epoch_s']:.3f} s")
    return "  ".join(parts)


def _counted_line(epoch: int, metrics: Mapping[str, float]) -> str:
    """One epoch of a counting run."""
    edges = metrics.get("work/edges_computed", 0.0)
    rows = sum(value for name, value in metrics.items() if name.startswith("work/features_loaded_"))
    sent = sum(value for name, value in metrics.items() if name.startswith("comm/bytes_"))
    return (
        f"epoch {int(epoch):>3}  counted {metrics['counts/batches']:,.0f} batches  edges {edges:,.0f}  "
        f"rows {rows:,.0f}  sent {sent / 1e6:,.1f} MB"
    )


class EpochPrinter(threading.Thread):
    """Prints each new line of `epochs.jsonl` until it is closed.

    Args:
        console: where lines are printed.
        run_dir: the run directory.
    """

    def __init__(self, console: Console, run_dir: Path) -> None:
        super().__init__(name="gnnexp-epochs", daemon=True)
        self._console = console
        self._file = run_dir / EPOCHS_FILE
        self._position = 0
        self._done = threading.Event()

    def run(self) -> None:
        """Poll the file until `close`."""
        while not self._done.wait(_POLL_S):
            self._print_new()

    def close(self) -> None:
        """Print the remaining lines and stop."""
        self._done.set()
        self.join()
        self._print_new()

    def _print_new(self) -> None:
        try:
            with self._file.open("rb") as file:
                file.seek(self._position)
                new = file.read()
        except OSError:  # no epoch yet, no free file handle, or no answer of the disk: the next poll tries again
            return
        whole, newline, _ = new.rpartition(b"\n")
        self._position += len(whole) + len(newline)
        for text in whole.splitlines():
            with suppress(ValueError):  # the line is damaged: `read_epochs` names it
                line = parse_json(text)
                check_line(line, EPOCHS_FILE)
                assert isinstance(line, dict)
                self._console.print(epoch_line(line), soft_wrap=True)


def made_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> Table:
    """A table for the terminal that is only as wide as its cells."""
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    return table
