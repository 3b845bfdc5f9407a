"""Trained rows: the same wherever they are placed, stepped as PyTorch steps one table, moved between ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exchanging import CPU, connect, traffic
from experiments import data_problems, estimated, experiment_in, setting_in
from store_cases import shard_of
from torch import Tensor

from gnnexp.cli.main import run_command
from gnnexp.components.facts import GraphFacts
from gnnexp.errors import ConfigError
from gnnexp.experiment.optimization import DEFAULT, optimizer_of
from gnnexp.experiment.seen import as_seen
from gnnexp.feature_stores.base import Share
from gnnexp.feature_stores.embedding import EmbeddingOptions, SlicedEmbeddingOptions
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.record.records import read_epochs
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, optimizer, small_config

V, DIM, STEPS = 60, 7, 3
EMBEDDING = {"_target_": "gnnexp.feature_stores.embedding.EmbeddingOptions", "dim": DIM}
PLACES = ("owners", "ranges", "sliced")


def bare() -> Graph:
    return replace(nasty_graph(V), features=None)


@dataclass(frozen=True)
class Seen:
    """Of one rank, after its steps."""

    whole: Tensor  # [V, DIM]
    pieces: dict[str, Any]
    nbytes: tuple[int, int]
    sent: dict[str, tuple[int, int]]
    counts: dict[str, int]


def read_of(rank: int, step: int, number: int) -> tuple[Tensor, Tensor]:
    """Ids with repetitions, of the first 40 vertices only, and the loss's gradient by each row that was read.

    Every tenth row takes none. In some steps other rows take none either, or take gradients in their first
    columns only. The last ranks of a sliced table do not have these columns: their moments are those of other steps.
    """
    generator = torch.Generator().manual_seed(100 * rank + 10 * step + number)
    ids = torch.randint(0, 40, (15 + rank,), generator=generator)
    gradient = torch.randn(ids.numel(), DIM, generator=generator, dtype=torch.float64)
    gradient[(ids % 10 == 0) | ((ids + step) % 5 == 0)] = 0
    gradient[(ids + step) % 5 == 1, 2:] = 0
    return ids, gradient


def work(
    place: str,
    kind: str,
    readers: int,
    steps: Sequence[int],
    pieces: Sequence[Mapping[str, Any]] = (),
    seed: int = 0,
    **options: Any,
) -> Seen:
    """What a rank does: each step two reads, whose gradients add up. Sliced ranks read what all the readers do."""
    comm = connect()
    sliced = place == "sliced"
    store = (SlicedEmbeddingOptions if sliced else EmbeddingOptions)(DIM, **options).make()
    placed = shard_of(bare(), comm.rank, comm.size) if place == "owners" else Shard(bare(), comm.rank, comm.size)
    store.setup(placed, torch.float64, CPU, comm)
    name = {"adam": "Adam", "sgd": "SGD"}[kind]
    store.begin(optimizer_of({"_target_": f"torch.optim.{name}", "_partial_": True, "lr": 0.1}), seed)
    if pieces:
        store.load_pieces(pieces)
    mine = range(readers) if sliced else range(comm.rank, readers, comm.size)
    for step in steps:
        for number in range(2):
            found = [read_of(rank, step, number) for rank in mine]
            rows = store.read(torch.cat([ids for ids, _ in found]))
            assert isinstance(rows, Tensor)
            rows.backward(torch.cat([gradient for _, gradient in found])[:, store.dims])
        comm.ledger.take()
        store.collect()
        sent = traffic(comm)
        store.update()
    whole = torch.zeros(V, DIM, dtype=torch.float64)
    store.gather(whole, comm)
    seen = Seen(
        whole, store.state_dict(), (store.nbytes(), store.state_nbytes()), sent if steps else {}, store.take_counts()
    )
    comm.barrier()
    comm.release()
    return seen


def on(ranks: Any, size: int, *arguments: Any, **options: Any) -> list[Seen]:
    found: list[Seen] = ranks(size).run(work, *arguments, **options) if size > 1 else [work(*arguments, **options)]
    assert all(torch.equal(seen.whole, found[0].whole) for seen in found)
    return found


@pytest.fixture(scope="module")
def initial() -> Tensor:
    return work("ranges", "adam", 3, ()).whole


def stepped(table: Tensor, optimizer: str, steps: Sequence[int] = range(STEPS)) -> Tensor:
    """PyTorch's optimizers on one table, by the sums of what three readers give."""
    parameter = torch.nn.Parameter(table.clone())
    made = {"adam": torch.optim.SparseAdam, "sgd": torch.optim.SGD}[optimizer]([parameter], lr=0.1)
    for step in steps:
        whole = torch.zeros_like(table)
        for ids, gradient in (read_of(rank, step, number) for rank in range(3) for number in range(2)):
            whole.index_add_(0, ids, gradient)
        touched = whole.ne(0).any(1).nonzero().T
        parameter.grad = torch.sparse_coo_tensor(touched, whole[touched[0]], table.shape, check_invariants=True)
        made.step()
    return parameter.detach()


