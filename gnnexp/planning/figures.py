"""What a calibration found: repetitions of every rank, their median and how far they spread."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# What each figure is, in the words and the order of tables and profiles.
UNITS: Mapping[str, str] = {
    "flops": "float32 operations of dense products per second",
    "flops_tf32": "operations of the same products per second, in TF32",
    "gather": "bytes of rows that aggregation reads per second",
    "l2": "bytes of rows that aggregation reads per second, of a table in the device's cache",
    "stream": "bytes that elementwise work reads and writes per second", "sampling": "edges drawn per second",
    "launch_s": "seconds from one launch of a kernel to the next",
    "step_s": "seconds of a training step beside its work", "latency": "seconds of an exchange beside its bytes",
    "network": "bytes that a rank sends to others per second", "h2d": "bytes from the host to the device per second",
    "d2d": "bytes that a device sends to others per second", "d2h": "bytes from the device to the host per second",
    "duplex": "bytes per second of both directions together, copied at once",
    "h2d_gather": "bytes per second of rows that are gathered on the host and brought to the device",
}
LINKS = ("h2d", "d2d", "network", "d2h", "duplex", "h2d_gather")


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Attributes:
        name: of `UNITS`.
        median: over the repetitions of all ranks.
        low, high: the quartiles of those.
        repetitions: of each rank.
    """

    name: str
    median: float
    low: float
    high: float
    repetitions: int

    @property
    def spread(self) -> float:
        """Between the quartiles, over the median."""
        return (self.high - self.low) / self.median


def figures_of(ranks: Sequence[Mapping[str, Sequence[float]]]) -> list[Figure]:
    """Of every rank's repetitions by name; at least two repetitions of each."""
    found = []
    for name in UNITS:
        values = [value for rank in ranks for value in rank.get(name, ())]
        if values:
            low, median, high = statistics.quantiles(values, n=4, method="inclusive")
            found.append(Figure(name, median, low, high, len(ranks[0][name])))
    return found
