"""The dashboard's secret: who does not know it gets nothing, and who does may choose no place for files."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from other_user import NOBODY, acting_as, needs_root, shared_folder

from gnnexp.errors import ConfigError
from gnnexp.trackers.guard import COOKIE, Guard, guarded, kept_secret, read_secret

SECRET, PORT = "a-secret_of-the-test", 5000
PLACE = Path("/data/mlartifacts")


async def inner(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """What is behind the guard: it tells what it was asked."""
    if scope["type"] == "http":
        body = (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"inside " + body})
    elif scope["type"] == "websocket":
        await send({"type": "websocket.accept"})


def ask(
    path: str = "/",
    headers: dict[str, str] | None = None,
    *,
    method: str = "GET",
    query: str = "",
    body: bytes = b"",
    kind: str = "http",
    cut: int = 1,
) -> tuple[int, bytes, dict[bytes, bytes]]:
    """Status, body and headers of the answer; a socket is accepted (200) or closed (its code)."""
    scope = {
        "type": kind,
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "server": ("127.0.0.1", PORT),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()],
    }
    step = -(-len(body) // cut) or 1
    pieces = [body[start : start + step] for start in range(0, len(body), step)] or [b""]
    waiting = [
        {"type": "http.request", "body": piece, "more_body": number < len(pieces) - 1}
        for number, piece in enumerate(pieces)
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return waiting.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Guard(inner, SECRET, PLACE)(scope, receive, send))
    if kind == "websocket":
        return (200 if sent[0]["type"] == "websocket.accept" else sent[0]["code"]), b"", {}
    return sent[0]["status"], sent[1]["body"], dict(sent[0]["headers"])


BEARER = {"Authorization": f"Bearer {SECRET}"}


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({}, ""),
        ({}, "secret="),
        ({}, f"secret={SECRET}x"),
        ({}, f"Secret={SECRET}"),
        ({"Authorization": "Bearer x"}, ""),
        ({"Authorization": f"Basic {SECRET}"}, ""),
        ({"Authorization": SECRET}, ""),
        ({"Cookie": f"{COOKIE}-5000=x"}, ""),
        ({"Cookie": f"{COOKIE}-5001={SECRET}"}, ""),
        ({"Cookie": f"other={SECRET}"}, ""),
        ({"Cookie": "\xff;=;"}, ""),
        ({"Authorization": "Bearer \xe9"}, ""),
        ({"X-Forwarded-User": "root"}, ""),
        ({"Referer": f"/?secret={SECRET}"}, ""),
    ],
)
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/health",
        "/static-files/x.js",
        "/api/2.0/mlflow/experiments/search",
        "/ajax-api/2.0/mlflow/get-artifact",
        "/graphql",
        "//",
        "/../",
    ],
)
def test_who_does_not_know_it_gets_nothing(headers: dict[str, str], query: str, path: str) -> None:
    for method in ("GET", "POST", "OPTIONS", "PUT", "DELETE"):
        status, body, _ = ask(path, headers, query=query, method=method)
        assert status == 401 and b"inside" not in body and SECRET.encode() not in body
    assert ask(path, headers, query=query, kind="websocket")[0] == 1008


@pytest.mark.parametrize(
    "headers",
    [
        BEARER,
        {"authorization": f"bearer  {SECRET} "},
        {"Cookie": f"{COOKIE}-5000={SECRET}"},
        {"Cookie": f"a=b; {COOKIE}-5000={SECRET}; c=d"},
    ],
)
def test_who_knows_it_goes_on(headers: dict[str, str]) -> None:
    assert ask("/x", headers)[:2] == (200, b"inside ")
    assert ask("/x", headers, method="POST", body=b"{}")[:2] == (200, b"inside {}")
    assert ask("/x", headers, kind="websocket")[0] == 200


def test_a_browser_keeps_it_in_a_cookie_and_the_address_without_it() -> None:
    status, body, headers = ask("/page", query=f"a=1&secret={SECRET}&b=")
    assert status == 200 and b'<a href="/page?a=1&amp;b=">' in body and SECRET.encode() not in body
    assert headers[b"referrer-policy"] == b"no-referrer" and headers[b"cache-control"] == b"no-store"
    assert b'searchParams.delete("secret")' in body and headers[b"content-type"].startswith(b"text/html")
    cookie = headers[b"set-cookie"].decode()
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert ask("/page", {"Cookie": cookie.partition(";")[0]})[0] == 200


@pytest.mark.parametrize("path", ["//evil.example/", "/a//b", "///evil.example", "/\\evil.example"])
def test_the_address_without_it_is_of_this_server(path: str) -> None:
    (link,) = re.findall(r'href="([^"]*)"', ask(path, query=f"secret={SECRET}")[1].decode())
    assert link.startswith("/") and not link.startswith(("//", "/\\"))


def test_no_address_becomes_a_part_of_the_page() -> None:
    _, body, headers = ask('/"><script>x()</script>', query=f"secret={SECRET}")
    assert body.count(b"<script>") == 1 and b"x()</script>" not in body
    (script,) = re.findall(rb"<script>(.*?)</script>", body)
    digest = base64.b64encode(hashlib.sha256(script).digest())
    assert b"script-src 'sha256-" + digest + b"'" in headers[b"content-security-policy"]


def test_a_form_of_another_page_does_not_log_in() -> None:
    """Only a GET does, which changes nothing."""
    assert ask("/", query=f"secret={SECRET}", method="POST")[0] == 401


# --- places of files --------------------------------------------------------------------------------------------------
_CREATE = "/api/2.0/mlflow/experiments/create"


@pytest.mark.parametrize(
    "place",
    [
        "/etc",
        "file:///etc",
        "file://host/data/mlartifacts",
        "s3://bucket",
        "../..",
        "C:\\x",
        "/data/mlartifacts/../secrets",
        "file:///data/mlartifacts/%2e%2e/secrets",
        "mlflow-artifacts:/../../etc",
        "mlflow-artifacts:/%2e%2e/etc",
        "sftp://h/x",
        "x",
    ],
)
@pytest.mark.parametrize(
    ("path", "key"),
    [
        (_CREATE, "artifact_location"),
        ("/ajax-api/2.0/mlflow/experiments/create", "artifactLocation"),
        ("/api/2.0/mlflow/model-versions/create", "source"),
        ("/api/2.0/mlflow/runs/create", "artifact_uri"),
    ],
)
def test_no_other_place_of_files_is_taken(place: str, path: str, key: str) -> None:
    for content in ({key: place}, {"a": [{"b": {key: place}}]}):
        status, body, _ = ask(path, BEARER, method="POST", body=json.dumps(content).encode(), cut=3)
        assert status == 403 and b"inside" not in body


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"name": "x"},
        {"artifact_location": ""},
        {"artifact_location": None},
        {"artifact_location": "mlflow-artifacts:/3/x"},
        {"source": "runs:/abc/model"},
        {"source": "models:/m-1"},
        {"source": "/data/mlartifacts/1/model"},
        {"artifact_location": "file:///data/mlartifacts/1"},
        {"tags": [{"key": "artifact_location", "value": "/etc"}]},
    ],
)
def test_its_own_places_and_none_are_taken(content: dict[str, Any]) -> None:
    body = json.dumps(content).encode()
    for cut in (1, 4):
        assert ask(_CREATE, BEARER, method="POST", body=body, cut=cut)[:2] == (200, b"inside " + body)


def test_other_requests_pass_unread() -> None:
    body = b"x" * (3 << 20)
    assert ask("/api/2.0/mlflow-artifacts/artifacts/a", BEARER, method="PUT", body=body)[0] == 200
    assert ask(_CREATE, BEARER, method="POST", body=body)[0] == 403, "too long for what it is"


@given(st.binary(max_size=60))
def test_any_body_is_answered(body: bytes) -> None:
    assert ask(_CREATE, BEARER, method="POST", body=body)[0] in (200, 403)


# --- the file ---------------------------------------------------------------------------------------------------------
def test_the_file_is_made_once_and_for_its_user_only(tmp_path: Path) -> None:
    file, before = tmp_path / "new" / "ui.secret", os.umask(0)
    try:
        secret = kept_secret(file)
    finally:
        os.umask(before)
    assert len(secret) >= 32 and kept_secret(file) == secret == read_secret(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert kept_secret(tmp_path / "other") != secret


def test_where_no_rights_are_kept_no_secret_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on FAT and on disks of Windows in WSL: each file is open to others, whatever was asked for."""
    real = os.fstat
    monkeypatch.setattr(os, "fstat", lambda file: os.stat_result(((found := real(file)).st_mode | 0o055, *found[1:])))
    with pytest.raises(ConfigError, match="keeps no rights") as caught:
        kept_secret(tmp_path / "ui.secret")
    monkeypatch.undo()
    assert "MLFLOW_TRACKING_URI=" in caught.value.problems[0].fix and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.chmod(0o644),
        lambda file: file.chmod(0o620),
        lambda file: file.write_text(""),
        lambda file: file.write_text(" \n"),
    ],
)
def test_a_file_that_others_read_or_that_is_empty_is_refused(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    file = tmp_path / "ui.secret"
    kept_secret(file)
    spoil(file)
    with pytest.raises((PermissionError, ValueError), match="remove it"):
        kept_secret(file)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    kept_secret(tmp_path / "theirs")
    (tmp_path / "ui.secret").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="symbolic"):
        kept_secret(tmp_path / "ui.secret")


@needs_root
def test_a_file_of_another_user_is_refused_and_ones_own_is_closed_to_them() -> None:
    with shared_folder(0o777) as folder:
        kept_secret(folder / "mine")
        with acting_as(NOBODY):
            kept_secret(folder / "theirs")
            with pytest.raises(PermissionError):
                read_secret(folder / "mine")
        with pytest.raises(PermissionError, match="must belong to you"):
            kept_secret(folder / "theirs")


def test_without_its_secret_the_server_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GNNEXP_UI_SECRET_FILE", raising=False)
    with pytest.raises(KeyError):
        guarded()
