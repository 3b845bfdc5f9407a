"""PipeGCN (Wan et al., ICLR 2022): full-graph training that overlaps exchanges with the computation of the next rows.

    before every layer but the first:  Start the exchange of this epoch's rows of boundary vertices.
                                       Compute with the rows of `late` epochs before.
    in the backward pass:              Do the same with the gradients of boundary rows.

Features do not change, so the rows of the first layer are always fresh. At the end of an epoch, every rank waits for
the exchanges that are not finished. With `late=0` it equals NeutronStar's exchange of dependencies to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from gnnexp.comm.arrival import Arrival
from gnnexp.comm.background import Background
from gnnexp.components.facts import GraphFacts
from gnnexp.components.plan import Plan, Sizes
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.trainer import Trainer
from gnnexp.paradigms.vertices.checks import kept_rows, part_and_halo, vertex_problems
from gnnexp.paradigms.vertices.edge_cut import EdgeCutTrainer


@dataclass(frozen=True)
class PipeGCN(Paradigm):
    """Vertex-parallel training with boundary rows that are some epochs late.

    Attributes:
        late: number of epochs. 0 is exact and waits for every exchange.
    """

    late: int = 1
    always_partitioned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.late < 0:
            raise ConfigError(Problem("paradigm.late", self.late, "must be 0 or more epochs", "paradigm.late=1"))

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts with the rules of vertex parallelism: one batch of all targets, one part for each rank."""
        return vertex_problems(experiment, "pipegcn", Arrival("late", self.late), "paradigm.late")

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """The plan: each rank holds a part, its halo, and the late rows."""
        late = Arrival("late", self.late)
        kept = kept_rows(experiment, facts, late)
        return Plan(
            experiment.num_ranks,
            drawn_from_graph(experiment, facts),
            approximates=late.approximates,
            resident=part_and_halo(experiment, facts),
            needs=(kept,),
            checkpoint_bytes=experiment.num_ranks * kept.num_bytes,
        )

    def trainer(self, job: Job) -> Trainer[Any]:
        """A trainer whose late exchanges have their own thread and communicator."""
        background = job.once.of(
            "background", lambda: (Background(job.timer, job.device), job.comm.clone_for_thread(job.device))
        )
        return EdgeCutTrainer(job, arrival=Arrival("late", self.late), background=background)
