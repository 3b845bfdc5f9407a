"""Layer-wise inference equals the model on the whole graph, whatever the ranks, chunks and where activations live."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from combinations import combinations
from experiments import assembled
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnexp.comm.environment import read_environment
from gnnexp.files.disk import refusal
from gnnexp.graph.block import BatchKey
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import SparseRows
from gnnexp.graph.subset import with_neighbours
from gnnexp.samplers.full import FullOptions
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.ranks import RankError
from gnnexp.testing.steps import MODELS, small_config
from gnnexp.training.assemble import Artifacts
from gnnexp.training.evaluate import Evaluation, chunks_by_edges, split_by_edges


def _inference(config: dict[str, Any], folder: Path) -> tuple[dict[int, list[float]], dict[str, float], list[str]]:
    """Logits by vertex, metrics and left-over files of this rank; `folder` is that of all ranks."""
    job, trainer = assembled(config, Artifacts(nasty_graph()), folder, read_environment())
    evaluation = Evaluation(job, trainer)
    found = {}
    for ids, logits in evaluation.logits():
        found |= dict(zip(ids.tolist(), logits.tolist(), strict=True))
    metrics = evaluation.after(job.experiment.train.epochs - 1)
    return found, metrics, [str(path) for path in folder.rglob("*") if path.is_file()]


def _whole_graph(config: dict[str, Any]) -> torch.Tensor:
    with tempfile.TemporaryDirectory() as folder:
        job, _ = assembled(config, Artifacts(graph := nasty_graph()), Path(folder), read_environment())
        sampler = FullOptions().make()
        sampler.setup(Shard(graph, needs=job.model.options.needs), job.model.num_layers)
        batch = sampler.sample(torch.arange(graph.num_nodes, dtype=torch.int32), BatchKey(0, 0, 0), 0)
        job.model.eval()
        with torch.no_grad():
            return job.model(batch, graph.features[batch.input_ids.long()].double())


def test_sparse_rows_are_no_reason_for_small_chunks():
    """A column per vertex: as dense rows, they would allow a chunk of few edges."""
    graph = nasty_graph()
    ids = torch.arange(graph.num_nodes)
    one_hot = SparseRows(torch.arange(graph.num_nodes + 1), ids.int(), torch.ones(graph.num_nodes), graph.num_nodes)
    config = small_config({**MODELS["gcn"], "hidden": 8}, train={"eval_memory": 2 * 8 * 8 * 8 * (graph.num_edges + 60)})
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(replace(graph, features=one_hot)), Path(folder), read_environment())
        evaluation = Evaluation(job, trainer)
        chunks = list(evaluation._layer(job.model, 0, None))
        assert [chunk.numel() for chunk, _ in chunks] == [evaluation.reached[0].ids.numel()]


@pytest.mark.parametrize(
    ("memory", "size", "model"),
    combinations(
        [1 << 30, 4000],
        [1, 3],
        [*MODELS, "pool"],
        quick=lambda memory, size, model: (memory == 4000) == ((size == 3) == (model in ("gcn", "gat", "pool"))),
    ),
)
def test_inference_equals_the_whole_graph(ranks, model, size, memory, tmp_path):
    options = MODELS.get(model, {"_target_": "gnnexp.models.sage_pool.SAGEPoolOptions"})
    config = small_config(
        {**options, "layers": 3, "hidden": 8}, train={"eval_memory": memory}, sampler={"fanouts": [2, 2, 2]}
    )
    expected = _whole_graph(config)
    results = [_inference(config, tmp_path)] if size == 1 else ranks(size).run(_inference, config, tmp_path)
    found = {vertex: row for logits, _, _ in results for vertex, row in logits.items()}
    splits = nasty_graph().splits
    assert sorted(found) == sorted([*splits.val.tolist(), *splits.test.tolist()])
    worst = max(float((torch.tensor(row, dtype=torch.float64) - expected[v]).abs().max()) for v, row in found.items())
    assert worst < 1e-12
    right = expected.argmax(1) == nasty_graph().labels
    for _, metrics, left in results:
        assert metrics["acc/val"] == pytest.approx(float(right[splits.val].double().mean()))
        assert metrics["acc/test"] == pytest.approx(float(right[splits.test].double().mean()))
        assert left == []


@pytest.mark.parametrize(("every", "due"), [(1, [0, 1, 2, 3, 4]), (2, [1, 3, 4]), (0, [4]), (None, [])])
def test_it_is_due_every_few_epochs_after_the_last_one_or_never(every, due, tmp_path):
    config = small_config(MODELS["gcn"], train={"eval_every": every, "epochs": 5})
    evaluation = Evaluation(*assembled(config, Artifacts(nasty_graph()), tmp_path, read_environment()))
    assert [epoch for epoch in range(5) if evaluation.after(epoch)] == due


def test_a_layer_with_a_dropout_of_its_own_is_evaluated_without_it(tmp_path):
    """Built-in layers ask for a key, which evaluation does not have; a user's layer asks `training`."""
    job, trainer = assembled(small_config(MODELS["sage"]), Artifacts(nasty_graph()), tmp_path, read_environment())
    trainer.module.train()
    chunks = 0
    for _ in Evaluation(job, trainer).logits():
        assert not any(module.training for module in job.model.modules())
        chunks += 1
    assert chunks


