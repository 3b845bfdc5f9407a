"""What conf/<group>/<choice>.yaml says: its comments, its keys with their defaults, and the class that it makes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

KEY = re.compile(
    r"^(?P<indent> *)(?P<key>[\w@/ ]+):(?P<value>(?:\"[^\"]*\"|'[^']*'|[^#\"']|(?<! )#)*)"
    r"(?: +# *(?P<comment>.*))?$"
)
Comments = dict[tuple[str, ...], str]


@dataclass(frozen=True)
class ConfigFile:
    """One choice of a group.

    Attributes:
        path: of the file.
    """

    path: Path

    @cached_property
    def lines(self) -> list[str]:
        """Of the file."""
        return self.path.read_text(encoding="utf-8").splitlines()

    @cached_property
    def content(self) -> dict[str, Any]:
        """Its own keys, without `defaults`."""
        found = yaml.safe_load(self.path.read_text(encoding="utf-8"))
        return {key: value for key, value in found.items() if key != "defaults"}

    @cached_property
    def defaults(self) -> list[str]:
        """What it is made of, in Hydra's words: `override /model: gcn`, `local`, without `_self_`."""
        found = yaml.safe_load(self.path.read_text(encoding="utf-8")).get("defaults", [])
        return [
            entry if isinstance(entry, str) else ": ".join(map(value_text, next(iter(entry.items()))))
            for entry in found
            if entry != "_self_"
        ]

    @property
    def of_several_groups(self) -> bool:
        """Whether its keys begin with the name of a group (`@package _global_`)."""
        return "@package _global_" in self.lines[0]

    @property
    def purpose(self) -> str:
        """The comment that it begins with."""
        head: list[str] = []
        for line in self.lines:
            if not line.startswith("#"):
                break
            if "@package" not in line:
                head.append(line.removeprefix("#").strip())
        return " ".join(head)

    @cached_property
    def comments(self) -> Comments:
        """What stands behind a key, by its path."""
        found: Comments = {}
        above: list[tuple[int, str]] = []
        for line in self.lines:
            match = KEY.match(line)
            if match is None or line.lstrip().startswith(("#", "-")):
                continue
            indent = len(match["indent"])
            above = [*((depth, key) for depth, key in above if depth < indent), (indent, match["key"])]
            if match["comment"]:
                found[tuple(key for _, key in above)] = match["comment"].strip()
        return found


def value_text(value: object) -> str:
    """A value as YAML has it on one line: `null`, `true`, `[15, 10, 5]`."""
    if isinstance(value, float) and value.is_integer() and abs(value) >= 1e6:
        return f"{value:g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {value_text(inner)}" for key, inner in value.items()) + "}"
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    return text.removesuffix("\n...\n").strip()
