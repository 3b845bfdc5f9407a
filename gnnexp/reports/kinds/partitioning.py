"""What partitions are worth and what they cost (SDT-GNN, Figures 6, 7 and 9, Tables I and II)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnnexp.record.runs import Run
from gnnexp.reports.published.cells import printed
from gnnexp.reports.published.graphs import published_graph
from gnnexp.reports.table import Table
from gnnexp.reports.values.setting import setting_of

SPRING = "spring"
# A partition with a part of more than this times the mean, of vertices or in a vertex-cut of edges, is not compared.
COLLAPSED = 2.0
# An edge of a stream, its two ends as int32: the smallest form in which the raw graph comes.
_EDGE_BYTES = 8
_COLUMNS = (
    "dataset", "parts", "partitioner", "copies, full", "copies, artifact", "copies, cut", "SPRING / it, full",
    "SPRING / it, artifact", "edge cut %", "balance vertices", "balance edges", "balance train", "seconds",
    "SPRING faster", "added MB", "data MB", "clusters (size)", "merged (size)",
)
_PAPER_COLUMNS = ("paper's METIS GB (data)", "paper's clusters (size)", "paper's merged (size)")
_CAPTION = (
    "Copies: vertices that parts hold, per vertex. Full: one home per vertex, all its in-neighbours there. Artifact: a "
    "part has these and both ends of its edges, as SDT-GNN's published code counts (whose homes are those of "
    "partitioner.home=last). Cut: a part has its vertices and both ends of its edges; –: an edge-cut, where all three "
    "are one. SPRING / it: SPRING's copies in units of this partitioner's (below 1: SPRING copies less). SPRING "
    "faster: this partitioner's seconds in units of SPRING's. Both for the same graph and parts, and the same order of "
    "edges where there is one. Balance: the largest part over the mean; of edges in an edge-cut: in-edges. Collapsed: "
    "a part has more than twice the mean of vertices, or in a vertex-cut of edges; never compared. Added: peak memory "
    "of the process less what it had before, the mapped graph included; –: not recorded, and seconds include "
    "loading kernels. Data: the directed edges as pairs of int32. MB: 10^6 bytes. Clusters: before and after merging, "
    "mean size ± deviation."
)


@dataclass(frozen=True)
class Partitioned:
    """A partition that some run made or took from the cache.

    Attributes:
        graph: content key of its dataset.
        dataset: to be read.
        published: the graph that a paper has figures of, which this is or is like; see `published_graph`.
        method: the partitioner's choice (`spring`).
        partitioner: the same, with options in which runs with it differ.
        order: of the streamed edges, `null` where the partitioner has none.
        quality: see `Run.quality`.
    """

    graph: str
    dataset: str
    published: str
    method: str
    partitioner: str
    order: str
    quality: Mapping[str, float]

    @property
    def parts(self) -> int:
        """How many."""
        return int(self.quality["parts"])

    @property
    def cuts_vertices(self) -> bool:
        """Whether edges have owners of their own."""
        return _cuts_vertices(self.quality)

    @property
    def collapsed(self) -> bool:
        """Whether a part is so large that the partition is not compared."""
        return has_collapsed(self.quality)

    @property
    def data_bytes(self) -> int:
        """Of the raw graph: every edge has one part, in which its destination or the edge itself is at home."""
        return _EDGE_BYTES * int(sum(self.quality[f"part{part}/edges"] for part in range(self.parts)))

    @property
    def added_bytes(self) -> float | None:
        """Peak memory beyond what the process had before; None where that was not recorded."""
        before = self.quality.get("rss_before_bytes")
        return None if before is None else max(0.0, self.quality["peak_rss_bytes"] - before)


def has_collapsed(quality: Mapping[str, float]) -> bool:
    """Whether a part has more than `COLLAPSED` times the mean, of vertices, or in a vertex-cut of edges."""
    balances = ("balance_vertices", "balance_edges") if _cuts_vertices(quality) else ("balance_vertices",)
    return any(quality.get(name, 1.0) > COLLAPSED for name in balances)


def _cuts_vertices(quality: Mapping[str, float]) -> bool:
    """In an edge-cut all definitions of copies are one."""
    return quality["replication_cut"] != quality["replication_full"]


def find_partitions(runs: Sequence[Run]) -> list[Partitioned]:
    """Of every graph, in order of first appearance, with rising numbers of parts: the partitions, each once."""
    known = {Path(run.provenance["partition"]).name: run for run in runs if run.quality}
    names = _names(list(known.values()))
    found = [_partitioned(run, name) for run, name in zip(known.values(), names, strict=True)]
    graphs = list(dict.fromkeys(one.graph for one in found))
    return sorted(found, key=lambda one: (graphs.index(one.graph), one.parts))


def _partitioned(run: Run, name: str) -> Partitioned:
    return Partitioned(
        str(run.provenance.get("dataset_key", "")), setting_of(run).dataset, published_graph(run),
        run.value("partitioner"), name, run.value("partitioner.order"), run.quality)


def _names(runs: Sequence[Run]) -> list[str]:
    """The partitioner of each run, with those of its options in which runs with the same one differ."""
    names = []
    for run in runs:
        method = run.value("partitioner")
        peers = [other for other in runs if other.value("partitioner") == method]
        options = [key for key in run.config["partitioner"] if key not in ("_target_", "num_parts")
                   and len({other.value(f"partitioner.{key}") for other in peers}) > 1]
        names.append(" ".join([method, *(f"{key}={run.value(f'partitioner.{key}')}" for key in options)]))
    return names


def spring_beside(one: Partitioned, found: Sequence[Partitioned]) -> Partitioned | None:
    """SPRING's partition of the same graph into as many parts, in the same order of edges if there is such a one.

    None where there is nothing to compare, since either has collapsed.
    """
    springs = [other for other in found if (other.method, other.graph, other.parts) == (SPRING, one.graph, one.parts)]
    springs.sort(key=lambda other: other.order != one.order)
    return springs[0] if springs and not springs[0].collapsed and not one.collapsed else None


def slowdown(one: Partitioned, found: Sequence[Partitioned]) -> float | None:
    """Seconds in units of SPRING's; None where there is nothing to compare."""
    spring = spring_beside(one, found)
    # Older partitions, whose memory was not recorded either, were timed with the loading of kernels.
    if spring is None or one.added_bytes is None or spring.added_bytes is None:
        return None
    return one.quality["seconds"] / spring.quality["seconds"]


