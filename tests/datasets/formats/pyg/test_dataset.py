"""A file of PyG is found by `gnnexp data`, and trains as the same graph in gnnexp's own format does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnexp.cli.main import run_command
from gnnexp.config.folders import own_folders
from gnnexp.config.hints import classes_of
from gnnexp.datasets.formats.pyg.dataset import Pyg
from gnnexp.datasets.looking.guess import recognised
from gnnexp.errors import DataError

pyg = pytest.importorskip("torch_geometric.data")

QUICK = (
    "model=sage",
    "model.hidden=8",
    "model.layers=2",
    "sampler.fanouts=[3,3]",
    "train.epochs=3",
    "train.batch_size=16",
    "hardware.device=cpu",
    "tracker=none",
)


def community(num_nodes: int = 60) -> Any:
    """Vertices of two classes, which features and edges show."""
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(num_nodes) % 2
    source = torch.randint(num_nodes, (300,), generator=generator)
    target = (source + 2 * torch.randint(1, num_nodes // 2, (300,), generator=generator)) % num_nodes
    part = torch.rand(num_nodes, generator=generator)
    return pyg.Data(
        x=torch.randn(num_nodes, 5, generator=generator) + classes[:, None],
        edge_index=torch.stack([source, target]),
        y=classes,
        train_mask=part < 0.6,
        val_mask=(part >= 0.6) & (part < 0.8),
        test_mask=part >= 0.8,
        n_id=torch.arange(num_nodes) * 10,
    )


def test_a_folder_of_pyg(tmp_path: Path) -> None:
    class Communities(pyg.InMemoryDataset):
        raw_file_names: tuple[str, ...] = ()
        processed_file_names = ("data.pt",)

        def __init__(self, root: str) -> None:
            super().__init__(root)
            self.load(self.processed_paths[0])

        def process(self) -> None:
            self.save([community()], self.processed_paths[0])

    Communities(str(tmp_path / "own"))
    names = {one.name for one in (tmp_path / "own" / "processed").iterdir()}
    assert names == {"data.pt", "pre_filter.pt", "pre_transform.pt"}
    graph = Pyg(path=str(tmp_path / "own")).load()
    assert graph.num_nodes == 60
    torch.save(community(), tmp_path / "own" / "processed" / "more.pt")
    with pytest.raises(DataError, match=r"one graph; has processed/data.pt, processed/more.pt"):
        Pyg(path=str(tmp_path / "own")).load()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no .pt file"):
        Pyg(path=str(tmp_path / "empty")).load()


def test_what_is_recognised(tmp_path: Path) -> None:
    classes = classes_of("dataset", own_folders())
    (tmp_path / "own").mkdir()
    torch.save(community(), tmp_path / "own" / "graph of mine.pt")
    for place in (tmp_path / "own", tmp_path / "own" / "graph of mine.pt"):
        assert next(iter(recognised(place, classes).overrides)) == "dataset=pyg"
    torch.save({"weight": torch.ones(2)}, tmp_path / "own" / "model.pt")
    (tmp_path / "broken.pt").write_bytes(b"PK")
    for place in (tmp_path / "own", tmp_path / "own" / "model.pt", tmp_path / "broken.pt", tmp_path / "none.pt"):
        assert Pyg.recognised(place) is None


def test_the_key_is_of_content(tmp_path: Path) -> None:
    torch.save(community(), tmp_path / "a.pt")
    key = Pyg(path=str(tmp_path / "a.pt")).key()
    assert Pyg(path=str(tmp_path / "a.pt"), mask=1).key() != key
    torch.save(community(58), tmp_path / "a.pt")
    assert Pyg(path=str(tmp_path / "a.pt")).key() != key


@pytest.mark.parametrize("weighted", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_the_printed_command_trains_as_the_same_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], weighted: bool
) -> None:
    """The losses are those of the graph that Python hands over, and of the graph in gnnexp's format, to the bit."""
    import gnnexp
    from gnnexp.graph.storage.format import save_graph

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    data = community()
    if weighted:
        data.edge_weight = torch.rand(300)
    torch.save(data, "graph.pt")
    assert run_command(["data", "graph.pt", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["vertices"], found["edges"], found["features"], found["classes"]) == (60, 300, 5, [30, 30])
    of_file = gnnexp.run(*found["run"], *QUICK)
    handed = gnnexp.from_pyg(data)
    assert torch.equal(handed.graph.indices, Pyg(path="graph.pt").load().indices)
    of_object = gnnexp.run(*QUICK, dataset=handed)
    save_graph(Pyg(path="graph.pt").load(), tmp_path / "own")
    of_format = gnnexp.run(*QUICK, "dataset=gnnexp_format", f"dataset.path={tmp_path / 'own'}")
    losses = [run.epochs["loss/train"].tolist() for run in (of_file, of_object, of_format)]
    assert len(losses[0]) == 3 and losses[0] == losses[1] == losses[2]
    assert of_file.metrics["test"] == of_object.metrics["test"]
    for run in (of_file, of_object):
        assert run_command(["predict", str(run.run_dir), "--out", "p.csv"]) == 0
        assert [line.split(",")[0].strip('"') for line in Path("p.csv").read_text().splitlines()[1:]] == [
            str(number * 10) for number in range(60)
        ]
