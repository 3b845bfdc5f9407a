"""The first answer of a report: the fastest system, why, at what accuracy, how sure, and what makes it unfair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from figure_runs import figure_run

from gnnexp.record.runs import RecordedRun
from gnnexp.reports.paired.fastest import answer_table, in_short, setting_answers
from gnnexp.reports.paired.verdicts import Margins
from gnnexp.reports.tables.groups import group_runs
from gnnexp.reports.tables.table import ReportTable

PHASES = ("sample", "load", "forward", "backward")


def run_of(
    system: str,
    seed: int,
    seconds: Sequence[float] = (0.1, 0.2, 0.3, 0.4),
    acc: float = 0.8,
    dataset: str = "cora",
    approximates: str = "",
    config: Mapping[str, Any] | None = None,
    sent: float = 0.0,
) -> RecordedRun:
    """A run with these seconds of the phases; runs of one seed come before those of the next."""
    whole = sum(seconds)
    metrics = {f"time/{name}_s_mean": value for name, value in zip(PHASES, seconds, strict=True)}
    metrics |= {"time/epoch_s_mean": whole, "comm/bytes_features": sent}
    run = figure_run(system, whole, seed=seed, dataset=dataset, metrics=metrics)
    place = "abcd".index(system)
    return replace(
        run,
        config={**run.config, **(config or {})},
        summary={"acc/test": acc, "acc/val": acc},
        facts={"exact": not approximates, "approximates": approximates},
        provenance={"date": f"2026-01-01T00:{4 * seed + place:02d}", "dataset_key": dataset},
    )


def asked(runs: Sequence[RecordedRun], keys: Sequence[str] = ("system",)) -> ReportTable:
    groups = group_runs(runs, keys)
    found = setting_answers(groups, keys, Margins())
    return answer_table(found, groups, keys) if found else ReportTable((), (), "")


def row(table: ReportTable, number: int = 0) -> dict[str, str]:
    return dict(zip(table.header, table.texts[number], strict=True))


def test_the_fastest_by_how_much_why_and_at_what_accuracy() -> None:
    ours = [run_of("a", seed, (0.1, 0.2 + seed / 100, 0.3, 0.4), 0.8 + seed / 100) for seed in range(3)]
    theirs = [
        run_of("b", seed, (0.1, 1.1 + seed / 50, 0.4, 0.4), 0.85 + seed / 100 + 0.001 * seed, sent=5e6)
        for seed in range(3)
    ]
    table = asked([*ours, *theirs])
    said = row(table)
    assert table.heading == "Fastest: a. All train exactly."
    assert said["fastest"] == "a" and said["least epoch s of runs"] == "1.0100 (1.0000 to 1.0200)"
    assert said["others take"] == "b 2.00x (95 %: 2.00 to 2.00; 3 pairs), slower"
    assert said["why"] == "b: load +910 ms (90 % of the difference), sends 5 MB (a: 0 MB)"
    assert said["accuracy"].startswith("a acc/test % 81.00 (80.00 to 82.00)\nb +5.10 points (95 %: ")
    assert said["accuracy"].endswith("), differs") and said["trains exactly"] == "all"
    assert said["options that differ"] == "nothing"


def test_what_cannot_be_told_apart_is_named_together() -> None:
    ours = [run_of("a", seed, (0.1, 0.2, 0.3, 0.4 + 0.1 * seed)) for seed in range(3)]
    theirs = [run_of("b", seed, (0.1, 0.2, 0.3, 0.62 - 0.1 * seed)) for seed in range(3)]
    table = asked([*ours, *theirs])
    assert (
        row(table)["fastest"] == "undecided: a or b"
        and table.heading == "Fastest: undecided: a or b. All train exactly."
    )
    single = asked([ours[0], theirs[0]])
    assert row(single)["fastest"] == "a, not proven: 1 pair of runs" and row(single)["others take"] == "b 1.22x"


def test_a_row_for_each_setting() -> None:
    runs = [
        run_of(system, seed, (0.1, 0.2, 0.3, seconds + seed / 1000), dataset=dataset)
        for seed in range(3)
        for dataset in ("cora", "pubmed")
        for system, seconds in (("a", 1.0 if dataset == "cora" else 3.0), ("b", 2.0), ("c", 4.0))
    ]
    table = asked(runs, ("system", "dataset"))
    assert [text[:2] for text in table.texts] == [("cora", "a"), ("pubmed", "b")]
    assert table.heading == "Fastest: a in 1, b in 1 of 2 settings (b: pubmed). All train exactly."
    assert row(table)["others take"].count("x (") == 2


def test_systems_that_approximate_are_named() -> None:
    runs = [run_of("a", seed) for seed in range(3)] + [
        run_of("b", seed, approximates="stale embeddings", acc=0.7) for seed in range(3)
    ]
    assert row(asked(runs))["trains exactly"] == "b: approximates stale embeddings"
    assert asked(runs).heading.endswith(" Not exact, or not known: b.")
    unknown = [replace(run, facts={}) for run in runs]
    assert row(asked(unknown))["trains exactly"] == "a: not recorded\nb: not recorded"
    others = [replace(run, facts={"external": "pyg"}) for run in runs[:3]] + runs[3:]
    assert row(asked(others))["trains exactly"].startswith("a: a system of its own, not checked by gnnexp")


def test_rows_that_take_no_part_are_named() -> None:
    runs = [run_of(system, seed) for seed in range(3) for system in ("a", "b", "c")]
    failed = [
        replace(run, status="failed", kind="out of memory") if run.config["system"] == "b" else run for run in runs
    ]
    silent = [replace(run_of("d", seed), epochs=[{"loss/train": 1.0}] * 2) for seed in range(3)]
    caption = asked([*failed, *silent]).caption
    assert "Takes no part: b (OOM), d (no seconds of an epoch)." in caption
    assert "Takes no part" not in asked(runs).caption


def test_settings_that_change_what_is_computed_are_named() -> None:
    def configured(sampler: str, key: str, prefetch: int, rate: float) -> Mapping[str, Any]:
        return {
            "sampler": {"_target_": f"gnnexp.samplers.{sampler}", "name": sampler, "key": key, "prefetch": prefetch},
            "optimizer": {"lr": rate},
            "feature_store": {"capacity": rate},
        }

    ours = [run_of("a", seed, config=configured("fused", "global", 2, 0.1)) for seed in range(3)]
    key = [run_of("b", seed, config=configured("fused", "micro", 4, 0.1)) for seed in range(3)]
    other = [run_of("c", seed, config=configured("full", "micro", 2, 0.2)) for seed in range(3)]
    table = asked([*ours, *key, *other])
    said = row(table)["options that differ"]
    words = "differ in options that change what is computed: optimizer.lr, sampler, sampler.key."
    assert table.heading == f"Fastest: equal: a or b or c. All train exactly. Systems also {words}"
    assert said == "b: sampler.key micro (a: global)\nc: optimizer.lr 0.2 (a: 0.1), sampler full (a: fused)"


@pytest.mark.parametrize("keys", [("dataset", "model"), ()])
def test_rows_that_are_not_named_by_one_thing_have_no_answer(keys: tuple[str, ...]) -> None:
    runs = [run_of("a", 0), run_of("b", 0)]
    assert setting_answers(group_runs(runs, keys), keys, Margins()) == []
    assert setting_answers([], keys, Margins()) == []


def test_one_system_or_none_that_finished_has_no_answer() -> None:
    assert asked([run_of("a", 0)]).rows == ()
    failed = replace(run_of("b", 0), status="failed", epochs=[])
    assert asked([run_of("a", 0), failed]).rows == ()


def test_an_accuracy_that_was_best_in_the_last_epoch_is_not_final() -> None:
    runs = [run_of(system, seed) for seed in range(3) for system in ("a", "b", "c")]
    rising = {"num_epochs": 5, "best_epoch": 4}
    told = [
        replace(run, summary={**run.summary, **rising, "best_epoch": 4 if run.config["system"] != "c" else 2})
        for run in runs
    ]
    said = row(asked(told))["accuracy"].splitlines()
    assert said[-1].startswith("best in the last epoch, longer training may raise it: ")
    assert {*said[-1].partition(": ")[2].split(", ")} == {"a", "b"}
    once = [
        replace(run, summary={**run.summary, **rising, "best_epoch": 4 * (run.value("seed") == "0")}) for run in told
    ]
    assert "longer training" not in row(asked(once))["accuracy"]
    single = [replace(run, summary={**run.summary, "num_epochs": 1, "best_epoch": 0}) for run in runs]
    assert "longer training" not in row(asked(single))["accuracy"]


def test_pairs_that_mix_versions_of_the_code_are_counted_and_change_no_headline() -> None:
    def version(run: RecordedRun, name: str) -> RecordedRun:
        return replace(run, provenance={**run.provenance, "code_version": name})

    ours = [version(run_of("a", seed), "0.2.0+1") for seed in range(3)]
    theirs = [version(run_of("b", seed), "0.2.0+2" if seed else "0.2.0+1") for seed in range(3)]
    table = asked([*ours, *theirs])
    assert row(table)["options that differ"] == "b: another version of gnnexp in 2 of 3 pairs"
    assert "that change" not in table.heading


def test_a_least_mean_of_other_seeds_is_not_the_fastest() -> None:
    """`a` has quick runs of seeds that nobody else has; over the pairs `b` is faster."""
    ours = [run_of("a", seed, (0.1, 0.2, 0.3, 0.5)) for seed in range(3)]
    alone = [run_of("a", seed, (0.01, 0.01, 0.01, 0.01)) for seed in range(3, 12)]
    theirs = [run_of("b", seed, (0.1, 0.2, 0.3, 0.4 + seed / 1000)) for seed in range(3)]
    said = row(asked([*ours, *alone, *theirs]))
    assert (
        said["fastest"] == "b" and said["others take"].startswith("a 1.10x") and said["others take"].endswith("slower")
    )


def test_a_system_that_nobody_is_compared_with_is_not_exact_either() -> None:
    runs = [run_of(system, seed) for seed in range(3) for system in ("a", "b")]
    alone = [run_of("c", seed, dataset="pubmed", approximates="old rows") for seed in range(3)]
    heading = asked([*runs, *alone], ("system", "dataset")).heading
    assert heading == "Fastest: equal in 1 of 2 settings, 1 without a rival (equal: cora). Not exact, or not known: c."


def test_rows_of_other_data_or_workers_are_never_compared() -> None:
    other = [run_of("b", seed, dataset="pubmed") for seed in range(3)]
    runs = [*(run_of("a", seed) for seed in range(3)), *other]
    assert setting_answers(group_runs(runs, ("system", "dataset")), ("system", "dataset"), Margins()) == []


def test_options_that_differ_in_some_pair_only_are_named() -> None:
    ours = [run_of("a", seed, config={"optimizer": {"lr": 0.1}}) for seed in range(3)]
    theirs = [run_of("b", seed, config={"optimizer": {"lr": 0.1 + seed}}) for seed in range(3)]
    table = asked([*ours, *theirs])
    assert table.heading.endswith("change what is computed: optimizer.lr.")
    assert row(table)["options that differ"] == "b: optimizer.lr 1.1 (a: 0.1)"


def test_names_are_not_parsed() -> None:
    made = [run_of("a", seed) for seed in range(3)]
    ours = [replace(run, config={**run.config, "system": "a:b"}) for run in made]
    theirs = [run_of("b", seed, (0.1, 0.2, 0.3, 0.9 + seed / 1000)) for seed in range(3)]
    (answer,) = setting_answers(group_runs([*ours, *theirs], ("system",)), ("system",), Margins())
    assert in_short(answer) == "a:b"


def test_an_epoch_without_seconds_divides_nothing() -> None:
    ours = [run_of("a", seed, (0.0, 0.0, 0.0, 0.0)) for seed in range(3)]
    theirs = [run_of("b", seed + 9) for seed in range(3)]
    assert row(asked([*ours, *theirs]))["others take"] == "b nanx, no pair"


def test_runs_that_failed_and_rows_that_mix_are_named() -> None:
    runs = [run_of(system, seed) for seed in range(3) for system in ("a", "b")]
    failed = replace(run_of("a", 3), status="failed", kind="diverged")
    mixed = [replace(run, config={**run.config, "model": {"hidden": n}}) for n, run in enumerate(runs)]
    caption = asked([*mixed, failed]).caption
    assert (
        "did not finish: a cora seed 3 (diverged)" in caption and "combine runs that differ in model.hidden" in caption
    )


def test_several_metrics_have_no_accuracy() -> None:
    ours = [run_of("a", seed) for seed in range(3)]
    theirs = [replace(run, summary={"mse/test": 0.5}, config={**run.config, "system": "b"}) for run in ours]
    assert row(asked([*ours, *theirs]))["accuracy"] == "–"


def test_bytes_that_nobody_counted_are_not_none() -> None:
    ours = [run_of("a", seed, sent=5e6) for seed in range(3)]
    theirs = [run_of("b", seed, (0.1, 0.2, 0.3, 0.9)) for seed in range(3)]
    outside = [
        replace(
            run, facts={"external": "x"}, epochs=[{k: v for k, v in e.items() if "comm/" not in k} for e in run.epochs]
        )
        for run in theirs
    ]
    assert "sends 0 MB" in row(asked([*ours, *theirs]))["why"] and "sends" not in row(asked([*ours, *outside]))["why"]
