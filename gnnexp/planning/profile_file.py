"""A calibration as a hardware profile: `conf/hardware/<name>.yaml`, for `gnnexp run` and `gnnexp plan`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from gnnexp.experiment.schema import HardwareConfig
from gnnexp.planning.figures import LINKS, UNITS, Figure
from gnnexp.record.records import write_text

_ALWAYS = ("h2d", "d2d", "network")  # null where they were not measured


def profile_text(hardware: HardwareConfig, figures: Sequence[Figure], source: str, command: str) -> str:
    """The file.

    Args:
        hardware: as it was measured: ranks, threads and memory (where they were chosen) and device.
        figures: what was measured.
        source: by whom, where, when, in one line.
        command: that measures it again.
    """
    measured = {figure.name: figure for figure in figures}
    device = {} if hardware.device == "auto" else {"device": hardware.device}
    threads = {"threads": hardware.threads} if hardware.threads else {}
    links = [f"{name}: {_link(measured.get(name))}" for name in LINKS if name in measured or name in _ALWAYS]
    memory = {"device_memory": hardware.device_memory} if hardware.device_memory else {}
    placed = {"workers": hardware.workers, **device, **threads, **memory}
    lines = [
        f"# This machine, measured by `{command}`: medians, per rank, all ranks at once (docs/estimates.md).",
        "defaults:", "  - local", "  - _self_", *(f"{key}: {value}" for key, value in placed.items()),
        *(f"{name}: {_number(measured[name])}   # {UNITS[name]}; quartiles {_spread(measured[name])}"
          for name in UNITS if name in measured and name not in LINKS),
        f"links: {{{', '.join(links)}}}   # bytes per second and "
        "direction",
        *(f"# links.{name}: {UNITS[name]}; quartiles {_spread(measured[name])}" for name in LINKS if name in measured),
        f"source: {json.dumps(source)}",
    ]
    return "\n".join(lines) + "\n"


def write_profile(path: Path, text: str) -> None:
    """Atomically: a profile is never half there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


def _number(figure: Figure) -> str:
    """With a decimal point: YAML 1.1, which Hydra reads, takes `7e10` for a word."""
    mantissa, _, exponent = f"{figure.median:.3e}".partition("e")
    return f"{mantissa}e{exponent}"


def _link(figure: Figure | None) -> str:
    return "null" if figure is None else _number(figure)


def _spread(figure: Figure) -> str:
    return f"{figure.low:.3g} to {figure.high:.3g}"
