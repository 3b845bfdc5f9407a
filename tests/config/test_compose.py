"""Composition: overrides in, one plain resolved config out, and every mistake with the nearest right word."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gnnexp.config.compose import compose, draft, expand_values
from gnnexp.errors import ConfigError


def problems_of(*overrides: str, config_dir: str | None = None) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        compose(overrides, config_dir)
    return {problem.key: f"{problem.allowed} | {problem.fix}" for problem in caught.value.problems}


def test_the_default_is_complete_and_plain() -> None:
    composed = compose([])
    assert set(composed.config) == {
        "dataset",
        "partitioner",
        "sampler",
        "feature_store",
        "model",
        "task",
        "paradigm",
        "hardware",
        "tracker",
        "optimizer",
        "scheduler",
        "train",
        "seed",
        "system",
        "name",
        "preflight",
        "measure",
        "trace",
    }
    assert type(composed.config["model"]) is dict and type(composed.config["sampler"]["fanouts"]) is list
    assert composed.choices["dataset"] == "digits" and composed.choices["system"] is None
    assert composed.run_dir.parts[0] == "runs" and composed.run_dir.name.endswith("-data_parallel")


def test_overrides_win_over_presets_and_presets_over_groups() -> None:
    composed = compose(["system=dgl_full_graph", "optimizer.lr=0.5", "sampler=fused", "name=mine"])
    assert composed.config["system"] == "dgl_full_graph"
    assert composed.choices["paradigm"] == "dgl_full_graph" and composed.choices["sampler"] == "fused"
    assert composed.config["optimizer"]["lr"] == 0.5 and composed.config["train"]["batch_size"] is None
    assert composed.run_dir.name.endswith("-mine")


def test_train_presets_tune_the_model_too() -> None:
    config = compose(["train=planetoid_gat", "model=gat", "train.epochs=5"]).config
    assert config["model"]["heads"] == 8 and config["model"]["attention_dropout"] == 0.6
    assert config["train"]["epochs"] == 5 and config["optimizer"]["lr"] == 0.005
    assert config["optimizer"]["fused"] is True, "what the preset does not say comes from the default"


def test_all_mistakes_at_once_with_the_nearest_right_word() -> None:
    found = problems_of("system=dlg", "model=sgae", "train.epocs=3", "trian.lr=1", "a=[", "seed.x=1")
    assert set(found) == {"system", "model", "train.epocs", "trian.lr", "a=[", "seed.x"}
    assert "system=dgl" in found["system"] and "dgl_reference" in found["system"]
    assert "model=sage" in found["model"] and "gat" in found["model"]
    assert "train.epochs" in found["train.epocs"]
    assert "train" in found["trian.lr"]


@pytest.mark.parametrize("override", ["~model", "+model=gcn", "model=null", "model=gcn,gat", "optimizer.lr=1,2"])
def test_what_hydra_could_do_but_a_run_cannot(override: str) -> None:
    assert len(problems_of(override)) == 1


def test_an_unresolvable_value_is_a_problem_not_a_traceback() -> None:
    found = problems_of("name=${oc.env:GNNEXP_NO_SUCH_VARIABLE}", "optimizer.lr=${no.such.key}", "train.epochs=3")
    assert set(found) == {"name", "optimizer.lr"}
    assert problems_of("name=???")["name"].endswith("set name=…")


def test_what_has_no_default_must_be_given() -> None:
    assert "dataset.path" in problems_of("dataset=gnnexp_format")
    assert compose(["dataset=gnnexp_format", "dataset.path=x"]).config["dataset"]["path"] == "x"


def test_a_key_that_only_the_constructor_knows_needs_no_plus(tmp_path: Path) -> None:
    folder = tmp_path / "conf" / "feature_store"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("_target_: components.Store\nwidth: 4\n")
    config_dir = str(tmp_path / "conf")
    config = compose(["feature_store=mine", "feature_store.rate=0.1"], config_dir).config
    assert config["feature_store"] == {"_target_": "components.Store", "width": 4, "rate": 0.1}
    found = problems_of("feature_store=mine", "feature_store.rat=0.1", config_dir=config_dir)
    assert "feature_store.rate" in found["feature_store.rat"]
    assert compose(["feature_store=mine", "+feature_store.rat=1"], config_dir).config["feature_store"]["rat"] == 1


def test_a_users_folder_must_hold_groups(tmp_path: Path) -> None:
    assert "--config-dir" in problems_of(config_dir=str(tmp_path / "none"))
    (tmp_path / "modle").mkdir()
    assert "model" in problems_of(config_dir=str(tmp_path))["--config-dir"]


def test_nothing_of_hydra_stays_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hydra.core.global_hydra import GlobalHydra

    monkeypatch.chdir(tmp_path)
    compose([])
    assert not GlobalHydra.instance().is_initialized()
    assert list(tmp_path.iterdir()) == []


def test_comma_separated_values_are_axes() -> None:
    assert expand_values(["a=1,2", "b=[1,2]", "c=x"]) == [["a=1", "a=2"], ["b=[1,2]"], ["c=x"]]
    with pytest.raises(ConfigError):
        expand_values(["a=["])


def test_a_draft_goes_on_without_what_is_wrong(tmp_path: Path) -> None:
    made = draft(
        ["model=sag", "model.heads=3", "optimizer.lr=0.5", "hardware=lokal", "hardware.workers=2", "sampler=[["]
    )
    assert {problem.key for problem in made.problems} == {"model", "hardware", "sampler=[["}
    assert made.unsure == {"model", "hardware", "sampler"}, "keys of unknown choices are not judged"
    assert made.composed is not None and made.composed.config["optimizer"]["lr"] == 0.5
    assert made.composed.config["hardware"]["workers"] == 2, "its keys are the same whatever is chosen"


def test_an_unknown_system_leaves_open_what_it_would_have_chosen() -> None:
    made = draft(["system=gsplt", "paradigm.chunks=3", "model=gat", "model.hiden=3"])
    assert {problem.key for problem in made.problems} == {"system", "model.hiden"}
    assert "paradigm" in made.unsure and "model" not in made.unsure


def test_one_value_that_hydra_refuses_does_not_hide_the_others(tmp_path: Path) -> None:
    found = problems_of("hydra.foo=1", "model@foo=gat", "+optimizer.lr=3", "model=[gat]", "train.epocs=3")
    assert set(found) == {"hydra.foo", "model@foo", "+optimizer.lr", "model", "train.epocs"}
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("hidden: [3\n")
    found = problems_of("model=mine", "model.x=1", "train.epocs=3", config_dir=str(tmp_path))
    assert set(found) == {"model", "train.epocs"} and "mine.yaml" in found["model"]


def test_a_wrong_config_dir_is_not_followed_by_what_it_would_have_held(tmp_path: Path) -> None:
    found = problems_of("model=mine", "model.x=1", "train.epocs=3", config_dir=str(tmp_path / "none"))
    assert set(found) == {"--config-dir", "train.epocs"}


def test_a_missing_value_is_said_beside_other_mistakes() -> None:
    assert set(problems_of("dataset=gnnexp_format", "model=sag", "name=???")) == {"dataset.path", "model", "name"}


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    """Choices of groups are kept between compositions."""
    file = tmp_path / "model" / "mine.yaml"
    file.parent.mkdir()
    lines = ["model=mine", "model.extra=2"]
    file.write_text("_target_: components.Mine\nextra: 1\n")
    assert compose(lines, str(tmp_path)).config["model"]["extra"] == 2
    file.write_text("_target_: components.Mine\n")
    os.utime(file, ns=(1, 1))
    assert "model.extra" in problems_of(*lines, config_dir=str(tmp_path))