@given(st.integers(1, 9))
def test_ranges_cover_everything(parts):
    graph = nasty_graph()
    ids = torch.arange(5, 60, 2)
    bounds = split_by_edges(graph, ids, parts)
    assert bounds[0] == 0
    assert bounds[-1] == ids.numel()
    assert bounds == sorted(bounds)


@given(st.integers(1, 500))
def test_chunks_respect_the_limit(limit):
    graph = nasty_graph()
    ids = torch.arange(graph.num_nodes)
    bounds = chunks_by_edges(graph, ids, limit)
    assert bounds[0] == 0
    assert bounds[-1] == graph.num_nodes
    for first, last in pairwise(bounds):
        assert last > first
        cost = int((graph.in_degree[first:last] + 1).sum())
        assert cost <= limit or last == first + 1


@pytest.mark.parametrize(("available", "released"), [(1 << 40, False), (1000, True)])
def test_idle_buffers_make_room_only_where_there_is_none(monkeypatch, tmp_path, available, released):
    job, trainer = assembled(small_config(MODELS["gcn"]), Artifacts(nasty_graph()), tmp_path, read_environment())
    pool = job.model.backend.pool
    monkeypatch.setattr("gnnexp.training.evaluate.available_memory", lambda: available)
    freed = []
    monkeypatch.setattr(pool, "trim", lambda: freed.append(True))
    assert "acc/val" in Evaluation(job, trainer).after(job.experiment.train.epochs - 1)
    assert bool(freed) == released


# --- one file per machine ----------------------------------------------------------------------------------------
IN_FILES = 4000  # bytes of `train.eval_memory` that hold no layer


def _mapped_files() -> set[tuple[str, int]]:
    found = set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        _, rights, _, device, inode, *name = line.split(maxsplit=5)
        if rights[3] == "s" and ".rows" in "".join(name):
            found.add((device, int(inode)))
    return found


def _files(config: dict[str, Any], nodes: Sequence[str]) -> tuple[set[tuple[str, int]], dict[str, float], list[str]]:
    """Files that are mapped while a rank evaluates, by device and inode; metrics; files in the run directory then."""
    rank, folder = int(os.environ["RANK"]), Path(os.environ["TOGETHER"])
    before, earlier = os.environ.get("GNNEXP_NODE"), _mapped_files()
    os.environ["GNNEXP_NODE"] = nodes[rank]
    try:
        job, trainer = assembled(config, Artifacts(nasty_graph()), folder, read_environment())
        evaluation = Evaluation(job, trainer)
        mapped, left = set(), []
        hidden = evaluation._hidden

        def watched(*args):
            held = hidden(*args)
            mapped.update(_mapped_files() - earlier)  # the process may have rows of another test
            left.extend(path.name for path in folder.rglob("*") if path.is_file())
            return held

        evaluation._hidden = watched
        metrics = evaluation.after(job.experiment.train.epochs - 1)
        job.comm.release()
        return mapped, metrics, left
    finally:
        os.environ.pop("GNNEXP_NODE")
        if before is not None:
            os.environ["GNNEXP_NODE"] = before


def _on(ranks: Any, config: dict[str, Any], nodes: Sequence[str], folder: Path) -> list[Any]:
    def run() -> Any:
        os.environ["TOGETHER"] = str(folder)
        return _files(config, nodes)

    return ranks(len(nodes)).run(run)


def _deep(model: str, memory: int) -> dict[str, Any]:
    return small_config(
        {**MODELS[model], "layers": 3, "hidden": 8}, train={"eval_memory": memory}, sampler={"fanouts": [2, 2, 2]}
    )


@pytest.mark.parametrize("nodes", ["aaa", "aab", "aba"])
def test_ranks_of_a_machine_share_a_file_without_a_name(ranks, nodes, tmp_path):
    found = _on(ranks, _deep("sage", IN_FILES), nodes, tmp_path)
    by_machine: dict[str, set[tuple[str, int]]] = {}
    for node, (mapped, _, left) in zip(nodes, found, strict=True):
        assert mapped and left == []
        by_machine.setdefault(node, set()).update(mapped)
    # Two hidden layers, of which one may have been given back before the other is made.
    assert all(len(files) <= 2 for files in by_machine.values())
    assert all(mapped == by_machine[node] for node, (mapped, _, _) in zip(nodes, found, strict=True))
    assert len(set().union(*by_machine.values())) == sum(map(len, by_machine.values()))


