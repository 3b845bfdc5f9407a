"""What `gnnexp data` prints and returns of a sample of large tables, and the lines that it prints in both cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from gnnexp.cli.console import make_console
from gnnexp.datasets.looking.sample import Sample
from gnnexp.datasets.looking.sampled import SampledFacts

WIDE_SCALE = 10.0
_MOST = 10


def document_of_sample(facts: SampledFacts, sample: Sample) -> dict[str, Any]:
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


def advised_by_sample(facts: SampledFacts) -> list[str]:
    """Further overrides with which the tables can be trained on."""
    lines = ["model=rgcn"] if len(facts.relations) > 1 else []
    if facts.real:
        lines.append("task=node_regression")
    elif not facts.classes:
        lines += ["task=link_prediction", "dataset.link_split={val:0.05,test:0.1}"]
    if facts.features == 0:
        lines.append("feature_store=embedding")
    elif facts.spread > WIDE_SCALE:
        lines.append("dataset.standardize=true")
    return lines


def show_sample(document: Mapping[str, Any]) -> None:
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
    show_classes(console, document)
    for note in document["notes"]:
        say(f"  {note}")
    show_command(console, document)


def show_classes(console: Console, document: Mapping[str, Any]) -> None:
    """Print the largest classes, or the range of real numbers."""
    if values := document["label_values"]:
        console.print(f"labels are real numbers: {values['min']:.5g} to {values['max']:.5g}, mean {values['mean']:.5g}")
    if not document["classes"]:
        return
    sizes = document["classes"]
    names = document["names"].get("classes") or [str(number) for number in range(len(sizes))]
    order = sorted(zip(names, sizes, strict=True), key=lambda pair: -pair[1])
    more = f", and {len(order) - _MOST} more" if len(order) > _MOST else ""
    console.print(
        ("classes in the sample: " if document["sampled"] else "classes: ")
        + ", ".join(f"{name} {count:,}" for name, count in order[:_MOST])
        + more
    )


def show_command(console: Console, document: Mapping[str, Any]) -> None:
    """Print columns that may have classes, if there are none, and the command."""
    if not (document["classes"] or document["label_values"]) and document["may_be_classes"]:
        columns = ", ".join(f"{name} ({count} values)" for name, count in document["may_be_classes"].items())
        console.print(f"no labels: a column may have the classes: {columns}; name it with --label")
    console.print("train on it:")
    print(f"  {document['command']}")
