"""Runs of gnnexp 0.1: sweeps find and name them, `--changed-code` takes them, `gnnexp rekey` gives them new keys."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from other_user import NOBODY, needs_root

from gnnexp.cli.main import run_command
from gnnexp.provenance.code import package_digest
from gnnexp.provenance.recorded import RESULT_VERSION, as_executed
from gnnexp.record.attempts import RANKS, note
from gnnexp.record.rekeying import LATER, NO_DATA, NO_KEY, NOT_THE_LAST
from gnnexp.record.runs import find_runs

SWEEP = """
fixed: [dataset=digits, tracker=none, hardware.launcher.worker_module=pretending_worker]
axes: {seed: [0]}
report: {figures: []}
"""
# The key that dataset=digits had at fa10fb91, the last commit of 0.1.
DIGITS = "27419a8135fa6b2cbfbee1ee3f8f60390676c35742bee726b5a18a31fbd39380"
SUPPORT = f"{Path(__file__).parents[1] / 'support'}:{os.environ.get('PYTHONPATH', '')}"
Said = Callable[..., str]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep that was run once; each test gets a copy."""
    folder = tmp_path_factory.mktemp("swept")
    (folder / "one.yaml").write_text(SWEEP)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", SUPPORT)
        patch.chdir(folder)
        assert run_command(["sweep", "one.yaml"]) == 0
    return folder


@pytest.fixture
def said(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """What a command prints, in a folder with a sweep that was run once."""
    monkeypatch.setenv("PYTHONPATH", SUPPORT)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(swept, tmp_path, symlinks=True, dirs_exist_ok=True)

    def command(*words: str, code: int = 0) -> str:
        assert run_command(list(words)) == code
        found = capsys.readouterr()
        return " ".join((found.out + found.err).split())

    return command


def change(name: str = "result.json", **provenance: Any) -> None:
    """Give the provenance of the one run other values; None removes a key."""
    for file in Path("runs").glob(f"one/*/{name}"):
        record = json.loads(file.read_text())
        merged = {**record["provenance"], **provenance}
        record["provenance"] = {key: value for key, value in merged.items() if value is not None}
        file.write_text(json.dumps(record))


def as_of_0_1(**more: Any) -> None:
    for name in ("job.json", "result.json"):
        change(
            name,
            **{
                "result_version": None,
                "run_key": "0" * 32,
                "dataset_key": DIGITS,
                "code_version": "0.1.0+abc",
                "code": {"changed": {}, "own": {}},
                **more,
            },
        )


def test_a_run_of_0_1_is_named_and_taken_only_on_demand(said: Said) -> None:
    as_of_0_1()
    plan = said("sweep", "one.yaml", "--dry-run")
    assert "0 finished before" in plan and "1 finished with an earlier gnnexp (--changed-code takes them)" in plan
    assert "finished with gnnexp 0.1.0 (runs/one/" in said("sweep", "one.yaml", "--dry-run", "--json")
    assert "1 finished before" in said("sweep", "one.yaml", "--dry-run", "--changed-code")
    assert "1 finished before" not in said("sweep", "one.yaml", "--dry-run", "--changed-code", "--same-code")
    said("sweep", "one.yaml")
    assert len(find_runs()) == 2


def test_rekeyed_it_counts_as_finished(said: Said) -> None:
    key = find_runs()[0].key
    as_of_0_1()
    assert find_runs()[0].key == ""
    assert "1 runs would get new keys, 0 have" in said("rekey", "--dry-run")
    assert find_runs()[0].key == ""
    assert "1 runs have new keys" in said("rekey") and "0 runs have new keys, 1 have" in said("rekey", "runs")
    run = find_runs()[0]
    assert run.key == key and run.provenance["rekeyed"] == {"run_key": "0" * 32, "dataset_key": DIGITS}
    plan = said("sweep", "one.yaml", "--dry-run")
    assert "1 finished before" in plan and "were made by other code of gnnexp (0.1.0+abc): --same-code" in plan


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"code": {"changed": {"gnnexp.models.sage": "1" * 16}, "own": {}}}, NOT_THE_LAST),
        ({"run_key": ""}, NO_KEY),
        ({"run_key": None}, NO_KEY),
        ({"dataset_key": "1" * 64}, NO_DATA),
        ({"imported": {"file": "a.tar.xz"}}, "was imported from a.tar.xz"),
    ],
)
def test_what_keeps_its_key_and_why(said: Said, more: dict[str, Any], why: str) -> None:
    as_of_0_1(**more)
    before = [file.read_bytes() for file in sorted(Path("runs").glob("one/*/*.json"))]
    assert why in said("rekey")
    assert before == [file.read_bytes() for file in sorted(Path("runs").glob("one/*/*.json"))]


