"""The same experiment on SLURM (2 nodes x 2 tasks) and on this machine; time limits, cancelling, deaths."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from command_line import curve, fitting, place, start

from gnnexp.config.folders import product_folder
from gnnexp.record.attempts import read_attempts

__all__ = ["place"]

pytestmark = [pytest.mark.slurm, pytest.mark.interpreter, pytest.mark.timeout(600)]

SYSTEMS = sorted(file.stem for file in (product_folder("conf") / "system").glob("*.yaml"))
QUICK = {"dgl", "fastsample", "p3", "gsplit"}
SMALL = ["model.hidden=16", "train.batch_size=256", "train.batch_of=run", "hardware.threads=1"]
LOCAL = ["hardware=local", "hardware.workers=4"]
SLURM = [
    "hardware=slurm_cpu",
    "hardware.nodes=2",
    "hardware.workers=2",
    "hardware.launcher.time_min=10",
    "hardware.launcher.signal_delay_s=20",
]


def run(run_dir: str, *overrides: str, tracker: str = "none") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gnnexp", "run", f"hydra.run.dir={run_dir}", f"tracker={tracker}", *overrides]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def until(holds: Callable[[], Any], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def job_id(run_dir: str) -> str:
    return str(json.loads((Path(run_dir) / "slurm.json").read_text())["job_id"])


def needs_one_worker(system: str) -> bool:
    return system == "dgl_full_graph"


@pytest.mark.parametrize(
    "system", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SYSTEMS]
)
def test_a_system_has_the_same_losses_as_on_this_machine(cluster, place, system):
    if needs_one_worker(system):
        pytest.skip("it runs on one worker")
    shared = [f"system={system}", *fitting(system, SMALL), "train.epochs=2", "train.eval_every=0"]
    if system == "neutronstar":  # it asks what the machine costs
        shared += ["hardware.flops=7e10", "hardware.gather=1.4e10", "hardware.links.network=1.5e9"]
    here, there = run("here", *shared, *LOCAL), run("there", *shared, *SLURM)
    assert here.returncode == 0, here.stdout + here.stderr
    assert there.returncode == 0, there.stdout + there.stderr
    assert curve("there") == curve("here")
    assert len(curve("there")) == 2


EPOCHS = 60
LONG = ["system=dgl", *SMALL, f"train.epochs={EPOCHS}", "train.eval_every=20"]
# Long enough on any machine to be caught in the middle: an epoch takes at least 0.2 s, and its results are the same.
CAUGHT = [*LONG, *SLURM, "hardware.throttle=4e5"]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[list[float]]:
    folder = tmp_path_factory.mktemp("expected")
    done = run(str(folder / "run"), *LONG, *LOCAL)
    assert done.returncode == 0, done.stderr
    return curve(str(folder / "run"))


def test_at_the_end_of_its_time_a_job_goes_back_into_the_queue(cluster, place, expected):
    going = start("run", "hydra.run.dir=run", *CAUGHT)
    until(lambda: len(curve("run")) > 12)
    subprocess.run(["scancel", "--signal=USR2", job_id("run")], check=True)
    output, _ = going.communicate(timeout=200)
    assert going.returncode == 0, output
    assert curve("run") == expected
    causes = [line.get("cause") for line in read_attempts(Path("run")) if line["event"] == "requeue"]
    assert causes == ["time"]
    client = _mlflow(place)
    (found,) = client.search_runs([client.get_experiment_by_name("gnnexp").experiment_id])
    steps = [metric.step for metric in client.get_metric_history(found.info.run_id, "loss/train")]
    assert steps == list(range(EPOCHS)) and found.info.status == "FINISHED"


@pytest.mark.slow
def test_a_job_that_slurm_puts_back_goes_on(cluster, place, expected):
    """As preemption does with PreemptMode=REQUEUE: the ranks hear SIGTERM, or nothing, and the job starts again."""
    going = start("run", "hydra.run.dir=run", "tracker=none", *CAUGHT)
    until(lambda: len(curve("run")) > 12)
    subprocess.run(["scontrol", "requeue", job_id("run")], check=True)
    output, _ = going.communicate(timeout=200)
    assert going.returncode == 0, output
    assert curve("run") == expected


def _mlflow(place: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{place / 'mlflow.db'}")


def worker_of(rank: int, run_dir: str) -> int:
    path = str(Path(run_dir).resolve())
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "gnnexp.worker" in command and path in command and process.environ().get("RANK") == str(rank):
            return process.pid
    raise AssertionError(f"rank {rank} is not there")


def test_a_killed_rank_ends_the_job_and_a_restart_goes_on(cluster, place, expected):
    going = start("run", "hydra.run.dir=run", "tracker=none", "hardware.max_restarts=1", *CAUGHT)
    until(lambda: len(curve("run")) > 12)
    os.kill(worker_of(3, "run"), signal.SIGKILL)
    output, _ = going.communicate(timeout=200)
    assert going.returncode == 0, output
    assert curve("run") == expected
    (line,) = [line for line in read_attempts(Path("run")) if line["event"] == "requeue"]
    assert line["cause"] == "failure" and "rank 3 on n2" in line["reason"]


def test_a_killed_rank_is_named_where_there_is_no_restart(cluster, place):
    going = start("run", "hydra.run.dir=run", "tracker=none", *CAUGHT)
    until(lambda: len(curve("run")) > 5)
    os.kill(worker_of(1, "run"), signal.SIGKILL)
    began = time.monotonic()
    output, _ = going.communicate(timeout=60)
    assert time.monotonic() - began < 20 and going.returncode == 1
    assert "rank 1 on n1" in output
    result = json.loads(Path("run/result.json").read_text())
    assert (result["status"], result["kind"]) == ("failed", "killed") and len(result["epochs"]) > 5
    assert "Traceback" not in output


def test_detached_status_cancel_and_resume(cluster, place, expected):
    # Slower than where one command follows: three are started here, and the last has to find the run going.
    slower = "hardware.throttle=8e4"
    done = run("run", "hardware.detach=true", *LONG, *SLURM, slower)
    assert done.returncode == 0 and "gnnexp status" in done.stdout, done.stdout + done.stderr
    until(lambda: len(curve("run")) > 12)
    twice = start("resume", "run")
    assert "works on it" in twice.communicate(timeout=60)[0] and twice.returncode == 2
    status = start("status", "run").communicate(timeout=60)[0]
    assert "RUNNING" in status and "n2" in status
    assert start("cancel", "run").wait(60) == 0
    until(lambda: not subprocess.run(["squeue", "-h", "-j", job_id("run")], capture_output=True, check=False).stdout)
    status = start("status", "run").communicate(timeout=60)[0]
    assert "failed: the ranks were stopped" in status
    assert len(curve("run")) < EPOCHS
    resumed = start("resume", "run", "hardware.detach=false", "hardware.throttle=null")
    output, _ = resumed.communicate(timeout=200)
    assert resumed.returncode == 0, output
    assert curve("run") == expected


@pytest.mark.slow
@pytest.mark.parametrize("node", [1, 2])
def test_the_death_of_a_node_costs_what_was_done_since_the_last_checkpoint(cluster, place, expected, node):
    """On n1 the job's script dies too, and SLURM itself puts the job back; on n2 the script does."""
    going = start("run", "hydra.run.dir=run", "tracker=none", "hardware.max_restarts=1", *CAUGHT)
    until(lambda: len(curve("run")) > 12)
    cluster.kill_node(node)
    try:
        until(lambda: "DOWN" in cluster.state_of(node), 60)
    finally:
        cluster.start_node(node)
    output, _ = going.communicate(timeout=300)
    assert going.returncode == 0, output
    assert curve("run") == expected


