"""`gnnexp count` counts what `gnnexp run` records, for every preset, on graphs with dense and sparse features."""

from __future__ import annotations

from pathlib import Path

import pytest
from combinations import combinations
from command_line import place

import gnnexp
from gnnexp.errors import ConfigError
from gnnexp.record.records import read_epochs
from gnnexp.training.counting import LACKS

pytestmark = pytest.mark.usefixtures("place")
__all__ = ["place"]
SYSTEMS = sorted(file.stem for file in Path("conf/system").resolve().glob("*.yaml"))
# Systems whose counts depend on values, or are those of another library.
UNCOUNTABLE = {
    "sancus_adaptive": "which rows are sent depends on their values",
    "dgl_reference": "DGL's own code",
    "dgl_full_graph": "DGL's own code",
}
GRAPHS = {
    "digits": ["dataset=digits"],
    "cora": ["dataset=planetoid"],
    "dcsbm": ["dataset=dcsbm", "dataset.num_nodes=3000", "dataset.num_edges=40000", "dataset.num_features=24"],
}
SHARED = ["train.epochs=2", "train.eval_every=null", "tracker=none", "hardware.threads=1"]


def metrics(*overrides: str) -> list[dict[str, float]]:
    """The metrics of all epochs that both kinds of runs have."""
    run = gnnexp.run(*overrides, *SHARED)
    return [
        {name: value for name, value in line["metrics"].items() if not name.startswith((*LACKS, "se/", "counts/"))}
        for line in read_epochs(run.run_dir)
    ]


@pytest.mark.parametrize(
    ("system", "graph", "workers"),
    combinations(SYSTEMS, GRAPHS, (1, 2, 4), quick=lambda system, graph, workers: False),
)
def test_counts_are_those_of_training(system: str, graph: str, workers: int) -> None:
    overrides = [f"system={system}", f"hardware.workers={workers}", *GRAPHS[graph]]
    if system in UNCOUNTABLE:
        with pytest.raises(ConfigError, match=UNCOUNTABLE[system]):
            gnnexp.run(*overrides[:1], *GRAPHS[graph], "train.count_only=true", *SHARED)
        return
    try:
        trained = metrics(*overrides)
    except ConfigError as error:
        pytest.skip(str(error).splitlines()[0])
    assert metrics(*overrides, "train.count_only=true") == trained


def test_a_run_that_counts_is_recorded_as_such() -> None:
    run = gnnexp.run("system=fastsample", "dataset=digits", "hardware.workers=3", "train.count_only=true", *SHARED)
    (first, second) = (line["metrics"] for line in read_epochs(run.run_dir))
    assert first["counts/batches"] == second["counts/batches"]
    assert not [name for name in first if name.startswith(LACKS)]
    assert run.config["train"]["count_only"]
