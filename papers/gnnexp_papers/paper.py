"""What `gnnexp claims` asks of a paper: the entry points of this package (`pyproject.toml`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gnnexp.record.runs import RecordedRun
from gnnexp.reports.claims import Claims, Verdicts
from gnnexp_papers.claim import claims_of
from gnnexp_papers.page import evaluated, make_table, sweeps_of


@dataclass(frozen=True)
class PaperClaims(Claims):
    """The claims of one file in `claims/`.

    Attributes:
        paper: the file's name.
    """

    paper: str

    @property
    def sweeps(self) -> Sequence[str]:
        """The sweeps whose runs the claims need."""
        return sweeps_of(claims_of(self.paper))

    def verdicts(self, runs: Mapping[str, Sequence[RecordedRun]]) -> Verdicts:
        """Evaluate each claim."""
        outcomes = evaluated(claims_of(self.paper), runs)
        return Verdicts(make_table(outcomes), Counter(outcome.verdict for outcome in outcomes))


FASTSAMPLE, GSPLIT, HONGTU, NEUTRONTP, SDT_GNN = map(
    PaperClaims, ("fastsample", "gsplit", "hongtu", "neutrontp", "sdt_gnn")
)
