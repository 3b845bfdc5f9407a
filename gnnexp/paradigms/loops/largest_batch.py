"""How large a rank's batch can be: an upper bound for memory estimates."""

from __future__ import annotations

from dataclasses import dataclass

from gnnexp.components.plan import Drawn
from gnnexp.models.model import ModelOptions
from gnnexp.samplers.base import SamplerOptions


@dataclass(frozen=True)
class LargestBatch:
    """The largest batch of a rank.

    Attributes:
        vertices: `[L + 1]` targets, then vertices of each hop.
        hop_edges: `[L]` edges of each hop, target hop first.
    """

    vertices: tuple[int, ...]
    hop_edges: tuple[int, ...]

    @property
    def inputs(self) -> int:
        """Vertices whose features are read."""
        return self.vertices[-1]

    @property
    def edges(self) -> int:
        """Edges of all hops."""
        return sum(self.hop_edges)

    @staticmethod
    def of(drawn: Drawn, sampler: SamplerOptions, model: ModelOptions) -> LargestBatch:
        """The batch that the fanouts allow, limited by the vertices and edges of the topology."""
        vertices, edges = [drawn.targets], []
        for fanout in sampler.hops(model.layers):
            edges.append(min(drawn.edges if fanout < 0 else vertices[-1] * fanout, drawn.edges))
            vertices.append(min(vertices[-1] + edges[-1], drawn.vertices))
        return LargestBatch(tuple(vertices), tuple(edges))
