"""The model that tables report is kept: that of the best validation epoch."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stopping import attempt

from gnnexp.record.records import read_epochs, summarize
from gnnexp.testing.steps import MODELS, small_config
from gnnexp.training.best import Best, describe_best
from gnnexp.training.checkpoint import (
    Position,
    checkpoint_folders,
    latest_checkpoint,
    open_checkpoint,
    point_best,
)

METRICS = st.fixed_dictionaries(
    {}, optional={"acc/val": st.sampled_from([math.nan, 0.1, 0.2, 0.3]), "acc/test": st.sampled_from([math.nan, 0.5])}
)


@given(st.lists(METRICS, max_size=8))
def test_it_is_the_epoch_that_tables_report(metrics: list[dict[str, float]]) -> None:
    best = Best()
    for epoch, found in enumerate(metrics):
        best = best.after(epoch, found, "acc")
    epochs = [{"epoch": epoch, "metrics": {"loss/train": 1.0, **found}} for epoch, found in enumerate(metrics)]
    assert best.epoch == summarize(epochs, "acc").get("best_epoch", -1)


def test_an_epoch_that_is_done_again_counts_as_it_was_recorded() -> None:
    best = Best().after(0, {"acc/val": 0.1}, "acc", {"acc/val": 0.9}).after(1, {"acc/val": 0.2}, "acc")
    assert (best.epoch, best.value) == (1, 0.2)


def configured(epochs: int = 6, **training: Any) -> dict[str, Any]:
    config = small_config(
        MODELS["sage"],
        train={
            "epochs": epochs,
            "batch_size": 8,
            "checkpoint_every": 1,
            "checkpoints_kept": 1,
            "eval_every": 1,
            **training,
        },
        optimizer={"lr": 0.1},
    )
    return {**config, "paradigm": {"_target_": "gnnexp.paradigms.data_parallel.DataParallel"}}


def described(folder: str) -> tuple[dict[str, Any], int]:
    epochs = read_epochs(Path(folder))
    summary = summarize(epochs, "acc")
    return describe_best(Path(folder), epochs, summary), int(summary["best_epoch"])


def test_its_checkpoint_stays_and_holds_its_model(ranks):
    config = configured()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as shorter:
        ranks(2).run(attempt, config, folder, None)
        best, epoch = described(folder)
        assert best == {"epoch": epoch, "checkpoint": "checkpoints/best"}
        assert 0 <= epoch < 5, "else the last one is the best, and this test shows nothing"
        assert {item.name for item in checkpoint_folders(Path(folder))} == {
            Position(6).folder,
            Position(epoch + 1).folder,
        }, "the last one and the best one"
        kept = open_checkpoint((Path(folder) / "checkpoints" / "best").resolve())
        kept.verify()
        ranks(2).run(attempt, configured(epoch + 1), shorter, None)
        ended = open_checkpoint(checkpoint_folders(Path(shorter))[0]).shared()["parameters"]
        entries = kept.shared()["parameters"]
        assert entries and all(torch.equal(entry["value"], ended[name]["value"]) for name, entry in entries.items())


_undisturbed: list[tuple[dict[str, Any], int]] = []  # what a run that nobody stops keeps


@pytest.mark.parametrize(
    "stop_at",
    [*(pytest.param(at, marks=pytest.mark.slow) for at in (3, 8)), 17, pytest.param(23, marks=pytest.mark.slow)],
)
def test_a_run_that_was_stopped_keeps_the_same(ranks, stop_at):
    config = configured()
    if not _undisturbed:
        with tempfile.TemporaryDirectory() as folder:
            ranks(2).run(attempt, config, folder, None)
            _undisturbed.append(described(folder))
    with tempfile.TemporaryDirectory() as stopped:
        ranks(2).run(attempt, config, stopped, stop_at)
        ranks(2).run(attempt, config, stopped, None)
        assert [described(stopped)] == _undisturbed


def test_a_link_that_a_kill_left_behind_is_made_right(ranks):
    """Killed between a checkpoint and its link; without a later best epoch nothing else would make it."""
    config = configured(epochs=2, lr=0.0)
    with tempfile.TemporaryDirectory() as folder:
        ranks(1).run(attempt, {**config, "train": {**config["train"], "epochs": 1}}, folder, None)
        (Path(folder) / "checkpoints" / "best").unlink()
        ranks(1).run(attempt, config, folder, None)
        assert described(folder) == ({"epoch": 0, "checkpoint": "checkpoints/best"}, 0)


def test_a_copy_of_the_run_without_links_goes_on(ranks):
    """`scp -r` and `cp -rL` make a folder of the link."""
    config = configured(epochs=3)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as copied:
        ranks(1).run(attempt, {**config, "train": {**config["train"], "epochs": 1}}, folder, None)
        shutil.copytree(folder, copied, dirs_exist_ok=True)  # it follows links
        assert not (Path(copied) / "checkpoints" / "best").is_symlink()
        assert len(checkpoint_folders(Path(copied))) == 1, "the copy of the best one is none"
        assert latest_checkpoint(Path(copied))[1] == []
        ranks(1).run(attempt, config, copied, None)
        best, epoch = described(copied)
        assert best == {"epoch": epoch, "checkpoint": "checkpoints/best"}
        assert (Path(copied) / "checkpoints" / "best").is_symlink()


def test_a_copy_of_the_run_keeps_the_best_model_where_no_later_one_is_better(ranks):
    config = configured(epochs=4, lr=0.0)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as copied:
        ranks(1).run(attempt, {**config, "train": {**config["train"], "epochs": 2}}, folder, None)
        shutil.copytree(folder, copied, dirs_exist_ok=True)
        ranks(1).run(attempt, config, copied, None)
        assert described(copied) == ({"epoch": 0, "checkpoint": "checkpoints/best"}, 0)


def test_without_checkpoints_or_with_a_damaged_one_none_is_named(ranks):
    with tempfile.TemporaryDirectory() as folder:
        ranks(1).run(attempt, configured(epochs=2, checkpoint_every=0), folder, None)
        best, epoch = described(folder)
        assert best == {"epoch": epoch, "checkpoint": None}
    with tempfile.TemporaryDirectory() as folder:
        ranks(1).run(attempt, configured(epochs=2), folder, None)
        link = Path(folder) / "checkpoints" / "best"
        meta = link / "checkpoint.json"
        meta.write_text(json.dumps({**json.loads(meta.read_text()), "schema": 99}))
        assert described(folder)[0]["checkpoint"] is None
        shutil.rmtree(link.resolve())
        assert described(folder)[0]["checkpoint"] is None, "a link that leads nowhere"


def test_a_checkpoint_whose_bytes_have_changed_is_not_named(ranks):
    with tempfile.TemporaryDirectory() as folder:
        ranks(1).run(attempt, configured(epochs=1), folder, None)
        assert described(folder)[0]["checkpoint"]
        file = Path(folder) / "checkpoints" / "best" / "shared.pt"
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        assert described(folder)[0] == {"epoch": 0, "checkpoint": None}


def test_the_model_of_an_epoch_that_came_out_differently_is_not_named(ranks):
    """It was recorded, its checkpoint was not written; then other code goes on, as another rate does here."""
    with tempfile.TemporaryDirectory() as folder:
        ranks(1).run(attempt, configured(epochs=1), folder, None)
        shutil.rmtree(Path(folder) / "checkpoints")
        ranks(1).run(attempt, configured(epochs=1), folder, None)
        assert described(folder)[0] == {"epoch": 0, "checkpoint": "checkpoints/best"}, "it came out the same"
        shutil.rmtree(Path(folder) / "checkpoints")
        other = configured(epochs=1)
        ranks(1).run(attempt, {**other, "optimizer": {**other["optimizer"], "lr": 0.01}}, folder, None)
        assert described(folder)[0] == {"epoch": 0, "checkpoint": None}


def test_nothing_is_said_where_nothing_was_evaluated(tmp_path):
    assert describe_best(tmp_path, [], {"loss/train": 1.0}) == {}


def test_the_link_names_one_checkpoint_at_any_time(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    for epoch in (1, 2, 2):
        point_best(tmp_path, Position(epoch))
        assert (tmp_path / "checkpoints" / "best").readlink() == Path(Position(epoch).folder)
    assert [item.name for item in (tmp_path / "checkpoints").iterdir()] == ["best"]
