"""No held-out link is in the graph in either direction, with relations that have the reverses of others.

What is right is counted here with sets of pairs of vertices, not with gnnexp's kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnexp.datasets.splits import opposites
from gnnexp.datasets.splits.given import without_known
from gnnexp.datasets.splits.held_out import hold_out
from gnnexp.datasets.splits.opposites import NO_REVERSES, SAME_TYPE, find_opposites
from gnnexp.errors import DataError
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph

Link = tuple[int, int, int]


@dataclass(frozen=True)
class Case:
    """Rows `(head, relation, tail)` of a graph with `size` vertices; R relations; and what becomes of reverses."""

    rows: list[Link]
    size: int
    relations: int
    reverses: int
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Relations with random edges, and for some of them a relation with the reverses, or both directions."""
    size, base = draw(st.integers(4, 12)), draw(st.integers(1, 3))
    ends = st.integers(0, size - 1)
    rows: list[Link] = []
    number = 0
    for _ in range(base):
        edges = draw(st.lists(st.tuples(ends, ends), min_size=4, max_size=20, unique=True))
        rows += [(u, number, v) for u, v in edges]
        kept = edges[draw(st.integers(0, 3)) :]
        kind = draw(st.sampled_from(["alone", "reversed", "both", "reversed twice"]))
        if kind == "both":
            rows += [(v, number, u) for u, v in kept]
        for _ in range(["alone", "reversed", "reversed twice"].index(kind) if kind != "both" else 0):
            number += 1
            rows += [(v, number, u) for u, v in [*kept, draw(st.tuples(ends, ends))]]
        number += 1
    rows += draw(st.lists(st.sampled_from(rows), max_size=25))  # parallel edges
    reverses = draw(st.sampled_from([NO_REVERSES, SAME_TYPE, number]))
    return Case(draw(st.permutations(rows)), size, number, reverses, draw(st.integers(0, 99)))


def graph_of(rows: list[Link], case: Case, *, merge: bool = True) -> Graph:
    columns = np.array(rows, np.int64).reshape(-1, 3)
    arrays = build_graph(
        columns[:, 0],
        columns[:, 2],
        case.size,
        types=columns[:, 1],
        symmetrize=case.reverses != NO_REVERSES,
        duplicates="merge" if merge else "keep",
        num_relations=case.reverses if case.reverses > 0 else None,
    )
    return Graph(arrays.indptr, arrays.indices, edge_types=arrays.types)


def plain(graph: Graph, case: Case) -> set[Link]:
    """The edges, each reverse that gnnexp has added as the edge that it belongs to."""
    assert graph.edge_types is not None
    edges = zip(graph.indices.tolist(), graph.edge_types.tolist(), graph.destinations().tolist(), strict=True)
    return {(v, r - case.reverses, u) if 0 < case.reverses <= r else (u, r, v) for u, r, v in edges}


def paired(rows: list[Link] | set[Link], case: Case) -> set[tuple[int, int]]:
    """Relations of which most edges are each other's reverses, as pairs in both orders."""
    of: list[set[tuple[int, int]]] = [
        {(u, v) for u, r, v in rows if r == kind and u != v} for kind in range(case.relations)
    ]
    if case.reverses == SAME_TYPE:
        of = [edges | {(v, u) for u, v in edges} for edges in of]
    found = set()
    for r, s in combinations_with_replacement(range(case.relations), 2):
        common = sum((v, u) in of[s] for u, v in of[r])
        if 2 * common > min(len(of[r]), len(of[s])):
            found |= {(r, s), (s, r)}
    return found


def joined(pairs: set[tuple[int, int]], case: Case) -> dict[int, set[int]]:
    """By relation, all relations that pairs join with it, itself included if it is in a pair."""
    groups: dict[int, set[int]] = {r: {s for one, s in pairs if one == r} for r in range(case.relations)}
    for _ in range(case.relations):
        groups = {r: near | {t for s in near for t in groups[s]} for r, near in groups.items()}
    return groups


def tells(edge: Link, link: Link, groups: dict[int, set[int]], case: Case) -> bool:
    """Whether an edge gives a link away."""
    (u, r, v), (a, s, b) = edge, link
    either = r in groups[s] or (case.reverses == SAME_TYPE and r == s)
    return edge == link or (either and {u, v} == {a, b})


def check_link_split(case: Case, merge: bool) -> None:
    whole = graph_of(case.rows, case, merge=merge)
    try:
        graph = hold_out(whole, {"val": 0.2, "test": 0.2}, seed=case.seed, reverses=case.reverses)
    except DataError as error:
        assert "selects none or all" in str(error)
        return
    links = {name: [tuple(one) for one in found.tolist()] for name, found in graph.links.items()}
    held, edges = {*links["valid"], *links["test"]}, plain(graph, case)
    groups = joined(paired(case.rows, case), case)
    assert not [(edge, link) for link in held for edge in edges if tells(edge, link, groups, case)]
    # Nothing else has gone, and every link is there once.
    everything = plain(whole, case)
    assert edges == {edge for edge in everything if not any(tells(edge, link, groups, case) for link in held)}
    listed = [one for found in links.values() for one in found]
    assert len({*listed}) == len(listed)
    assert {*listed} == {one for one in everything if case.reverses != SAME_TYPE or one[0] <= one[2]}
    assert not any(tells(one, link, groups, case) for one in links["valid"] for link in links["test"])
    # No order of rows matters.
    other = hold_out(
        graph_of(case.rows[::-1], case, merge=merge), {"val": 0.2, "test": 0.2}, seed=case.seed, reverses=case.reverses
    )
    assert other.notes == graph.notes and all(torch.equal(other.links[name], graph.links[name]) for name in links)
    assert torch.equal(other.indices, graph.indices)
    stays = sum(any(edge[::2] == link[::-2] for edge in edges) for link in held if link[0] != link[2])
    assert stays == (int(graph.notes[-1].split()[0]) if "opposite direction" in graph.notes[-1] else 0)


