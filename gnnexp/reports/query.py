"""Queries of reports: an SQL file in a paper's folder of sweeps, or a user's own file (its form: docs/reports.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gnnexp.components.signature import key_problems, parameters_of_dataclass, unknown
from gnnexp.config.folders import product_folder
from gnnexp.errors import ConfigError, Problem
from gnnexp.reports.figures.chart import DRAWINGS, Chart, ChartPanel

# The head of a part: its name, or `figure` with the figure's name and description.
_PART = re.compile(r"/\*\s*(runs|views|table|caption|figure\s.*?)\s*\*/", re.DOTALL)
_NEEDED = ("runs", "table", "caption")
VIEWS = "views"


@dataclass(frozen=True)
class Query:
    """A query about records, for a report.

    Attributes:
        name: name of the file.
        paper: folder name of the paper whose published numbers the query reads; empty for a user's own file.
        parts: SQL of each part. The part `runs` selects the report's runs, and the other parts share `views`. The parts
            `table` and `caption` give the text, and a figure's name gives the data of that figure.
        charts: descriptions of the figures.
    """

    name: str
    paper: str
    parts: Mapping[str, str]
    charts: tuple[Chart, ...]


def query_names() -> dict[str, Path]:
    """The files of gnnexp's own queries, by name."""
    return {file.stem: file for file in sorted(product_folder("sweeps").glob("*/*.sql"))}


def is_query(name: object) -> bool:
    """Whether it is the name of one of gnnexp's own queries, or of an SQL file."""
    return isinstance(name, str) and (name in query_names() or name.endswith(".sql"))


def read_query(name: object, where: str) -> Query:
    """Read one of gnnexp's own queries by its name, or a user's file.

    Raises:
        ConfigError: there is no such query, or a part or key is missing or unknown; `where` names the query.
    """
    if not isinstance(name, str) or not is_query(name):
        raise ConfigError(unknown(where, name, str(name), query_names()))
    own = query_names().get(name)
    try:
        _, *pieces = _PART.split((own or Path(name)).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(Problem(where, name, f"must be a readable SQL file: {error}", "correct the path")) from None
    parts, charts = dict[str, str](), list[Chart]()
    problems = list[Problem]()
    for head, text in zip(pieces[::2], pieces[1::2], strict=True):
        if head not in (*_NEEDED, VIEWS):
            chart, wrong = _chart(head, f"{where} ({name})")
            problems += wrong
            charts += [chart] if chart else []
        parts[head.split()[-1] if "\n" not in head else head.split()[1]] = text
    problems += [Problem(where, name, f"has no part /* {part} */", "add it") for part in _NEEDED if part not in parts]
    ConfigError.raise_all(problems)
    return Query(Path(name).stem, own.parent.name if own else "", parts, tuple(charts))


def _chart(head: str, where: str) -> tuple[Chart | None, list[Problem]]:
    """The figure described by `figure NAME` and the YAML below it, and the problems of the description."""
    import yaml

    first, _, rest = head.partition("\n")
    try:
        options = {"figure": first.split()[1], **yaml.safe_load(rest)}
    except (yaml.YAMLError, TypeError) as error:
        return None, [Problem(where, first, " ".join(str(error).split()), "figure NAME, and keys below it")]
    panels, keys = options.get("panels"), parameters_of_dataclass(Chart)
    panel_options = panels if isinstance(panels, list) else []
    problems = key_problems(where, {**options, "panels": [ChartPanel(())] * len(panel_options)}, keys)
    problems += [
        problem
        for panel in panel_options
        for problem in key_problems(
            f"{where}.panels", panel if isinstance(panel, dict) else {}, parameters_of_dataclass(ChartPanel)
        )
    ]
    if options.get("draw") not in DRAWINGS:
        problems.append(unknown(f"{where}.draw", options.get("draw"), str(options.get("draw")), DRAWINGS))
    if not panel_options:
        problems.append(Problem(f"{where}.panels", panels, "must be a list of at least one panel", "[{y: [column]}]"))
    return (
        (None, problems)
        if problems
        else (Chart(**{**options, "panels": [ChartPanel(**panel) for panel in panel_options]}), [])
    )
