"""The trace of an epoch: figures from a profiler's events, the file, and which epochs count."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from emulated_gpu import is_wanted
from gnnexp.measure.phases import PHASES, PhaseTimes
from gnnexp.measure.record import RankRecord, record_of, reduce_trace
from gnnexp.measure.trace import covered, gpu_figures, shortened_trace, tracing
from gnnexp.record.records import summarize, warm, warm_median


def event(kind: str, name: str, start: float = 0.0, length: float = 1.0) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "ts": start, "dur": length}


def test_intervals_that_overlap_count_once() -> None:
    assert covered([]) == 0
    assert covered([(0, 2), (1, 3), (10, 11), (10, 11), (10.2, 10.4)]) == 4
    assert covered([(5, 6), (0, 10)]) == 10


def test_busy_seconds_are_those_of_kernels_of_all_streams() -> None:
    copy = {**event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 200, 50), "args": {"bytes": 70}}
    events = [
        event("kernel", "gemm", 0, 100),
        event("kernel", "softmax", 50, 100),
        event("kernel", "adam", 300, 10),
        copy,
        event("gpu_user_annotation", "step", 0, 1000),
        event("cpu_op", "aten::mm", 0, 1000),
    ]
    found = gpu_figures(events)
    assert found["gpu_busy_s"] == pytest.approx(160e-6) and (found["h2d_bytes"], found["d2h_bytes"]) == (70, 0)


def test_launches_and_waits_are_calls_of_the_host() -> None:
    launches = (
        "cudaLaunchKernel",
        "cuLaunchKernelEx",
        "cudaLaunchKernelExC",
        "cudaGraphLaunch",
        "cudaLaunchCooperativeKernel",
    )
    waits = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "cuCtxSynchronize", "cudaMemcpy")
    neither = ("cudaMemcpyAsync", "cudaStreamWaitEvent", "cudaEventRecord", "cudaEventQuery", "cudaMalloc")
    found = gpu_figures(
        [
            event("cuda_driver" if name.startswith("cu") and not name.startswith("cuda") else "cuda_runtime", name)
            for name in (*launches, *waits, *neither)
        ]
    )
    assert (found["launches"], found["waits"]) == (len(launches), len(waits))
    assert gpu_figures([event("cpu_op", "cudaLaunchKernel"), {"ph": "M"}]) == {
        "gpu_busy_s": 0.0,
        "launches": 0,
        "waits": 0,
        "h2d_bytes": 0,
        "d2h_bytes": 0,
    }


def test_a_long_trace_keeps_its_beginning_and_says_what_is_left_out() -> None:
    events = [*(event("cpu_op", str(time), time) for time in range(9, 0, -1)), {"ph": "M", "name": "process_name"}]
    kept = shortened_trace(events, 4)
    assert [one["name"] for one in kept["traceEvents"]] == ["process_name", "1", "2", "3", "4"]
    assert kept["left_out"] == 5 and shortened_trace(events)["left_out"] == 0


def test_a_trace_on_the_cpu_has_events_and_no_figures_of_a_gpu(tmp_path: Path) -> None:
    file = tmp_path / "traces" / "rank_0.json.gz"
    with tracing(torch.device("cpu"), file) as found:
        torch.rand(8, 8) @ torch.rand(8, 8)
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert "aten::mm" in {one["name"] for one in events} and found == {"events": len(events)}
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_nothing_is_traced_or_written_without_a_file_or_after_an_error(tmp_path: Path) -> None:
    with tracing(torch.device("cpu"), None) as found:
        pass
    assert found == {}
    with pytest.raises(ValueError, match="stop"), tracing(torch.device("cpu"), tmp_path / "t" / "a.json.gz"):
        raise ValueError("stop")
    assert not any(tmp_path.iterdir())


def record(trace: dict[str, float], rank: int = 0) -> RankRecord:
    return RankRecord(rank, PhaseTimes(1.0, dict.fromkeys(PHASES, 0.0)), {}, {}, {}, trace=trace)


def test_figures_of_ranks_are_summed_and_of_seconds_the_most_counts() -> None:
    ranks = [
        record({"events": 10, "launches": 5, "gpu_busy_s": 0.5}),
        record({"events": 20, "launches": 7, "gpu_busy_s": 0.3}, 1),
    ]
    found = reduce_trace(ranks)
    assert (found["trace/events"], found["trace/launches"], found["trace/gpu_busy_s"]) == (30, 12, 0.5)
    assert found["trace/gpu_busy_s_min"] == 0.3 and found["trace/gpu_busy_s_mean"] == 0.4
    assert reduce_trace([record({})]) == {} and "trace" not in record({}).to_json()
    assert record({"events": 10}).to_json()["trace"] == {"events": 10}


def test_an_epoch_of_two_pieces_has_no_figures_but_still_says_that_it_was_traced() -> None:
    assert record({"events": 10, "launches": 5}).joined(record({})).trace == {"events": 10}
    assert record({}).joined(record({})).trace == {}
    state = {
        "rank": 0,
        "times": {"epoch_s": 1.0, "phases": {}},
        "traffic": {},
        "work": {},
        "memory": {},
        "losses": [],
        "batches": {},
    }
    assert record_of(state).trace == {}, "checkpoints of earlier versions have none"


def test_a_traced_epoch_counts_in_no_median_but_its_figures_do() -> None:
    epochs = [
        {"time/epoch_s": 9.0},
        {"time/epoch_s": 5.0, "trace/events": 3.0, "trace/waits": 2.0},
        {"time/epoch_s": 1.0},
    ]
    assert warm_median(epochs, "time/epoch_s") == 1.0 and warm_median(epochs, "trace/waits") == 2.0
    assert math.isnan(warm_median(epochs, "trace/launches"))
    assert summarize([{"epoch": n, "metrics": one} for n, one in enumerate(epochs)], "acc")["time/epoch_s"] == 1.0
    assert warm(epochs[:2]) == epochs[1:2], "an epoch that was traced is better than none"


@pytest.mark.gpu
@pytest.mark.skipif(not is_wanted(), reason="make test-emulated-gpu runs these")
def test_an_emulated_gpu_counts_launches_and_waits_itself(tmp_path: Path) -> None:
    device = torch.device("cuda", 0)
    x = torch.ones(4, device=device)
    with tracing(device, tmp_path / "traces" / "a.json.gz") as found:
        (x + x + x).sum().item()
    assert (found["launches"], found["waits"]) == (3, 1) and "gpu_busy_s" not in found


@pytest.mark.gpu
@pytest.mark.skipif(is_wanted(), reason="an emulated GPU has no profiler")
def test_a_gpu_is_busy_for_part_of_the_time_that_a_trace_takes(tmp_path: Path) -> None:
    device = torch.device("cuda", 0)
    x = torch.ones(1 << 20, device=device)
    with tracing(device, tmp_path / "traces" / "a.json.gz") as found:
        for _ in range(10):
            x = x * 1.5
        torch.cuda.synchronize(device)
    assert found["launches"] >= 10 and found["waits"] >= 1 and 0 < found["gpu_busy_s"] < 1
