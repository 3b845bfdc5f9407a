"""DistGNN's cd-r with bins, and PipeGCN with averages: what is used when, what is sent when, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from experiments import experiment_in, planned
from full_graph import full_config
from late_reference import Epoch, Lateness, epochs_on_rank, reference_losses

from gnnexp.errors import ConfigError
from gnnexp.experiment.build import build
from gnnexp.graph.partition import Partition
from gnnexp.paradigms.base import Paradigm
from gnnexp.paradigms.vertex_parallel import VertexParallel
from gnnexp.testing.exactness import cut_parts, parts
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.ways import VERTEX

LAYERS, HIDDEN, CLASSES, EPOCHS = 3, 16, 4, 12
PLAIN = {"layers": LAYERS, "dropout": 0.0, "input_dropout": 0.0}


def config_of(late: Lateness, model: str = "sage", plain: bool = True, **options: Any) -> dict[str, Any]:
    paradigm = {"_target_": VERTEX, **late._asdict(), **options}
    config = full_config(model, paradigm, model=PLAIN if plain else {"layers": LAYERS})
    config["optimizer"] = {"_target_": "torch.optim.Adam", "_partial_": True, "lr": 0.02}
    return config


def partition_of(cut: str, size: int, kind: str = "random") -> Partition:
    return (cut_parts if cut == "vertices" else parts)(nasty_graph(), size, kind)


def losses_of(ranks: list[list[Epoch]]) -> list[float]:
    steps = zip(*ranks, strict=True)
    return [sum(one.loss for one in step) / sum(one.targets for one in step) for step in steps]


def trained(ranks: Any, config: dict[str, Any], partition: Partition, epochs: int = EPOCHS) -> list[list[Epoch]]:
    return ranks(partition.num_parts).run(epochs_on_rank, config, partition, epochs)


# --- the definition --------------------------------------------------------------------------------------------------
QUICK = [
    ("vertices", Lateness(5, 5), 3, "random", True),
    ("edges", Lateness(1, 1, 0.95, 0.95), 3, "random", True),
    ("edges", Lateness(2, 3), 2, "empty", False),
]
SLOW = [
    (cut, late, size, kind, pipeline)
    for cut in ("vertices", "edges")
    for late in (Lateness(1), Lateness(3, 2), Lateness(2, 5, 0.5), Lateness(1, 1, 0.0, 0.7), Lateness(2, 100))
    for size, kind, pipeline in ((2, "random", True), (3, "empty", True), (4, "skewed", True), (4, "random", False))
]


@pytest.mark.parametrize(
    ("cut", "late", "size", "kind", "pipeline"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)],
)
def test_losses_are_those_of_a_simulation_with_dense_matrices(ranks, cut, late, size, kind, pipeline):
    config, partition = config_of(late, pipeline=pipeline), partition_of(cut, size, kind)
    found = losses_of(trained(ranks, config, partition))
    expected = reference_losses(config, nasty_graph(), partition, late, EPOCHS)
    assert found == pytest.approx(expected, rel=1e-10, abs=0)


def test_a_simulation_of_another_algorithm_is_told_apart() -> None:
    partition, late = partition_of("vertices", 3), Lateness(3, 3)
    config = config_of(late)
    losses = [
        reference_losses(config, nasty_graph(), partition, other, EPOCHS, late_gradients=gradients)[-1]
        for other, gradients in (
            (late, True),
            (late, False),
            (Lateness(2, 3), True),
            (Lateness(3, 2), True),
            (Lateness(3, 3, 0.1), True),
            (Lateness(3, 3, 0.0, 0.1), True),
        )
    ]
    assert all(abs(other / losses[0] - 1) > 1e-6 for other in losses[1:])


@pytest.mark.parametrize(
    ("cut", "model"),
    [
        ("edges", "gat"),
        *(
            pytest.param(cut, model, marks=pytest.mark.slow)
            for cut, model in (
                ("edges", "gin"),
                ("vertices", "gcn"),
                ("edges", "residual"),
                ("vertices", "written_here"),
            )
        ),
    ],
)
def test_nobody_waits_and_the_result_and_the_bytes_are_the_same(ranks, cut, model):
    """With dropout, and all models."""
    late, partition = Lateness(3, 2, 0.5, 0.5), partition_of(cut, 3)
    alone, aside = (
        trained(ranks, config_of(late, model, plain=False, pipeline=pipeline), partition) for pipeline in (False, True)
    )
    assert alone == aside


def test_one_bin_without_averages_is_the_default(ranks):
    partition = partition_of("edges", 2)
    config = config_of(Lateness(2))
    del config["paradigm"]["bins"], config["paradigm"]["smooth_features"], config["paradigm"]["smooth_gradients"]
    assert trained(ranks, config, partition, 6) == trained(ranks, config_of(Lateness(2)), partition, 6)


def test_a_single_rank_is_exact(ranks):
    partition = partition_of("edges", 1)
    late, exact = (
        losses_of(trained(ranks, config_of(lateness, pipeline=bool(lateness.delay)), partition, 4))
        for lateness in (Lateness(2, 2, 0.5, 0.5), Lateness(0))
    )
    assert late == exact


# --- traffic ---------------------------------------------------------------------------------------------------------
def copies_by_bin(partition: Partition, bins: int) -> tuple[list[int], list[int]]:
    """Foreign copies of sources and of destinations of each bin, over all ranks, counted edge by edge."""
    graph, master = nasty_graph(), partition.node_owner.tolist()
    sources, destinations = set(), set()
    for edge, (u, v) in enumerate(zip(graph.indices.tolist(), graph.destinations().tolist(), strict=True)):
        part = master[v] if partition.edge_owner is None else int(partition.edge_owner[edge])
        sources |= {(part, u)} if master[u] != part else set()
        destinations |= {(part, v)} if master[v] != part else set()
    return tuple(  # type: ignore[return-value]
        [sum(v % bins == number for _, v in copies) for number in range(bins)] for copies in (sources, destinations)
    )


@pytest.mark.parametrize(("cut", "late", "size"), [("vertices", Lateness(5, 5), 3), ("edges", Lateness(1, 4, 0.9), 4)])
def test_bytes_of_an_epoch_are_those_of_its_bin(ranks, cut, late, size):
    """Bytes count in the epoch that sends them, whichever epoch uses them. Skipped ones make up the whole."""
    partition = partition_of(cut, size)
    config = config_of(late, cache_input_halo=True, pipeline=True)
    sources, destinations = copies_by_bin(partition, late.bins)
    assert min(sources) < max(sources), "bins differ in size"
    if cut == "vertices":  # projected rows of layers 2 and 3, sums of all layers, and gradients of all of these
        of_rows, of_sums, rounds = HIDDEN + CLASSES, 2 * HIDDEN + CLASSES, 2 * (2 + 3)
    else:
        of_rows, of_sums, rounds = 2 * HIDDEN, 0, 2 * 2
    run = trained(ranks, config, partition, 2 * late.bins + 1)
    for epoch, step in enumerate(zip(*run, strict=True)):
        values = [2 * (rs * of_rows + rd * of_sums) for rs, rd in zip(sources, destinations, strict=True)]
        sent = [sum(one.sent_bytes["activations"] for one in step), sum(one.work["comm/bytes_skipped"] for one in step)]
        now = values[epoch % late.bins]
        assert sent == [8 * now, 8 * (sum(values) - now)]
        assert all(one.rounds["activations"] == rounds and "features" not in one.rounds for one in step)


def test_what_is_never_old_skips_nothing(ranks):
    run = trained(ranks, config_of(Lateness(1, 1, 0.9, 0.9)), partition_of("edges", 2), 2)
    assert all("comm/bytes_skipped" not in one.work for epochs in run for one in epochs)


# --- options ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"bins": 0, "delay": 1}, ["bins"]),
        ({"bins": 2}, ["bins"]),
        ({"bins": 2, "delay": 1, "exchange": "broadcast"}, ["bins"]),
        ({"pipeline": True}, ["pipeline"]),
        ({"pipeline": True, "delay": 1, "exchange": "broadcast"}, ["pipeline"]),
        ({"smooth_features": 1.0, "delay": 1}, ["smooth_features"]),
        ({"smooth_gradients": -0.1, "delay": 1}, ["smooth_gradients"]),
        ({"smooth_features": float("nan"), "delay": 1}, ["smooth_features"]),
        (
            {"bins": 2, "pipeline": True, "smooth_features": 0.5, "smooth_gradients": 0.5},
            ["bins", "smooth_features", "smooth_gradients", "pipeline"],
        ),
    ],
)
def test_options_that_make_no_sense_are_refused_at_once(options, keys):
    with pytest.raises(ConfigError) as error:
        build({"_target_": VERTEX, **options}, Paradigm, "paradigm")
    assert [problem.key.removeprefix("paradigm.") for problem in error.value.problems] == keys
    assert all(problem.fix for problem in error.value.problems)


def test_attention_over_a_vertex_cut_is_refused_with_bins_too() -> None:
    config = config_of(Lateness(5, 5), "gat")
    config["partitioner"] = {"_target_": "gnnexp.partitioners.libra.LibraPartitioner"}
    (problem,) = VertexParallel(delay=5, bins=5).check(experiment_in(config))
    assert problem.key == "paradigm.delay" and "peak" in problem.allowed


def test_the_plan_says_what_is_approximated_and_what_is_kept() -> None:
    config = config_of(Lateness(5))
    config["hardware"] |= {"workers": 3}
    experiment = experiment_in(config)
    plain, binned, averaged = (
        planned(experiment, nasty_graph(), VertexParallel(**options))
        for options in ({"delay": 5}, {"delay": 5, "bins": 5}, {"delay": 1, "smooth_features": 0.95})
    )
    assert plain.approximates == "rows, sums and gradients of other ranks come 5 epochs late"
    assert "every 5 epochs" in binned.approximates and "0.95 of the last average" in averaged.approximates
    # Five epochs of whole rows; five epochs of a fifth, and those in use; one epoch of them, and those in use.
    sizes = [plan.needs[0].num_bytes for plan in (plain, binned, averaged)]
    assert sizes[1] == sizes[2] and abs(sizes[0] - 2.5 * sizes[1]) < 5


def test_dtype_of_kept_rows_is_that_of_the_run(ranks):
    config = config_of(Lateness(2, 2, 0.5, 0.5), pipeline=True)
    config["train"] |= {"dtype": "float32"}
    partition = partition_of("vertices", 3)
    found = losses_of(trained(ranks, config, partition))
    expected = reference_losses(config_of(Lateness(2, 2)), nasty_graph(), partition, Lateness(2, 2, 0.5, 0.5), EPOCHS)
    assert torch.tensor(found).allclose(torch.tensor(expected), rtol=1e-4)
