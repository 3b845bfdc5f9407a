"""A graph with the widths that the model of an experiment sees."""

from __future__ import annotations

from dataclasses import replace

import torch

from gnnexp.components.facts import GraphFacts
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.graph import Graph


def facts_of(experiment: Experiment, graph: Graph) -> GraphFacts:
    """Facts of a graph with the widths that the experiment's model sees."""
    return GraphFacts.of(
        as_seen(experiment, graph), experiment.num_ranks, parallel=experiment.model.needs.edge_identity
    )


def as_seen(experiment: Experiment, graph: Graph) -> Graph:
    """`graph` with as many features and classes as the model has inputs and outputs.

    Trained rows replace features. They do not exist yet, so the features are on torch's `meta` device, without values.
    """
    store, features = experiment.feature_store, graph.features
    if store.trained_columns is not None:
        features = torch.empty(graph.num_nodes, store.trained_columns, device="meta")
    num_outputs = experiment.task.num_outputs(graph, experiment.model.hidden)
    if features is graph.features and num_outputs == graph.num_classes:
        return graph
    return replace(graph, features=features, num_classes=num_outputs)
