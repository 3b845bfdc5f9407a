"""How pairs of GPUs are connected, and how fast each pair exchanges rows (`gnnexp calibrate`).

All ranks that exchange at once are as fast as their slowest link. A machine with NVLink between some GPUs and PCIe
between others is understood only pair by pair.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import torch

from gnnexp.planning.probes import WIDTH, Bench, random_rows
from gnnexp.provenance.machine import output_of

UNKNOWN, SAME = "unknown", "no link: ranks share the GPU"
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Pair:
    """Two ranks whose GPUs exchange rows while all other ranks are idle.

    Attributes:
        ranks: both ranks, ascending.
        link: the kind of connection, as `nvidia-smi` names it. NV and a number are NVLinks. PIX, PXB, PHB, NODE and
            SYS are PCIe, nearest first. `SAME`: both ranks have the same GPU. `UNKNOWN`: `nvidia-smi` does not say it.
        rates: bytes per second that each of them sends, for each repetition.
    """

    ranks: tuple[int, int]
    link: str
    rates: tuple[float, ...]


def pairs_of_ranks(bench: Bench) -> list[Pair]:
    """Measure all pairs, one after another. All ranks must call this; all get the same list."""
    comm = bench.comm
    kinds = _gathered(bench, links_of(smi_output()))
    devices = _gathered(bench, str(torch.cuda.get_device_properties(bench.device).uuid))
    measured = [(first, second, _rates(bench, first, second)) for first, second in combinations(range(comm.size), 2)]
    of_ranks = _gathered(bench, [rates for _, _, rates in measured])
    return [
        Pair((first, second), _link(kinds[first], devices[first], devices[second]), tuple(of_ranks[first][place]))
        for place, (first, second, _) in enumerate(measured)
    ]


def _gathered(bench: Bench, value: Any) -> list[Any]:  # noqa: ANN401  any object
    return bench.comm.gather_objects(value)


def _link(kinds: Mapping[tuple[str, str], str], one: str, other: str) -> str:
    return SAME if one == other else kinds.get((one, other), UNKNOWN)


def _rates(bench: Bench, first: int, second: int) -> list[float]:
    """Bytes per second of an exchange between two ranks; empty on all others, which only take part."""
    comm, num_rows = bench.comm, bench.extent.exchange_bytes // (4 * WIDTH)
    peer = {first: second, second: first}.get(comm.rank)
    counts = [num_rows if rank == peer else 0 for rank in range(comm.size)]
    rows = random_rows(sum(counts), WIDTH, bench.device)
    rates = []
    for _ in range(bench.extent.repetitions + 1):
        comm.ledger.take()
        comm.all_to_all(rows, counts, counts, "features")
        traffic = comm.ledger.take()["features"]
        rates.append(traffic.sent_bytes / traffic.seconds)
    return [] if peer is None else rates[1:]


@dataclass(frozen=True)
class SmiOutput:
    """What `nvidia-smi` says of a machine; empty texts if there is no `nvidia-smi`.

    Attributes:
        gpus: `--query-gpu=index,uuid` as CSV without a header.
        matrix: `topo -m`.
    """

    gpus: str
    matrix: str


def smi_output() -> SmiOutput:
    """What `nvidia-smi` says of this machine."""
    return SmiOutput(
        output_of(["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]),
        output_of(["nvidia-smi", "topo", "-m"]),
    )


def links_of(output: SmiOutput) -> dict[tuple[str, str], str]:
    """The connection of every two GPUs by their UUIDs, in both orders."""
    uuids = dict(re.findall(r"^\s*(\d+),\s*GPU-(\S+)\s*$", output.gpus, re.MULTILINE))
    lines = [_TERMINAL_CODES.sub("", line).split() for line in output.matrix.splitlines()]
    rows = {
        cells[0][3:]: cells[1:]
        for cells in lines
        if len(cells) > 1 and re.fullmatch(r"GPU\d+", cells[0]) and "X" in cells[1:]
    }
    columns = list(rows)  # the matrix has its GPUs in the same order as rows and as columns
    return {
        (uuids[name], uuids[other]): link
        for name, links in rows.items()
        for other, link in zip(columns, links, strict=False)
        if link != "X" and name in uuids and other in uuids
    }


def link_lines(pairs: Sequence[Pair]) -> list[str]:
    """A line for each kind of connection: number of pairs, median and range of their rates."""
    lines = []
    for link in sorted({pair.link for pair in pairs}):
        rates = [statistics.median(pair.rates) for pair in pairs if pair.link == link]
        lines.append(
            f"pairs of GPUs connected by {link}: {len(rates)}; each pair alone, bytes per second and "
            f"direction: {statistics.median(rates):.3g} ({min(rates):.3g} to {max(rates):.3g})"
        )
    return lines


def as_facts(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """The pairs for JSON."""
    return [asdict(pair) for pair in pairs]


def from_facts(facts: Sequence[Mapping[str, Any]]) -> list[Pair]:
    """`as_facts`, read again."""
    return [Pair((one["ranks"][0], one["ranks"][1]), one["link"], tuple(one["rates"])) for one in facts]
