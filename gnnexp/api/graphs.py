"""`gnnexp.from_pyg`, `from_dgl`, `from_networkx`: a graph that your Python holds becomes a dataset."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gnnexp.components.texts import hydra_text
from gnnexp.datasets.formats.dataset import ForeignOptions
from gnnexp.datasets.formats.foreign import ForeignGraph
from gnnexp.datasets.formats.in_memory import InMemory
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.experiment.build import build
from gnnexp.files.cache import cache_root
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.format import open_graph
from gnnexp.preparation.artifacts import prepare_graph

if TYPE_CHECKING:
    from gnnexp.datasets.formats.pyg.dataset import Pyg

_Options = TypeVar("_Options", bound=ForeignOptions)


@dataclass(frozen=True)
class GivenGraph:
    """A graph that was handed over. It is stored in the artifact cache, in gnnexp's format.

    Attributes:
        folder: the folder of the graph, whose name has the key of its content. It also has your ids.
        name: name of the graph.
    """

    folder: Path
    name: str

    @property
    def overrides(self) -> list[str]:
        """What chooses this graph in `gnnexp run` and `gnnexp.run`."""
        return [
            "dataset=gnnexp_format",
            f"dataset.path={hydra_text(str(self.folder))}",
            f"dataset.name={hydra_text(self.name)}",
        ]

    @property
    def graph(self) -> Graph:
        """The graph, memory-mapped."""
        return open_graph(self.folder)


def from_pyg(
    data: Any,  # noqa: ANN401
    *,
    features: str | None = "x",
    label: str | None = "y",
    weight: str | None = "auto",
    ids: str | None = "auto",
    mask: int = 0,
    name: str = "pyg",
    **options: Any,  # noqa: ANN401
) -> GivenGraph:
    """A graph of PyTorch Geometric as a dataset. The object does not change.

    Args:
        data: a `Data`, a `HeteroData`, or what its `to_dict()` gave.
        features: attribute with the features of vertices; None: none.
        label: attribute with the labels of vertices; None: none.
        weight: attribute with the weights of edges; `auto`: `edge_weight`, or `edge_attr` of one column; None: none.
        ids: attribute with your ids of vertices; `auto`: `n_id` or `node_id`; None: 0 to n - 1.
        mask: which of several splits, if masks have several columns.
        name: name of the graph.
        options: the other options of `dataset=pyg` (`split`, `symmetrize`, `self_loops`, ...).

    Raises:
        ConfigError: an option is unknown or has a wrong value.
        DataError: the attributes are no graph, or do not fit together.
    """
    from gnnexp.datasets.formats.pyg.content import content_of_mapping
    from gnnexp.datasets.formats.pyg.dataset import Pyg

    dataset = _dataset(Pyg, dict(options, features=features, label=label, weight=weight, ids=ids, mask=mask, name=name))
    content = content_of_mapping(_attributes(data), f"from_pyg: {type(data).__name__}")
    return _given(dataset.foreign_of(content), dataset)


def from_dgl(
    graph: Any,  # noqa: ANN401
    *,
    features: str = "feat",
    label: str = "label",
    weight: str | None = None,
    name: str = "dgl",
    **options: Any,  # noqa: ANN401
) -> GivenGraph:
    """A graph of DGL as a dataset. The object does not change.

    Args:
        graph: a `DGLGraph` with one type of vertices and edges or several, and its `ndata` and `edata`.
        features: key in `ndata` of the features of vertices.
        label: key in `ndata` of their labels.
        weight: key in `edata` of the weights of edges; None: none.
        name: name of the graph.
        options: the other options of `dataset=pyg` that are no names of attributes (`split`, `symmetrize`, ...).

    Raises:
        ConfigError: an option is unknown or has a wrong value.
        DataError: the data do not fit together.
    """
    from gnnexp.datasets.formats.dgl.dgl_graph import foreign_of_dgl

    dataset = _dataset(InMemory, dict(options, name=name))
    return _given(foreign_of_dgl(graph, label=label, features=features, weight=weight), dataset)


def from_networkx(
    graph: Any,  # noqa: ANN401
    *,
    label: str | None = None,
    features: Sequence[str] | None = None,
    weight: str | None = None,
    name: str = "networkx",
    **options: Any,  # noqa: ANN401
) -> GivenGraph:
    """A graph of NetworkX as a dataset. Its nodes are the ids of vertices. The object does not change.

    Args:
        graph: a `networkx.Graph`, `DiGraph`, `MultiGraph` or `MultiDiGraph`.
        label: attribute of nodes with their classes; None: none.
        features: attributes of nodes with numbers, or lists of numbers; None: all of these.
        weight: attribute of edges with their weights; None: none.
        name: name of the graph.
        options: the other options of `dataset=pyg` that are no names of attributes (`split`, `symmetrize`, ...).

    Raises:
        ConfigError: an option is unknown or has a wrong value.
        DataError: the attributes do not fit together.
    """
    from gnnexp.datasets.formats.networkx_graph import foreign_of_networkx

    dataset = _dataset(InMemory, dict(options, name=name))
    return _given(
        foreign_of_networkx(
            graph, label=label, features=features, weight=weight, both_directions=dataset.in_both_directions
        ),
        dataset,
    )


def _attributes(data: Any) -> Mapping[Any, Any]:  # noqa: ANN401
    """The attributes by name, or by type and name.

    Raises:
        DataError: it is no graph of PyG.
    """
    if isinstance(data, Mapping):
        return data
    library = sys.modules.get("torch_geometric.data")  # an object of PyG has imported it
    if library is None or not isinstance(data, library.Data | library.HeteroData):
        raise DataError(
            Problem(
                "data",
                type(data).__name__,
                "must be a Data, a HeteroData, or what to_dict() gave",
                "give one graph, such as dataset[0]",
            )
        )
    attributes: Mapping[Any, Any] = data.to_dict()
    return attributes


def _dataset(kind: type[_Options], options: Mapping[str, Any]) -> _Options:
    """The dataset with these options, checked as those of a configuration are.

    Raises:
        ConfigError: names all wrong options.
    """
    ConfigError.raise_all(
        [
            Problem(f"dataset.{key}", options[key], "a graph in memory has no such option", "leave it out")
            for key in ("path", "found")
            if key in options
        ]
    )
    return build({"_target_": f"{kind.__module__}.{kind.__qualname__}", **options}, kind, "dataset")


def _given(foreign: ForeignGraph, dataset: InMemory | Pyg) -> GivenGraph:
    """Store the graph in the cache, unless it is there."""
    same = {option.name: getattr(dataset, option.name) for option in fields(ForeignOptions)}
    _, folder = prepare_graph(InMemory(name=dataset.name, found=foreign, **same), cache_root())
    return GivenGraph(folder, dataset.name)
