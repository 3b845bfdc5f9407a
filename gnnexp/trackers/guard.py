"""MLflow's server behind a secret. `mlflow server --app-name gnnexp`, which `gnnexp ui` starts, finds it as a plugin.

MLflow trusts whoever reaches it, and on 127.0.0.1 that is every user of the machine. It also lets clients choose where
files of runs lie, and then reads and writes there. So each request proves that it knows a secret, and the server
takes no other place than its own.

- A browser opens an address with the secret once. It then has a cookie, and goes on with the address without it.
- MLflow's client and scripts send the secret as `MLFLOW_TRACKING_TOKEN` (header `Authorization: Bearer`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import json
import os
import secrets
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlparse

from gnnexp.errors import ConfigError, Problem

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Names of variables: of a file with the secret, and of the folder of runs' files. Names of the parameter in the first
# address, and of the cookie, which also has the port: browsers send a cookie to all ports of a machine.
FILE_VARIABLE, PLACE_VARIABLE = "GNNEXP_UI_SECRET_FILE", "GNNEXP_UI_PLACE"
PARAMETER, COOKIE = "secret", "gnnexp-ui"
_BYTES, _MOST_BODY = 32, 1 << 20
_OTHERS = 0o077  # rights of other users
# Requests of MLflow's API that can name a place for files, and the keys of such a place.
_PLACING = ("experiments/create", "experiments/update", "runs/create", "model-versions/create", "logged-models")
_KEYS = frozenset({"artifact_location", "artifact_uri", "source", "artifactlocation", "artifacturi"})
_OWN_PLACES = ("mlflow-artifacts:", "runs:/", "models:/")
# MLflow's page opens its assistant at a browser's first visit, which takes a quarter of the width. This is the mark by
# which MLflow 3.17 remembers that it did (`main.*.js`: autoOpenedOnFirstLoad, version 1). A button still opens it.
_OPENED = "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1"
_SCRIPT = (
    f'try{{if(!localStorage.getItem("{_OPENED}"))localStorage.setItem("{_OPENED}","true")}}catch(refused){{}}'
    f'const rest=new URL(location.href);rest.searchParams.delete("{PARAMETER}");location.replace(rest);'
)
_UNASKED = (
    b"this dashboard needs its secret: open the address that `gnnexp ui` printed; scripts: "
    b"MLFLOW_TRACKING_TOKEN=$(cat .gnnexp/ui.secret)\n"
)


def guarded() -> App:
    """MLflow's application behind the secret of the file that `$GNNEXP_UI_SECRET_FILE` names.

    Raises:
        KeyError: the variable is missing: the server then does not start.
    """
    secret, place = read_secret(Path(os.environ[FILE_VARIABLE])), Path(os.environ[PLACE_VARIABLE])
    from mlflow.server.fastapi_app import app

    return Guard(app, secret, place)


def kept_secret(file: Path) -> str:
    """The secret in a file that only its user can read; it is made if there is none.

    Raises:
        ConfigError: the file system keeps no rights.
        OSError: the disk refuses.
        PermissionError: somebody else can read or write the file, or owns it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return read_secret(file)
    with open(handle, "w", encoding="ascii") as secret:  # noqa: PTH123
        if os.fstat(handle).st_mode & _OTHERS:
            file.unlink()
            raise ConfigError(
                Problem(
                    str(file),
                    "open to others",
                    "the file system keeps no rights, so everybody could read the secret",
                    "cd to a folder on another file system, then: MLFLOW_TRACKING_URI=sqlite:////PATH/OF/mlflow.db "
                    "gnnexp ui",
                )
            )
        secret.write(secrets.token_urlsafe(_BYTES))
    return read_secret(file)


def read_secret(file: Path) -> str:
    """The secret in a file.

    Raises:
        PermissionError: somebody else can read or write the file, or owns it.
        ValueError: it is empty.
    """
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(handle, encoding="ascii") as opened:  # noqa: PTH123
        status = os.fstat(handle)
        if status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
            raise PermissionError(f"{file} must belong to you, and nobody else may read it: remove it, or chmod 600")
        secret = opened.read().strip()
    if not secret:
        raise ValueError(f"{file} is empty: remove it")
    return secret


