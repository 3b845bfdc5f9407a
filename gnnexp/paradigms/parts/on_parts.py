"""What is decided before there are parts to train on: how many, and what a rank will hold of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.needs import Drawn, Need, Profile
from gnnexp.graph.graph import Graph
from gnnexp.graph.parts import Parts, PartSizes
from gnnexp.graph.sparse import row_nbytes
from gnnexp.paradigms.checks import num_ranks
from gnnexp.paradigms.loops.global_batch import ByAutograd, R
from gnnexp.paradigms.parts.allocation import num_parts, reserved
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
        """Section III-C; two thirds as long as a dry run is yet to come."""
        features = 0 if graph.features is None else graph.num_nodes * row_nbytes(graph.features, 4)
        options = self.options
        reserve = None if options.reserve == "profile" else options.reserve
        parts = num_parts(graph.topology_bytes + features, num_ranks(config), options.memory_of(config), reserve)
        return min(parts, graph.num_nodes)

    def dry_run(self, config: Mapping[str, Any], graph: Graph) -> dict[str, Any] | None:
        """One worker on the whole graph, with a part's batches if there were no more parts than ranks: the largest."""
        if self.options.reserve != "profile":
            return None
        train, ranks = config["train"], num_ranks(config)
        size = self.options.batch_size(train.get("batch_size"), ranks) or -(-graph.splits.train.numel() // ranks)
        return {**config, "paradigm": {"_target_": "gnnexp.paradigms.data_parallel.DataParallel"}, "seed": 0,
                "hardware": {**config["hardware"], "straggler": None}, "train": {**train, "batch_size": size}}

    def profiled(self, config: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
        """With T."""
        reserve, memory = reserved(profile.num_bytes), self.options.memory_of(config)
        assert memory is not None
        if reserve >= memory:
            raise ConfigError(Problem(
                "paradigm.memory", memory, f"a dry run of {profile.targets} targets a batch takes {reserve}: nothing "
                "is left for data", f"set paradigm.memory={2 * reserve}, or a smaller paradigm.local_batch_size"))
        return {**config, "paradigm": {**config["paradigm"], "reserve": reserve}}

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
        fewer = f"partitioner.num_parts={2 * len(parts.sizes)}"
        if self.options.reserve == "profile":
            fewer += " with paradigm.reserve=null"
        return [Problem(key, memory, f"the largest of {len(parts.sizes)} parts has {largest} bytes of topology and "
                        "features, its halo included",
                        f"set {fewer}, or {key}={largest} or more")]

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """Epochs between averages, samplers and stores that a part can have of its own."""
        return [*super().check(config), *self.options.check(config)]
