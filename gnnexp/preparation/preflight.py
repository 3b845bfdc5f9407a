"""The preflight: estimates line by line what a run needs of each memory, and checks whether there is enough.

Lines that depend on the graph are upper bounds (a batch cannot have more vertices than the graph). Lines that depend on
the machine are typical values (the memory of an interpreter with its libraries). After the run, the measured values are
in the record (`memory/*`).
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

from gnnexp.components.facts import GraphFacts, Memory, Need
from gnnexp.components.plan import Plan, Resident, activation_bytes
from gnnexp.components.schema import TrainConfig
from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.optimization import entries_of
from gnnexp.feature_stores.base import Share
from gnnexp.models.layer import Layer
from gnnexp.models.model import ModelOptions
from gnnexp.paradigms.external.command import external_command
from gnnexp.paradigms.loops.largest_batch import LargestBatch

# Peak of a rank with very little data (digits, 2 ranks, 5 runs: 463 to 466 MB; 296 MB right after the imports).
_INTERPRETER = 460_000_000
# Copies of the parameters per model of a part: values and Adam's two moments; averaging also needs float64 values.
_KEPT_MODEL = 5
# Bytes of an epoch's line in `epochs.jsonl`: for metrics, for each rank, and for each step's loss and layer counts.
# Measured with digits and 2 ranks: 3.2 KB, 0.9 KB, 20 bytes per loss and 30 bytes per layer.
_METRICS, _OF_RANK, _OF_STEP = 5_000, 1_500, 40
# `result.json` repeats all lines with indentation. While it is written again, it exists twice.
_COPIES = 4
# Bytes of job.json, config.yaml, status, logs, and a figure of 41 KB.
_OTHER_FILES = 200_000


@dataclass(frozen=True)
class MemoryEstimate:
    """All memory needs of one machine.

    Attributes:
        needs: the lines of the estimate.
        ranks: number of ranks of the machine.
        device_is_host: whether the device tier is emulated in RAM.
    """

    needs: tuple[Need, ...]
    ranks: int
    device_is_host: bool

    def total(self, place: Memory) -> int:
        """Bytes that a machine needs of `place`, or one rank of its device."""
        return sum(
            need.num_bytes * (self.ranks if need.per_rank and place != "device" else 1) for need in self._at(place)
        )

    def lines(self, place: Memory) -> list[str]:
        """The lines of the total, largest first."""
        chosen = sorted(self._at(place), key=lambda need: -need.num_bytes * (self.ranks if need.per_rank else 1))
        return [
            f"{as_text(need.num_bytes)}{f' x {self.ranks} ranks' if need.per_rank and place != 'device' else ''}  "
            f"{need.what}"
            for need in chosen
            if need.num_bytes
        ]

    def _at(self, place: Memory) -> list[Need]:
        return [
            need
            for need in self.needs
            if need.place == place or (place == "host" and need.place == "device" and self.device_is_host)
        ]


def estimate_memory(experiment: Experiment, facts: GraphFacts, plan: Plan, graph_files: int) -> MemoryEstimate:
    """The memory that a run needs of a machine.

    Args:
        experiment: a checked experiment.
        facts: facts of its graph.
        plan: plan of its paradigm. If parts are not cut yet, the plan assumes parts of equal size.
        graph_files: bytes of the graph's files.
    """
    if external_command(experiment) is not None:
        return _of_command(experiment, facts, plan, graph_files)
    if experiment.train.count_only:
        return _of_counting(experiment, facts, plan, graph_files)
    hardware, train = experiment.hardware, experiment.train
    model, sampler, store = experiment.model, experiment.sampler, experiment.feature_store
    itemsize = torch.empty(0, dtype=getattr(torch, train.dtype)).element_size()
    drawn, resident, row = plan.drawn, plan.resident, facts.row_bytes(itemsize)
    held = store.row_bytes(facts, itemsize)
    batch = LargestBatch.of(drawn, sampler, model)
    parameters = _parameters(facts, model) * itemsize
    num_owners = plan.num_parts or experiment.num_ranks
    sampled = drawn.edges if sampler.topology == "replicated" else -(-drawn.edges // num_owners)
    cache = 0 if store.cache is None or not row else held * store.cache.held_rows(experiment.setting, facts, held)
    groups = max(1, hardware.workers // max(1, experiment.paradigm.ranks_together(experiment)))
    needs = [
        Need("the graph's files, mapped", "shared", graph_files, per_rank=False),
        Need("interpreter and libraries", "host", _INTERPRETER),
        *store.needs(facts, held, Share(drawn.held, num_owners, groups)),
        *sampler.needs(facts, drawn.edges, num_owners, _occurrence(facts, model, drawn.edges)),
        Need("numbers of parallel edges", "host", _occurrence(facts, model, sampled)),
        Need("the sampler's tables of vertices", "host", 4 * drawn.held * max(1, sampler.threads)),
        Need("feature cache", "device", cache),
        *(
            _resident_needs(resident, model, row, itemsize)
            if resident
            else _batch_needs(
                batch, 1 + (sampler.prefetch if train.overlap and sampler.threads else 0), model, row, itemsize
            )
        ),
        *(_weight_needs(facts, resident.edges if resident else batch.edges, model, itemsize) if facts.weighted else []),
        Need("parameters, gradients, optimizer", "device", (2 + entries_of(experiment.optimizer)) * parameters),
        Need(f"{drawn.models} models of parts", "device", _KEPT_MODEL * drawn.models * parameters),
        Need("layer-wise evaluation", "host", _evaluation(facts, model, train, itemsize)),
        *_disk_needs(experiment, facts, plan, parameters, itemsize),
        Need("which vertices evaluation reaches", "host", 0 if train.eval_every is None else 13 * facts.num_nodes),
        *experiment.task.needs(experiment.setting, facts),
    ]
    return MemoryEstimate(
        (*needs, *_partition_needs(experiment, facts, plan), *plan.needs), hardware.workers, hardware.device != "cuda"
    )


def _disk_needs(
    experiment: Experiment, facts: GraphFacts, plan: Plan, parameters: int, itemsize: int
) -> Iterator[Need]:
    """What a run writes: checkpoints with `parameters` bytes of parameters, records, and files of evaluation."""
    train, hardware, model = experiment.train, experiment.hardware, experiment.model
    trained = 3 * facts.num_nodes * facts.row_bytes(itemsize) if facts.trains_features else 0
    # The checkpoint of the best epoch is kept too. Without `checkpoint_every` there is one checkpoint if a run stops.
    checkpoints = 1 + (train.checkpoints_kept + (train.eval_every is not None) if train.checkpoint_every else 0)
    each = 3 * parameters * (1 + plan.drawn.models * hardware.num_ranks) + trained + plan.checkpoint_bytes
    in_files = hardware.nodes * _evaluation_files(facts, model, train, itemsize)
    yield Need("checkpoints", "disk", checkpoints * each, per_rank=False)
    yield Need("records and figures", "disk", _records(experiment, facts, model.layers), per_rank=False)
    yield Need("layer-wise evaluation in files", "disk", in_files, per_rank=False)


def _of_command(experiment: Experiment, facts: GraphFacts, plan: Plan, graph_files: int) -> MemoryEstimate:
    """What gnnexp needs to follow an external command. Nothing is known about the command's own memory."""
    return MemoryEstimate(
        (
            Need("the graph's files, mapped", "shared", graph_files, per_rank=False),
            Need("interpreter and libraries, without the external command", "host", _INTERPRETER),
            Need("records and figures", "disk", _records(experiment, facts, 0), per_rank=False),
            *_partition_needs(experiment, facts, plan),
        ),
        experiment.hardware.workers,
        experiment.hardware.device != "cuda",
    )


