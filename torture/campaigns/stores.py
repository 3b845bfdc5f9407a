"""A store that goes away: the ranks' rendezvous, the tracker's database during a run, its server during a sweep.

A run without a rendezvous ends in words and goes on; a tracker that is away harms no run, and gets everything later.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from torture.campaigns.frozen import MARGIN_S, TIMEOUT_S
from torture.campaigns.kills import recorded
from torture.campaigns.sweeps import NAME, compare_sweep, write_sweep
from torture.campaigns.tracking import end, serve
from torture.setups import random_setup
from torture.storm import DELIVERY_S, STORE, Command, Storm

TRACKER_S = 4


def run(storm: Storm) -> None:
    """One kind of store."""
    storm.carry_out_one(_KINDS)


def _later(storm: Storm, command: Command, seconds: float) -> bool:
    """A moment of the fault; False if the command has ended before."""
    end = time.monotonic() + storm.random.uniform(0, seconds)
    return storm.until(lambda: time.monotonic() > end, command, seconds + 5)


# --- the rendezvous --------------------------------------------------------------------------------------------------
def _rendezvous(storm: Storm) -> None:
    """The file through which ranks meet is removed or emptied, or its whole folder is, while they meet or later."""
    setup, run_dir = random_setup(storm.random), storm.folder / "run"
    storm.undisturbed(setup)
    command = storm.start(
        "run", *setup.overrides, f"hardware.timeout_s={TIMEOUT_S}", "tracker=none", "hydra.run.dir=run"
    )
    if storm.random.random() < 0.7:
        storm.until((run_dir / "private" / "store").exists, command, 60)
    else:
        epochs = storm.random.randrange(6)
        storm.until(lambda: recorded(run_dir) > epochs, command, 60)
    _later(storm, command, 0.3)
    how = storm.random.choice(["removed", "emptied", "folder removed"])
    storm.history.append(f"{setup.name}: {how} at {time.monotonic() - command.started:.2f} s")
    _spoil(run_dir / "private", how)
    code = storm.done(command, TIMEOUT_S + MARGIN_S)
    storm.numbers["rendezvous_ended_the_run"] += code != 0
    if code not in (0, 1):
        storm.problems.append(f"exit {code}: {command.said()[-600:]}")
    if code != 0 and storm.run("resume", "run").code != 0:
        storm.problems.append(f"does not go on: {storm.commands[-1].said()[-600:]}")
        return
    storm.expect_quiet(DELIVERY_S)
    storm.compare(run_dir, setup)
    if (run_dir / "private").exists():
        storm.problems.append("the private folder is left")


def _spoil(private: Path, how: str) -> None:
    if how == "removed":
        (private / "store").unlink(missing_ok=True)
    elif how == "folder removed":
        shutil.rmtree(private, ignore_errors=True)
    elif (private / "store").exists():
        os.truncate(private / "store", 0)


# --- the tracker -----------------------------------------------------------------------------------------------------
def _database(storm: Storm) -> None:
    """The tracker's file is moved away while a run delivers to it, and comes back after the run."""
    setup, run_dir = random_setup(storm.random), storm.folder / "run"
    storm.undisturbed(setup)
    command = storm.start("run", *setup.overrides, f"tracker.timeout_s={TRACKER_S}", "hydra.run.dir=run")
    epochs = storm.random.randrange(10)
    storm.until(lambda: recorded(run_dir) > epochs, command, 60)
    away = storm.folder / "away"
    away.mkdir()
    for file in storm.folder.glob(f"{STORE}*"):  # with its journal, as one moves a database
        file.rename(away / file.name)
    if storm.done(command) != 0:
        storm.problems.append(f"the run is harmed: exit {command.code}: {command.said()[-600:]}")
        return
    storm.expect_quiet(DELIVERY_S)
    for file in away.iterdir():
        file.replace(storm.folder / file.name)
    storm.numbers["tracking_not_delivered"] += not storm.delivered(run_dir)
    storm.check_store([run_dir])
    storm.compare(run_dir, setup)


def _server_of_a_sweep(storm: Storm) -> None:
    """The tracker's server is killed in a sweep; in half of the storms it comes back while the sweep is on."""
    jobs = storm.random.choice([1, 1, 2])
    (storm.folder / "fault.json").write_text(json.dumps(["none", 0.0, 0]))
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    cases = write_sweep(
        storm,
        storm.random.choice(["dgl", "sancus"]),
        2 if jobs == 1 else 1,
        (f"tracker.uri=http://127.0.0.1:{port}", f"tracker.timeout_s={TRACKER_S}"),
    )
    for case in cases:
        storm.undisturbed(case)
    server = _started(storm, listening)
    command = storm.start("sweep", f"{NAME}.yaml", "--jobs", str(jobs), spare=12)
    enough = storm.random.randrange(len(cases))
    storm.until(lambda: len(list((storm.folder / "runs" / NAME).glob("*/result.json"))) >= enough, command, 240)
    _later(storm, command, 4)
    end(server)
    back = storm.random.random() < 0.5
    if back:
        _later(storm, command, 8)
        server = _started(storm, socket.create_server(("127.0.0.1", port)))
    if storm.done(command, 300) not in (0, 1):
        storm.problems.append(f"the sweep is harmed: exit {command.code}: {command.said()[-600:]}")
    if not back:
        server = _started(storm, socket.create_server(("127.0.0.1", port)))
    again = storm.start("sweep", f"{NAME}.yaml", "--jobs", str(jobs), spare=12)
    if storm.done(again, 300) != 0:
        storm.problems.append(f"the server is back, the sweep exits {again.code}: {again.said()[-600:]}")
    storm.expect_quiet(DELIVERY_S, but=(server,))
    compare_sweep(storm, cases)
    end(server)


def _started(storm: Storm, listening: socket.socket) -> int:
    server = serve(storm.folder, listening)
    listening.close()
    return server


_KINDS: Mapping[str, Callable[[Storm], None]] = {
    "rendezvous": _rendezvous,
    "database": _database,
    "server_of_a_sweep": _server_of_a_sweep,
}
