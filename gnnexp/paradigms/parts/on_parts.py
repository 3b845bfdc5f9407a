"""What is decided before there are parts to train on: how many, and what a rank will hold of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnnexp.errors import Problem
from gnnexp.experiment.needs import Drawn, Need
from gnnexp.graph.graph import Graph
from gnnexp.graph.parts import Parts, PartSizes
from gnnexp.graph.sparse import row_nbytes
from gnnexp.paradigms.checks import num_ranks
from gnnexp.paradigms.loops.global_batch import ByAutograd, R
from gnnexp.paradigms.parts.allocation import num_parts
from gnnexp.paradigms.parts.needs import drawn_from_parts, feature_bytes, least_sizes, part_needs, topology_bytes
from gnnexp.paradigms.parts.options import AveragingOptions


class OnParts(ByAutograd[R]):
    """A paradigm whose ranks train parts of the graph, one after the other.

    Attributes:
        options: set by the constructor.
    """

    needs_partition = True
    works_on_parts = True
    options: AveragingOptions

    def num_parts(self, config: Mapping[str, Any], graph: Graph) -> int:
        """Section III-C."""
        features = 0 if graph.features is None else graph.num_nodes * row_nbytes(graph.features, 4)
        memory, reserve = self.options.memory_of(config), self.options.reserve
        parts = num_parts(graph.topology_bytes + features, num_ranks(config), memory, reserve)
        return min(parts, graph.num_nodes)

    def _sizes_of(self, config: Mapping[str, Any], graph: Graph, parts: Parts | None) -> Sequence[PartSizes]:
        if parts is not None:
            return parts.sizes
        told = config["partitioner"].get("num_parts", "auto")
        return least_sizes(graph, self.num_parts(config, graph) if told == "auto" else told)

    def drawn_from(self, config: Mapping[str, Any], graph: Graph, parts: Parts | None = None) -> Drawn:
        """A part."""
        sizes = self._sizes_of(config, graph, parts)
        batch_size = self.options.batch_size(config["train"].get("batch_size"), len(sizes))
        return drawn_from_parts(sizes, num_ranks(config), batch_size)

    def needs(self, config: Mapping[str, Any], graph: Graph, parts: Parts | None = None) -> list[Need]:
        """The parts that a rank has at once, and their cutting."""
        return part_needs(graph, self._sizes_of(config, graph, parts), num_ranks(config))

    def check_parts(self, config: Mapping[str, Any], graph: Graph, parts: Parts) -> list[Problem]:
        """Each fits what a rank has: section III-C counts parts without a halo."""
        memory = self.options.memory_of(config)
        largest = max(topology_bytes(graph, size) + feature_bytes(graph, size) for size in parts.sizes)
        if memory is None or largest <= memory:
            return []
        key = "hardware.device_memory" if self.options.memory is None else "paradigm.memory"
        return [Problem(key, memory, f"the largest of {len(parts.sizes)} parts has {largest} bytes of topology and "
                        "features, its halo included",
                        f"set partitioner.num_parts={2 * len(parts.sizes)}, or {key}={largest} or more")]

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """Epochs between averages, samplers and stores that a part can have of its own."""
        return [*super().check(config), *self.options.check(config)]
