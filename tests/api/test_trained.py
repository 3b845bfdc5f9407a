"""A loaded model is the model that the run evaluated: its metrics are those of the record, to the last bit."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from linked_graphs import linked_graph

import gnnexp
from gnnexp.errors import ConfigError, DataError
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.format import save_graph
from gnnexp.record.attempts import RANKS, note
from gnnexp.record.records import read_epochs
from gnnexp.testing.graphs import nasty_graph
from gnnexp.training.checkpoint import Position, checkpoint_folders, open_checkpoint

SMALL = ("model.hidden=16", "train.epochs=3", "train.eval_every=1", "tracker=none", "hardware.device=cpu")
BATCHES = ("train=default", "sampler.fanouts=[4,3]", "model.layers=2", "train.batch_size=512", *SMALL)
FULL = ("model.layers=2", *SMALL)
Trains = Callable[..., Path]


def recorded(run_dir: Path, epoch: int) -> dict[str, float]:
    metrics = read_epochs(run_dir)[epoch]["metrics"]
    return {name: value for name, value in metrics.items() if name.endswith(("/val", "/test")) and "/" in name}


def assert_exact(run_dir: Path) -> gnnexp.TrainedModel:
    """The best epoch's model, by its metrics and by its logits of all vertices."""
    model = gnnexp.load(run_dir)
    values = [line["metrics"].get("acc/val", -1.0) for line in read_epochs(run_dir)]
    assert model.epoch == values.index(max(values))
    assert model.evaluate() == recorded(run_dir, model.epoch) and "acc/test" in model.evaluate()
    logits, test = model(), model.graph.splits.test
    assert logits.shape == (model.graph.num_nodes, model.graph.num_classes)
    correct = (logits.argmax(1)[test] == model.graph.labels[test]).sum().item()
    assert correct == round(recorded(run_dir, model.epoch)["acc/test"] * len(test))
    return model


CASES: dict[str, tuple[str, ...]] = {
    **{model: ("system=dgl", f"model={model}", *BATCHES) for model in ("sage", "gcn", "gat", "gin", "sage_pool")},
    "mlp": ("system=dgl", "model=mlp", *BATCHES),
    "pyg": ("system=dgl", "model=pyg", "model.module=torch_geometric.nn.SAGEConv", "~model.options", *BATCHES),
    "float64": ("system=dgl", "train.dtype=float64", *BATCHES),
    "gsplit": ("system=gsplit", *BATCHES),
    "gsplit gin": ("system=gsplit", "model=gin", *BATCHES),
    "p3": ("system=p3", *BATCHES),
    "p3 gat": ("system=p3", "model=gat", *BATCHES),
    "distdgl": ("system=distdgl", *BATCHES),
    "neutrontp": ("system=neutrontp", *FULL),
    "neutrontp gat": ("system=neutrontp", "model=gat", *FULL),
    "neutrontp_naive": ("system=neutrontp_naive", *FULL),
    "hongtu": ("system=hongtu", "paradigm.chunks=3", *FULL),
    "distgnn": ("system=distgnn", *FULL),
    "sancus": ("system=sancus", *FULL),
    "sdt_gnn": ("system=sdt_gnn", "partitioner.num_parts=3", *BATCHES),
    "sdt_gnn, seldom averaged": (
        "system=sdt_gnn",
        "partitioner.num_parts=3",
        "paradigm.sync_every=2",
        *BATCHES,
        "train.eval_every=2",
        "train.epochs=4",
    ),
    "dgl_reference": ("system=dgl_reference", *BATCHES),
    "embedding": ("system=dgl", "feature_store=embedding", "feature_store.dim=8", *BATCHES),
    "embedding_sliced": ("system=p3", "feature_store=embedding_sliced", "feature_store.dim=7", *BATCHES),
}
# Every way once: many tests below have GraphSAGE on dgl, one trained rows, and GCN is the full graph's. Models that all
# ways treat alike (mlp, pyg) are read by tests/api/predicting and tests/api/test_pyg_module.py.
QUICK = ("gsplit gin", "p3 gat", "neutrontp", "hongtu", "sdt_gnn")


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]
)
def test_it_has_the_metrics_of_the_record(trains: Trains, case: str) -> None:
    if "dgl_reference" in case or case == "distdgl":
        pytest.importorskip("dgl")
    assert_exact(trains(*CASES[case]))


@pytest.mark.slow
def test_dgls_full_graph(trains: Trains) -> None:
    pytest.importorskip("dgl")
    assert_exact(trains("system=dgl_full_graph", *FULL, size=1))


@pytest.mark.parametrize("system", [pytest.param("dgl", marks=pytest.mark.slow), "gsplit"])
def test_relations(trains: Trains, tmp_path: Path, system: str) -> None:
    save_graph(nasty_graph(200, 1500, typed=True), tmp_path / "graph")
    assert_exact(
        trains(
            f"system={system}", "model=rgcn", "dataset=gnnexp_format", f"dataset.path={tmp_path / 'graph'}", *BATCHES
        )
    )


