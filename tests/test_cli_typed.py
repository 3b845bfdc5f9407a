"""What a user types, and what gnnexp answers: every row of docs/howto/command_line.md, hints, lists, and `--json`."""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.arguments import COMMANDS
from gnnexp.cli.main import make_parser, run_command
from gnnexp.cli.runs import SHOWN, list_runs, named_run, newest
from gnnexp.config.compose import compose
from gnnexp.config.folders import find_folders, product_folder, product_sweeps
from gnnexp.config.hints import published_names
from gnnexp.errors import ConfigError
from gnnexp.record.archive import IMPORTED

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "howto" / "command_line.md"
TINY = [
    "model.hidden=8",
    "model.layers=2",
    "sampler.fanouts=[3,3]",
    "train.epochs=1",
    "train.batch_size=512",
    "tracker=none",
]
PATHS = os.pathsep.join([str(ROOT / "tests" / "support"), str(ROOT)])
PRETENDING = ["hardware.launcher.worker_module=pretending_worker", *TINY]
Said = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder with the sweeps of the checkout; no cluster."""
    (tmp_path / "sweeps").symlink_to(product_folder("sweeps"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(cache))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("PYTHONPATH", PATHS)
    yield tmp_path


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """The exit code, standard output and standard error of a command."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run_command(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return call


def rows(heading: str) -> list[tuple[str, str]]:
    """The rows of the first table below a heading: both cells."""
    text = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [(left.strip("| "), right.strip("| ")) for left, _, right in (line.partition(" | ") for line in lines)]


def spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# --- slips -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("row", rows("What you type, and what gnnexp answers"), ids=lambda row: spans(row[0])[0])
def test_every_row_is_answered(row: tuple[str, str], said: Said, workplace: Path) -> None:
    (typed,) = spans(row[0])
    before = sorted(workplace.iterdir())
    code, out, err = said(*shlex.split(typed))
    assert (code, out) == (2, "")
    assert [words for words in spans(row[1]) if words not in err] == [], err
    assert "fix: " in err and "Traceback" not in err and sorted(workplace.iterdir()) == before


@pytest.mark.slow
def test_every_hint_composes() -> None:
    folders = find_folders(None)
    for group in folders.groups():
        for name, lines in published_names(group, folders).items():
            assert compose(lines).config[group], name


def test_all_slips_are_reported_at_once(said: Said) -> None:
    _, _, err = said("run", "dataset=cora", "epochs=3", "config.yaml", "system=p3,gsplit")
    assert "4 configuration problems" in err
    _, _, err = said("run", "--epochs", "3", "--lr=0.5", "--nonsense")
    assert "write train.epochs=3" in err and "write optimizer.lr=0.5" in err and "--nonsense" in err


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["run", "system=gsplit", "--fanouts", "[5,5]"], "sampler.fanouts=[5,5]"),
        (["run", "--train.epochs", "3"], "write train.epochs=3"),
        (["run", "model=gat", "--heads=8"], "model.heads=8"),
        (["run", "-lr", "3"], "optimizer.lr=3"),
        (["run", "dataset=OGBN-Arxiv"], "dataset=ogb dataset.name=ogbn-arxiv"),
        (["run", "dataset=fb15k-237"], "dataset=fb15k_237"),
        (["run", "dataset=no_such_thing"], "choose one of them"),
        (["run", "sampler.device=cpu", "momentum=0.9"], "no such key"),
        (["run", "model=gat", "slope=0.1"], "model.slope=0.1"),
        (["run", "optimizer=sgd", "momentum=0.9"], "optimizer.momentum=0.9"),
        (["run", "~epochs"], "train.epochs"),
        (["run", "run.yaml/"], "run.yaml"),
        (["ui", "x=1"], "no such argument"),
        (["logs", "latest"], "no run was started"),
        (["run", "--trust"], "without --from"),
        (["run", "--from", "nowhere"], "there is none"),
        (["run", "--from", "latest"], "no run was started"),
    ],
)
def test_further_slips(typed: list[str], words: str, said: Said) -> None:
    code, out, err = said(*typed)
    assert (code, out) == (2, "") and words in err, err


def test_a_class_of_the_user_is_not_imported_for_a_hint(workplace: Path, said: Said) -> None:
    (workplace / "conf" / "dataset").mkdir(parents=True)
    (workplace / "conf" / "dataset" / "mine.yaml").write_text("# Mine.\n_target_: evil.Evil\nname: mutag\n")
    (workplace / "evil.py").write_text("raise SystemExit('imported')\n")
    _, _, err = said("run", "dataset=mutagg", "--config-dir", "conf")
    assert "dataset=mine dataset.name=mutag" in err and "imported" not in err


