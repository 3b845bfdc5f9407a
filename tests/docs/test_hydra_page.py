"""Every row of docs/hydra.md: what `hydra.main` composes, what `gnnexp run` composes, and what is refused."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hydra
import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from gnnexp.cli.main import run_command
from gnnexp.config.composition import register_resolvers
from gnnexp.config.folders import product_folder

PAGE = Path(__file__).parents[2] / "docs" / "hydra.md"
ROWS = [
    (typed.replace("\\|", "|"), verdict)
    for typed, verdict in re.findall(
        r"^\| `([^|]+?)` \| ((?:equal|different|refused)[^|]*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
]
# Multiruns start a program of Hydra: one of them is quick.
MULTIRUNS = [row for row, _ in ROWS if row.startswith("-m")]
EQUAL = [
    pytest.param(*row, marks=pytest.mark.slow if row[0] in MULTIRUNS[1:] else ())
    for row in ROWS
    if row[1].startswith("equal")
]
CONF = str(product_folder("conf").resolve())
# A Hydra application that prints the overrides of each job.
PROGRAM = f"""
import hydra
from hydra.core.hydra_config import HydraConfig
from gnnexp.config.composition import register_resolvers

register_resolvers()

@hydra.main(config_path={CONF!r}, config_name="config", version_base="1.3")
def program(config):
    print(" ".join(HydraConfig.get().overrides.task), end="\\n---\\n")

program()
"""
# Files of a user, which the rows name.
FILES = {
    "dataset/shops/small.yaml": "defaults: [/dataset/digits@_here_]\n",
    "model/tiny.yaml": "defaults: [sage, _self_]\nhidden: 8\n",
    "laboratory/lab.yaml": "who: us\n",
    "mine.yaml": "defaults: [base, _self_, override model: gcn]\nseed: 1\n",
}
# Hydra writes nothing and logs nothing; the job's configuration is the same.
QUIET = ("hydra.output_subdir=null", "hydra/job_logging=none", "hydra/hydra_logging=none")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with a user's own files in `mine`."""
    for name, text in FILES.items():
        file = tmp_path / "mine" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    GlobalHydra.instance().clear()


def by_hydra(words: list[str], patch: pytest.MonkeyPatch) -> Any:
    """What `hydra.main` calls its function with: the resolved configuration."""
    register_resolvers()
    found = []

    @hydra.main(config_path=CONF, config_name="config", version_base="1.3")
    def program(config: DictConfig) -> None:
        found.append(OmegaConf.to_container(config, resolve=True))

    patch.setattr(sys, "argv", ["gnnexp", "--config-dir", "mine", *words, "hydra.run.dir=hydra", *QUIET])
    program()
    [config] = found
    return config


def refused_by_hydra(words: list[str], patch: pytest.MonkeyPatch) -> bool:
    with pytest.raises(SystemExit):
        by_hydra(words, patch)
    return True


def typed(*words: str) -> int:
    return run_command(["run", *words, "--config-dir", "mine"])


