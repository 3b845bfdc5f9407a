"""What a way of training on several devices has to say for itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from gnnexp.errors import Problem
from gnnexp.experiment.needs import Drawn, Need, Resident
from gnnexp.graph.graph import Graph
from gnnexp.graph.parts import Parts
from gnnexp.job import Job
from gnnexp.measure.phases import Phase
from gnnexp.models.model import Model
from gnnexp.paradigms.checks import num_ranks, pairs, store_of

B = TypeVar("B")


class Paradigm(ABC, Generic[B]):
    """One way of training; `B` is what one iteration of a rank works on.

    Attributes:
        exact: same gradients as serial training on the same batch, up to float error.
        approximates: what is approximated where `exact` is False; recorded and printed.
        needs_partition: whether it always works on a partition (see `wants_partition`).
        works_on_parts: whether ranks work on parts cut out of the graph (`gnnexp.graph.parts`), instead of the graph.
        takes_vertex_cut: whether edges of a vertex may have different owners (`Partitioner.vertex_cut`).
        resumes_within_epoch: whether `batches` can begin at any step; if not, a run stops at the end of an epoch.
        evaluation_memory: bytes of a rank that evaluation must do with, None where `train.eval_memory` alone says it.
    """

    exact: bool
    approximates: str = ""
    needs_partition: ClassVar[bool] = False
    works_on_parts: ClassVar[bool] = False
    takes_vertex_cut: ClassVar[bool] = False
    resumes_within_epoch: ClassVar[bool] = False
    evaluation_memory: int | None = None

    @property
    def untimed(self) -> frozenset[Phase]:
        """Phases that are parts of others here and cannot be told apart: not recorded, rather than recorded as 0."""
        return frozenset()

    @property
    def updates_on_host(self) -> bool:
        """Whether features stay on the host, where they are worked on, instead of going to the device."""
        return False

    def wants_partition(self, config: Mapping[str, Any]) -> bool:
        """Whether the launcher prepares a partition for the resolved `config`."""
        store = store_of(config)
        return self.needs_partition or (store is not None and store.needs_partition)

    def num_parts(self, config: Mapping[str, Any], graph: Graph) -> int:
        """Parts of the partition, where the partitioner is not told; as many consecutive ranks share one."""
        return num_ranks(config)

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """Conflicts of this paradigm with the other choices in the resolved `config`."""
        return []

    def check_data(self, config: Mapping[str, Any], graph: Graph) -> list[Problem]:
        """What of the resolved `config` does not fit `graph`."""
        return []

    def check_parts(self, config: Mapping[str, Any], graph: Graph, parts: Parts) -> list[Problem]:
        """What of the resolved `config` does not fit the parts that have been cut, where `works_on_parts`."""
        return []

    def needs(self, config: Mapping[str, Any], graph: Graph, parts: Parts | None = None) -> Iterable[Need]:
        """What a rank will need beside graph, features, batches and model, for the preflight.

        `parts` are those of a paradigm that works on parts; None: they are not cut yet.
        """
        return ()

    def checkpoint_bytes(self, config: Mapping[str, Any], graph: Graph) -> int:
        """Bytes that `state_dict` of all ranks adds to a checkpoint, beside what the preflight knows; an upper bound.

        The preflight knows of parameters, optimizer states, trained rows, and the models of `Drawn.models`.
        """
        return 0

    def drawn_from(self, config: Mapping[str, Any], graph: Graph, parts: Parts | None = None) -> Drawn:
        """What a rank draws its batches from: the graph, unless it works on `parts`."""
        targets, seeds = int(graph.splits.train.numel()), 1
        if pairs(config) and "train" in graph.links:  # both ends of every link and of its negatives
            targets, seeds = int(graph.links["train"].shape[0]), 2 * (1 + int(config["task"].get("negatives", 1)))
        size = config["train"].get("batch_size")
        share = min(graph.num_nodes, seeds * -(-min(size or targets, targets) // num_ranks(config)))
        return Drawn(graph.num_nodes, graph.num_edges, share, graph.num_nodes)

    def resident_share(self, config: Mapping[str, Any], graph: Graph) -> Resident | None:
        """What a rank will have at once, where no batches are drawn; None where they are."""
        return None

    @abstractmethod
    def setup(self, job: Job) -> None:
        """Take the parts; ranks may communicate."""

    def take_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer of `module`, before training; for who keeps several states of it."""

    @property
    @abstractmethod
    def module(self) -> nn.Module:
        """Whose parameters the optimizer updates."""

    @abstractmethod
    def batches(self, epoch: int, first: int = 0) -> Generator[B, None, None]:
        """This rank's share of every global batch of the epoch from step `first` on, in order; as many on every rank.

        A `first` above 0 is asked for only where `resumes_within_epoch`.
        """

    @abstractmethod
    def forward_backward(self, batch: B) -> tuple[Tensor, int]:
        """Gradients of the *global* mean loss; returns (this rank's loss sum, this rank's number of targets)."""

    @abstractmethod
    def synchronize(self) -> None:
        """Make gradients the same wherever their parameters are replicated."""

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer's step, of what is trained beside `module` too; gradients are cleared."""
        optimizer.step()
        self.clear_gradients()

    @abstractmethod
    def clear_gradients(self) -> None:
        """Before the next iteration."""

    @abstractmethod
    def end_epoch(self) -> dict[str, int]:
        """Work counters of the epoch (`edges_sampled`, `features_loaded_host`, ...); starts them afresh."""

    def batch_counts(self) -> dict[str, list[list[int]]]:
        """Counts of every batch by layer (`edges`, `cross_edges`), `[steps][layers]`; then starts afresh."""
        return {}

    def forget_batches(self) -> None:
        """Drop what was kept of earlier batches, so that the next epoch counts as the first one."""

    @abstractmethod
    def evaluation_model(self) -> Model:
        """The trained model for layer-wise inference."""

    def memory(self) -> dict[str, int]:
        """Bytes this rank holds by kind: `topology_bytes`, `vertex_bytes`, `buffers_bytes`."""
        return {}

    def facts(self) -> Mapping[str, Any]:
        """What it chose for the user and why, and what it counted once, in `setup`: plain values; recorded."""
        return {}

    def slices(self) -> Mapping[str, tuple[int, slice]]:
        """Parameters of which this rank has a slice: by name the dimension, and where the slice lies in the whole.

        Ranks have consecutive slices, in order; all other parameters are the same on every rank.
        """
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What this rank knows beyond model and optimizer that a resumed run needs: tensors and plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave on this rank.

        A run whose ranks have state of their own goes on with the same number of ranks only.
        """
