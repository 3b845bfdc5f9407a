"""`gnnexp predict`: the classes of all vertices, by the model of a run, with the user's own ids."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnexp.api.predictions import predicted
from gnnexp.api.trained import TrainedModel, load
from gnnexp.cli.listing.runs import named_run
from gnnexp.cli.output import Answer
from gnnexp.cli.running.origin import with_origin
from gnnexp.cli.running.prepare import check_new_file
from gnnexp.config.compose import compose
from gnnexp.datasets.base import Dataset
from gnnexp.datasets.reading.names import names_of
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.experiment.build import build
from gnnexp.files.disk import shortened
from gnnexp.graph.graph import Graph
from gnnexp.preparation.artifacts import cache_root, prepare_graph

if TYPE_CHECKING:
    import pyarrow as pa

_ENDINGS = (".parquet", ".csv")


def main(options: argparse.Namespace) -> Answer:
    """Write a table with a row for each vertex."""
    out = Path(options.out)
    problems = check_new_file("--out", out)
    if out.suffix not in _ENDINGS:
        problems.append(Problem("--out", options.out, f"must end in {' or '.join(_ENDINGS)}", "--out FILE.csv"))
    ConfigError.raise_all(problems)
    model = load(named_run(options.run), trust=options.trust)
    if model.graph.labels is None:
        raise ConfigError(Problem("RUN", options.run, "was not trained on labels, and predict writes classes",
                                  "gnnexp.load(RUN) has the model: docs/howto/python.md"))
    graph, folder = _graph(model, options)
    count = _write(out, predicted(model, graph, folder, probabilities=options.probabilities))
    print(f"{count:,} vertices: {out}")
    return Answer({"rows": count, "file": str(out)})


def _graph(model: TrainedModel, options: argparse.Namespace) -> tuple[Graph | None, Path]:
    """The graph to predict on, None for that of the run; and the folder of its ids.

    Raises:
        ConfigError: an override is not of the dataset.
        DataError: the columns of another graph are not those of the run's.
    """
    _, of_run = prepare_graph(model.experiment.dataset, cache_root())
    if not options.overrides:
        return None, of_run
    strange = [one for one in options.overrides if not one.startswith("dataset")]
    ConfigError.raise_all([Problem("predict", one, "only keys of the dataset can change", "dataset.path=FOLDER")
                           for one in strange])
    asked = with_origin(argparse.Namespace(origin=str(model.run_dir), trust=options.trust, config_dir=None,
                                           overrides=options.overrides))
    config = compose(asked.overrides, asked.config_dir).config
    graph, folder = prepare_graph(build(config["dataset"], Dataset), cache_root())
    own, other = names_of(of_run).columns, names_of(folder).columns
    if own != other:
        raise DataError(Problem("dataset", graph.name, f"has the features {other}, and the model was trained on {own}",
                                "give tables with the same columns and the same categories"))
    return graph, folder


def _write(out: Path, batches: Iterator[pa.RecordBatch]) -> int:
    """Write batches to a Parquet or CSV file, atomically; the number of rows."""
    from pyarrow import csv, parquet

    count = 0
    with _replaced(out) as temporary:
        first = next(batches)
        make: Any = parquet.ParquetWriter if out.suffix == ".parquet" else csv.CSVWriter
        with make(str(temporary), first.schema) as writer:
            for batch in (first, *batches):
                writer.write_batch(batch)
                count += batch.num_rows
    return count


@contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """A file next to `path` that takes its name at the end, or is removed after an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{shortened(path.name)}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
