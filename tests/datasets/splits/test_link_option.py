"""`link_split` of data sets for tasks of vertices: the same links, option and key everywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from held_out_links import SHARES, assert_held_out, edge_codes

import gnnexp
from gnnexp.config.compose import compose
from gnnexp.datasets.base import Dataset
from gnnexp.datasets.edge_list import EdgeList
from gnnexp.datasets.generated.dcsbm import Dcsbm
from gnnexp.datasets.gnnexp_format import GnnexpFormat
from gnnexp.datasets.options import LinkOptions, is_symmetric
from gnnexp.datasets.published.aminer import Aminer
from gnnexp.datasets.published.dgl_builtin import DglBuiltin
from gnnexp.datasets.published.digits import Digits
from gnnexp.datasets.published.fb100 import Fb100
from gnnexp.datasets.published.npz import GraphDataNpz, HeterophilousNpz
from gnnexp.datasets.published.ogb import Ogb
from gnnexp.datasets.published.planetoid import Planetoid
from gnnexp.errors import ConfigError, DataError
from gnnexp.graph.storage.format import save_graph
from gnnexp.preparation.artifacts import prepare_graph
from gnnexp.testing.graphs import nasty_graph, typed_graph, weighted_graph

PUBLISHED: dict[str, tuple[type[Any], int]] = {
    "cora": (Planetoid, 0),
    "amazon-computers": (GraphDataNpz, 0),
    "tolokers": (HeterophilousNpz, 0),
    "fb100-cornell5": (Fb100, 0),
    "aminer": (Aminer, 2),
}
SMALL = {"num_nodes": 300, "num_edges": 3000}


@pytest.mark.parametrize(
    "folder", ["cora", *(pytest.param(name, marks=pytest.mark.slow) for name in PUBLISHED if name != "cora")]
)
def test_published_graphs(folder: str, real: Callable[[str], Path]) -> None:
    kind, inverses = PUBLISHED[folder]
    path = str(real(folder))
    assert_held_out(kind(path=path).load(), kind(path=path, link_split=SHARES).load(), inverses)


def test_published_graphs_without_reverses_of_their_own(real: Callable[[str], Path]) -> None:
    path = str(real("aminer"))
    for options in ({"inverse_relations": False}, {"symmetrize": False}):
        whole, graph = (Aminer(path=path, link_split=shares, **options).load() for shares in (None, SHARES))
        assert_held_out(whole, graph, both="symmetrize" not in options)
    with pytest.raises(DataError, match="a pair without a type is one link"):
        Planetoid(path=str(real("cora")), symmetrize=False, link_split=SHARES).load()


@pytest.mark.parametrize(("kind", "options"), [(Digits, {}), (Dcsbm, SMALL)])
def test_graphs_without_files(kind: type[Any], options: dict[str, Any], tmp_path: Path) -> None:
    dataset = kind(**options, link_split=SHARES)
    graph = dataset.load()
    assert_held_out(kind(**options).load(), graph)
    stored, _ = prepare_graph(dataset, tmp_path)
    assert all(torch.equal(stored.links[name], graph.links[name]) for name in graph.links)
    other = kind(**options, link_split=SHARES, seed=1).load()
    assert not torch.equal(other.links["test"], graph.links["test"])


def saved(tmp_path: Path, graph: Any) -> str:
    save_graph(graph, tmp_path / "graph")
    return str(tmp_path / "graph")


def test_a_stored_graph_without_types_needs_both_directions(tmp_path: Path) -> None:
    graph = nasty_graph(simple=True)
    path = saved(tmp_path, replace(graph, edge_weights=torch.rand(graph.num_edges)))
    whole, found = GnnexpFormat(path=path).load(), GnnexpFormat(path=path, link_split=SHARES).load()
    assert is_symmetric(whole) and is_symmetric(found) and not is_symmetric(weighted_graph())
    assert_held_out(whole, found)
    kept = torch.isin(torch.from_numpy(edge_codes(whole)), torch.from_numpy(edge_codes(found)))
    assert whole.edge_weights is not None and found.edge_weights is not None
    assert torch.equal(found.edge_weights, whole.edge_weights[kept])
    assert torch.equal(found.links["test"], GnnexpFormat(path=path, link_split=SHARES, seed=0).load().links["test"])


def test_stored_graphs_that_are_refused(tmp_path: Path) -> None:
    directed = GnnexpFormat(path=saved(tmp_path / "directed", weighted_graph()), link_split=SHARES)
    with pytest.raises(DataError, match="lack reverses"):
        directed.load()
    linked = replace(nasty_graph(simple=True), links={"train": torch.zeros(1, 2, dtype=torch.int64)})
    with pytest.raises(DataError, match="links of its own"):
        GnnexpFormat(path=saved(tmp_path / "linked", linked), link_split=SHARES).load()


def test_a_stored_graph_with_types(tmp_path: Path) -> None:
    """Each edge is a link, and its parallels go with it."""
    path = saved(tmp_path, typed_graph())
    assert_held_out(GnnexpFormat(path=path).load(), GnnexpFormat(path=path, link_split=SHARES).load(), both=False)


@pytest.mark.slow
def test_links_of_cora_are_predicted_alike_on_any_number_of_ranks(
    real: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    common = [f"dataset.path={real('cora')}", "dataset=planetoid", "dataset.link_split={val: 0.05, test: 0.1}"]
    common += ["task=link_prediction", "model.hidden=16", "model.layers=2", "sampler.fanouts=[5,5]", "tracker=none"]
    runs = [
        gnnexp.run(*common, "train.epochs=8", "sampler.key=global", "train.dtype=float64", f"hardware.workers={size}")
        for size in (1, 2)
    ]
    one, two = (run.epochs for run in runs)
    assert one["loss/train"].tolist() == pytest.approx(two["loss/train"].tolist(), rel=1e-10)
    assert one["mrr/test"].tolist() == pytest.approx(two["mrr/test"].tolist(), rel=1e-10)
    assert one["mrr/test"].max() > 2 * one["mrr/test"].iloc[0]


KINDS = (Planetoid, Digits, GraphDataNpz, HeterophilousNpz, Fb100, Aminer, Ogb, DglBuiltin, Dcsbm)


@pytest.mark.parametrize("kind", KINDS)
def test_the_option_is_checked_and_leaves_keys_alone(kind: type[Any]) -> None:
    assert issubclass(kind, LinkOptions) and issubclass(kind, Dataset)
    with pytest.raises(ConfigError, match="must leave links to train on"):
        kind(link_split={"val": 0.5, "test": 0.5})
    if "self_loops" in kind.__dataclass_fields__:
        with pytest.raises(ConfigError, match="added self loops would be links"):
            kind(link_split=SHARES, self_loops="add")
        kind(self_loops="add")


def test_added_self_loops_are_no_links_of_edge_lists() -> None:
    with pytest.raises(ConfigError, match="added self loops would be links"):
        EdgeList(link_split=SHARES, self_loops="add")


def test_the_keys_of_data_without_the_option_stay(tmp_path: Path) -> None:
    path = saved(tmp_path, nasty_graph(simple=True))
    held = (Digits(link_split=SHARES), GnnexpFormat(path=path, link_split=SHARES))
    for plain, other in zip((Digits(), GnnexpFormat(path=path)), held, strict=True):
        assert "link_split" not in plain.described() and plain.key() != other.key()


def test_links_that_a_dataset_has_stay_its_links() -> None:
    with pytest.raises(ConfigError, match="links of its own"):
        Ogb(name="ogbl-ddi", link_split=SHARES)
    overrides = ["dataset=fb15k_237", "dataset.link_split={val:0.1,test:0.1}"]
    with pytest.raises(ConfigError, match="no such key"):
        compose(overrides)
