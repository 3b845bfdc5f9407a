"""The attributes of one graph of PyG, as `to_dict()` gives them, from a file or from an object in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnexp.datasets.formats.foreign import EDGE, VERTEX
from gnnexp.datasets.formats.pyg.torch_file import SAVE_AGAIN, TorchFile
from gnnexp.datasets.formats.pyg.unpickle import PickledTensor, Record
from gnnexp.datasets.reading.pickled import PickledDict
from gnnexp.errors import DataError, Problem

EdgeType = tuple[str, str, str]
GLOBAL = "_global_store"


@dataclass(frozen=True, eq=False)
class Content:
    """Attributes of the vertices and edges by type.

    Attributes:
        vertices: attributes by type of vertices.
        edges: attributes by type of edges: source, relation, destination.
        key: the file, or what names the object in messages.
        typed: whether it is a `HeteroData`. In a `Data`, the only type has the attributes of vertices and edges.
    """

    vertices: Mapping[str, Mapping[str, Any]]
    edges: Mapping[EdgeType, Mapping[str, Any]]
    key: str
    typed: bool


def content_of_file(path: Path) -> Content:
    """The graph in a file of `torch.save`: a `Data`, a `HeteroData`, its `to_dict()`, or a data set with one graph.

    Raises:
        DataError: the file is damaged, has something else or several graphs, or names classes that are not PyG's.
    """
    file = TorchFile(path)
    content = _single(file.content(), str(path))
    if isinstance(content, Record) and content.kind in ("Data", "HeteroData"):
        content = _stores(content)
    if not isinstance(content, PickledDict):
        raise _no_graph(str(path), getattr(content, "kind", type(content).__name__))
    plain: dict[Any, Any] = {}
    for key, value in content.pairs:
        if _is_key(key):
            plain[key] = _attributes(value, file) if isinstance(value, PickledDict) else file.value(value)
    return content_of_mapping(plain, str(path))


def content_of_mapping(content: Mapping[Any, Any], key: str) -> Content:
    """The graph of what `to_dict()` gave.

    Raises:
        DataError: there are no edges in it.
    """
    stores = {name: value for name, value in content.items() if isinstance(value, Mapping)}
    edges = {name: value for name, value in stores.items() if isinstance(name, tuple)}
    if edges:
        vertices = {name: value for name, value in stores.items() if isinstance(name, str) and name != GLOBAL}
        for source, _, destination in edges:
            vertices.setdefault(source, {})
            vertices.setdefault(destination, {})
        return Content(vertices, edges, key, typed=True)
    if "edge_index" not in content and "adj_t" not in content:
        raise _no_graph(key, f"has {', '.join(sorted(map(str, content)))[:150] or 'nothing'}")
    return Content({VERTEX: content}, {(VERTEX, EDGE, VERTEX): content}, key, typed=False)


def _single(content: object, key: str) -> object:
    """The only graph of a list, or of the `(data, slices)` and `(data, slices, class)` of an `InMemoryDataset`."""
    if (
        isinstance(content, tuple)
        and len(content) in (2, 3)
        and (content[1] is None or isinstance(content[1], PickledDict))
    ):
        count = _graphs(content[1])
        if count != 1:
            raise _several(key, count)
        return content[0]
    if isinstance(content, list | tuple):
        if len(content) != 1:
            raise _several(key, len(content))
        return content[0]
    return content


def _graphs(slices: object) -> int:
    """How many graphs the slices of a data set divide. Each has the bounds of all graphs, one more than graphs."""
    for bounds in _values(slices):
        for one in (bounds, *_values(bounds)):  # of a HeteroData: by type, then by attribute
            if isinstance(one, PickledTensor) and len(one.size) == 1:
                return one.size[0] - 1
            if isinstance(one, list):
                return len(one) - 1
    return 1


def _values(found: object) -> list[object]:
    return [value for _, value in found.pairs] if isinstance(found, PickledDict) else []


def _stores(record: Record) -> object:
    """The `to_dict()` of a pickled `Data` or `HeteroData`."""
    parts: dict[str, Any] = record.attributes()
    if record.kind == "Data":
        # Before PyG 2.0, attributes of the graph were attributes of the object.
        return parts["_store"].attributes().get("_mapping") if isinstance(parts.get("_store"), Record) else record.state
    whole = PickledDict()
    for name in ("_node_store_dict", "_edge_store_dict"):
        group = parts.get(name)
        for key, store in group.pairs if isinstance(group, PickledDict) else ():
            whole[key] = store.attributes().get("_mapping") if isinstance(store, Record) else None
    return whole


def _is_key(key: object) -> bool:
    """Whether a key is a text, or a type of edges. Others may take long to hash: tuples of tuples of tuples."""
    triple = isinstance(key, tuple) and len(key) == 3 and all(isinstance(one, str) for one in key)
    return isinstance(key, str) or triple


def _attributes(store: Any, file: TorchFile) -> dict[str, Any]:  # noqa: ANN401
    return {name: file.value(value) for name, value in store.named().items()}


def _several(key: str, count: int) -> DataError:
    return DataError(
        Problem(
            key,
            f"{count} graphs",
            "gnnexp trains on one graph",
            "save one of them: torch.save(dataset[0].to_dict(), FILE)",
        )
    )


def _no_graph(key: str, found: str) -> DataError:
    return DataError(
        Problem(
            key,
            found,
            "must have a graph of PyG: a Data, a HeteroData, or their to_dict(), with edge_index or adj_t",
            SAVE_AGAIN,
        )
    )
