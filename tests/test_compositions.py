"""Systems that compose what other systems have: exact as presets, with the bytes, rounds and hits of their formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from combinations import combinations

from gnnexp.config.compose import compose
from gnnexp.experiment.build import read
from gnnexp.graph.graph import Graph
from gnnexp.paradigms.loops.targets import targets_of_rank
from gnnexp.testing.exactness import assert_exact, parts, ranks_steps
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.ranks import RankPools
from gnnexp.testing.steps import Curve

FULL_GRAPH = ("cagnet_1d",)
CACHING = ("gnnlab_cache", "pagraph", "dgl_cached", "quiver_best", "salientpp", "dsp", "cooperative")
OTHER_CASE = ("dsp", "salientpp", "cooperative")
LAYERS, FEATURES, HIDDEN, CLASSES, STEPS = 2, 13, 16, 4, 2
CAPACITY, ITEM = 7, 4
SMALL = (
    "dataset=digits",
    "tracker=none",
    "hardware.threads=1",
    f"model.hidden={HIDDEN}",
    f"model.layers={LAYERS}",
    "train.overlap=false",
)
MINI_BATCH = (f"feature_store.cache.capacity={CAPACITY}", "train.batch_of=run")


def of_preset(system: str, size: int, *changes: str) -> dict[str, Any]:
    """The configuration of a preset with a small model, and a small batch where it samples."""
    small = SMALL if system in FULL_GRAPH else (*SMALL, *MINI_BATCH)
    return compose([f"system={system}", f"hardware.workers={size}", *small, *changes]).config


def sparse_graph() -> Graph:
    """A graph in which two hops do not reach all vertices."""
    return nasty_graph(num_edges=120)


@pytest.mark.parametrize(
    ("system", "model", "size", "kind"),
    combinations(
        [*FULL_GRAPH, *CACHING],
        ["gcn", "sage", "gat", "gin"],
        [1, 2, 3, 4],
        ["random", "empty"],
        quick=lambda system, model, size, kind: (
            (model, size, kind) == (("sage", 3, "empty") if system in OTHER_CASE else ("gcn", 4, "random"))
        ),
    ),
)
def test_a_preset_is_exact(ranks, steps, system, model, size, kind):
    """With keys of the global batch, losses and gradients are those of one worker."""
    more = [] if system in FULL_GRAPH else ["sampler.fanouts=[4,3]", "sampler.key=global", "train.batch_size=8"]
    config = of_preset(system, size, f"model={model}", "train.dtype=float64", "model.dropout=0.5", *more)
    assert_exact(ranks, size, nasty_graph, config, 1e-10, num_parts=size, kind=kind, steps=steps)


@pytest.mark.parametrize("system", [*FULL_GRAPH, *CACHING])
@pytest.mark.parametrize("size", [1, 4])
def test_a_preset_takes_another_store(system: str, size: int) -> None:
    """A preset chooses its cache with the store, so nothing of it is left where the user chooses another one."""
    for store in ("embedding", "local"):
        config = compose(
            [f"system={system}", f"feature_store={store}", f"hardware.workers={size}", "dataset=digits"]
        ).config
        assert read(config).problems == ()
        assert config["feature_store"] == compose([f"feature_store={store}"]).config["feature_store"]


# --- counts ----------------------------------------------------------------------------------------------------------


def counted(ranks: RankPools, system: str, size: int, *changes: str) -> list[Curve]:
    """Each step has all targets, in order, and all neighbours: what ranks read follows from the graph alone."""
    whole = () if system in FULL_GRAPH else ("sampler.fanouts=[-1,-1]", "train.batch_size=null", "train.shuffle=false")
    config = of_preset(system, size, "model=sage", "train.dtype=float32", *whole, *changes)
    return ranks(size).run(ranks_steps, sparse_graph, config, STEPS, size, "random")


def reached(graph: Graph, targets: list[int], hops: int) -> set[int]:
    """Targets and all vertices from which a path of at most `hops` edges leads to one of them."""
    found = set(targets)
    for _ in range(hops):
        found |= {u for v in found for u in graph.indices[int(graph.indptr[v]) : int(graph.indptr[v + 1])].tolist()}
    return found


def of_ranks(graph: Graph, size: int, owner: torch.Tensor | None) -> list[list[int]]:
    """Targets of each rank: those that it owns, or a share of equal size."""
    assert graph.splits is not None
    targets = graph.splits.train
    shares = (
        [targets_of_rank(targets, rank, size) for rank in range(size)]
        if owner is None
        else [targets[owner[targets] == rank] for rank in range(size)]
    )
    return [share.tolist() for share in shares]


def hottest(heat: torch.Tensor, candidates: list[int], count: int) -> list[int]:
    return sorted(candidates, key=lambda vertex: (-int(heat[vertex]), vertex))[:count]


def frequency(graph: Graph) -> torch.Tensor:
    """Pre-sampled counts of `ranks_steps`."""
    return torch.arange(graph.num_nodes) % 7


def total(curves: list[Curve], name: str) -> int:
    return sum(curve.work.get(name, 0) for curve in curves)


def sent(curves: list[Curve], tag: str) -> int:
    return sum(curve.sent_bytes.get(tag, 0) for curve in curves)


def gradient_bytes(size: int) -> int:
    """Of one step of GraphSAGE: two matrices and a bias in each layer."""
    parameters = (2 * FEATURES * HIDDEN + HIDDEN) + (2 * HIDDEN * CLASSES + CLASSES)
    return 2 * (size - 1) * parameters * ITEM


@pytest.mark.parametrize("size", [1, 3])
def test_cagnet_broadcasts_whole_parts_before_every_layer(ranks, size):
    """N broadcasts of V rows in all forward for each layer, one exchange of V rows from each other rank backward."""
    curves, vertices = counted(ranks, "cagnet_1d", size), sparse_graph().num_nodes
    copies = STEPS * (size - 1) * vertices * ITEM
    assert sent(curves, "features") == copies * FEATURES
    assert sent(curves, "activations") == copies * 2 * (LAYERS - 1) * HIDDEN
    assert sent(curves, "gradients") == STEPS * gradient_bytes(size)
    expected = {"features": size, "activations": (size + 1) * (LAYERS - 1), "gradients": 1} if size > 1 else {}
    assert all(curve.rounds == {tag: count * STEPS for tag, count in expected.items()} for curve in curves)


@pytest.mark.parametrize(("system", "heat"), [("gnnlab_cache", frequency), ("pagraph", lambda graph: graph.out_degree)])
def test_a_replicated_cache_saves_its_hits_and_sends_nothing(
    ranks: RankPools, system: str, heat: Callable[[Graph], torch.Tensor]
) -> None:
    """Every rank has the same hottest rows. The host gives the others; ranks exchange gradients only."""
    graph, size = sparse_graph(), 3
    cached = hottest(heat(graph), list(range(graph.num_nodes)), CAPACITY)
    curves = counted(ranks, system, size)
    for curve, targets in zip(curves, of_ranks(graph, size, None), strict=True):
        inputs = reached(graph, targets, LAYERS)
        hits = len(inputs.intersection(cached))
        assert 0 < hits < len(inputs)
        assert curve.work["features_loaded_local"] == STEPS * hits
        assert curve.work["features_loaded_host"] == STEPS * (len(inputs) - hits)
        assert curve.rounds == {"gradients": STEPS}
    assert sent(curves, "gradients") == STEPS * gradient_bytes(size)


def test_what_fits_is_read_on_the_device_alone(ranks: RankPools) -> None:
    curves = counted(ranks, "dgl_cached", 3, "feature_store.cache.capacity=1.0")
    assert total(curves, "features_loaded_local") > 0
    assert total(curves, "features_loaded_host") == 0


@pytest.mark.parametrize("capacity", [0, CAPACITY, 60])
def test_salientpp_asks_owners_for_foreign_rows_that_it_does_not_cache(ranks, capacity):
    """An id and a row for each foreign input but those in the cache, in two rounds; own rows are never cached."""
    graph, size = sparse_graph(), 3
    owner = parts(graph, size).node_owner
    curves, asked = counted(ranks, "salientpp", size, f"feature_store.cache.capacity={capacity}"), 0
    for rank, targets in enumerate(of_ranks(graph, size, owner)):
        inputs = reached(graph, targets, LAYERS)
        foreign = [vertex for vertex in range(graph.num_nodes) if owner[vertex] != rank]
        hits = inputs.intersection(hottest(frequency(graph), foreign, capacity))
        missed = inputs.intersection(foreign) - hits
        work = curves[rank].work
        assert work["features_loaded_local"] == STEPS * len(hits)
        assert work["features_loaded_remote"] == STEPS * len(missed)
        assert work["features_loaded_host"] == STEPS * len(inputs.difference(foreign))
        assert "frontier" not in curves[rank].rounds and curves[rank].rounds["features"] == 2 * STEPS
        asked += len(missed)
    assert (asked == 0) == (capacity == 60)
    assert sent(curves, "features") == STEPS * asked * (4 + FEATURES * ITEM)


def test_dsp_draws_at_owners_and_reads_hot_rows_of_peers(ranks):
    """An id, a length and the neighbours for each foreign vertex of the frontier; an id and a row for each peer hit."""
    graph, size = sparse_graph(), 3
    owner, in_degree = parts(graph, size).node_owner, graph.indptr.diff()
    dealt = hottest(frequency(graph), list(range(graph.num_nodes)), size * CAPACITY)
    curves, frontier, from_peers = counted(ranks, "dsp", size), 0, 0
    for rank, targets in enumerate(of_ranks(graph, size, owner)):
        inputs = reached(graph, targets, LAYERS)
        asked = [vertex for vertex in reached(graph, targets, LAYERS - 1) if owner[vertex] != rank]
        own, hits = inputs.intersection(dealt[rank::size]), inputs.intersection(dealt)
        work = curves[rank].work
        assert work["features_loaded_local"] == STEPS * len(own)
        assert work["features_loaded_peer"] == STEPS * len(hits - own) > 0
        assert work["features_loaded_host"] == STEPS * len(inputs - hits)
        assert curves[rank].rounds["frontier"] == STEPS * 2 * (LAYERS - 1)
        assert curves[rank].rounds["features"] == STEPS * 2
        frontier += sum(8 + 4 * int(in_degree[vertex]) for vertex in asked)
        from_peers += len(hits - own)
    assert sent(curves, "frontier") == STEPS * frontier > 0
    assert sent(curves, "features") == STEPS * from_peers * (4 + FEATURES * ITEM)


def test_cooperating_ranks_load_each_row_once(ranks):
    """All ranks together load what one rank would. The vertices of each hop but the last are sent to their owners."""
    size, sampled = 3, ("sampler.fanouts=[3,3]", "feature_store.cache.capacity=0")
    (alone,), curves = (counted(ranks, "cooperative", count, *sampled) for count in (1, size))
    assert total(curves, "features_loaded_host") == alone.work["features_loaded_host"] > 0
    assert total(curves, "edges_computed") == alone.work["edges_computed"] > 0
    assert all(curve.rounds["frontier"] == STEPS * LAYERS for curve in curves)
