"""Chunks that stay on the device change no result; what crosses falls by their topology times (visits - 1)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from combinations import combinations
from experiments import assembled, experiment_in
from full_graph import full_config

from gnnexp.comm.environment import read_environment
from gnnexp.errors import ConfigError
from gnnexp.experiment.build import build
from gnnexp.graph.block import Block
from gnnexp.paradigms.base import Paradigm
from gnnexp.paradigms.columns.trainer import ColumnTrainer
from gnnexp.paradigms.offload import OffloadTrainer
from gnnexp.paradigms.vertices.edge_cut import EdgeCutTrainer
from gnnexp.testing.exactness import parts
from gnnexp.testing.graphs import nasty_graph, weighted_graph
from gnnexp.testing.ways import TENSOR, VERTEX
from gnnexp.training.assemble import Artifacts
from gnnexp.training.train import probe_memory

OFFLOAD = "gnnexp.paradigms.offload.Offload"
WAYS: dict[str, dict[str, Any]] = {
    "coupled": {"_target_": TENSOR, "mode": "coupled", "chunks": 5},
    "decoupled": {"_target_": TENSOR, "mode": "decoupled", "chunks": 5},
    "pipelined": {"_target_": TENSOR, "mode": "decoupled", "chunks": 5, "pipeline": True, "nn_device": "host"},
    "vertex": {"_target_": VERTEX, "chunks": 4},
    "offload": {"_target_": OFFLOAD, "chunks": 4, "keep": "paper", "rows": "raw"},
    "projected": {"_target_": OFFLOAD, "chunks": 4, "keep": "outputs", "rows": "projected"},
    "one_chunk": {"_target_": OFFLOAD, "chunks": 1, "keep": "paper", "rows": "raw"},
}
EPOCHS, LAYERS, ALL = 3, 3, 1 << 40


def _config(way: str, model: str, resident: int | str | None, **changes: Any) -> dict[str, Any]:
    paradigm = {**WAYS[way], "resident_memory": resident}
    return full_config(model, paradigm, "float32", model={"layers": LAYERS, "kernel": "numba"}, **changes)


def _blocks(trainer: Any) -> list[Block]:
    """The blocks of the chunks of a rank, in the order of their visits, each once."""
    if isinstance(trainer, ColumnTrainer):
        return [chunk.block for chunk in trainer.chunks]
    if isinstance(trainer, OffloadTrainer):
        return [it.chunk.block for it in trainer.planned.transitions.visits if it.chunk.block.num_dst]
    assert isinstance(trainer, EdgeCutTrainer) and trainer.local is not None
    return list(dict.fromkeys(chunk.block for chunks in trainer.local.chunks for chunk in chunks))


def _run(
    config: dict[str, Any], size: int, weighted: bool = False
) -> tuple[list[float], dict[str, int], list[tuple[int, ...]]]:
    """Losses and counts of some epochs; of every chunk the bytes of its arrays."""
    graph = weighted_graph() if weighted else nasty_graph()
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(graph, parts(graph, size)), Path(folder), read_environment())
        trainer.module.train()
        losses = []
        for epoch in range(EPOCHS):
            for batch in trainer.batches(epoch):
                losses.append(float(trainer.forward_backward(batch)[0]))
                trainer.synchronize()
        counts = trainer.end_epoch().work
        sizes = [_sizes(block) for block in _blocks(trainer)]
        job.comm.release()
    return losses, counts, sizes


def _sizes(block: Block) -> tuple[int, ...]:
    """Bytes of arrays, of degrees, of the transpose, of weights that cross, and of destinations' ids."""
    turned = sum(array.nbytes for array in block.transpose.arrays())
    return block.nbytes(), 8 * block.num_dst, turned, 4 * block.num_edges, block.dst_ids.nbytes


def _saved(way: str, weights: bool, sizes: tuple[int, ...]) -> int:
    """Bytes that a chunk which stays saves in all epochs: what it reads in every visit, less one crossing of each."""
    arrays, degrees, turned, weight, ids = sizes
    weight *= weights
    visits = {
        # Layer 1 has features that take no gradient.
        "coupled": LAYERS * (arrays + weight) + (LAYERS - 1) * (degrees + turned + weight),
        "decoupled": LAYERS * (arrays + weight) + LAYERS * (degrees + turned + weight),
        "vertex": LAYERS * arrays + LAYERS * (arrays + turned),
        "offload": LAYERS * arrays + LAYERS * (arrays + turned),
        "projected": LAYERS * arrays + LAYERS * (arrays + turned) + 2 * ids,
    }
    of_way = {"pipelined": "decoupled", "one_chunk": "offload"}.get(way, way)
    return EPOCHS * visits[of_way] - (arrays + turned + weight)


