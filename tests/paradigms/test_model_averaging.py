"""Model averaging: the same to the bit on any number of ranks, and what a plain loop over the parts gives."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from combinations import combinations
from experiments import assembled, experiment_in, planned

from gnnexp.comm.environment import read_environment
from gnnexp.components.facts import GraphFacts
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.graph.parts import open_parts, write_parts
from gnnexp.graph.sparse import SparseRows
from gnnexp.graph.stream import GraphStream
from gnnexp.paradigms.model_averaging import AveragingTrainer, ModelAveraging
from gnnexp.paradigms.parts.needs import feature_bytes
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, run_steps, small_config
from gnnexp.training.assemble import Artifacts
from gnnexp.training.checkpoint import Position
from gnnexp.training.interruption import Interruption
from gnnexp.training.optimization import Optimization, make_optimizer
from gnnexp.training.train import run_epoch

TARGET = "gnnexp.paradigms.model_averaging.ModelAveraging"
PARTS = 8
QUICK = [(2, "float32"), (3, "float64"), (4, "float64")]


RGCN = {
    "basis": {"_target_": "gnnexp.models.rgcn.RGCNOptions"},
    "block": {"_target_": "gnnexp.models.rgcn.RGCNOptions", "decomposition": "block", "blocks": 4},
}


@cache
def graph_of(typed: bool = False, weighted: bool = False) -> Graph:
    graph = nasty_graph(num_nodes=120, num_edges=900, typed=typed)
    weights = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(1))
    return replace(graph, edge_weights=weights if weighted else None)


def owners(parts: int) -> torch.Tensor:
    """Uneven ones; the last part (of several) owns no training vertex, and the one before nothing at all."""
    graph = graph_of()
    owner = (torch.arange(graph.num_nodes) ** 2 // 97 % max(1, parts - 2)).short()
    if parts > 2:
        others = torch.cat([graph.splits.val, graph.splits.test])[:7]
        owner[others] = parts - 1
    return owner


def averaging(model: str, **changes: dict[str, Any]) -> dict[str, Any]:
    paradigm = {"_target_": TARGET, **changes.pop("paradigm", {})}
    train = {"batch_size": 40, "epochs": 4, "eval_every": 0, **changes.pop("train", {})}
    return small_config({**MODELS, **RGCN}[model], paradigm=paradigm, train=train, **changes)


@dataclass(frozen=True)
class Run:
    """What a rank saw: the epochs' losses, the parameters after each, the traffic and work of each."""

    losses: list[list[tuple[float, int]]]
    parameters: list[dict[str, torch.Tensor]]
    sent: list[dict[str, int]]
    rounds: list[dict[str, int]]
    work: list[dict[str, int]]
    exact: bool


@cache
def place_of(parts: int, full: bool, typed: bool, weighted: bool) -> tuple[Path, tempfile.TemporaryDirectory[str]]:
    """Where the parts of a graph are: they are written once, and removed at the end."""
    graph, folder = graph_of(typed, weighted), tempfile.TemporaryDirectory()
    place = Path(folder.name) / "parts"
    write_parts(graph, GraphStream(graph), Partition(owners(parts), parts), place, full_neighbors=full)
    return place, folder


def is_typed(config: dict[str, Any]) -> bool:
    return "RGCN" in config["model"]["_target_"]


def trained(config: dict[str, Any], parts: int, epochs: int, full: bool = True, weighted: bool = False) -> Run:
    """In this process."""
    return on_rank(config, place_of(parts, full, is_typed(config), weighted)[0], epochs, weighted)


def on_ranks(
    ranks: Any, size: int, config: dict[str, Any], parts: int, epochs: int, weighted: bool = False
) -> list[Run]:
    """On every rank of a pool."""
    place, _ = place_of(parts, True, is_typed(config), weighted)
    found: list[Run] = ranks(size).run(on_rank, config, place, epochs, weighted)
    return found


def on_rank(config: dict[str, Any], place: Path, epochs: int, weighted: bool = False) -> Run:
    graph, run = graph_of(is_typed(config), weighted), Run([], [], [], [], [], False)
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(graph, parts=place), Path(folder), read_environment())
        optimization = Optimization(job, trainer)
        job.comm.ledger.take()
        for epoch in range(epochs):
            record = run_epoch(job, trainer, optimization, Position(epoch), {}, Interruption(job.comm)).record
            run.losses.append(list(record.losses))
            run.parameters.append({name: p.detach().clone() for name, p in trainer.module.named_parameters()})
            run.sent.append({tag: traffic.sent_bytes for tag, traffic in record.traffic.items()})
            run.rounds.append({tag: traffic.rounds for tag, traffic in record.traffic.items()})
            run.work.append(dict(record.work))
        exact = job.plan.is_exact
        job.comm.release()
    return replace(run, exact=exact)


