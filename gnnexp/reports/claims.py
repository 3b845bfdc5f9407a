"""Claims of papers: what a package of claims offers, and which packages are installed.

A package names each of its papers in its entry points, in the group `gnnexp.claims`:

    [project.entry-points."gnnexp.claims"]
    my_paper = "my_package.claims:MY_PAPER"

`MY_PAPER` is a `Claims`. `gnnexp claims my_paper` then shows its verdicts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnexp.errors import ConfigError, Problem
from gnnexp.provenance.installed import clash_problem, installed_entries
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.tables.table import ReportTable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "gnnexp.claims"


@dataclass(frozen=True)
class Verdicts:
    """What runs show of the claims of one paper.

    Attributes:
        table: one row per claim. A terminal shows the first columns; files have all.
        counts: number of claims by verdict, such as `holds`.
    """

    table: ReportTable
    counts: Mapping[str, int]


class Claims(ABC):
    """The claims of one paper."""

    @property
    @abstractmethod
    def sweeps(self) -> Sequence[str]:
        """Names of the sweeps whose runs decide the claims."""

    @abstractmethod
    def verdicts(self, runs: Mapping[str, Sequence[RecordedRun]]) -> Verdicts:
        """The verdicts on all claims.

        Args:
            runs: the ended runs of each sweep, by its name. A sweep that was not run is missing.
        """


def installed_papers() -> dict[str, dict[str, EntryPoint]]:
    """The entry points of each paper, by the distribution that names it. Nothing is imported."""
    return installed_entries(GROUP)


def load_claims(paper: str, entries: Mapping[str, EntryPoint]) -> Claims:
    """Import the claims of a paper.

    Args:
        paper: the paper's name.
        entries: its entry points, as of `installed_papers`.

    Raises:
        ConfigError: several distributions name the paper, its module cannot be imported, or it is no `Claims`.
    """
    key = f"claims {paper}"
    if clash := clash_problem(key, entries, "claims"):
        raise ConfigError(clash)
    (distribution, entry), fix = *entries.items(), "upgrade the package {0}, or: pip uninstall {0}"
    try:
        claims = entry.load()
    except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
        why = f"the package {distribution} cannot load it: {type(error).__name__}: {error}"
        raise ConfigError(Problem(key, entry.value, why, fix.format(distribution))) from error
    if not isinstance(claims, Claims):
        why = f"is a {type(claims).__name__}; the package {distribution} must name a gnnexp.reports.claims.Claims"
        raise ConfigError(Problem(key, entry.value, why, fix.format(distribution)))
    return claims
