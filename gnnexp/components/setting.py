"""What the options of one group may know about the other choices of a run."""

from __future__ import annotations

from dataclasses import dataclass

from gnnexp.components.optimizer import OptimizerChoice
from gnnexp.components.schema import HardwareConfig, TrainConfig
from gnnexp.errors import Refusal


@dataclass(frozen=True, eq=False)
class Setting:
    """The other choices of a run, as far as components depend on them.

    An `Experiment` makes it (`Experiment.setting`). So these components know nothing of each other, nor of paradigms.

    Attributes:
        train: hyper-parameters.
        hardware: where ranks run.
        optimizer: the chosen optimizer.
        ranks_together: number of consecutive ranks that share the parts of one partition.
        reads_rows_on_gpu: whether each rank reads whole rows for its batches, which may be on its GPU.
        reads_narrow_rows: whether all rows come from the feature store onto the device, which may widen them there.
        sampling_on_gpu: why batches cannot be made on a GPU; None: a sampler may make them there.
        rounded_rows: why rows between layers cannot be in bfloat16 (`train.activations`); None: they can.
        kernel: kernels of the model (`model.kernel`).
        edge_identity: whether the model needs the identity of edges.
        scales: whether the sampler rescales messages.
        sampler: dotted name of the sampler's class, for messages.
        wants_partition: whether the run needs a partition.
        takes_vertex_cut: whether in-edges of a vertex may have different owners.
        even_shares: whether each rank trains an equal share of every batch, whoever owns its targets (`assign=even`).
        paradigm: name of the paradigm's module, for messages.
    """

    train: TrainConfig
    hardware: HardwareConfig
    optimizer: OptimizerChoice
    ranks_together: int
    reads_rows_on_gpu: bool
    reads_narrow_rows: bool
    sampling_on_gpu: Refusal | None
    rounded_rows: Refusal | None
    kernel: str
    edge_identity: bool
    scales: bool
    sampler: str
    wants_partition: bool
    takes_vertex_cut: bool
    even_shares: bool
    paradigm: str

    @property
    def num_ranks(self) -> int:
        """Number of ranks on all machines."""
        return self.hardware.num_ranks

    @property
    def itemsize(self) -> int:
        """Bytes of a value of the run's dtype."""
        return {"float32": 4, "float64": 8}[self.train.dtype]
