"""`gnnexp.load`: the model of a run, with the graph that it was trained on and the exact inference of the run."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnexp.api.checkpoint import WHICH, Which, find_checkpoint, recorded_metrics, restore_rows, restore_values
from gnnexp.api.inference import InferenceComponents, hidden_of_all, metrics_of, outputs_of_all, scores_of_links
from gnnexp.api.record import Run
from gnnexp.cli.commands.resume import refuse_imported
from gnnexp.cli.runs import read_job
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import Environment
from gnnexp.components.locate import target_of
from gnnexp.components.options import with_options
from gnnexp.datasets.reading.names import GraphNames, names_of
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.experiment.build import experiment_of, read
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.seen import as_seen
from gnnexp.feature_stores.embedding import EmbeddingStore
from gnnexp.files.cache import cache_root
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import SparseRows
from gnnexp.graph.storage.format import open_graph
from gnnexp.graph.validate import validate_ids
from gnnexp.launchers.parent import import_from_here
from gnnexp.measure.phases import PhaseTimer
from gnnexp.models.decoupled import DecoupledModel
from gnnexp.models.layer import BlockLayer, Degrees
from gnnexp.models.model import Model
from gnnexp.ops.backends import kernel_elsewhere
from gnnexp.ops.products import matmul_elsewhere
from gnnexp.paradigms.tensor_parallel import TensorParallel
from gnnexp.preparation.artifacts import prepare_graph
from gnnexp.provenance.code import code_of_config, package_digest
from gnnexp.record.attempts import codes_of, read_attempts
from gnnexp.record.changes import changed_data
from gnnexp.record.owner import check_own
from gnnexp.tasks.vertices import VertexTask
from gnnexp.training.checkpoint import Checkpoint

log = logging.getLogger(__name__)

# Metrics of a model whose code may have changed must agree with the record within this, absolute or relative.
_ALIKE = 1e-3


class TrainedModel(nn.Module):
    """A trained model, made by `gnnexp.load`.

    Attributes:
        model: the model whose outputs are computed. Its parameters are those of the checkpoint.
        graph: the graph of the run, as its dataset prepares it: features, labels, splits.
        experiment: all choices of the run.
        run_dir: directory of the run.
        epoch: number of the last epoch of training that the model has seen, from 0.
        folder: folder of the prepared graph, with the names of its classes and the ids of its vertices.
        task: the task of the run, for its graph.
    """

    def __init__(self, parts: InferenceComponents, graph: Graph, run_dir: Path, epoch: int, folder: Path) -> None:
        super().__init__()
        self.model, self.graph, self.experiment = parts.evaluated, graph, parts.experiment
        self.run_dir, self.epoch, self.folder, self.task = run_dir, epoch, folder, parts.task
        self._parts = parts

    def forward(self, graph: Graph | None = None) -> Tensor:
        """`[V, C]` logits of all vertices, by exact inference over all neighbours, without gradients.

        For a task of links these are the rows that `model.decoder` scores. For node regression, these are `[V, 1]`
        predictions in the unit of the labels, float64.

        Args:
            graph: another graph with the same features and relations, as `load` of a dataset gives it. None: `graph`.

        Raises:
            DataError: the model cannot be applied to the graph.
        """
        task = self.task
        chunks = self.outputs(graph)
        return torch.cat([task.values(chunk) if isinstance(task, VertexTask) else chunk for chunk in chunks])

    def outputs(self, graph: Graph | None = None) -> Iterator[Tensor]:
        """Chunks `[n, C]` of logits, in the order of the vertices: all of them need not fit in memory.

        In addition to the graph, about `train.eval_memory` bytes are used. Take all chunks of a graph before you ask
        for those of another one.
        """
        yield from outputs_of_all(self._parts, self._attached(graph))

    def embeddings(self, graph: Graph | None = None) -> Iterator[Tensor]:
        """Chunks `[n, hidden]` of the outputs of the last hidden layer, with its activation, as `outputs`.

        For a task of links these are the outputs of the model, which the decoder scores.

        Raises:
            DataError: the model has one layer, so none is hidden; or it cannot be applied to the graph.
        """
        if self.task.options.pairs:
            yield from self.outputs(graph)
            return
        if self._parts.base.num_layers == 1:
            raise DataError(
                Problem(
                    "model.layers",
                    1,
                    "the model has no hidden layer, whose outputs are embeddings",
                    "train a model with model.layers=2 or more",
                )
            )
        yield from hidden_of_all(self._parts, self._attached(graph))

    def link_scores(self, links: Tensor, graph: Graph | None = None) -> Iterator[np.ndarray]:
        """Pieces `[n]` float32 of the logits of links `[m, 2 | 3]` (head, relation, tail), by the trained decoder."""
        yield from scores_of_links(self._parts, self._attached(graph), links)

    def evaluate(self) -> dict[str, float]:
        """Metrics on the validation and test splits of the run's graph (`acc/val`), as the run records them."""
        _attach(self._parts.base, self.graph)
        return metrics_of(self._parts, self.graph)

    def _attached(self, graph: Graph | None) -> Graph:
        """The graph, or that of the run, as the model sees it. The layers get its degrees.

        Raises:
            DataError: the model cannot be applied to the graph.
        """
        if graph is None:
            graph = self.graph
        else:
            DataError.raise_all(self.misfits(graph))
            graph = replace(graph, num_classes=self.graph.num_classes)
        _attach(self._parts.base, graph)
        return graph

    @property
    def names(self) -> GraphNames:
        """Names of the classes, relations, types and columns of the run's graph; empty if its dataset has none."""
        return names_of(self.folder)

    def changed_data(self) -> str:
        """How the files of the dataset have changed since the run; empty if they have not, or are not here.

        All bytes of the files are hashed.
        """
        return changed_data(self.run_dir, read_job(self.run_dir)["provenance"], self.experiment.dataset)

    @property
    def has_own_rows(self) -> bool:
        """Whether trained rows replace features. Such a model knows the vertices of its own graph only."""
        return self._parts.rows is not None

    def misfits(self, graph: Graph) -> list[Problem]:
        """Why the model cannot be applied to another graph."""
        base, name = self._parts.base, graph.name
        fix = "give a graph of the same kind as the run's (its attribute `graph`)"
        if self.has_own_rows:
            return [
                Problem(
                    "graph",
                    name,
                    "trained rows replace features: the model has rows of its own vertices only",
                    "call the model without a graph",
                )
            ]
        sizes = (("features", graph.num_features, base.in_dim), ("relations", graph.num_relations, base.num_relations))
        problems = [
            Problem("graph", name, f"has {present} {what}, and the model takes {wanted}", fix)
            for what, present, wanted in sizes
            if present != wanted
        ]
        layers = base.stack
        if graph.edge_weights is not None and not all(layer.takes_weights for layer in layers):
            problems.append(Problem("graph", name, "has edge weights, and the layers have no formula for them", fix))
        if isinstance(graph.features, SparseRows) and any(isinstance(layer, BlockLayer) for layer in layers):
            problems.append(Problem("graph", name, "has sparse features, and the layers take dense rows", fix))
        return problems


