"""Comparing training that is placed over ranks with one worker that has everything."""

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
    """Owners by a draw; `skewed` gives part 0 most vertices, `empty` gives the last part none at all."""
    generator = torch.Generator().manual_seed(5)
    owner = torch.randint(0, num_parts, (graph.num_nodes,), generator=generator)
    if kind == "skewed":
        owner = torch.where(torch.rand(graph.num_nodes, generator=generator) < 0.7, 0, owner)
    if kind == "empty":
        owner = torch.where(owner == num_parts - 1, 0, owner)
    return Partition(owner.to(torch.int16), num_parts)


def cut_parts(graph: Graph, num_parts: int, kind: str = "random") -> Partition:
    """A vertex-cut by draws: an owner per edge, and masters that need not have any edge of theirs."""
    generator = torch.Generator().manual_seed(6)
    edges = torch.randint(0, num_parts, (graph.num_edges,), generator=generator)
    if kind == "empty":
        edges = torch.where(edges == num_parts - 1, 0, edges)
    masters = parts(graph, num_parts, kind).node_owner
    return Partition(masters, num_parts, edges.to(torch.int16))


def ranks_steps(
    make: Callable[[], Graph], config: Mapping[str, Any], steps: int, num_parts: int | None, kind: str,
    partition: Partition | None = None,
) -> Curve:
    """What a rank of a pool runs: `run_steps` on the graph that `make` returns, parted by `parts` or as given."""
    graph = make()
    if num_parts is not None:
        partition = parts(graph, num_parts, kind)
    return run_steps(config, graph, steps, partition, torch.arange(graph.num_nodes) % 7)


def joined(curves: list[Curve], reference: Curve) -> Curve:
    """One curve whose gradients are whole: those of row-sliced parameters put side by side."""
    whole = {}
    for name, expected in reference.gradients.items():
        own = curves[0].gradients[name]
        whole[name] = own if own.shape == expected.shape else torch.cat([c.gradients[name] for c in curves], -1)
    return replace(curves[0], gradients=whole)


@dataclass(frozen=True)
class Comparison:
    """Training on ranks beside training by one worker.

    Attributes:
        curves: what every rank saw.
        reference: what one worker saw.
        loss_error: of the worst step, relative.
        gradient_error: of the worst gradient of the first step (`worst_gradient_error`).
        unlike: ranks and parameters whose replicated gradient is not that of rank 0.
    """

    curves: list[Curve]
    reference: Curve
    loss_error: float
    gradient_error: float
    unlike: list[tuple[int, str]]


def compare(
    ranks: RankPools, size: int, make: Callable[[], Graph], config: Mapping[str, Any], *,
    steps: int = 20, num_parts: int | None = None, kind: str = "random", partition: Partition | None = None,
    serial_paradigm: Mapping[str, Any] | None = None,
) -> Comparison:
    """Train on `size` ranks, and on one CPU worker that has everything; see `assert_exact`.

    Raises:
        RankError: a rank failed.
    """
    reference = _one_worker(json.dumps(_serial(config, serial_paradigm), sort_keys=True), make, steps)
    curves = ranks(size).run(ranks_steps, make, config, steps, num_parts, kind, partition)
    found, expected = global_losses(curves), global_losses([reference])
    return Comparison(
        curves, reference, worst_loss_error(found, expected),
        worst_gradient_error(joined(curves, reference), reference),
        [(rank, name) for rank, curve in enumerate(curves) for name, gradient in curve.gradients.items()
         if gradient.shape == reference.gradients[name].shape and not torch.equal(gradient, curves[0].gradients[name])],
    )


def assert_exact(
    ranks: RankPools, size: int, make: Callable[[], Graph], config: Mapping[str, Any], bound: float, *,
    steps: int = 20, num_parts: int | None = None, kind: str = "random", partition: Partition | None = None,
    serial_paradigm: Mapping[str, Any] | None = None,
) -> tuple[list[Curve], Curve]:
    """Train on `size` ranks and on one; losses of all steps and gradients of the first one are to agree.

    Args:
        ranks: the fixture.
        size: number of ranks.
        make: returns the graph, in every process.
        config: resolved (`small_config`); where it says `cuda`, ranks train there and the one worker on the CPU.
        bound: relative; 1e-10 for float64, 1e-5 for float32.
        steps: global batches, over as many epochs as that takes.
        num_parts: of vertices by `parts`; None = none, or as in `partition`.
        kind: of these parts.
        partition: instead of them.
        serial_paradigm: of one worker, if not data parallelism.

    Returns:
        What every rank saw, and what one worker saw.

    Raises:
        AssertionError: they differ by more than `bound`, or the ranks' gradients of a replicated parameter differ.
        RankError: a rank failed.
    """
    found = compare(ranks, size, make, config, steps=steps, num_parts=num_parts, kind=kind, partition=partition,
                    serial_paradigm=serial_paradigm)
    assert found.loss_error <= bound, f"loss differs by {found.loss_error}"
    assert found.gradient_error <= bound, f"a gradient differs by {found.gradient_error}"
    for rank, name in found.unlike:
        raise AssertionError(f"rank {rank} has another gradient of {name}")
    return found.curves, found.reference


def _serial(config: Mapping[str, Any], paradigm: Mapping[str, Any] | None) -> dict[str, Any]:
    """The same training by one CPU worker that has everything."""
    plain, store = small_config(config["model"]), config["feature_store"]
    trained = {**store, "_target_": store["_target_"].replace("Sliced", "")}
    return {
        **config, "paradigm": plain["paradigm"] if paradigm is None else dict(paradigm),
        "feature_store": trained if "Embedding" in store["_target_"] else plain["feature_store"],
        "sampler": {**config["sampler"], "topology": "replicated"},
        "hardware": {**config["hardware"], "device": "cpu", "workers": 1},
    }


@lru_cache(maxsize=64)
def _one_worker(config: str, make: Callable[[], Graph], steps: int) -> Curve:
    """What many ways on many ranks are compared with: the same for all of them."""
    return run_steps(json.loads(config), make(), steps)
