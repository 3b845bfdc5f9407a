"""Queries of reports: a file of SQL in a paper's folder of sweeps, or a user's own; docs/reports.md has the form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gnnexp.config.folders import product_folder
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.signature import check_keys, parameters_of_dataclass, unknown
from gnnexp.reports.figures.chart import DRAWINGS, Chart, Panel

# What a part begins with: its name, or that of a figure with its description.
_PART = re.compile(r"/\*\s*(runs|views|table|caption|figure\s.*?)\s*\*/", re.DOTALL)
_NEEDED = ("runs", "table", "caption")
VIEWS = "views"


@dataclass(frozen=True)
class Query:
    """What a report asks of records.

    Attributes:
        name: of the file.
        paper: whose published numbers it reads: the folder's name; empty for a user's own file.
        parts: SQL by what it gives: `runs` (that the report is about), `views` that the others share, `table`,
            `caption`, and what a figure draws, by the figure's name.
        charts: how figures are drawn.
    """

    name: str
    paper: str
    parts: Mapping[str, str]
    charts: tuple[Chart, ...]


def query_names() -> dict[str, Path]:
    """Files of the product's queries by their name."""
    return {file.stem: file for file in sorted(product_folder("sweeps").glob("*/*.sql"))}


def is_query(name: object) -> bool:
    """Whether it is the name of one of the product's, or of a file of SQL."""
    return isinstance(name, str) and (name in query_names() or name.endswith(".sql"))


def read_query(name: object, where: str) -> Query:
    """One of the product's by its name, or the file of a user.

    Raises:
        ConfigError: there is none, or something in it is missing or unknown; `where` names it.
    """
    if not isinstance(name, str) or not is_query(name):
        raise ConfigError(unknown(where, name, str(name), query_names()))
    own = query_names().get(name)
    try:
        _, *pieces = _PART.split((own or Path(name)).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(Problem(where, name, f"must be a file of SQL that can be read: {error}", "correct the path")
                          ) from None
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
    """Of `figure NAME` and the YAML below it."""
    import yaml

    first, _, rest = head.partition("\n")
    try:
        options = {"figure": first.split()[1], **yaml.safe_load(rest)}
    except (yaml.YAMLError, TypeError) as error:
        return None, [Problem(where, first, " ".join(str(error).split()), "figure NAME, and keys below it")]
    panels, keys = options.get("panels"), parameters_of_dataclass(Chart)
    given = panels if isinstance(panels, list) else []
    problems = check_keys(where, {**options, "panels": [Panel(())] * len(given)}, keys)
    problems += [problem for panel in given for problem in check_keys(
        f"{where}.panels", panel if isinstance(panel, dict) else {}, parameters_of_dataclass(Panel))]
    if options.get("draw") not in DRAWINGS:
        problems.append(unknown(f"{where}.draw", options.get("draw"), str(options.get("draw")), DRAWINGS))
    if not given:
        problems.append(Problem(f"{where}.panels", panels, "must be a list, at least one", "[{y: [column]}]"))
    return (None, problems) if problems else (Chart(**{**options, "panels": [Panel(**panel) for panel in given]}), [])
