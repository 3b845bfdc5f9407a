"""The link between a rank's host tier and its device tier, slowed down to a given bandwidth (`hardware.throttle_h2d`).

On CPU a crossing is a copy in RAM, or nothing at all, so systems that save crossings gain nothing by it. With a
throttle, crossings take at least the time of their bytes, as on the link of a GPU.
"""

from __future__ import annotations

import threading
import time
from typing import Literal

Direction = Literal["h2d", "d2h"]

# Sleeps are longer than asked, by some 0.1 ms. Less than this is kept until more is owed; as much is given back.
_SHORTEST_S = 1e-3


class HostLink:
    """A link that is as fast as the machine, or slowed down. Both directions have the full bandwidth.

    Threads of a rank share it: crossings of one direction take place one after another.

    Args:
        throttle: bytes per second and direction; None: as fast as the machine.
    """

    def __init__(self, throttle: float | None = None) -> None:
        self.throttle = throttle
        self._owed: dict[Direction, float] = {"h2d": 0.0, "d2h": 0.0}
        self._locks: dict[Direction, threading.Lock] = {"h2d": threading.Lock(), "d2h": threading.Lock()}

    def crossed(self, direction: Direction, num_bytes: int, seconds: float = 0.0) -> None:
        """Wait until all crossings so far have taken the time of their bytes, give or take 1 ms.

        Args:
            direction: `h2d` to the device, `d2h` to the host.
            num_bytes: bytes that crossed.
            seconds: time that their crossing has taken.
        """
        if self.throttle is None:
            return
        with self._locks[direction]:
            owed = self._owed[direction] + max(0.0, num_bytes / self.throttle - seconds)
            if owed >= _SHORTEST_S:
                start = time.perf_counter()
                time.sleep(owed)
                owed = max(-_SHORTEST_S, owed - (time.perf_counter() - start))
            self._owed[direction] = owed
