"""Inference and evaluation in one process, with the code that evaluates a run (`gnnexp.training.evaluate`)."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import Environment
from gnnexp.components.plan import Drawn, Plan
from gnnexp.experiment.experiment import Experiment
from gnnexp.feature_stores.embedding import EmbeddingStore
from gnnexp.feature_stores.local import LocalOptions
from gnnexp.files.disk import in_words, writing
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.measure.phases import PhaseTimer
from gnnexp.models.model import Model
from gnnexp.paradigms.job import Job
from gnnexp.tasks.base import Task
from gnnexp.tasks.decoders import Decoder
from gnnexp.tasks.ranking import Scorer, pair_scores
from gnnexp.tiers.tier import DeviceTier
from gnnexp.training.evaluate import Evaluation

if TYPE_CHECKING:
    from gnnexp.paradigms.trainer import Trainer


@dataclass(frozen=True, eq=False)
class InferenceComponents:
    """The components that inference needs.

    Attributes:
        experiment: choices of the run; `train.eval_memory` bounds the memory of inference.
        base: the model that was set up.
        evaluated: the model whose outputs are computed: `base`, or its decoupled twin.
        task: the task after its `setup`.
        rows: the trained rows; None if the graph has features.
        device: device of the parameters.
    """

    experiment: Experiment
    base: Model
    evaluated: Model
    task: Task
    rows: EmbeddingStore | None
    device: torch.device

    def evaluation_model(self) -> Model:
        """See `Trainer.evaluation_model`, the only member of a trainer that evaluation calls."""
        return self.evaluated


def outputs_of_all(parts: InferenceComponents, graph: Graph) -> Iterator[Tensor]:
    """Chunks `[n, C]` of the outputs of all vertices of `graph`, on the device, in the order of their ids.

    `train.eval_memory` bounds what is in memory in addition to the graph: half of it is for the current chunk, and half
    for the rows of two layers. Rows of layers that need more are in a mapped file.
    """
    with _evaluation(_FullEvaluation, parts, graph) as evaluation:
        for _, values in evaluation.outputs(parts.evaluated.num_layers):
            yield values


def hidden_of_all(parts: InferenceComponents, graph: Graph) -> Iterator[Tensor]:
    """Chunks `[n, hidden]` of the last hidden layer's outputs, as `outputs_of_all`.

    These are the rows that the last layer reads, after activation and skip connection. In a decoupled model they are
    the rows of the last hidden dense layer, which has read no edges.
    """
    last = parts.base.num_layers - 1
    with _evaluation(_FullEvaluation, parts, graph) as evaluation:
        for ids, rows in evaluation.outputs(last):
            # A ReLU may be fused with the dropout of the next layer.
            dropped = parts.base.drop_input(last, ids.to(rows.device, graph.indices.dtype), rows, None)
            assert isinstance(dropped, Tensor)
            yield dropped


def scores_of_links(parts: InferenceComponents, graph: Graph, links: Tensor) -> Iterator[np.ndarray]:
    """Pieces `[n]` float32 of the scores of links `[m, 2 | 3]`, in order. The outputs of all vertices come first.

    They are in a mapped file if they need more than a quarter of `train.eval_memory`.
    """
    decoder = parts.base.decoder
    assert isinstance(decoder, Decoder)
    with _evaluation(_FullEvaluation, parts, graph) as evaluation:
        yield from evaluation.scores(decoder, links)


def metrics_of(parts: InferenceComponents, graph: Graph) -> dict[str, float]:
    """Metrics by split (`acc/val`), as a run records them; empty if the graph has no held-out examples."""
    train = replace(parts.experiment.train, eval_every=0)
    parts = replace(parts, experiment=replace(parts.experiment, train=train))
    with _evaluation(Evaluation, parts, graph) as evaluation:
        found = evaluation.after(train.epochs - 1)
    return {name: value for name, value in found.items() if name.partition("/")[2] in ("val", "test")}


class _FullEvaluation(Evaluation):
    """Computes outputs of all vertices, instead of the held-out ones."""

    def __init__(self, job: Job, trainer: Trainer[Any]) -> None:
        super().__init__(job, trainer)
        self._wanted = torch.arange(job.graph.num_nodes)

    @torch.no_grad()
    def outputs(self, num_layers: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Chunks `(ids [n], rows [n, .])` of what layer `num_layers` gives, in the order of the vertices."""
        model = self._trainer.evaluation_model().eval()
        held = self._inputs()
        for index in range(num_layers - 1):
            held = self._hidden(model, index, held)
        yield from self._layer(model, num_layers - 1, held)

    @torch.no_grad()
    def scores(self, decoder: Decoder, links: Tensor) -> Iterator[np.ndarray]:
        """Pieces `[n]` of the scores of `links` `[m, 2 | 3]`, in order."""
        model = self._trainer.evaluation_model().eval()
        held = self._inputs()
        for index in range(model.num_layers):
            held = self._hidden(model, index, held)
        assert held is not None and held.places is None
        yield from pair_scores(Scorer.of(decoder, held.rows), links, self._half)


E = TypeVar("E", bound=Evaluation)


@contextmanager
def _evaluation(kind: type[E], parts: InferenceComponents, graph: Graph) -> Iterator[E]:
    """The evaluation of one process. Activations above the bound are in a folder that is removed at the end."""
    with in_words(), tempfile.TemporaryDirectory(prefix="gnnexp-") as folder, writing(Path(folder)):
        yield kind(_job(parts, graph, Path(folder)), cast("Trainer[Any]", parts))


def _job(parts: InferenceComponents, graph: Graph, folder: Path) -> Job:
    """A job of one process that trains nothing."""
    timer, model, backend = PhaseTimer(), parts.base, parts.base.backend
    environment = Environment(host=platform.node())
    comm = Communicator(environment, timer, parts.device)
    shard = Shard(graph, needs=model.options.needs)
    store = LocalOptions().make() if parts.rows is None else parts.rows
    tier = DeviceTier(parts.device, timer, reads_transpose=backend.reads_transpose, constants=backend.constants)
    return Job(
        parts.experiment,
        Plan(None, Drawn(graph.num_nodes, graph.num_edges, 0, graph.num_nodes)),
        shard,
        comm,
        comm,
        comm.clone_for_thread(),
        timer,
        parts.experiment.sampler.make(),
        store,
        model,
        parts.task,
        parts.device,
        tier,
        folder,
        {"host": environment.host},
    )
