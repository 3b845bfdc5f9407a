"""GSplit's ablation "Node" (section 6.3): pre-sampled vertex weights, and equal weights for all edges."""

from __future__ import annotations

from typing import Literal

from gnnexp.partitioners.presampled import Balance, PresampledPartitioner, VertexWeight


class PresampledNodePartitioner(PresampledPartitioner):
    """`PresampledPartitioner` without edge weights; the same arguments."""

    def __init__(
        self,
        num_parts: int | Literal["auto"] = "auto",
        epochs: int = 10,
        input_weight: float = 0.0,
        imbalance: float = 0.03,
        seed: int = 0,
        balance: Balance = "total",
        vertex_weight: VertexWeight = "counted",
    ) -> None:
        super().__init__(num_parts, epochs, input_weight, False, imbalance, seed, balance, vertex_weight)
