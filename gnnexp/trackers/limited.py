"""A limit on a whole request. The timeouts of HTTP libraries limit only the wait for the next bytes of an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class TimeLimited:
    """An object whose methods each end within a time limit.

    Each call runs in a thread of its own. A thread cannot be ended from outside, so a call that misses its limit is
    left behind, and ends with its request or with this process. Its effect on the server is that of a request whose
    answer is lost.

    Args:
        target: object whose methods are called.
        limit_s: limit for one call, in seconds.
    """

    def __init__(self, target: object, limit_s: float) -> None:
        self._target, self._limit_s = target, limit_s

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The method `name` of the target, which raises `TimeoutError` at its limit."""
        method = getattr(self._target, name)

        def call(*arguments: Any, **more: Any) -> Any:  # noqa: ANN401  any arguments and result of the method
            return _within(self._limit_s, name, lambda: method(*arguments, **more))

        return call


def _within(limit_s: float, name: str, function: Callable[[], object]) -> object:
    """Call `function`, and return or raise what it does.

    Raises:
        TimeoutError: the function has not ended after `limit_s`.
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
