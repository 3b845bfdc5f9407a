"""Runs that hang, run out of memory, or are killed at random: who is blamed, what is left, how they go on."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import pytest
import slow_rank
from command_line import curve, fitting, place, start
from rank_processes import ranks_of

from gnnexp.cli.main import run_command
from gnnexp.config.folders import product_folder

__all__ = ["place"]

pytestmark = pytest.mark.timeout(900)
SMALL = [
    "tracker=none",
    "model.hidden=16",
    "model.layers=2",
    "sampler.fanouts=[4,4]",
    "hardware.threads=1",
    "train.batch_size=256",
    "train.batch_of=run",
]


def finish(process: subprocess.Popen[str], seconds: float = 120.0) -> str:
    output, _ = process.communicate(timeout=seconds)
    return output


def result(run_dir: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(run_dir) / "result.json").read_text())
    return found


def workers(run_dir: str) -> dict[int, psutil.Process]:
    return ranks_of(Path(run_dir))


def until_epoch(process: subprocess.Popen[str], run_dir: str, number: int) -> None:
    while len(curve(run_dir)) < number:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)


@pytest.mark.slow
def test_a_rank_that_hangs_is_named(place, capfd, monkeypatch):
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(slow_rank.__file__).parent), os.environ.get("PYTHONPATH", "")])
    )
    hanging = "optimizer={_target_: slow_rank.Hanging, _partial_: true, lr: 0.1}"
    code = run_command(["run", "hydra.run.dir=run", *SMALL, "hardware.workers=3", "hardware.timeout_s=8", hanging])
    output = "".join(capfd.readouterr())
    assert code == 1
    assert "rank 1 on" in output and "hangs in phase update" in output, output
    found = result("run")
    assert (found["status"], found["kind"]) == ("failed", "hang") and not workers("run")


@pytest.mark.parametrize(
    "pause",
    [
        pytest.param(0.02, marks=pytest.mark.nightly),
        pytest.param(0.3, marks=pytest.mark.slow),
        pytest.param(1.0, marks=pytest.mark.nightly),
    ],
)
def test_who_presses_ctrl_c_again_and_again_has_a_run_that_goes_on(place, pause):
    process = start("run", "hydra.run.dir=run", *SMALL, "hardware.workers=2", "train.epochs=400")
    until_epoch(process, "run", 3)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(pause)
    output = finish(process)
    assert process.returncode in (130, -signal.SIGINT), "to a shell the same: 130"
    assert "Traceback" not in output, output
    assert result("run")["kind"] == "interrupted" and not workers("run")
    assert run_command(["resume", "run"]) == 0 and len(curve("run")) == 400


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=["ctrl-c", "terminal closed"])
def test_who_stops_a_run_once_has_a_checkpoint(place, number):
    process = start(
        "run", "hydra.run.dir=run", *SMALL, "hardware.workers=2", "train.epochs=400", "train.checkpoint_every=0"
    )
    until_epoch(process, "run", 3)
    process.send_signal(number)
    output = finish(process)
    assert process.returncode == 128 + number and "middle of a step" not in output, output
    before = curve("run")
    assert len(list(Path("run/checkpoints").glob("0*"))) == 1 and len(before) < 400
    assert run_command(["resume", "run"]) == 0
    assert len(curve("run")) == 400 and curve("run")[: len(before)] == before
    events = [json.loads(line) for line in Path("run/attempts.jsonl").read_text().splitlines()]
    assert not [one for one in events if one.get("event") == "ranks" and one["from_start"]][1:]


@pytest.mark.slow
def test_a_frozen_rank_is_named(place):
    more = ["hardware.workers=2", "hardware.timeout_s=8", "train.epochs=5000"]
    process = start("run", "hydra.run.dir=run", *SMALL, *more)
    until_epoch(process, "run", 3)
    workers("run")[0].send_signal(signal.SIGSTOP)
    output = finish(process)
    assert process.returncode == 1 and "rank 0 on" in output, output
    assert "has given no sign of life for" in output and "last seen in phase" in output
    assert result("run")["kind"] == "hang" and len(result("run")["epochs"]) >= 3 and not workers("run")


@pytest.mark.slow
def test_memory_that_is_not_there_is_a_result(place):
    far = [
        "preflight=off",
        "model.hidden=1000000",
        "model.layers=3",
        "sampler.fanouts=[4,4,4]",
        "hardware.workers=2",
        "train.epochs=1",
    ]
    file = place / "memory.yaml"
    file.write_text(
        json.dumps(
            {"fixed": SMALL, "cases": [{"overrides": far}, {"overrides": ["train.epochs=1", "hardware.workers=2"]}]}
        )
    )
    process = start("sweep", str(file))
    output = finish(process, 200)
    assert process.returncode == 1
    runs = [json.loads(path.read_text()) for path in place.glob("runs/memory/*/result.json")]
    (failed,) = [run for run in runs if run["status"] == "failed"]
    assert failed["kind"] == "out of memory" and failed["needed_bytes"] > 10**12 > failed["available_bytes"] > 0
    assert "OOM" in output and "1 finished, 1 failed" in output.replace("1 failed, 1 finished", "1 finished, 1 failed")


def test_the_preflight_says_line_by_line_what_is_not_there(place, capfd):
    far = ["model.hidden=40000000", "hardware.workers=2", "train.epochs=1"]
    code = run_command(["run", "hydra.run.dir=run", *SMALL, *far])
    output = "".join(capfd.readouterr())
    assert code == 2 and not Path("run").exists()
    for words in ("of host memory", "parameters, gradients, optimizer", "interpreter and libraries", "preflight=warn"):
        assert words in output, output


# --- a run of the console script: where it listens, what it writes, what a store has ---------------------------------
@dataclass(frozen=True)
class Watched:
    """A run of the console script with the default tracker.

    Attributes:
        code: how it ended.
        out: what it said.
        err: what it said on standard error.
        listened: addresses at which its processes listened.
        ranks: those who were seen.
        folder: its current folder.
        uri: of the store.
    """

    code: int
    out: str
    err: str
    listened: set[str]
    ranks: set[int]
    folder: Path
    uri: str


SCRIPT = Path(sys.executable).with_name("gnnexp")  # as installed
SECRET = "hunter2-and-nobody-else"


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, mlflow_store: Callable[[Path], str]) -> Watched:
    """No test changes its run, but for what is delivered and reported."""
    folder, listened, ranks = tmp_path_factory.mktemp("watched"), set(), set()
    uri, environment = mlflow_store(folder), os.environ | {"GNNEXP_CACHE": str(folder.parent / "cache")}
    environment.pop("MLFLOW_TRACKING_URI", None)
    names = ("AWS_SECRET_ACCESS_KEY", "MLFLOW_TRACKING_PASSWORD", "WANDB_API_KEY", "MY_TOKEN")
    words = [*SMALL[1:], "train.epochs=8", "hardware.workers=3", "hydra.run.dir=runs/one"]
    with (folder / "err").open("w+") as err:
        process = subprocess.Popen(
            [SCRIPT, "run", *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            env=environment | dict.fromkeys(names, SECRET),
        )
        while process.poll() is None:  # from the first process to the last one's end
            listened |= set(listening(process.pid))
            ranks |= set(workers(str(folder / "runs" / "one")))
            time.sleep(0.1)
        out, _ = process.communicate(timeout=240)
        err.seek(0)
        return Watched(process.returncode, out, err.read(), listened, ranks, folder, uri)


def listening(pid: int) -> Iterator[str]:
    """Addresses at which a process and those below it listen. psutil would take a tenth of a second for a look."""
    processes = [pid]
    for one in processes:
        with suppress(OSError):  # it has ended, or a thread has
            for task in Path(f"/proc/{one}/task").iterdir():
                processes += map(int, (task / "children").read_text().split())
    sockets = dict(heard())
    for one in processes:
        with suppress(OSError):
            for file in Path(f"/proc/{one}/fd").iterdir():
                with suppress(OSError):
                    if (socket_of := str(file.readlink())) in sockets:
                        yield sockets[socket_of]


def heard() -> Iterator[tuple[str, str]]:
    """Sockets that listen, by the name that descriptors have, and their addresses: numbers as the machine has them."""
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *_, number = line.split()[:10]
            if state == "0A":
                words = bytes.fromhex(local.partition(":")[0])
                address = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
                yield f"socket:[{number}]", socket.inet_ntop(family, address)


@pytest.mark.interpreter
@pytest.mark.slow
def test_nothing_listens_on_anything_but_the_loopback(watched: Watched) -> None:
    assert watched.code == 0 and len(curve(str(watched.folder / "runs" / "one"))) == 8, watched.err
    assert watched.listened == {"127.0.0.1"}
    assert watched.ranks == {0, 1, 2}, "those who would be seen if they lived on after a run"
    assert not workers(str(watched.folder / "runs" / "one"))


@pytest.mark.interpreter
@pytest.mark.slow
def test_secrets_of_the_environment_are_nowhere(watched: Watched) -> None:
    assert watched.code == 0 and SECRET not in watched.out + watched.err
    files = [path for path in watched.folder.rglob("*") if path.is_file()]
    assert any(path.name == "mlflow.db" for path in files)
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


@pytest.mark.slow
@pytest.mark.interpreter
def test_a_run_from_the_console_to_mlflow(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uri, workplace = watched.uri, watched.folder
    monkeypatch.chdir(workplace)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert watched.code == 0, watched.err
    assert "epoch   0" in watched.out and "epoch   7" in watched.out and "runs/one" in watched.out
    run = workplace / "runs" / "one"
    result = json.loads((run / "result.json").read_text())
    assert result["status"] == "finished" and len(result["epochs"]) == 8
    assert 0 < result["summary"]["acc/test"] <= 1
    assert "gnnexp run model.hidden=16" in result["provenance"]["reproduce"]
    assert {"config.yaml", "job.json", "epochs.jsonl", "delivery.json"} <= {path.name for path in run.iterdir()}
    assert (run / "logs" / "rank_0.log").exists() and (run / "logs" / "rank_2.log").exists()
    assert (run / "figures" / "breakdown.csv").exists()
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("gnnexp").experiment_id])
    assert found.info.status == "FINISHED" and found.data.tags["paradigm"] == "data_parallel"
    assert len(client.get_metric_history(found.info.run_id, "time/epoch_s")) == 8
    paths = {item.path for item in client.list_artifacts(found.info.run_id)}
    assert {"config.yaml", "result.json", "logs", "figures"} <= paths
    assert run_command(["report", "runs/one", "--csv", "--out", "table"]) == 0
    assert (workplace / "table" / "table.csv").read_text().count("\n") == 2
    capsys.readouterr()
    assert run_command(["report", "--sync"]) == 0
    assert "0 runs delivered" in capsys.readouterr().out


# --- killed at random ------------------------------------------------------------------------------------------------
SYSTEMS = sorted(
    file.stem for file in (product_folder("conf") / "system").glob("*.yaml") if not file.stem.endswith("_small")
)
_CURVES: dict[str, list[list[float]]] = {}


def configured(system: str) -> list[str]:
    ranks = 1 if "full_graph" in system else 2
    return [
        f"system={system}",
        *fitting(system, SMALL),
        f"hardware.workers={ranks}",
        "train.epochs=30",
        "train.eval_every=3",
    ]


def undisturbed(system: str, folder: Path) -> list[list[float]]:
    if system not in _CURVES:
        run_dir = str(folder / f"undisturbed-{system}")
        assert run_command(["run", f"hydra.run.dir={run_dir}", *configured(system)]) == 0
        _CURVES[system] = curve(run_dir)
    return _CURVES[system]


def leftovers(run_dir: Path) -> list[Path]:
    return [path for path in run_dir.rglob("*") if path.name.endswith(".tmp")]


def kill_one(generator: random.Random, process: subprocess.Popen[str], run_dir: str) -> bool:
    """A random rank, at a random moment after it trains; False if all had ended before."""
    until_epoch(process, run_dir, generator.randrange(0, 12) + 1)
    time.sleep(generator.random() * 0.3)
    ranks = workers(run_dir)
    if ranks:
        ranks[generator.choice(sorted(ranks))].kill()
    return bool(ranks)


def storm(system: str, seed: int, place: Path) -> None:
    expected = undisturbed(system, place.parent)
    generator, run_dir = random.Random(seed), f"run-{seed}"
    process = start("run", f"hydra.run.dir={run_dir}", *configured(system))
    killed, since = kill_one(generator, process, run_dir), time.monotonic()
    output = finish(process)
    assert time.monotonic() - since < 20
    assert killed or process.returncode == 0, output
    if process.returncode != 0:
        assert process.returncode == 1 and "Traceback" not in output, output
        assert result(run_dir)["status"] == "failed" and not workers(run_dir)
        json.loads((Path(run_dir) / "result.json").read_text())
        assert run_command(["resume", run_dir]) == 0
    assert curve(run_dir) == expected
    assert not leftovers(Path(run_dir)) and not workers(run_dir)
    assert not [item for item in (Path(run_dir) / "checkpoints").iterdir() if item.name.startswith(".")]


@pytest.mark.slow
@pytest.mark.parametrize("system", ["p3"])
def test_a_rank_killed_at_random_costs_nothing_but_time(place, system):
    storm(system, 0, place)


# Every fourth system with one seed, all with two every night; `make torture` draws more.
DRAWN = [
    pytest.param(system, seed, marks=pytest.mark.nightly if number % 8 else pytest.mark.slow)
    for number, (system, seed) in enumerate(product(SYSTEMS, (1, 2)))
]


@pytest.mark.parametrize(("system", "seed"), DRAWN)
def test_many_ranks_killed_at_random(place, system, seed):
    storm(system, seed, place)