def _of_counting(experiment: Experiment, facts: GraphFacts, plan: Plan, graph_files: int) -> MemoryEstimate:
    """What one process needs that runs all ranks, whose rows have no values. Rows of features are never read."""
    model, sampler, drawn = experiment.model, experiment.sampler, plan.drawn
    num_owners = plan.num_parts or experiment.num_ranks
    sampled = drawn.edges if sampler.topology == "replicated" else -(-drawn.edges // num_owners)
    edges = plan.resident.edges if plan.resident else LargestBatch.of(drawn, sampler, model).edges
    features = facts.num_nodes * facts.row_bytes(4)
    cached = 0 if experiment.feature_store.cache is None else 5 * facts.num_nodes
    return MemoryEstimate(
        (
            Need(
                "the graph's files without features, mapped", "shared", max(0, graph_files - features), per_rank=False
            ),
            Need("interpreter and libraries", "host", _INTERPRETER, per_rank=False),
            *sampler.needs(facts, drawn.edges, num_owners, _occurrence(facts, model, drawn.edges)),
            Need("numbers of parallel edges", "host", _occurrence(facts, model, sampled)),
            Need("the samplers' table of vertices", "host", 4 * drawn.held, per_rank=sampler.topology == "partitioned"),
            Need("which rows the cache holds", "host", cached),
            Need(f"blocks of {edges:,} edges", "host", (16 if plan.resident else 8) * edges),
            Need("records", "disk", _records(experiment, facts, model.layers), per_rank=False),
            *_partition_needs(experiment, facts, plan),
        ),
        experiment.num_ranks,
        experiment.hardware.device != "cuda",
    )


def _partition_needs(experiment: Experiment, facts: GraphFacts, plan: Plan) -> list[Need]:
    """Memory to make the partition, if the run needs one."""
    partitioner = experiment.partitioner
    if plan.num_parts is None:
        return []
    return [
        Need(
            f"making the partition ({partitioner.method})",
            "host",
            partitioner.bytes_per_edge * facts.num_edges + 8 * facts.num_nodes,
            per_rank=False,
        )
    ]


def _batch_needs(batch: LargestBatch, ahead: int, model: ModelOptions, row: int, itemsize: int) -> list[Need]:
    """Needs of sampled batches, of which some are prepared ahead."""
    rows = sum(batch.vertices[:-1])
    return [
        Need(f"{ahead} batches: features of {batch.inputs:,} vertices each", "device", ahead * batch.inputs * row),
        Need(f"{ahead} batches: blocks of {batch.edges:,} edges each", "device", ahead * 8 * batch.edges),
        Need("activations and their gradients", "device", _activations(rows, batch.edges, model, itemsize)),
    ]


def _resident_needs(resident: Resident, model: ModelOptions, row: int, itemsize: int) -> list[Need]:
    """Needs of full-graph training: a block has 4 bytes per edge, its transpose 12."""
    rows = (model.layers - 1) * resident.rows
    return [
        Need(f"features of {resident.inputs:,} vertices", "device", resident.inputs * row),
        Need(
            f"topology of {resident.edges:,} edges, with its transpose",
            "device",
            16 * resident.edges + 40 * resident.rows,
        ),
        Need("activations and their gradients", "device", _activations(rows, resident.edges, model, itemsize)),
    ]


def _weight_needs(facts: GraphFacts, edges: int, model: ModelOptions, itemsize: int) -> list[Need]:
    """Blocks' weights, and what a layer makes of them; sums of float64 for every vertex of the graph.

    A layer holds a weight as a value, and its product with its own weights; if these are not static, also gradients.
    """
    layer = model.example_layer
    own = layer.num_weights if isinstance(layer, Layer) else 1
    values = 1 + own * (2 if isinstance(layer, Layer) and layer.traits.kind != "static" else 1)
    return [
        Need(f"weights of {edges:,} edges", "device", (4 + values * itemsize) * edges),
        Need("sums of edge weights", "host", 8 * facts.num_edges + 17 * facts.num_nodes),
    ]


def _activations(rows: int, edges: int, model: ModelOptions, itemsize: int) -> int:
    """Bytes of the rows of all layers, and of values per edge (attention)."""
    return activation_bytes(rows, edges, hidden=model.hidden, per_edge=model.values_per_edge, itemsize=itemsize)


def _parameters(facts: GraphFacts, model: ModelOptions) -> int:
    """An upper bound of the number of parameters."""
    dims = [facts.num_features, *[model.hidden] * (model.layers - 1), facts.num_classes]
    return model.num_matrices(facts.num_relations) * sum(a * b + b for a, b in pairwise(dims))


def _occurrence(facts: GraphFacts, model: ModelOptions, num_edges: int) -> int:
    """Bytes of `Graph.occurrence` for the edges from which a rank samples; 0 if there are no parallel edges."""
    if not model.needs.edge_identity:
        return 0
    return 4 * num_edges if facts.parallel_edges else 0


def _evaluation(facts: GraphFacts, model: ModelOptions, train: TrainConfig, itemsize: int) -> int:
    """Bytes of two layers' activations in memory, at most `train.eval_memory`; more activations are on disk."""
    if train.eval_every is None:
        return 0
    return min(_two_layers(facts, model, itemsize), train.eval_memory)


def _evaluation_files(facts: GraphFacts, model: ModelOptions, train: TrainConfig, itemsize: int) -> int:
    """Bytes of two layers' activations in files of each machine, if they do not fit into half of the limit."""
    wanted = _two_layers(facts, model, itemsize)
    return wanted if train.eval_every is not None and 2 * wanted > train.eval_memory else 0


def _two_layers(facts: GraphFacts, model: ModelOptions, itemsize: int) -> int:
    return 2 * facts.num_nodes * max(model.hidden if model.layers > 1 else 0, facts.num_classes) * itemsize


def _records(run: Experiment, facts: GraphFacts, layers: int) -> int:
    """An upper bound of the bytes that a run writes about its epochs."""
    examples = facts.num_train if facts.num_links is None else facts.num_links
    steps = 1 if run.train.batch_size is None else math.ceil(examples / run.train.batch_size)
    line = _METRICS + _OF_RANK * run.hardware.num_ranks + _OF_STEP * (1 + layers) * steps
    return _OTHER_FILES + _COPIES * run.train.epochs * line


def memory_problems(estimate: MemoryEstimate, experiment: Experiment, run_dir: Path) -> list[Problem]:
    """One Problem per memory that is too small, with its itemised estimate."""
    memories: list[tuple[Memory, int | None, str]] = [
        (
            "host",
            experiment.launcher.node_bytes(),
            "fewer hardware.workers, a smaller train.batch_size or sampler.fanouts",
        ),
        ("device", experiment.hardware.device_memory, "a smaller feature cache, train.batch_size or sampler.fanouts"),
        ("disk", _free_disk(run_dir), "another hydra.run.dir, or train.checkpoints_kept=1"),
    ]
    problems = []
    for place, available, fix in memories:
        needed = estimate.total(place)
        if available is not None and needed > available:
            lines = "\n      ".join(estimate.lines(place))
            problems.append(
                Problem(
                    "preflight",
                    f"{as_text(needed)} of {place} memory",
                    f"{as_text(available)} are available:\n      {lines}",
                    f"{fix}; preflight=warn to start the run anyway",
                )
            )
    return problems


def _free_disk(run_dir: Path) -> int:
    folder = next(folder for folder in run_dir.absolute().parents if folder.exists())
    return shutil.disk_usage(folder).free


def as_text(num_bytes: float) -> str:
    """Bytes with a decimal unit: `1.2 GB`."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if num_bytes < 1000 or unit == "TB":
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    raise AssertionError("the last unit ends the loop")


def summary(found: MemoryEstimate) -> str:
    """One line with the total of each memory."""
    places: Sequence[Memory] = ("host", "device", "shared", "disk")
    return "preflight: " + ", ".join(f"{place} {as_text(found.total(place))}" for place in places)