# --- values ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_rows_begin_the_same_wherever_they_are(ranks, initial, place, size):
    found = on(ranks, size, place, "adam", 3, ())
    assert torch.equal(found[0].whole, initial)
    held = torch.zeros(V, DIM, dtype=torch.int64)
    for seen in found:
        rows, first = seen.pieces["ids"], seen.pieces["first"]
        columns = slice(first, first + seen.pieces["value"].shape[1])
        held[rows, columns] += 1
        assert torch.equal(initial[rows, columns], seen.pieces["value"])
    assert (held == 1).all(), "everything is at one rank"


def test_rows_begin_within_bounds_and_follow_the_seed(initial):
    bound = math.sqrt(6 / (V + DIM))
    assert 0.95 * bound < initial.abs().max() <= bound and initial.mean().abs() < bound / 10
    assert initial.unique().numel() == initial.numel()
    assert not torch.equal(work("ranges", "adam", 3, (), seed=1).whole, initial)
    scaled = work("ranges", "adam", 3, (), scale=2 * bound).whole
    assert torch.allclose(scaled, 2 * initial, rtol=1e-14)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize(("place", "size"), [("owners", 1), ("owners", 3), ("ranges", 2), ("sliced", 1), ("sliced", 3)])
def test_steps_are_those_of_one_table(ranks, initial, place, size, optimizer):
    (seen, *_) = on(ranks, size, place, optimizer, 3, range(STEPS))
    assert (seen.whole - stepped(initial, optimizer)).abs().max() < 1e-12
    still = torch.ones(V, dtype=torch.bool)
    for rank, step, number in product(range(3), range(STEPS), range(2)):
        ids, gradient = read_of(rank, step, number)
        still[ids[gradient.ne(0).any(1)]] = False
    assert 20 < still.sum() < 40
    assert torch.equal(seen.whole[still], initial[still]) and not (seen.whole[~still] == initial[~still]).all(1).any()
    if optimizer == "adam":
        for name in ("exp_avg", "exp_avg_sq"):
            assert not seen.pieces["state"][name][still[seen.pieces["ids"]]].any()


def test_a_rate_of_their_own(initial):
    found = work("ranges", "sgd", 3, range(1), lr=0.2).whole
    assert torch.allclose(found - initial, 2 * (stepped(initial, "sgd", range(1)) - initial), rtol=1e-12, atol=0)


def test_what_is_forgotten_is_not_trained(initial):
    comm, store = connect(), EmbeddingOptions(DIM).make()
    store.setup(Shard(bare(), 0, 1), torch.float64, CPU, comm)
    store.begin(optimizer_of(DEFAULT), 0)
    store.read(torch.arange(9)).sum().backward()
    store.forget()
    store.collect()
    store.update()
    store.read(torch.arange(5))  # in no loss
    store.collect()
    store.update()
    assert torch.equal(store.state_dict()["value"], initial)


# --- placement -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("owners", 3), ("ranges", 2)),
        (("owners", 3), ("sliced", 2)),
        (("sliced", 2), ("owners", 3)),
        (("sliced", 3), ("sliced", 2)),
    ],
)
def test_rows_and_moments_move_to_other_ranks(ranks, initial, before, after):
    saved = on(ranks, before[1], before[0], "adam", 3, range(2))
    pieces = [seen.pieces for seen in saved]
    assert torch.equal(on(ranks, after[1], after[0], "adam", 3, (), pieces)[0].whole, saved[0].whole)
    (seen, *_) = on(ranks, after[1], after[0], "adam", 3, range(2, STEPS), pieces)
    assert (seen.whole - stepped(initial, "adam")).abs().max() < 1e-12


