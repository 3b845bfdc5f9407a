"""`gnnexp ui`: MLflow's dashboard on 127.0.0.1, with as few processes as it can do with."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from gnnexp.config.build import missing_module
from gnnexp.config.compose import compose
from gnnexp.errors import ConfigError

# slurm/README.md: up in 4 s with 2 processes and 0.4 GB; its defaults take 8 s, 15 processes and 2.4 GB.
_LEAN = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}


def main(options: argparse.Namespace) -> int:
    """Become the server: Ctrl-C ends it."""
    if find_spec("mlflow") is None:
        raise ConfigError(missing_module("gnnexp ui", "mlflow", ModuleNotFoundError(name="mlflow")))
    from gnnexp.trackers.mlflow import MlflowTracker

    node = compose([]).config["tracker"]
    uri = MlflowTracker(uri=node.get("uri")).uri
    if not uri.startswith("http"):
        _become_server(uri, options.port)
    print(f"the runs are on a server: open {uri}")
    return 0


def _become_server(uri: str, port: int) -> NoReturn:
    address = f"http://127.0.0.1:{port}"
    print(f"dashboard: {address}/?workflowType=machine_learning#/experiments   (Ctrl-C ends it)", flush=True)
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", uri, "--artifacts-destination", str(Path("mlartifacts").resolve()),
    ]
    os.execve(sys.executable, command, {**os.environ, **_LEAN})
