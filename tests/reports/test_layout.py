"""The `report:` block of a sweep: what is read, every mistake at once, and states that older versions wrote."""

from __future__ import annotations

from typing import Any

import pytest

from gnnexp.errors import ConfigError
from gnnexp.reports.figures.panels import DRAWINGS, Figure
from gnnexp.reports.layout import ReportLayout, layout_of, layout_problems, read_layout

PUBLISHED = {"paper": "gsplit", "source": "Table 3", "columns": {"epoch_s": "time/epoch_s"}}
FIGURES = [
    {"name": "epoch", "draw": "stacked"},
    {
        "name": "scaling",
        "draw": "lines",
        "x": "hardware.workers",
        "y": "time/epoch_s",
        "series": ["system"],
        "panels": ["dataset.name"],
        "log": ["x", "y"],
        "ideal": True,
    },
    {"name": "accuracy", "draw": "curves", "by": "time", "y": "acc/test"},
    {"name": "loads", "draw": "range", "y": "work/edges_computed", "series": [], "panels": []},
    {
        "name": "bars",
        "draw": "bars",
        "y": ["work/features_loaded_host", "work/a + work/b"],
        "stacked": True,
        "where": {"system": ["dgl", "p3"], "hardware.workers": 4, "model": None},
    },
    {"name": "speedup", "draw": "matrix", "y": "time/epoch_s"},
    {"name": "front", "draw": "pareto", "y": ["time/epoch_s", "acc/test"], "log": ["x"]},
]


