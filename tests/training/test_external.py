"""A rank follows an external command: its record, and what becomes of a command that dies, hangs or lies."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from launching import gone, wait_until

from gnnexp.comm.environment import Environment
from gnnexp.config.compose import compose
from gnnexp.errors import CommandError, DataError, DivergedError, HangError
from gnnexp.experiment.build import experiment_of
from gnnexp.graph.storage.format import save_graph
from gnnexp.paradigms.external.command import external_command
from gnnexp.provenance.code import RunCode
from gnnexp.record import records
from gnnexp.record.records import load_result, read_epochs
from gnnexp.testing.graphs import nasty_graph
from gnnexp.training.external import follow

pytestmark = pytest.mark.interpreter

# What every script begins with.
BEGIN = """
import json, os, subprocess, sys, time

def report(epoch, **more):
    with open(os.environ["GNNEXP_EPOCHS"], "a") as file:
        file.write(json.dumps({"epoch": epoch, **more}) + "\\n")

"""


class Place:
    """A run directory, in which commands are followed."""

    def __init__(self, folder: Path) -> None:
        self.run_dir = folder / "run"
        (self.run_dir / "logs").mkdir(parents=True)
        save_graph(nasty_graph(), folder / "graph")
        self.script = folder / "script.py"

    def follow(self, body: str, *overrides: str, inputs: Mapping[str, str] | None = None) -> str:
        self.script.write_text(BEGIN + body)
        config = compose(
            [
                "paradigm=external",
                f"paradigm.command=[python,{self.script}]",
                "hardware.device=cpu",
                "train.epochs=2",
                "train.batch_size=8",
                "train.batch_of=rank",
                *overrides,
            ]
        ).config
        request = {
            "config": config,
            "graph": str(self.run_dir.parent / "graph"),
            "provenance": {} if inputs is None else {"inputs": inputs},
        }
        experiment = experiment_of(config)
        command = external_command(experiment)
        assert command is not None
        return follow(
            self.run_dir,
            request,
            experiment,
            command,
            Environment(),
            RunCode({}),
            [],
            SimpleNamespace(watch=lambda timer: None),
        )

    @property
    def metrics(self) -> list[Mapping[str, float]]:
        return [line["metrics"] for line in read_epochs(self.run_dir)]

    @property
    def external(self) -> Mapping[str, object]:
        return load_result(self.run_dir)["paradigm"]["external"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_claims_and_measurements_are_apart(place: Place) -> None:
    stopped_by = place.follow(
        """
import numpy as np
graph = os.environ["GNNEXP_GRAPH"]
indptr, indices = (np.load(f"{graph}/{name}.npy", mmap_mode="r") for name in ("indptr", "indices"))
assert indptr[-1] == len(indices)
config = json.load(open(os.environ["GNNEXP_CONFIG"]))
assert config["train"]["batch_size"] == 8 and config["train"]["batch_of"] == "run"
for epoch in range(3):
    report(epoch, loss=2.0 - epoch, epoch_s=0.001, forward_s=0.0004, backward_s=0.0005, **{"acc/val": epoch / 4})
