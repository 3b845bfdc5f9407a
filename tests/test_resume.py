"""A run that was stopped anywhere goes on as if nothing had happened: the same losses and parameters, bit for bit."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from combinations import combinations
from stopping import attempt, curve, undisturbed

from gnnexp.errors import GnnexpError
from gnnexp.record.records import read_epochs
from gnnexp.testing.steps import MODELS, optimizer, small_config
from gnnexp.training.checkpoint import checkpoint_folders

PARADIGMS: dict[str, dict[str, Any]] = {
    "data_parallel": {"paradigm": {"_target_": "gnnexp.paradigms.data_parallel.DataParallel"}},
    "partitioned": {
        "paradigm": {"_target_": "gnnexp.paradigms.data_parallel.DataParallel", "assign": "owner"},
        "feature_store": {"_target_": "gnnexp.feature_stores.partitioned.PartitionedOptions"},
        "sampler": {"topology": "partitioned", "threads": 1, "prefetch": 2},
    },
    "split_parallel": {"paradigm": {"_target_": "gnnexp.paradigms.split_parallel.SplitParallel"}},
    "push_pull": {
        "paradigm": {"_target_": "gnnexp.paradigms.push_pull.PushPull"},
        "feature_store": {"_target_": "gnnexp.feature_stores.sliced.SlicedOptions"},
    },
    # Rows that are trained lie elsewhere on another number of ranks, by owner or by columns.
    "split_embedding": {
        "paradigm": {"_target_": "gnnexp.paradigms.split_parallel.SplitParallel"},
        "feature_store": {"_target_": "gnnexp.feature_stores.embedding.EmbeddingOptions", "dim": 7},
    },
    "push_pull_embedding": {
        "paradigm": {"_target_": "gnnexp.paradigms.push_pull.PushPull"},
        "feature_store": {"_target_": "gnnexp.feature_stores.embedding.SlicedEmbeddingOptions", "dim": 7},
    },
}
REFERENCE = {"paradigm": {"_target_": "gnnexp.paradigms.dgl_reference.DGLReference"}}


def configured(changes: dict[str, Any], model: str = "sage", **training: Any) -> dict[str, Any]:
    wanted = {"epochs": 3, "batch_size": 8, "checkpoint_every": 1, "overlap": True, **training}
    config = small_config(MODELS[model], train=wanted)
    for group, values in changes.items():
        config[group] = {**config[group], **values} if group == "sampler" else values
    return config


# Models whose state is another one; all of them, with another optimizer: `test_every_model_goes_on_bit_for_bit`.
OTHER_MODELS = {"partitioned": "gcn", "split_parallel": "gin"}
# Trained rows are in what is stopped in the second epoch; a stop in the first one, and after the last step, too.
QUICK = {
    ("data_parallel", 2, 2),
    ("partitioned", 2, 5),
    ("split_parallel", 2, 2),
    ("push_pull", 2, 11),
    ("split_embedding", 3, 5),
    ("push_pull_embedding", 3, 5),
}


@pytest.mark.parametrize(
    ("name", "size", "stop_at"), combinations(PARADIGMS, [1, 2, 3], [0, 2, 5, 11], quick=lambda *case: case in QUICK)
)
def test_stopped_at_any_step_it_goes_on_bit_for_bit(ranks, name, size, stop_at):
    config = configured(PARADIGMS[name], OTHER_MODELS.get(name, "sage"))
    expected, ended = undisturbed(ranks, size, config)
    with tempfile.TemporaryDirectory() as folder:
        first = ranks(size).run(attempt, config, folder, stop_at)
        assert first[0]["steps"] <= 12 and (stop_at > 8 or first[-1]["stopped_by"] == "SIGTERM")
        second = ranks(size).run(attempt, config, folder, None)
        assert curve(folder) == expected
        assert [end["stopped_by"] for end in second] == [""] * size
        for before, after in zip(ended, second, strict=True):
            assert all(torch.equal(before["state"][key], after["state"][key]) for key in before["state"])


@pytest.mark.parametrize("model", [pytest.param(one, marks=() if one == "gat" else pytest.mark.slow) for one in MODELS])
def test_every_model_goes_on_bit_for_bit(ranks, model):
    changes = {**PARADIGMS["data_parallel"], "optimizer": optimizer("AdamW", weight_decay=0.01)}
    config = configured(changes, model, epochs=2)
    expected, ended = undisturbed(ranks, 2, config)
    with tempfile.TemporaryDirectory() as folder:
        ranks(2).run(attempt, config, folder, 5)
        second = ranks(2).run(attempt, config, folder, None)
        assert curve(folder) == expected
        assert all(torch.equal(ended[0]["state"][key], second[0]["state"][key]) for key in ended[0]["state"])


SCHEDULED = {
    "scheduler": {
        "_target_": "torch.optim.lr_scheduler.OneCycleLR",
        "_partial_": True,
        "interval": "step",
        "max_lr": 0.1,
        "total_steps": 12,
        "cycle_momentum": False,
    },
}


def _quick_change(name: str, change: tuple[int, int], scheduled: bool) -> bool:
    """A schedule and clipping come on top of what a run without them does."""
    rows_too = name not in ("split_parallel", "push_pull", "data_parallel")  # as of the same paradigm with such rows
    return change == (3, 2) and ((scheduled and rows_too) or (not scheduled and name == "data_parallel"))


@pytest.mark.parametrize(
    ("name", "before", "after", "scheduled"),
    [
        pytest.param(name, *change, scheduled, marks=() if _quick_change(name, change, scheduled) else pytest.mark.slow)
        for name in PARADIGMS
        for change in ((1, 3), (2, 1), (3, 2))
        for scheduled in (False, True)
    ],
)
def test_on_another_number_of_ranks_it_goes_on_within_rounding(ranks, name, before, after, scheduled):
    """The state of a schedule by steps moves to the other ranks, and gradients are clipped as before."""
    config = configured(PARADIGMS[name], **{"clip_norm": 0.5} if scheduled else {}) | (SCHEDULED if scheduled else {})
    expected, _ = undisturbed(ranks, 1, config)
    with tempfile.TemporaryDirectory() as folder:
        ranks(before).run(attempt, config, folder, 5)
        ranks(after).run(attempt, config, folder, None)
        found, lines = curve(folder), read_epochs(Path(folder))
    assert [len(losses) for losses in found] == [len(losses) for losses in expected]
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-10)
    (resumed,) = [line["resumed"] for line in lines if "resumed" in line]
    assert resumed[0]["ranks"] == before and resumed[0]["same_ranks"] == 0
    for line in lines:
        assert line["metrics"]["loss/train"] == pytest.approx(
            sum(loss * n for loss, n in zip(line["losses"], [8, 8, 8, 6], strict=True)) / 30
        )


def attempt_with_a_signal_in(config: dict[str, Any], folder: str, what: str) -> dict[str, Any]:
    """As `attempt`, and rank 0 is sent SIGTERM when it first comes to `what`, between two epochs."""
    from gnnexp.training import train as training

    owner, name = {"evaluation": (training.Evaluation, "after"), "checkpoint": (training.RunState, "save_if")}[what]
    original, sent = getattr(owner, name), []

    def interrupted(*args: Any, **named: Any) -> Any:
        if not sent and int(os.environ["RANK"]) == 0:
            sent.append(os.kill(os.getpid(), signal.SIGTERM))
        return original(*args, **named)

    with patch.object(owner, name, interrupted):
        return attempt(config, folder, None)


@pytest.mark.parametrize("what", ["evaluation", "checkpoint"])
def test_a_signal_between_two_epochs_is_heard(ranks, what):
    config = configured(PARADIGMS["data_parallel"])
    expected, _ = undisturbed(ranks, 2, config)
    with tempfile.TemporaryDirectory() as folder:
        ended = ranks(2).run(attempt_with_a_signal_in, config, folder, what)
        assert [end["stopped_by"] for end in ended] == ["SIGTERM", "another rank"]
        assert len(curve(folder)) == 1, "it stopped in the second epoch"
        ranks(2).run(attempt, config, folder, None)
        assert curve(folder) == expected


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.slow
def test_dgls_loop_goes_on_from_the_end_of_an_epoch_bit_for_bit(ranks, size):
    config = configured(REFERENCE, dtype="float32")
    expected, _ = undisturbed(ranks, size, config)
    with tempfile.TemporaryDirectory() as folder:
        first = ranks(size).run(attempt, config, folder, 2)
        assert len(curve(folder)) == 1 and first[-1]["stopped_by"] == "SIGTERM"
        ranks(size).run(attempt, config, folder, None)
        assert curve(folder) == expected


def test_a_checkpoint_on_request_does_not_end_the_run(ranks):
    config = configured(PARADIGMS["data_parallel"], checkpoint_every=0)
    expected, _ = undisturbed(ranks, 2, config)
    with tempfile.TemporaryDirectory() as folder:
        ended = ranks(2).run(attempt, config, folder, 5, signal.SIGUSR2)
        assert [end["stopped_by"] for end in ended] == ["", ""]
        assert curve(folder) == expected
        (made,) = checkpoint_folders(Path(folder))
        assert made.name.startswith("00000001-"), "in the second epoch, on request; none is due"


def test_the_latest_checkpoints_stay_and_nothing_half_written(ranks):
    config = configured(PARADIGMS["data_parallel"], epochs=5, checkpoints_kept=2)
    with tempfile.TemporaryDirectory() as folder:
        ranks(2).run(attempt, config, folder, None)
        names = sorted(path.name for path in (Path(folder) / "checkpoints").iterdir())
        best = (Path(folder) / "checkpoints" / "best").readlink().name
        assert names == [*sorted({best, "00000004-0000000000", "00000005-0000000000"}), "best"]


def test_epochs_done_again_keep_their_first_record(ranks):
    config = configured(PARADIGMS["data_parallel"], checkpoint_every=2)
    expected, _ = undisturbed(ranks, 2, config)
    with tempfile.TemporaryDirectory() as folder:
        shorter = {**config, "train": {**config["train"], "epochs": 1, "checkpoint_every": 0}}
        ranks(2).run(attempt, shorter, folder, None)
        first = read_epochs(Path(folder))
        assert not checkpoint_folders(Path(folder))
        ranks(2).run(attempt, config, folder, None)
        assert read_epochs(Path(folder))[0] == first[0]
        assert curve(folder)[1:] == expected[1:]


WAYS = [
    ("data_parallel", 0),
    *((name, prefetch) for name in ("partitioned", "split_parallel", "push_pull") for prefetch in (1, 3)),
]
PIECES = {("partitioned", 1, "stop"), ("split_parallel", 3, "go on"), ("push_pull", 1, "stop")}
_whole: dict[tuple[str, int], list[dict[str, Any]]] = {}  # what a run that nobody stops records, by its way


@pytest.mark.parametrize(
    ("name", "prefetch", "number"),
    [
        pytest.param(
            *way,
            number,
            id=f"{way[0]}-{way[1]}-{what}",
            marks=() if way[1] == 0 or (way[1] == prefetch and (*way, what) in PIECES) else pytest.mark.slow,
        )
        for way in WAYS
        for number, what, prefetch in ((signal.SIGUSR2, "go on", 3), (signal.SIGTERM, "stop", 1))
    ],
)
def test_pieces_of_an_epoch_add_up(ranks, name, prefetch, number):
    """Whether batches are prepared ahead (`prefetch` of them, then thrown away) or not: each is counted once."""
    changes = PARADIGMS[name]
    sampler = {**changes.get("sampler", {}), **({"threads": 1, "prefetch": prefetch} if prefetch else {})}
    config = configured({**changes, "sampler": sampler}, overlap=prefetch > 0)
    if (name, prefetch) not in _whole:
        with tempfile.TemporaryDirectory() as folder:
            ranks(2).run(attempt, config, folder, None)
            _whole[name, prefetch] = read_epochs(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        ranks(2).run(attempt, config, folder, 1, number)
        if number == signal.SIGTERM:
            ranks(2).run(attempt, config, folder, None)
        for one, other in zip(_whole[name, prefetch], read_epochs(Path(folder)), strict=True):
            counted = [name for name in one["metrics"] if name.split("/")[0] in ("work", "comm", "tier", "loss")]
            assert {"work/features_loaded_host", "tier/h2d_bytes", "comm/bytes_gradients"} <= {*counted}
            assert {name: one["metrics"][name] for name in counted} == {
                name: other["metrics"][name] for name in counted
            }
            assert one["batches"] == other["batches"]
            for rank, of_whole in zip(other["ranks"], one["ranks"], strict=True):
                assert rank["work"] == of_whole["work"]
                assert {tag: (found["sent_bytes"], found["rounds"]) for tag, found in rank["traffic"].items()} == {
                    tag: (found["sent_bytes"], found["rounds"]) for tag, found in of_whole["traffic"].items()
                }
                times = rank["times"]
                total = sum(times["phases"].values()) + times["unaccounted_s"]
                assert total == pytest.approx(times["epoch_s"], rel=1e-9)


def test_another_model_is_refused(ranks):
    config = configured(PARADIGMS["data_parallel"])
    with tempfile.TemporaryDirectory() as folder:
        ranks(1).run(attempt, config, folder, 5)
        other = {**config, "model": {**config["model"], "hidden": 8}}

        def refused(changed: dict[str, Any], place: str) -> str:
            try:
                attempt(changed, place, None)
            except GnnexpError as error:
                return str(error)
            return ""

        assert "does not fit this model" in ranks(1).run(refused, other, folder)[0]


def test_missing_records_are_named(ranks):
    config = configured(PARADIGMS["data_parallel"])
    with tempfile.TemporaryDirectory() as folder:
        ranks(1).run(attempt, config, folder, 6)
        (Path(folder) / "epochs.jsonl").unlink()

        def refused(place: str) -> str:
            try:
                attempt(config, place, None)
            except GnnexpError as error:
                return str(error)
            return ""

        assert "must hold the 1 epochs before the checkpoint" in ranks(1).run(refused, folder)[0]
