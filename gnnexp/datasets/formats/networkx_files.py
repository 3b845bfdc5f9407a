"""Files of graphs that NetworkX reads: GraphML, GEXF, GML, Pajek, node-link JSON, and lists with attributes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from gnnexp.datasets.base import WrittenDataset
from gnnexp.datasets.formats.dataset import ForeignOptions, write_foreign
from gnnexp.datasets.formats.foreign import ForeignGraph
from gnnexp.datasets.formats.graph_files.attributed import AttributedGraph
from gnnexp.datasets.formats.graph_files.gexf import read_gexf
from gnnexp.datasets.formats.graph_files.gml import read_gml
from gnnexp.datasets.formats.graph_files.graphml import read_graphml
from gnnexp.datasets.formats.graph_files.growing import growing
from gnnexp.datasets.formats.graph_files.lists import refuse_names_in_parts, refuse_wide_rows
from gnnexp.datasets.formats.graph_files.node_link import read_node_link
from gnnexp.datasets.formats.graph_files.pajek import read_pajek
from gnnexp.datasets.formats.networkx_graph import AttributeOptions, attributed, foreign_of
from gnnexp.datasets.reading.content import content_of, endings, one_file, start_of, text_of, visible_files
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import is_file, parse_json
from gnnexp.graph.graph import Graph

# Bytes of memory for each byte of a file: there is a dictionary for each vertex and each edge.
_FACTOR = 24
_NODE_LINK = re.compile(
    rb'^\s*\{.*("(nodes|links|edges)"\s*:\s*\[|"(directed|multigraph)"\s*:\s*(true|false))', re.DOTALL
)
_MAX_LINE = 1 << 16
_COMMENT = re.compile(r"(?:^|(?<=\s))#")
_BEGIN_PAJEK = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s|%[^\n]*\n)*\*")
_GCONSTRUCT = re.compile(rb'"(node|source)_id_col"')


@dataclass(kw_only=True, eq=False)
class NetworkX(ForeignOptions, AttributeOptions, WrittenDataset):
    """A graph from a file of NetworkX, igraph, Gephi or Pajek; its ending says the format, and `.gz` may follow.

    `.graphml`, `.gexf`, `.gml`, `.net` and `.pajek`, `.json` (node-link), `.edgelist`, `.adjlist`. An attribute that is
    `auto` is found by its name; `null` means that there is none. Undirected edges lead in both directions.

    Attributes:
        name: name of the graph.
        path: the file, or a folder with one such file; null = `$GNNEXP_DATA/networkx`.
        directed: whether the edges of `.edgelist` and `.adjlist` have a direction, which these files do not say.
    """

    version: ClassVar[int] = 1  # NetworkX read GraphML, GEXF, GML and Pajek

    name: str = "networkx"
    path: str | None = None
    directed: bool = False

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """A file of NetworkX, or a folder that has nothing else."""
        files = visible_files(place)
        return [] if len(files) == 1 and _is_for_networkx(files[0]) else None

    def sources(self) -> list[Path]:
        """The file."""
        return [one_file(self.path, "networkx", _is_for_networkx, ", ".join(_READERS))]

    def generate(self, folder: Path) -> Graph:
        """See `WrittenDataset.generate`."""
        return write_foreign(self.read(), self, self.name, folder)

    def read(self) -> ForeignGraph:
        """The graph in the file."""
        graph = read_graph_file(self.sources()[0], directed=self.directed)
        return foreign_of(graph, self, both_directions=self.in_both_directions)


def read_graph_file(path: Path, *, directed: bool = False) -> AttributedGraph:
    """The graph in a file; whether it is `directed`, if the file does not say it.

    Raises:
        DataError: the file is damaged, has an unknown ending, or is too large for the memory.
    """
    reader = _READERS.get(endings(path))
    if reader is None:
        raise DataError(
            Problem(
                str(path),
                endings(path),
                f"endings are {', '.join(_READERS)}, also with .gz",
                "rename the file, or use dataset=tables",
            )
        )
    try:
        return reader(path, directed)
    except DataError:
        raise
    except ImportError as error:
        raise DataError(Problem(str(path), str(error), "NetworkX reads this file", "pip install networkx")) from None
    except Exception as error:  # NetworkX raises errors of any class for lists that are wrong
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(
            Problem(
                str(path), said, f"must be a whole {endings(path)} file", "write it again with networkx, or correct it"
            )
        ) from None


def _is_for_networkx(path: Path) -> bool:
    """Whether only NetworkX reads a file. Tables without attributes in braces are for `dataset=tables`."""
    kind = endings(path)
    if kind not in _READERS or kind not in (".json", ".edgelist", ".net"):
        return kind in _READERS
    if path.name.endswith(".gz"):
        return kind == ".net"
    start = start_of(path)
    if kind == ".json":
        return _NODE_LINK.search(start) is not None and not is_gconstruct(path)
    return _BEGIN_PAJEK.match(start) is not None if kind == ".net" else b"{" in start


def is_gconstruct(path: Path) -> bool:
    """Whether a file is a JSON of GraphStorm's gconstruct, which also has lists of nodes and edges."""
    return path.suffix == ".json" and is_file(path) and _GCONSTRUCT.search(start_of(path)) is not None