""",
        "paradigm.uses=[train]",
    )
    assert stopped_by == ""
    assert [line["epoch"] for line in read_epochs(place.run_dir)] == [0, 1, 2]
    first = place.metrics[0]
    assert first["loss/train"] == 2 and first["time/epoch_s"] == first["time/epoch_s_mean"] == 0.001
    assert first["time/fb_s"] == pytest.approx(0.0009)
    assert first["time/wall_s"] > 0.001 and first["memory/host_peak_bytes"] > 1_000_000
    assert not [name for name in first if name.startswith(("comm/", "work/", "time/sample", "time/sync"))], "not 0"
    result = load_result(place.run_dir)
    assert result["summary"]["best_epoch"] == 2 and result["summary"]["acc/val"] == 0.5
    assert result["paradigm"]["exact"] is False and "not checked by gnnexp" in result["paradigm"]["approximates"]
    assert place.external["measured"] == ["time/wall_s", "memory/host_peak_bytes"]
    assert {"acc/val", "loss/train", "time/epoch_s"} <= set(place.external["claimed"])
    assert (place.external["epochs_asked"], place.external["epochs_reported"]) == (2, 3)
    assert place.external["uses"] == ["train"] and list(place.external["files"]) == [str(place.script)]


def test_a_command_that_reports_nothing_but_epochs(place: Place) -> None:
    place.follow("report(0); report(1)")
    measured = {"time/wall_s", "memory/host_peak_bytes"}  # a command may end before its memory is looked at
    assert len(place.metrics) == 2 and all({"time/wall_s"} <= metrics.keys() <= measured for metrics in place.metrics)
    assert "loss/train" not in load_result(place.run_dir)["summary"]


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        ("report(0); sys.exit('no module named dgl')", CommandError, "exited with code 1.*no module named dgl"),
        ("os.kill(os.getpid(), 11)", CommandError, "was ended by SIGSEGV"),
        ("open(os.environ['GNNEXP_EPOCHS'], 'a').write('epoch 0 done\\n')", DataError, "must be a JSON object"),
        ("report(0); report(0)", DataError, "must be 1"),
        ("print('done')", DataError, "has reported no epoch"),
        ("report(0); open(os.environ['GNNEXP_EPOCHS'], 'a').write('{\"epoch\": 1}')", DataError, "end with a new line"),
        ("report(0, loss=float('nan')); time.sleep(600)", DivergedError, "loss nan in epoch 0"),
        ("report(0); time.sleep(600)", HangError, "no sign of life"),
        (
            "report(0, loss=1.5)\nwhile open(os.environ['GNNEXP_EPOCHS'], 'r+').read():\n"
            "    time.sleep(0.2); open(os.environ['GNNEXP_EPOCHS'], 'w').close()\ntime.sleep(600)",
            DataError,
            "append to it",
        ),
        ("report(0); os.remove(os.environ['GNNEXP_EPOCHS']); time.sleep(600)", DataError, "was removed"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value)[:30],
)
def test_a_command_that_fails(place: Place, body: str, error: type, said: str) -> None:
    (place.run_dir / "logs" / "rank_0.log").write_text("Error: no module named dgl\n")  # here output is pytest's
    with pytest.raises(error, match=f"(?s){said}"):
        # The system may write the memory of a process that was killed for seconds.
        place.follow(body, f"paradigm.silent_s={2 if error is HangError else 60}")
    assert not (place.run_dir / "result.json").exists()


@pytest.mark.parametrize(
    ("printed", "said"),
    [("terminate called\n", "of output: terminate called$"), ("", "of output: Fatal Python error: Aborted$")],
)
def test_a_crash_shows_the_line_before_its_stack(place: Place, printed: str, said: str) -> None:
    stack = f"Fatal Python error: Aborted\n\nThread 0x1:\n  <no Python frame>\n\nExtension modules: {'torch, ' * 900}\n"
    (place.run_dir / "logs" / "rank_0.log").write_text(printed + stack)
    with pytest.raises(CommandError, match=said):
        place.follow("os.kill(os.getpid(), 6)")


def test_empty_lines_are_no_epochs(place: Place) -> None:
    place.follow("open(os.environ['GNNEXP_EPOCHS'], 'a').write('\\n{\"epoch\": 0}\\r\\n\\n')")
    assert len(place.metrics) == 1


def test_a_line_without_end(place: Place) -> None:
    with pytest.raises(DataError, match="at most 65,536 bytes"):
        place.follow("file = open(os.environ['GNNEXP_EPOCHS'], 'a')\nwhile True: file.write('x' * 1000)")


def test_many_long_lines_at_once(place: Place) -> None:
    """More bytes than one look reads; the command has ended before most of them are read."""
    place.follow(
        "pad = ' ' * 60_000\nwith open(os.environ['GNNEXP_EPOCHS'], 'a') as file:\n"
        "    file.writelines('{\"epoch\": %d}%s\\n' % (n, pad) for n in range(60))"
    )
    assert len(place.metrics) == 60


def test_lines_that_come_at_once_are_flushed_together(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed, flush = [], os.fsync
    monkeypatch.setattr(records.os, "fsync", lambda handle: (flushed.append(handle), flush(handle)))
    place.follow(
        "with open(os.environ['GNNEXP_EPOCHS'], 'a') as file:\n"
        "    file.writelines('{\"epoch\": %d}\\n' % n for n in range(500))"
    )
    assert len(place.metrics) == 500 and len(flushed) < 100


def test_a_signal_does_not_wait_for_lines(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command may report faster than its epochs are recorded: the signal is passed on in between."""
    record = records.EpochLog.append
    monkeypatch.setattr(records.EpochLog, "append", lambda *args: (time.sleep(0.02), record(*args)))
    assert (
        place.follow(f"""
import signal
def stop(number, frame):
    open(os.environ["GNNEXP_SCRATCH"] + "/seen", "w").write(open({str(place.run_dir / "epochs.jsonl")!r}).read())
    sys.exit(1)
signal.signal(signal.SIGTERM, stop)
with open(os.environ["GNNEXP_EPOCHS"], "a") as file:
    file.writelines('{{"epoch": %d}}\\n' % n for n in range(100))
os.kill({os.getpid()}, signal.SIGTERM)
time.sleep(600)
""")
        == "SIGTERM"
    )
    assert len((place.run_dir / "external" / "seen").read_text().splitlines()) < 100 == len(place.metrics)


