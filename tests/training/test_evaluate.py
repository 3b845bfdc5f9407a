"""Layer-wise inference equals the model on the whole graph, whatever the ranks, chunks and where activations live."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.comm.environment import read_environment
from gnnexp.graph.block import BatchKey
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import SparseRows
from gnnexp.samplers.full import FullSampler
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, small_config
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.evaluate import Evaluation, chunks_by_edges, split_by_edges


def _inference(config: dict[str, Any]) -> tuple[dict[int, list[float]], dict[str, float], list[str]]:
    """Logits by vertex, metrics and left-over files of this rank."""
    with tempfile.TemporaryDirectory() as folder:
        job, paradigm = assemble(config, Artifacts(nasty_graph()), Path(folder), read_environment())
        evaluation = Evaluation(job, paradigm)
        found = {}
        for ids, logits in evaluation.logits():
            found |= dict(zip(ids.tolist(), logits.tolist(), strict=True))
        metrics = evaluation.after(job.run.train.epochs - 1)
        left = [str(path) for path in Path(folder).rglob("*") if path.is_file()]
    return found, metrics, left


def _whole_graph(config: dict[str, Any]) -> torch.Tensor:
    with tempfile.TemporaryDirectory() as folder:
        job, _ = assemble(config, Artifacts(graph := nasty_graph()), Path(folder), read_environment())
        sampler = FullSampler()
        sampler.setup(Shard(graph, needs=job.model.needs), job.model.num_layers)
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
        job, paradigm = assemble(config, Artifacts(replace(graph, features=one_hot)), Path(folder), read_environment())
        evaluation = Evaluation(job, paradigm)
        chunks = list(evaluation._layer(job.model, 0, None, ids))
        assert [chunk.numel() for chunk, _ in chunks] == [graph.num_nodes]


@pytest.mark.parametrize("model", [*MODELS, "pool"])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("memory", [1 << 30, 4000])
def test_inference_equals_the_whole_graph(ranks, model, size, memory):
    options = MODELS.get(model, {"_target_": "gnnexp.models.sage_pool.SAGEPool"})
    config = small_config({**options, "layers": 3, "hidden": 8}, train={"eval_memory": memory},
                          sampler={"fanouts": [2, 2, 2]})
    expected = _whole_graph(config)
    results = [_inference(config)] if size == 1 else ranks(size).run(_inference, config)
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
    evaluation = Evaluation(*assemble(config, Artifacts(nasty_graph()), tmp_path, read_environment()))
    assert [epoch for epoch in range(5) if evaluation.after(epoch)] == due


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
    job, paradigm = assemble(small_config(MODELS["gcn"]), Artifacts(nasty_graph()), tmp_path, read_environment())
    pool = job.model.backend.pool
    monkeypatch.setattr("gnnexp.training.evaluate.psutil.virtual_memory", lambda: SimpleNamespace(available=available))
    freed = []
    monkeypatch.setattr(pool, "trim", lambda: freed.append(True))
    assert "acc/val" in Evaluation(job, paradigm).after(job.run.train.epochs - 1)
    assert bool(freed) == released
