"""Compares training on several ranks with training by one worker that has all data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch

from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.testing.ranks import RankPools
from gnnexp.testing.steps import (
    Curve,
    global_losses,
    run_steps,
    small_config,
    worst_gradient_error,
    worst_loss_error,
)


def parts(graph: Graph, num_parts: int, kind: str = "random") -> Partition:
    """A partition with random owners. `skewed` gives most vertices to part 0; `empty` gives none to the last part."""
    generator = torch.Generator().manual_seed(5)
    owner = torch.randint(0, num_parts, (graph.num_nodes,), generator=generator)
    if kind == "skewed":
        owner = torch.where(torch.rand(graph.num_nodes, generator=generator) < 0.7, 0, owner)
    if kind == "empty":
        owner = torch.where(owner == num_parts - 1, 0, owner)
    return Partition(owner.to(torch.int16), num_parts)


def cut_parts(graph: Graph, num_parts: int, kind: str = "random") -> Partition:
    """A random vertex-cut: each edge has an owner, and the part of a vertex's master may have none of its edges."""
    generator = torch.Generator().manual_seed(6)
    edges = torch.randint(0, num_parts, (graph.num_edges,), generator=generator)
    if kind == "empty":
        edges = torch.where(edges == num_parts - 1, 0, edges)
    masters = parts(graph, num_parts, kind).node_owner
    return Partition(masters, num_parts, edges.to(torch.int16))


def ranks_steps(
    make: Callable[[], Graph],
    config: Mapping[str, Any],
    steps: int,
    num_parts: int | None,
    kind: str,
    partition: Partition | None = None,
) -> Curve:
    """Runs on a rank of a pool: `run_steps` on the graph of `make`, with a partition of `parts` or the given one."""
    graph = make()
    if num_parts is not None:
        partition = parts(graph, num_parts, kind)
    return run_steps(config, graph, steps, partition, torch.arange(graph.num_nodes) % 7)


def joined(curves: list[Curve], reference: Curve) -> Curve:
    """One curve with whole gradients: slices of a parameter's gradient on different ranks are concatenated."""
    whole = {}
    for name, expected in reference.gradients.items():
        own = curves[0].gradients[name]
        whole[name] = own if own.shape == expected.shape else torch.cat([c.gradients[name] for c in curves], -1)
    return replace(curves[0], gradients=whole)


@dataclass(frozen=True)
class Comparison:
    """Training on ranks, compared with training by one worker.

    Attributes:
        curves: losses, gradients and counts of each rank.
        reference: losses, gradients and counts of one worker.
        loss_error: relative error of the loss in the worst step.
        gradient_error: error of the worst gradient in the first step (`worst_gradient_error`).
        unlike: `(rank, parameter)` pairs whose replicated gradient differs from rank 0.
    """

    curves: list[Curve]
    reference: Curve
    loss_error: float
    gradient_error: float
    unlike: list[tuple[int, str]]


def compare(
    ranks: RankPools,
    size: int,
    make: Callable[[], Graph],
    config: Mapping[str, Any],
    *,
    steps: int = 20,
    num_parts: int | None = None,
    kind: str = "random",
    partition: Partition | None = None,
    serial_paradigm: Mapping[str, Any] | None = None,
) -> Comparison:
    """Train on `size` ranks and by one CPU worker that has all data. Arguments as for `assert_exact`.

    Raises:
        RankError: a rank failed.
    """
    reference = _one_worker(json.dumps(_serial(config, serial_paradigm), sort_keys=True), make, steps)
    curves = ranks(size).run(ranks_steps, make, config, steps, num_parts, kind, partition)
    losses, expected = global_losses(curves), global_losses([reference])
    return Comparison(
        curves,
        reference,
        worst_loss_error(losses, expected),
        worst_gradient_error(joined(curves, reference), reference),
        [
            (rank, name)
            for rank, curve in enumerate(curves)
            for name, gradient in curve.gradients.items()
            if gradient.shape == reference.gradients[name].shape
            and not torch.equal(gradient, curves[0].gradients[name])
        ],
    )


def assert_exact(
    ranks: RankPools,
    size: int,
    make: Callable[[], Graph],
    config: Mapping[str, Any],
    bound: float,
    *,
    steps: int = 20,
    num_parts: int | None = None,
    kind: str = "random",
    partition: Partition | None = None,
    serial_paradigm: Mapping[str, Any] | None = None,
) -> tuple[list[Curve], Curve]:
    """Train on `size` ranks and by one worker. Losses of all steps and gradients of the first step must agree.

    Args:
        ranks: the fixture.
        size: number of ranks.
        make: returns the graph, in each process.
        config: resolved configuration (`small_config`). With `cuda`, ranks train on GPUs and the one worker on CPU.
        bound: largest relative error; 1e-10 for float64, 1e-5 for float32.
        steps: number of global batches, over as many epochs as needed.
        num_parts: number of parts of a partition by `parts`; None: no partition, or `partition`.
        kind: kind of this partition, see `parts`.
        partition: a partition to use instead.
        serial_paradigm: paradigm of the one worker; None: data parallelism.

    Returns:
        Losses, gradients and counts of each rank, and of the one worker.

    Raises:
        AssertionError: errors are larger than `bound`, or the ranks' gradients of a replicated parameter differ.
        RankError: a rank failed.
    """
    comparison = compare(
        ranks,
        size,
        make,
        config,
        steps=steps,
        num_parts=num_parts,
        kind=kind,
        partition=partition,
        serial_paradigm=serial_paradigm,
    )
    assert comparison.loss_error <= bound, f"loss differs by {comparison.loss_error}"
    assert comparison.gradient_error <= bound, f"a gradient differs by {comparison.gradient_error}"
    for rank, name in comparison.unlike:
        raise AssertionError(f"rank {rank} has another gradient of {name}")
    return comparison.curves, comparison.reference


def _serial(config: Mapping[str, Any], paradigm: Mapping[str, Any] | None) -> dict[str, Any]:
    """The configuration of the same training by one CPU worker that has all data."""
    plain, store = small_config(config["model"]), config["feature_store"]
    trained = {**store, "_target_": store["_target_"].replace("Sliced", "")}
    return {
        **config,
        "paradigm": plain["paradigm"] if paradigm is None else dict(paradigm),
        "feature_store": trained if "Embedding" in store["_target_"] else plain["feature_store"],
        "sampler": {**config["sampler"], "topology": "replicated"},
        "hardware": {**config["hardware"], "device": "cpu", "workers": 1},
    }


@lru_cache(maxsize=64)
def _one_worker(config: str, make: Callable[[], Graph], steps: int) -> Curve:
    """Training by one worker. It is cached, because many ways on many ranks are compared with the same reference."""
    return run_steps(json.loads(config), make(), steps)