def test_links(trains: Trains, tmp_path: Path) -> None:
    save_graph(linked_graph(40, typed=True), tmp_path / "graph")
    run_dir = trains(
        "system=dgl",
        "task=link_prediction",
        "dataset=gnnexp_format",
        f"dataset.path={tmp_path / 'graph'}",
        "feature_store=embedding",
        "feature_store.dim=8",
        *BATCHES,
    )
    model = gnnexp.load(run_dir)
    assert model.evaluate() == recorded(run_dir, model.epoch) and "mrr/test" in model.evaluate()
    assert model().shape == (40, 16) and "model.decoder.relation_weight" in dict(model.named_parameters())


# --- which model -----------------------------------------------------------------------------------------------------
def test_a_run_that_was_stopped_and_resumed_keeps_the_best_of_before_and_the_last(trains: Trains) -> None:
    """With a learning rate of 0 no later epoch is better than the first."""
    still = ("system=dgl", *BATCHES, "optimizer.lr=0.0", "train.checkpoints_kept=1")
    run_dir = trains(*still, stop_at=5)
    assert len(read_epochs(run_dir)) == 3 and gnnexp.load(run_dir).epoch == 0
    assert_exact(run_dir)
    last = gnnexp.load(run_dir, which="last")
    assert last.epoch == 2 and last.evaluate() == recorded(run_dir, 2)


def test_a_run_that_was_never_evaluated(trains: Trains) -> None:
    run_dir = trains("system=dgl", *(one for one in BATCHES if "eval_every" not in one), "train.eval_every=null")
    assert gnnexp.Run(run_dir).best is None
    with pytest.raises(DataError, match=r"no epoch was evaluated.*\n.*which=\"last\""):
        gnnexp.load(run_dir)
    last = gnnexp.load(run_dir, which="last")
    assert last.epoch == 2 and last().shape == (1797, 10) and last.evaluate()["acc/test"] > 0.05


def test_a_run_without_validation_vertices(trains: Trains, tmp_path: Path) -> None:
    """The last evaluated epoch is the best one."""
    graph = nasty_graph(200, 1500)
    save_graph(without_validation(graph), tmp_path / "graph")
    run_dir = trains("system=dgl", "dataset=gnnexp_format", f"dataset.path={tmp_path / 'graph'}", *BATCHES)
    model = gnnexp.load(run_dir)
    assert model.epoch == 2 and model.evaluate() == recorded(run_dir, 2) and "acc/val" not in model.evaluate()


def without_validation(graph: Graph) -> Graph:
    return replace(graph, splits=replace(graph.splits, val=torch.empty(0, dtype=torch.int64)))


def test_without_checkpoints(trains: Trains) -> None:
    run_dir = trains("system=dgl", *BATCHES, "train.checkpoint_every=0")
    for which in ("best", "last"):
        with pytest.raises(DataError):
            gnnexp.load(run_dir, which=which)


def test_a_writer_that_was_killed_leaves_the_old_best(trains: Trains) -> None:
    """Its folder has a dot before its name and is incomplete; the link still leads to the complete checkpoint."""
    run_dir = trains("system=dgl", *BATCHES)
    best = gnnexp.Run(run_dir).best
    assert best is not None and best.checkpoint is not None
    unfinished = run_dir / "checkpoints" / f".{Position(9).folder}"
    unfinished.mkdir()
    shutil.copy(best.checkpoint / "shared.pt", unfinished)
    assert gnnexp.Run(run_dir).best == best
    assert_exact(run_dir)


def test_a_copy_without_links(trains: Trains, tmp_path: Path) -> None:
    """`scp -r` makes a folder of the link. This run has no result, which would name the epoch."""
    run_dir = trains("system=dgl", *BATCHES)
    shutil.copytree(run_dir, tmp_path / "copy")
    assert not (tmp_path / "copy" / "checkpoints" / "best").is_symlink()
    assert_exact(tmp_path / "copy")
    (tmp_path / "copy" / "checkpoints" / "best" / "checkpoint.json").write_text("[]")
    with pytest.raises(DataError, match="must describe a checkpoint"):
        gnnexp.load(tmp_path / "copy")


def test_damage_is_named(trains: Trains) -> None:
    run_dir = trains("system=dgl", *BATCHES)
    file = (run_dir / "checkpoints" / "best").resolve() / "shared.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"shared\.pt.*differs from its checksum"):
        gnnexp.load(run_dir)


def test_a_checkpoint_of_another_model_is_refused(trains: Trains) -> None:
    run_dir = trains("system=dgl", *BATCHES)
    job = json.loads((run_dir / "job.json").read_text())
    job["config"]["model"]["hidden"] = 8
    (run_dir / "job.json").write_text(json.dumps(job))
    with pytest.raises(DataError, match=r"does not fit this model: .*is .* here"):
        gnnexp.load(run_dir)


