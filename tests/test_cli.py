"""The command line, from what a user types to what is on disk afterwards."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gnnexp.cli.console import epoch_line
from gnnexp.cli.main import run_command
from gnnexp.reports.query import query_names

SMALL = ["model.hidden=8", "model.layers=2", "sampler.fanouts=[3,3]", "train.epochs=2", "train.batch_size=512"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, and no store, data or cache of whoever runs the tests."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GNNEXP_CACHE", str(cache))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    before = list(sys.path)
    yield folder
    sys.path[:] = before


@pytest.mark.interpreter
def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from gnnexp.cli.main import run_command\n"
        "try: run_command(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'hydra', 'numpy', 'mlflow', 'dgl', 'rich', 'yaml'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "sweep" in done.stdout and "quickstart" in done.stdout


def test_help_knows_every_query(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_command(["report", "--help"])
    said = capsys.readouterr().out
    assert [name for name in query_names() if name not in said] == []


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([]) == 2
    assert "commands" in capsys.readouterr().out


@pytest.mark.parametrize(
    "override",
    [
        "+model.foo=1",
        "model.dropout=1.0",
        "model.norm=batch",
        "train.epochs=0",
        "hardware.device=cuda",
    ],
)
def test_cfg_refuses_what_run_refuses(override: str, capsys: pytest.CaptureFixture[str], workplace: Path) -> None:
    said = []
    for flags in (["--cfg"], []):
        assert run_command(["run", *flags, "tracker=none", override]) == 2
        captured = capsys.readouterr()
        said.append(captured.err)
        assert captured.out == "" and not (workplace / "runs").exists()
    assert said[0] == said[1] and override.lstrip("+").partition("=")[0] in said[0]


def test_cfg_shows_values_that_must_still_be_given(capsys: pytest.CaptureFixture[str], workplace: Path) -> None:
    assert run_command(["run", "--cfg", "partitioner=stored"]) == 0
    assert "???" in capsys.readouterr().out
    assert run_command(["run", "--cfg", "partitioner=stored", "train.epochs=0"]) == 2


def test_cfg_needs_no_cluster(capsys: pytest.CaptureFixture[str], workplace: Path) -> None:
    """A page tells users to look at it before they log in to a node that submits."""
    assert run_command(["run", "--cfg", "hardware=slurm_gpu", "hardware.launcher.partition=gpu"]) == 0
    assert "partition: gpu" in capsys.readouterr().out


def test_cfg_prints_the_resolved_configuration(capsys: pytest.CaptureFixture[str], workplace: Path) -> None:
    import yaml

    assert run_command(["run", "model=gat", "--cfg", "optimizer.lr=0.5"]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["optimizer"]["lr"] == 0.5 and "gat" in config["model"]["_target_"]
    assert list(workplace.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "model=sgae", "sampler=fusde", "train.epocs=1"], ["model=sage", "sampler=fused", "train.epochs"]),
        (
            ["run", "optimizer.lr=high", "model.hidden=1.5", "hardware.workers=none"],
            ["optimizer.lr", "model.hidden", "hardware.workers", "3 configuration problems"],
        ),
        (
            ["run", "train.epochs=0", "hardware.workers=0", "sampler.fanouts=[5]"],
            ["train.epochs", "hardware.workers", "sampler.fanouts"],
        ),
        (["run", "dataset=planetoid", "dataset.path=/no/such/place"], ["/no/such/place", "data problem"]),
        (["run", "hardware.workers=5000"], ["more ranks (5000) than training vertices"]),
        (["run", "a=["], ["a=["]),
        (
            ["run", "model=sag", "dataset=digit", "train.epochs=abc", "hardware.worker=2", "optimizer.lr=-1"],
            [
                "model='sag'",
                "dataset='digit'",
                "train.epochs='abc'",
                "hardware.worker=2",
                "optimizer.lr=-1",
                "5 config",
            ],
        ),
        (
            [
                "run",
                "train.epochs=0",
                "dataset=edge_list",
                "dataset.path=e.npy",
                "dataset.labels=y.npy",
                "hydra.run.dir=/",
            ],
            ["train.epochs", "e.npy", "y.npy", "hydra.run.dir", "4 config"],
        ),
        (
            [
                "run",
                "model=gat",
                "model.heads=3",
                "model.dropout=2",
                "hardware.device=cuda",
                "paradigm=dgl_full_graph",
                "hardware.workers=2",
            ],
            ["model.heads=3", "model.dropout=2", "hardware.device", "hardware.workers=2"],
        ),
        (["run", "model.kernel=cuda"], ["model.kernel='cuda'", "1 config"]),
        (["run", "model=gat", "model.heads=0"], ["model.heads=0", "1 config"]),
        (["run", "model=sage_pool", "system=dgl_reference"], ["model=sage_pool has no counterpart"]),
        (["run", "task.metric=roc_auc"], ["task.metric='roc_auc'"]),
        (["run", "sampler.fanouts=5", "hardware.links=9"], ["sampler.fanouts=5", "{h2d:…,d2d:…,network:…"]),
        (["run", "task.metric=micro_f1"], ["task.metric='micro_f1'", "task.metric=acc"]),
        (["run", "sampler.fanouts=[5,x]"], ["sampler.fanouts=[5, 'x']"]),
        (["run", "train.batch_size.rank=9"], ["train.batch_size is a single value"]),
        (["run", "hardware.links=null", "hardware.links.h2d=9"], ["hardware.links"]),
        (["run", "hardware.straggler.rank=9"], ["hardware.straggler=9", "is gone"]),
        (["run", "+hardware.straggler={rank:9}"], ["hardware.straggler={'rank': 9}", "is gone"]),
        (["run", "hardware.launcher=slurm"], ["hardware.launcher._target_=package.module.Class"]),
        (["run", "paradigm._target_=gnnexp.models.gat.GATOptions"], ["experiment.Method", "1 config"]),
        (["run", "tracker.uri=foo://bar"], ["tracker.uri", "sqlite"]),
        (["run", "dataset=rmat", "dataset.scale=-1"], ["dataset.scale=-1"]),
        (["run", "dataset=planetoid", "dataset.path=/dev/null"], ["dataset.path='/dev/null'", "1 data problem"]),
        (["run", "=x"], ["=x"]),
        (["run", "+trian.epochs=1"], ["trian", "did you mean train"]),
        (["run", "+epochs=1"], ["did you mean train.epochs"]),
        (["run", "model=[gat]"], ["model=gat"]),
        (["run", "hydra.run.dir=/dev/null/x"], ["/dev/null is no folder"]),
        (["ui", "--port", "99999"], ["--port=99999", "1 to 65535"]),
        (["run", "--config-dir", "nowhere"], ["--config-dir"]),
        (["sweep", "quikstart"], ["did you mean quickstart"]),
        (
            ["sweep", "quickstart", "optimizer.lr=-1,1", "model.hidden=0"],
            ["and 1 more] optimizer.lr=-1", "[all cases] model.hidden"],
        ),
        (["plan", "quikstart", "--hardware", "p3_8xlarge"], ["plan='quikstart'"]),
        (["status", "nowhere"], ["run='nowhere'", "there is none"]),
        (["status", "."], ["job.json: No such file"]),
        (["sweep", "quickstart", "train.epochs=0", "seed=x"], ["[all cases] train.epochs", "[all cases] seed"]),
        (["report", "nothing"], ["report"]),
        (["report"], ["no run that has ended"]),
        (["report", "--sort", "dat"], ["did you mean date"]),
        (["report", "compare", "here"], ["two run directories", "report compare='here'"]),
        (["report", "quickstart", "--sort", "date"], ["--sort"]),
        (["partition", "partitioner=metsi"], ["partitioner=metis"]),
        (["partition", "partitioner.num_parts=1000000"], ["partitioner.num_parts"]),
    ],
    ids=lambda value: "_".join(value[:2]) if value[0] in ("run", "sweep", "report", "partition", "ui") else "",
)
def test_mistakes_end_with_2_name_the_fix_and_leave_nothing(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str], workplace: Path
) -> None:
    assert run_command(arguments) == 2
    said = capsys.readouterr().err
    assert [word for word in words if word not in said] == [], said
    assert "Traceback" not in said and "fix: " in said
    assert list(workplace.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--nonsense"], "option='--nonsense'"),
        (["run", "--nonsense=3"], "--nonsense='3'"),
        (["ui", "x=1"], "x=1="),
    ],
)
def test_arguments_that_do_not_exist(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(arguments) == 2
    assert said in capsys.readouterr().err


def test_a_command_that_does_not_exist() -> None:
    with pytest.raises(SystemExit) as caught:
        run_command(["nonsense"])
    assert caught.value.code == 2


def test_a_place_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*_: object) -> None:  # root, who runs these tests in containers, may read everything
        raise PermissionError(13, "Permission denied", "/closed/conf")

    monkeypatch.setattr("gnnexp.cli.running.prepare.draft", refuse)
    assert run_command(["run"]) == 2
    said = capsys.readouterr().err
    assert "/closed/conf='Permission denied'" in said and "fix: " in said


def test_a_run_never_writes_into_a_folder_that_exists(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workplace / "taken").mkdir()
    assert run_command(["run", "hydra.run.dir=taken", "tracker=none"]) == 2
    assert "taken" in capsys.readouterr().err
    assert list((workplace / "taken").iterdir()) == []


def test_the_line_of_an_epoch_has_the_phases_of_its_task() -> None:
    times = {
        "time/sample_s": 0.1,
        "time/load_s": 0.2,
        "time/fb_s": 0.4,
        "time/sync_s": 0.0,
        "time/wait_s": 0.0,
        "time/epoch_s": 0.9,
    }
    vertices = {"loss/train": 0.5, **times, "time/negatives_s": 0.0, "time/decode_s": 2e-6}
    links = {**vertices, "time/negatives_s": 0.03, "time/decode_s": 0.25}
    line = "epoch   7  loss 0.5000  S 0.100  L 0.200  FB 0.400  sync 0.000  wait 0.000  epoch 0.900 s"
    assert epoch_line({"epoch": 7, "metrics": vertices}) == line
    assert epoch_line({"epoch": 7, "metrics": {"loss/train": 0.5, **times}}) == line, "an earlier version's record"
    assert epoch_line({"epoch": 7, "metrics": links}) == (
        "epoch   7  loss 0.5000  S 0.100  N 0.030  L 0.200  FB 0.400  D 0.250  sync 0.000  wait 0.000  epoch 0.900 s"
    )


def test_a_run_that_fails_says_why_once(workplace: Path) -> None:
    words = [
        "run",
        "system=sdt_gnn",
        *SMALL,
        "tracker=none",
        "hydra.run.dir=runs/bad",
        "+hardware.launcher.worker_module=no_worker",
    ]
    done = subprocess.run([sys.executable, "-m", "gnnexp", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("No module named 'no_worker'") == 1
    result = json.loads((workplace / "runs" / "bad" / "result.json").read_text())
    assert result["status"] == "failed" and "rank 0" in result["reason"]
    assert result["quality"]["parts"] == 1, "what was prepared is in the record of a run that failed, too"


SWEEP = """
description: two seeds, on ranks that only pretend
fixed: [tracker=none, hardware.launcher.worker_module=pretending_worker]
axes: {seed: [0, 1]}
report: {rows: [system]}
"""


def test_a_sweep_goes_on_after_a_failure_and_skips_what_is_finished(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "support"))
    (workplace / "seeds.yaml").write_text(SWEEP.replace("[system]", "[system], figures: []"))
    assert run_command(["sweep", "seeds.yaml", "seed=0"]) == 0
    # The worker that pretends fails at such a learning rate: both cases are run, and both fail.
    assert run_command(["sweep", "seeds.yaml", "optimizer.lr=9"]) == 1
    assert len(list((workplace / "runs" / "seeds").iterdir())) == 3
    capsys.readouterr()
    assert run_command(["sweep", "seeds.yaml"]) == 0
    assert "1 finished before" in capsys.readouterr().out
    assert run_command(["sweep", "seeds.yaml", "--dry-run"]) == 0
    assert "2 finished before" in capsys.readouterr().out
    (workplace / "seeds.yaml").write_text(SWEEP)
    assert run_command(["sweep", "seeds.yaml", "--out", "elsewhere"]) == 0
    assert (workplace / "elsewhere" / "table.md").exists()
    assert run_command(["sweep", "seeds.yaml", "--out", "seeds.yaml"]) == 2, "a file is no folder"
    assert run_command(["report", "seeds", "--markdown", "--csv"]) == 0
    assert "71.50 (71.00 to 72.00)" in capsys.readouterr().out, "two seeds in one row"
    (row,) = csv.DictReader((workplace / "reports" / "seeds" / "table.csv").open())
    assert float(row["acc/test % half_width"]) == pytest.approx(12.7062 * 0.5, rel=1e-5), "its interval, too"
    assert (workplace / "reports" / "seeds" / "breakdown.svg").exists()
    assert (workplace / "reports" / "seeds" / "table.md").exists()
    assert run_command(["report", "--sort", "date", "--csv"]) == 0
    listed = (workplace / "reports" / "runs" / "runs.csv").read_text().splitlines()
    assert len(listed) == 1 + 4 and "failed" in listed[-1], "failed ones last"
    first, second = (str(path) for path in sorted((workplace / "runs" / "seeds").iterdir())[::3])
    capsys.readouterr()
    assert run_command(["report", "compare", first, second, "--csv"]) == 0
    assert capsys.readouterr().out.startswith("One of the runs has no epoch time."), "they only pretend"
    assert "setting,seed,0,1" in (workplace / "reports" / "compare" / "compare.csv").read_text()
    (workplace / "odd.yaml").write_text(SWEEP.replace("[system]", "[sytem]"))
    assert run_command(["sweep", "odd.yaml"]) == 2
    assert "did you mean system?" in capsys.readouterr().err, "before anything is run"


def test_what_a_store_missed_is_delivered_later_once(
    workplace: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    mlflow_store: Callable[[Path], str],
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "support"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # nothing listens there
    arguments = ["run", "hardware.launcher.worker_module=pretending_worker", "tracker.timeout_s=20"]
    assert run_command(arguments) == 0, "a run does not depend on its tracker"
    assert "gnnexp report --sync" in capsys.readouterr().out
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_store(workplace))
    assert run_command(["report", "--sync"]) == 0
    assert "1 runs delivered" in capsys.readouterr().out
    assert run_command(["report", "--sync"]) == 0
    assert "0 runs delivered" in capsys.readouterr().out


def test_an_interrupted_sweep_stops(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gnnexp.launchers.base import Outcome
    from gnnexp.launchers.local import LocalLauncher

    interrupted = Outcome(143, "interrupted", "interrupted by SIGTERM", "interrupted by SIGTERM")
    monkeypatch.setattr(LocalLauncher, "launch", lambda *_: interrupted)
    (workplace / "seeds.yaml").write_text(SWEEP)
    assert run_command(["sweep", "seeds.yaml"]) == 130
    (run,) = (workplace / "runs" / "seeds").iterdir()
    assert json.loads((run / "result.json").read_text())["status"] == "failed"


def test_partition_and_info(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["partition", "partitioner=random", "partitioner.num_parts=3"]) == 0
    said = capsys.readouterr().out
    assert "edge_cut" in said and "replication_full" in said
    assert run_command(["info"]) == 0
    said = capsys.readouterr().out
    assert "torch" in said and "dgl_reference" in said
    assert list(workplace.iterdir()) == []


@pytest.mark.slow
def test_a_users_own_component_in_the_current_folder(workplace: Path) -> None:
    code = "from gnnexp.feature_stores.local import LocalOptions\nclass Mine(LocalOptions): ...\n"
    (workplace / "mine.py").write_text(code)
    (workplace / "conf" / "feature_store").mkdir(parents=True)
    (workplace / "conf" / "feature_store" / "mine.yaml").write_text("_target_: mine.Mine\n")
    arguments = [*SMALL, "tracker=none", "feature_store=mine", "--config-dir", "conf"]
    assert run_command(["run", *arguments]) == 0
    (result,) = (workplace / "runs").rglob("result.json")
    assert "--config-dir conf" in json.loads(result.read_text())["provenance"]["reproduce"]
