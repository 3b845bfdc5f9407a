"""The figures of a calibration (median and spread over ranks and repetitions), and their file: a hardware profile."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnnexp.components.schema import HardwareConfig
from gnnexp.record.records import write_text

# The meaning of each figure, in the order of tables and profiles.
UNITS: Mapping[str, str] = {
    "flops": "float32 operations of dense products per second",
    "flops_tf32": "operations of the same products per second, in TF32",
    "gather": "bytes of rows that aggregation reads per second",
    "l2": "bytes of rows that aggregation reads per second, of a table in the device's cache",
    "stream": "bytes that elementwise work reads and writes per second",
    "sampling": "edges drawn per second",
    "launch_s": "seconds from one launch of a kernel to the next",
    "step_s": "fixed seconds of a training step",
    "latency": "fixed seconds of an exchange",
    "network": "bytes that a rank sends to others per second",
    "h2d": "bytes from the host to the device per second",
    "d2d": "bytes that a device sends to others per second",
    "d2h": "bytes from the device to the host per second",
    "duplex": "bytes per second of both directions together, copied at once",
    "h2d_gather": "bytes per second of rows that are gathered on the host and brought to the device",
}
LINKS = ("h2d", "d2d", "network", "d2h", "duplex", "h2d_gather")


@dataclass(frozen=True)
class Measurement:
    """One measured figure.

    Attributes:
        name: name of the figure in `UNITS`.
        median: median over the repetitions of all ranks.
        low, high: quartiles over the same repetitions.
        repetitions: number of repetitions of each rank.
    """

    name: str
    median: float
    low: float
    high: float
    repetitions: int

    @property
    def spread(self) -> float:
        """Distance between the quartiles, divided by the median."""
        return (self.high - self.low) / self.median


def figures_of(ranks: Sequence[Mapping[str, Sequence[float]]]) -> list[Measurement]:
    """Figures from the ranks' repetitions by name; each name needs at least two repetitions."""
    figures = []
    for name in UNITS:
        values = [value for rank in ranks for value in rank.get(name, ())]
        if values:
            low, median, high = statistics.quantiles(values, n=4, method="inclusive")
            figures.append(Measurement(name, median, low, high, len(ranks[0][name])))
    return figures


_ALWAYS = ("h2d", "d2d", "network")  # null if they were not measured


def profile_text(
    hardware: HardwareConfig, figures: Sequence[Measurement], source: str, command: str, notes: Sequence[str] = ()
) -> str:
    """The text of the profile's file.

    Args:
        hardware: the measured setup: ranks, device, and threads and memory if they were chosen.
        figures: the measured figures.
        source: who measured, where and when, in one line.
        command: the command that measures it again.
        notes: lines for comments, such as the links between GPUs.
    """
    measured = {figure.name: figure for figure in figures}
    device = {} if hardware.device == "auto" else {"device": hardware.device}
    threads = {"threads": hardware.threads} if hardware.threads else {}
    links = [f"{name}: {_link(measured.get(name))}" for name in LINKS if name in measured or name in _ALWAYS]
    memory = {"device_memory": hardware.device_memory} if hardware.device_memory else {}
    placed = {"workers": hardware.workers, **device, **threads, **memory}
    lines = [
        f"# This machine, measured by `{command}`: medians, per rank, all ranks at once (docs/estimates.md).",
        "defaults:",
        "  - local",
        "  - _self_",
        *(f"{key}: {value}" for key, value in placed.items()),
        *(
            f"{name}: {_number(measured[name])}   # {UNITS[name]}; quartiles {_spread(measured[name])}"
            for name in UNITS
            if name in measured and name not in LINKS
        ),
        f"links: {{{', '.join(links)}}}   # bytes per second and direction",
        *(f"# links.{name}: {UNITS[name]}; quartiles {_spread(measured[name])}" for name in LINKS if name in measured),
        *(f"# {note}" for note in notes),
        f"source: {json.dumps(source)}",
    ]
    return "\n".join(lines) + "\n"


def write_profile(path: Path, text: str) -> None:
    """Write the profile atomically, so that no reader sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


def _number(figure: Measurement) -> str:
    """The median with a decimal point: YAML 1.1, which Hydra reads, parses `7e10` as a word."""
    mantissa, _, exponent = f"{figure.median:.3e}".partition("e")
    return f"{mantissa}e{exponent}"


def _link(figure: Measurement | None) -> str:
    return "null" if figure is None else _number(figure)


def _spread(figure: Measurement) -> str:
    return f"{figure.low:.3g} to {figure.high:.3g}"
