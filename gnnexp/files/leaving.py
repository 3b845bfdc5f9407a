"""How processes of gnnexp spend little on memory: they look for garbage rarely, and leave at once at their end."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys

# New objects until a collection. Modules make a million objects that stay, and each collection would look at many of
# them again.
_YOUNG = 100_000


def collect_rarely() -> None:
    """Let this process import its modules without hundreds of collections."""
    gc.set_threshold(_YOUNG)


class Ending:
    """Ends this process at once after threads have been joined and all other functions of `atexit` have been called.

    Python would then free every object of all modules. With torch, that takes half as long as to import it. In a rank
    it also writes to every page that is shared with the starter, and lets extension modules report what `gc.freeze` has
    kept as leaks.

    It must be made before other functions are registered, so that it is called after them.

    Attributes:
        exit_code: exit code of the process; None if it has not ended by itself, so that Python ends it.
    """

    def __init__(self) -> None:
        self.exit_code: int | None = None
        atexit.register(self)

    def __call__(self) -> None:
        """Write what streams hold, and leave. Python itself reports a stream that cannot be written."""
        if self.exit_code is None:
            return
        try:
            for stream in (sys.stdout, sys.stderr):
                if not stream.closed:
                    stream.flush()
        except OSError:
            return
        ctypes.CDLL(None).fflush(None)
        os._exit(self.exit_code)
