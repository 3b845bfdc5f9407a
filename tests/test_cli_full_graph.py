"""Mistakes in the options of the full-graph systems, as a user makes them: refused before anything is launched."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnexp.cli.main import run_command


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and no store or cache of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(cache))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        # What only the data tells: the largest vertex of `digits`.
        (
            "system=neutrontp paradigm.chunks=null paradigm.device_memory=2000",
            ["paradigm.device_memory=2000", "35 in-edges", "fix: set paradigm.device_memory=6120 or more", "1 config"],
        ),
        (
            "system=neutrontp_naive paradigm.attention_work=replicated",
            ["paradigm.attention_work='replicated'", "coupled", "fix: set paradigm.mode=decoupled", "1 config"],
        ),
        (
            "system=neutrontp paradigm.order=cheapest",
            ["paradigm.order='cheapest'", "one order", "fix: set paradigm.order=aggregate", "1 config"],
        ),
        ("system=neutrontp paradigm.chunks=0", ["paradigm.chunks=0", "at least 1", "fix: set paradigm.chunks=1"]),
        (
            "system=neutrontp paradigm.device_memory=9000",
            ["paradigm.chunks=4", "a budget decides", "fix: set paradigm.chunks=null", "1 config"],
        ),
        (
            "system=neutrontp paradigm.attention=frozen",
            ["paradigm.attention='frozen'", "model=gcn has no attention", "fix: choose model=gat"],
        ),
        (
            "system=neutrontp model=sage_pool sampler=fused sampler.fanouts=[5,5] train.batch_size=9",
            ["model=", "SAGEPool", "choose sampler=full", "set train.batch_size=null", "3 config"],
        ),
        (
            "system=sancus paradigm.staleness=-1",
            ["paradigm.staleness=-1", "0 (always fresh)", "fix: set paradigm.staleness=0", "1 config"],
        ),
        (
            "system=sancus partitioner=libra",
            [
                "paradigm.exchange='broadcast'",
                "vertex-cut",
                "fix: choose partitioner=range or metis",
                "paradigm.exchange=halo",
                "1 config",
            ],
        ),
        (
            "system=distgnn paradigm.delay=-1",
            ["paradigm.delay=-1", "0 (at once)", "fix: set paradigm.delay=0", "1 config"],
        ),
        (
            "system=distgnn_cd5 paradigm.delay=0",
            ["paradigm.bins=5", "all rows are fresh", "fix: set paradigm.delay=<epochs>", "paradigm.pipeline=True"],
        ),
        (
            "system=distgnn paradigm.dependency=cache paradigm.delay=5",
            [
                "paradigm.delay=5",
                "dependency=cache are not late",
                "fix: set paradigm.dependency=communicate",
                "1 config",
            ],
        ),
        (
            "system=gsplit partitioner=libra",
            ["partitioner='libra'", "is a vertex-cut", "fix: choose partitioner=metis, random or range", "1 config"],
        ),
        (
            "system=neutronstar hardware=local",
            [
                "hardware.flops=None",
                "hardware.gather=None",
                "hardware.links.network=None",
                "must be a positive number",
                "fix: choose a profile that says it (hardware=local_measured)",
                "3 config",
            ],
        ),
        (
            "system=neutronstar_cache paradigm.exchange=broadcast paradigm.staleness=2",
            ["paradigm.exchange='broadcast'", "paradigm.staleness=2", "fix: set paradigm.exchange=halo", "2 config"],
        ),
        (
            "system=neutronstar_comm hardware.throttle=0 hardware.workers=2 partitioner.num_parts=3",
            ["hardware.throttle=0", "or null", "fix: hardware.throttle=null", "partitioner.num_parts=3", "2 config"],
        ),
        (
            "system=neutronstar_comm hardware.workers=2 partitioner.num_parts=3",
            ["partitioner.num_parts=3", "must be 2", "fix: set partitioner.num_parts=auto"],
        ),
    ],
    ids=lambda value: value.replace("system=", "").replace(" ", "_") if isinstance(value, str) else "",
)
def test_mistakes_end_with_2_name_the_fix_and_leave_nothing(
    overrides: str, words: list[str], capsys: pytest.CaptureFixture[str], workplace: Path
) -> None:
    assert run_command(["run", *overrides.split()]) == 2
    said = capsys.readouterr().err
    assert [word for word in words if word not in said] == [], said
    assert "Traceback" not in said
    assert list(workplace.iterdir()) == []


def test_the_fix_of_a_budget_is_enough(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    launched = []

    def launch(*arguments: object) -> None:
        launched.append(arguments)
        raise KeyboardInterrupt  # prepared and checked: that is as far as this test goes

    monkeypatch.setattr("gnnexp.launchers.local.LocalLauncher.launch", launch)
    budget = ["system=neutrontp", "paradigm.chunks=null", "paradigm.device_memory=6120", "tracker=none"]
    assert run_command(["run", *budget]) == 130
    assert launched and "problem" not in capsys.readouterr().err
