"""PipeGCN (Wan et al., ICLR 2022): full-graph training whose exchanges pass while the next rows are computed.

    before every layer but the first:  begin to exchange this epoch's rows of boundary vertices,
                                       and compute with those of `late` epochs before
    backwards:                         the same with the gradients of boundary rows

Features do not change, so those of the first layer are always fresh. What is under way when an epoch ends is waited for
in that epoch. With `late=0` it is NeutronStar's exchange of dependencies, to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from gnnexp.comm.arrival import Arrival
from gnnexp.comm.background import Background
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.plan import GraphFacts, Plan, Sizes
from gnnexp.job import Job
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.trainer import Trainer
from gnnexp.paradigms.vertices.checks import check_vertices, kept_rows, part_and_halo
from gnnexp.paradigms.vertices.edge_cut import EdgeCutTrainer


@dataclass(frozen=True)
class PipeGCN(Paradigm):
    """Training by vertices whose boundary rows come some epochs late.

    Attributes:
        late: epochs; 0 is exact, and waits for every exchange.
    """

    late: int = 1
    always_partitioned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.late < 0:
            raise ConfigError(Problem("paradigm.late", self.late, "must be 0 or more epochs", "paradigm.late=1"))

    def check(self, experiment: Experiment) -> list[Problem]:
        """One batch of everything, a part per rank."""
        return check_vertices(experiment, "pipegcn", Arrival("late", self.late), "paradigm.late")

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """A part and its halo, and the rows that are late."""
        late = Arrival("late", self.late)
        kept = kept_rows(experiment, facts, late)
        return Plan(experiment.num_ranks, drawn_from_graph(experiment, facts), approximates=late.approximates,
                    resident=part_and_halo(experiment, facts), needs=(kept,),
                    checkpoint_bytes=experiment.num_ranks * kept.num_bytes)

    def trainer(self, job: Job) -> Trainer[Any]:
        """Late exchanges run on a thread and a communicator of their own."""
        beside = job.once.of("beside", lambda: (Background(job.timer, job.device), job.comm.beside(job.device)))
        return EdgeCutTrainer(job, arrival=Arrival("late", self.late), beside=beside)
