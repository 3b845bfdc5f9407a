"""`gnnexp predict`: classes, embeddings or scores of links by the model of a run, with the user's own ids."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnexp.api.predicting.graphs import Target, target_graph
from gnnexp.api.predicting.links import check_pairs, scored
from gnnexp.api.predicting.vertices import embedded, metrics_of_all, predicted
from gnnexp.api.trained import TrainedModel, load_for_other_data
from gnnexp.cli.output import Answer
from gnnexp.cli.running.folders import new_file_problems
from gnnexp.cli.runs import named_run
from gnnexp.errors import ConfigError, Problem
from gnnexp.files.disk import replaced
from gnnexp.files.regular import why_unreadable
from gnnexp.tasks.base import Scores

if TYPE_CHECKING:
    import pyarrow as pa

_ENDINGS = (".parquet", ".csv")


def main(options: argparse.Namespace) -> Answer:
    """Write a table with a row for each vertex or link."""
    out = Path(options.out)
    problems = new_file_problems("--out", out)
    if out.suffix not in _ENDINGS:
        problems.append(Problem("--out", options.out, f"must end in {' or '.join(_ENDINGS)}", "--out FILE.csv"))
    if options.links and (why := why_unreadable(Path(options.links))):
        problems.append(Problem("--links", options.links, f"must be a table of pairs: {why}", "correct the path"))
    ConfigError.raise_all(problems)
    if options.links:
        check_pairs(Path(options.links))
    model = load_for_other_data(named_run(options.run), which="last" if options.last else "best", trust=options.trust)
    ConfigError.raise_all(_option_problems(model, options))
    if not options.overrides and (said := model.changed_data()):
        print(
            f"gnnexp: {model.run_dir}: {said}: the rows are of the data of the run; for those of today: gnnexp "
            f"predict {shlex.quote(options.run)} dataset.path=PLACE",
            file=sys.stderr,
        )
    target = target_graph(model, options.overrides, trust=options.trust)
    scores: list[Scores] = []
    notes: list[str] = []
    count = write_table(out, _table(model, target, options, scores, notes))
    for note in notes:
        print(f"gnnexp: {options.links}: {note}", file=sys.stderr)
    metrics = metrics_of_all(model, target, scores) if scores else {}
    if metrics:
        print(", ".join(f"{name} {value:.4f}" for name, value in metrics.items()) + ", over all labelled vertices")
    print(f"{count:,} {'links' if _of_links(model, options) else 'vertices'}: {out}")
    return Answer({"rows": count, "file": str(out), "metrics": metrics})


def _of_links(model: TrainedModel, options: argparse.Namespace) -> bool:
    return model.task.options.pairs and not options.embeddings


def _option_problems(model: TrainedModel, options: argparse.Namespace) -> list[Problem]:
    """Options that do not fit the task of the run, or each other."""
    problems = []
    if options.embeddings and (options.links or options.probabilities):
        other = "--links" if options.links else "--probabilities"
        problems.append(
            Problem("--embeddings", other, "a table has either embeddings or predictions", f"leave out {other}")
        )
    if options.links and not model.task.options.pairs:
        problems.append(
            Problem(
                "--links",
                options.links,
                "the run was trained for vertices, so it scores no links",
                "leave it out, or train with task=link_prediction",
            )
        )
    if options.probabilities and model.task.options.pairs:
        problems.append(
            Problem(
                "--probabilities",
                True,
                "the run was trained for links, which have no classes",
                "leave it out: the table has a column probability",
            )
        )
    return problems


def _table(
    model: TrainedModel, target: Target, options: argparse.Namespace, scores: list[Scores], notes: list[str]
) -> Iterator[pa.RecordBatch]:
    if options.embeddings:
        return embedded(model, target, lists=Path(options.out).suffix == ".parquet")
    if model.task.options.pairs:
        return scored(model, target, Path(options.links) if options.links else None, notes)
    return predicted(
        model, target, probabilities=options.probabilities, scores=None if target.labelled is None else scores
    )


def write_table(out: Path, batches: Iterator[pa.RecordBatch]) -> int:
    """Write batches to a Parquet or CSV file, atomically; the number of rows."""
    from pyarrow import csv, parquet

    count = 0
    with replaced(out) as temporary:
        first = next(batches)
        make: Any = parquet.ParquetWriter if out.suffix == ".parquet" else csv.CSVWriter
        with make(str(temporary), first.schema) as writer:
            for batch in (first, *batches):
                writer.write_batch(batch)
                count += batch.num_rows
    return count
