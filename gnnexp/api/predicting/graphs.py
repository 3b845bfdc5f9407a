"""The graph to predict on: that of the run, or another one of the same columns, such as tables of the next month."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from gnnexp.api.predicting.ids import OwnIds
from gnnexp.api.trained import TrainedModel
from gnnexp.cli.running.origin import with_origin
from gnnexp.config.compose import compose
from gnnexp.datasets.reading.names import GraphNames, names_of
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.experiment.build import experiment_of
from gnnexp.files.cache import cache_root
from gnnexp.graph.graph import Graph
from gnnexp.preparation.artifacts import prepare_graph

_SAME = "give data with the same columns, types and relations as those of the run"


@dataclass(frozen=True, eq=False)
class Target:
    """The graph to predict on.

    Attributes:
        graph: the graph; None: that of the run.
        ids: ids of its vertices.
        links: `train`, `valid` and `test` links, as `Graph.links`.
        labelled: another graph with labels, numbered by the classes of the run; None without labels.
        node_types: `[V]` types of the vertices, or None.
    """

    graph: Graph | None
    ids: OwnIds
    links: Mapping[str, torch.Tensor]
    labelled: Graph | None = None
    node_types: torch.Tensor | None = None


def target_graph(model: TrainedModel, overrides: Sequence[str] = (), *, trust: bool = False) -> Target:
    """The graph that overrides of the dataset's keys make of the dataset of a run; without any, the graph of the run.

    Features of another graph are made with the means, deviations and categories of the run's graph (`Dataset.like`).

    Raises:
        ConfigError: an override is not of the dataset, or the model knows the vertices of its own graph only.
        DataError: the graph has other columns, classes, types or relations than that of the run.
    """
    own = model.graph
    if not overrides:
        return Target(None, OwnIds.of(model.folder, own.num_nodes), own.links, None, own.node_types)
    ConfigError.raise_all(
        [
            Problem("predict", override, "only keys of the dataset can change", "dataset.path=FOLDER")
            for override in overrides
            if override.partition("=")[0].partition(".")[0] != "dataset"
        ]
    )
    if model.has_own_rows:
        raise ConfigError(
            Problem(
                "predict",
                overrides[0],
                "trained rows replace features (feature_store=embedding), "
                "so the model knows the vertices of its own graph only",
                "train with features and feature_store=local, or predict without overrides",
            )
        )
    asked = with_origin(
        argparse.Namespace(origin=str(model.run_dir), trust=trust, config_dir=None, overrides=list(overrides))
    )
    dataset = experiment_of(compose(asked.overrides, asked.config_dir).config).dataset
    graph, folder = prepare_graph(dataset.like(model.names), cache_root())
    names = names_of(folder)
    DataError.raise_all([*_graph_problems(model.names, names, graph.name), *model.misfits(graph)])
    graph = replace(graph, num_classes=own.num_classes)
    return Target(
        graph, OwnIds(folder, names, graph.num_nodes), graph.links, _labelled(model, graph, names), graph.node_types
    )


def _graph_problems(own: GraphNames, other: GraphNames, name: str) -> list[Problem]:
    """Problems of a graph with other columns, types or relations than that of the run."""
    parts = (
        ("types of vertices", list(own.types), list(other.types)),
        ("relations", list(own.relations), list(other.relations)),
        ("features", _columns(own), _columns(other)),
    )
    return [
        Problem("dataset", name, f"has the {what} {present}, and the model was trained with {wanted}", _SAME)
        for what, wanted, present in parts
        if wanted != present and (own.types and other.types)
    ]


def _columns(names: GraphNames) -> dict[str, list[str]]:
    """What the columns of features are, by type of vertices, without the means and deviations."""
    return {
        kind: [f"{one.get('column', one.get('file'))}: {one.get('values', one.get('width'))}" for one in entries]
        for kind, entries in names.columns.items()
    }


def _labelled(model: TrainedModel, graph: Graph, names: GraphNames) -> Graph | None:
    """The graph with labels that have the numbers of the run's classes; None without labels.

    Raises:
        DataError: there are other classes than those of the run.
    """
    labels, own = graph.labels, model.graph
    if labels is None or own.labels is None:
        return None
    if labels.dim() != own.labels.dim() or (labels.dim() == 2 and labels.shape[1] != own.num_classes):
        raise DataError(
            Problem(
                "dataset",
                graph.name,
                f"has labels of the shape {list(labels.shape)}, and the run has {list(own.labels.shape)}",
                "give labels of the same kind, or none",
            )
        )
    if labels.is_floating_point():
        return graph
    known, present = list(model.names.classes), list(names.classes)
    if not present or not known:
        most = int(labels.max()) if labels.numel() else -1
        if most >= own.num_classes:
            raise DataError(
                Problem(
                    "dataset",
                    f"class {most}",
                    f"the model has the classes 0 to {own.num_classes - 1}",
                    "number the classes as in the training data",
                )
            )
        return graph
    new = [name for name in present if name not in known]
    if new:
        raise DataError(
            Problem(
                "dataset",
                new[:20],
                f"{len(new)} classes of {graph.name} are none of the model: {', '.join(known[:20])}",
                "correct the labels, or leave them out (tables: dataset.label=null)",
            )
        )
    numbers = torch.tensor([*(known.index(name) for name in present), -1])  # -1, no label, is the last place
    return replace(graph, labels=numbers[labels])
