"""A real `gnnexp ui`: a client, a browser's steps and another user of the machine, with and without the secret."""

from __future__ import annotations

import http.cookiejar
import http.server
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from browser import Chromium, needs_chromium
from other_user import NOBODY, acting_as, needs_root
from site_pages import fences

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
def dashboard(tmp_path_factory: pytest.TempPathFactory, mlflow_store: Callable[[Path], str]) -> Iterator[Dashboard]:
    folder = tmp_path_factory.mktemp("dashboard")
    mlflow_store(folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW")}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "gnnexp", "ui", "--port", str(port)],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
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
        done = subprocess.run(
            [sys.executable, "-c", _CLIENT, dashboard.address],
            cwd=tmp_path,
            env=environment,
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == code and said in done.stdout + done.stderr, done.stderr


def test_a_browser_opens_the_printed_address_once_and_then_has_a_cookie(dashboard: Dashboard) -> None:
    cookies = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
    with browser.open(dashboard.opened) as page:  # a script goes on to the address without the secret
        assert page.status == 200 and b"location.replace(rest)" in page.read()
    with browser.open(dashboard.address) as page:
        assert page.status == 200 and b"<html" in page.read().lower()
    assert [cookie.has_nonstandard_attr("HttpOnly") for cookie in cookies] == [True]
    with browser.open(f"{dashboard.address}/ajax-api/2.0/mlflow/experiments/search?max_results=5") as answer:
        assert json.loads(answer.read())["experiments"]


# --- a notebook -------------------------------------------------------------------------------------------------------
@pytest.fixture
def kernel(dashboard: Dashboard, tmp_path: Path) -> Iterator[Callable[[str], tuple[str, str]]]:
    """Executes a cell of a notebook in the dashboard's folder: its status, and what it printed or raised."""
    pytest.importorskip("ipykernel", reason="ipykernel is not installed (make for-tests)")
    from jupyter_client.manager import start_new_kernel

    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW")}
    environment |= {"GNNEXP_CACHE": str(tmp_path / "cache"), "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    manager, client = start_new_kernel(cwd=str(dashboard.folder), env=environment)

    def execute(cell: str) -> tuple[str, str]:
        said: list[str] = []
        reply = client.execute_interactive(
            cell,
            timeout=150,
            output_hook=lambda message: said.append(
                str(message["content"].get("text", "")) + str(message["content"].get("evalue", ""))
            ),
        )
        return reply["content"]["status"], "".join(said)

    try:
        yield execute
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_the_cell_of_the_page_trains_into_the_dashboard(
    dashboard: Dashboard, kernel: Callable[[str], tuple[str, str]]
) -> None:
    page = Path("docs/dashboard.md")
    (cell,) = (fence.code for fence in fences(page) if fence.language == "python")
    assert kernel(cell.replace("http://127.0.0.1:5000", dashboard.address))[0] == "ok"
    assert kernel("print(run.status)") == ("ok", "finished\n")
    found = kernel(
        "from mlflow import MlflowClient\n"
        f"client = MlflowClient('{dashboard.address}')\n"
        "experiment = client.get_experiment_by_name('gnnexp').experiment_id\n"
        "print([one.data.tags['status'] for one in client.search_runs([experiment])\n"
        "       if one.data.tags.get('dataset') == 'digits'])"
    )
    assert found[0] == "ok" and "['finished']\n" in found[1], found


def test_a_notebook_without_the_secret_is_told(dashboard: Dashboard, kernel: Callable[[str], tuple[str, str]]) -> None:
    """A run does not end because its tracker refuses; nothing else is silent."""
    code, said = kernel(
        f"import gnnexp\ngnnexp.run('dataset=digits', 'train.epochs=1', 'tracker.uri={dashboard.address}').status"
    )
    assert code == "ok" and "tracking is away" in said and "report --sync" in said, said
    code, said = kernel(f"from mlflow import MlflowClient\nMlflowClient('{dashboard.address}').search_experiments()")
    assert code == "error" and "401" in said, said


# --- a browser --------------------------------------------------------------------------------------------------------
@pytest.fixture
def browsers(tmp_path: Path) -> Iterator[Callable[[], Chromium]]:
    """Makes browsers, each with a profile of its own."""
    with ExitStack() as kept:
        yield lambda: kept.enter_context(closing(Chromium(tmp_path / secrets.token_hex(4))))


@needs_chromium
def test_chromium_shows_the_runs_and_keeps_no_secret_in_its_address(
    dashboard: Dashboard, browsers: Callable[[], Chromium]
) -> None:
    name = made_run(dashboard, "seen in a browser")
    browser = browsers()
    browser.open(dashboard.opened)
    browser.wait_for(f"document.body.innerText.includes('{name}')")
    assert browser.run("location.href").startswith(f"{dashboard.address}/#/experiments/")
    assert dashboard.secret not in browser.run("location.href + document.cookie + document.referrer")
    assert dashboard.secret not in browser.run("JSON.stringify(localStorage) + JSON.stringify(sessionStorage)")
    browser.open(f"{dashboard.address}/#/experiments")
    browser.open("about:blank")
    browser.open(f"{dashboard.address}/#/experiments")
    browser.wait_for("document.body.innerText.includes('Default')")
    assert [address for address in browser.requests if dashboard.secret in address] == [
        dashboard.opened.partition("#")[0]
    ]
    elsewhere = [
        address
        for address in browser.requests
        if not address.startswith((f"{dashboard.address}/", "data:", "blob:", "about:"))
    ]
    assert len(browser.requests) > 10 and elsewhere == []


@needs_chromium
def test_a_browser_sends_the_cookie_to_other_ports(dashboard: Dashboard, browsers: Callable[[], Chromium]) -> None:
    """It is why SECURITY.md says to open no unknown address of the machine."""
    cookies: list[str] = []

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"other")

    browser = browsers()
    browser.open(dashboard.opened)
    browser.wait_for("location.href.includes('#/experiments')")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        browser.open(f"http://127.0.0.1:{other.server_port}")
        browser.wait_for("document.body.innerText.includes('other')")
        other.shutdown()
    assert dashboard.secret in cookies[0]


def test_it_listens_on_the_loopback_only_and_does_not_encrypt(dashboard: Dashboard) -> None:
    port = int(dashboard.address.rpartition(":")[2])
    assert {
        one.laddr.ip
        for one in psutil.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN and one.laddr.port == port
    } == {"127.0.0.1"}
    with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
        plain.sendall(f"GET /version HTTP/1.0\r\nAuthorization: Bearer {dashboard.secret}\r\n\r\n".encode())
        assert plain.recv(1 << 16).startswith(b"HTTP/1.1 200")


@needs_chromium
def test_chromium_without_the_secret_shows_the_refusal(dashboard: Dashboard, browsers: Callable[[], Chromium]) -> None:
    name = made_run(dashboard, "not seen")
    browser = browsers()
    browser.open(dashboard.opened.replace(dashboard.secret, "x" * len(dashboard.secret)))
    browser.wait_for("document.body.innerText.includes('this dashboard needs its secret')")
    browser.open(dashboard.address)
    browser.wait_for("document.body.innerText.includes('this dashboard needs its secret')")
    assert name not in browser.run("document.documentElement.outerHTML")
    assert browser.run("document.scripts.length + document.links.length + document.images.length") == 0
    assert {address.partition("?")[0] for address in browser.requests} <= {
        f"{dashboard.address}/",
        f"{dashboard.address}/favicon.ico",
    }


def made_run(dashboard: Dashboard, name: str) -> str:
    """Makes a run in the experiment that the printed address opens."""
    experiment = re.findall(r"/experiments/(\d+)", dashboard.opened)[0]
    body = {
        "experiment_id": experiment,
        "run_name": name,
        "start_time": 1_700_000_000_000,
        "tags": [{"key": "kind", "value": "run"}],
    }
    assert status(f"{dashboard.address}/api/2.0/mlflow/runs/create", secret=dashboard.secret, body=body) == 200
    return name


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
