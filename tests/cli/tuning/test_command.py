"""`gnnexp tune`: equal budgets, presets that a run can take, trials that are found again, and mistakes before a start.

A pretended launch takes the place of the ranks: its accuracy is best at optimizer.lr=0.01.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from run_folder import metrics_of, write_result

from gnnexp.cli.main import run_command
from gnnexp.config.compose import compose
from gnnexp.experiment.build import train_of
from gnnexp.launchers.base import Outcome
from gnnexp.launchers.local import LocalLauncher
from gnnexp.reports.budgets import Budget, describe_budgets
from gnnexp.training.best import Best, ending
from gnnexp.training.checkpoint import Position

RANGES = "{optimizer.lr: {low: 1e-3, high: 1e-1, log: true}, sampler.fanouts: {choices: [[4], [8]]}}"
LAYER = "sampler.fanouts=[4]"
FIXED = "[dataset=digits, train=default, model=sage, model.layers=1, model.hidden=8, train.epochs=2, tracker=none]"


class Pretended:
    """Launches in order: learning rate, fanouts and seed of each."""

    def __init__(self) -> None:
        self.launched: list[tuple[float, list[int], int]] = []
        self.fails: dict[int, Outcome] = {}

    def launch(self, run_dir: Path, _: object) -> Outcome:
        config = json.loads((run_dir / "job.json").read_text())["config"]
        rate, number = config["optimizer"]["lr"], len(self.launched)
        self.launched.append((rate, config["sampler"]["fanouts"], config["seed"]))
        if number in self.fails:
            return self.fails[number]
        top, train = 0.9 - 0.1 * abs(math.log10(rate) + 2), train_of(config)
        with (run_dir / "epochs.jsonl").open("a", encoding="utf-8") as file:
            for epoch in range(train.epochs):
                now = top - 0.2 + 0.2 * epoch / (train.epochs - 1)
                metrics = {**metrics_of(epoch), "acc/val": now, "time/epoch_s": 1.0}
                line = {"epoch": epoch, "time": 1000.0 + epoch, "metrics": metrics, "ranks": [], "losses": []}
                file.write(json.dumps(line) + "\n")
                if ended := ending(train, Position(epoch + 1), Best(epoch, now)):
                    break
        write_result(run_dir, summary={"acc/val": now, "acc/test": now}, ended=ended)
        return Outcome(0, "finished")


@pytest.fixture(autouse=True)
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pretended]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path.parent / "cache"))
    pretended = Pretended()
    monkeypatch.setattr(LocalLauncher, "launch", lambda _, run_dir, hardware: pretended.launch(run_dir, hardware))
    yield pretended


def write(tune: str, fixed: str = FIXED, axes: str = "{system: [dgl, fastsample]}") -> None:
    Path("mine.yaml").write_text(f"fixed: {fixed}\naxes: {axes}\ntune: {tune}\nreport: {{figures: []}}\n")


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = run_command(["tune", "mine.yaml", "--json", *words])
    said = capsys.readouterr()
    print(said.err, file=sys.stderr)  # a failed test shows it
    return code, json.loads(said.out)


def preset(system: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(Path(f"conf/train/tuned_{system}_digits.yaml").read_text())
    return found


@pytest.mark.slow
def test_every_system_gets_the_same_trials_and_a_preset(capsys: pytest.CaptureFixture[str], ranks: Pretended) -> None:
    write(f"{{distributions: {RANGES}, trials: 3, batch: 2}}")
    code, found = answer(capsys)
    assert code == 0 and len(ranks.launched) == 6
    begun = [line for line in capsys.readouterr().err.splitlines() if re.match(r"\d/\d ", line)]
    assert [line.split()[0] for line in begun] == [f"{number}/6" for number in range(1, 7)]  # of all, not of a batch
    assert [" left, until " in line for line in begun] == [False] + 5 * [True]
    assert [(one["system"], one["trials"], one["seconds"]) for one in found["systems"]] == [
        ("dgl_digits", 3, 6.0),
        ("fastsample_digits", 3, 6.0),
    ]
    assert ranks.launched[0] == ranks.launched[1], "the systems begin with the same trials"
    best = min(ranks.launched[::2], key=lambda one: abs(math.log10(one[0]) + 2))
    assert preset("dgl")["optimizer"]["lr"] == best[0] and preset("dgl")["sampler"] == {"fanouts": best[1]}
    assert preset("dgl")["train"] == {"epochs": 2}, "what the sweep sets in train"
    made = compose(["system=dgl", "train=tuned_dgl_digits"]).config
    assert (made["optimizer"]["lr"], made["sampler"]["fanouts"], made["train"]["epochs"]) == (best[0], best[1], 2)
    assert made["train"]["batch_size"] == 1024, "of train=default"
    said = "; equal budgets (3 trials each)."
    assert run_command(["report", "mine"]) == 0 and said in capsys.readouterr().out
    assert said in Path("reports/mine/report.html").read_text() and said in Path("reports/mine/table.md").read_text()


def test_trials_are_found_again_and_more_trials_go_on(capsys: pytest.CaptureFixture[str], ranks: Pretended) -> None:
    write(f"{{distributions: {RANGES}, trials: 2, batch: 2}}", axes="{system: [dgl]}")
    assert answer(capsys)[0] == 0
    first = preset("dgl")
    assert answer(capsys)[0] == 0 and len(ranks.launched) == 2 and preset("dgl") == first
    assert answer(capsys, "--trials", "3")[0] == 0 and len(ranks.launched) == 3, "the first two are reused"
    assert "tune mine.yaml --trials=3" in Path("conf/train/tuned_dgl_digits.yaml").read_text()
    assert answer(capsys, "--trials", "2", "--rerun")[0] == 0 and ranks.launched[3:] == ranks.launched[:2]


def test_ctrl_c_ends_a_tuning_and_the_same_command_goes_on(
    capsys: pytest.CaptureFixture[str], ranks: Pretended
) -> None:
    write(f"{{distributions: {RANGES}, trials: 4, batch: 2}}", axes="{system: [dgl]}")
    ranks.fails = {1: Outcome(130, "interrupted", "interrupted by SIGINT", "interrupted by SIGINT", "interrupted")}
    code, found = answer(capsys)
    assert code == 130 and not Path("conf").exists()
    assert found["systems"][0]["trials"] == 1 and "trial 1 is interrupted" in found["systems"][0]["reason"]
    assert "budgets are not equal: dgl_digits did not use the budget of 4 trials" in str(found["report"])
    assert answer(capsys)[0] == 0 and ranks.launched[1] == ranks.launched[2], "the interrupted trial goes on"
    assert len(ranks.launched) == 5 and preset("dgl")["tuned"]["trials"] == 4


def test_a_trial_that_diverges_has_no_value_and_is_not_tried_again(
    capsys: pytest.CaptureFixture[str], ranks: Pretended
) -> None:
    write(f"{{distributions: {RANGES}, trials: 3, batch: 1}}", axes="{system: [dgl]}")
    ranks.fails = {0: Outcome(1, "failed", "the loss is nan", "the loss is nan", "diverged")}
    code, found = answer(capsys)
    assert code == 0 and found["systems"][0]["trials"] == 3 and len(ranks.launched) == 3
    assert answer(capsys)[0] == 0 and len(ranks.launched) == 3


@pytest.mark.slow
def test_a_trial_that_is_worse_than_the_median_is_pruned(capsys: pytest.CaptureFixture[str], ranks: Pretended) -> None:
    write(
        f"{{distributions: {RANGES}, trials: 8, pruner: median}}",
        FIXED.replace("epochs=2", "epochs=4"),
        axes="{system: [dgl]}",
    )
    code, found = answer(capsys)
    (one,) = found["systems"]
    assert code == 0 and one["trials"] == 8 and one["seconds"] == 32.0 - 2.0 * one["pruned"] and 0 < one["pruned"] < 5
    assert sum(case["reason"].startswith("pruned: runs/") for case in found["cases"]) == one["pruned"]
    assert f"dgl_digits 8 trials ({one['pruned']} pruned), {one['seconds']} s of training" in str(found["report"])
    best = min(ranks.launched, key=lambda launch: abs(math.log10(launch[0]) + 2))
    assert preset("dgl")["optimizer"]["lr"] == best[0] and preset("dgl")["train"] == {"epochs": 4}
    assert (
        preset("dgl")["tuned"]["pruned"] == one["pruned"]
        and "stop_below" not in Path("conf/train/tuned_dgl_digits.yaml").read_text()
    )
    assert answer(capsys)[1]["systems"] == found["systems"] and len(ranks.launched) == 8, "the same trials again"


def test_pruning_refuses_what_it_cannot_judge(capsys: pytest.CaptureFixture[str], ranks: Pretended) -> None:
    write(f"{{distributions: {RANGES}, trials: 8, pruner: median}}", axes="{system: [dgl], seed: [0, 1]}")
    for more, told in (
        ("train.eval_every=0", "pruning compares validation metrics by epoch"),
        ("train.stop_below=[0.1]", "pruning sets this key"),
    ):
        assert run_command(["tune", "mine.yaml", more]) == 2
        said = capsys.readouterr().err
        assert "tune.pruner" in said and "2 seeds" in said and told in said
    assert ranks.launched == []


@pytest.mark.slow
def test_a_trial_that_fails_for_another_reason_stops_its_system_only(
    capsys: pytest.CaptureFixture[str], ranks: Pretended
) -> None:
    write(f"{{distributions: {RANGES}, trials: 2, batch: 1}}")
    ranks.fails = {1: Outcome(1, "failed", "rank 0 vanished", "rank 0 vanished", "killed")}
    code, found = answer(capsys)
    assert code == 1 and [one["trials"] for one in found["systems"]] == [2, 0]
    assert "rank 0 vanished" in found["systems"][1]["reason"]
    assert Path("conf/train/tuned_dgl_digits.yaml").exists()
    assert not Path("conf/train/tuned_fastsample_digits.yaml").exists()
    assert answer(capsys)[0] == 0, "the same command tries it again"


@pytest.mark.slow
def test_a_trial_with_several_seeds_counts_once(capsys: pytest.CaptureFixture[str], ranks: Pretended) -> None:
    write(f"{{distributions: {RANGES}, trials: 2}}", axes="{system: [dgl], seed: [0, 1]}")
    code, found = answer(capsys)
    assert code == 0 and sorted(seed for *_, seed in ranks.launched) == [0, 0, 1, 1]
    assert [(one["trials"], one["seconds"]) for one in found["systems"]] == [(2, 8.0)]
    assert "mean of 2 seeds" in Path("conf/train/tuned_dgl_digits.yaml").read_text()


@pytest.mark.slow
def test_a_budget_of_seconds_ends_the_search(capsys: pytest.CaptureFixture[str], ranks: Pretended) -> None:
    write(f"{{distributions: {RANGES}, seconds: 5, batch: 1}}", axes="{system: [dgl]}")
    code, found = answer(capsys)
    assert code == 0 and [(one["trials"], one["seconds"]) for one in found["systems"]] == [(3, 6.0)]
    inside = min(ranks.launched[:2], key=lambda one: abs(math.log10(one[0]) + 2))
    assert preset("dgl")["optimizer"]["lr"] == inside[0], "the third trial ended after the budget"


@pytest.mark.slow
def test_the_objective_may_be_the_time_to_a_target(capsys: pytest.CaptureFixture[str], ranks: Pretended) -> None:
    goal = "objective: time_to_target, target: 0.85"
    write(f"{{distributions: {RANGES}, trials: 5, batch: 1, {goal}}}", axes="{system: [dgl]}")
    code, found = answer(capsys)
    reached = [rate for rate, *_ in ranks.launched if 0.9 - 0.1 * abs(math.log10(rate) + 2) >= 0.85]
    assert code == 0 and reached and found["systems"][0]["best"] == 2.0
    assert preset("dgl")["optimizer"]["lr"] == reached[0]
    write(f"{{distributions: {RANGES}, trials: 1, objective: time_to_target, target: 0.99}}", axes="{system: [dgl]}")
    code, found = answer(capsys)
    assert code == 1 and "no trial has a value" in found["systems"][0]["reason"]


@pytest.mark.slow
def test_a_group_may_be_tuned(capsys: pytest.CaptureFixture[str]) -> None:
    ranges = "{optimizer: {choices: [sgd, adamw]}, scheduler: {choices: [null, cosine]}}"
    write(f"{{distributions: {ranges}, trials: 2}}", axes="{system: [dgl]}")
    assert answer(capsys, LAYER)[0] == 0
    made = compose(["system=dgl", "train=tuned_dgl_digits"])
    assert made.choices["optimizer"] in ("sgd", "adamw") and made.choices["scheduler"] in (None, "cosine")
    assert {"override /optimizer": made.choices["optimizer"]} in preset("dgl")["defaults"]


@pytest.mark.slow
def test_a_preset_may_start_from_a_file_with_keys_of_other_groups(capsys: pytest.CaptureFixture[str]) -> None:
    write(
        "{distributions: {optimizer.lr: {low: 0.01, high: 0.1}}, trials: 1}",
        FIXED.replace("train=default", "train=gsplit_small, 'sampler.fanouts=[3]'"),
        "{system: [dgl]}",
    )
    assert answer(capsys)[0] == 0
    assert preset("dgl")["defaults"][0] == "gsplit_small"
    made = compose(["system=dgl", "train=tuned_dgl_digits"]).config
    assert made["train"]["batch_of"] == "full_graph" and made["model"]["hidden"] == 64


@pytest.mark.slow
def test_presets_go_into_the_named_folder(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own/model").mkdir(parents=True)
    write(f"{{distributions: {RANGES}, trials: 1}}", axes="{system: [dgl]}")
    assert answer(capsys, "--config-dir", "own")[0] == 0
    assert Path("own/train/tuned_dgl_digits.yaml").exists() and not Path("conf").exists()


def test_a_dry_run_starts_and_writes_nothing(capsys: pytest.CaptureFixture[str], ranks: Pretended) -> None:
    write(f"{{distributions: {RANGES}, trials: 3}}")
    code, found = answer(capsys, "--dry-run")
    assert code == 0 and len(found["cases"]) == 6 and ranks.launched == []
    assert {path.name for path in Path().iterdir()} == {"mine.yaml"}


def test_every_mistake_is_found_before_a_trial_starts(capsys: pytest.CaptureFixture[str], ranks: Pretended) -> None:
    ranges = (
        "{optimizer.lrr: {low: 0.1, high: 1}, model.hidden: {choices: [0, 8]}, seed: {choices: [1, 2]}, "
        "train.epochs: {low: 1, high: 9}, sampler.fanouts: {low: 3, high: 2}}"
    )
    write(f"{{distributions: {ranges}, objective: best}}", FIXED.replace(", model.hidden=8", ""))
    assert run_command(["tune", "mine.yaml"]) == 2
    said = capsys.readouterr().err
    for words in (
        "optimizer.lrr",
        "model.hidden=0",
        "distributions.seed",
        "train.epochs=2",
        "low must be less",
        "tune.objective",
        "tune.trials",
    ):
        assert words in said, words
    write(f"{{distributions: {RANGES}, trials: 1}}")
    assert run_command(["tune", "mine.yaml", "train.eval_every=null"]) == 2
    assert "the objective needs the validation metric" in capsys.readouterr().err
    assert ranks.launched == [] and not Path("runs").exists()


def test_what_a_preset_cannot_hold_is_refused(capsys: pytest.CaptureFixture[str], ranks: Pretended) -> None:
    write("{distributions: {sampler.key: {choices: [global, micro]}}, trials: 2}")
    assert run_command(["tune", "mine.yaml", LAYER]) == 2
    assert "sampler.key='global'" in (said := capsys.readouterr().err) and "the system's file sets it" in said
    Path("conf/train").mkdir(parents=True)
    Path("conf/train/tuned_dgl_digits.yaml").write_text("# @package _global_\ndefaults: [default@train, _self_]\n")
    write(f"{{distributions: {RANGES}, trials: 2}}", FIXED.replace("train=default", "train=tuned_dgl_digits"))
    assert run_command(["tune", "mine.yaml"]) == 2 and "would contain itself" in capsys.readouterr().err
    assert ranks.launched == []


def test_a_sweep_without_the_section_and_a_missing_optuna_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_command(["tune", "quickstart"]) == 2 and "no section `tune`" in capsys.readouterr().err
    assert run_command(["tune", "tuning", "--trials", "0"]) == 2 and "tune.trials=0" in capsys.readouterr().err
    monkeypatch.setattr("gnnexp.cli.tuning.search.is_installed", lambda _: False)
    assert run_command(["tune", "tuning"]) == 2 and "pip install 'gnnexp[tune]'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_comparison_with_tuned_presets_names_their_budgets(capsys: pytest.CaptureFixture[str]) -> None:
    write(f"{{distributions: {RANGES}, trials: 2}}")
    assert answer(capsys)[0] == 0
    capsys.readouterr()
    cases = "".join(f"  - overrides: [system={one}, train=tuned_{one}_digits]\n" for one in ("dgl", "fastsample"))
    Path("fair.yaml").write_text(
        f"fixed: [dataset=digits, model=sage, model.layers=1, model.hidden=8, tracker=none]\ncases:\n{cases}"
    )
    assert run_command(["sweep", "fair.yaml"]) == 0
    said = " ".join(capsys.readouterr().out.split())  # lines break where the seconds of the trials put them
    assert "equal budgets (2 trials each)" in said, said
    Path("unfair.yaml").write_text(
        Path("fair.yaml").read_text().replace("train=tuned_fastsample_digits", f"train=default, '{LAYER}'")
    )
    assert run_command(["sweep", "unfair.yaml"]) == 0
    assert "budgets are not equal: fastsample_digits had none" in " ".join(capsys.readouterr().out.split())


def test_unequal_budgets_are_named() -> None:
    equal = [Budget("a", 12, 30.0, "12 trials"), Budget("b", 12, 41.04, "12 trials")]
    assert describe_budgets(equal) == (
        "Tuning: a 12 trials, 30.0 s of training; b 12 trials, 41.0 s of training; equal budgets (12 trials each)."
    )
    assert "not equal: a had 12 trials, c had 3 trials" in describe_budgets([equal[0], Budget("c", 3, 9.0, "3 trials")])
    assert "not equal: c did not use" in describe_budgets([equal[0], Budget("c", 3, 9.0, "12 trials", is_spent=False)])
    assert describe_budgets([]) == ""


@pytest.mark.slow
def test_a_search_does_not_go_on_with_another_optuna(
    capsys: pytest.CaptureFixture[str], ranks: Pretended, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(f"{{distributions: {RANGES}, trials: 2, batch: 2}}", axes="{system: [dgl]}")
    assert answer(capsys, "--dry-run")[0] == 0 and not Path("runs/sweeps/.searches").exists()
    assert answer(capsys)[0] == 0
    assert "# Chosen by: Optuna" in Path("conf/train/tuned_dgl_digits.yaml").read_text()
    (note,) = Path("runs/sweeps/.searches").iterdir()
    began = json.loads(note.read_text())
    note.write_text(json.dumps({**began, "optuna": "4.6.0"}))
    for more in (["--trials", "3"], ["--dry-run"]):
        assert run_command(["tune", "mine.yaml", *more]) == 2 and len(ranks.launched) == 2
        assert "was begun with Optuna 4.6.0" in capsys.readouterr().err
    assert answer(capsys, "--rerun")[0] == 0 and len(ranks.launched) == 4 and json.loads(note.read_text()) == began
    assert "another version may have chosen them" not in capsys.readouterr().err
    note.unlink()  # as of a gnnexp that noted nothing
    assert run_command(["tune", "mine.yaml"]) == 0 and len(ranks.launched) == 4
    said = capsys.readouterr()
    assert "2 of the trials had finished before this search noted its version of Optuna" in said.out + said.err
