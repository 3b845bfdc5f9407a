"""Headless Chromium on a file: the page after its scripts have run, and every request that it made."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not on PATH (apt-get install chromium)")


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
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", f"--user-data-dir={folder / 'profile'}", f"--log-net-log={net_log}",
        "--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom", f"{file.as_uri()}{fragment}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    return Seen(done.stdout, _requests(net_log), "\n".join(
        line for line in done.stderr.splitlines() if ":CONSOLE" in line))


def _requests(net_log: Path) -> list[str]:
    """Those that a page began: the browser's own have no initiator."""
    text = net_log.read_text(encoding="utf-8")
    try:
        log = json.loads(text)
    except json.JSONDecodeError:  # the browser ended before it had closed its list of events
        log = json.loads(text.rstrip().rstrip(",") + "]}")
    started = [event["params"] for event in log["events"] if "url" in event.get("params", {})]
    return [event["url"] for event in started
            if event.get("initiator", "not an origin") != "not an origin" and not event["url"].startswith("file:")]
