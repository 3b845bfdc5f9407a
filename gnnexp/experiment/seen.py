"""A graph with the widths that a model will see: those of trained rows, and of what the task wants of it."""

from __future__ import annotations

from dataclasses import replace

import torch

from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.plan import GraphFacts
from gnnexp.graph.graph import Graph


def facts_of(experiment: Experiment, graph: Graph) -> GraphFacts:
    """The facts of a graph, as the model of an experiment sees it."""
    return GraphFacts.of(as_seen(experiment, graph), experiment.num_ranks,
                         parallel=experiment.model.options.needs.edge_identity)


def as_seen(experiment: Experiment, graph: Graph) -> Graph:
    """`graph` with as many features and classes as the model has inputs and outputs.

    Rows that are trained stand in for features; they are not there yet (torch's `meta` device: nobody can read them).
    """
    store, features = experiment.feature_store.options, graph.features
    if store.trained_columns is not None:
        features = torch.empty(graph.num_nodes, store.trained_columns, device="meta")
    num_outputs = experiment.task.options.num_outputs(graph, experiment.model.options.hidden)
    if features is graph.features and num_outputs == graph.num_classes:
        return graph
    return replace(graph, features=features, num_classes=num_outputs)
