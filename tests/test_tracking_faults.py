"""The store of records is killed, locked or full while a run trains: training goes on, records arrive later, once."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import curve, place, start
from full_disk import small_disk

__all__ = ["place"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SMALL = [
    "model.hidden=16",
    "model.layers=1",
    "sampler.fanouts=[4]",
    "hardware.threads=1",
    "hardware.workers=2",
    "train.epochs=200",
    "train.eval_every=0",
    "hydra.run.dir=run",
]


def until_epoch(process: subprocess.Popen[str], number: int) -> None:
    while len(curve("run")) < number:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)


def check_delivered(uri: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("gnnexp").experiment_id])
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "loss/train")
    assert [metric.step for metric in sorted(history, key=lambda metric: metric.step)] == list(range(200))
    assert {item.path for item in client.list_artifacts(run.info.run_id)} >= {"config.yaml", "result.json", "logs"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(place: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    variables = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
        "--backend-store-uri",
        f"sqlite:///{place / 'server.db'}",
        "--artifacts-destination",
        str(place / "artifacts"),
    ]
    with (place / "server.log").open("ab") as log:
        process = subprocess.Popen(command, env=variables, stdout=log, stderr=log, start_new_session=True)
    try:
        end = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).read()
                break
            except OSError:
                assert time.monotonic() < end and process.poll() is None, (place / "server.log").read_text()
                time.sleep(0.2)
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.interpreter
def test_a_server_that_dies_and_comes_back(place):
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    with server(place, port):
        process = start("run", *SMALL, f"tracker.uri={uri}")
        until_epoch(process, 20)
    until_epoch(process, 60)  # training does not notice
    with server(place, port):
        output, _ = process.communicate(timeout=200)
        assert process.returncode == 0, output
        subprocess.run([sys.executable, "-m", "gnnexp", "report", "--sync", "run"], check=True, timeout=100)
        check_delivered(uri)


@pytest.mark.interpreter
def test_what_is_delivered_later_prints_no_lines_of_mlflow(place):
    port = free_port()
    process = start("run", *SMALL, "train.epochs=2", f"tracker.uri=http://127.0.0.1:{port}", "tracker.timeout_s=2")
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0 and "tracking is away" in output
    with server(place, port):
        command = [sys.executable, "-m", "gnnexp", "report", "--sync", "run"]
        synced = subprocess.run(command, check=True, timeout=100, capture_output=True, text=True)
    assert "delivered" in synced.stdout and "View" not in synced.stdout + synced.stderr, synced


def test_a_database_that_another_process_holds(place):
    uri = f"sqlite:///{place / 'mlflow.db'}"
    other = ["train.epochs=1", "hydra.run.dir=first", "tracker.experiment=other"]
    first = start("run", *SMALL, f"tracker.uri={uri}", *other)
    assert first.wait(120) == 0
    holder = sqlite3.connect(place / "mlflow.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    process = start("run", *SMALL, f"tracker.uri={uri}", "tracker.timeout_s=5")
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0 and "tracking is away" in output, output
    assert json.loads(Path("run/result.json").read_text())["status"] == "finished"
    holder.execute("ROLLBACK")
    holder.close()
    subprocess.run([sys.executable, "-m", "gnnexp", "report", "--sync", "run"], check=True, timeout=100)
    subprocess.run([sys.executable, "-m", "gnnexp", "report", "--sync", "run"], check=True, timeout=100)
    check_delivered(uri)


def test_an_artifact_store_that_is_full(place):
    uri = f"sqlite:///{place / 'mlflow.db'}"
    with small_disk(place / "mlartifacts" / "gnnexp", "16k"):
        process = start("run", *SMALL, f"tracker.uri={uri}")
        output, _ = process.communicate(timeout=200)
        assert process.returncode == 0 and "tracking is away" in output and "No space left" in output, output
    subprocess.run([sys.executable, "-m", "gnnexp", "report", "--sync", "run"], check=True, timeout=100)
    check_delivered(uri)