def problems_of(options: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        read_layout(options)
    return {problem.key: f"{problem.allowed}; {problem.fix}" for problem in caught.value.problems}


def test_everything_that_can_be_said() -> None:
    layout = read_layout({"rows": ["system"], "published": PUBLISHED, "estimate": "p3_8xlarge", "figures": FIGURES})
    assert layout.rows == ("system",) and layout.estimate == "p3_8xlarge" and layout.compares
    assert layout.published is not None and layout.published.epoch == "epoch_s"
    assert layout.figures is not None and [figure.draw for figure in layout.figures] == list(DRAWINGS)
    assert layout.figures[1] == Figure(
        "scaling",
        "lines",
        ("time/epoch_s",),
        "hardware.workers",
        ("system",),
        ("dataset.name",),
        {},
        ("x", "y"),
        ideal=True,
    )
    assert layout.figures[3].series == () and layout.figures[0].series is None, "none is not the usual ones"
    assert layout.figures[6] == Figure("front", "pareto", ("time/epoch_s", "acc/test"), log=("x",))
    assert layout.figures[4].where == {"system": ("dgl", "p3"), "hardware.workers": ("4",), "model": ("null",)}
    assert read_layout(
        {
            "columns": {
                "epoch ms": "time/epoch_s",
                "sent MB": "comm/bytes_features + comm/bytes_frontier",
                "accuracy %": "acc/test",
                "copies": "quality/replication_full",
            }
        }
    ).columns
    assert read_layout({}) == ReportLayout() and read_layout({}).figures is None
    assert read_layout({"figures": []}).figures == (), "no figures, rather than the usual ones"


def test_a_query_has_a_comparison_beside_it_only_where_one_is_asked_for() -> None:
    assert not read_layout({"query": "balance"}).compares
    assert not read_layout({"query": "balance", "rows": ["system"]}).compares
    assert read_layout({"query": "balance", "published": PUBLISHED}).compares


def test_the_paper_is_that_of_the_published_table_unless_there_is_none() -> None:
    assert read_layout({"published": PUBLISHED}).paper == PUBLISHED["paper"]
    assert read_layout({"paper": "hongtu", "estimate": "a100x4_nvlink"}).paper == "hongtu"
    assert read_layout({}).paper == ""
    assert "fastsample" in problems_of({"paper": "fastsampel"})["report.paper"]
    assert "leave one" in problems_of({"paper": "hongtu", "published": PUBLISHED})["report.paper"]


def test_every_mistake_at_once_with_what_was_meant() -> None:
    found = problems_of(
        {
            "rows": "system",
            "query": "balanse",
            "columns": {"epoch s": "tiem/epoch_s", "MB": "time/epoch_s"},
            "published": {**PUBLISHED, "paper": "gsplid", "over": 3},
            "estimate": "p3_8xlage",
            "figuers": [],
            "figures": [
                {"name": "a", "draw": "line"},
                {"name": "b/c", "draw": "lines", "y": "time/epoch_s", "by": "epoch"},
            ],
        }
    )
    assert {
        key: word
        for key, word in {
            "report.rows": "a list",
            "report.query": "balance",
            "report.columns.epoch s": "time",
            "report.columns.MB": "bytes",
            "report.published.paper": "gsplit",
            "report.published.over": "a text",
            "report.estimate (--hardware)": "p3_8xlarge",
            "report.figuers": "figures",
            "report.figures[0].draw": "lines",
            "report.figures[1].name": "file name",
            "report.figures[1].x": "required",
            "report.figures[1].by": "allowed",
        }.items()
        if word not in found.get(key, "")
    } == {}
    assert "report.columns" in found, "a paper's table has columns of its own"


@pytest.mark.parametrize(
    ("figure", "key"),
    [
        ({"draw": "stacked"}, "name"),
        ({"name": "a"}, "draw"),
        ({"name": "a", "draw": ["lines"]}, "draw"),
        ({"name": "a", "draw": "range", "y": ["time/fb_s", "time/load_s"]}, "y"),
        ({"name": "a", "draw": "range", "y": "fb"}, "y"),
        ({"name": "a", "draw": "bars", "y": []}, "y"),
        ({"name": "a", "draw": "pareto", "y": "time/epoch_s"}, "y"),
        ({"name": "a", "draw": "pareto", "y": ["time/epoch_s", "acc/test", "acc/val"]}, "y"),
        ({"name": "a", "draw": "pareto"}, "y"),
        ({"name": "a", "draw": "stacked", "panels": "dataset"}, "panels"),
        ({"name": "a", "draw": "stacked", "where": ["dataset"]}, "where"),
        ({"name": "a", "draw": "lines", "x": 3, "y": "time/epoch_s"}, "x"),
        ({"name": "a", "draw": "lines", "x": "seed", "y": "time/epoch_s", "log": ["z"]}, "log"),
        ({"name": "a", "draw": "lines", "x": "seed", "y": "time/epoch_s", "ideal": "yes"}, "ideal"),
        ({"name": "a", "draw": "curves", "by": "seconds"}, "by"),
    ],
)
def test_mistakes_of_a_figure(figure: dict[str, Any], key: str) -> None:
    assert set(problems_of({"figures": [figure]})) == {f"report.figures[0].{key}"}


@pytest.mark.parametrize(
    "options",
    [
        None,
        [1],
        {"figures": {"name": "a"}},
        {"figures": ["a"]},
        {"columns": [1]},
        {"published": "gsplit"},
        {"estimate": 3},
        {"query": ["balance"]},
    ],
)
def test_other_shapes_are_refused(options: Any) -> None:
    assert len(problems_of(options)) == 1


def test_two_figures_of_one_name() -> None:
    assert problems_of({"figures": [{"name": "a", "draw": "stacked"}] * 2}).keys() == {"report.figures.name"}


def test_states_of_older_versions_are_read() -> None:
    older = {"schema": 1, "name": "x", "rows": ["system"], "kind": None, "published": PUBLISHED, "cases": []}
    newer = {"schema": 1, "name": "x", "report": {"rows": ["system"], "published": PUBLISHED}, "cases": []}
    assert layout_of(older) == layout_of(newer) == read_layout(newer["report"])
    assert layout_of({"rows": [], "kind": "balance", "published": None}) == ReportLayout(query="balance")


def test_keys_that_no_run_has_are_named_with_their_place() -> None:
    layout = read_layout({"rows": ["sytem"], "figures": FIGURES[:2]})
    (problem, other) = layout_problems(layout, ["system", "hardware.workers", "dataset"], "sweep x: ")
    assert (problem.key, other.key) == ("sweep x: report.figures.scaling", "sweep x: report.rows")
    assert "dataset" in problem.fix and "did you mean system?" in other.fix