def test_a_run_ends_well_while_the_controller_is_frozen(cluster, place, expected):
    """Nobody answers from the middle of the run to its end: the launcher reports the result all the same."""
    going = start("run", "hydra.run.dir=run", "tracker=none", *CAUGHT)
    until(lambda: len(curve("run")) > 12)
    cluster.signal_controller(signal.SIGSTOP)
    try:
        refused = start("resume", "run").communicate(timeout=120)[0]
        output, _ = going.communicate(timeout=200)
    finally:
        cluster.signal_controller(signal.SIGCONT)
    assert going.returncode == 0, output
    assert curve("run") == expected
    # The job's own last words may prove its end before squeue gives up; then nobody says what the cluster has.
    said = ("unknown (squeue: ", "has finished before", "the cluster does not answer")
    assert any(words in refused for words in said), refused
    until(lambda: not subprocess.run(["squeue", "-h"], capture_output=True, check=False).stdout)


@pytest.mark.slow  # CI has the frozen controller, whose silence is the same to a run
def test_a_run_survives_the_death_of_the_controller(cluster, place, expected):
    # Slower than where one command follows: three are started here, and all have to find the run going.
    slower = "hardware.throttle=4e4"
    going = start("run", "hydra.run.dir=run", "tracker=none", *CAUGHT, slower)
    until(lambda: len(curve("run")) > 5)
    cluster.signal_controller(signal.SIGKILL)
    try:
        commands = {name: start(name, "run") for name in ("resume", "status", "cancel")}
        said = {name: command.communicate(timeout=120)[0] for name, command in commands.items()}
        codes = {name: command.returncode for name, command in commands.items()}
        assert codes == {"resume": 2, "status": 0, "cancel": 2}, said
        assert all("unknown (squeue: " in words and "Unable to contact" in words for words in said.values()), said
        assert "running" in said["status"] and "was not cancelled" in said["cancel"]
        before = len(curve("run"))
        until(lambda: len(curve("run")) > before)
        assert going.poll() is None and not Path("run/result.json").exists()
    finally:
        cluster.start_controller()
    output, _ = going.communicate(timeout=200)
    assert going.returncode == 0, output
    assert curve("run") == expected
    # SLURM is asked every 15 s: an outage between two questions is not noticed.
    assert output.count("SLURM does not answer (squeue: ") == output.count("SLURM answers again") <= 1, output
    events = [line["event"] for line in read_attempts(Path("run"))]
    assert events == ["start", "ranks", "job over", "end"], "one start, one end"


