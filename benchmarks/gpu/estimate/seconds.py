"""Seconds of a step from its counted work: a model that is not measured, with constants that are, or are assumed.

- A kernel takes `bytes / stream + gathered bytes / gather + operations / flops`, and at least `shortest_s`.
- The host takes `launch_s` for each launch. `rest_s` is all other time of the host in a step: Python, autograd, copies.
- `own_s` is the same from `benchmarks/host_step.py`, measured on another CPU.
- The host waits once, for the sizes of the batch. It launches the next batch while the GPU works on a step. So a step
  takes `max(host, max(host of the rest, GPU of the rest) + GPU of sampling) + wait_s`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "results" / "gpu" / "h200"
HOST_STEP = RESULTS.parents[1] / "host_step.json"
_BLOCK_COPIES = 10  # copies of arrays of blocks and labels from pageable memory, for each batch
_BEFORE_ROW_BYTES = 400
PARTS = {"sample": "sample", "load": "load", "between": "load"}  # all other phases compute


@dataclass(frozen=True)
class Constants:
    """Rates per second, and seconds. The first ones were measured on one H200, the last ones are assumed.

    Attributes:
        stream: bytes that elementwise kernels read and write.
        gather: bytes of rows that sums over edges read.
        flops: operations of dense products.
        launch_s: from one launch to the next.
        h2d: bytes from pinned memory to the GPU.
        pageable: bytes from other memory to the GPU.
        sampling: edges that the CPU's sampler draws.
        step_s: a training step without its work.
        triton_launch_s: from one launch of Triton to the next.
        shortest_s: the shortest kernel.
        wait_s: until the host goes on after a wait.
        mark_s: a mark on the GPU's timeline.
        host_gather: bytes of rows that one core gathers (the comment in `kernels/rows/gather.py`).
        host_copy: bytes that one core copies into pinned memory.
        copy_s: fixed time of a copy from pageable memory.
    """

    stream: float
    gather: float
    flops: float
    launch_s: float
    h2d: float
    pageable: float
    sampling: float
    step_s: float
    triton_launch_s: float = 15e-6
    shortest_s: float = 2e-6
    wait_s: float = 10e-6
    mark_s: float = 5e-6
    host_gather: float = 5e9
    host_copy: float = 1e10
    copy_s: float = 15e-6


TRITON_GATHER = 2.8e12  # assumed: the target of `kernel-bench` for 512-byte rows


def measured(folder: Path = RESULTS) -> tuple[Constants, float]:
    """The constants of one H200 with torch's kernels, and operations per second of products in TF32."""
    rows = {
        row["name"]: row["value"]
        for name in ("calibrate", "smoke")
        for row in json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    }
    found = Constants(
        *(rows[name] for name in ("stream", "gather", "flops", "launch_s", "h2d", "h2d pageable", "sampling", "step_s"))
    )
    return found, rows["flops_tf32"]


