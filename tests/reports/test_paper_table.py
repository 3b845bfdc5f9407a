"""A paper's table with ours next to it: cells by hand, and what a sweep's file may ask for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gnnexp.errors import ConfigError
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.paper_table import make_paper_table, read_published
from gnnexp.reports.tables.groups import RunGroup

OPTIONS = {
    "paper": "gsplit",
    "source": "Table 3",
    "over": "gsplit",
    "columns": {"load_s": "time/load_s", "epoch_s": "time/epoch_s"},
}


def run_of(system: str, epoch_s: float, shape: str = "orkut_like", kind: str = "") -> RecordedRun:
    config = {"dataset": {"name": "rmat", "shape": shape}, "system": system, "model": {}}
    epochs = [{"time/load_s": 9.0, "time/epoch_s": 90.0}, *[{"time/load_s": 0.5, "time/epoch_s": epoch_s}] * 2]
    return RecordedRun(
        Path(system), config, {"choices": {"model": "sage"}}, epochs, {}, "failed" if kind else "finished", kind=kind
    )


def group_of(*runs: RecordedRun) -> RunGroup:
    return RunGroup(
        (runs[0].value("system"),),
        tuple(run for run in runs if run.status == "finished"),
        tuple(run for run in runs if run.status != "finished"),
    )


def test_cells_by_hand() -> None:
    groups = [
        group_of(run_of("dgl", 4.0), run_of("dgl", 6.0)),
        group_of(run_of("p3", 1.0)),
        group_of(run_of("gsplit", 2.0)),
        group_of(run_of("quiver", 0.0, kind="out of memory")),
        group_of(run_of("sancus", 1.0)),
        group_of(run_of("dgl", 3.0, "small")),
    ]
    table = make_paper_table(groups, ["system"], read_published(OPTIONS))
    assert table.header == (
        "system",
        "load_s",
        "load_s, paper",
        "epoch_s",
        "epoch_s, paper",
        "x gsplit",
        "x gsplit, paper",
        "runs",
    )
    assert table.texts == [
        ("dgl", "0.5", "62.7", "5 (4 to 6)", "73.4", "2.50", "4.40", "2"),
        ("p3", "0.5", "1.5", "1", "14.1", "0.50", "0.84", "1"),
        ("gsplit", "0.5", "0.1", "2", "16.7", "1.00", "1.00", "1"),
        ("quiver", "OOM", "4.3", "OOM", "17.8", "–", "1.07", "0 (+1 OOM)"),
        ("sancus", "0.5", "–", "1", "–", "0.50", "–", "1"),
        ("dgl", "0.5", "–", "3", "–", "–", "–", "1"),
    ]
    assert [cell.half_width for cell in (table.rows[0][1], table.rows[0][3])] == pytest.approx([0, 12.7062], rel=1e-4)
    # Ours p3 < gsplit < dgl < quiver, the paper's p3 < gsplit < quiver < dgl.
    assert "By epoch_s, 5 of 6 pairs of systems are in the paper's order." in table.caption
    assert "median of the 2 epochs after the first" in table.caption


def test_rows_are_compared_with_those_of_their_own_machine() -> None:
    """Seconds of two kinds of machine are no ratio, and no pair in anybody's order."""

    def on(cpu: str, group: RunGroup) -> RunGroup:
        node = {"host": "a", "cpu": cpu, "cores": 2, "gpus": [], "torch": "2"}
        return RunGroup((*group.labels, cpu), tuple(replace(run, nodes=[node]) for run in group.runs), ())

    groups = [
        on("EPYC", group_of(run_of("gsplit", 2.0))),
        on("EPYC", group_of(run_of("dgl", 4.0))),
        on("Xeon", group_of(run_of("gsplit", 200.0))),
        on("Xeon", group_of(run_of("dgl", 300.0))),
    ]
    table = make_paper_table(groups, ["system", "machine"], read_published(OPTIONS))
    assert [row[-3] for row in table.texts] == ["1.00", "2.00", "1.00", "1.50"]
    assert "2 of 2 pairs" in table.caption


