"""The program of every rank of `gnnexp calibrate`: `python -m gnnexp.planning.calibration FOLDER`.

A launcher starts it. It reads `FOLDER/calibration.json`. Rank 0 writes `FOLDER/figures.json`: for each figure the
repetitions of every rank.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnexp.comm.environment import Environment
from gnnexp.training.rank import as_rank, preload

if TYPE_CHECKING:  # torch is slow to import; it is imported after this process is tied to its launcher
    from gnnexp.comm.communicator import Meeting
    from gnnexp.graph.graph import Graph
    from gnnexp.measure.phases import PhaseTimer
    from gnnexp.planning.probes import Bench
    from gnnexp.record.heartbeat import Heartbeat

# `preload` loads the same modules as for the ranks of a run.
__all__ = ["FIGURES", "REQUEST", "calibrate", "main", "preload"]
REQUEST, FIGURES = "calibration.json", "figures.json"


def calibrate(folder: Path, environment: Environment, started: list[PhaseTimer], heartbeat: Heartbeat) -> str:
    """Measure on this rank together with all others. Returns an empty text, because a calibration is never stopped."""
    from gnnexp.comm.communicator import connect
    from gnnexp.experiment.build import experiment_of
    from gnnexp.graph.storage.format import open_graph
    from gnnexp.planning.probes import probe_step
    from gnnexp.record.records import write_json

    request = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
    bench, facts = _bench(folder, request, environment, heartbeat, connect)
    sampled, tiny = (open_graph(Path(request[name])) for name in ("sampled", "tiny"))
    seconds_of = {name: probe() for name, probe in probes(bench, sampled).items()}
    seconds_of["step_s"] = probe_step(experiment_of(request["config"]), tiny, bench.comm, bench.extent.repetitions)
    facts["pairs"] = _pairs(bench)
    ranks = bench.comm.gather_objects(seconds_of)
    if environment.rank == 0:
        write_json(folder / FIGURES, {"ranks": ranks, **facts})
    bench.comm.close()
    return ""


def probes(bench: Bench, graph: Graph) -> Mapping[str, Callable[[], list[float]]]:
    """Functions that measure this device, by the name of the figure; `d2d` measures exchange between devices."""
    from gnnexp.planning import probes as own

    own_probes: dict[str, Callable[[], list[float]]] = {
        "flops": lambda: own.probe_flops(bench),
        "gather": lambda: own.probe_gather(bench),
        "stream": lambda: own.probe_stream(bench),
        "sampling": lambda: own.probe_sampling(bench, graph),
        "latency": lambda: own.probe_latency(bench),
    }
    if bench.device.type == "cpu":
        return {**own_probes, "network": lambda: own.probe_exchange(bench)}
    from gnnexp.planning.gpu_probes import gpu_probes

    return {**own_probes, "d2d": lambda: own.probe_exchange(bench), **gpu_probes(bench)}


def _pairs(bench: Bench) -> list[dict[str, Any]]:
    """Links between the GPUs of all pairs of ranks; empty without GPUs, and for one rank."""
    if bench.device.type == "cpu" or bench.comm.size == 1:
        return []
    from gnnexp.planning.gpu_links import as_facts, pairs_of_ranks

    return as_facts(pairs_of_ranks(bench))


def _bench(
    folder: Path,
    request: Mapping[str, Any],
    environment: Environment,
    heartbeat: Heartbeat,
    connect: Callable[..., Meeting],
) -> tuple[Bench, dict[str, Any]]:
    import torch

    from gnnexp.comm.communicator import Communicator
    from gnnexp.experiment.build import hardware_of
    from gnnexp.measure.phases import PhaseTimer
    from gnnexp.planning.probes import Bench, Extent, on_gpu
    from gnnexp.training.assemble import choose_device, set_threads

    hardware = hardware_of(request["config"])
    device, threads = choose_device(hardware, environment), set_threads(hardware, environment)
    timer = PhaseTimer()
    heartbeat.watch(timer)
    with timer.activity.exchange():
        meeting = connect(environment, device, hardware.timeout_s, folder)
    comm = Communicator(environment, timer, device, timeout_s=hardware.timeout_s, meeting=meeting)
    extent = Extent(**request["extent"])
    if device.type == "cuda" and not request["quick"]:
        sharing = -(-environment.local_ranks // torch.cuda.device_count())
        free_bytes, _ = torch.cuda.mem_get_info(device)
        comm.barrier()  # no rank allocates memory before all ranks have read the free memory
        extent = on_gpu(extent, free_bytes // sharing)
    facts = {"threads": threads, "backend": meeting.carrier, "device": device.type, "extent": asdict(extent)}
    return Bench(extent, comm, device), facts


def main() -> int:
    """Run one rank; returns the exit code."""
    return as_rank(calibrate)


if __name__ == "__main__":
    sys.exit(main())