def test_vertex_parallelism_counts_from_its_mend_on(said: Said) -> None:
    mended = {"changed": {"gnnexp.comm.stale": "efc18f8fb78e4ca4"}, "own": {}}
    as_of_0_1(code=mended)
    assert NOT_THE_LAST in said("rekey")
    for name in ("job.json", "result.json"):
        for file in Path("runs").glob(f"one/*/{name}"):
            record = json.loads(file.read_text())
            record["config"]["paradigm"] = {"_target_": "gnnexp.paradigms.vertex_parallel.VertexParallel"}
            file.write_text(json.dumps(record))
    assert "1 runs have new keys" in said("rekey")


@needs_root
def test_a_run_of_another_user_keeps_its_key(said: Said) -> None:
    as_of_0_1()
    for file in Path("runs").glob("one/*/job.json"):
        os.chown(file, NOBODY, -1)
    assert "belongs to nobody" in said("rekey") and find_runs()[0].key == ""


def test_a_class_outside_of_gnnexp_is_named_and_not_imported(said: Said) -> None:
    as_of_0_1()
    for file in Path("runs").glob("one/*/*.json"):
        record = json.loads(file.read_text())
        if "config" in record:
            file.write_text(json.dumps({**record, "config": {**record["config"], "model": {"_target_": "mine.Model"}}}))
    assert "mine.Model is no class of gnnexp" in said("rekey")
    assert "0 finished before" in said("sweep", "one.yaml", "--dry-run", "--changed-code")


def test_a_damaged_run_does_not_keep_the_others_from_new_keys(said: Said) -> None:
    as_of_0_1()
    (Path("runs") / "damaged").mkdir()
    (Path("runs") / "damaged" / "job.json").write_text("{")
    answer = said("rekey")
    assert "1 runs have new keys" in answer and "job.json" in answer
    assert "must be a folder" in said("rekey", "none", code=2)


def test_a_run_of_a_later_version_is_not_taken(said: Said) -> None:
    for name in ("job.json", "result.json"):
        change(name, result_version=RESULT_VERSION + 1)
    assert "0 finished before" in said("sweep", "one.yaml", "--dry-run")
    assert LATER in said("rekey")


def test_other_code_of_gnnexp_is_taken_and_named_and_refused_on_demand(said: Said) -> None:
    change(code={"own": {}, "gnnexp": package_digest()})
    plan = said("sweep", "one.yaml", "--dry-run")
    assert "1 finished before" in plan and "other code" not in plan
    assert "1 finished before" in said("sweep", "one.yaml", "--dry-run", "--same-code")
    change(code={"own": {}, "gnnexp": "0" * 16}, code_version="0.2.0+abc")
    plan = said("sweep", "one.yaml", "--dry-run")
    assert "1 finished before" in plan
    assert "1 of the finished runs were made by other code of gnnexp (0.2.0+abc): --same-code makes them again" in plan
    plan = said("sweep", "one.yaml", "--dry-run", "--same-code")
    assert "0 finished before" in plan and "made by other code of gnnexp, 0.2.0+abc" in plan
    said("run", "--same-code", code=2)


def test_a_begun_run_of_other_code_is_continued_or_left_alone_on_demand(said: Said) -> None:
    (run,) = Path("runs/one").iterdir()
    (run / "result.json").unlink()
    note(run, RANKS, nodes=[], code={"own": {}, "gnnexp": "0" * 16}, from_start=True)
    assert "1 to be continued" in said("sweep", "one.yaml", "--dry-run")
    assert "0 to be continued" in said("sweep", "one.yaml", "--dry-run", "--same-code")
    note(run, RANKS, nodes=[], code={"own": {}, "gnnexp": package_digest()}, from_start=True)
    assert "1 to be continued" in said("sweep", "one.yaml", "--dry-run", "--same-code")


def test_a_result_of_several_codes_of_the_user_has_no_key() -> None:
    prepared = {"run_key": "k", "code": {"own": {"mine": "1"}}}
    one, other = {"own": {"mine": "1"}, "gnnexp": "a"}, {"own": {"mine": "2"}, "gnnexp": "a"}
    assert as_executed(prepared, []) == prepared
    assert as_executed(prepared, [one]) == {"run_key": "k", "code": one}
    assert as_executed(prepared, [other]) == {"run_key": "", "code": other, "earlier_code": [prepared["code"]]}
    assert as_executed(prepared, [one, other])["run_key"] == ""
    assert as_executed({**prepared, "run_key": ""}, [one])["run_key"] == ""


def test_a_result_of_several_codes_of_gnnexp_keeps_its_key_and_names_them() -> None:
    prepared = {"run_key": "k", "code": {"own": {}}}
    first, second = {"own": {}, "gnnexp": "a"}, {"own": {}, "gnnexp": "b"}
    assert as_executed(prepared, [first, second]) == {"run_key": "k", "code": second, "earlier_code": [first]}
