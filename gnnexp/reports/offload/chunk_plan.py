"""What offloaded training planned before its first epoch, and what a sweep then moved (HongTu, section 5.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from gnnexp.record.runs import Run
from gnnexp.reports.values.setting import setting_of


@dataclass(frozen=True)
class ChunkPlan:
    """Of a finished run; rows are counted over all ranks, for one sweep over all chunks. None: not recorded.

    Attributes:
        ranks: m.
        chunks: n, of a rank.
        rows: of the order that was taken, by name as in `gnnexp.placement.reorganise.Volumes`.
        vertices: V.
        host_rows: that did cross from host memory in a layer's forward sweep.
        peer_rows: that did go from device to device in it.
        between_hosts: whether rows of other ranks go from host to host first (`dedup.inter=false`).
        cost_before, cost_after: Equation 4, of the order of ranges and of Algorithm 4.
        order: what was chosen and why.
        bound_bytes: that no chunk of the fullest rank exceeds in the device tier, as planned.
        row_bytes: of the widest layer's inputs.
        setup_s: cutting, counting and ordering chunks.
        order_s: of that, counting and ordering.
    """

    ranks: int
    chunks: int
    rows: Mapping[str, int]
    vertices: int | None
    host_rows: Fraction | None
    peer_rows: Fraction | None
    between_hosts: bool
    cost_before: float | None
    cost_after: float | None
    order: str
    bound_bytes: int | None
    row_bytes: int | None
    setup_s: float | None
    order_s: float | None

    @property
    def parts(self) -> int:
        """Subgraphs, m n."""
        return self.ranks * self.chunks

    @property
    def shared(self) -> int:
        """V_ori - V_+p2p: rows that several ranks read in the same batch."""
        return self.rows["original"] - self.rows["inter"]

    @property
    def reused(self) -> int:
        """V_+p2p - V_+ru: rows of a batch that the batch before it held."""
        return self.rows["inter"] - self.rows["both"]

    @property
    def alpha(self) -> float | None:
        """The neighbour replication factor, V_ori / V (Table 3)."""
        return self.rows["original"] / self.vertices if self.vertices else None

    @property
    def subgraph_bytes(self) -> float | None:
        """Section 4.3's vertex data of an average subgraph, (1 + alpha) V / (m n) rows, of the widest layer."""
        if self.alpha is None or self.vertices is None or self.row_bytes is None:
            return None
        return (1 + self.alpha) * self.vertices / self.parts * self.row_bytes


def plan_of(run: Run) -> ChunkPlan | None:
    """The plan of `run`; None where it is none of offloaded training, or did not record one."""
    facts = run.facts
    if "chunks" not in facts or not facts.get("rows_initial"):
        return None
    layers, epoch = len(facts.get("keeps", ())), run.epochs[-1] if run.epochs else {}
    before, after = facts.get("cost_initial"), facts.get("cost_reorganised")
    reorganised = facts.get("rows_reorganised") if after is not None and before is not None and after < before else None
    counts = "tier/h2d_rows_forward" in epoch
    vertices = _per_layer(epoch, "work/vertices_computed", layers)
    widths = facts.get("row_bytes") or ()
    return ChunkPlan(
        setting_of(run).ranks, int(facts["chunks"]), reorganised or facts["rows_initial"],
        int(vertices) if vertices is not None and vertices.denominator == 1 else None,
        _per_layer(epoch, "tier/h2d_rows_forward", layers),
        # A purpose without traffic is not recorded.
        _per_layer({"tier/d2d_rows_forward": 0, **epoch}, "tier/d2d_rows_forward", layers) if counts else None,
        run.value("paradigm.dedup.inter") == "False", before, after, str(facts.get("order", "")),
        facts.get("chunk_bytes_bound"), max(widths[:-1], default=None), facts.get("setup_s"), facts.get("order_s"),
    )


def _per_layer(epoch: Mapping[str, Any], metric: str, layers: int) -> Fraction | None:
    return Fraction(int(epoch[metric]), layers) if metric in epoch and layers else None
