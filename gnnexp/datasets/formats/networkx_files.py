"""Files of graphs that NetworkX reads: GraphML, GEXF, GML, Pajek, node-link JSON, and lists with attributes."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

from gnnexp.datasets.formats.dataset import ForeignDataset
from gnnexp.datasets.formats.foreign import Foreign
from gnnexp.datasets.formats.networkx_graph import foreign_of_networkx
from gnnexp.datasets.reading.content import content_of, endings, one_file, own_files, start_of, text_of
from gnnexp.datasets.tables.features import FeatureForm
from gnnexp.datasets.tables.roles import AUTO
from gnnexp.datasets.tables.scaling import Empty
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import parse_json

if TYPE_CHECKING:
    import networkx as nx

# Bytes of memory for each byte of a file: NetworkX has a dictionary for each vertex and each edge.
_FACTOR = 24
_NODE_LINK = re.compile(rb'^\s*\{.*("(nodes|links|edges)"\s*:\s*\[|"(directed|multigraph)"\s*:\s*(true|false))',
                        re.DOTALL)
_GRAPHSTORM = re.compile(rb'"(node|source)_id_col"')  # its file also has lists of nodes and edges


@dataclass(kw_only=True, eq=False)
class NetworkX(ForeignDataset):
    """A graph from a file that NetworkX reads; its ending says the format, and `.gz` may follow.

    `.graphml`, `.gexf`, `.gml`, `.net` and `.pajek`, `.json` (node-link), `.edgelist`, `.adjlist`. An attribute that is
    `auto` is found by its name; `null` means that there is none. Undirected edges lead in both directions.

    Attributes:
        name: name of the graph.
        path: the file, or a folder with one such file; null = `$GNNEXP_DATA/networkx`.
        label: attribute of vertices with classes: names or whole numbers, or lists of 0 and 1.
        features: attributes of vertices with numbers, or lists of numbers of one length; `auto` = all of these.
        categories: attributes of vertices of which each value becomes a feature (one-hot).
        weight: attribute of edges with weights; edges without it have 1.
        split_column: attribute of vertices with words such as `train`; also `train_mask`, `val_mask`, `test_mask`.
        empty: what replaces missing numbers: `error` refuses them, `mean` of the attribute, `zero`.
        standardize: give each attribute of numbers the mean 0 and the standard deviation 1, over all vertices.
        directed: whether the edges of `.edgelist` and `.adjlist` have a direction, which these files do not say.
    """

    name: str = "networkx"
    label: str | None = AUTO
    features: list[str] | str | None = AUTO
    categories: list[str] = field(default_factory=list)
    weight: str | None = AUTO
    split_column: str | None = AUTO
    empty: Empty = "error"
    standardize: bool = False
    directed: bool = False

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """A file of NetworkX, or a folder that has nothing else."""
        files = own_files(place)
        return [] if len(files) == 1 and _fits(files[0]) else None

    def sources(self) -> list[Path]:
        """The file."""
        return [one_file(self.path, "networkx", _fits, ", ".join(_READERS))]

    def read(self) -> Foreign:
        """The graph in the file."""
        graph = read_networkx(self.sources()[0], directed=self.directed)
        features = self.features if not isinstance(self.features, str) else None if self.features == AUTO else [
            self.features]
        return foreign_of_networkx(
            graph, label=self.label, features=[] if self.features is None else features, weight=self.weight,
            split=self.split_column, form=FeatureForm(self.categories, self.empty, self.standardize),
            both_directions=not self.symmetrize)


def read_networkx(path: Path, *, directed: bool = False) -> nx.Graph[Any]:
    """The graph in a file; whether it is `directed`, if the file does not say it.

    Raises:
        DataError: the file is damaged, NetworkX does not know its ending, or it is too large for the memory.
    """
    reader = _READERS.get(endings(path))
    if reader is None:
        raise DataError(Problem(str(path), endings(path), f"endings are {', '.join(_READERS)}, also with .gz",
                                "rename the file, or use dataset=tables"))
    try:
        return reader(path, directed)
    except DataError:
        raise
    except ImportError as error:
        raise DataError(Problem(str(path), str(error), "NetworkX reads this file", "pip install networkx")) from None
    except Exception as error:  # NetworkX raises errors of any class for files that are wrong
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(Problem(str(path), said, f"must be a whole {endings(path)} file", "write it again with "
                                "networkx, or correct it")) from None


def _fits(path: Path) -> bool:
    """Whether only NetworkX reads a file. Tables without attributes in braces are for `dataset=tables`."""
    kind = endings(path)
    if kind not in _READERS or kind not in (".json", ".edgelist", ".net"):
        return kind in _READERS
    if path.name.endswith(".gz"):
        return kind == ".net"
    start = start_of(path)
    if kind == ".json":
        return _NODE_LINK.search(start) is not None and _GRAPHSTORM.search(start) is None
    return start.lstrip().startswith(b"*") if kind == ".net" else b"{" in start


# --- formats ----------------------------------------------------------------------------------------------------------
def _graphml(path: Path, _: bool) -> nx.Graph[Any]:
    import networkx as nx

    return nx.read_graphml(_safe_xml(path))


def _gexf(path: Path, _: bool) -> nx.Graph[Any]:
    import networkx as nx

    return nx.read_gexf(_safe_xml(path))


class _RootReached(Exception):  # noqa: N818
    """The document has no type declaration."""


def _safe_xml(path: Path) -> BytesIO:
    """The document, without a type declaration: entities of entities would fill the memory.

    Raises:
        DataError: it has one. This is known before anything is expanded.
    """
    content = content_of(path, _FACTOR)

    def refuse(*_: object) -> None:
        raise DataError(Problem(str(path), "<!DOCTYPE", "documents with a type declaration are not read, since its "
                                "entities may expand to any size", "remove the declaration, or write the file "
                                "again with networkx"))

    def stop(*_: object) -> None:
        raise _RootReached

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler, parser.StartElementHandler = refuse, stop
    with suppress(_RootReached):
        parser.Parse(content, True)
    return BytesIO(content)


def _gml(path: Path, _: bool) -> nx.Graph[Any]:
    """With labels as names if they differ, else with ids."""
    import networkx as nx

    lines = text_of(path, _FACTOR).splitlines()
    graph = nx.parse_gml(lines, label="id")
    labels = [data.get("label") for _, data in graph.nodes(data=True)]
    if None in labels or len({str(one) for one in labels}) < len(labels):
        return graph
    named = nx.relabel_nodes(graph, dict(zip(graph, labels, strict=True)))
    for _, data in named.nodes(data=True):
        del data["label"]
    return named


def _pajek(path: Path, _: bool) -> nx.Graph[Any]:
    import networkx as nx

    return nx.parse_pajek(text_of(path, _FACTOR))


def _node_link(path: Path, _: bool) -> nx.Graph[Any]:
    import networkx as nx

    content = parse_json(content_of(path, _FACTOR))
    if not isinstance(content, dict) or not isinstance(content.get("nodes"), list):
        raise ValueError("needs nodes and edges, as networkx.node_link_data writes them")
    edges = next((key for key in ("edges", "links") if isinstance(content.get(key), list)), "edges")
    without = [place for place, one in enumerate(content["nodes"]) if not isinstance(one, dict) or "id" not in one]
    if without:
        raise ValueError(f"vertex {without[0]} has no id; {len(without)} vertices have none")
    known = len(content["nodes"])
    graph = nx.node_link_graph(content, edges=edges)
    _refuse_new(list(graph), known)
    return graph


def _refuse_new(names: list[Any], known: int) -> None:
    """Refuse an edge to a vertex that is not listed: NetworkX would add it."""
    if len(names) != known:
        raise ValueError(f"{known} vertices are listed, and {len(names)} are there with the ends of edges; "
                         f"one that is not listed, or listed twice, is near {names[min(known, len(names) - 1)]!r}")


def _edge_list(path: Path, directed: bool) -> nx.Graph[Any]:
    """Lines with two names, and attributes in braces or one weight."""
    import networkx as nx

    lines = text_of(path, _FACTOR).splitlines()
    rows = [text for line in lines if (text := line.partition("#")[0]).strip()]
    short = next((number for number, text in enumerate(rows, 1) if len(text.partition("{")[0].split()) < 2), None)
    if short is not None:
        raise ValueError(f"row {short}: {rows[short - 1][:60]!r} has no two ends")
    weighted = bool(rows) and "{" not in rows[0] and len(rows[0].split()) == 3
    return nx.parse_edgelist(rows, data=(("weight", float),) if weighted else True,
                             create_using=nx.MultiDiGraph if directed else nx.MultiGraph)


def _adjacency_list(path: Path, directed: bool) -> nx.Graph[Any]:
    import networkx as nx

    return nx.parse_adjlist(text_of(path, _FACTOR).splitlines(), create_using=nx.DiGraph if directed else nx.Graph)


_READERS: dict[str, Callable[[Path, bool], Any]] = {
    ".graphml": _graphml, ".gexf": _gexf, ".gml": _gml, ".net": _pajek, ".pajek": _pajek, ".json": _node_link,
    ".edgelist": _edge_list, ".adjlist": _adjacency_list,
}
