"""`gnnexp data`: what a file or a folder holds, what may surprise in it, and the command that trains on it."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from torch import Tensor

from gnnexp.cli.console import make_console
from gnnexp.cli.output import Answer
from gnnexp.cli.running.folders import new_file_problems
from gnnexp.components.texts import hydra_text, yaml_of
from gnnexp.config.compose import compose
from gnnexp.config.folders import own_folders
from gnnexp.config.hints import classes_of
from gnnexp.datasets.base import Dataset
from gnnexp.datasets.looking.facts import Facts, facts_of_graph
from gnnexp.datasets.looking.guess import FormatGuess, recognised
from gnnexp.datasets.looking.sample import Sample
from gnnexp.datasets.looking.sampled import SampledFacts, facts_of_sample
from gnnexp.datasets.reading.names import GraphNames, names_of
from gnnexp.datasets.tables.dataset import Tables
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.build import build
from gnnexp.files.disk import write_bytes
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.format import open_graph
from gnnexp.preparation.unchanged import unchanged

_AS_IT_IS = ("dataset.symmetrize=false", "dataset.self_loops=keep", "dataset.duplicates=keep")
_MANY_CLASSES = 50
# Spreads of columns above this differ too much for training without standardization.
_WIDE_SCALE = 10.0
# The most classes that are named, and those that are drawn.
_MOST_NAMED, _MOST_DRAWN = 10, 30
_TYPED_LINKS = "task.decoder._target_=gnnexp.tasks.decoders.DistMult"


def main(options: argparse.Namespace) -> Answer:
    """Look at a place; the exit code is 0 if it can be read."""
    ConfigError.raise_all(
        [
            problem
            for key, name in (("--save", options.save), ("--picture", options.picture))
            if name
            for problem in new_file_problems(key, Path(name))
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        guess = recognised(
            Path(options.path),
            classes_of("dataset", own_folders()),
            None if options.whole else options.sample,
            Path(folder) / "sample",
        )
        label = [f"dataset.label={hydra_text(options.label)}"] if options.label else []
        chosen = [*guess.overrides, *label, *options.overrides]
        document = (
            _of_sample(guess, guess.sample, chosen, options)
            if guess.sample
            else _whole(guess, chosen, Path(folder), options)
        )
    if options.save:
        _save(Path(options.save), [override for override in document["run"] if override.startswith("dataset")])
    return Answer(document)


def _whole(guess: FormatGuess, chosen: Sequence[str], folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """What all rows say: printed, drawn if that is asked for, and as a document."""
    graph, names = _loaded(chosen, folder)
    facts = facts_of_graph(graph)
    document = {
        "format": guess.format,
        "sampled": False,
        **asdict(facts),
        "names": asdict(names),
        "notes": list(graph.notes),
        "surprises": surprises(facts),
        "may_be_classes": dict(guess.classes),
        **_to_run([*chosen, *_known(_advised(graph, facts), chosen), *_merging(facts, chosen)]),
    }
    if options.picture:
        _draw_picture(graph, facts, names.classes, Path(options.picture))
    _show(guess, document)
    return document


def _of_sample(
    guess: FormatGuess, sample: Sample, chosen: Sequence[str], options: argparse.Namespace
) -> dict[str, Any]:
    """What a sample says: printed, and as a document, in which unknown figures are null.

    Raises:
        ConfigError: a picture is asked for.
    """
    if options.picture:
        raise ConfigError(
            Problem("--picture", options.picture, "needs all edges, and only a sample is read", "gnnexp data --whole")
        )
    dataset = build(compose(chosen).config["dataset"], Dataset)
    assert isinstance(dataset, Tables)
    facts = facts_of_sample(dataset, sample)
    document = {
        "format": guess.format,
        "sampled": True,
        **dict.fromkeys(field.name for field in fields(Facts)),
        **_document_of_sample(facts, sample),
        "may_be_classes": dict(guess.classes),
        **_to_run([*chosen, *_advised_by_sample(facts)]),
    }
    _show_sample(document)
    return document


def _to_run(overrides: list[str]) -> dict[str, Any]:
    return {"run": overrides, "command": " ".join(["gnnexp run", *map(_typed, overrides)])}


def _loaded(overrides: Sequence[str], folder: Path) -> tuple[Graph, GraphNames]:
    """The graph as its files have it, and its names."""
    config = compose([*overrides, *_as_it_is(overrides)]).config
    dataset = build(config["dataset"], Dataset)
    target = folder / "graph"
    with unchanged(dataset, None):
        graph = dataset.generate(target) or dataset.load()
    return (open_graph(target, mmap=False) if target.exists() else graph), names_of(target)


def _as_it_is(overrides: Sequence[str]) -> list[str]:
    """Overrides that change no edge, where the dataset has these keys."""
    return _known(_AS_IT_IS, overrides)


def _known(lines: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Those of `lines` whose keys the chosen dataset has."""
    known = compose([one for one in overrides if one.startswith("dataset=")]).config["dataset"]
    return [one for one in lines if not one.startswith("dataset.") or one[len("dataset.") :].partition("=")[0] in known]