# --- formats ----------------------------------------------------------------------------------------------------------
def _graphml(path: Path, _: bool) -> AttributedGraph:
    return read_graphml(path, content_of(path, _FACTOR))


def _gexf(path: Path, _: bool) -> AttributedGraph:
    return read_gexf(path, content_of(path, _FACTOR))


def _gml(path: Path, _: bool) -> AttributedGraph:
    return read_gml(path, text_of(path, _FACTOR))


def _pajek(path: Path, _: bool) -> AttributedGraph:
    return read_pajek(path, text_of(path, _FACTOR))


def _node_link(path: Path, _: bool) -> AttributedGraph:
    return read_node_link(path, parse_json(content_of(path, _FACTOR)))


def _edge_list(path: Path, directed: bool) -> AttributedGraph:
    """Lines with two names, and attributes in braces or one weight."""
    import networkx as nx

    rows = _lines(path)
    refuse_wide_rows(path, rows)
    long = next((number for number, text in enumerate(rows, 1) if len(text) > _MAX_LINE), None)
    if long is not None:  # attributes are parsed by Python: up to 500 bytes for each sign
        raise ValueError(f"row {long} has more than {_MAX_LINE} signs")
    short = next((number for number, text in enumerate(rows, 1) if len(text.partition("{")[0].split()) < 2), None)
    if short is not None:
        raise ValueError(f"row {short}: {rows[short - 1][:60]!r} has no two ends")
    weighted = bool(rows) and "{" not in rows[0] and len(rows[0].split()) == 3
    return attributed(
        nx.parse_edgelist(
            growing(rows, f"{path}, edges"),
            comments=None,
            data=(("weight", float),) if weighted else True,
            create_using=nx.MultiDiGraph if directed else nx.MultiGraph,
        )
    )


def _adjacency_list(path: Path, directed: bool) -> AttributedGraph:
    """Lines with a name and those of its neighbours. An undirected edge may be in the lines of both ends."""
    import networkx as nx

    lines = _lines(path)
    rows = [line.split() for line in lines]
    refuse_names_in_parts(path, lines, rows, written=_is_by_networkx(path))
    pairs = ((source, other) for source, *others in rows for other in others)
    times = Counter(growing(pairs, f"{path}, neighbours"))
    graph: nx.Graph[str] = (nx.MultiDiGraph if directed else nx.MultiGraph)()

    def edges() -> Iterator[tuple[str, str]]:
        for source, *others in rows:
            graph.add_node(source)
            for other in dict.fromkeys(others):
                count = times[source, other] if directed else max(times[source, other], times[other, source])
                yield from [(source, other)] * (count - graph.number_of_edges(source, other))

    for source, other in growing(edges(), f"{path}, edges"):
        graph.add_edge(source, other)
    return attributed(graph)


def _is_by_networkx(path: Path) -> bool:
    """Whether NetworkX has written a list of neighbours: its comment has the time."""
    return any(line.startswith("# GMT ") for line in text_of(path, _FACTOR).split("\n", 3)[:3])


def _lines(path: Path) -> list[str]:
    """Lines without comments. A `#` in a name, or in braces, begins none."""
    rows = [_without_comment(line) for line in text_of(path, _FACTOR).split("\n")]
    return [row for row in rows if row.strip()]


def _without_comment(line: str) -> str:
    before, brace, rest = line.partition("{")
    found = _COMMENT.search(before)
    if found is not None:
        return before[: found.start()]
    inside, close, after = rest.rpartition("}")
    found = _COMMENT.search(after)
    return f"{before}{brace}{inside}{close}{after if found is None else after[: found.start()]}"


_READERS: dict[str, Callable[[Path, bool], AttributedGraph]] = {
    ".graphml": _graphml,
    ".gexf": _gexf,
    ".gml": _gml,
    ".net": _pajek,
    ".pajek": _pajek,
    ".json": _node_link,
    ".edgelist": _edge_list,
    ".adjlist": _adjacency_list,
}