class Guard:
    """An ASGI application that passes on what proves to know the secret.

    Args:
        app: what is behind it.
        secret: what a request must show.
        place: folder of the files of runs.
    """

    def __init__(self, app: App, secret: str, place: Path) -> None:
        self._app, self._secret, self._place = app, secret, place.resolve()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or the start and end of the server."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif self._is_first(scope):
            await _answer(
                send,
                200,
                _first_page(_without_secret(scope).decode("latin-1")),
                [
                    (b"set-cookie", self._cookie(scope)),
                    (b"referrer-policy", b"no-referrer"),
                    (b"cache-control", b"no-store"),
                    (b"content-security-policy", _policy()),
                ],
                kind=b"text/html",
            )
        elif not self._knows(scope):
            await _refused(scope, send)
        elif scope["type"] == "http" and scope["method"] not in ("GET", "HEAD") and _places(scope):
            await self._checked(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_first(self, scope: Scope) -> bool:
        """Whether a browser opens the printed address."""
        if scope["type"] != "http" or scope["method"] != "GET":
            return False
        given = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get(PARAMETER, "")
        return self._is_secret(given)

    def _knows(self, scope: Scope) -> bool:
        headers = [(name.lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        bearers = [value.partition(" ") for name, value in headers if name == b"authorization"]
        shown = [word.strip() for kind, _, word in bearers if kind.lower() == "bearer"]
        return any(map(self._is_secret, (*shown, *_cookies(headers, _cookie_name(scope)))))

    def _is_secret(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._secret.encode())

    def _cookie(self, scope: Scope) -> bytes:
        return f"{_cookie_name(scope)}={self._secret}; Path=/; HttpOnly; SameSite=Strict".encode()

    def _is_own(self, place: str) -> bool:
        """Whether a place is one that the server chooses: of its files, of a run, or of a model."""
        if place.startswith(_OWN_PLACES):
            return ".." not in unquote(place)
        path = urlparse(place)
        named = Path(unquote(path.path)).resolve()
        return path.scheme in ("", "file") and not path.netloc and named.is_relative_to(self._place)

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request that can name a place for files, unless it names one."""
        body = await _body(receive)
        if body is None or any(not self._is_own(place) for place in _named_places(body)):
            await _answer(send, 403, b"this server keeps files of runs in its own place only: leave the location out\n")
            return
        parts = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def again() -> Message:
            return next(parts, None) or await receive()

        await self._app(scope, again, send)


def _cookie_name(scope: Scope) -> str:
    return f"{COOKIE}-{(scope.get('server') or ('', 0))[1]}"


def _cookies(headers: list[tuple[bytes, str]], name: str) -> Iterator[str]:
    for header, value in headers:
        if header == b"cookie":
            try:
                found = SimpleCookie(value).get(name)
            except CookieError:
                continue
            if found is not None:
                yield found.value


def _without_secret(scope: Scope) -> bytes:
    rest = [
        (key, value)
        for key, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if key != PARAMETER
    ]
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return b"/" + path.partition(b"?")[0].lstrip(b"/\\") + (b"?" + urlencode(rest).encode() if rest else b"")


def _first_page(rest: str) -> bytes:
    """A page that goes on at once, to the same address without the secret. Without scripts, it has a link."""
    link = f'<noscript><a href="{html.escape(rest)}">to the dashboard</a></noscript>'
    return f"<!doctype html><meta charset=utf-8><title>gnnexp ui</title><script>{_SCRIPT}</script>{link}\n".encode()


def _policy() -> bytes:
    """Only this script may run, and nothing is loaded."""
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    return f"default-src 'none'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'".encode()


def _places(scope: Scope) -> bool:
    return any(words in scope["path"] for words in _PLACING)


async def _body(receive: Receive) -> bytes | None:
    """The body of a request; None if it is too long, or cut off."""
    found, more = b"", True
    while more:
        message = await receive()
        if message["type"] != "http.request" or len(found := found + message.get("body", b"")) > _MOST_BODY:
            return None
        more = message.get("more_body", False)
    return found


def _named_places(body: bytes) -> Iterator[str]:
    """The places that a request names, at any depth. What is no JSON names none: MLflow refuses it."""
    try:
        waiting = [json.loads(body or b"{}")]
    except (ValueError, RecursionError):
        return
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield from (str(value) for key, value in node.items() if key.lower() in _KEYS and value)
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


async def _refused(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await _answer(send, 401, _UNASKED, [(b"www-authenticate", b'Bearer realm="gnnexp ui"')])


async def _answer(
    send: Send,
    status: int,
    text: bytes,
    headers: list[tuple[bytes, bytes]] | None = None,
    *,
    kind: bytes = b"text/plain",
) -> None:
    about = [(b"content-type", kind + b"; charset=utf-8"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*about, *(headers or [])]})
    await send({"type": "http.response.body", "body": text})