@pytest.mark.slow
def test_output_is_a_sign_of_life(place: Place) -> None:
    place.follow("for _ in range(8): time.sleep(0.5); print('working', flush=True)\nreport(0)", "paradigm.silent_s=2")
    assert len(place.metrics) == 1


def test_children_of_a_failed_command_end_too(place: Place) -> None:
    with pytest.raises(DataError):
        place.follow(
            "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
            "open(os.environ['GNNEXP_SCRATCH'] + '/child', 'w').write(str(child.pid))\n"
            "report(5); time.sleep(600)"
        )
    assert gone(int((place.run_dir / "external" / "child").read_text()))


def test_files_that_were_edited_after_the_launch(place: Place) -> None:
    with pytest.raises(DataError, match="was edited after the run was launched"):
        place.follow("report(0)", inputs={"paradigm.command": "another digest"})
    assert not (place.run_dir / "epochs.jsonl").exists(), "the command was not started"


STOPPED = [
    "scratch, resumed = os.environ['GNNEXP_SCRATCH'], int(os.environ['GNNEXP_RESUME'])",
    "first = int(open(scratch + '/next').read()) if resumed else 0",
    "for epoch in range(first, 4):",
    "    report(epoch, loss=resumed)",
    "    open(scratch + '/next', 'w').write(str(epoch + 1))",
    "    if epoch == 1 and not os.path.exists(scratch + '/stopped'):",
    "        open(scratch + '/stopped', 'w').close()",
    "        time.sleep(600)",
]


@pytest.mark.parametrize("resumes", [False, True])
def test_a_stopped_run_is_resumed_without_an_epoch_twice(place: Place, resumes: bool) -> None:
    def stop() -> None:
        if wait_until(lambda: (place.run_dir / "external" / "stopped").exists() and len(place.metrics) == 2, 60):
            os.kill(os.getpid(), signal.SIGTERM)

    overrides = [f"paradigm.resumes={resumes}", "train.epochs=4"]
    stopper = threading.Thread(target=stop)
    stopper.start()
    assert place.follow("\n".join(STOPPED), *overrides) == "SIGTERM"
    stopper.join()
    before = place.metrics
    assert place.follow("\n".join(STOPPED), *overrides) == ""
    assert [line["epoch"] for line in read_epochs(place.run_dir)] == [0, 1, 2, 3] and place.metrics[:2] == before
    assert [metrics["loss/train"] for metrics in place.metrics] == [0, 0, int(resumes), int(resumes)]
    assert place.external["began_again_at"] == ([] if resumes else [2])
    lines = [file.read_text().count("\n") for file in sorted((place.run_dir / "external").glob("epochs_*.jsonl"))]
    assert lines == [2, 2 if resumes else 4], "each attempt has a file of its own"


def test_a_command_that_has_nothing_left_to_do(place: Place) -> None:
    place.follow("report(0); report(1)", "paradigm.resumes=true")
    (place.run_dir / "result.json").unlink()  # its rank was killed before it wrote the result
    assert place.follow("pass", "paradigm.resumes=true") == "" and len(place.metrics) == 2
    assert json.loads((place.run_dir / "result.json").read_text())["status"] == "finished"
