"""A graph that PyTorch Geometric saved: `Data`, `HeteroData`, their dictionaries, or a data set of one graph."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnnexp.datasets.base import WrittenDataset, data_folder
from gnnexp.datasets.formats.dataset import ForeignOptions, write_foreign
from gnnexp.datasets.formats.foreign import ForeignGraph
from gnnexp.datasets.formats.pyg.content import Content, content_of_file
from gnnexp.datasets.formats.pyg.graph import AttributeNames, foreign_of_pyg
from gnnexp.datasets.formats.pyg.reverses import without_reverses
from gnnexp.datasets.formats.pyg.torch_file import TorchFile
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import is_file, is_folder
from gnnexp.graph.graph import Graph
from gnnexp.graph.merging import MergeWeights

_ENDINGS = (".pt", ".pth")
_FOLDER = "processed"  # of the data sets of PyG
_MARKS = (b"edge_index", b"adj_t")


@dataclass(kw_only=True, eq=False)
class Pyg(ForeignOptions, AttributeNames, WrittenDataset):
    """A file of `torch.save`, which is read without torch_geometric. No code in it runs.

    Attributes:
        name: name of the graph.
        path: the file, or the folder of a data set of PyG; null = `$GNNEXP_DATA/pyg`.
        features: attribute with the features of vertices; null: none.
        label: attribute with the labels of vertices; null: none.
        weight: attribute with the weights of edges; `auto` = `edge_weight`, or `edge_attr` of one column; null: none.
        ids: attribute with the ids of vertices; `auto` = `n_id` or `node_id`; null: 0 to n - 1.
        mask: which of several splits, if masks have several columns.
        target: type of the vertices with labels; null = the only one.
        split: `auto` takes the masks, or draws a split if there are none; `given` takes the masks; `random` draws
            shares of the labelled vertices.
        train: share of training vertices, if the split is drawn.
        val: share of validation vertices, if the split is drawn; the rest is test.
        seed: seed of the split.
        sparse: features as sparse rows (true), dense (false), or by their size (auto).
        symmetrize: add the reverse of each edge that has none. Reverses that are there are not added again.
        inverse_relations: the reverse of an edge of type r has type R + r; null = if there are several types of
            vertices, or types of reverses.
        self_loops: `keep` or `remove`.
        duplicates: `merge` or `keep` parallel edges.
        merge_weights: the weight of merged edges: their `sum`, as PyG's `coalesce` gives it, or another rule.
        link_split: shares `val` and `test` of the links to hold out (`gnnexp.datasets.splits.held_out`), or null.
    """

    name: str = "pyg"
    path: str | None = None
    merge_weights: MergeWeights = "sum"

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """A `.pt` file with an attribute `edge_index` or `adj_t`, or a folder with one such file."""
        try:
            files = _files(place) if is_folder(place) else [place] * (place.suffix in _ENDINGS and is_file(place))
            return [] if len(files) == 1 and _has_edges(files[0]) else None
        except DataError:
            return None

    def sources(self) -> list[Path]:
        """The file."""
        place = data_folder(self.path, "pyg")
        if not place.is_dir():
            return [place]
        files = _files(place)
        if len(files) != 1:
            names = ", ".join(str(file.relative_to(place)) for file in files)[:200] or "no .pt file"
            raise DataError(
                Problem(
                    "dataset.path",
                    str(place),
                    f"must have one graph; has {names}",
                    "name the file: dataset.path=FOLDER/FILE.pt",
                )
            )
        return files

    def generate(self, folder: Path) -> Graph:
        """See `WrittenDataset.generate`."""
        return write_foreign(self.read(), self, self.name, folder)

    def read(self) -> ForeignGraph:
        """The graph in the file."""
        return self.foreign_of(content_of_file(self.sources()[0]))

    def foreign_of(self, content: Content) -> ForeignGraph:
        """The graph of a content. Reverses that it has already are left out if `symmetrize` adds them."""
        foreign = foreign_of_pyg(content, self)
        return without_reverses(foreign, keeps_duplicates=self.duplicates == "keep") if self.symmetrize else foreign


def _files(folder: Path) -> list[Path]:
    """The files of graphs in a folder, or else in its folder `processed`. PyG's notes of transforms are none."""
    for place in (folder, folder / _FOLDER):
        files = (
            [
                file
                for file in sorted(place.iterdir())
                if file.suffix in _ENDINGS and is_file(file) and not file.name.startswith("pre_")
            ]
            if is_folder(place)
            else []
        )
        if files:
            return files
    return []


def _has_edges(path: Path) -> bool:
    raw = TorchFile(path).start()
    return any(mark in raw for mark in _MARKS)
