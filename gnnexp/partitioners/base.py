"""The interface of a partitioner: options in, owners out, and a content key under which the result is stored."""

from __future__ import annotations

import hashlib
import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, final

from torch import Tensor

from gnnexp.components.packages import is_installed, missing_package
from gnnexp.components.setting import Setting
from gnnexp.components.signature import decisive
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition, check_partition
from gnnexp.graph.storage.presample import Presample
from gnnexp.graph.stream import EdgeStream
from gnnexp.measure.memory import give_back_heap, host_peak_bytes, reset_host_peak
from gnnexp.provenance.code import code_key
from gnnexp.provenance.names import name_of, version_of


class Owners(NamedTuple):
    """The result of a partitioner: the part of every vertex, and in a vertex-cut the part of every edge.

    Attributes:
        nodes: `[V]` int16 or int32 (`owner_dtype`), the part of every vertex.
        edges: `[E]` the part of every edge in canonical order, None in an edge-cut.
        facts: figures about the run of the partitioner by name, such as the number of clusters; the partition keeps
            them.
    """

    nodes: Tensor
    edges: Tensor | None = None
    facts: Mapping[str, float] = MappingProxyType({})


class Partitioner(ABC):
    """Splits a graph into parts.

    A subclass implements `assign`. Its constructor stores every option as an attribute of the same name. It must have
    no other public attributes, because the content key is computed from the public ones.

    Attributes:
        num_parts: number of parts, `auto` for one per rank.
        vertex_cut: whether edges get owners too; a partitioner that reads a stored partition sets it per instance.
        version: raised when the same options give other parts, or a default changes (CONTRIBUTING.md).
    """

    num_parts: int | Literal["auto"]
    vertex_cut: bool = False
    version: ClassVar[int] = 1

    @abstractmethod
    def assign(self, graph: Graph, num_parts: int) -> Owners:
        """Owners of all vertices, and in a vertex-cut of all edges; always 1 <= num_parts <= V."""

    def check(self, setting: Setting) -> list[Problem]:
        """Problems that prevent a run with this partitioner; none if the paradigm needs no partition."""
        if not setting.wants_partition:
            return []
        alone = self.resolve(setting.num_ranks) == 1
        missing = [] if alone else [package for package in self.requires if not is_installed(package)]
        return [
            *self._cut_problems(setting),
            *(missing_package("partitioner", self.method, package, "partitioner=random") for package in missing),
        ]

    def _cut_problems(self, setting: Setting) -> list[Problem]:
        """A problem if this is a vertex-cut and the paradigm does not support vertex-cuts."""
        if not self.vertex_cut or setting.takes_vertex_cut:
            return []
        return [
            Problem(
                "partitioner",
                self.method,
                f"is a vertex-cut; in {setting.paradigm} the owner of a vertex has all its in-edges",
                "choose partitioner=metis, random or range",
            )
        ]

    @property
    def bytes_per_edge(self) -> int:
        """About the memory of `assign` per edge of the graph, in bytes, for the preflight."""
        return 0

    @property
    @final
    def reads_file(self) -> str | None:
        """The file or folder (`path`) whose content also decides the result, or None."""
        path = vars(self).get("path")
        return None if path is None else str(path)

    @property
    def requires(self) -> tuple[str, ...]:
        """Import names of optional packages that the partitioner needs for more than one part."""
        return ()

    @property
    def presampled_epochs(self) -> int:
        """Number of epochs of the training sampler that must be counted before `assign`, or 0."""
        return 0

    def weigh_by(self, presample: Presample) -> None:
        """Store the counts of `presampled_epochs` epochs; called before `assign` if that number is not 0."""
        raise NotImplementedError("a partitioner with presampled_epochs above 0 must implement weigh_by")

    @property
    @final
    def method(self) -> str:
        """Name of the method: the name of the module, as in `conf/partitioner/<name>.yaml`."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def library(self) -> str:
        """Name and version of the library that decides the parts; empty if gnnexp's own code does."""
        return ""

    def options(self) -> dict[str, Any]:
        """The options that decide the result, without `num_parts`."""
        return {name: value for name, value in vars(self).items() if name != "num_parts" and not name.startswith("_")}

    @final
    def resolve(self, num_ranks: int) -> int:
        """Number of parts in a run with `num_ranks` ranks."""
        return num_ranks if self.num_parts == "auto" else self.num_parts

    @final
    def key(self, graph_key: str, num_parts: int, presample_key: str = "") -> str:
        """Content key of the partition, 64 hexadecimal digits. Equal keys mean equal partitions."""
        content = {
            "name": name_of(f"{type(self).__module__}.{type(self).__qualname__}"),
            "version": version_of(type(self)),
            "library": self.library,
            "options": decisive(self.options(), type(self)),
            "graph": graph_key,
            "num_parts": num_parts,
        }
        if presample_key:
            content["presample"] = presample_key
        if code := code_key(type(self)):
            content["code"] = code
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def partition(
        self, graph: Graph, num_parts: int, graph_key: str = "", presample: Presample | None = None
    ) -> Partition:
        """Split `graph` into `num_parts` parts.

        Args:
            graph: a validated graph.
            num_parts: from 1 to the number of vertices.
            graph_key: content key of the graph, kept in the partition.
            presample: counts of `presampled_epochs` epochs, None if that number is 0.

        Raises:
            ConfigError: there are more parts than vertices, or fewer than one.
        """

        def assign() -> Owners:
            if presample is not None:
                self.weigh_by(presample)
            return self.assign(graph, num_parts)

        return self.timed(assign, graph, num_parts, graph_key)

    @final
    def timed(
        self, assign: Callable[[], Owners], graph: Graph | EdgeStream, num_parts: int, graph_key: str
    ) -> Partition:
        """Call `assign` and return a checked partition with the time and memory that the call took.

        Raises:
            ConfigError: there are more parts than vertices, or fewer than one.
            DataError: the owners are no partition of `graph`.
        """
        check_num_parts(num_parts, graph.num_nodes)
        # Return free heap of earlier partitions to the system. Otherwise this partition would seem to use less memory.
        give_back_heap()
        reset_host_peak()
        before = host_peak_bytes()
        start = time.perf_counter()
        owners = assign()
        seconds = time.perf_counter() - start
        partition = Partition(
            node_owner=owners.nodes,
            num_parts=num_parts,
            edge_owner=owners.edges,
            method=self.method,
            options=self.options(),
            graph_key=graph_key,
            seconds=seconds,
            peak_rss_bytes=host_peak_bytes(),
            rss_before_bytes=before,
            facts=owners.facts,
        )
        problems = check_partition(partition, graph, name=f"partitioner {self.method}")
        if (owners.edges is not None) != self.vertex_cut:
            problems.append(
                Problem(
                    f"partitioner {self.method}: vertex_cut",
                    self.vertex_cut,
                    "must be True if edges get owners, False if not",
                    "set it in the class",
                )
            )
        DataError.raise_all(problems)
        return partition


def too_small_problems(options: Iterable[tuple[str, float, float, object]], *, infinite: bool = False) -> list[Problem]:
    """Problems of options `(key, value, least, default)`: values below `least`, NaN, and infinity unless allowed."""
    return [
        Problem(f"partitioner.{key}", value, f"must be {least} or more", f"set partitioner.{key}={default}")
        for key, value, least, default in options
        if not (least <= value and (infinite or value < math.inf))
    ]


def check_num_parts(num_parts: int, num_nodes: int) -> None:
    """Raise ConfigError if `num_parts` is not from 1 to `num_nodes`."""
    if not 1 <= num_parts <= num_nodes:
        raise ConfigError(
            Problem(
                "partitioner.num_parts",
                num_parts,
                f"must be 1 to {num_nodes} (vertices)",
                "take fewer parts (fewer workers, with num_parts=auto) or a larger graph",
            )
        )