def test_the_version(said: Said) -> None:
    assert said("--version")[:2] == (0, "gnnexp 0.2.0\n")


# --- lists -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("group", sorted(find_folders(None).groups()))
def test_every_choice_has_one_line(group: str, said: Said) -> None:
    code, out, _ = said("list", group, "--json")
    found = json.loads(out)["choices"]
    assert code == 0 and {one["name"] for one in found} == find_folders(None).choices(group)
    assert [one["name"] for one in found if not one["about"]] == []


def test_a_users_choices_are_listed_with_their_files(workplace: Path, said: Said) -> None:
    (workplace / "conf" / "system").mkdir(parents=True)
    file = workplace / "conf" / "system" / "mine.yaml"
    file.write_text("# @package _global_\n# A system of [mine].\nsystem: mine\n")
    code, out, err = said("list", "systems", "--config-dir", "conf", "--json")
    (mine,) = (one for one in json.loads(out)["choices"] if one["file"])
    listed = {"name": "mine", "about": "A system of [mine].", "file": str(file.resolve()), "package": ""}
    assert code == 0 and mine == listed
    assert "A system of [mine]." in err and "gsplit" in err


def test_sweeps_are_listed_in_two_ways(said: Said) -> None:
    listed, typed = said("list", "sweeps", "--json")[1], said("sweep", "--list", "--json")[1]
    assert listed == typed and {one["name"] for one in json.loads(listed)["sweeps"]} == set(product_sweeps())


# --- runs ------------------------------------------------------------------------------------------------------------
def make_run(name: str, age_s: float, status: str | None = "finished", **provenance: object) -> Path:
    run_dir = Path("runs") / name
    write_job(run_dir, uid=name, **provenance)
    write_epochs(run_dir, 2)
    if status:
        write_result(run_dir, status)
    when = time.time() - age_s
    os.utime(run_dir / "job.json", (when, when))
    return run_dir


def test_runs_are_listed_newest_first_and_few(said: Said) -> None:
    for number in range(SHOWN + 5):
        make_run(f"r{number}", age_s=1000.0 - number, status=("finished", "failed", None)[number % 3])
    found = json.loads(said("list", "runs", "--json")[1])
    assert found["total"] == SHOWN + 5 and len(found["runs"]) == SHOWN
    assert found["runs"][0]["run_dir"] == f"runs/r{SHOWN + 4}"
    assert {run["state"] for run in found["runs"]} == {"finished", "failed", "stopped"}
    assert {(run["epochs"], run["epochs_asked"], run["system"]) for run in found["runs"]} == {(2, 3, "dgl")}
    assert len(json.loads(said("status", "--all", "--json")[1])["runs"]) == SHOWN + 5