@dataclass(frozen=True)
class Part:
    """A part of a step.

    Attributes:
        launches: number of launches.
        host_s: seconds of the host in launches.
        streamed_s, gathered_s, product_s: seconds of the GPU by what bounds it.
        gpu_s: seconds of the GPU, with the shortest time of small kernels.
    """

    launches: float = 0.0
    host_s: float = 0.0
    streamed_s: float = 0.0
    gathered_s: float = 0.0
    product_s: float = 0.0
    gpu_s: float = 0.0

    def __add__(self, other: Part) -> Part:
        """The sum of both."""
        return Part(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    @property
    def bound(self) -> str:
        """What takes the most time: `launches` of the host, or `bytes`, `gathers` or `products` of the GPU."""
        if self.host_s >= self.gpu_s:
            return "launches"
        costs = {"bytes": self.streamed_s, "gathers": self.gathered_s, "products": self.product_s}
        return max(costs, key=lambda name: costs[name])


def _is_triton(kernel: str) -> bool:
    return kernel.endswith("_kernel") or kernel == "relabel"


def parts_of(work: list[Mapping[str, Any]], constants: Constants) -> dict[str, Part]:
    """`sample`, `load`, `compute` and `update` of a step from the `work` of `count.mean`."""
    found: dict[str, Part] = {}
    for row in work:
        name = PARTS.get(row["part"], "update" if row["part"] in ("update", "sync") else "compute")
        launches = row["launches"]
        gather = TRITON_GATHER if _is_triton(row["kernel"]) else constants.gather
        streamed, gathered, product = (
            row["streamed_bytes"] / constants.stream,
            row["gathered_bytes"] / gather,
            row["operations"] / constants.flops,
        )
        host = launches * (constants.triton_launch_s if _is_triton(row["kernel"]) else constants.launch_s)
        gpu = max(launches * constants.shortest_s, streamed + gathered + product)
        found[name] = found.get(name, Part()) + Part(launches, host, streamed, gathered, product, gpu)
    return found


def step_s(parts: Mapping[str, Part], rest_s: float, constants: Constants) -> float:
    """Seconds of a step whose batch is sampled on the GPU."""
    sample = parts["sample"]
    rest = sum((part for name, part in parts.items() if name != "sample"), Part())
    host = sample.host_s + rest.host_s + rest_s
    return max(host, max(rest.host_s + rest_s, rest.gpu_s) + sample.gpu_s) + constants.wait_s


def rest_s(calibrated: Mapping[str, Any], constants: Constants) -> float:
    """Time of the host in the measured step that its launches do not explain."""
    return max(0.0, constants.step_s - float(calibrated["totals"]["launches"]) * constants.launch_s)


def own_s(kernel: str, constants: Constants, file: Path = HOST_STEP) -> float:
    """Time of the host in a step outside of launches, on the CPU that ran `host_step.py`: the least of its turns.

    A rate of launches includes what torch does for a launch before its kernel. This is taken out.
    """
    row = json.loads(file.read_text(encoding="utf-8"))["cases"][f"sage, gpu {kernel}"]["here"]
    within = row["launches of torch (number)"] * row["add_ by torch"]
    return float(row["least"] - within) / 1e6 + float(row["marks (number)"]) * constants.mark_s


def before(counted: Mapping[str, Any], constants: Constants) -> dict[str, float]:
    """Seconds of a step at commit ff491f9 by part: one thread prepares batches, and hides the work of the GPU."""
    layers = counted["layers"]
    rows = layers[0]["sources"] * _BEFORE_ROW_BYTES
    blocks = sum(4 * layer["edges"] + 8 * (layer["destinations"] + 1) + 4 * layer["sources"] for layer in layers)
    return {
        "sample on one thread": sum(layer["edges"] for layer in layers) / constants.sampling,
        "gather on one core": rows / constants.host_gather,
        "copy into pinned memory": rows / constants.host_copy,
        "copies of blocks": blocks / constants.pageable + _BLOCK_COPIES * constants.copy_s,
        "copy of rows to the GPU": rows / constants.h2d,
    }


def estimate(counts: Mapping[str, Any], constants: Constants, tf32: float) -> dict[str, Any]:
    """Epochs before and after, for JSON: seconds, their parts, and what bounds them."""
    steps = counts["epoch_steps"]
    old = before(counts["torch"], constants)
    rest = rest_s(counts["calibrated step"], constants)
    after = []
    for kernel in ("torch", "triton"):
        own = own_s(kernel, constants)
        for matmul, flops in (("float32", constants.flops), ("tf32", tf32)):
            chosen = replace(constants, flops=flops)
            parts = parts_of(counts[kernel]["work"], chosen)
            whole = sum(parts.values(), Part())
            after.append(
                {
                    "kernel": kernel,
                    "matmul": matmul,
                    "epoch_s": steps * step_s(parts, 0.0, chosen),
                    "epoch_with_rest_s": steps * step_s(parts, rest, chosen),
                    "gpu_s": steps * whole.gpu_s,
                    "own_s": own,
                    "epoch_with_own_s": steps * step_s(parts, own, chosen),
                    "host_s": steps * whole.host_s,
                    "parts": {name: {**asdict(part), "bound": part.bound} for name, part in parts.items()},
                }
            )
    return {
        "label": "estimate: nothing here was measured on a GPU, except the constants",
        "constants": {**asdict(constants), "flops_tf32": tf32, "triton_gather": TRITON_GATHER, "rest_s": rest},
        "epoch_steps": steps,
        "before": {"step_s": old, "epoch_s": steps * sum(old.values())},
        "after": after,
    }
