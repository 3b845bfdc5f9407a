"""Malformed configurations, overrides and sweeps: refused in a user's words, nothing executed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from malformed import (
    damaged,
    many,
    said_on_refusal,
    workplace,
)

from gnnexp.cli.running.prepare import checked_config
from gnnexp.config.folders import product_folder
from gnnexp.datasets.published.digits import Digits
from gnnexp.errors import ProblemsError
from gnnexp.files.cache import cache_root
from gnnexp.preparation.artifacts import prepare_graph

__all__ = ["workplace"]

GAT = "_target_: gnnexp.models.gat.GATOptions\n"
LAUGHS = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}' if n else '1'] * 9)}]\n" for n in range(10))
CONFIGS: dict[str, tuple[str | bytes, str]] = {
    "executing tag": ("hidden: !!python/object/apply:os.system ['touch executed']\n", "os.system"),
    "executing object": ("!!python/object/new:os.system ['touch executed']", "os.system"),
    "executing function": ("_target_: torch.utils.collect_env.run\ncommand: touch executed\n", "models.model.Model"),
    "executing target": ("_target_: os.system\ncommand: touch executed\n", "model._target_='os.system'"),
    "executing nested target": (GAT + "hidden: {_target_: subprocess.getoutput, cmd: touch executed}\n", "getoutput"),
    "builtin": ("_target_: builtins.exec\nsource: open('executed', 'w')\n", "builtins.exec"),
    "binary": (bytes(range(256)), "utf-8"),
    "zero bytes": (b"\0" * 64, "bad"),
    "UTF-16": (GAT.encode("utf-16"), "utf-8"),
    "half a line": (GAT + "hidden: [1, ", "bad"),
    "open brackets": ("a: " + "[" * 50_000, "100 levels"),
    "deep": (GAT + "hidden: " + "[" * 5000 + "]" * 5000, "100 levels"),
    "deep mappings": (GAT + "hidden: " + "{a: " * 5000 + "1" + "}" * 5000, "100 levels"),
    "laughs": (GAT + LAUGHS, "100000 nodes"),
    "in itself": ("a: &a {b: *a}\n", "*a inside of itself"),
    "endless list": (GAT + "hidden: [" + "1," * 200_000 + "]\n", "100000 nodes"),
    "megabytes": ("# " + "x" * (2 << 20), "1048576 bytes"),
    "its own default": ("defaults: [bad]\n", "recursion"),
    "defaults elsewhere": ("defaults: [/../../../../etc/passwd]\n", "passwd"),
    "digits": (GAT + "hidden: " + "9" * 5000, "5000 digits"),
    "beyond memory": (GAT + "hidden: 2147483647\nheads: 1\n", "preflight"),
    "beyond an integer": (GAT + "hidden: 1" + "0" * 60 + "\nheads: 1\n", "at most 2,147,483,647"),
    "NaN": (GAT + "hidden: .nan\n", "model.hidden=nan"),
    "infinity": (GAT + "dropout: .inf\n", "model.dropout=inf"),
    "list": ("[1, 2, 3]\n", "model=[1, 2, 3]"),
    "number": ("_target_: 5\n", "model={'_target_': 5}"),
    "date": (GAT + "hidden: 2020-01-01\n", "model.hidden='2020-01-01'"),
    "interpolation": ("_target_: ${_target_}\n", "nterpolation"),
    "unset": ("_target_: ${oc.env:NO_SUCH_VARIABLE_AT_ALL}\n", "NO_SUCH_VARIABLE_AT_ALL"),
}


def put_config(content: str | bytes, group: str = "model") -> list[str]:
    folder = Path("conf") / group
    folder.mkdir(parents=True)
    (folder / "bad.yaml").write_bytes(content.encode() if isinstance(content, str) else content)
    return [f"{group}=bad", "tracker=none", "hydra.run.dir=never"]


@pytest.mark.parametrize("name", CONFIGS)
def test_config_files(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, word = CONFIGS[name]
    assert word in said_on_refusal(["run", *put_config(content), "--config-dir", "conf"], capsys)


@pytest.mark.parametrize("seed", many(12, quick=5))
def test_damaged_config_files(seed: int) -> None:
    generator = random.Random(seed)
    group = generator.choice(["model", "sampler", "dataset", "train"])
    file = generator.choice(sorted((product_folder("conf") / group).glob("*.yaml")))
    overrides = put_config(damaged(file.read_bytes(), generator), group)
    try:
        composed = checked_config(overrides, "conf").composed
    except ProblemsError as error:
        assert all(problem.fix for problem in error.problems)
    else:
        assert json.dumps(composed.config)  # plain data, all of whose keys and types have been checked


SHELL = "command='touch executed'"
OVERRIDES: dict[str, tuple[list[str], str]] = {
    "digits": (["seed=" + "9" * 5000], "5000 digits"),
    "large": (["seed=99999999999999999999999999"], "seed="),
    "not a number": (
        ["optimizer.lr=nan", "optimizer.weight_decay=-inf", "hardware.timeout_s=inf"],
        "optimizer.weight_decay",
    ),
    "deep": (["sampler.fanouts=" + "[" * 2000 + "]" * 2000], "sampler.fanouts"),
    "deeper than it can be composed": (["sampler.fanouts=" + "[" * 150 + "]" * 150], "sampler.fanouts"),
    "zero byte": (["name=a\0b"], "name"),
    "outside": (["name=../../escaped"], "name="),
    "file of another place": (["model=../../../../etc/passwd"], "model"),
    "tag": (["model=!!python/object/apply:os.system"], "model"),
    "executing": (["model._target_=os.system", "+model.command='touch executed'"], "os.system"),
    "executing launcher": (["hardware.launcher._target_=os.popen", "+hardware.launcher.cmd='touch executed'"], "popen"),
    "function of a package": (["tracker._target_=torch.utils.collect_env.run", f"+tracker.{SHELL}"], "Tracker"),
    "reader of a package": (["tracker={_target_:torch.load}"], "Tracker"),
    "command as a cache": (
        ["feature_store.cache={_target_:torch.utils.collect_env.run,command:'touch executed'}"],
        "CacheOptions",
    ),
    "command as a decoder": (
        ["task=link_prediction", "task.decoder._target_=torch.utils.collect_env.run", f"+task.decoder.{SHELL}"],
        "Decoder",
    ),
    "command in a list": (
        ["sampler.fanouts=[{_target_:torch.utils.collect_env.run,command:'touch executed'}]"],
        "sampler.fanouts",
    ),
    "command in options": (
        ["hardware=slurm_cpu", "+hardware.launcher.parameters.x={_target_:torch.load}"],
        "hardware.launcher.parameters.x._target_",
    ),
    "command as a number": (
        ["optimizer.lr={_target_:torch.utils.collect_env.run,command:'touch executed'}"],
        "optimizer.lr",
    ),
    "component that is none": (["+train._target_=torch.utils.collect_env.run"], "train._target_"),
    "component next to it": (["+hardware.links={_target_:torch.utils.collect_env.run}"], "hardware.links"),
    "nothing given": (["system=distdgl", "sampler.threads=???", "hardware.threads=???"], "hardware.threads"),
    "what all need": (["~hardware.launcher", "~hardware.nodes", "~train.dtype"], "hardware.nodes"),
    "keys of no type": (["hardware.links={1:2}"], "hardware.links.1"),
    "search path": (["hydra.searchpath=5"], "hydra.searchpath"),
    "long path": (["dataset=gnnexp_format", "dataset.path=" + "x" * 5000], "too long"),
    "long path of a partition": (["partitioner=stored", "partitioner.path=" + "x" * 5000], "partitioner.path"),
    "long name": (["dataset=heterophilous_npz", "dataset.path=.", "dataset.name=" + "x" * 5000], ".npz"),
    "delimiter": (["dataset=edge_list", "dataset.delimiter='::'"], "dataset.delimiter='::'"),
}


@pytest.mark.parametrize("name", OVERRIDES)
def test_overrides(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    overrides, word = OVERRIDES[name]
    assert word in said_on_refusal(["run", *overrides, "tracker=none", "hydra.run.dir=never"], capsys)


def test_data_that_is_there_is_not_judged_by_a_type_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    prepare_graph(Digits(), cache_root())
    overrides = ["system=neutrontp", "dataset=digits", "hardware.workers=2", "train.dtype=???", "tracker=none"]
    assert "train.dtype" in said_on_refusal(["run", *overrides, "hydra.run.dir=never"], capsys)


SWEEPS: dict[str, tuple[str | bytes, list[str], str]] = {
    "executing tag": ("fixed: !!python/object/apply:os.system ['touch executed']", [], "os.system"),
    "binary": (bytes(range(256)), [], "utf-8"),
    "half a line": ("axes: {seed: [1, ", [], "bad.yaml"),
    "wrong types": ("fixed: 5\naxes: [1]\ncases: {a: b}\nreport: 1", [], "bad.yaml: cases"),
    "values of no type": ("axes: {seed: [.nan, .inf, null, 1e400]}", [], "seed=nan"),
    "keys of no type": ("axes: {1: [2], '../../escaped': [3]}", [], "escaped"),
    "laughs": (LAUGHS + "axes: {seed: *l9}", [], "nodes"),
    "deep": ("axes: {seed: " + "[" * 5000 + "]" * 5000 + "}", [], "levels"),
    "in itself": ("axes: &x {seed: [*x]}", [], "inside of itself"),
    "digits": ("axes: {seed: [" + "9" * 5000 + "]}", [], "digits"),
    "too many runs": ("axes: {" + ", ".join(f"k{n}: {list(range(100))}" for n in range(9)) + "}", [], "10000 in one"),
    "endless range": ("axes: {seed: [0]}", ["train.epochs=range(1,100000000000)"], "10000 values"),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_sweep_files(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, overrides, word = SWEEPS[name]
    Path("bad.yaml").write_bytes(content.encode() if isinstance(content, str) else content)
    assert word in said_on_refusal(["sweep", "bad.yaml", "--dry-run", *overrides], capsys)
