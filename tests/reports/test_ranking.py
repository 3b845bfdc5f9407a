"""Systems ranked on described machines: places, what ran out of memory, and what was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnnexp.errors import ConfigError
from gnnexp.planning.machine import Machine
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.ranking import make_ranking

# A second per float operation, everything else is free.
SLOW = Machine(
    "slow",
    1,
    2,
    flops=1.0,
    gather=1e30,
    stream=1e30,
    sampling=1e30,
    host=1e30,
    link=1e30,
    latency=0.0,
    step_s=0.0,
    concurrent=True,
    device_memory=1000,
    source="a sheet",
)
GRAPH = {"num_nodes": 50, "num_edges": 700, "num_features": 2, "num_classes": 3}


def run_of(system: str, rows: int, held: int, hardware: str = "local", workers: int = 2, **more: Any) -> RecordedRun:
    config = {
        "system": system,
        "dataset": {"name": "rmat"},
        "hardware": {"workers": workers},
        "feature_store": {},
        "model": {"hidden": 4, "layers": 1},
        "task": {},
        "train": {},
        **more,
    }
    provenance = {"choices": {"model": "mlp", "hardware": hardware, "task": "node_classification"}, "graph": GRAPH}
    counted = {"work/vertices_layer1": rows} if rows >= 0 else {}
    epoch = {**counted, "memory/device_peak_bytes": held, "time/epoch_s": 30.0 * rows}
    return RecordedRun(Path(system), config, provenance, [epoch] * 3, {}, "finished")


def test_places_and_memory_and_what_was_measured() -> None:
    runs = [
        run_of("a", 20, 10),
        run_of("b", 10, 900, "slow"),
        run_of("c", 2, 1001),
        run_of("d", 1, 1, workers=4),
        run_of("e", -1, 1),
    ]
    table = make_ranking(runs, [SLOW, replace(SLOW, name="vast", workers=64)])
    cells = [(row[0], row[4], row[10], row[12], row[13], row[14]) for row in table.texts]
    # A layer of 2 x 3 over half of the rows, forwards and for its weights' gradient: 2 * 2 * 6 operations a row.
    assert cells == [
        ("b", "slow", "120", "1", "300", "2.5"),
        ("a", "slow", "240", "2", "–", "–"),
        ("c", "slow", "24", "OOM", "–", "–"),
    ]
    assert "differ by a factor of 2.50 (median of 1), 2.50 at worst: b 2.50." in table.caption
    assert "slow: a sheet." in table.caption
    assert "Left out: 1 runs that failed or did not record what" in table.caption
    assert "Left out: 1 runs with another number of ranks" in table.caption
    assert "No run has the 64 ranks of vast." in table.caption and "ranks of slow" not in table.caption


def test_runs_whose_products_have_no_rate_are_left_out_and_counted() -> None:
    runs = [
        run_of("a", 20, 10),
        run_of("b", 20, 10, train={"matmul": "tf32"}),
        run_of("c", 20, 10, train={"matmul": "bf16"}),
    ]
    table = make_ranking(runs, [SLOW])
    assert [row[0] for row in table.rows] == ["a"] and "Left out: 2 runs whose train.matmul" in table.caption
    table = make_ranking(runs, [replace(SLOW, flops_tf32=2.0)])
    assert [(row[0], row[10]) for row in table.texts] == [("b", "120"), ("a", "240")]
    assert "Left out: 1 runs whose train.matmul" in table.caption


def test_a_larger_graph_takes_longer_and_needs_more() -> None:
    table = make_ranking([run_of("a", 20, 10), run_of("b", 10, 900)], [SLOW], scale=10.0)
    assert [(row[0], row[10], row[12]) for row in table.texts] == [("a", "2400", "1"), ("b", "1200", "OOM")]
    assert "Counts times 10" in table.caption


def test_systems_in_the_published_order() -> None:
    """NeutronTP's Table 2, GCN on Reddit: DistDGL 2.27, NeutronStar 1.92, NeutronTP 0.40 s; GAT: NeutronStar OOM."""
    t4 = replace(SLOW, name="t4x16_15gbps", nodes=16, workers=1, device_memory=100_000)
    reddit = {
        "workers": 16,
        "dataset": {"shape": "reddit_like", "scale": 0.5},
        "model": {"hidden": 256, "layers": 2, "name": "gcn"},
    }

    def planned(system: str, rows: int, held: int = 10, **more: Any) -> RecordedRun:
        run = run_of(system, rows, held, **{**reddit, **more})
        counted = [{**epoch, "work/vertices_layer2": 0} for epoch in run.epochs]
        return replace(run, epochs=counted)

    gat = {"model": {"hidden": 256, "layers": 2, "name": "gat"}}
    runs = [
        planned("distdgl", 40),
        planned("neutronstar", 20),
        planned("neutrontp", 30),
        planned("neutronstar", 20, 60_000, **gat),
        planned("sancus", 20, 40_000, **gat),
    ]
    table = make_ranking(runs, [t4], scale="full")
    published = {(row[0], row[2]): row[15] for row in table.texts}
    assert published == {
        ("distdgl", "gcn"): "2.27",
        ("neutronstar", "gcn"): "1.92",
        ("neutrontp", "gcn"): "0.4",
        ("neutronstar", "gat"): "OOM",
        ("sancus", "gat"): "OOM",
    }
    assert "2 of 3 pairs of systems are in the published order." in table.caption
    assert "Out of memory: 1 of the 2 that were published as such, and 0 others." in table.caption
    # Of half the graph nobody has published anything.
    assert {row[15] for row in make_ranking(runs, [t4]).texts} == {"–"}


def test_a_run_made_with_a_profile_is_estimated_on_it_whatever_its_ranks() -> None:
    table = make_ranking([run_of("a", 20, 10, "slow", workers=4), run_of("b", 20, 10, workers=4)], [SLOW])
    assert [row[0] for row in table.rows] == ["a"] and table.texts[0][13] == "600"


def test_chunks_are_told_and_profiles_that_say_too_little() -> None:
    table = make_ranking([run_of("a", 20, 2500, paradigm={"chunks": 2})], [SLOW], untold=["local"])
    assert table.texts[0][12] == "1"
    assert "by this factor: a 3." in table.caption and "without enough numbers: local." in table.caption


def test_nothing_to_estimate_is_said_with_its_reason() -> None:
    with pytest.raises(ConfigError) as none:
        make_ranking([], [SLOW])
    with pytest.raises(ConfigError) as other_ranks:
        make_ranking([run_of("b", 20, 10, workers=4)], [SLOW])
    assert "No run has the 2 ranks of slow." in str(none.value) and "Left out" not in str(none.value)
    assert "1 runs with another number of ranks" in str(other_ranks.value)


@pytest.mark.parametrize("words", [["--scale", "0"], ["--scale", "vast"], ["--hardware", "nothing"]])
def test_mistakes_end_with_2(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gnnexp.cli.main import run_command

    monkeypatch.chdir(tmp_path)
    hardware = [] if "--hardware" in words else ["--hardware", "p3_8xlarge"]
    assert run_command(["plan", "some", *hardware, *words]) == 2
    assert "fix" in capsys.readouterr().err
