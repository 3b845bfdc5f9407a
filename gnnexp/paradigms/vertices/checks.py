"""Checks of vertex parallelism, and memory that it takes for rows of other ranks."""

from __future__ import annotations

import torch

from gnnexp.comm.arrival import Arrival
from gnnexp.comm.variation import Variation
from gnnexp.components.facts import GraphFacts, Need
from gnnexp.components.locate import choice_of, target_of
from gnnexp.components.options import rule_problems
from gnnexp.components.plan import Resident
from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.paradigms.checks import attends, block_degree_problems, has_block_layers, part_per_rank_problems
from gnnexp.paradigms.loops.chunking import UNCUT, Chunking
from gnnexp.paradigms.loops.full_graph import full_graph_problems
from gnnexp.paradigms.vertices.sent_rows import SentRows


def vertex_problems(experiment: Experiment, name: str, arrival: Arrival, key: str) -> list[Problem]:
    """Conflicts: needs one part for each rank and one batch. With old or late rows, each epoch must have one step.

    Args:
        experiment: experiment to check.
        name: name of the paradigm.
        arrival: when other ranks' rows are used.
        key: key of the option that says how old or late these rows are.
    """
    age = arrival.epochs
    return [
        *full_graph_problems(experiment, name),
        *part_per_rank_problems(experiment),
        *block_degree_problems(experiment, name),
        *rule_problems(
            (
                not age or experiment.train.batch_size is None,
                key,
                age,
                "is counted in epochs of one step each, and train.batch_size makes several",
                "set train.batch_size=null",
            ),
            (
                not (age and experiment.partitioner.vertex_cut and attends(experiment)),
                key,
                age,
                "sums of attention that were weighed with another epoch's peaks cannot be added to today's",
                f"set {key}=0, or choose model=gcn, sage or gin",
            ),
        ),
    ]


def budget_problems(experiment: Experiment, chunking: Chunking) -> list[Problem]:
    """Conflicts: a budget needs layers of known memory."""
    if chunking.budget is None or not has_block_layers(experiment):
        return []
    return [
        Problem(
            "paradigm.device_memory",
            chunking.budget,
            f"what layers of {choice_of(experiment.model)} take is not known",
            "set paradigm.chunks=<number> and paradigm.device_memory=null",
        )
    ]


def vertex_cut_problems(experiment: Experiment, chunking: Chunking) -> list[Problem]:
    """Conflicts over a vertex-cut: a destination's in-edges are on several ranks."""
    partitioner = choice_of(experiment.partitioner)
    return rule_problems(
        (
            chunking == UNCUT,
            "paradigm.chunks",
            chunking.count,
            f"over the vertex-cut of {partitioner} a vertex has its in-edges in several places",
            "set paradigm.chunks=1 and paradigm.device_memory=null",
        ),
        (
            not has_block_layers(experiment),
            "model",
            target_of(experiment.model),
            "its layers need all in-edges of a vertex in one place",
            "choose model=gcn, sage, gin or gat, or partitioner=range or metis",
        ),
    )


def sent_rows_problems(experiment: Experiment, rows: SentRows) -> list[Problem]:
    """Conflicts of projected rows: over a vertex-cut all rows are projected, and ordinary layers take raw rows."""
    if rows == "raw":
        return []
    return rule_problems(
        (
            not experiment.partitioner.vertex_cut,
            "paradigm.rows",
            rows,
            f"over the vertex-cut of {choice_of(experiment.partitioner)} all rows are sent projected",
            "set paradigm.rows=raw, or choose partitioner=range or metis",
        ),
        (
            rows != "projected" or not has_block_layers(experiment),
            "paradigm.rows",
            rows,
            f"layers of {choice_of(experiment.model)} take raw rows",
            "set paradigm.rows=cheapest",
        ),
    )


def part_and_halo(experiment: Experiment, facts: GraphFacts, *, whole_parts: bool = False) -> Resident:
    """Sizes of a part and its halo. Edges bound the vertices of the halo; with whole parts, it has all vertices."""
    own, edges = (-(-count // experiment.num_ranks) for count in (facts.num_nodes, facts.num_edges))
    rows = facts.num_nodes if whole_parts else min(facts.num_nodes, own + edges)
    return Resident(edges, rows, rows)


def held_graph(experiment: Experiment, facts: GraphFacts) -> Resident:
    """Sizes of a part in the last layer, and of the whole graph in all layers below, which is an upper bound."""
    own_edges = -(-facts.num_edges // experiment.num_ranks)
    below = (experiment.model.layers - 1) * facts.num_edges
    return Resident(own_edges + below, facts.num_nodes, facts.num_nodes)


def kept_rows(
    experiment: Experiment,
    facts: GraphFacts,
    arrival: Arrival,
    *,
    whole_parts: bool = False,
    holds_inputs: bool = False,
) -> Need:
    """Upper bound of the rows that a rank keeps for later epochs and writes into checkpoints.

    All ranks together have at most as many foreign rows as edges, and at most all vertices on all other ranks.
    """
    model, ranks = experiment.model, experiment.num_ranks
    itemsize = getattr(torch, experiment.train.dtype).itemsize
    foreign = (ranks - 1) * facts.num_nodes
    if not whole_parts:
        foreign = min(foreign, facts.num_edges)
    hidden, last = max(model.hidden, facts.num_classes) * itemsize, model.layers - 1
    inputs = 0 if holds_inputs else facts.row_bytes(itemsize)
    if arrival.is_fresh or not foreign:
        kept = 0
    elif isinstance(arrival, Variation):  # the inputs of every layer, and own rows that were sent
        compared = last * hidden + inputs * facts.trains_features
        kept = foreign * (inputs + last * hidden) + facts.num_nodes * compared
    elif arrival.kind == "late":  # rows of all layers but the first, sums of all layers, and gradients of both
        # In `bins` epochs every row is sent once. With bins or averages, a rank also keeps the rows that it uses.
        keeps = arrival.bins > 1 or arrival.smooth_features > 0 or arrival.smooth_gradients > 0
        copies = -(-arrival.epochs // arrival.bins) + keeps
        kept = copies * (foreign + facts.num_nodes) * (2 * last + 1) * hidden
    elif experiment.partitioner.vertex_cut:  # rows of all layers but the first, and sums of all layers
        kept = (foreign * last + ranks * facts.num_nodes * (last + 1)) * hidden
    else:  # the inputs of every layer
        kept = foreign * (inputs + last * hidden)
    return Need("rows of other ranks, kept for later epochs", "device", -(-kept // ranks))
