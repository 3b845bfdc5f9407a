"""A request ends within its limit, also where the server answers byte by byte and the next byte is never late."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from run_folder import write_epochs, write_job, write_result

from gnnexp.trackers.base import TrackingError
from gnnexp.trackers.delivery import DELIVERY_FILE
from gnnexp.trackers.limited import TimeLimited
from gnnexp.trackers.mlflow import MlflowTracker

BYTES, PAUSE_S = 9000, 0.1


@pytest.fixture
def dripping() -> Iterator[str]:
    """The address of a server whose answers take a quarter of an hour, a byte every tenth of a second."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(BYTES))
            self.end_headers()
            try:
                for _ in range(BYTES):
                    self.wfile.write(b" ")
                    if over.wait(PAUSE_S):
                        return
            except OSError:  # the client has left
                return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    over.set()
    server.shutdown()
    server.server_close()


def test_a_server_that_answers_byte_by_byte_is_an_error(tmp_path: Path, dripping: str) -> None:
    run = tmp_path / "run"
    write_job(run)
    write_epochs(run, 1)
    write_result(run)
    with pytest.raises(TrackingError, match="get_experiment_by_name: no whole answer"):
        MlflowTracker(dripping, timeout_s=1.5).deliver(run)
    assert not (run / DELIVERY_FILE).exists()


class Waiting:
    def __init__(self) -> None:
        self.over = threading.Event()

    def wait(self) -> bool:
        return self.over.wait()

    def add(self, left: int, *, right: int) -> int:
        return left + right

    def nothing(self) -> None:
        return None

    def fail(self) -> None:
        raise KeyError("no such run")


def test_calls_within_the_limit_are_as_without() -> None:
    limited = TimeLimited(Waiting(), 60.0)
    assert limited.add(2, right=3) == 5
    assert limited.nothing() is None
    with pytest.raises(KeyError, match="no such run"):
        limited.fail()
    with pytest.raises(AttributeError, match="no_such_method"):
        _ = limited.no_such_method


def test_a_call_beyond_the_limit_is_left() -> None:
    waiting = Waiting()
    with pytest.raises(TimeoutError, match="wait: no whole answer"):
        TimeLimited(waiting, 0.05).wait()
    waiting.over.set()