@pytest.mark.parametrize(
    ("size", "way", "weighted"),
    combinations(
        [1, 2, 3],
        list(WAYS),
        [False, True],
        quick=lambda size, way, weighted: (
            (size, weighted) == (1 if way == "one_chunk" else 2, way in ("coupled", "pipelined"))
        ),
    ),
)
def test_what_crosses_falls_by_the_topology_of_all_visits_but_one(ranks, size, way, weighted):
    every = ranks(size).run(_run, _config(way, "gcn", None), size, weighted)
    weights = weighted and way in ("coupled", "decoupled", "pipelined")  # others make them of the topology
    for budget in (0, sum(map(sum, every[0][2])) // 3, ALL):
        for before, after in zip(
            every, ranks(size).run(_run, _config(way, "gcn", budget), size, weighted), strict=True
        ):
            assert before[0] == after[0], "losses, bit by bit"
            staying, used = [], 0
            for sizes in before[2]:
                used += sizes[0] + sizes[2] + sizes[3] * weights
                if used > budget:
                    break
                staying.append(sizes)
            expected = before[1]["tier/h2d_bytes"] - sum(_saved(way, weights, sizes) for sizes in staying)
            assert after[1]["tier/h2d_bytes"] == expected
            held = sum(sizes[0] + sizes[2] + sizes[3] * weights for sizes in staying)
            assert after[1].get("tier/resident_bytes", 0) == held
            assert after[1].get("tier/resident_chunks", 0) == len(staying)
            same = {name: count for name, count in after[1].items() if "resident" not in name}
            assert {**same, "tier/h2d_bytes": 0} == {**before[1], "tier/h2d_bytes": 0}


@pytest.mark.parametrize(
    ("way", "model"),
    combinations(
        ["coupled", "decoupled", "pipelined", "vertex", "projected"],
        ["gat", "gin", "gat_residual", "written_here"],
        quick=lambda *case: case in (("pipelined", "gat"), ("projected", "gat_residual"), ("coupled", "written_here")),
    ),
)
def test_no_model_sees_the_difference(ranks, way, model):
    without, stays = (ranks(2).run(_run, _config(way, model, budget), 2) for budget in (None, ALL))
    for before, after in zip(without, stays, strict=True):
        assert before[0] == after[0]
        assert after[1]["tier/h2d_bytes"] < before[1]["tier/h2d_bytes"]


def _probed(config: dict[str, Any], size: int) -> tuple[int, int, int]:
    """Peak of the device tier, chunks that stay, and all chunks of a rank."""
    graph = nasty_graph(3000, 40000, 64, 24)
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(graph, parts(graph, size)), Path(folder), read_environment())
        peak = probe_memory(job)["device_peak_bytes"]
        held, blocks = job.tier.resident, _blocks(trainer)
        job.comm.release()
    return peak, sum(block in held for block in blocks), len(blocks)


@pytest.mark.parametrize(
    ("way", "model"),
    combinations(
        ["coupled", "decoupled", "pipelined", "vertex", "offload", "projected"],
        ["gcn", "gat"],
        quick=lambda *case: case in (("pipelined", "gat"), ("vertex", "gcn"), ("offload", "gcn")),
    ),
)
def test_what_fits_stays_in_the_memory_of_the_device(ranks, way, model):
    """`fit` leaves the working set its place: the peak is below the limit, with few chunks that stay and with many."""
    base, counts = _config(way, model, "fit"), []
    base["paradigm"]["chunks"] = 12
    for limit in (1_500_000, 3_000_000, 20_000_000, None):
        base["hardware"]["device_memory"] = limit
        told = ranks(2).run(_probed, base, 2)
        assert all(peak <= limit for peak, stay, _ in told if stay and limit)
        counts.append(min(stay / of for _, stay, of in told))
    assert counts == sorted(counts) and counts[-2] == 1.0 and counts[0] < 1.0


# --- what makes no sense ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"_target_": TENSOR, "chunks": 4}, -1),
        ({"_target_": VERTEX, "chunks": 4}, "all"),
        ({"_target_": OFFLOAD}, 1.5),
        ({"_target_": TENSOR}, 1000),
        ({"_target_": VERTEX}, "fit"),
    ],
)
def test_options_that_make_no_sense(options, value):
    with pytest.raises(ConfigError) as error:
        build({**options, "resident_memory": value}, Paradigm, "paradigm")
    assert [problem.key.removeprefix("paradigm.") for problem in error.value.problems] == ["resident_memory"]


@pytest.mark.parametrize(
    ("model", "resident", "limit", "fix"),
    [
        ("gcn", "fit", None, ""),
        ("gcn", 2000, 1000, "fit"),
        ("sage_pool", "fit", 1000, "bytes"),
        ("gcn", "fit", 1000, ""),
        ("gcn", 1000, 1000, ""),
        ("sage_pool", 1000, None, ""),
    ],
)
def test_a_device_that_is_too_small_and_layers_of_unknown_size_are_refused(model, resident, limit, fix):
    models = {"sage_pool": {"_target_": "gnnexp.models.sage_pool.SAGEPoolOptions"}}
    config = full_config("gcn", {**WAYS["vertex"], "resident_memory": resident}, hardware={"device_memory": limit})
    config["model"] = {**config["model"], **models.get(model, {})}
    experiment = experiment_in(config)
    problems = experiment.paradigm.check(experiment)
    assert [problem.key for problem in problems] == ["paradigm.resident_memory"] * bool(fix)
    assert all(fix in problem.fix for problem in problems)
