"""The estimate of an epoch on an H200: bytes by formulas, against counts of the record and of the emulated device."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from benchmarks.gpu.estimate import __main__ as command
from benchmarks.gpu.estimate import count, seconds
from benchmarks.gpu.estimate.kernels import kernel_work
from benchmarks.gpu.estimate.work import SECTOR, Meter, Work, by_part
from emulated_gpu import is_wanted
from gnnexp.datasets.generated.dcsbm import Dcsbm

FANOUTS, WIDTHS = [4, 3, 2], [20, 256, 256, 7]


def metered(work) -> dict[str, Work]:
    meter = Meter(lambda: "part", "cpu")
    with meter:
        work()
    return {kernel: one for (_, kernel), one in meter.found.items()}


def test_bytes_of_operations_are_those_of_their_tensors() -> None:
    x, y, rows = torch.rand(100, 8), torch.rand(100, 8), torch.arange(0, 100, 7)
    found = metered(lambda: (x + y, x @ y.T, x[rows], x.view(-1), x.expand(3, 100, 8) + 1, torch.empty(5)))
    assert found["mm"] == Work(1, 4 * (800 + 800 + 100 * 100), 0, 2 * 100 * 100 * 8)
    assert found["index"] == Work(1, 8 * 15 + 2 * 32 * 15), "rows of 32 bytes are read and written, and the numbers"
    assert found["add"] == Work(2, 3 * 3200 + 3200 + 3 * 3200), "a repeated dimension is read once"
    assert set(found) == {"mm", "index", "add"}
    narrow = torch.rand(100, 1)
    assert metered(lambda: narrow.index_select(0, rows))["index_select"].streamed_bytes == 15 * (8 + 4 + SECTOR)


def test_a_sum_over_edges_gathers_a_row_for_each_edge() -> None:
    x = torch.rand(50, 16, requires_grad=True)
    indices, offsets = torch.randint(50, (200,)), torch.arange(0, 201, 10)

    def work() -> None:
        F.embedding_bag(indices, x, offsets, mode="sum", include_last_offset=True).sum().backward()

    bags = {name: one for name, one in metered(work).items() if name.startswith("_embedding_bag")}
    assert len(bags) == 2 and all(one.gathered_bytes == 200 * 16 * 4 for one in bags.values())


def test_a_fused_optimizer_is_counted_although_it_returns_nothing() -> None:
    parameter = torch.rand(1000, requires_grad=True)
    parameter.grad = torch.rand(1000)
    optimizer = torch.optim.Adam([parameter], fused=True)
    found = metered(optimizer.step)["_fused_adam_"]
    assert found.launches == 1 and found.streamed_bytes >= 7 * 4000, "the planner's passes over parameters"


def test_a_pass_over_edges_of_triton_reads_a_row_for_each_edge() -> None:
    tensors = {
        "indptr": torch.zeros(11, dtype=torch.int64),
        "index": torch.zeros(60, dtype=torch.int32),
        "x": torch.rand(30, 64),
        "out": torch.rand(10, 64),
        "partial": None,
    }
    numbers = {"start": 0, "stop": 64, "OF_SEGMENTS": False}
    work = kernel_work("edge_pass_kernel", {**tensors, **numbers})
    assert work == Work(1, 11 * 8 + 60 * 4 + 10 * 64 * 4, 60 * 64 * 4)
    assert kernel_work("edge_pass_kernel", {**tensors, **numbers, "OF_SEGMENTS": True}) == Work(1)


@pytest.fixture(scope="module")
def steps() -> list[dict]:
    graph = Dcsbm(num_nodes=3000, num_edges=30_000, num_features=WIDTHS[0], num_classes=WIDTHS[-1]).load()
    config = count.configuration("torch", "cpu", "host", FANOUTS, 64)
    return count.counted_steps(config, graph, 2, uncounted=True)


def test_gathered_bytes_are_those_that_follow_from_counts_of_the_record(steps: list[dict]) -> None:
    """The formula of `planning.work`: rows of a layer's edges, at the smaller width, forward and backward."""
    for step in steps:
        gathered = sum(work.gathered_bytes for work in step["work"].values())
        expected = 0
        for layer, ((wide, narrow), sizes) in enumerate(zip(pairwise(WIDTHS), step["layers"], strict=True), 1):
            before = wide <= narrow
            passes = 1 if before and layer == 1 else 2
            expected += passes * (wide if before else narrow) * 4 * sizes["edges"]
        assert gathered == expected


def test_operations_are_those_of_three_products_for_each_weight(steps: list[dict]) -> None:
    for step in steps:
        found, expected = sum(work.operations for work in step["work"].values()), 0
        for layer, ((wide, narrow), sizes) in enumerate(zip(pairwise(WIDTHS), step["layers"], strict=True), 1):
            projected = sizes["destinations"] if wide <= narrow else sizes["sources"]
            passes = 2 if layer == 1 else 3
            expected += passes * 2 * wide * narrow * (projected + sizes["destinations"])
        assert found == expected


def test_parts_of_a_step_are_its_phases(steps: list[dict]) -> None:
    parts = dict(by_part(steps[0]["work"]))
    assert {"forward", "loss", "backward", "update"} <= set(parts)
    mean = count.mean(steps)
    assert (
        sum(row["launches"] for row in mean["work"])
        == sum(work.launches for step in steps for work in step["work"].values()) / 2
    )


def test_a_step_takes_what_its_host_or_its_gpu_takes() -> None:
    constants, _ = seconds.measured()
    parts = {"sample": seconds.Part(host_s=1e-3, gpu_s=2e-3), "compute": seconds.Part(host_s=2e-3, gpu_s=5e-3)}
    assert seconds.step_s(parts, 0.0, constants) == pytest.approx(7e-3 + constants.wait_s)
    assert seconds.step_s(parts, 9e-3, constants) == pytest.approx(13e-3 + constants.wait_s)
    work = [
        {
            "part": "forward",
            "kernel": "mm",
            "launches": 1,
            "streamed_bytes": 0,
            "gathered_bytes": 0,
            "operations": constants.flops,
        }
    ]
    assert seconds.parts_of(work, constants)["compute"].product_s == 1.0
    assert seconds.parts_of(work, constants)["compute"].bound == "products"


def test_the_committed_estimate_follows_from_the_committed_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = json.loads(count.COUNTS.read_text())
    assert counts["graph"]["num_nodes"] == 2_449_029 and counts["graph"]["scale"] == 1.0
    assert counts["epoch_steps"] == 192 and counts["torch"]["layers"] == counts["triton"]["layers"]
    command.main(["--out", str(tmp_path / "estimate.json")])
    assert "ESTIMATE" in capsys.readouterr().out
    assert json.loads((tmp_path / "estimate.json").read_text()) == json.loads(
        (command.FOLDER / "estimate.json").read_text()
    )


@pytest.mark.gpu
@pytest.mark.skipif(not is_wanted(), reason="make test-emulated-gpu runs these")
def test_the_meter_counts_the_launches_that_the_emulated_device_counts() -> None:
    graph = Dcsbm(num_nodes=3000, num_edges=30_000, num_features=WIDTHS[0], num_classes=WIDTHS[-1]).load()
    for step in count.counted_steps(count.configuration("torch", "cuda", "device", FANOUTS, 64), graph, 2):
        metered = sum(work.launches for work in step["work"].values())
        assert step["totals"]["waits"] == 1
        assert metered == pytest.approx(step["totals"]["launches"], rel=0.02)