# --- the graph -------------------------------------------------------------------------------------------------------
def test_another_graph(trains: Trains, tmp_path: Path) -> None:
    """The same model on a graph of other degrees, and on its own graph as before."""
    save_graph(nasty_graph(200, 1500), tmp_path / "graph")
    run_dir = trains("system=dgl", "model=gcn", "dataset=gnnexp_format", f"dataset.path={tmp_path / 'graph'}", *BATCHES)
    model = gnnexp.load(run_dir)
    before, other = model(), nasty_graph(90, 500, seed=1)
    assert model(other).shape == (90, 4)
    save_graph(other, tmp_path / "other")
    again = trains(
        "system=dgl",
        "model=gcn",
        "dataset=gnnexp_format",
        f"dataset.path={tmp_path / 'other'}",
        *BATCHES,
        name="other_run",
    )
    reference = gnnexp.load(again)
    reference.model.load_state_dict(model.model.state_dict())
    assert torch.equal(model(other), reference())
    assert torch.equal(model(), before)


def test_a_graph_of_another_kind_is_refused(trains: Trains) -> None:
    run_dir = trains("system=dgl", *BATCHES)
    with pytest.raises(DataError, match=r"has 13 features, and the model takes 64(.|\n)*has 6 relations"):
        gnnexp.load(run_dir)(nasty_graph(typed=True))


def test_trained_rows_belong_to_their_vertices(trains: Trains) -> None:
    model = gnnexp.load(trains(*CASES["embedding"]))
    with pytest.raises(DataError, match="trained rows replace features"):
        model(nasty_graph())


def test_the_prepared_graph_is_made_again(trains: Trains) -> None:
    run_dir = trains("system=dgl", *BATCHES)
    job = json.loads((run_dir / "job.json").read_text())
    (run_dir / "job.json").write_text(json.dumps({**job, "graph": "/gone"}))
    assert_exact(run_dir)


def test_data_that_have_changed_are_refused(trains: Trains, tmp_path: Path) -> None:
    save_graph(nasty_graph(200, 1500), tmp_path / "graph")
    run_dir = trains("system=dgl", "dataset=gnnexp_format", f"dataset.path={tmp_path / 'graph'}", *BATCHES)
    job = json.loads((run_dir / "job.json").read_text())
    (run_dir / "job.json").write_text(json.dumps({**job, "graph": "/gone"}))
    shutil.rmtree(tmp_path / "graph")
    save_graph(nasty_graph(200, 1500, seed=5), tmp_path / "graph")
    with pytest.raises(DataError, match="has changed since the run"):
        gnnexp.load(run_dir)


# --- whose code ------------------------------------------------------------------------------------------------------
def test_a_run_of_another_user_is_refused(trains: Trains, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = trains("system=dgl", *BATCHES)
    me = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: me + 1)
    with pytest.raises(ConfigError, match=r"belongs to .*\n.*trust=True"):
        gnnexp.load(run_dir)
    assert gnnexp.load(run_dir, trust=True).epoch >= 0


def test_an_imported_run_is_refused(trains: Trains) -> None:
    run_dir = trains("system=dgl", *BATCHES)
    job = json.loads((run_dir / "job.json").read_text())
    job["provenance"]["imported"] = "a.tar.xz, sha256 0"
    (run_dir / "job.json").write_text(json.dumps(job))
    with pytest.raises(ConfigError, match="was imported"):
        gnnexp.load(run_dir)


def test_code_that_has_changed_must_give_the_same_metrics(trains: Trains) -> None:
    """The record names other code. The model is evaluated then, and a wrong model is refused."""
    run_dir = trains("system=dgl", *BATCHES)
    note(run_dir, RANKS, nodes=[], code={"own": {}, "gnnexp": "0123456789abcdef"}, from_start=True)
    assert_exact(run_dir)
    lines = [json.loads(line) for line in (run_dir / "epochs.jsonl").read_text().splitlines()]
    for line in lines:
        line["metrics"]["acc/test"] -= 0.01
    (run_dir / "epochs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(DataError, match=r"acc/test=.*the run recorded .*: the code has changed"):
        gnnexp.load(run_dir)


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"which='worst': must be one of: best, last(.|\n)*device='gpu'"):
        gnnexp.load(tmp_path, which="worst", device="gpu")  # type: ignore[arg-type]


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be the directory of a run"):
        gnnexp.load(tmp_path)
    with pytest.raises(ConfigError, match="there is none"):
        gnnexp.load("runs/nothing")


def test_all_checkpoints_of_these_runs_are_of_version_1(trains: Trains) -> None:
    """A control of `trains`: it writes what a run writes."""
    run_dir = trains("system=dgl", *BATCHES)
    assert [open_checkpoint(folder).num_ranks for folder in checkpoint_folders(run_dir)][:1] == [2]
