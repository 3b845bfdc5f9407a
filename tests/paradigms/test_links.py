"""Link prediction over trained rows is exact under every paradigm: ends of links, negatives and rows are elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from combinations import combinations
from links_config import WAYS, config_of, linked, plain_links, typed_links

from gnnexp.comm import shuffle
from gnnexp.experiment.build import build
from gnnexp.graph.block import BatchKey
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.paradigms.loops.targets import targets_of_rank
from gnnexp.tasks.link_prediction import LinkPrediction, LinkPredictionOptions
from gnnexp.testing.exactness import assert_exact, parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import Curve, global_losses, optimizer, run_steps, small_config
from gnnexp.testing.ways import MINI_BATCH, SLICED, placed


def check(
    ranks: Any,
    size: int,
    way: str,
    model: str,
    task: str = "distmult",
    kind: str = "random",
    bound: float = 1e-10,
    dtype: str = "float64",
    *,
    steps: int,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    make = typed_links if model in ("basis", "block") else plain_links
    partition = placed(way, make(), size, kind)
    config = config_of(way, model, task, dtype)
    for group, values in (changes or {}).items():
        config[group] = {**config[group], **values}
    assert_exact(ranks, size, make, config, bound, partition=partition, steps=steps)


@pytest.mark.parametrize(
    ("size", "way", "model"),
    combinations(
        [1, 2, 3, 4],
        WAYS,
        ["basis", "block", "gcn", "sage_residual", "gat", "gin"],
        quick=lambda size, way, model: (
            size == 3
            and (way, model)
            in (
                *((way, "basis") for way in ("data", "split", "aggregates")),
                ("communicate", "sage_residual"),
                ("offload_projected", "basis"),
            )
        ),
    ),
)
def test_same_losses_gradients_and_rows_as_one_worker(ranks, size, way, model, steps):
    steps = 20 if way == "split" else steps
    check(ranks, size, way, model, steps=steps)


@pytest.mark.parametrize(
    ("way", "model", "kind"),
    combinations(
        [way for way, (_, place) in WAYS.items() if place],
        ["basis", "sage"],
        ["skewed", "empty"],
        quick=lambda way, model, kind: kind == "empty" and (way, model) in (("vertex_cut", "basis"), ("split", "sage")),
    ),
)
def test_uneven_and_empty_parts(ranks, way, model, kind, steps):
    """A rank without vertices has links all the same."""
    check(ranks, 3, way, model, kind=kind, steps=steps)


@pytest.mark.parametrize(
    ("way", "task"),
    combinations(
        WAYS,
        ["dot", "mlp"],
        quick=lambda way, task: (way, task) in (("split", "mlp"), ("coupled", "dot"), ("aggregates", "mlp")),
    ),
)
def test_decoders_and_ways_to_draw_negatives(ranks, way, task, steps):
    check(ranks, 3, way, "sage", task, steps=steps)


@pytest.mark.parametrize(
    ("way", "model"),
    combinations(MINI_BATCH, ["basis", "sage", "gcn"], quick=lambda way, model: (way, model) == ("split", "basis")),
)
def test_targets_left_out_of_message_passing(ranks, way, model, steps):
    task, changes = "mlp" if model != "basis" else "distmult", {"task": {"exclude_targets": True}}
    check(ranks, 3, way, model, task, changes=changes, steps=steps)


@pytest.mark.parametrize(
    ("size", "way", "changes"),
    [
        (2, "split", {"optimizer": optimizer("SGD")}),
        (2, "communicate", {"train": {"batch_size": None}}),
        (1, "data", {"sampler": {"key": "micro"}, "hardware": {"workers": 1}}),
        # A rank has no column of the trained rows.
        (3, "aggregates", {"optimizer": optimizer("SGD"), "feature_store": {"dim": 2}}),
        (3, "projections", {"optimizer": optimizer("SGD"), "feature_store": {"dim": 2}}),
        (3, "aggregates", {"optimizer": optimizer("Adam"), "feature_store": {"dim": 2}}),
    ],
)
def test_other_settings(ranks, size, way, changes, steps):
    check(ranks, size, way, "sage", "dot", changes=changes, steps=steps)


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way in ("data", "vertex_cut") else pytest.mark.slow) for way in WAYS]
)
def test_ranks_without_any_link(ranks, way):
    """They compute for others, or take part in exchanges only."""
    check(ranks, 3, way, "sage", changes={"train": {"batch_size": 2}}, steps=4)


@pytest.mark.parametrize("topology", ["replicated", "partitioned"])
def test_links_at_the_owner_of_their_head(ranks, topology, steps):
    """As DistDGL has them; a partitioned topology is asked for the first hop too."""
    config = config_of("data", "basis", "distmult")
    config["paradigm"] = {**config["paradigm"], "assign": "owner"}
    config["sampler"] |= {"topology": topology}
    curves, _ = assert_exact(ranks, 3, typed_links, config, 1e-10, steps=steps, partition=parts(typed_links(), 3))
    assert curves[0].rounds.get("frontier", 0) == (topology == "partitioned") * 2 * config["model"]["layers"] * steps


@pytest.mark.parametrize("way", [pytest.param("split", marks=pytest.mark.slow), "coupled"])
def test_float32(ranks, way):
    check(ranks, 3, way, "basis", bound=1e-4, dtype="float32", steps=6)


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way in ("data", "vertex_cut") else pytest.mark.slow) for way in WAYS]
)
def test_vertices_are_classified_from_trained_rows(ranks, way, steps):
    """Trained rows go with any task."""
    config = config_of(way, "sage", "dot")
    config["task"] = small_config({})["task"]
    config["train"]["batch_size"] = 8 if way in MINI_BATCH else None
    partition = placed(way, nasty_graph(), 3)
    assert_exact(ranks, 3, nasty_graph, config, 1e-10, partition=partition, steps=steps)


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way in ("split", "coupled_in_chunks") else pytest.mark.slow) for way in WAYS]
)
def test_links_of_a_graph_with_features(ranks, way, steps):
    """Links go with any features."""
    config = config_of(way, "sage", "dot")
    sliced = way in SLICED
    config["feature_store"] = {
        "_target_": "gnnexp.feature_stores.sliced.SlicedOptions"
        if sliced
        else "gnnexp.feature_stores.local.LocalOptions"
    }
    partition = placed(way, featured(), 3)
    assert_exact(ranks, 3, featured, config, 1e-10, partition=partition, steps=steps)


def featured() -> Graph:
    return replace(linked(typed=False), features=nasty_graph().features)


# --- controls --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("broken", ["gradients_stay", "negatives_by_rank"])
def test_a_mistake_would_be_seen(ranks, broken):
    config = config_of("split", "sage", "distmult")
    expected = global_losses([run_steps({**config, "paradigm": WAYS["data"][0]}, plain_links(), 6)])
    found = global_losses(ranks(2).run(_broken, config, broken))
    assert max(abs(a - b) for a, b in zip(found, expected, strict=True)) > 1e-4


def _broken(config: dict[str, Any], broken: str) -> Curve:
    with pytest.MonkeyPatch.context() as patch:
        if broken == "gradients_stay":
            patch.setattr(
                shuffle.ShuffleIndex, "scatter_add_home", lambda self, rows, comm, tag: rows[: self.num_local]
            )
        else:
            drawn = LinkPrediction.examples
            patch.setattr(
                LinkPrediction,
                "examples",
                lambda self, chosen, batch, key: drawn(
                    self, chosen, batch, replace(key, step=key.step + 1000 * int(os.environ.get("RANK", "0")))
                ),
            )
        return run_steps(config, plain_links(), 6, parts(plain_links(), 2))


# --- counts ----------------------------------------------------------------------------------------------------------
def test_bytes_of_endpoints_and_rows_equal_their_formulas(ranks):
    """Full graph, one step: a rank asks for foreign ends once; a row comes and its gradient goes back."""
    config = config_of("communicate", "sage", "dot")
    config["train"]["batch_size"] = None
    partition = parts(plain_links(), 3)
    found = ranks(3).run(_asked, config, partition)
    for rank, (curve, foreign_by_rank) in enumerate(found):
        width, size = 16, 8
        given = sum(other[rank] for _, other in found)
        asked = sum(foreign_by_rank)
        assert curve.sent_bytes["endpoints"] == (given + asked) * width * size  # rows out, gradients out
        assert curve.rounds["endpoints"] == 2
        # Own rows are all that is read: layer 1 fetches foreign ones, as features are.
        assert curve.sent_bytes["embeddings"] == 0


def _asked(config: dict[str, Any], partition: Partition) -> tuple[Curve, list[int]]:
    curve = run_steps(config, plain_links(), 1, partition)
    rank, size = int(os.environ["RANK"]), 3
    task = build(config["task"], LinkPredictionOptions).make()
    task.setup(plain_links())
    targets = task.targets()
    own = task.examples(targets_of_rank(targets, rank, size), targets, BatchKey(config["seed"], 0, 0)).vertices
    owner = partition.node_owner[own]
    return curve, [0 if part == rank else int((owner == part).sum()) for part in range(size)]