def load(run: Run | Path | str, *, which: Which = "best", device: str = "cpu", trust: bool = False) -> TrainedModel:
    """The model of a run: by default that of the best validation epoch, which tables report.

    The graph is that of the run. It comes from the artifact cache, or is prepared again from the dataset. If the files
    of the dataset have changed since, a warning is logged. If the code differs from the code that the run executed, or
    if the paradigm is the user's own, the model is evaluated. It is refused if its metrics are not those of the record.

    Args:
        run: a run, or its directory. The run may have failed, or still train.
        which: `best`, or `last` for the latest checkpoint.
        device: torch's name of the device (`cpu`, `cuda`).
        trust: whether to load a run that belongs to another user. This executes the code that its configuration names.

    Raises:
        ConfigError, DataError: it is no run, no checkpoint holds the model, or data or code do not fit.
    """
    trained = load_for_other_data(run, which=which, device=device, trust=trust)
    if said := trained.changed_data():
        log.warning("%s: %s: the graph is that of the run", trained.run_dir, said)
    return trained


def load_for_other_data(
    run: Run | Path | str, *, which: Which = "best", device: str = "cpu", trust: bool = False
) -> TrainedModel:
    """As `load`, for a model that is applied to other data: the files of the run's own data are not compared."""
    ConfigError.raise_all(_argument_problems(which, device))
    run_dir = run.run_dir if isinstance(run, Run) else Path(run).absolute()
    job = read_job(run_dir)
    if not trust:
        check_own(
            run_dir,
            "would execute the code that its configuration names",
            "read its config.yaml; then gnnexp.load(run, trust=True)",
        )
    refuse_imported(run_dir, job)
    checkpoint = find_checkpoint(run_dir, which)
    import_from_here()
    ConfigError.raise_all(read(job["config"]).problems)
    experiment = experiment_of(job["config"])
    graph, folder = _graph(experiment, job.get("graph"), job["provenance"].get("dataset_key"))
    graph = as_seen(experiment, graph)
    epoch = checkpoint.position.epoch - (checkpoint.position.step == 0)
    trained = TrainedModel(_parts(experiment, graph, checkpoint, torch.device(device)), graph, run_dir, epoch, folder)
    executed = codes_of(read_attempts(run_dir))
    own = not target_of(experiment.paradigm).startswith("gnnexp.")
    now = replace(code_of_config(job["config"]), package=package_digest()).to_json()
    if own or executed[-1:] != [now]:
        _check_metrics(trained, recorded_metrics(run_dir, epoch) if checkpoint.position.step == 0 else {})
    return trained