def test_a_job_whose_run_was_resumed_without_it_leaves_the_run(cluster, place):
    """It waited in the queue, its user said that it has ended, and then it starts."""
    held = "+hardware.launcher.parameters.hold=true"
    done = run("run", "hardware.detach=true", *LONG, "train.epochs=3", *SLURM, held)
    assert done.returncode == 0, done.stdout + done.stderr
    held, note = job_id("run"), Path("run/slurm.json").read_text()
    Path("run/slurm.json").unlink()
    resumed = start("resume", "run", "hardware.detach=false", "hardware.launcher.parameters={}")
    output, _ = resumed.communicate(timeout=200)
    assert resumed.returncode == 0 and len(curve("run")) == 3, output
    assert note != Path("run/slurm.json").read_text()
    before = {str(path): path.read_bytes() for path in Path("run").rglob("*.json*")}
    subprocess.run(["scontrol", "release", held], check=True)
    until(lambda: not subprocess.run(["squeue", "-h"], capture_output=True, check=False).stdout)
    assert {str(path): path.read_bytes() for path in Path("run").rglob("*.json*")} == before
    assert "this job no longer works on" in Path(f"run/slurm/{held}_0_log.err").read_text()


def test_a_job_prepares_the_data_and_the_ranks_wait_for_it(cluster, place, monkeypatch):
    shared = ["system=dgl", *SMALL, "train.epochs=2", "train.eval_every=0"]
    monkeypatch.setenv("GNNEXP_CACHE", str(place / "cache"))
    there = run("there", *shared, *SLURM, "hardware.launcher.prepare=job")
    assert there.returncode == 0, there.stdout + there.stderr
    assert "a job prepares its data" in there.stdout
    here = run("here", *shared, *LOCAL)
    assert here.returncode == 0 and curve("there") == curve("here"), here.stderr


def test_data_that_a_job_cannot_prepare_ends_the_job_that_waits_for_it(cluster, place):
    done = run("run", "system=dgl", *SMALL, *SLURM, "hardware.launcher.prepare=job", "hardware.launcher.mem_gb=0.05")
    assert done.returncode != 0 and json.loads(Path("run/result.json").read_text())["status"] == "failed"
    assert "the data could not be prepared" in done.stderr or "before its data was prepared" in done.stderr
    until(lambda: not subprocess.run(["squeue", "-h"], capture_output=True, check=False).stdout)


def test_what_the_cluster_does_not_have_is_said_at_once(cluster, place):
    wrong = [
        "hardware=slurm_cpu",
        "hardware.nodes=9",
        "hardware.workers=4",
        "hardware.launcher.time_min=500",
        "hardware.launcher.mem_gb=900",
        "hardware.launcher.gpus_per_task=2",
    ]
    done = run("run", *wrong)
    assert done.returncode == 2
    for key in ("hardware.nodes=9", "cpus_per_task=1", "time_min=500", "mem_gb=900", "gpus_per_task=2"):
        assert key in done.stderr, done.stderr
    unknown = run("run", "hardware=slurm_cpu", "hardware.launcher.partition=debgu")
    assert unknown.returncode == 2 and "hardware.launcher.partition=debug" in unknown.stderr
    assert not Path("run").exists()


