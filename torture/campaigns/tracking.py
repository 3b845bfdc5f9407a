"""A tracking server that is away, slow, or answers nonsense: the run is unharmed, and delivered once, later."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

from torture import checks
from torture.setups import random_setup
from torture.storm import DELIVERY_S, STORE, Command, Storm

TRACKER_S = 6
FAULTS = ("away", "slow", "error", "html", "json", "garbage", "huge", "loop", "lost", "drip")
_HUGE = 256 << 20
_SLOW_S, _SYNCS = 3 * TRACKER_S, 4


def run(storm: Storm) -> None:
    """One run whose deliveries meet faults; then the rest is delivered to the same server, which is well again."""
    setup = random_setup(storm.random)
    storm.undisturbed(setup)
    storm.put_store()
    fault, share = storm.random.choice(FAULTS), storm.random.choice([0.2, 0.5, 1.0])
    storm.history.append(f"{setup.name}: {fault} in {share:.0%} of the answers")
    storm.numbers[f"tracking_{fault}"] += 1
    (storm.folder / "fault.json").write_text(json.dumps([fault, share, storm.seed]))
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = serve(storm.folder, listening)
    listening.close()
    command = storm.start(
        "run",
        *setup.overrides,
        f"tracker.uri=http://127.0.0.1:{port}",
        f"tracker.timeout_s={TRACKER_S}",
        "hydra.run.dir=run",
    )
    code = storm.done(command)
    run_dir = storm.folder / "run"
    if code != 0:
        storm.problems.append(f"the run is harmed: exit {code}: {command.said()[-600:]}")
        end(server)
        return
    if not storm.delivered(run_dir) and "tracking is away" not in command.said():
        storm.problems.append(f"nothing is said of records that were not delivered: {command.said()[-600:]}")
    storm.numbers["tracking_not_delivered"] += not storm.delivered(run_dir)
    if storm.random.random() < 0.3 and storm.run("report", "--sync", "run").code not in (0, 1):
        storm.problems.append(f"report --sync: exit {storm.commands[-1].code}: {storm.commands[-1].said()[-500:]}")
    (storm.folder / "fault.json").write_text(json.dumps(["none", 0.0, 0]))
    synced = _synced(storm)
    if synced.code != 0 or not storm.delivered(run_dir):
        storm.problems.append(f"the server is well again, report --sync exits {synced.code}: {synced.said()[-500:]}")
    end(server)
    storm.expect_quiet(DELIVERY_S)
    storm.compare(run_dir, setup)
    storm.problems += checks.store_problems(storm.folder / STORE, [run_dir])


def _synced(storm: Storm) -> Command:
    """`report --sync`, again if an answer came late: other storms keep the cores busy, and a limit of time is kept."""
    for _ in range(_SYNCS):
        command = storm.run("report", "--sync", "run")
        if command.code == 0 or "timed out" not in command.said():
            break
        storm.numbers["tracking_late_answers"] += 1
    return command


def end(server: int) -> None:
    """End a server of `serve`."""
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)


def serve(folder: Path, listening: socket.socket) -> int:
    """Start MLflow's own server behind the faults, as a fork; its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        with (folder / "server.log").open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.environ.update(
            {
                "_MLFLOW_SERVER_FILE_STORE": f"sqlite:///{folder / STORE}",
                "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
                "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
                "_MLFLOW_SERVER_ARTIFACT_DESTINATION": str(folder / "artifacts"),
            }
        )
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(folder), bind_and_activate=False)
        server.socket.close()
        server.socket = listening
        server.serve_forever()
    finally:
        sys.stderr.flush()
        os._exit(1)


def _handler(folder: Path) -> type[BaseHTTPRequestHandler]:
    """A handler that passes requests on to MLflow, or answers with the fault that `fault.json` names."""
    from mlflow.server import app
    from werkzeug.test import Client

    client, drawn = Client(app), Random(folder.name)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:  # noqa: ANN401
            """Say nothing."""

        def answer(self) -> None:
            fault, share, _ = json.loads((folder / "fault.json").read_text())
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if drawn.random() >= share:
                self.pass_on(body)
                return
            if fault == "lost":  # done, but nobody hears of it
                client.open(self.path, method=self.command, data=body, headers=dict(self.headers))
            elif fault == "slow":
                time.sleep(_SLOW_S)
                self.pass_on(body)
                return
            elif fault != "away":
                spoil(self, fault, drawn)
            self.close_connection = True

        def pass_on(self, body: bytes) -> None:
            given = client.open(self.path, method=self.command, data=body, headers=dict(self.headers))
            self.plain(given.status_code, given.headers.get("Content-Type", "text/plain"), given.data)

        def plain(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815  names of http.server

    return Handler


def spoil(handler: Any, fault: str, drawn: Random) -> None:  # noqa: ANN401  the class is local to `_handler`
    """Answer with a fault; a client that has left is none of the server's business."""
    try:
        if fault == "error":
            handler.plain(drawn.choice([400, 404, 429, 500, 503]), "text/plain", b"broken" * drawn.randrange(2000))
        elif fault == "html":
            handler.plain(200, "text/html", b"<html><body>Please log in</body></html>")
        elif fault == "json":
            nonsense = [b"[]", b"null", b"17", b"{" * 100_000, b'"\xff"', b"NaN"]
            # MLflow answers {} to a request that writes, and its client reads nothing else. Any object
            # would be a lie that no client can see, and no nonsense.
            if "search" in handler.path or "get" in handler.path:
                nonsense += [b"{}", b'{"experiment": null}', b'{"runs": 5}', b'{"experiment": {"experiment_id": {}}}']
            handler.plain(200, "application/json", drawn.choice(nonsense))
        elif fault == "garbage":
            handler.wfile.write(drawn.randbytes(drawn.randrange(1, 5000)))
        elif fault == "huge":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
            for _ in range(_HUGE >> 20):
                handler.wfile.write(b"[" * (1 << 20))
        elif fault == "loop":
            handler.wfile.write(b"HTTP/1.1 302 Found\r\nLocation: " + handler.path.encode() + b"\r\n\r\n")
        elif fault == "drip":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n\r\n")
            for _ in range(9000):
                handler.wfile.write(b" ")
                time.sleep(0.5)
    except OSError:
        return