@pytest.mark.parametrize("model", [*MODELS, *RGCN])
def test_one_part_is_training_on_one_worker(model):
    """Every draw is keyed by original ids, and the one model's average is itself."""
    config = averaging(model)
    serial = run_steps(small_config(config["model"], train={"batch_size": 40}), graph_of(model in RGCN), 8)
    found = trained(config, 1, 4)
    steps = [step for epoch in found.losses for step in epoch]
    assert [count for _, count in steps] == [count for _, count in serial.losses]
    assert [loss for loss, _ in steps] == pytest.approx([loss for loss, _ in serial.losses], rel=1e-13)
    assert found.exact


@pytest.mark.parametrize(
    "model", ["gcn", "gat", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sage", "gin", *RGCN))]
)
def test_parts_have_weights(ranks, model):
    config = averaging(model)
    serial = run_steps(small_config(config["model"], train={"batch_size": 40}), graph_of(is_typed(config), True), 8)
    steps = [step for epoch in trained(config, 1, 4, weighted=True).losses for step in epoch]
    assert [loss for loss, _ in steps] == pytest.approx([loss for loss, _ in serial.losses], rel=1e-12)
    alone = trained(config, PARTS, 2, weighted=True)
    assert alone.losses != trained(config, PARTS, 2).losses
    for run in on_ranks(ranks, 2, config, PARTS, 2, weighted=True):
        assert all(torch.equal(run.parameters[-1][name], value) for name, value in alone.parameters[-1].items())


@pytest.mark.parametrize(
    ("size", "sync_every", "dtype"),
    combinations(
        [2, 3, 4],
        [1, 3],
        ["float64", "float32"],
        quick=lambda size, sync_every, dtype: sync_every == 1 and (size, dtype) in QUICK,
    ),
)
def test_identical_on_any_number_of_ranks(ranks, size, sync_every, dtype):
    options = {"sync_every": sync_every}
    config = averaging("gat" if sync_every == 1 else "sage", paradigm=options, train={"dtype": dtype})
    alone = trained(config, PARTS, 4)
    assert not alone.exact
    found = on_ranks(ranks, size, config, PARTS, 4)
    for run in found:
        for mine, expected in zip(run.parameters, alone.parameters, strict=True):
            assert all(torch.equal(mine[name], expected[name]) for name in expected), "to the bit"
    for epoch, expected_steps in enumerate(alone.losses):
        steps = [step for run in found for step in run.losses[epoch] if step[1]]
        assert sorted(steps) == sorted(step for step in expected_steps if step[1])


def seen_rows(config: dict[str, Any], place: Path) -> dict[tuple[int, int], list[torch.Tensor]]:
    """What the model of a rank (`weighted.Remembering`) saw in two epochs, by layer and vertex."""
    seen: dict[tuple[int, int], list[torch.Tensor]] = import_module("weighted").SEEN
    seen.clear()
    on_rank(config, place, 2)
    return dict(seen)


def test_rows_of_a_layer_are_seen_with_original_ids(ranks):
    """Rows of targets are the same to the bit, whichever rank trains their part."""
    config = averaging("sage")
    config["model"]["_target_"] = "weighted.Remembering"
    place, _ = place_of(PARTS, True, False, False)
    (alone,) = ranks(1).run(seen_rows, config, place)
    several: dict[tuple[int, int], list[torch.Tensor]] = {}
    for seen in ranks(3).run(seen_rows, config, place):
        several |= {place: rows for place, rows in seen.items() if place[0] == 1}
    assert {vertex for _, vertex in several} == set(graph_of().splits.train.tolist())
    for place, rows in several.items():
        assert len(rows) == len(alone[place]) and all(map(torch.equal, rows, alone[place]))


def test_more_ranks_than_parts(ranks):
    config = averaging("gcn")
    alone = trained(config, 3, 2)
    for run in on_ranks(ranks, 4, config, 3, 2):
        assert all(torch.equal(run.parameters[-1][name], value) for name, value in alone.parameters[-1].items())


def by_hand(config: dict[str, Any], parts: int, epochs: int, sync_every: int) -> dict[str, torch.Tensor]:
    """A model, an optimizer and a loop for every part on its own; averages in float64, in the order of the parts."""
    graph = graph_of()
    place, _ = place_of(parts, True, False, False)
    sizes = open_parts(place).sizes
    with tempfile.TemporaryDirectory() as folder:
        average: dict[str, torch.Tensor] = {}
        models, optimizers = [], []
        for part in range(parts):
            job, trainer = assembled(config, Artifacts(graph, parts=place), Path(folder), read_environment())
            assert isinstance(trainer, AveragingTrainer)
            trainer._mine = range(part, part + 1)
            models.append((job, trainer))
            optimizers.append(make_optimizer(job.model, job.experiment))
        for epoch in range(epochs):
            for part, (_, trainer) in enumerate(models):
                if not sizes[part].train:
                    continue
                turn = trainer._load(part)
                prepare = trainer._preparing(turn, epoch)
                for step in range(turn.schedule.num_steps):
                    batch = prepare(step)
                    trainer.gradients.forget()
                    logits = trainer.job.model(batch.batch, batch.features)
                    examples = batch.own.examples
                    (trainer.job.task.loss_sum(logits, examples) / examples.count).backward()
                    optimizers[part].step()
            if (epoch + 1) % sync_every and epoch + 1 < epochs:
                continue
            total = sum(size.train for size in sizes)
            names = [name for name, _ in models[0][0].model.named_parameters()]
            for name in names:
                average[name] = sum(
                    size.train / total * dict(job.model.named_parameters())[name].detach().double()
                    for size, (job, _) in zip(sizes, models, strict=True)
                )
            for job, _ in models:
                for name, parameter in job.model.named_parameters():
                    parameter.data.copy_(average[name])
        for job, _ in models:
            job.comm.release()
    return average


@pytest.mark.parametrize(
    ("model", "sync_every"),
    combinations(["gcn", "sage", "gat"], [1, 2], quick=lambda *case: case in (("gcn", 1), ("sage", 2), ("gat", 1))),
)
def test_what_a_plain_loop_over_the_parts_gives(model, sync_every):
    config = averaging(model, paradigm={"sync_every": sync_every})
    expected = by_hand(config, 5, 4, sync_every)
    found = trained(config, 5, 4).parameters[-1]
    for name, value in expected.items():
        assert float((found[name] - value).abs().max()) <= 1e-12 * max(1.0, float(value.abs().max()))


@pytest.mark.parametrize("size", [2, 4])
def test_bytes_and_rounds_equal_their_formulas(ranks, size):
    """Whole numbers of 8 bytes are summed; the largest value is sent first."""
    config = averaging("gcn", paradigm={"sync_every": 2}, train={"dtype": "float32"})
    parameters = (13 * 16 + 16) + (16 * 4 + 4)
    runs = on_ranks(ranks, size, config, PARTS, 4)
    for epoch in range(4):
        if (epoch + 1) % 2:
            assert all(not any(run.sent[epoch].values()) for run in runs), "nothing crosses between averages"
            continue
        assert sum(run.sent[epoch]["parameters"] for run in runs) == 2 * (size - 1) * 8 * parameters
        assert sum(run.sent[epoch]["sizes"] for run in runs) == size * (size - 1) * 8
        assert all(run.rounds[epoch] == {"parameters": 1, "sizes": 1} for run in runs)


def test_one_part_after_the_other_is_loaded_and_the_last_one_kept(ranks):
    """Of 8 parts 6 have training vertices: on 2 ranks 3 each; every other epoch goes backwards."""
    sizes = [0, 0]
    for run in on_ranks(ranks, 2, averaging("sage"), PARTS, 4):
        loaded = [work["parts_loaded"] for work in run.work]
        assert loaded == [3, 2, 2, 2]
        sizes[0] += loaded[0]
    (alone,) = [trained(averaging("sage"), PARTS, 2)]
    assert [work["parts_loaded"] for work in alone.work] == [6, 5] and sizes[0] == 6
    assert all(work["part_bytes_loaded"] > 0 for work in alone.work)


def test_work_by_layer_is_that_of_the_parts_whoever_trains_them(ranks):
    (alone,) = trained(averaging("sage"), PARTS, 1).work
    found = [run.work[0] for run in on_ranks(ranks, 2, averaging("sage"), PARTS, 1)]
    for name in ("edges_layer1", "edges_layer2", "vertices_layer1", "vertices_layer2"):
        assert alone[name] == sum(work[name] for work in found) > 0
    assert alone["edges_layer1"] + alone["edges_layer2"] == alone["edges_sampled"]
    assert alone["vertices_layer1"] + alone["vertices_layer2"] == alone["vertices_computed"]


def test_the_next_part_is_loaded_while_one_is_trained():
    """A part is loaded while another one is trained, with the same result."""
    plain = trained(averaging("gat"), PARTS, 2)
    ahead = trained(averaging("gat", train={"overlap": True}), PARTS, 2)
    assert all(torch.equal(plain.parameters[-1][name], value) for name, value in ahead.parameters[-1].items())


@pytest.mark.parametrize("model", RGCN)
def test_parts_have_types_of_edges_and_lack_relations(ranks, model):
    """As many matrices as the graph has relations, whatever a part has of them."""
    alone = trained(averaging(model), PARTS, 2)
    for run in on_ranks(ranks, 2, averaging(model), PARTS, 2):
        assert all(torch.equal(run.parameters[-1][name], value) for name, value in alone.parameters[-1].items())


def test_bytes_of_sparse_features_are_those_of_their_rows(tmp_path):
    """One-hot rows of 5000 columns: 8 bytes of an entry and 8 of a row's end, not 20,000."""
    plain, columns = graph_of(), 5000
    count = plain.num_nodes
    rows = SparseRows(torch.arange(count + 1), torch.arange(count, dtype=torch.int32), torch.ones(count), columns)
    graph = replace(plain, features=rows)
    write_parts(graph, GraphStream(graph), Partition(owners(2), 2), tmp_path / "parts", full_neighbors=True)
    parts = open_parts(tmp_path / "parts")
    config = averaging("sage", paradigm={"memory": 1_000_000})
    config["partitioner"] = {"_target_": "gnnexp.partitioners.random.RandomPartitioner"}
    job, trainer = assembled(config, Artifacts(graph, parts=tmp_path / "parts"), tmp_path, read_environment())
    assert isinstance(trainer, AveragingTrainer)
    held = [parts.open(number).graph.features.nbytes for number in range(2)]
    assert trainer.memory()["vertex_bytes"] == max(held) < 20 * count
    assert feature_bytes(GraphFacts.of(graph), parts.sizes[0]) == 16 * parts.sizes[0].vertices == held[0] - 8
    experiment = experiment_in(config)
    assert planned(experiment, graph).num_parts == 1 and planned(experiment, graph, sizes=parts.sizes).problems == ()
    job.comm.release()


def test_without_full_neighbours_other_losses(ranks):
    """Figure 2's comparison: what is missing is missed."""
    config = averaging("sage")
    assert trained(config, 3, 1, full=False).losses != trained(config, 3, 1).losses


def test_full_batches_and_all_neighbours(ranks):
    config = averaging("gcn", train={"batch_size": None})
    config["sampler"] = {"_target_": "gnnexp.samplers.full.FullOptions", "key": "global"}
    alone = trained(config, PARTS, 3)
    assert [len([step for step in epoch if step[1]]) for epoch in alone.losses] == [6, 6, 6]
    for run in on_ranks(ranks, 3, config, PARTS, 3):
        assert all(torch.equal(run.parameters[-1][name], value) for name, value in alone.parameters[-1].items())


def test_state_is_taken_up_again():
    """Values and moments of every part, between averages too."""
    config = averaging("sage", paradigm={"sync_every": 3}, train={"epochs": 5})
    whole = trained(config, PARTS, 5)
    graph, (place, _) = graph_of(), place_of(PARTS, True, False, False)
    with tempfile.TemporaryDirectory() as folder:
        saved: dict[str, Any] = {}
        for first, last in ((0, 2), (2, 5)):
            job, trainer = assembled(config, Artifacts(graph, parts=place), Path(folder), read_environment())
            optimization = Optimization(job, trainer)
            if saved:
                trainer.module.load_state_dict(saved["module"])
                trainer.own_state.load_state_dict(saved["paradigm"])
            for epoch in range(first, last):
                run_epoch(job, trainer, optimization, Position(epoch), {}, Interruption(job.comm))
            torch.save(
                {"module": trainer.module.state_dict(), "paradigm": trainer.own_state.state_dict()}, f"{folder}/state"
            )
            saved = torch.load(f"{folder}/state", weights_only=True)
            job.comm.release()
    assert all(torch.equal(saved["module"][name], value) for name, value in whole.parameters[-1].items())


def test_what_does_not_go_together_is_said():
    config = averaging("gcn", paradigm={"sync_every": 2, "reserve": 5}, train={"eval_every": 3})
    problems = ModelAveraging(sync_every=2, reserve=5).check(experiment_in(config))
    assert [problem.key for problem in problems] == ["train.eval_every", "paradigm.reserve"]
    config["feature_store"] = {"_target_": "gnnexp.feature_stores.partitioned.PartitionedOptions"}
    config["sampler"]["topology"] = "partitioned"
    keys = [problem.key for problem in ModelAveraging(sync_every=3).check(experiment_in(config))]
    assert keys == ["feature_store", "sampler.topology"]
    with pytest.raises(Exception, match=r"(?s)sync_every.*local_batch_size.*memory") as error:
        ModelAveraging(0, True, 0, 0)
    assert type(error.value).__name__ == "ConfigError"
