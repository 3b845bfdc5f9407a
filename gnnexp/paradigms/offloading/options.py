"""Options of offloaded training, and which of them go together with what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gnnexp.errors import Problem
from gnnexp.paradigms.checks import block_layers, learns_weights
from gnnexp.paradigms.offloading.start import ReadRows
from gnnexp.placement.transitions import Dedup
from gnnexp.tiers.host_tier import Place

Keep = Literal["cheapest", "paper", "outputs", "sums"]
_KEEPS = ("cheapest", "paper", "outputs", "sums")
_ROWS = ("cheapest", "raw", "projected")
_PLACES = ("ram", "file")


@dataclass(frozen=True)
class OffloadOptions:
    """What `Offload` takes, under the same names."""

    chunks: int | Literal["auto"]
    device_memory: int | None
    keep: Keep
    rows: ReadRows
    host: Place
    dedup: Mapping[str, Any]
    reorganise: bool
    prefetch: bool

    @property
    def duplicates(self) -> Dedup:
        """`dedup` as it is worked with."""
        return Dedup(bool(self.dedup["inter"]), bool(self.dedup["intra"]))

    def problems(self) -> list[Problem]:
        """What is wrong with them, alone and together."""
        problems = []
        if self.chunks != "auto" and (not isinstance(self.chunks, int) or self.chunks < 1):
            problems.append(Problem("chunks", self.chunks, "must be at least 1, or auto with a device_memory",
                                    "set paradigm.chunks=8"))
        if self.device_memory is not None and self.device_memory < 1:
            problems.append(Problem("device_memory", self.device_memory, "must be a positive number of bytes, or null",
                                    "set paradigm.device_memory=null"))
        if (self.chunks == "auto") != (self.device_memory is not None):
            problems.append(Problem("chunks", self.chunks, "auto and a device_memory go together: a budget decides how "
                                    "many chunks there are", "set paradigm.chunks=auto and paradigm.device_memory="
                                    "<bytes>, or paradigm.chunks=<number> and paradigm.device_memory=null"))
        words = (("keep", self.keep, _KEEPS), ("rows", self.rows, _ROWS), ("host", self.host, _PLACES))
        for name, value, allowed in words:
            if value not in allowed:
                problems.append(Problem(name, value, f"must be one of: {', '.join(allowed)}",
                                        f"set paradigm.{name}={allowed[0]}"))
        if set(self.dedup) != {"inter", "intra"} or not all(isinstance(on, bool) for on in self.dedup.values()):
            problems.append(Problem("dedup", dict(self.dedup), "must have inter and intra, each true or false",
                                    "set paradigm.dedup={inter: true, intra: true}"))
        elif self.reorganise and not all(self.dedup.values()):
            problems.append(Problem("reorganise", True, "puts chunks in an order for both kinds of dedup",
                                    "set paradigm.reorganise=false, or paradigm.dedup={inter: true, intra: true}"))
        return problems

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """Kept sums need constant weights, a budget layers whose needs are known."""
        problems, target = [], config["model"]["_target_"]
        if self.keep == "sums" and (learns_weights(config) or block_layers(config)):
            problems.append(Problem("paradigm.keep", "sums", f"the aggregation of {target} has learned weights: its "
                                    "gradient needs what was aggregated", "set paradigm.keep=outputs"))
        if self.rows == "projected" and block_layers(config):
            problems.append(Problem("paradigm.rows", "projected", f"layers of {target} have no projection of their own",
                                    "set paradigm.rows=cheapest"))
        if self.device_memory is not None and block_layers(config):
            problems.append(Problem("paradigm.device_memory", self.device_memory, f"what layers of {target} take is "
                                    "not known", "set paradigm.chunks=<number> and paradigm.device_memory=null"))
        return problems