def test_another_system_of_ours_may_stand_for_a_papers() -> None:
    groups = [group_of(run_of("dgl", 4.0)), group_of(run_of("dgl_reference", 5.0)), group_of(run_of("p3", 1.0))]
    options = {**OPTIONS, "over": None, "columns": {"epoch_s": "time/epoch_s"}, "systems": {"dgl_reference": "dgl"}}
    rows = make_paper_table(groups, ["system"], read_published(options)).texts
    assert rows == [("dgl", "4", "–", "1"), ("dgl_reference", "5", "73.4", "1"), ("p3", "1", "14.1", "1")]


def test_settings_of_rows_and_values_of_several_metrics() -> None:
    """HongTu's Table 6 has three numbers of layers; Table 3 counts parts, ranks times chunks, and no model."""

    def run(layers: int, chunks: int = 8) -> RecordedRun:
        config = {
            "dataset": {"name": "dcsbm", "shape": "papers_like"},
            "system": "hongtu",
            "model": {"layers": layers},
            "hardware": {"workers": 4},
        }
        epoch = {"time/epoch_s": 10.0 * layers, "tier/rows_original": 70.0}
        return RecordedRun(
            Path(f"{layers}{chunks}"),
            config,
            {"choices": {"model": "gcn"}, "graph": {"num_nodes": 20}},
            [epoch] * 2,
            {},
            "finished",
            facts={"chunks": chunks},
        )

    layers = read_published(
        {
            "paper": "hongtu",
            "source": "Table 6",
            "columns": {"epoch_s": "time/epoch_s"},
            "settings": {"layers": "model.layers"},
            "over": "hongtu",
        }
    )
    groups = [group_of(run(2)), group_of(run(3)), group_of(run(5))]
    assert make_paper_table(groups, ["system"], layers).texts == [
        ("hongtu", "20", "25.1", "1.00", "1.00", "1"),
        ("hongtu", "30", "40.0", "1.00", "1.00", "1"),
        ("hongtu", "50", "–", "1.00", "–", "1"),
    ]
    parts = read_published(
        {
            "paper": "hongtu",
            "source": "Table 3",
            "where": {"system": "", "model": ""},
            "columns": {"replication_factor": "[tier/rows_original] / [graph/num_nodes]"},
            "settings": {"partitions": "[ranks] * [paradigm/chunks]"},
        }
    )
    groups = [group_of(run(2, chunks)) for chunks in (8, 32, 3)]
    assert [row[1:-1] for row in make_paper_table(groups, ["system"], parts).texts] == [
        ("3.5", "4.46"),
        ("3.5", "8.50"),
        ("3.5", "–"),
    ]


def test_what_the_paper_does_not_say_is_told() -> None:
    """SDT-GNN's Table IV names no model: without `where` no cell would be that of GraphSAGE."""
    options = {"paper": "sdt_gnn", "source": "Table IV", "columns": {"epoch_s": "time/epoch_s"}}
    groups = [group_of(run_of("distdgl", 2.0, "yelp_like"))]
    assert make_paper_table(groups, ["system"], read_published(options)).texts == [("distdgl", "2", "–", "1")]
    without_model = read_published({**options, "where": {"model": ""}})
    assert make_paper_table(groups, ["system"], without_model).texts == [("distdgl", "2", "28.549", "1")]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"settings": {"layer": "model.layers"}}, "layers"),
        ({"columns": {"epoch_s": "[time/epoch_s] **"}}, "arithmetic"),
        ({"settings": {"layers": "[ranks] *"}}, "arithmetic"),
        ({"settings": 4}, "settings"),
        ({"paper": "gsplid"}, "gsplit"),
        ({"source": "Table 9"}, "Table 3"),
        ({"columns": {"epochs": "x"}}, "epoch_s"),
        ({"columns": {}}, "columns:"),
        ({"colums": {}}, "columns"),
    ],
)
def test_what_a_paper_does_not_have_is_told_with_what_it_has(changed: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_published({**OPTIONS, **changed})
    assert named in str(caught.value)
