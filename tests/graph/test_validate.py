"""Validation: every rule of `Graph` is checked, all offences at once, and no broken array makes a kernel leave it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import full_graph, sparse_rows

from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.storage.format import GraphWriter, open_graph
from gnnexp.graph.validate import validate_graph
from gnnexp.testing.graphs import random_graph
from gnnexp.testing.strategies import graphs

NONE = torch.empty(0, dtype=torch.int64)
NO_EDGES = torch.empty(0, dtype=torch.int32)


def said(graph: Graph) -> list[str]:
    return [str(problem) for problem in validate_graph(graph, name="made-up")]


def changed(tensor: torch.Tensor | None, position: int | tuple[int, int], value: float) -> torch.Tensor:
    assert tensor is not None
    copy = tensor.clone()
    copy[position] = value
    return copy


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("multilabel", [True, False])
def test_a_sound_graph_has_no_problem(sparse: bool, multilabel: bool) -> None:
    assert said(full_graph(sparse=sparse, multilabel=multilabel)) == []


@settings(max_examples=50, deadline=None)
@given(graphs())
def test_any_sound_topology_passes(graph: Graph) -> None:
    labels = torch.zeros(graph.num_nodes, dtype=torch.int64)
    splits = Splits(torch.tensor([0]), NONE, NONE)
    assert said(replace(graph, labels=labels, num_classes=1, splits=splits)) == []


def splits(train: list[int], val: list[int] | None = None) -> Callable[[Graph], Graph]:
    ids = [torch.tensor(split, dtype=torch.int64) for split in (train, val or [], [])]
    return lambda graph: replace(graph, splits=Splits(*ids))


def with_(**fields: Callable[[Graph], object]) -> Callable[[Graph], Graph]:
    return lambda graph: replace(graph, **{name: make(graph) for name, make in fields.items()})


def swap_first_row(graph: Graph) -> torch.Tensor:
    """Sources with the first two different ones of a row exchanged."""
    indices, ends = graph.indices.clone(), graph.indptr.tolist()
    for start, end in pairwise(ends):
        if end - start > 1 and indices[start] != indices[end - 1]:
            indices[start], indices[end - 1] = indices[end - 1].clone(), indices[start].clone()
            return indices
    raise AssertionError("no row with two sources")


OFFENCES: dict[str, tuple[Callable[[Graph], Graph], str]] = {
    "indptr starts late": (with_(indptr=lambda g: changed(g.indptr, 0, 1)), "runs from 1"),
    "indptr falls": (with_(indptr=lambda g: changed(g.indptr, 20, 10**15)), "first at position 21"),
    "indptr falls far": (with_(indptr=lambda g: changed(g.indptr, 20, -(2**63))), "first at position 20"),
    "indptr ends elsewhere": (with_(indptr=lambda g: changed(g.indptr, -1, 149)), "must run from 0 to 150"),
    "indptr is int32": (with_(indptr=lambda g: g.indptr.to(torch.int32)), "must be int64"),
    "no vertex": (lambda _: Graph(torch.zeros(1, dtype=torch.int64), NO_EDGES), "at least one"),
    "empty indptr": (lambda _: Graph(NONE, NO_EDGES), "at least one"),
    "source beyond": (with_(indices=lambda g: changed(g.indices, 7, 40)), "first at position 7: 40"),
    "source negative": (with_(indices=lambda g: changed(g.indices, 7, -1)), "first at position 7: -1"),
    "indices are wide": (with_(indices=lambda g: g.indices.to(torch.int64)), "must be torch.int32"),
    "indices are floats": (with_(indices=lambda g: g.indices.float()), "must be int32 or int64"),
    "out of order": (with_(indices=swap_first_row), "sorted by (destination, source, type)"),
    "types too short": (with_(edge_types=lambda g: g.edge_types[1:]), "149 rows"),  # type: ignore[index]
    "type negative": (with_(edge_types=lambda g: changed(g.edge_types, 3, -2)), "first at position 3: -2"),
    "node type negative": (with_(node_types=lambda g: changed(g.node_types, 3, -2)), "node_types"),
    "features too short": (with_(features=lambda g: g.features[1:]), "39 rows"),  # type: ignore[index]
    "features flat": (with_(features=lambda g: g.features[:, 0]), "2 dimensions"),  # type: ignore[index]
    "features wide": (with_(features=lambda g: g.features.double()), "must be float32"),  # type: ignore[union-attr]
    "features NaN": (with_(features=lambda g: changed(g.features, (9, 4), float("nan"))), "first at [9, 4]: nan"),
    "features infinite": (with_(features=lambda g: changed(g.features, (9, 4), -float("inf"))), "[9, 4]: -inf"),
    "edge features NaN": (with_(edge_features=lambda g: changed(g.edge_features, (2, 1), float("nan"))), "[2, 1]"),
    "label beyond": (with_(labels=lambda g: changed(g.labels, 5, 4)), "first at position 5: 4"),
    "label below": (with_(labels=lambda g: changed(g.labels, 5, -2)), "first at position 5: -2"),
    "labels are floats": (with_(labels=lambda g: g.labels.float()), "must be 0 where labels are real"),  # type: ignore[union-attr]
    "no classes": (with_(num_classes=lambda _: 0), "num_classes"),
    "no vertex has one": (
        with_(labels=lambda g: torch.full_like(g.labels, -1), num_classes=lambda _: 0),  # type: ignore[arg-type]
        "no vertex has a label",
    ),
    "no labels": (with_(labels=lambda _: None), "vertices of the splits need labels"),
    "split beyond": (splits([1, 40]), "first at position 1: 40"),
    "split negative": (splits([-1, 3]), "first at position 0: -1"),
    "split unsorted": (splits([3, 2]), "first at position 1: 3, 2"),
    "split repeats": (splits([2, 3, 3]), "ascending without repetition"),
    "splits overlap": (lambda g: replace(g, splits=Splits(g.splits.train, g.splits.train[3:5], NONE)), "2 vertices in"),
    "split unlabelled": (with_(labels=lambda g: changed(g.labels, int(g.splits.val[1]), -1)), "must all have a label"),
    "nothing to train on": (lambda g: replace(splits([])(g), links={}), "at least one vertex to train on"),
    "link beyond": (with_(links=lambda _: {"train": torch.tensor([[0, 40]])}), "links_train[:, 1]"),
    "relation negative": (with_(links=lambda _: {"test": torch.tensor([[0, -1, 3]])}), "links_test[:, 1]"),
    "link of four": (with_(links=lambda _: {"test": torch.zeros(1, 4, dtype=torch.int64)}), "[n, 2]"),
    "links of two kinds": (
        with_(links=lambda _: {"train": torch.tensor([[0, 1]]), "valid": torch.tensor([[0, 1, 2]])}),
        "columns: 2 (train), 3 (valid)",
    ),
    "unknown links": (with_(links=lambda _: {"spare": torch.zeros(1, 2, dtype=torch.int64)}), "links_spare"),
}


@pytest.mark.parametrize("offence", OFFENCES)
def test_every_offence_is_found_where_it_is(offence: str) -> None:
    make, word = OFFENCES[offence]
    problems = validate_graph(make(full_graph()), name="made-up")
    assert any(word in str(problem) for problem in problems), list(map(str, problems))
    assert all(problem.key.startswith("made-up: ") and problem.fix for problem in problems)


SPARSE_OFFENCES: dict[str, tuple[dict[str, object], str]] = {
    "columns beyond": ({"columns": lambda f: changed(f.columns, 3, 6)}, "first at position 3: 6"),
    "columns unsorted": ({"columns": lambda f: f.columns.flip(0).contiguous()}, "ascending and unique"),
    "columns repeat": ({"columns": lambda f: torch.zeros_like(f.columns)}, "ascending and unique"),
    "values NaN": ({"values": lambda f: changed(f.values, 2, float("nan"))}, "features_values"),
    "values too few": ({"values": lambda f: f.values[1:]}, "one value per column"),
    "rows fall": ({"indptr": lambda f: changed(f.indptr, 3, -5)}, "features_indptr"),
    "rows end elsewhere": ({"indptr": lambda f: changed(f.indptr, -1, 10**9)}, "features_indptr"),
}


@pytest.mark.parametrize("offence", SPARSE_OFFENCES)
def test_offences_of_sparse_features(offence: str) -> None:
    graph = full_graph(sparse=True)
    fields, word = SPARSE_OFFENCES[offence]
    broken = replace(graph.features, **{name: make(graph.features) for name, make in fields.items()})  # type: ignore
    assert any(word in text for text in said(replace(graph, features=broken)))


@pytest.mark.parametrize("row", [[0.0, 1.0, 2.0, 0.0], [0.0, float("nan"), 1.0, 0.0], [-1.0, 0.0, 0.0, 0.0]])
def test_rows_of_several_labels_are_binary_or_missing(row: list[float]) -> None:
    graph = full_graph(multilabel=True)
    labels = graph.labels.clone()  # type: ignore[union-attr]
    labels[11] = torch.tensor(row)
    assert any("first is row 11" in text for text in said(replace(graph, labels=labels)))


def test_all_offences_are_said_at_once() -> None:
    graph = full_graph()
    broken = replace(
        graph,
        indices=changed(graph.indices, 7, 99),
        features=changed(graph.features, (9, 4), float("nan")),  # type: ignore[arg-type]
        labels=changed(graph.labels, 5, 77),
        splits=Splits(torch.tensor([3, 3]), torch.tensor([50]), NONE),
    )
    keys = {problem.key.split(": ")[1] for problem in validate_graph(broken, name="x")}
    assert {"indices", "features", "labels", "train", "val"} <= keys


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_no_content_of_the_topology_crashes_it(data: st.DataObject) -> None:
    graph = random_graph(8, 20, 1)
    indptr = torch.tensor(data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=9, max_size=9)))
    indices = torch.tensor(
        data.draw(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=20, max_size=20)), dtype=torch.int32
    )
    assert said(replace(graph, indptr=indptr, indices=indices)) != []


def test_a_mapped_graph_is_checked_without_copying_it(tmp_path: Path) -> None:
    with GraphWriter(tmp_path / "g") as writer:
        writer.put("indptr", np.arange(1_000_001))
        writer.array("indices", (1_000_000,), np.int32)
        writer.array("features", (1_000_000, 16), np.float32)
        writer.array("labels", (1_000_000,), np.int64)
        writer.put("train", np.arange(10))
        writer.finish_graph(name="wide", num_classes=2)
    graph = open_graph(tmp_path / "g")
    validate_graph(full_graph(), name="compiles")
    tracemalloc.start()
    assert validate_graph(graph, name="wide") == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 20  # the arrays have 84 MB


def test_sparse_rows_helper_is_sound() -> None:
    dense = torch.rand(5, 6)
    assert torch.equal(sparse_rows(dense).to_dense(), torch.where(dense > 0.5, dense, 0))
