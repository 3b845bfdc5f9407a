"""What every partitioner is: options in, owners out, and a key under which the result can be kept."""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from torch import Tensor

from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.packages import is_installed, missing_package
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition, check_partition
from gnnexp.graph.storage.presample import Presample
from gnnexp.graph.stream import EdgeStream
from gnnexp.measure.memory import give_back_heap, host_peak_bytes, reset_host_peak
from gnnexp.provenance.code import code_key
from gnnexp.provenance.moved import first_name


class Owners(NamedTuple):
    """What a partitioner decides.

    Attributes:
        nodes: `[V]` int16 or int32 (`owner_dtype`), the part of every vertex.
        edges: `[E]` the part of every edge in canonical order, None in an edge-cut.
        facts: numbers by name that tell how it went (clusters found), kept with the partition.
    """

    nodes: Tensor
    edges: Tensor | None = None
    facts: Mapping[str, float] = MappingProxyType({})


class Partitioner(ABC):
    """Splits a graph into parts.

    A subclass implements `assign`; its constructor keeps every option as an attribute of the same name, and nothing
    else that is public: they are what the key is made of.

    Attributes:
        num_parts: how many parts are wanted, `auto` for one per rank.
        vertex_cut: whether edges get owners of their own; what is read from a file says it of the instance.
    """

    num_parts: int | Literal["auto"]
    vertex_cut: bool = False

    @abstractmethod
    def assign(self, graph: Graph, num_parts: int) -> Owners:
        """Owners of all vertices; called with 1 <= num_parts <= V only."""

    def check(self, experiment: Experiment) -> list[Problem]:
        """What keeps a run from using it: nothing where the paradigm asks for no partition."""
        paradigm = experiment.paradigm
        if not paradigm.wants_partition(experiment):
            return []
        alone = self.resolve(experiment.num_ranks) == 1
        missing = [] if alone else [one for one in self.requires if not is_installed(one)]
        return [*self._check_cut(paradigm),
                *(missing_package("partitioner", self.method, one, "partitioner=random") for one in missing)]

    def _check_cut(self, paradigm: Any) -> list[Problem]:  # noqa: ANN401  paradigms import this module
        """A vertex-cut goes only with a paradigm that takes one."""
        if not self.vertex_cut or paradigm.takes_vertex_cut:
            return []
        name = type(paradigm).__module__.rpartition(".")[2]
        return [Problem("partitioner", self.method, f"is a vertex-cut; in {name} the owner of a vertex has all its "
                        "in-edges", "choose partitioner=metis, random or range")]

    @property
    def bytes_per_edge(self) -> int:
        """That `assign` takes of memory, about, for the preflight."""
        return 0

    @property
    def reads_file(self) -> str | None:
        """The file or folder (`path`) whose content decides results too; None if there is none."""
        path = vars(self).get("path")
        return None if path is None else str(path)

    @property
    def requires(self) -> tuple[str, ...]:
        """Packages, as they are imported, that making more than one part needs and that may not be installed."""
        return ()

    @property
    def presampled_epochs(self) -> int:
        """Epochs of the training sampler that have to be counted for it, 0 for none."""
        return 0

    def weigh_by(self, presample: Presample) -> None:
        """Take the counts of `presampled_epochs` epochs; called before `assign` where there are any."""
        raise NotImplementedError("a partitioner that asks for pre-sampled epochs takes them")

    @property
    def method(self) -> str:
        """Name of the method: the module's, as in `conf/partitioner/<name>.yaml`."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def version(self) -> str:
        """Changes when the same options start to give other parts."""
        return "1"

    def options(self) -> dict[str, Any]:
        """The options that decide the result, `num_parts` apart."""
        return {name: value for name, value in vars(self).items() if name != "num_parts" and not name.startswith("_")}

    def resolve(self, num_ranks: int) -> int:
        """Number of parts in a run with `num_ranks` ranks."""
        return num_ranks if self.num_parts == "auto" else self.num_parts

    def key(self, graph_key: str, num_parts: int, presample_key: str = "") -> str:
        """Content key of the partition, 64 hexadecimal digits: equal keys, equal partitions."""
        content = {
            "class": first_name(f"{type(self).__module__}.{type(self).__qualname__}"), "version": self.version,
            "options": self.options(), "graph": graph_key, "num_parts": num_parts,
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
            graph: validated.
            num_parts: from 1 to the number of vertices.
            graph_key: content key of the graph, kept in the partition.
            presample: counts of `presampled_epochs` epochs, None if that is 0.

        Raises:
            ConfigError: if there are more parts than vertices, or fewer than one.
        """
        def assign() -> Owners:
            if presample is not None:
                self.weigh_by(presample)
            return self.assign(graph, num_parts)

        return self.timed(assign, graph, num_parts, graph_key)

    def timed(
        self, assign: Callable[[], Owners], graph: Graph | EdgeStream, num_parts: int, graph_key: str
    ) -> Partition:
        """The partition that `assign` decides, with what it took, if it is one of `graph`.

        Raises:
            ConfigError: if there are more parts than vertices, or fewer than one.
        """
        check_num_parts(num_parts, graph.num_nodes)
        # What an earlier partition left in the heap is no memory that this one can do without.
        give_back_heap()
        reset_host_peak()
        before = host_peak_bytes()
        start = time.perf_counter()
        owners = assign()
        seconds = time.perf_counter() - start
        partition = Partition(
            node_owner=owners.nodes, num_parts=num_parts, edge_owner=owners.edges, method=self.method,
            options=self.options(), graph_key=graph_key, seconds=seconds, peak_rss_bytes=host_peak_bytes(),
            rss_before_bytes=before, facts=owners.facts,
        )
        problems = check_partition(partition, graph, name=f"partitioner {self.method}")
        if (owners.edges is not None) != self.vertex_cut:
            problems.append(Problem(f"partitioner {self.method}: vertex_cut", self.vertex_cut,
                                    "must be True if edges get owners, False if not", "set it in the class"))
        if problems:
            raise DataError(problems)
        return partition


def check_num_parts(num_parts: int, num_nodes: int) -> None:
    """Refuse a number of parts that no partition of the graph can have."""
    if not 1 <= num_parts <= num_nodes:
        raise ConfigError(Problem("partitioner.num_parts", num_parts, f"must be 1 to {num_nodes} (vertices)",
                                  "take fewer parts (fewer workers, with num_parts=auto) or a larger graph"))
