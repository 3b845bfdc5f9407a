"""What a file or a folder probably is, as overrides of the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gnnexp.components.packages import install_command, is_installed
from gnnexp.components.texts import hydra_text
from gnnexp.datasets.base import Dataset
from gnnexp.datasets.formats.networkx_files import is_gconstruct
from gnnexp.datasets.looking.sample import Sample, sample_of
from gnnexp.datasets.looking.tables import guess_tables
from gnnexp.errors import DataError, Problem


@dataclass(frozen=True)
class FormatGuess:
    """A format, and how gnnexp reads it.

    Attributes:
        format: what the place is, in a few words.
        overrides: overrides that load it.
        classes: columns that may be classes, with the number of their values.
        sample: the rows that were read of large tables; None if nothing was left out.
    """

    format: str
    overrides: Sequence[str]
    classes: Mapping[str, int] = field(default_factory=dict)
    sample: Sample | None = None


def recognised(
    path: Path, datasets: Mapping[str, type[Dataset]], limit: int | None = None, folder: Path | None = None
) -> FormatGuess:
    """The format of a file or a folder.

    Args:
        path: the place.
        datasets: classes of the choices of `dataset`, by choice. Each says whether it knows the place
            (`Dataset.recognised`).
        limit: bytes from which on only a sample of tables is read; None: all rows are read.
        folder: a new folder for the sample, if there is a limit.

    Raises:
        DataError: nothing is there, no format fits, or several do.
    """
    place = path.expanduser().absolute()
    if not place.exists():
        raise DataError(Problem("PATH", str(path), "there is no such file or folder", "correct the path"))
    lines_of_choice = {
        choice: lines for choice, kind in datasets.items() if (lines := kind.recognised(place)) is not None
    }
    if len(lines_of_choice) > 1:
        raise DataError(
            Problem(
                "PATH",
                str(path),
                f"may be any of {', '.join(lines_of_choice)}",
                f"choose: gnnexp run dataset={next(iter(lines_of_choice))} dataset.path={path}",
            )
        )
    for choice, lines in lines_of_choice.items():
        read = [f"dataset={choice}", *lines]
        return FormatGuess(choice, [*read, f"dataset.path={hydra_text(str(place))}"] if not _with_path(lines) else read)
    if any(map(is_gconstruct, sorted(place.glob("*.json")) if place.is_dir() else [place])):
        raise DataError(_gconstruct_problem(place))
    sample = None if limit is None or folder is None else sample_of(place, limit, folder)
    tables = guess_tables(place if sample is None else sample.place, place)
    if tables is not None:
        return FormatGuess("tables", *tables, sample)
    raise DataError(
        Problem(
            "PATH",
            str(path),
            "no known format fits this place",
            "give a folder of tables (CSV, Parquet, …), or one of gnnexp list dataset; docs/howto/dataset.md",
        )
    )


def _gconstruct_problem(place: Path) -> Problem:
    """The problem of a JSON file of GraphStorm's gconstruct, or of its folder."""
    command, package = f"gnnexp run dataset=graphstorm dataset.path={hydra_text(str(place))}", "gnn_gconstruct"
    fix = command if is_installed(package) else f"{install_command(package)}; then {command}"
    return Problem("PATH", str(place), "has a JSON file of GraphStorm's gconstruct, which a plug-in reads", fix)


def _with_path(lines: Sequence[str]) -> bool:
    return any(line.startswith("dataset.path=") for line in lines)
