"""Seconds from counts and figures, by hand; profiles say what they must, or what they lack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.errors import ConfigError
from gnnexp.experiment.build import hardware_of
from gnnexp.planning.estimate import estimate_epoch
from gnnexp.planning.machine import Machine, all_machines, machine_named, machine_of_profile, machines_named
from gnnexp.planning.work import Workload

WORK = Workload(
    ranks=4,
    sampled_edges=640,
    loaded_bytes={"host": 1000},
    gathered_bytes=2000,
    flops=6000,
    sent_bytes={"frontier": 100, "features": 200, "activations": 300, "gradients": 400},
    rounds={"frontier": 1, "features": 2, "activations": 3, "gradients": 4, "sizes": 5},
    crossing_bytes=50,
    device_bytes=999,
)
GPU = {
    "nodes": 1,
    "workers": 4,
    "device": "cuda",
    "flops": 100.0,
    "gather": 64.0,
    "latency": 0.5,
    "device_memory": 1000,
    "links": {"h2d": 10.0, "d2d": 20.0, "network": None},
}


def described(name: str, hardware: dict[str, Any]) -> Machine:
    return machine_of_profile(name, hardware_of({"hardware": hardware}))


def test_parts_by_hand() -> None:
    told = estimate_epoch(WORK, described("gpu", GPU))
    # Sizes travel where ranks meet anyway, so they add no latency. The traffic is that of sampled batches.
    assert told.sample_s == pytest.approx(640 / (64 / 64) + 100 / 20 + 1 * 0.5)
    assert told.load_s == pytest.approx(1000 / 10 + 50 / 10 + 200 / 20 + 2 * 0.5)
    assert told.forward_backward_s == pytest.approx(2000 / 64 + 6000 / 100 + 300 / 20 + 3 * 0.5)
    assert told.sync_s == pytest.approx(400 / 20 + 4 * 0.5)
    assert told.epoch_s == pytest.approx(told.sample_s + told.load_s + told.forward_backward_s + told.sync_s)
    assert told.fits and not estimate_epoch(WORK.scaled(2), described("gpu", GPU)).fits


def test_the_full_graph_s_chunks_cross_while_it_is_worked_on() -> None:
    told = estimate_epoch(replace(WORK, sampled_edges=0), described("gpu", GPU))
    assert told.forward_backward_s == pytest.approx(2000 / 64 + 6000 / 100 + 50 / 10 + 300 / 20 + 3 * 0.5)


def test_products_in_tf32_have_a_rate_of_their_own_and_those_in_bf16_have_none() -> None:
    gpu = described("gpu", {**GPU, "flops_tf32": 300.0})
    plain, faster = (
        estimate_epoch(replace(WORK, matmul=matmul), gpu).forward_backward_s for matmul in ("float32", "tf32")
    )
    assert plain - faster == pytest.approx(6000 / 100 - 6000 / 300)
    assert gpu.product_rate("bf16") is None and described("gpu", GPU).product_rate("tf32") is None


def test_elementwise_work_and_steps() -> None:
    more = replace(WORK, elementwise_bytes=960, steps=3)
    measured = {**GPU, "stream": 32.0, "step_s": 2.0}
    plain = estimate_epoch(WORK, described("gpu", GPU)).forward_backward_s
    # A data sheet has one bandwidth for both, and says nothing of steps.
    assert estimate_epoch(more, described("gpu", GPU)).forward_backward_s == pytest.approx(plain + 960 / 64)
    assert estimate_epoch(more, described("gpu", measured)).forward_backward_s == pytest.approx(
        plain + 960 / 32 + 3 * 2
    )


def test_batches_prepared_ahead_hide_all_of_the_shorter_but_its_first_batch() -> None:
    told = estimate_epoch(replace(WORK, ahead=True, steps=4), described("gpu", GPU))
    prepared, trained = told.sample_s + told.load_s, told.forward_backward_s + told.sync_s
    assert prepared > trained and told.hidden_s == pytest.approx(trained * 3 / 4)
    assert told.epoch_s == pytest.approx(prepared + trained / 4)


def test_pipelined_exchanges_pass_behind_the_work_on_other_chunks() -> None:
    told = estimate_epoch(replace(WORK, pipelined=4, pipelined_bytes=200), described("gpu", GPU))
    assert told.hidden_s == pytest.approx(200 / 20 * 3 / 4)  # less than what is computed meanwhile
    endless = estimate_epoch(
        replace(WORK, pipelined=4, pipelined_bytes=1e9, sent_bytes={"activations": 1e9}), described("gpu", GPU)
    )
    computed = 2000 / 64 + 6000 / 100
    assert endless.hidden_s == pytest.approx(computed * 3 / 4)


def test_on_one_host_the_same_cores_do_everything() -> None:
    cpu = {**GPU, "device": "cpu", "links": {"h2d": None, "d2d": None, "network": 20.0}}
    busy = replace(WORK, ahead=True, steps=4, pipelined=4, pipelined_bytes=200)
    assert estimate_epoch(busy, described("cpu", cpu)).hidden_s == 0
    assert estimate_epoch(busy, described("cpu", {**cpu, "nodes": 4, "workers": 1})).hidden_s > 0


def test_chunks_are_made_small_enough() -> None:
    told = estimate_epoch(replace(WORK, device_bytes=2500, chunked=True), described("gpu", GPU))
    assert told.fits and told.more_chunks == 3 and told.device_bytes == pytest.approx(2500 / 3)
    assert not estimate_epoch(replace(WORK, device_bytes=2500), described("gpu", GPU)).fits


COUNTS = st.floats(0, 1e12)
_TAGS = ("frontier", "features", "activations", "gradients")


@st.composite
def works(draw: st.DrawFn) -> Workload:
    named = {tag: draw(COUNTS) for tag in _TAGS}
    return Workload(
        4,
        draw(COUNTS),
        {"host": draw(COUNTS), "disk": draw(COUNTS)},
        draw(COUNTS),
        draw(COUNTS),
        named,
        {tag: draw(COUNTS) for tag in _TAGS},
        draw(COUNTS),
        1.0,
        elementwise_bytes=draw(COUNTS),
        steps=draw(st.integers(1, 1000)),
    )


@given(
    works(),
    st.sampled_from(["sampled_edges", "gathered_bytes", "flops", "elementwise_bytes", "steps"]),
    st.floats(1, 100),
)
def test_linear_in_each_count(work: Workload, name: str, more: float) -> None:
    machine = described("gpu", {**GPU, "step_s": 1.0})
    work = replace(work, sampled_edges=work.sampled_edges + 1)  # of a system that samples, whatever is scaled
    nothing, once, several = (
        estimate_epoch(replace(work, **{name: getattr(work, name) * by}), machine).epoch_s for by in (1, 2, 1 + more)
    )
    assert several - nothing == pytest.approx(more * (once - nothing), rel=1e-6, abs=1e-9 * several)


@given(works(), st.sampled_from(_TAGS), st.floats(1, 100))
def test_linear_in_bytes_and_rounds(work: Workload, tag: str, more: float) -> None:
    machine = described("gpu", GPU)
    for name in ("sent_bytes", "rounds"):
        counts = getattr(work, name)
        nothing, once, several = (
            estimate_epoch(replace(work, **{name: {**counts, tag: counts[tag] * by}}), machine).epoch_s
            for by in (1, 2, 1 + more)
        )
        assert several - nothing == pytest.approx(more * (once - nothing), rel=1e-6, abs=1e-9 * several)


@given(works(), st.sampled_from(["flops", "gather", "stream", "sampling"]), st.floats(1, 1e6), st.booleans())
def test_a_faster_machine_is_never_slower(work: Workload, name: str, times: float, overlaps: bool) -> None:
    work = replace(work, ahead=overlaps, pipelined=4 * overlaps, pipelined_bytes=work.sent_bytes["activations"])
    rate = {"stream": 64.0, "sampling": 1.0} | GPU
    faster = {**rate, name: rate[name] * times}
    assert estimate_epoch(work, described("fast", faster)).epoch_s <= estimate_epoch(
        work, described("gpu", rate)
    ).epoch_s * (1 + 1e-9)


@given(works(), st.sampled_from(["h2d", "d2d"]), st.floats(1, 1e6), st.booleans())
def test_a_wider_link_is_never_slower(work: Workload, name: str, times: float, overlaps: bool) -> None:
    work = replace(work, ahead=overlaps, pipelined=4 * overlaps, pipelined_bytes=work.sent_bytes["activations"])
    faster = {**GPU, "links": {**GPU["links"], name: GPU["links"][name] * times}}
    assert estimate_epoch(work, described("fast", faster)).epoch_s <= estimate_epoch(
        work, described("gpu", GPU)
    ).epoch_s * (1 + 1e-9)


@pytest.mark.parametrize(
    ("changes", "link", "host"),
    [
        ({}, 20, 10),  # devices of a host, directly
        ({"links": {"h2d": 10.0, "d2d": None, "network": 5.0}}, 10, 10),  # through the host
        (
            {"nodes": 2, "workers": 2, "links": {"h2d": 10.0, "d2d": 20.0, "network": 5.0}},
            2.5,
            10,
        ),  # ranks share a node's
        ({"device": "cpu", "links": {"h2d": None, "d2d": None, "network": 5.0}}, 5, 64),  # nothing crosses
    ],
)
def test_which_link_ranks_talk_over(changes: dict[str, Any], link: float, host: float) -> None:
    machine = described("one", {**GPU, **changes})
    assert (machine.link, machine.host) == (link, host)


def test_a_host_that_computes_brings_nothing_to_a_device() -> None:
    on_host = described("cpu", {**GPU, "device": "cpu", "links": {"h2d": None, "d2d": None, "network": 20.0}})
    work = replace(WORK, sampled_edges=0)
    assert estimate_epoch(work, on_host).forward_backward_s == pytest.approx(2000 / 64 + 60 + 300 / 20 + 1.5)


def test_a_measured_rate_of_sampling_wins() -> None:
    assert described("gpu", {**GPU, "sampling": 7.0}).sampling == 7


def test_what_a_profile_lacks_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        described("gpu", {**GPU, "flops": None, "gather": 0, "links": {}, "nodes": 2})
    assert [problem.key for problem in caught.value.problems] == [
        "hardware.flops",
        "hardware.gather",
        "hardware.links.network",
    ]
    with pytest.raises(ConfigError) as caught:
        machines_named(["p3_8xlarg", "local"])
    text = str(caught.value)
    assert "p3_8xlarge" in text and "hardware.flops" in text


@pytest.mark.parametrize("name", ["p3_8xlarge", "p3_16xlarge", "t4x16_15gbps", "a100x4_nvlink", "a6000x4"])
def test_the_papers_machines_say_enough(name: str) -> None:
    machine = machine_named(name)
    assert machine.flops > 1e12 and machine.gather > 1e11 and 0 < machine.latency < 1e-3 and machine.link > 1e8


def test_a_profile_of_the_user_s_and_all_profiles_that_say_enough_and_the_names_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / "mine.yaml").write_text(
        "defaults: [local, _self_]\nworkers: 2\ndevice: cpu\nflops: 1.0e+9\ngather: 2.0e+9\nlatency: 1.0e-4\n"
        "links: {h2d: null, d2d: null, network: 3.0e+9}\n"
    )
    machine = machine_named("mine", str(tmp_path))
    assert (machine.flops, machine.gather, machine.link, machine.workers) == (1e9, 2e9, 3e9, 2)
    found, untold = all_machines(str(tmp_path))
    names = {machine.name for machine in found}
    assert {"mine", "p3_8xlarge", "t4x16_15gbps", "local_measured"} <= names
    assert {"local", "xeon_hdr200"} <= set(untold) and not names & set(untold)


def full_graph(vertices: float, edges: float, dims: list[int], ranks: int) -> Workload:
    """What a rank holds of a full graph in memory: rows of every layer with their gradients, copies, its edges.

    Copies of other ranks' rows: of as many vertices as it owns, less than any of the partitions has (the graphs have 10
    to 500 edges per vertex), of what layers read.
    """
    held = vertices / ranks * (sum(dims) * 2 + sum(dims[:-1])) * 4 + edges / ranks * 8
    return Workload(ranks, 0, {}, 0, 0, {}, {}, 0, held)


@pytest.mark.parametrize(
    ("name", "vertices", "edges", "dims", "machine", "fits"),
    [
        # HongTu, Table 6: HongTu-IM on 4 x 80 GB, a hidden layer of 128 (256 on the small graphs).
        ("reddit", 0.23e6, 114e6, [602, 256, 41], "a100x4_nvlink", True),
        ("products", 2.4e6, 62e6, [100, 256, 47], "a100x4_nvlink", True),
        ("papers100m", 111e6, 1.6e9, [200, 128, 128, 172], "a100x4_nvlink", False),
        # NeutronTP, Table 2: NeutronStar and Sancus on 16 x 16 GB.
        ("reddit", 0.23e6, 114e6, [602, 256, 41], "t4x16_15gbps", True),
        ("products", 2.45e6, 61.7e6, [100, 64, 47], "t4x16_15gbps", True),
        ("papers100m", 111.1e6, 1.616e9, [128, 128, 172], "t4x16_15gbps", False),
        ("friendster", 65.6e6, 2.5e9, [256, 128, 64], "t4x16_15gbps", False),
    ],
)
def test_full_graphs_out_of_memory(
    name: str, vertices: float, edges: float, dims: list[int], machine: str, fits: bool
) -> None:
    """By the definition of what such a system holds alone."""
    work = full_graph(vertices, edges, dims, machine_named(machine).nodes * machine_named(machine).workers)
    assert estimate_epoch(work, machine_named(machine)).fits == fits
    assert estimate_epoch(replace(work, chunked=True), machine_named(machine)).fits