def test_a_sweep_is_a_job_array_and_goes_on(cluster, place):
    cases = [{"overrides": ["seed=0"]}, {"overrides": ["seed=1", "optimizer.lr=1e300"]}, {"overrides": ["seed=2"]}]
    fixed = [
        "system=dgl",
        *SMALL,
        "train.epochs=2",
        "train.eval_every=0",
        "tracker=none",
        "hardware=slurm_cpu",
        "hardware.nodes=1",
        "hardware.workers=2",
    ]
    Path("array.yaml").write_text(json.dumps({"description": "an array", "fixed": fixed, "cases": cases}))

    def jobs() -> list[str]:
        return sorted(job_id(str(path)) for path in place.glob("runs/array/*"))

    detached = start("sweep", "array.yaml", "hardware.detach=true")
    assert "3 submitted" in detached.communicate(timeout=100)[0] and detached.returncode == 0
    submitted = jobs()
    assert len(submitted) == 3 and len({job.partition("_")[0] for job in submitted}) == 1, "one array of three jobs"
    subprocess.run(["scontrol", "hold", submitted[2]], check=False, capture_output=True)
    twice = start("sweep", "array.yaml", "hardware.detach=true").communicate(timeout=100)[0]
    subprocess.run(["scontrol", "release", submitted[2]], check=False, capture_output=True)
    assert "running elsewhere" in twice and submitted[2] in jobs(), "no run has two jobs"
    until(lambda: not subprocess.run(["squeue", "-h"], capture_output=True, check=False).stdout, 300)
    last = start("sweep", "array.yaml")
    output = last.communicate(timeout=300)[0]
    assert last.returncode == 1 and "2 finished before" in output and "1 failed" in output, output
    results = [json.loads(path.read_text()) for path in place.glob("runs/array/*/result.json")]
    assert sorted(result["status"] for result in results) == ["failed", "finished", "finished"]
    assert "diverged" in {result.get("kind") for result in results}


def test_a_tuning_waits_for_its_arrays_and_goes_on_after_ctrl_c(cluster, place):
    fixed = [
        "dataset=digits",
        *SMALL,
        "train.epochs=2",
        "tracker=none",
        "hardware=slurm_cpu",
        "hardware.nodes=1",
        "hardware.workers=2",
    ]
    tune = {"distributions": {"optimizer.lr": {"low": 0.001, "high": 0.1}}, "trials": 3, "batch": 2}
    Path("mine.yaml").write_text(json.dumps({"fixed": fixed, "axes": {"system": ["gsplit"]}, "tune": tune}))

    def jobs() -> list[str]:
        return sorted(job_id(str(path.parent)) for path in place.glob("runs/mine/*/slurm.json"))

    going = start("tune", "mine.yaml")
    until(lambda: len(jobs()) == 3 and "None" not in jobs(), 300)
    going.send_signal(signal.SIGINT)
    output = going.communicate(timeout=100)[0]
    assert going.returncode == 130 and "2 finished, 1 interrupted" in output, output
    assert len({job.partition("_")[0] for job in jobs()}) == 2, "an array of two trials, and a trial that knows both"
    again = start("tune", "mine.yaml")
    output = again.communicate(timeout=300)[0]
    assert again.returncode == 0 and "2 finished before, 1 finished" in output, output
    assert Path("conf/train/tuned_gsplit_digits.yaml").exists() and len(jobs()) == 3


def test_a_multirun_is_a_job_array_and_skips(cluster, place):
    words = [
        "run",
        "-m",
        "system=dgl",
        *SMALL,
        "train.epochs=2",
        "train.eval_every=0",
        "tracker=none",
        *SLURM,
        "hardware.nodes=1",
        "seed=0,1",
        "hydra.sweep.dir=jobs",
    ]
    first = start(*words)
    output = first.communicate(timeout=300)[0]
    assert first.returncode == 0 and "2 finished" in output, output
    jobs = sorted(job_id(str(path)) for path in place.glob("jobs/[01]"))
    assert len(jobs) == 2 and len({job.partition("_")[0] for job in jobs}) == 1, "one array of two jobs"
    again = start(*words).communicate(timeout=100)[0]
    assert "2 runs, 2 finished before" in again, again
