"""`gnnexp data`: what a file or a folder holds, what may surprise in it, and the command that trains on it."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gnnexp.cli.console import make_console
from gnnexp.cli.output import Answer
from gnnexp.cli.running.prepare import check_new_file
from gnnexp.config.compose import compose
from gnnexp.config.folders import own_folders
from gnnexp.config.hints import classes_of
from gnnexp.datasets.base import Dataset
from gnnexp.datasets.looking.facts import Facts, facts_of_graph
from gnnexp.datasets.looking.guess import Guess, recognised
from gnnexp.datasets.reading.names import Names, names_of
from gnnexp.errors import ConfigError
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.format import open_graph

_AS_IT_IS = ("dataset.symmetrize=false", "dataset.self_loops=keep", "dataset.duplicates=keep")
_WIDE_SCALE = 10.0


def main(options: argparse.Namespace) -> Answer:
    """Look at a place; the exit code is 0 if it can be read."""
    ConfigError.raise_all([problem for key, name in (("--save", options.save), ("--picture", options.picture)) if name
                           for problem in check_new_file(key, Path(name))])
    guess = recognised(Path(options.path), classes_of("dataset", own_folders()))
    chosen = [*guess.overrides, *([f"dataset.label={options.label}"] if options.label else []), *options.overrides]
    with tempfile.TemporaryDirectory() as folder:
        graph, names = _loaded(chosen, Path(folder))
        facts, notes = facts_of_graph(graph), graph.notes
        run = [*chosen, *_known(_advised(graph, facts), chosen)]
    command = " ".join(["gnnexp run", *map(_typed, run)])
    document = {"format": guess.format, **asdict(facts), "names": asdict(names), "notes": list(notes),
                "surprises": surprises(facts), "may_be_classes": dict(guess.classes), "run": run, "command": command}
    if options.picture:
        from gnnexp.cli.looking.picture import draw

        draw(graph, facts, names.classes, Path(options.picture))
    if options.save:
        _save(Path(options.save), chosen)
    _show(guess, document)
    return Answer(document)


def _loaded(overrides: Sequence[str], folder: Path) -> tuple[Graph, Names]:
    """The graph as its files have it, and its names."""
    config = compose([*overrides, *_as_it_is(overrides)]).config
    dataset = build(config["dataset"], Dataset)
    target = folder / "graph"
    graph = dataset.generate(target) or dataset.load()
    return (open_graph(target, mmap=False) if target.exists() else graph), names_of(target)


def _as_it_is(overrides: Sequence[str]) -> list[str]:
    """Overrides that change no edge, where the dataset has these keys."""
    return _known(_AS_IT_IS, overrides)


def _known(lines: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Those of `lines` whose keys the chosen dataset has."""
    known = compose([one for one in overrides if one.startswith("dataset=")]).config["dataset"]
    return [one for one in lines if not one.startswith("dataset.") or one[len("dataset."):].partition("=")[0] in known]


def _advised(graph: Graph, facts: Facts) -> list[str]:
    """Further overrides with which the graph can be trained on."""
    lines = []
    if facts.relations > 1:
        lines.append("model=rgcn")
    if graph.labels is None and not graph.links:
        lines += ["task=link_prediction", "dataset.link_split={val:0.05,test:0.1}"]
    if graph.features is None:
        lines.append("feature_store=embedding")
    elif not facts.sparse_features and _differ_in_scale(graph):
        lines.append("dataset.standardize=true")
    return lines


def _differ_in_scale(graph: Graph) -> bool:
    """Whether columns of numbers have very different or large values."""
    assert not isinstance(graph.features, type(None))
    values = graph.features
    spread = values.std(0)  # type: ignore[union-attr]
    return bool((spread > _WIDE_SCALE).any())


def surprises(facts: Facts) -> list[str]:
    """What a user may not expect of the graph, and what gnnexp does with it."""
    found = []

    def note(count: float, text: str) -> None:
        if count:
            found.append(text)

    note(facts.duplicates, f"{facts.duplicates:,} edges are there more than once: dataset.duplicates=merge (the "
         "default) keeps one of them")
    note(facts.self_loops, f"{facts.self_loops:,} edges lead from a vertex to itself: dataset.self_loops=remove (the "
         "default) leaves them out")
    note(facts.isolated, f"{facts.isolated:,} vertices have no edges")
    note(0 < facts.reciprocal < 1, f"{facts.reciprocal:.0%} of the edges have a reverse: dataset.symmetrize=true (the "
         "default) adds the others")
    rare = [number for number in facts.classes if number < 5]
    note(len(rare), f"{len(rare)} of {len(facts.classes)} classes have fewer than 5 vertices")
    note(bool(facts.classes) and facts.unlabelled, f"{facts.unlabelled:,} vertices have no label")
    note(facts.skew > 0.5, f"the 1 % of vertices with most edges have {facts.skew:.0%} of all ends")
    note(facts.components > 1, f"{facts.components:,} components; the largest has {facts.largest_component:.1%} of the "
         "vertices")
    return found


def _typed(override: str) -> str:
    """An override as it is typed in a shell."""
    special = set(" {}[]()'\"$&;|<>*?\\#~")
    if not special & set(override):
        return override
    return "'" + override.replace("'", "'\\''") + "'"


def _save(path: Path, overrides: Sequence[str]) -> None:
    """Write the dataset as a choice for `--config-dir`: `<dir>/dataset/<name>.yaml`."""
    import yaml

    from gnnexp.files.disk import write_bytes

    config = compose(list(overrides)).config["dataset"]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True).encode())


def _show(guess: Guess, document: Mapping[str, Any]) -> None:
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
    if facts["classes"]:
        classes = names.get("classes") or [str(number) for number in range(len(facts["classes"]))]
        order = sorted(zip(classes, facts["classes"], strict=True), key=lambda one: -one[1])
        more = f", and {len(order) - 10} more" if len(order) > 10 else ""
        say("classes: " + ", ".join(f"{name} {count:,}" for name, count in order[:10]) + more)
    say(f"edges of a vertex: {degree['min']:.0f} to {degree['max']:.0f}, median {degree['median']:.0f}, mean "
        f"{degree['mean']:.1f}")
    for note in facts["notes"]:
        say(f"  {note}")
    for surprise in facts["surprises"]:
        say(f"  note: {surprise}")
    if not facts["classes"] and facts["may_be_classes"]:
        columns = ", ".join(f"{name} ({count} values)" for name, count in facts["may_be_classes"].items())
        say(f"no labels: a column may have the classes: {columns}; name it with --label")
    say("train on it:")
    print(f"  {facts['command']}")