@pytest.mark.parametrize("place", PLACES)
def test_bytes(ranks, place):
    """Held by rank; rows read and gradients sent by formula: a gradient goes back for every foreign row of a read."""
    found = on(ranks, 3, place, "adam", 3, range(1))
    for seen in found:
        values = seen.pieces["value"].numel() * 8
        assert seen.nbytes == (values, 2 * values)
    assert sum(seen.nbytes[0] for seen in found) == V * DIM * 8
    sent = [seen.sent["embeddings"] for seen in found]
    remote = sum(seen.counts.get("features_loaded_remote", 0) for seen in found)
    read = 2 * sum(15 + rank for rank in range(3)) * (3 if place == "sliced" else 1)
    assert remote + sum(seen.counts["features_loaded_host"] for seen in found) == read
    if place != "sliced":
        assert remote > 0 and sum(num_bytes for num_bytes, _ in sent) == remote * DIM * 8
        assert [rounds for _, rounds in sent] == [2, 2, 2]
    assert work(place, "sgd", 3, ()).nbytes == (V * DIM * 8, 0)
    # Rows, two moments, and gradients on their way.
    facts = GraphFacts.of(bare())
    (need,) = EmbeddingOptions(DIM).needs(facts, DIM * 8, Share(V, 4))
    assert need.num_bytes == 6 * V * DIM * 8 // 4


# --- configuration ---------------------------------------------------------------------------------------------------
def test_mistakes_are_named_all_at_once():
    with pytest.raises(ConfigError) as caught:
        EmbeddingOptions(0, scale=0.0, lr=math.inf).make()
    assert [problem.key for problem in caught.value.problems] == [
        "feature_store.dim",
        "feature_store.scale",
        "feature_store.lr",
    ]


def test_one_home_for_every_row_and_an_optimizer_of_single_rows():
    split = {"_target_": "gnnexp.paradigms.split_parallel.SplitParallel"}
    config = small_config(MODELS["sage"], paradigm={**split, "group_size": 2}, hardware={"workers": 4})
    config["optimizer"] = optimizer("AdamW")
    problems = EmbeddingOptions(DIM).check(setting_in(config))
    assert [problem.key for problem in problems] == ["paradigm.group_size", "optimizer"]
    assert EmbeddingOptions(DIM).check(setting_in(small_config(MODELS["sage"], paradigm=split))) == []


def embedded(**changes: Any) -> dict[str, Any]:
    config = small_config(MODELS["sage"], **changes)
    return {
        **config,
        "feature_store": EMBEDDING,
        "hardware": {**config["hardware"], "launcher": {"_target_": "gnnexp.launchers.local.LocalLauncher"}},
    }


def test_a_graph_is_seen_with_the_columns_of_its_rows():
    graph = nasty_graph()
    seen = as_seen(experiment_in(embedded()), graph)
    assert (seen.num_features, seen.num_classes) == (DIM, graph.num_classes)
    assert seen.features is not None and seen.features.shape == (V, DIM)
    assert as_seen(experiment_in(small_config(MODELS["sage"])), graph) is graph, "nothing differs"


def test_a_graph_without_features_needs_them():
    (problem,) = data_problems(small_config(MODELS["sage"]), bare())
    assert "no vertex features" in problem.allowed and "feature_store=embedding" in problem.fix
    assert data_problems(embedded(), bare()) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_the_preflight_counts_rows_with_their_moments(workers):
    found = estimated(embedded(hardware={"workers": workers}), bare(), graph_files=0)
    lines = {need.what: need.num_bytes for need in found.needs}
    assert lines["features that the store holds"] == 6 * V * DIM * 8 // workers
    assert lines["parameters, gradients, optimizer"] == 4 * 8 * 2 * (DIM * 16 + 16 + 16 * 4 + 4)


# --- the command line ------------------------------------------------------------------------------------------------
@pytest.fixture
def own_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A ring in files of a user, without features."""
    pytest.importorskip("hydra")  # make test-core has none
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    ring = np.arange(30)
    np.save("edges.npy", np.stack([ring, (ring + 1) % 30], 1))
    np.save("labels.npy", ring % 3)
    return ["run", "dataset=edge_list", "dataset.path=edges.npy", "dataset.labels=labels.npy", "tracker=none"]


@pytest.mark.slow
def test_a_run_with_trained_rows(own_graph):
    small = ["model.hidden=4", "model.layers=1", "sampler.fanouts=[2]", "train.epochs=1", "hardware.workers=2"]
    assert run_command([*own_graph, "feature_store=embedding", "feature_store.dim=5", *small, "hydra.run.dir=run"]) == 0
    ranks = read_epochs(Path("run"))[0]["ranks"]
    assert [rank["memory"]["embedding_state_bytes"] for rank in ranks] == [2 * 15 * 5 * 4] * 2


def test_a_run_without_any_rows_is_refused(own_graph, capsys):
    assert run_command([*own_graph, "feature_store=local", "model.layers=1", "sampler.fanouts=[2]"]) == 2
    assert "feature_store=embedding" in capsys.readouterr().err
