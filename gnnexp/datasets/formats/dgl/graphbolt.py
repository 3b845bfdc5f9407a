"""Data sets of GraphBolt (`dgl.graphbolt.OnDiskDataset`): a folder with `metadata.yaml`, in its raw form.

The format: https://www.dgl.ai/dgl_docs/stochastic_training/ondisk-dataset-specification.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from gnnexp.datasets.base import WrittenDataset, data_folder, require
from gnnexp.datasets.formats.dataset import ForeignOptions, write_foreign
from gnnexp.datasets.formats.dgl.arrays import AUTO, DataNames, DglArrays, DglEdges, class_numbers, foreign_of_arrays
from gnnexp.datasets.formats.dgl.graphbolt_files import FORMAT_FIX, Metadata, SetOfTask, metadata_in, read_metadata
from gnnexp.datasets.formats.foreign import ForeignGraph, ForeignVertices
from gnnexp.errors import DataError, Findings, Problem
from gnnexp.graph.graph import Graph

_SPLITS = {"train_set": "train", "validation_set": "val", "test_set": "test"}
_LINKS = {"train_set": "train", "validation_set": "valid", "test_set": "test"}
_OWN_NEGATIVES = ("negative_srcs", "negative_dsts", "indexes")


@dataclass(kw_only=True, eq=False)
class GraphBolt(ForeignOptions, WrittenDataset):
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
    path: str | None = None
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

    def generate(self, folder: Path) -> Graph:
        """See `WrittenDataset.generate`."""
        return write_foreign(self.read(), self, self.name, folder)

    def read(self) -> ForeignGraph:
        """The graph with the labels, splits and links of the tasks."""
        metadata, findings = self._metadata(), Findings()
        edges = [findings.attempt(metadata.edges, edge_type) for edge_type in metadata.edge_types]
        features = {domain: findings.attempt(metadata.features, domain) or {} for domain in ("node", "edge")}
        sets = findings.attempt(self._sets, metadata) or []
        findings.raise_all()
        arrays = DglArrays(
            metadata.counts,
            {kind: features["node"].get(kind, {}) for kind in metadata.counts},
            [
                DglEdges(edge_type.types, *ends, features["edge"].get(":".join(edge_type.types), {}))
                for edge_type, ends in zip(metadata.edge_types, edges, strict=True)
                if ends is not None
            ],
        )
        foreign = foreign_of_arrays(
            arrays, DataNames(label=None, features=self.features, weight=self.weight, masks={}), str(metadata.path)
        )
        foreign = replace(foreign, notes=[*foreign.notes, *metadata.notes])
        for task in sets:
            foreign = _with_labels(foreign, metadata, task) if task.has_labels else _with_links(foreign, metadata, task)
        return replace(foreign, keeps_known=self.held_out_edges == "keep")

    def _sets(self, metadata: Metadata) -> list[_Task]:
        """The chosen tasks.

        Raises:
            DataError: there is no such task, or several of one kind.
        """
        tasks = [_Task(name, metadata.sets(name)) for name in metadata.tasks]
        chosen = [task for task in tasks if self.task in (None, task.name) and any(task.sets.values())]
        of_kind = [sum(task.has_labels is kind for task in chosen) for kind in (True, False)]
        if max(of_kind) > 1 or (self.task is not None and not chosen):
            names = ", ".join(task.name for task in tasks) or "none"
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


def _with_labels(foreign: ForeignGraph, metadata: Metadata, task: _Task) -> ForeignGraph:
    """The graph with labels and splits of vertices: GraphBolt keeps them in the sets only."""
    vertices = dict(foreign.vertices)
    for kind, name in zip(metadata.counts, foreign.vertices, strict=True):
        parts = [
            (split, seed_set) for split, sets in task.sets.items() for seed_set in sets if seed_set.type in (kind, None)
        ]
        if not parts:
            continue
        ids = np.concatenate([seed_set.seeds for _, seed_set in parts])
        key = f"{metadata.path}, {task.name}, {kind}"
        _check_ids(ids, vertices[name].count, key)
        splits = {
            split: np.concatenate([seed_set.seeds for part, seed_set in parts if _SPLITS[part] == split] or [ids[:0]])
            for split in _SPLITS.values()
        }
        labels = _labels(vertices[name], ids, [seed_set for _, seed_set in parts], key)
        vertices[name] = replace(vertices[name], labels=labels, splits=splits)
    return replace(foreign, vertices=vertices)


def _labels(own: ForeignVertices, ids: np.ndarray, sets: list[SetOfTask], key: str) -> np.ndarray | None:
    label_parts = [seed_set.data["labels"] for seed_set in sets if "labels" in seed_set.data]
    if len(label_parts) != len(sets) or len({values.shape[1:] for values in label_parts}) > 1:
        raise DataError(
            Problem(
                key,
                f"labels of the shapes {[list(values.shape) for values in label_parts]}",
                "each set needs labels of one shape",
                FORMAT_FIX,
            )
        )
    values = class_numbers(np.concatenate(label_parts), key)
    if values.shape[0] != ids.size:
        raise DataError(Problem(key, f"{values.shape[0]} labels", f"there are {ids.size} vertices", FORMAT_FIX))
    labels = np.full((own.count, *values.shape[1:]), np.nan if values.dtype.kind == "f" else -1, values.dtype)
    labels[ids] = values
    return labels


def _with_links(foreign: ForeignGraph, metadata: Metadata, task: _Task) -> ForeignGraph:
    """The graph with the positive pairs of the sets as links, and pairs with the label 0 as common negatives."""
    names, kinds = (
        dict(zip(metadata.counts, foreign.vertices, strict=True)),
        [edge_type.types for edge_type in metadata.edge_types],
    )
    parts: dict[str, list[np.ndarray]] = {}
    own = False
    for split, sets in task.sets.items():
        for seed_set in sets:
            key = f"{metadata.path}, {task.name}, {split}, {seed_set.type}"
            place = metadata.place_of(seed_set.type, key)
            source, destination = names[kinds[place][0]], names[kinds[place][2]]
            pairs = seed_set.seeds.reshape(-1, 2).astype(np.int64)
            _check_ids(pairs[:, 0], foreign.vertices[source].count, key)
            _check_ids(pairs[:, 1], foreign.vertices[destination].count, key)
            ends = np.add(pairs, [foreign.starts[source], foreign.starts[destination]])
            links = np.insert(ends, 1, place, axis=1) if len(kinds) > 1 else ends
            positive = _positive(seed_set, key)
            own = own or any(name in seed_set.data for name in _OWN_NEGATIVES)
            parts.setdefault(_LINKS[split], []).append(links[positive])
            common = not any(name in seed_set.data for name in _OWN_NEGATIVES)
            if split != "train_set" and common and not positive.all():
                parts.setdefault(f"{_LINKS[split]}_neg", []).append(links[~positive])
    links_of = {name: np.concatenate(found_links) for name, found_links in parts.items()}
    notes = [*foreign.notes]
    if own:
        notes.append("negatives of single links are not used: gnnexp ranks a link among all vertices")
    return replace(foreign, links=links_of, notes=notes)


def _positive(seed_set: SetOfTask, key: str) -> np.ndarray:
    """`[n]` bool: whether a pair is a link."""
    labels = seed_set.data.get("labels")
    if labels is None:
        return np.ones(seed_set.seeds.shape[0], bool)
    if labels.size != seed_set.seeds.shape[0] or not np.isin(labels, (0, 1)).all():
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
