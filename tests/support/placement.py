"""Comparing runs whose data is placed over ranks with one worker that has everything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any

import pytest
import torch
from training import Curve, global_losses, run_steps, small_config, worst_gradient_error

from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition

FUSED = "gnnexp.samplers.fused.FusedSampler"


def combinations(*axes: Iterable[Any], quick: Callable[..., bool]) -> list[Any]:
    """Every combination as a case of `pytest.mark.parametrize`; those that are not `quick` run in `make test-slow`."""
    return [pytest.param(*values, marks=() if quick(*values) else pytest.mark.slow) for values in product(*axes)]


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
    """What a rank of the pool runs."""
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


@lru_cache(maxsize=64)
def _one_worker(config: str, make: Callable[[], Graph], steps: int) -> Curve:
    """What many ways on many ranks are compared with: the same for all of them."""
    return run_steps(json.loads(config), make(), steps)


def assert_exact(
    ranks: Any, size: int, make: Callable[[], Graph], config: Mapping[str, Any], bound: float, *,
    steps: int = 20, num_parts: int | None = None, kind: str = "random", partition: Partition | None = None,
    serial_paradigm: Mapping[str, Any] | None = None,
) -> tuple[list[Curve], Curve]:
    """Losses of all steps and gradients of the first one agree with one worker's; returns all curves."""
    serial = {**config, "paradigm": small_config(config["model"])["paradigm"]}
    store = config["feature_store"]
    if "Embedding" in store["_target_"]:
        serial["feature_store"] = {**store, "_target_": store["_target_"].replace("Sliced", "")}
    else:
        serial["feature_store"] = small_config(config["model"])["feature_store"]
    if serial_paradigm is not None:
        serial["paradigm"] = serial_paradigm
    serial["sampler"] = {**config["sampler"], "topology": "replicated"}
    reference = _one_worker(json.dumps(serial, sort_keys=True), make, steps)
    curves = ranks(size).run(ranks_steps, make, config, steps, num_parts, kind, partition)
    found, expected = global_losses(curves), global_losses([reference])
    worst = max(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True))
    assert worst <= bound, f"loss differs by {worst}"
    whole = joined(curves, reference)
    assert worst_gradient_error(whole, reference) <= bound
    for curve in curves:  # replicated gradients are the same everywhere
        for name, gradient in curve.gradients.items():
            if gradient.shape == reference.gradients[name].shape:
                assert torch.equal(gradient, curves[0].gradients[name])
    return curves, reference
