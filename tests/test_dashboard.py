"""A real `gnnexp ui`: a client, a browser's steps and another user of the machine, with and without the secret."""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from other_user import NOBODY, acting_as, needs_root

pytestmark = [pytest.mark.slow, pytest.mark.interpreter, pytest.mark.timeout(180)]
_CLIENT = """
import os, sys
from mlflow import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
run = client.create_run(client.create_experiment("from a notebook")).info
client.log_metric(run.run_id, "loss", 0.5)
open("note.txt", "w").write("a file")
client.log_artifact(run.run_id, "note.txt")
print(client.get_run(run.run_id).data.metrics, [one.path for one in client.list_artifacts(run.run_id)])
"""


class Dashboard(NamedTuple):
    address: str
    opened: str
    secret: str
    folder: Path


@pytest.fixture(scope="module")
def dashboard(
    tmp_path_factory: pytest.TempPathFactory, mlflow_store: Callable[[Path], str]
) -> Iterator[Dashboard]:
    folder = tmp_path_factory.mktemp("dashboard")
    mlflow_store(folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW")}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen([sys.executable, "-m", "gnnexp", "ui", "--port", str(port)], cwd=folder,
                                  env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(address, server)
        opened = re.findall(r"http://\S+", (folder / "log").read_text())[0]
        yield Dashboard(address, opened, (folder / ".gnnexp" / "ui.secret").read_text(), folder)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)


def _wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    while server.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5)
        except urllib.error.HTTPError:
            return
        except OSError:
            continue
    raise AssertionError("the server ended")


def status(address: str, *, secret: str = "", body: object = None) -> int:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {secret}"} if secret else {})
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(address, data, headers), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_client_with_the_secret_works_and_one_without_is_refused(dashboard: Dashboard, tmp_path: Path) -> None:
    for secret, code, said in ((dashboard.secret, 0, "{'loss': 0.5} ['note.txt']"), ("wrong", 1, "401")):
        environment = {**os.environ, "MLFLOW_TRACKING_TOKEN": secret, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
        done = subprocess.run([sys.executable, "-c", _CLIENT, dashboard.address], cwd=tmp_path, env=environment,
                              text=True, capture_output=True, check=False)
        assert done.returncode == code and said in done.stdout + done.stderr, done.stderr


def test_a_browser_opens_the_printed_address_once_and_then_has_a_cookie(dashboard: Dashboard) -> None:
    cookies = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
    with browser.open(dashboard.opened) as page:
        assert page.status == 200 and "secret" not in page.url and b"<html" in page.read().lower()
    assert [cookie.has_nonstandard_attr("HttpOnly") for cookie in cookies] == [True]
    with browser.open(f"{dashboard.address}/ajax-api/2.0/mlflow/experiments/search?max_results=5") as answer:
        assert json.loads(answer.read())["experiments"]


def test_a_client_with_the_secret_chooses_no_place_outside(dashboard: Dashboard) -> None:
    create = f"{dashboard.address}/api/2.0/mlflow/experiments/create"
    assert status(create, secret=dashboard.secret, body={"name": "out", "artifact_location": "file:///etc"}) == 403
    assert status(create, secret=dashboard.secret, body={"name": "in"}) == 200


@needs_root
def test_another_user_gets_nothing(dashboard: Dashboard) -> None:
    with acting_as(NOBODY):
        for path in ("/", "/health", "/api/2.0/mlflow/experiments/search?max_results=5", "/version"):
            assert status(dashboard.address + path) == 401
        assert status(f"{dashboard.address}/api/2.0/mlflow/experiments/create", body={"name": "theirs"}) == 401
        with pytest.raises(PermissionError):
            (dashboard.folder / ".gnnexp" / "ui.secret").read_text()


def test_no_log_has_the_secret(dashboard: Dashboard) -> None:
    status(f"{dashboard.address}/?secret={dashboard.secret}")
    printed = (dashboard.folder / "log").read_text()
    lines = [line for line in printed.splitlines() if dashboard.secret in line]
    assert len(lines) == 2 and all(line.strip().startswith(("dashboard:", "charts:")) for line in lines), lines