PARTS = st.sampled_from(["train", "train", "train", "valid", "test", "both"])  # both: an edge, and a link of the test


@st.composite
def given_splits(draw: st.DrawFn) -> tuple[Case, list[str]]:
    """A case, and the part of each of its rows."""
    case = draw(cases())
    return case, draw(st.lists(PARTS, min_size=len(case.rows), max_size=len(case.rows)))


def check_given_split(case: Case, parts: list[str]) -> None:
    rows = {
        name: [row for row, part in zip(case.rows, parts, strict=True) if part in (name, "both")]
        for name in ("train", "test")
    }
    rows["valid"] = [row for row, part in zip(case.rows, parts, strict=True) if part == "valid"]
    links = {name: torch.tensor(found, dtype=torch.int64).reshape(-1, 3) for name, found in rows.items()}
    whole = replace(graph_of(rows["train"], case), links=links)
    held, groups = {*rows["valid"], *rows["test"]}, joined(paired(case.rows, case), case)
    told = {edge for edge in plain(whole, case) if any(tells(edge, link, groups, case) for link in held)}
    if told and told == plain(whole, case):
        with pytest.raises(DataError, match="held-out links or their reverses"):
            without_known(whole, reverses=case.reverses, remove=True, why="")
        return
    graph = without_known(whole, reverses=case.reverses, remove=True, why="")
    kept = without_known(whole, reverses=case.reverses, remove=False, why="They stay")
    assert plain(graph, case) == plain(whole, case) - told
    assert [tuple(one) for one in graph.links["train"].tolist()] == [
        row for row in rows["train"] if not any(tells(row, link, groups, case) for link in held)
    ]
    assert kept.indices is whole.indices and kept.links is whole.links
    if not told:
        assert kept.notes == ()
        return
    for name in ("valid", "test"):
        count = sum(any(tells(edge, link, groups, case) for edge in told) for link in rows[name])
        assert not rows[name] or all(
            f"{count} of the {len(rows[name])} {name}" in one.notes[0] for one in (graph, kept)
        )
    assert f"removed {whole.num_edges - graph.num_edges} edges" in graph.notes[0]
    assert kept.notes[0].endswith("They stay")


@settings(max_examples=20)
@given(cases(), st.booleans())
def test_no_held_out_link_is_in_the_graph(case: Case, merge: bool) -> None:
    check_link_split(case, merge)


@settings(max_examples=20)
@given(given_splits())
def test_the_graph_of_a_file_does_not_tell_its_held_out_links(split: tuple[Case, list[str]]) -> None:
    check_given_split(*split)


@pytest.mark.nightly
@settings(max_examples=5000)
@given(cases(), st.booleans())
def test_no_held_out_link_is_in_any_graph(case: Case, merge: bool) -> None:
    check_link_split(case, merge)


@pytest.mark.nightly
@settings(max_examples=5000)
@given(given_splits())
def test_no_graph_of_a_file_tells_its_held_out_links(split: tuple[Case, list[str]]) -> None:
    check_given_split(*split)


def test_pairs_of_many_relations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of pairs grows as often as it must: 40 relations, of which all have edges between the same vertices."""
    monkeypatch.setattr(opposites, "_ROOM", 4)
    draw = np.random.default_rng(1)
    rows = [tuple(map(int, one)) for one in draw.integers(0, (9, 40, 9), (1500, 3))]
    case = Case(rows, 9, 40, NO_REVERSES, 0)
    found = find_opposites(graph_of(rows, case, merge=False), NO_REVERSES)  # parallel edges count once
    assert {(r, s) for r, s, *_ in found.pairs.tolist()} == {(r, s) for r, s in paired(rows, case) if r <= s}
    for r, s, count, size in found.pairs[:50].tolist():
        of = [{one[::2] for one in rows if one[1] == kind and one[0] != one[2]} for kind in (r, s)]
        assert count == sum(one[::-1] in of[1] for one in of[0]) and size == min(map(len, of))
    assert "and 5 more pairs" in replace(found, pairs=found.pairs[:10]).named([])


def test_a_note_names_the_relations() -> None:
    rows = [(u, 0, u + 5) for u in range(5)] + [(u + 5, 1, u) for u in range(1, 5)] + [(0, 2, 1), (1, 2, 2)]
    graph = hold_out(
        graph_of(rows, Case(rows, 10, 3, 3, 0)),
        {"val": 0.2, "test": 0.2},
        seed=0,
        reverses=3,
        names=["buys", "rev_buys", "knows"],
    )
    assert "buys and rev_buys (4 of 4 edges)" in graph.notes[1]
