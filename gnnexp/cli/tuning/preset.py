"""Presets of tuned values: `train/tuned_<system>_<dataset>.yaml`, which a run takes with `train=tuned_…`.

A preset holds the keys that trials varied, and the typed values of `train`, `optimizer` and `scheduler`. Like gnnexp's
own files of `train`, it may set keys of other groups (`# @package _global_`).
"""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnnexp.cli.sweeping.definition import override_key
from gnnexp.cli.tuning.definition import LIMITS
from gnnexp.components.texts import yaml_of
from gnnexp.config.compose import ComposedConfig
from gnnexp.config.composition import composition
from gnnexp.errors import ConfigError, Problem
from gnnexp.record.records import write_text
from gnnexp.reports.budgets import TUNED, Budget

GROUP = "train"
# Groups whose typed values are hyper-parameters.
_HELD = (GROUP, "optimizer", "scheduler")
# Keys that say what is compared, and where: no hyper-parameters.
COMPARED = ("seed", "system", "dataset", "hardware", "tracker", "name", "preflight", "measure", "trace", "hydra")


@dataclass(frozen=True)
class Preset:
    """The contents of a preset.

    Attributes:
        name: its name.
        base: the choice of `train` that it changes, as an entry of a defaults list.
        choices: choices of other groups that trials varied.
        values: values by group.
        rest: the other overrides of the trial.
    """

    name: str
    base: str
    choices: Mapping[str, str | None]
    values: Mapping[str, Any]
    rest: tuple[str, ...]

    def text(self, comments: Sequence[str] = (), budget: Budget | None = None) -> str:
        """The preset as YAML."""
        defaults: list[Any] = [self.base, "_self_"]
        defaults += [{f"override /{group}": choice} for group, choice in self.choices.items()]
        note = {TUNED: budget.note()} if budget else {}
        lines = ["# @package _global_", *(f"# {line}" for line in comments)]
        return "\n".join([*lines, yaml_of({"defaults": defaults, **self.values, **note})])

    @property
    def command(self) -> str:
        """The command of a run with the preset."""
        return shlex.join(["gnnexp", "run", *self.rest, f"{GROUP}={self.name}"])


def preset_name(composed: ComposedConfig) -> str:
    """`<system>_<dataset>` of a case, of letters, digits, `_` and `-`."""
    config, choices = composed.config, composed.choices
    system = config["system"] or choices["paradigm"]
    return re.sub(r"[^A-Za-z0-9_-]+", "_", f"{system}_{config['dataset'].get('name') or choices['dataset']}")


def preset_of(name: str, composed: ComposedConfig, tuned: Sequence[str]) -> Preset:
    """The preset of a trial.

    Args:
        name: name of the preset.
        composed: configuration of the trial.
        tuned: keys that trials varied.
    """
    choices: dict[str, str | None] = {}
    values: dict[str, Any] = {}
    rest = []
    for line in composed.lines:
        key = override_key(line)
        group, _, inner = key.partition(".")
        if key == GROUP or group == "hydra":
            continue
        if key in tuned and key in composed.choices:
            choices[key] = composed.choices[key]
        elif key in tuned or (group in _HELD and inner and not line.startswith("~")):
            _put(values, key, composed.config)
        else:
            rest.append(line)
    return Preset(name, _base(composed), choices, values, tuple(rest))


def unlimited(composed: ComposedConfig) -> ComposedConfig:
    """The configuration of a trial without the limits of pruning: they did not end it, and belong to the search."""
    train = {**composed.config[GROUP], LIMITS.partition(".")[2]: None}
    return replace(
        composed,
        config={**composed.config, GROUP: train},
        lines=tuple(line for line in composed.lines if override_key(line) != LIMITS),
    )


def _put(values: dict[str, Any], key: str, config: Mapping[str, Any]) -> None:
    """Copy the value of a dotted key from `config` to `values`."""
    *parents, last = key.split(".")
    for part in parents:
        values, config = values.setdefault(part, {}), config[part]
    values[last] = config[last]


def _base(composed: ComposedConfig) -> str:
    """The chosen file of `train`, as an entry of a defaults list: it needs a package if its file names none."""
    chosen = composed.choices[GROUP]
    files = [folder / GROUP / f"{chosen}.yaml" for folder in composed.folders.folders]
    text = next(file.read_text(encoding="utf-8") for file in files if file.is_file())
    return str(chosen) if re.match(r"(\s*#.*\n)*?\s*#\s*@package\s+\S", text) else f"{chosen}@{GROUP}"


def preset_problems(preset: Preset, composed: ComposedConfig) -> list[Problem]:
    """Problems if a run with the preset would differ from the trial: a system's file may set a tuned key itself."""
    if composed.choices[GROUP] == preset.name:
        return [
            Problem(
                GROUP,
                preset.name,
                "the preset would contain itself: gnnexp tune writes this file",
                f"{GROUP}=<the file to start from>",
            )
        ]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_preset(preset, folder)
        folders = replace(composed.folders, folders=(folder.resolve(), *composed.folders.folders))
        try:
            again = composition(folders, [*preset.rest, f"{GROUP}={preset.name}"], final=True).config
        except ConfigError as error:
            return list(error.problems)
    meant, recomposed = _leaves(composed.config), _leaves(again)
    return [
        Problem(
            key,
            meant.get(key),
            f"a preset of {GROUP} cannot set this key, because the system's file sets it",
            "do not vary it, or vary it in axes",
        )
        for key in sorted(meant.keys() | recomposed.keys())
        if meant.get(key) != recomposed.get(key)
    ]


def _leaves(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of a configuration by their dotted keys, without what a preset notes."""
    found: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, Mapping):
            found |= _leaves(value, f"{prefix}{key}.")
        elif not prefix.startswith(f"{TUNED}."):
            found[f"{prefix}{key}"] = value
    return found


def preset_file(name: str, folder: Path) -> Path:
    """The file of a preset in a user's folder."""
    return folder / GROUP / f"{name}.yaml"


def write_preset(preset: Preset, folder: Path, comments: Sequence[str] = (), budget: Budget | None = None) -> Path:
    """Write the preset, and return its file."""
    file = preset_file(preset.name, folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, preset.text(comments, budget))
    return file