def _argument_problems(which: str, device: str) -> list[Problem]:
    allowed = f"must be one of: {', '.join(WHICH)}"
    problems = [] if which in WHICH else [Problem("which", which, allowed, 'which="best"')]
    try:
        kind = torch.device(device).type
    except (RuntimeError, TypeError) as error:
        return [*problems, Problem("device", device, str(error).partition("\n")[0], 'device="cpu"')]
    if kind == "cuda" and not torch.cuda.is_available():
        problems.append(Problem("device", device, "no CUDA device is visible", 'device="cpu"'))
    return problems


def _graph(experiment: Experiment, folder: str | None, key: str | None) -> tuple[Graph, Path]:
    """The prepared graph of the run, and its folder.

    Raises:
        DataError: it is damaged, or the data have changed since the run.
    """
    if folder is not None and Path(folder).is_dir():
        graph = open_graph(Path(folder))
        DataError.raise_all(validate_ids(graph, name=folder))
        return graph, Path(folder)
    if key is not None and experiment.dataset.key() != key:
        raise DataError(
            Problem(
                "dataset",
                experiment.dataset.name,
                f"has changed since the run, and the prepared graph {folder} is gone",
                "restore the files of the dataset",
            )
        )
    return prepare_graph(experiment.dataset, cache_root())


def _parts(experiment: Experiment, graph: Graph, checkpoint: Checkpoint, device: torch.device) -> InferenceComponents:
    """The components, with the values of the checkpoint."""
    dtype, seed = getattr(torch, experiment.train.dtype), experiment.seed
    kernel = kernel_elsewhere(experiment.model.kernel, device.type)
    task, model = experiment.task.make(), with_options(experiment.model, kernel=kernel).make()
    task.setup(graph, device)
    model.setup(
        graph.num_features,
        graph.num_classes,
        Degrees.of(graph),
        seed=seed,
        dtype=dtype,
        device=device,
        matmul=matmul_elsewhere(experiment.train.matmul, device),
        activations=experiment.train.activations,
    )
    model.decoder = task.decoder(graph.num_classes, seed=seed, dtype=dtype, device=device)
    restore_values(checkpoint, model, experiment)
    rows = experiment.feature_store.make()
    if not isinstance(rows, EmbeddingStore):
        return InferenceComponents(experiment, model, _evaluated(experiment, model), task, None, device)
    rows.setup(Shard(graph), dtype, torch.device("cpu"), Communicator(Environment(), PhaseTimer(), torch.device("cpu")))
    rows.begin(experiment.optimizer, seed)
    restore_rows(checkpoint, rows)
    return InferenceComponents(experiment, model, _evaluated(experiment, model), task, rows, device)


def _evaluated(experiment: Experiment, model: Model) -> Model:
    """The model that the paradigm evaluates. Every paradigm of gnnexp evaluates `model`, or its decoupled twin."""
    paradigm = experiment.paradigm
    decoupled = isinstance(paradigm, TensorParallel) and paradigm.mode == "decoupled"
    return DecoupledModel(model) if decoupled else model


def _attach(model: Model, graph: Graph) -> None:
    """Give the layers the degrees of the graph that they compute next."""
    facts = Degrees.of(graph).to(next(model.parameters()).device)
    for layer in model.stack:
        layer.attach(model.backend, facts)


def _check_metrics(trained: TrainedModel, recorded: dict[str, float]) -> None:
    """Check that the model has the metrics that its run recorded.

    Raises:
        DataError: it has other metrics.
    """
    evaluated: dict[str, Any] = trained.evaluate() if recorded else {}
    for name, value in recorded.items():
        if not math.isclose(evaluated.get(name, math.nan), value, rel_tol=_ALIKE, abs_tol=_ALIKE):
            raise DataError(
                Problem(
                    str(trained.run_dir),
                    f"{name}={evaluated.get(name)}",
                    f"the run recorded {value}: the code has changed "
                    "since the run, or its paradigm evaluates another model than the one that it trains",
                    "restore the code of the run (`code` in result.json), or make the run again",
                )
            )