def _advised(graph: Graph, facts: Facts) -> list[str]:
    """Further overrides with which the graph can be trained on."""
    lines = []
    if facts.relations > 1:
        lines.append("model=rgcn")
    if graph.labels is None and not graph.links:
        lines += ["task=link_prediction", "dataset.link_split={val:0.05,test:0.1}"]
    elif graph.labels is None:
        lines += ["task=link_prediction", *([_TYPED_LINKS] if graph.links["train"].shape[1] == 3 else [])]
    if graph.real_labels:
        lines.append("task=node_regression")
    if graph.features is None:
        lines.append("feature_store=embedding")
    elif isinstance(graph.features, Tensor) and bool((graph.features.std(0) > _WIDE_SCALE).any()):
        lines.append("dataset.standardize=true")
    return lines


def _merging(facts: Facts, chosen: Sequence[str]) -> list[str]:
    """The rule for the weights of merged edges, if the data need one and none is chosen."""
    dataset = compose(chosen).config["dataset"]
    needed = facts.different_weights and (dataset.get("duplicates"), dataset.get("merge_weights")) == ("merge", "error")
    return ["dataset.merge_weights=sum"] if needed else []


def surprises(facts: Facts) -> list[str]:
    """What a user may not expect of the graph, and what gnnexp does with it."""
    texts = []

    def note(count: float, text: str) -> None:
        if count:
            texts.append(text)

    note(
        facts.duplicates,
        f"{facts.duplicates:,} edges are there more than once: dataset.duplicates=merge (the "
        "default) makes one of them",
    )
    note(
        facts.different_weights,
        f"{facts.different_weights:,} of the merged edges stand for edges with different "
        "weights: dataset.merge_weights (sum, mean, max, min, error) says what their weight is",
    )
    note(
        facts.opposite_weights,
        f"{facts.opposite_weights:,} pairs of vertices have an edge in each direction, with "
        "different weights: each direction keeps its own",
    )
    note(
        facts.self_loops,
        f"{facts.self_loops:,} edges lead from a vertex to itself: dataset.self_loops=remove (the "
        "default) leaves them out",
    )
    note(facts.isolated, f"{facts.isolated:,} vertices have no edges")
    note(
        0 < facts.reciprocal < 1,
        f"{facts.reciprocal:.0%} of the edges have a reverse: dataset.symmetrize=true (the default) adds the others",
    )
    many = len(facts.classes) >= _MANY_CLASSES and 3 * len(facts.classes) > sum(facts.classes)
    note(
        many,
        f"{len(facts.classes):,} classes for {sum(facts.classes):,} labelled vertices: with "
        "dataset.label_kind=real, whole numbers are real labels",
    )
    rare = [number for number in facts.classes if number < 5]
    note(len(rare), f"{len(rare)} of {len(facts.classes)} classes have fewer than 5 vertices")
    note(bool(facts.classes or facts.label_values) and facts.unlabelled, f"{facts.unlabelled:,} vertices have no label")
    note(facts.skew > 0.5, f"the 1 % of vertices with most edges have {facts.skew:.0%} of all ends")
    note(
        facts.components > 1,
        f"{facts.components:,} components; the largest has {facts.largest_component:.1%} of the vertices",
    )
    return texts


def _document_of_sample(facts: SampledFacts, sample: Sample) -> dict[str, Any]:
    """The known figures."""
    return {
        "rows_read": facts.rows_read,
        "num_bytes": sample.num_bytes,
        "exact": facts.exact,
        "vertices": facts.vertices,
        "edges": facts.edges,
        "types": list(facts.types.values()) if len(facts.types) > 1 else [],
        "relations": len(facts.relations),
        "features": facts.features,
        "classes": list(facts.counts),
        "names": {
            "types": list(facts.types),
            "classes": list(facts.classes),
            "relations": list(facts.relations),
            "columns": {},
        },
        "notes": list(facts.notes),
        "surprises": [],
    }


def _advised_by_sample(facts: SampledFacts) -> list[str]:
    """Further overrides with which the tables can be trained on."""
    lines = ["model=rgcn"] if len(facts.relations) > 1 else []
    if facts.real:
        lines.append("task=node_regression")
    elif not facts.classes:
        lines += ["task=link_prediction", "dataset.link_split={val:0.05,test:0.1}"]
    if facts.features == 0:
        lines.append("feature_store=embedding")
    elif facts.spread > _WIDE_SCALE:
        lines.append("dataset.standardize=true")
    return lines