@pytest.mark.parametrize(("row", "verdict"), EQUAL)
@pytest.mark.interpreter
def test_equal(
    row: str, verdict: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = row.split(" ") if "'" not in row else [row]
    if words[0] in ("-m", "--cfg", "--info"):
        (_same_jobs if words[0] == "-m" else _same_text)(words)
    else:
        _same(words, monkeypatch, capsys)


def _same(words: list[str], patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    config = by_hydra(words, patch)
    capsys.readouterr()
    assert typed("--cfg", "job", "--resolve", *words) == 0
    assert yaml.safe_load(capsys.readouterr().out) == config


def said(*words: str) -> str:
    """Standard output of a process: Hydra's logging and its sweeper keep state in a process."""
    return subprocess.run([sys.executable, *words], check=True, text=True, stdout=subprocess.PIPE).stdout


def _same_text(words: list[str]) -> None:
    """Without the lines of Hydra's own groups, which the test sets to write nothing."""
    texts = [
        said("-c", PROGRAM, "--config-dir", "mine", *words, *QUIET),
        said("-m", "gnnexp", "run", *words, "--config-dir", "mine"),
    ]
    expected, ours = (
        [" ".join(line.split()) for line in text.splitlines() if "hydra" not in line and "--" not in line]
        for text in texts
    )
    assert ours == expected != []


def _same_jobs(words: list[str]) -> None:
    jobs = said("-c", PROGRAM, "--config-dir", "mine", *words, "hydra.sweep.dir=hydra", *QUIET).split("\n---\n")[:-1]
    ours = said("-m", "gnnexp", "run", *words, "--config-dir", "mine", "tracker=none", "--dry-run")
    assert f"{len(jobs)} runs" in ours
    assert all(job in ours for job in jobs), (jobs, ours)


@pytest.mark.parametrize(("row", "verdict"), [row for row in ROWS if row[1].startswith("refused")])
def test_refused(
    row: str, verdict: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(row)
    assert not verdict.startswith("refused by both") or refused_by_hydra(words, monkeypatch)
    capsys.readouterr()
    assert typed(*words, "tracker=none") == 2
    quoted = re.findall(r"`([^`]+)`", verdict)
    assert len(quoted) == 1 and quoted[0] in capsys.readouterr().err
    assert not (place / "runs").exists()


def test_a_users_file_wins(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The rows that say `different`."""
    assert [row for row, verdict in ROWS if verdict.startswith("different")] == [
        "model=tiny",
        "optimizer=sgd optimizer.maximize=true",
        "scheduler=null",
    ]
    (place / "mine" / "model" / "sage.yaml").write_text("defaults: [gcn, _self_]\nhidden: 5\n", encoding="utf-8")
    assert typed("--cfg", "job", "--package", "model") == 0
    assert "hidden: 5" in capsys.readouterr().out
    config = by_hydra([], monkeypatch)
    assert config["model"]["hidden"] != 5, "Hydra searches gnnexp's folder first"
    capsys.readouterr()
    assert typed("--cfg", "job", "--package", "optimizer", "optimizer=sgd", "optimizer.maximize=true") == 0
    assert "maximize: true" in capsys.readouterr().out
    assert refused_by_hydra(["optimizer=sgd", "optimizer.maximize=true"], monkeypatch)
    assert refused_by_hydra(["scheduler=null"], monkeypatch)
    capsys.readouterr()
    for words in (["scheduler=cosine", "scheduler=null"], ["scheduler=null"]):
        assert typed("--cfg", "job", *words) == 0 and "scheduler: null" in capsys.readouterr().out


def test_folders_are_searched_in_the_order_of_the_page(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, seed in (("mine", 1), ("site", 2), ("conf", 3)):
        (place / folder).mkdir(exist_ok=True)
        (place / folder / "config.yaml").write_text(f"defaults: [base, _self_]\nseed: {seed}\n", encoding="utf-8")

    def seed_of(*words: str) -> int:
        assert run_command(["run", "--cfg", *words]) == 0
        return int(yaml.safe_load(capsys.readouterr().out)["seed"])

    assert seed_of() == 3
    monkeypatch.setenv("GNNEXP_CONFIG_DIR", "site")
    assert seed_of() == 2 and seed_of("--config-dir", "mine") == 1
    assert seed_of("--config-dir", "mine", "--config-name", "base") == 0


def test_words_are_completed(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What bash's function asks for."""
    for line, expected in (
        ("gnnexp model=g", "model=gat model=gcn model=gin"),
        ("gnnexp model=gat model.hid", "model.hidden="),
    ):
        monkeypatch.setenv("COMP_LINE", line)
        assert typed("--shell-completion", "query=bash") == 0
        assert sorted(capsys.readouterr().out.split()) == expected.split()
    assert typed("--shell-completion", "install=bash") == 0
    script = capsys.readouterr().out
    assert "complete -o nospace" in script and "sweep" in script
    assert typed("--shell-completion", "install=tcsh") == 2 and "bash or zsh" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--cfg", "train.epochs"], "10"),
        (["train.epochs=3", "--cfg", "train.epochs"], "3"),
        (["-c", "scheduler"], "null"),
        (["--cfg", "hydra.job.chdir"], "null"),
        (["--cfg", "optimizer", "optimizer=sgd"], "# @package optimizer"),
        (["--cfg", "seed=3", "--package", "seed"], "3"),
    ],
)
def test_a_part_of_the_configuration_is_shown(
    words: list[str], shown: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", *words]) == 0
    assert capsys.readouterr().out.splitlines()[0] == shown


def test_a_part_that_does_not_exist_is_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", "--cfg", "trian.epochs"]) == 2
    assert "did you mean train" in capsys.readouterr().err
