"""The groups `train` and `hardware` of the configuration as frozen dataclasses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# Largest number of columns of a row, and of ranks: both are counted in 32 bits.
MOST_COUNTED = (1 << 31) - 1
# How the dense products of layers round their factors (`train.matmul`).
Matmul = Literal["float32", "tf32", "bf16"]
# Type of the rows that hidden layers pass on (`train.activations`).
Activations = Literal["float32", "bf16"]
# Steps of a run before the step that is captured (`train.cuda_graph`).
WARM_UP_STEPS = 2
# What a run does if the preflight finds too little memory.
PREFLIGHT = ("refuse", "warn", "off")


@dataclass(frozen=True)
class TrainConfig:
    """`train`: hyper-parameters of training, the same for all systems.

    Attributes:
        epochs: number of passes over the training targets.
        batch_size: targets of a *global* batch, over all ranks; null = all training targets in one batch.
        batch_of: what `batch_size` counts in the configuration: targets of a global batch (`run`), targets per rank
            (`rank`), or targets of a global batch at full size (`full_graph`), which `dataset.scale` reduces. In an
            `Experiment`, it always counts the targets of a global batch.
        steps_per_epoch: largest number of global batches in an epoch, for trials; null = all.
        patience: training ends after this number of epochs without a better validation metric; null = after `epochs`.
        stop_below: one limit for each epoch, from the first on. Training ends after an epoch if the best validation
            metric so far is below its limit. An epoch with null, or after the last entry, has no limit.
        clip_norm: largest norm of all gradients together. Gradients with a larger norm are scaled down; null = never.
        weight_decay_on: layers to which `optimizer.weight_decay` applies: `all`, or only the `first` as in Kipf &
            Welling's GCN.
        eval_every: number of epochs between two evaluations; 0 = only after the last epoch; null = never (to measure
            only time, bytes and memory).
        eval_memory: bytes per rank that layer-wise inference may use. Half is for activations. If they need more, they
            are on disk, in one file per machine.
        overlap: sample and load batch i+1 while batch i trains; false gives the papers' additive breakdown.
        dtype: dtype of parameters and activations.
        matmul: how dense products of layers round their factors: not at all (`float32`), to TF32 (`tf32`,
            NVIDIA GPUs), or to bfloat16 (`bf16`). Sums and results are float32, forward and backward.
        activations: rows that a layer passes to the next one, and their gradients: as they are (`float32`: `dtype`), or
            rounded to bfloat16 and sent in two bytes per value (`bf16`).
        count_only: whether nothing is computed: the run counts the bytes, rounds, rows and edges that its ranks would
            record. They are virtual: one process runs all of them. Nothing is timed, evaluated or kept.
        cuda_graph: whether a step on the full graph is captured as a CUDA graph, which later steps launch again.
        shuffle: draw a new order of the training targets in every epoch.
        checkpoint_every: number of epochs between two checkpoints (the last epoch always has one); 0 = only after the
            signals SIGUSR2 and SIGTERM.
        checkpoints_kept: number of latest checkpoints that are kept.
    """

    epochs: int = 10
    batch_size: int | None = 1024
    batch_of: Literal["run", "rank", "full_graph"] = "run"
    steps_per_epoch: int | None = None
    patience: int | None = None
    stop_below: Sequence[float | None] | None = None
    clip_norm: float | None = None
    weight_decay_on: Literal["all", "first"] = "all"
    eval_every: int | None = 1
    eval_memory: int = 4 << 30
    overlap: bool = True
    dtype: Literal["float32", "float64"] = "float32"
    matmul: Matmul = "float32"
    activations: Activations = "float32"
    count_only: bool = False
    cuda_graph: bool = False
    shuffle: bool = True
    checkpoint_every: int = 1
    checkpoints_kept: int = 2


@dataclass(frozen=True)
class Links:
    """Bandwidths between memories, in bytes per second and direction; null if unknown.

    Attributes:
        h2d: between a host and one of its devices.
        d2d: between two devices of a host.
        network: between two hosts.
        d2h: from a device to its host, if measured separately.
        duplex: sum of both directions between a host and its device, if both are used at once.
        h2d_gather: of rows that are gathered on the host and copied to the device.
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

    The keys from `links` on describe the machine, for `paradigm.dependency=hybrid` and `gnnexp plan`. They slow nothing
    down. Null means unknown.

    Attributes:
        nodes: number of machines.
        workers: ranks per machine.
        device: `cpu`, `cuda`, or `auto` (cuda if there is a GPU; the record says which was chosen).
        threads: threads of each rank; 0 = the machine's cores divided by its ranks.
        allocator: `pooled` keeps freed memory for the next batch (glibc's mmap_max=0, huge pages), which makes DGL's
            epoch a tenth shorter on 2 cores. `system` does not change the environment.
        device_memory: bytes that each rank may use on its device, or null for all. With `device=cpu`, it limits the
            emulated device tier.
        timeout_s: seconds without an answer after which a collective call or the rendezvous fails.
        max_restarts: how often a failed run starts again from its last checkpoint.
        interface: network interface of exchanges between machines (`ib0`); null = the interface of the host's name. A
            local run uses only the loopback interface.
        detach: submit and return (SLURM). `gnnexp status`, `logs` and `cancel` work on the run directory.
        throttle: bytes per second and direction to which the exchanges of a rank are slowed down, or null. This is
            emulated, and the record says so.
        throttle_h2d: bytes per second and direction to which crossings between host tier and device tier are slowed
            down on CPU, or null. This is emulated, and the record says so.
        links: bandwidths of the machine.
        flops: float32 operations per second of a rank's device.
        flops_tf32: the same operations per second, with factors rounded to TF32.
        gather: bytes of rows per second that aggregation gathers on a rank's device.
        l2: bytes of gathered rows per second if the rows are in the device's cache.
        stream: bytes per second that elementwise work reads and writes.
        sampling: edges that a rank samples per second.
        latency: seconds of an exchange in addition to the time of its bytes.
        step_s: seconds of a training step in addition to the time of its work.
        launch_s: seconds from one kernel launch to the next.
        host_memory: bytes of RAM of a node.
        source: source of these numbers.
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
    throttle_h2d: float | None = None
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
        """Number of ranks on all machines."""
        return self.nodes * self.workers