# --- the table -------------------------------------------------------------------------------------------------------
def make_table(runs: Sequence[Run]) -> Table:
    """One row per graph, number of parts and partitioner."""
    found = find_partitions(runs)
    papers = [_paper_cells(one) for one in found]
    more = any(any(cell != "–" for cell in cells) for cells in papers)
    rows = [(*_cells(one, found), *(paper if more else ()))
            for one, paper in zip(found, papers, strict=True)]
    return Table((*_COLUMNS, *(_PAPER_COLUMNS if more else ())), tuple(rows), _caption(runs, found))


def _cells(one: Partitioned, found: Sequence[Partitioned]) -> tuple[str, ...]:
    quality, spring = one.quality, spring_beside(one, found)
    return (
        one.dataset, str(one.parts), one.partitioner + (" (collapsed)" if one.collapsed else ""),
        *(f"{quality[f'replication_{name}']:.3f}" for name in ("full", "artifact")),
        f"{quality['replication_cut']:.3f}" if one.cuts_vertices else "–",
        *(f"{copies_ratio(spring, one, name):.3f}" if spring else "–" for name in ("full", "artifact")),
        f"{100 * quality['edge_cut']:.2f}",
        *(_cell(quality.get(f"balance_{name}"), "{:.3f}") for name in ("vertices", "edges", "train")),
        f"{quality['seconds']:.4f}", _cell(slowdown(one, found), "{:.2f}x"),
        _cell(one.added_bytes, "{:.2f}", 1e-6), f"{one.data_bytes / 1e6:.2f}",
        *(_clusters_cell(quality, when) for when in ("clustered", "merged")),
    )


def copies_ratio(spring: Partitioned, one: Partitioned, definition: str) -> float:
    """SPRING's copies in units of another partitioner's, by a definition: `full` or `artifact`."""
    return spring.quality[f"replication_{definition}"] / one.quality[f"replication_{definition}"]


def _cell(value: float | None, form: str, factor: float = 1) -> str:
    return "–" if value is None else form.format(value * factor)


def _clusters_cell(quality: Mapping[str, float], when: str) -> str:
    if f"clusters_{when}/count" not in quality:
        return "–"
    count, mean, deviation = (quality[f"clusters_{when}/{name}"] for name in ("count", "mean_size", "std_size"))
    return f"{count:.0f} ({mean:.1f} ± {deviation:.1f})"


def _paper_cells(one: Partitioned) -> tuple[str, ...]:
    """Table I: peak memory of METIS (raw data); Table II: clusters before and after merging."""
    def of_table(source: str, quantity: str, system: str) -> str:
        return printed("sdt_gnn", source=source, quantity=quantity, dataset=one.published, system=system)

    def clusters(system: str) -> str:
        count, mean, deviation = (of_table("Table II", quantity, system)
                                  for quantity in ("num_clusters", "cluster_size_mean", "cluster_size_std"))
        return f"{count} ({mean} ± {deviation})" if count != "–" else count

    data, peak = of_table("Table I", "graph_size_gb", ""), of_table("Table I", "partition_peak_memory_gb", "metis")
    return (f"{peak} ({data})" if one.method == "metis" and peak != "–" else "–",
            *(clusters(system) if one.method == SPRING else "–" for system in ("clustering", SPRING)))


def _caption(runs: Sequence[Run], found: Sequence[Partitioned]) -> str:
    without = sum(not run.quality for run in runs)
    repeated = len(runs) - without - len(found)
    left_out = ((without, "without a recorded partition"), (repeated, "of a partition that is shown already"))
    return " ".join([_CAPTION, *_means(found), *(f"Left out: {count} runs {why}." for count, why in left_out if count)])


def _means(found: Sequence[Partitioned]) -> list[str]:
    """Figure 6 in a sentence: what SPRING copies in units of every other partitioner, over graphs and parts."""
    pairs: dict[str, list[tuple[Partitioned, Partitioned]]] = {}
    for one in found:
        spring = spring_beside(one, found)
        if spring is not None and one.method != SPRING:
            pairs.setdefault(one.partitioner, []).append((spring, one))
    if not pairs:
        return []
    said = [
        f"{name} " + ", ".join(f"{statistics.geometric_mean(copies_ratio(*pair, definition) for pair in those):.3f}"
                               for definition in ("full", "artifact")) + f" ({len(those)} partitions)"
        for name, those in pairs.items()
    ]
    return [f"SPRING / it, geometric mean, full and artifact: {'; '.join(said)}."]
