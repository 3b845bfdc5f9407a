"""Headless Chromium: a file's page after its scripts have run, or a user's steps on a site; and all requests."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not on PATH (apt-get install chromium)")
_QUIET = (
    CHROMIUM or "",
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
)


class Seen(NamedTuple):
    """What came of a page.

    Attributes:
        dom: of the page at the end.
        requests: addresses that it asked for, but for itself.
        log: of its console.
    """

    dom: str
    requests: list[str]
    log: str


def visit(file: Path, folder: Path, fragment: str = "") -> Seen:
    """Open `file` with an empty profile in `folder`."""
    assert CHROMIUM is not None
    net_log = folder / "net.json"
    command = [
        *_QUIET,
        f"--user-data-dir={folder / 'profile'}",
        f"--log-net-log={net_log}",
        "--enable-logging=stderr",
        "--virtual-time-budget=5000",
        "--dump-dom",
        f"{file.as_uri()}{fragment}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    return Seen(
        done.stdout, _requests(net_log), "\n".join(line for line in done.stderr.splitlines() if ":CONSOLE" in line)
    )


def _requests(net_log: Path) -> list[str]:
    """Those that a page began: the browser's own have no initiator."""
    text = net_log.read_text(encoding="utf-8")
    try:
        log = json.loads(text)
    except json.JSONDecodeError:  # the browser ended before it had closed its list of events
        log = json.loads(text.rstrip().rstrip(",") + "]}")
    started = [event["params"] for event in log["events"] if "url" in event.get("params", {})]
    return [
        event["url"]
        for event in started
        if event.get("initiator", "not an origin") != "not an origin" and not event["url"].startswith("file:")
    ]


_WITH_PIPES = """
import fcntl, os, sys
read, written = (fcntl.fcntl(int(word), fcntl.F_DUPFD, 10) for word in sys.argv[1:3])
os.dup2(read, 3), os.dup2(written, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Chromium:
    """A browser with an empty profile, which does what its DevTools are asked for. To be closed.

    Args:
        profile: a folder that it makes.

    Attributes:
        requests: addresses that its pages asked for.
    """

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        self.requests: list[str] = []
        (theirs, self._to), (self._from, answered) = os.pipe(), os.pipe()
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-S",
                "-c",
                _WITH_PIPES,
                str(theirs),
                str(answered),
                *_QUIET,
                "--remote-debugging-pipe",
                f"--user-data-dir={profile}",
            ],
            pass_fds=(theirs, answered),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        os.close(answered)
        self._waiting, self._calls, self._session = b"", 0, ""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Network", "Page", "Runtime"):
            self._call(f"{domain}.enable")

    def open(self, address: str) -> None:
        """Go to an address."""
        self._call("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        return self._call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def wait_for(self, script: str, seconds: float = 60.0) -> None:
        """Wait until an expression in the page is true."""
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({script})"):
            assert time.monotonic() < end, f"{script}: {self.run('location.href + document.body.innerText')}"
            time.sleep(0.05)

    def close(self) -> None:
        """End it."""
        os.close(self._to)  # it ends when nobody can ask it for anything
        self._process.wait(30)
        os.close(self._from)

    def _call(self, method: str, **options: object) -> dict[str, Any]:
        self._calls += 1
        asked = {"id": self._calls, "method": method, "params": options}
        asked |= {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while True:
            while b"\0" not in self._waiting:
                assert select.select([self._from], [], [], 60)[0], f"no answer to {method}"
                read = os.read(self._from, 1 << 16)
                assert read, "the browser has ended"
                self._waiting += read
            text, _, self._waiting = self._waiting.partition(b"\0")
            said = json.loads(text)
            if said.get("method") == "Network.requestWillBeSent":
                self.requests.append(said["params"]["request"]["url"])
            if said.get("id") == self._calls:
                assert "error" not in said, said
                result: dict[str, Any] = said["result"]
                return result