def test_a_list_reads_only_the_runs_that_it_shows(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    for number in range(3 * SHOWN):
        make_run(f"r{number}", age_s=1000.0 - number)
    read: list[Path] = []
    load = gnnexp_runs_load()
    monkeypatch.setattr("gnnexp.cli.runs.load_result", lambda path: read.append(path) or load(path))
    assert said("status")[0] == 0 and len(read) == SHOWN


def gnnexp_runs_load() -> Callable[[Path], dict[str, Any]]:
    from gnnexp.record.records import load_result

    return load_result


def test_latest_is_the_last_run_that_was_not_imported(said: Said) -> None:
    make_run("old", age_s=100.0)
    make_run("new", age_s=50.0, status="failed")
    make_run("foreign", age_s=1.0, **{IMPORTED: {"file": "a.tar.xz"}})
    assert named_run("latest") == Path("runs/new") and newest()[0] == Path("runs/foreign")
    code, out, _ = said("status", "latest")
    assert code == 1 and "runs/new: failed" in out
    assert "fine" in said("logs", "latest")[1]
    assert said("report", "latest")[0] == 0
    Path("latest").mkdir()
    assert named_run("latest") == Path("latest"), "a folder of this name comes first"


def test_damaged_runs_are_listed(said: Said) -> None:
    for name, file, text in (("a", "job.json", "{"), ("b", "result.json", "[]"), ("c", "slurm.json", "{}")):
        make_run(name, age_s=1.0, status=None if name == "c" else "finished")
        (Path("runs") / name / file).write_text(text)
    assert {line.state for line in list_runs(newest())} == {"damaged"}
    assert said("status")[0] == 0


def test_a_run_in_a_queue_is_listed_without_asking_slurm(said: Said) -> None:
    run_dir = make_run("queued", age_s=1.0, status=None)
    (run_dir / "slurm.json").write_text(json.dumps({"job_id": "4711", "token": "t"}))
    assert list_runs([run_dir])[0].state == "job 4711"


# --- a sweep by its file, its state, its end -------------------------------------------------------------------------
SWEEP = {"description": "one case", "fixed": PRETENDING, "report": {}}


def write_sweep(name: str, **more: object) -> str:
    Path(name).write_text(json.dumps({**SWEEP, **more}))
    return name


def test_a_sweep_file_is_a_name_everywhere(said: Said) -> None:
    file = write_sweep("mine.yaml")
    code, out, err = said("sweep", file, "--dry-run", "--json")
    assert code == 0 and [case["state"] for case in json.loads(out)["cases"]] == ["waiting"], err
    code, out, err = said("sweep", file, "--json")
    found = json.loads(out)
    assert code == 0 and found["cases"][0]["state"] == "finished" and found["report"]["tables"], err
    for arguments in (("report", file, "--json"), ("export", file), ("status", "mine", "--json")):
        assert said(*arguments)[0] == 0, arguments
    assert Path("mine.parquet").exists()
    assert json.loads(said("status", "--json")[1])["sweeps"][0]["state"] == "finished"
    code, _, err = said("cancel", "mine")
    assert code == 2 and "no process and no job works on it" in err


# --- the same run again ----------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A run directory; tests get copies of it."""
    place = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("GNNEXP_CACHE", str(cache))
        patch.setenv("PYTHONPATH", PATHS)
        assert run_command(["run", *PRETENDING, "seed=7", "hydra.run.dir=runs/first"]) == 0
    return place / "runs" / "first"


@pytest.fixture
def first(made: Path, workplace: Path) -> Path:
    return Path(shutil.copytree(made, Path("runs/first")))


def recorded(run_dir: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((Path(run_dir) / "job.json").read_text())["config"]
    return config


@pytest.mark.slow
def test_a_run_is_made_again_from_its_record(first: Path, said: Said) -> None:
    for origin in ("runs/first", "latest", "runs/first/config.yaml"):
        code, out, err = said("run", "--from", origin, "--json")
        again = json.loads(out)
        assert code == 0 and again["run_dir"] != "runs/first" and err.count("gnnexp:") == 0, err
        assert recorded(again["run_dir"]) == recorded("runs/first")
    code, out, _ = said("run", "--from", "runs/first", "seed=8", "model.hidden=16", "--json")
    changed = recorded(json.loads(out)["run_dir"])
    assert code == 0 and (changed["seed"], changed["model"]["hidden"], changed["model"]["layers"]) == (8, 16, 2)


def test_a_record_without_overrides_gives_its_configuration(first: Path, said: Said) -> None:
    job = json.loads((first / "job.json").read_text())
    job["provenance"]["reproduce"] = ""
    job["config"]["name"] = 'it\\\'s "odd", ${x} = 1e3'.replace("${x}", "{x}")
    (first / "job.json").write_text(json.dumps(job))
    code, out, err = said("run", "--from", "runs/first", "--cfg", "tracker=none", "--json")
    assert code == 0, err
    assert {**json.loads(out), "tracker": None} == {**job["config"], "tracker": None}


def test_an_imported_record_needs_trust(first: Path, said: Said) -> None:
    job = json.loads((first / "job.json").read_text())
    job["provenance"][IMPORTED] = {"file": "theirs.tar.xz"}
    (first / "job.json").write_text(json.dumps(job))
    code, _, err = said("run", "--from", "runs/first", "--cfg")
    assert code == 2 and "theirs.tar.xz" in err and "--trust" in err
    code, out, err = said("run", "--from", "runs/first", "--trust", "--cfg", "--json", "tracker=none")
    assert code == 0 and json.loads(out)["seed"] == 7, err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_run_of_another_user_needs_trust(first: Path, said: Said) -> None:
    os.chown(first / "job.json", 12345, -1)
    code, _, err = said("run", "--from", "runs/first", "--cfg")
    assert code == 2 and "belongs to" in err and "--trust" in err
    assert said("run", "--from", "runs/first", "--cfg", "--trust")[0] == 0


def test_what_differs_today_is_said(first: Path, said: Said) -> None:
    job = json.loads((first / "job.json").read_text())
    job["config"]["optimizer"]["lr"] = 0.5
    job["provenance"]["code"] = {"own": {"mymodel": "0" * 16}}
    job["provenance"]["reproduce"] = "GNNEXP_DATA=/gone " + job["provenance"]["reproduce"]
    (first / "job.json").write_text(json.dumps(job))
    _, _, err = said("run", "--from", "runs/first", "--cfg")
    assert "optimizer.lr was 0.5, today it is 0.003" in err
    assert "other code of mymodel" in err and "GNNEXP_DATA=/gone" in err


def test_a_folder_of_configurations_that_is_gone(first: Path, said: Said) -> None:
    job = json.loads((first / "job.json").read_text())
    job["provenance"]["reproduce"] += " --config-dir /no/such/conf"
    (first / "job.json").write_text(json.dumps(job))
    code, _, err = said("run", "--from", "runs/first")
    assert code == 2 and "/no/such/conf" in err and "--config-dir DIR" in err


# --- a dry run -------------------------------------------------------------------------------------------------------
def test_a_dry_run_plans_and_leaves_nothing(said: Said, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNEXP_CACHE", str(workplace / "cache"))
    before = sorted(workplace.iterdir())
    code, out, err = said("run", "--dry-run", "system=gsplit", "hardware.workers=2", "tracker=none", "--json")
    found = json.loads(out)
    assert code == 0 and (found["system"], found["ranks"], found["parts"]) == ("gsplit", 2, 2), err
    assert found["bytes"]["host"] > 0 and found["bytes"]["disk"] > 0 and "exact" in err
    assert sorted(workplace.iterdir()) == before


def test_a_dry_run_finds_what_the_run_would_find(said: Said) -> None:
    code, _, err = said("run", "--dry-run", "hardware.workers=5000", "tracker=none")
    assert code == 2 and "more ranks (5000) than training vertices" in err
    code, out, err = said("run", "--dry-run", "dataset=rmat", "dataset.shape=papers_like", "tracker=none", "--json")
    assert code == 0 and json.loads(out)["bytes"] is None and "not prepared" in err, "a large graph is not made"
    code, _, err = said("run", "--dry-run", "dataset=rmat", "hardware.device_memory=1000", "tracker=none")
    assert code == 2 and "of device memory" in err
    code, out, err = said(
        "run", "--dry-run", "dataset=rmat", "hardware.device_memory=1000", "tracker=none", "preflight=warn", "--json"
    )
    assert code == 0 and len(json.loads(out)["shortages"]) == 1 and "warning" in err


# --- JSON ------------------------------------------------------------------------------------------------------------
def commands() -> dict[str, argparse.ArgumentParser]:
    (group,) = (action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(group.choices)


def module_of(command: str) -> Path:
    module = COMMANDS[command][1]
    full = module if module.startswith("gnnexp.") else f"gnnexp.cli.{'' if '.' in module else 'commands.'}{module}"
    return ROOT / full.replace(".", "/")


def calls(file: Path) -> set[str]:
    """The names of everything that a module calls or imports."""
    tree = ast.parse(file.with_suffix(".py").read_text(encoding="utf-8"))
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def test_every_command_that_builds_a_table_has_json() -> None:
    tables = {"made_table", "terminal_table", "tell_result", "show", "finish"}
    building = {command for command in commands() if tables & calls(module_of(command))} - {"cancel", "logs"}
    with_json = {command for command, parser in commands().items() if "--json" in parser.format_help()}
    assert building <= with_json and {"run", "status", "report", "plan", "info"} <= building


def test_every_document_is_described() -> None:
    described = {spans(left)[0].split()[0] for left, _ in rows("JSON")}
    described |= {span.split()[0] for left, _ in rows("JSON") for span in spans(left)}
    assert described == {command for command, parser in commands().items() if "--json" in parser.format_help()}


@pytest.mark.parametrize(
    "row",
    [
        row
        for row in rows("JSON")
        if spans(row[0])[0]
        in ("list", "list systems", "list sweeps", "list runs", "status", "info", "partition", "run --dry-run")
    ],
    ids=lambda row: spans(row[0])[0],
)
def test_a_document_has_the_keys_of_its_row(row: tuple[str, str], said: Said) -> None:
    make_run("one", age_s=1.0)
    typed, (first, *_) = spans(row[0])[0], [row[1].partition(", and")[0]]
    code, out, _ = said(*typed.split(), "--json")
    assert code == 0
    outer = spans(re.sub(r" \([^)]*\)", "", first))
    assert set(outer) <= set(json.loads(out))


@pytest.mark.parametrize(
    "typed",
    [
        ["report"],
        ["report", "runs/one"],
        ["report", "compare", "runs/one", "runs/two"],
        ["plan", "runs/one", "runs/two", "--hardware", "p3_8xlarge"],
        ["claims", "gsplit"],
    ],
)
def test_reports_are_documents(typed: list[str], said: Said) -> None:
    make_run("one", age_s=1.0)
    make_run("two", age_s=2.0)
    code, out, err = said(*typed, "--json")
    if code == 2:
        pytest.skip(err)
    found = json.loads(out)
    assert code == 0 and "NaN" not in json.dumps(found) and "rows" in json.dumps(found)


def test_an_error_leaves_standard_output_empty(said: Said) -> None:
    code, out, err = said("report", "nothing", "--json")
    assert code == 2 and out == "" and "fix: " in err


def test_the_latest_run_is_an_error_without_runs() -> None:
    with pytest.raises(ConfigError):
        named_run("latest")