@pytest.mark.parametrize("memory", [1 << 30, IN_FILES])
@pytest.mark.parametrize("nodes", ["aaa", "aab"])
def test_what_is_sent_goes_once_to_every_other_machine(ranks, nodes, memory, tmp_path):
    """In memory every rank has rows of its own, so they go to every other rank."""
    found = _on(ranks, _deep("sage", memory), nodes, tmp_path)
    graph = nasty_graph()
    wanted = torch.unique(torch.cat((graph.splits.val, graph.splits.test)))
    reached = [with_neighbours(graph, with_neighbours(graph, wanted)), with_neighbours(graph, wanted)]
    expected = [0, 0, 0]
    for ids in reached:
        for rank, (first, last) in enumerate(pairwise(split_by_edges(graph, ids, 3))):
            others = 2 if memory > IN_FILES else len(set(nodes)) - 1
            expected[rank] += others * (last - first) * 8 * 8
    assert [metrics["eval/sent_bytes"] for _, metrics, _ in found] == expected


@pytest.mark.interpreter
@pytest.mark.slow
def test_a_killed_rank_leaves_no_file(tmp_path):
    """It is killed while the first hidden layer is being written."""
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from gnnexp.training.evaluate import Evaluation\n"
        "from test_evaluate import Artifacts, assembled, nasty_graph, read_environment, _deep, IN_FILES\n"
        "job, trainer = assembled(_deep('gcn', IN_FILES), Artifacts(nasty_graph()), Path(sys.argv[1]), "
        "read_environment())\n"
        "layers = job.model.run_layer\n"
        "def killed(index, *args):\n"
        "    if index: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return layers(index, *args)\n"
        "job.model.run_layer = killed\n"
        "Evaluation(job, trainer).after(0)\n"
    )
    tests = Path(__file__).parents[1]
    folders = (tests / "training", tests / "support", tests.parent)
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env=here, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_empty_file_of_a_killed_rank_is_removed(tmp_path):
    (tmp_path / ".evaluation-7.rows").touch()
    Evaluation(*assembled(small_config(MODELS["gcn"]), Artifacts(nasty_graph()), tmp_path, read_environment()))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named_with_the_file(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    job, trainer = assembled(_deep("gcn", IN_FILES), Artifacts(nasty_graph()), tmp_path, read_environment())
    evaluation = Evaluation(job, trainer)
    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OSError) as caught:
        evaluation.after(0)
    problem = refusal(caught.value)
    assert problem is not None and problem.allowed == "the disk is full" and problem.key.startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == [], "nothing half written is left"


def test_a_full_disk_ends_all_ranks_with_the_first_one_named(ranks, monkeypatch, tmp_path):
    def run() -> Any:
        def full(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        os.environ["TOGETHER"], os.posix_fallocate = str(tmp_path), full
        return _files(_deep("gcn", IN_FILES), "aa")

    with pytest.raises(RankError, match=r"\.evaluation-0\.rows"):
        ranks(2).run(run)


# --- what is computed --------------------------------------------------------------------------------------------
def _computed(graph: Graph, config: dict[str, Any]) -> tuple[Counter[int], dict[int, list[float]]]:
    """Vertices computed by layer, and logits by vertex."""
    with tempfile.TemporaryDirectory() as folder:
        job, trainer = assembled(config, Artifacts(graph), Path(folder), read_environment())
        counts: Counter[int] = Counter()
        layers = job.model.run_layer

        def counted(index, block, *args):
            counts[index] += block.num_dst
            return layers(index, block, *args)

        job.model.run_layer = counted
        logits = {
            vertex: row
            for ids, rows in Evaluation(job, trainer).logits()
            for vertex, row in zip(ids.tolist(), rows.tolist(), strict=True)
        }
    return counts, logits


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 59), min_size=1, max_size=3, unique=True), st.sampled_from([1 << 30, IN_FILES]))
def test_only_what_the_remaining_hops_reach_is_computed(held_out, memory):
    graph = nasty_graph(num_edges=90)
    ids = torch.tensor(sorted(held_out))
    few = replace(graph, splits=replace(graph.splits, val=ids[:1], test=ids[1:]))
    counts, logits = _computed(few, _deep("gat", memory))
    sources = {v: set(graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()) for v in range(graph.num_nodes)}
    wanted = set(held_out)
    for layer in (2, 1, 0):
        assert counts[layer] == len(wanted)
        wanted |= set().union(*(sources[v] for v in wanted))
    everything = replace(graph, splits=replace(graph.splits, val=torch.arange(60), test=ids[:0]))
    whole_counts, whole = _computed(everything, _deep("gat", memory))
    assert whole_counts == {0: 60, 1: 60, 2: 60}
    for vertex, row in logits.items():
        assert row == pytest.approx(whole[vertex], rel=0, abs=1e-12)
        assert max(range(4), key=row.__getitem__) == max(range(4), key=whole[vertex].__getitem__)


def test_no_neighbour_is_computed_for_layers_that_read_none():
    graph = nasty_graph()
    few = replace(graph, splits=replace(graph.splits, val=torch.tensor([59]), test=torch.tensor([7])))
    mlp = {"_target_": "gnnexp.models.mlp.MLPOptions", "layers": 3, "hidden": 8}
    assert _computed(few, small_config(mlp, sampler={"fanouts": [2, 2, 2]}))[0] == {0: 2, 1: 2, 2: 2}
