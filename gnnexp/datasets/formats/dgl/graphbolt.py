"""Data sets of GraphBolt (`dgl.graphbolt.OnDiskDataset`): a folder with `metadata.yaml`, in its raw form.

The format: https://www.dgl.ai/dgl_docs/stochastic_training/ondisk-dataset-specification.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from gnnexp.datasets.base import data_folder, require
from gnnexp.datasets.formats.dataset import ForeignDataset
from gnnexp.datasets.formats.dgl.arrays import AUTO, DataNames, DglArrays, DglEdges, classes_of, foreign_of_arrays
from gnnexp.datasets.formats.dgl.graphbolt_files import FORMAT_FIX, Metadata, SetOfTask, metadata_in, read_metadata
from gnnexp.datasets.formats.foreign import ForeignGraph, ForeignVertices
from gnnexp.errors import DataError, Findings, Problem

_SPLITS = {"train_set": "train", "validation_set": "val", "test_set": "test"}
_LINKS = {"train_set": "train", "validation_set": "valid", "test_set": "test"}
_OWN_NEGATIVES = ("negative_srcs", "negative_dsts", "indexes")


@dataclass(kw_only=True, eq=False)
class GraphBolt(ForeignDataset):
    """The graph, features and tasks of `metadata.yaml`, with one or several types of vertices and edges.

    Attributes:
        name: name of the graph.
        path: the folder, or its `metadata.yaml`; null = `$GNNEXP_DATA/graphbolt`.
        task: name of the task whose sets are taken; null takes one with labels and one with links, if there is no
            other.
        held_out_edges: edges of the graph that are links for validation and test, or their reverses: `remove` them, or
            `keep` them.
        features: name of the features of vertices in `feature_data`; `auto` finds it (`feat`, …); null = none.
        weight: name of the features of edges that are weights; `auto` finds it (`weight`, …); null = none.
    """

    name: str = "graphbolt"
    task: str | None = None
    held_out_edges: Literal["remove", "keep"] = "remove"
    features: str | None = AUTO
    weight: str | None = AUTO

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """A folder whose `metadata.yaml` has a graph, or this file."""
        return None if metadata_in(place) is None else []

    def sources(self) -> list[Path]:
        """`metadata.yaml`, and all files that it names."""
        metadata = self._metadata()
        require(metadata.files(), FORMAT_FIX)
        return [metadata.path, *metadata.files()]

    def _metadata(self) -> Metadata:
        return read_metadata(data_folder(self.path, "graphbolt"))

    def read(self) -> ForeignGraph:
        """The graph with the labels, splits and links of the tasks."""
        metadata, findings = self._metadata(), Findings()
        edges = [findings.attempt(metadata.edges, one) for one in metadata.edge_types]
        features = {domain: findings.attempt(metadata.features, domain) or {} for domain in ("node", "edge")}
        sets = findings.attempt(self._sets, metadata) or []
        findings.raise_all()
        arrays = DglArrays(
            metadata.counts,
            {kind: features["node"].get(kind, {}) for kind in metadata.counts},
            [
                DglEdges(one.types, *ends, features["edge"].get(":".join(one.types), {}))
                for one, ends in zip(metadata.edge_types, edges, strict=True)
                if ends is not None
            ],
        )
        found = foreign_of_arrays(arrays, DataNames(None, self.features, self.weight, {}), str(metadata.path))
        found = replace(found, notes=[*found.notes, *metadata.notes])
        for one in sets:
            found = _with_labels(found, metadata, one) if one.has_labels else _with_links(found, metadata, one)
        return replace(found, keeps_known=self.held_out_edges == "keep")

    def _sets(self, metadata: Metadata) -> list[_Task]:
        """The chosen tasks.

        Raises:
            DataError: there is no such task, or several of one kind.
        """
        tasks = [_Task(name, metadata.sets(name)) for name in metadata.tasks]
        chosen = [one for one in tasks if self.task in (None, one.name) and any(one.sets.values())]
        of_kind = [sum(one.has_labels is kind for one in chosen) for kind in (True, False)]
        if max(of_kind) > 1 or (self.task is not None and not chosen):
            names = ", ".join(one.name for one in tasks) or "none"
            raise DataError(
                Problem(
                    "dataset.task",
                    self.task,
                    f"tasks of {metadata.path} are {names}",
                    f"set dataset.task={tasks[0].name if tasks else 'null'}",
                )
            )
        return chosen


@dataclass(frozen=True)
class _Task:
    """A task: its sets by `train_set`, `validation_set`, `test_set`, each with a set for each type."""

    name: str
    sets: Mapping[str, list[SetOfTask]]

    @property
    def has_labels(self) -> bool:
        """Whether the items are vertices with labels. Otherwise they are pairs of vertices."""
        return all(one.seeds.ndim == 1 for parts in self.sets.values() for one in parts)


def _with_labels(found: ForeignGraph, metadata: Metadata, task: _Task) -> ForeignGraph:
    """The graph with labels and splits of vertices: GraphBolt keeps them in the sets only."""
    vertices = dict(found.vertices)
    for kind, name in zip(metadata.counts, found.vertices, strict=True):
        parts = [(split, one) for split, sets in task.sets.items() for one in sets if one.type in (kind, None)]
        if not parts:
            continue
        ids = np.concatenate([one.seeds for _, one in parts])
        key = f"{metadata.path}, {task.name}, {kind}"
        _check_ids(ids, vertices[name].count, key)
        splits = {
            split: np.concatenate([one.seeds for part, one in parts if _SPLITS[part] == split] or [ids[:0]])
            for split in _SPLITS.values()
        }
        labels = _labels(vertices[name], ids, [one for _, one in parts], key)
        vertices[name] = replace(vertices[name], labels=labels, splits=splits)
    return replace(found, vertices=vertices)


def _labels(own: ForeignVertices, ids: np.ndarray, sets: list[SetOfTask], key: str) -> np.ndarray | None:
    given = [one.data["labels"] for one in sets if "labels" in one.data]
    if len(given) != len(sets) or len({values.shape[1:] for values in given}) > 1:
        raise DataError(
            Problem(
                key,
                f"labels of the shapes {[list(values.shape) for values in given]}",
                "each set needs labels of one shape",
                FORMAT_FIX,
            )
        )
    values = classes_of(np.concatenate(given), key)
    if values.shape[0] != ids.size:
        raise DataError(Problem(key, f"{values.shape[0]} labels", f"there are {ids.size} vertices", FORMAT_FIX))
    labels = np.full((own.count, *values.shape[1:]), np.nan if values.dtype.kind == "f" else -1, values.dtype)
    labels[ids] = values
    return labels


def _with_links(found: ForeignGraph, metadata: Metadata, task: _Task) -> ForeignGraph:
    """The graph with the positive pairs of the sets as links, and pairs with the label 0 as common negatives."""
    names, kinds = dict(zip(metadata.counts, found.vertices, strict=True)), [one.types for one in metadata.edge_types]
    parts: dict[str, list[np.ndarray]] = {}
    own = False
    for split, sets in task.sets.items():
        for one in sets:
            key = f"{metadata.path}, {task.name}, {split}, {one.type}"
            place = metadata.place_of(one.type, key)
            source, destination = names[kinds[place][0]], names[kinds[place][2]]
            pairs = one.seeds.reshape(-1, 2).astype(np.int64)
            _check_ids(pairs[:, 0], found.vertices[source].count, key)
            _check_ids(pairs[:, 1], found.vertices[destination].count, key)
            ends = np.add(pairs, [found.starts[source], found.starts[destination]])
            links = np.insert(ends, 1, place, axis=1) if len(kinds) > 1 else ends
            positive = _positive(one, key)
            own = own or any(name in one.data for name in _OWN_NEGATIVES)
            parts.setdefault(_LINKS[split], []).append(links[positive])
            common = not any(name in one.data for name in _OWN_NEGATIVES)
            if split != "train_set" and common and not positive.all():
                parts.setdefault(f"{_LINKS[split]}_neg", []).append(links[~positive])
    links_of = {name: np.concatenate(found_links) for name, found_links in parts.items()}
    notes = [*found.notes]
    if own:
        notes.append("negatives of single links are not used: gnnexp ranks a link among all vertices")
    return replace(found, links=links_of, notes=notes)


def _positive(one: SetOfTask, key: str) -> np.ndarray:
    """`[n]` bool: whether a pair is a link."""
    labels = one.data.get("labels")
    if labels is None:
        return np.ones(one.seeds.shape[0], bool)
    if labels.size != one.seeds.shape[0] or not np.isin(labels, (0, 1)).all():
        raise DataError(
            Problem(
                key,
                f"labels {list(labels.shape)}",
                "labels of pairs must be 1 (a link) or 0: gnnexp predicts links, and no classes of edges",
                "set dataset.task to another task",
            )
        )
    return np.asarray(labels.reshape(-1) == 1)


def _check_ids(ids: np.ndarray, count: int, key: str) -> None:
    wrong = np.flatnonzero((ids < 0) | (ids >= count))
    if wrong.size:
        raise DataError(
            Problem(
                f"{key}, row {wrong[0]}",
                int(ids[wrong[0]]),
                f"vertices are 0 to {count - 1}; {wrong.size} are wrong",
                "correct the file",
            )
        )
