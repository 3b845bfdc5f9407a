"""A limit on a whole request. The timeouts of HTTP libraries limit only the wait for the next bytes of an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Limited:
    """An object whose methods each end within a time limit.

    Each call runs in a thread of its own. A thread cannot be ended from outside: one that misses its limit is left,
    and it ends with its request or with this process. What it still does at the server is what a request does whose
    answer is lost.

    Args:
        target: whose methods are called.
        limit_s: seconds for one call.
    """

    def __init__(self, target: object, limit_s: float) -> None:
        self._target, self._limit_s = target, limit_s

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The method `name`, which raises `TimeoutError` at its limit."""
        method = getattr(self._target, name)

        def call(*arguments: Any, **more: Any) -> Any:  # noqa: ANN401  whatever the method takes and gives
            return _within(self._limit_s, name, lambda: method(*arguments, **more))

        return call


def _within(limit_s: float, name: str, function: Callable[[], object]) -> object:
    """What `function` returns or raises.

    Raises:
        TimeoutError: it has not ended after `limit_s`.
    """
    returned, raised = list[object](), list[BaseException]()

    def run() -> None:
        try:
            returned.append(function())
        except BaseException as error:  # for the thread that waits
            raised.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(limit_s)
    if raised:
        raise raised[0]
    if not returned:
        raise TimeoutError(f"{name}: no whole answer within {limit_s:g} s")
    return returned[0]
