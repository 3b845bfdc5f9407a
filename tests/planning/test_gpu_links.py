"""The links between GPUs: what `nvidia-smi` says, and the rates of pairs of ranks."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from emulated_gpu import is_wanted
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import read_environment
from gnnexp.measure.phases import PhaseTimer
from gnnexp.planning.gpu_links import (
    SAME,
    UNKNOWN,
    Pair,
    SmiOutput,
    as_facts,
    from_facts,
    link_lines,
    links_of,
    pairs_of_ranks,
)
from gnnexp.planning.probes import QUICK, Bench

GPUS = "0, GPU-aa\n1, GPU-bb\n2, GPU-cc\n"
MATRIX = "\n".join(
    [
        "\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m",
        "GPU0\t X \tNV18\tSYS\tPIX\t0-51\t0\t\tN/A",
        "GPU1\tNV18\t X \tPHB\tSYS\t0-51\t0\t\tN/A",
        "GPU2\tSYS\tPHB\t X \tSYS\t52-103\t1\t\tN/A",
        "NIC0\tPIX\tSYS\tSYS\t X \t\t\t\t",
        "",
        "Legend:",
        "",
        "  X    = Self",
        "  NV#  = Connection of # NVLinks",
    ]
)


def test_nvlink_and_pcie_are_told_apart() -> None:
    found = links_of(SmiOutput(GPUS, MATRIX))
    assert found == {
        ("aa", "bb"): "NV18",
        ("bb", "aa"): "NV18",
        ("aa", "cc"): "SYS",
        ("cc", "aa"): "SYS",
        ("bb", "cc"): "PHB",
        ("cc", "bb"): "PHB",
    }


@pytest.mark.parametrize(
    "said", [SmiOutput("", ""), SmiOutput(GPUS, ""), SmiOutput("", MATRIX), SmiOutput(GPUS, "GPU0\n\nno matrix\n")]
)
def test_a_machine_that_says_too_little_has_no_known_links(said: SmiOutput) -> None:
    assert links_of(said) == {}


def test_pairs_are_told_by_their_link() -> None:
    pairs = [Pair((0, 1), "NV18", (3e11, 4e11, 5e11)), Pair((2, 3), "NV18", (2e11, 2e11)), Pair((0, 2), "SYS", (2e10,))]
    assert from_facts(as_facts(pairs)) == pairs
    nvlink, pcie = link_lines(pairs)
    assert "by NV18: 2;" in nvlink and "3e+11 (2e+11 to 4e+11)" in nvlink
    assert "by SYS: 1;" in pcie and link_lines([]) == []


def _pairs() -> list[Pair]:
    environment = read_environment()
    device = torch.device("cuda", environment.rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return pairs_of_ranks(Bench(QUICK, Communicator(environment, PhaseTimer(), device), device))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [2, 3])
def test_each_pair_of_ranks_is_measured_alone_and_known_to_all(ranks, size: int) -> None:
    found = ranks(size).run(_pairs)
    assert all(pairs == found[0] for pairs in found)
    assert [pair.ranks for pair in found[0]] == list(combinations(range(size), 2))
    assert all(len(pair.rates) == QUICK.repetitions and min(pair.rates) > 0 for pair in found[0])
    shares = size > torch.cuda.device_count()
    wanted = {SAME, UNKNOWN} if is_wanted() and shares else {UNKNOWN} if is_wanted() else None
    assert wanted is None or {pair.link for pair in found[0]} <= wanted