def _typed(override: str) -> str:
    """An override as it is typed in a shell."""
    special = set(" {}[]()'\"$&;|<>*?\\#~")
    if not special & set(override):
        return override
    return "'" + override.replace("'", "'\\''") + "'"


def _save(path: Path, overrides: Sequence[str]) -> None:
    """Write the dataset as a choice for `--config-dir`: `<dir>/dataset/<name>.yaml`."""
    config = compose(list(overrides)).config["dataset"]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, yaml_of(config).encode())


def _show(guess: FormatGuess, document: Mapping[str, Any]) -> None:
    console = make_console()
    say = console.print
    facts = document
    degree = facts["degree"]
    say(f"{guess.format}: {facts['vertices']:,} vertices, {facts['edges']:,} edges, {facts['features']:,} features")
    names = facts["names"]
    if facts["types"]:
        kinds = names.get("types") or [f"type {number}" for number in range(len(facts["types"]))]
        say("types: " + ", ".join(f"{kind} {count:,}" for kind, count in zip(kinds, facts["types"], strict=True)))
    if names.get("relations") and len(names["relations"]) > 1:
        say("relations: " + ", ".join(names["relations"]))
    _show_classes(console, facts)
    say(
        f"edges of a vertex: {degree['min']:.0f} to {degree['max']:.0f}, median {degree['median']:.0f}, mean "
        f"{degree['mean']:.1f}"
    )
    for note in facts["notes"]:
        say(f"  {note}")
    for surprise in facts["surprises"]:
        say(f"  note: {surprise}")
    _show_command(console, facts)


def _show_sample(document: Mapping[str, Any]) -> None:
    """Print the document of a sample."""
    console, names = make_console(), document["names"]
    about = "" if document["exact"] else "about "
    vertices = "unknown number of" if document["vertices"] is None else f"{about}{document['vertices']:,}"
    width = "unknown number of" if document["features"] is None else f"{document['features']:,}"
    say = console.print
    say(f"{document['format']}: {vertices} vertices, {about}{document['edges']:,} edges, {width} features")
    say(
        f"from a sample of {document['rows_read']:,} rows ({document['num_bytes'] / 1e9:.1f} GB in all): duplicates, "
        "degrees and components need all rows, with --whole"
    )
    if document["types"]:
        counts = (("?" if count is None else f"{about}{count:,}") for count in document["types"])
        say("types: " + ", ".join(f"{kind} {count}" for kind, count in zip(names["types"], counts, strict=True)))
    if len(names["relations"]) > 1:
        say("relations: " + ", ".join(names["relations"]))
    _show_classes(console, document)
    for note in document["notes"]:
        say(f"  {note}")
    _show_command(console, document)


def _show_classes(console: Console, document: Mapping[str, Any]) -> None:
    """Print the largest classes, or the range of real numbers."""
    if values := document["label_values"]:
        console.print(f"labels are real numbers: {values['min']:.5g} to {values['max']:.5g}, mean {values['mean']:.5g}")
    if not document["classes"]:
        return
    sizes = document["classes"]
    names = document["names"].get("classes") or [str(number) for number in range(len(sizes))]
    order = sorted(zip(names, sizes, strict=True), key=lambda pair: -pair[1])
    more = f", and {len(order) - _MOST_NAMED} more" if len(order) > _MOST_NAMED else ""
    console.print(
        ("classes in the sample: " if document["sampled"] else "classes: ")
        + ", ".join(f"{name} {count:,}" for name, count in order[:_MOST_NAMED])
        + more
    )


def _show_command(console: Console, document: Mapping[str, Any]) -> None:
    """Print columns that may have classes, if there are none, and the command."""
    if not (document["classes"] or document["label_values"]) and document["may_be_classes"]:
        columns = ", ".join(f"{name} ({count} values)" for name, count in document["may_be_classes"].items())
        console.print(f"no labels: a column may have the classes: {columns}; name it with --label")
    console.print("train on it:")
    print(f"  {document['command']}")


def _draw_picture(graph: Graph, facts: Facts, classes: Sequence[str], path: Path) -> None:
    """Write the picture to `path`, whose ending says the format (`.png`, `.svg`, `.pdf`)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    degree = (graph.in_degree + graph.out_degree).numpy()
    values, counts = np.unique(degree, return_counts=True)
    left.loglog(values[values > 0], counts[values > 0], ".")
    left.set(xlabel="edges of a vertex", ylabel="vertices", title=f"{facts.isolated:,} vertices without edges")
    names = list(classes) or [str(number) for number in range(len(facts.classes))]
    shown = sorted(zip(facts.classes, names, strict=True), reverse=True)[:_MOST_DRAWN]
    right.bar([name for _, name in shown], [count for count, _ in shown])
    right.set(ylabel="vertices", title=f"{len(facts.classes)} classes")
    right.tick_params(axis="x", rotation=90)
    content = BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix(".") or "png")
    write_bytes(path, content.getvalue())
