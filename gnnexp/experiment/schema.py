"""The fixed groups of the configuration as frozen dataclasses: what every rank relies on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The most columns of a row, and the most ranks: both are counted in 32 bits.
MOST_COUNTED = (1 << 31) - 1
# How strictly the preflight is taken.
PREFLIGHT = ("refuse", "warn", "off")


@dataclass(frozen=True)
class TrainConfig:
    """`train`: hyper-parameters of the optimisation, equal for every system.

    Attributes:
        epochs: passes over the training vertices.
        batch_size: targets of a *global* batch, over all ranks; null = all training vertices in one batch.
        batch_of: what `batch_size` counts in the configuration: `run` (a global batch), `rank` (as many per rank), or
            `full_graph` (a global batch on the graph at its full size: shrinks with `dataset.scale`). The
            `batch_size` of an `Experiment` is always that of a global batch.
        steps_per_epoch: the most global batches of an epoch, for trials; null = all of them.
        patience: training ends after so many epochs without a better validation metric; null = after `epochs`.
        clip_norm: the largest norm of all gradients together; larger ones are scaled down to it; null = no bound.
        weight_decay_on: which layers `optimizer.weight_decay` applies to; Kipf & Welling's GCN penalises the first
            layer only.
        eval_every: epochs between two evaluations, 0 = only after the last epoch, null = never (where only time, bytes
            and memory are asked for).
        eval_memory: bytes that activations of layer-wise inference may take per rank before they go to disk, into one
            file per machine.
        overlap: sample and load batch i+1 while batch i trains; false gives the papers' additive breakdown.
        dtype: dtype of parameters and activations.
        shuffle: draw a new order of the training vertices in every epoch.
        checkpoint_every: epochs between two checkpoints (the last epoch has one too), 0 = none but those asked for by
            SIGUSR2 or SIGTERM.
        checkpoints_kept: how many checkpoints stay, the latest ones.
    """

    epochs: int = 10
    batch_size: int | None = 1024
    batch_of: Literal["run", "rank", "full_graph"] = "run"
    steps_per_epoch: int | None = None
    patience: int | None = None
    clip_norm: float | None = None
    weight_decay_on: Literal["all", "first"] = "all"
    eval_every: int | None = 1
    eval_memory: int = 4 << 30
    overlap: bool = True
    dtype: Literal["float32", "float64"] = "float32"
    shuffle: bool = True
    checkpoint_every: int = 1
    checkpoints_kept: int = 2


@dataclass(frozen=True)
class Links:
    """What connects memories, in bytes per second and direction; null where nobody says.

    Attributes:
        h2d: between a host and one of its devices.
        d2d: between two devices of a host.
        network: between two hosts.
        d2h: from a device to its host, where that was measured too.
        duplex: both directions between a host and its device together, used at once.
        h2d_gather: rows that are gathered on the host and brought to the device.
    """

    h2d: float | None = None
    d2d: float | None = None
    network: float | None = None
    d2h: float | None = None
    duplex: float | None = None
    h2d_gather: float | None = None


@dataclass(frozen=True)
class HardwareConfig:
    """`hardware`: where ranks run.

    Attributes:
        nodes: machines.
        workers: ranks per machine.
        device: `cpu`, `cuda`, or `auto` (cuda where there is one; the record says which was chosen).
        threads: threads of each rank, 0 = the machine's cores divided by its ranks.
        allocator: `pooled` keeps freed memory for the next batch (glibc's mmap_max=0, huge pages: a tenth off DGL's
            epoch on 2 cores), `system` leaves the environment as it is.
        device_memory: bytes that each rank may use on its device (with `device=cpu`, of the emulated device tier), or
            null for what there is.
        timeout_s: after how long without an answer a collective or the rendezvous gives up.
        max_restarts: how often a run that failed is started again from its last checkpoint.
        interface: network interface of the exchanges between machines (`ib0`), null = the one of the host's name; a
            local run uses the loopback only.
        detach: submit and return (SLURM): `gnnexp status`, `logs` and `cancel` work on the run directory.
        throttle: bytes per second and direction that a rank's exchanges are slowed down to (emulated, and recorded as
            such), or null.
        links: bandwidths that the machine is said to have. These and the following describe, for
            `paradigm.dependency=hybrid` and `gnnexp plan`; nothing is slowed down to them.
        flops: float32 operations per second of a rank's device, as said.
        flops_tf32: the same operations with factors rounded to TF32, as said.
        gather: bytes of gathered rows per second of a rank's device (as aggregation reads them), as said.
        l2: the same of rows that lie in the device's cache, as said.
        stream: bytes per second that elementwise work reads and writes, as said.
        sampling: edges that a rank draws per second, as said.
        latency: seconds of an exchange beside its bytes, as said.
        step_s: seconds of a training step beside its work, as said.
        launch_s: seconds from one launch of a kernel to the next, as said.
        host_memory: bytes of RAM of a node, as said.
        source: where that is said.
    """

    nodes: int = 1
    workers: int = 1
    device: Literal["cpu", "cuda", "auto"] = "auto"
    threads: int = 0
    allocator: Literal["pooled", "system"] = "pooled"
    device_memory: int | None = None
    timeout_s: float = 300.0
    max_restarts: int = 0
    interface: str | None = None
    detach: bool = False
    throttle: float | None = None
    links: Links | None = None
    flops: float | None = None
    gather: float | None = None
    stream: float | None = None
    sampling: float | None = None
    latency: float | None = None
    step_s: float | None = None
    flops_tf32: float | None = None
    l2: float | None = None
    launch_s: float | None = None
    host_memory: int | None = None
    source: str | None = None

    @property
    def num_ranks(self) -> int:
        """Ranks over all machines."""
        return self.nodes * self.workers
