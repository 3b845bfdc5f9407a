"""The reference of the configuration: a page per group of conf/, a section per choice, a row per key."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from config_files import ConfigFile, value_text
from meanings import meanings, summary

from gnnexp.components.locate import locate
from gnnexp.components.schema import HardwareConfig, TrainConfig
from gnnexp.components.signature import TARGET, Parameter, describe_annotation, parameters_of, parameters_of_dataclass
from gnnexp.config.folders import product_folder
from gnnexp.experiment.optimization import PARTIAL

# Groups whose keys are a dataclass's, not a component's.
# Characters of a text that is read rather than typed: where a machine's figures are from.
_LONG = 60
FIXED = {"train": TrainConfig, "hardware": HardwareConfig}
Keys = tuple[str, ...]
MEANING: Mapping[str, str] = {
    "seed": "keys everything random",
    "system": "name of the preset, set by `system=`; tables and the dashboard show it",
    "scheduler": "changes the learning rates after each step or epoch; null: they stay as they are",
    "name": "of the run, in its directory and in tables; null: the system's, else the paradigm's",
}
PRESET = "| key | set to |\n|---|---|"
TABLE = "| key | default | takes | what it is |\n|---|---|---|---|"
HEAD = """# {group}

`{group}=CHOICE` takes one of these files of `conf/{group}/`; `{group}.key=value` changes a key. Made of the files and
of the docstrings of the classes that they name, when the site is built. A key that a class takes and its file does not
list has the default of the class, marked *of the class*.
"""
INDEX = """# Configuration

`gnnexp run group=choice group.key=value` composes these groups (`conf/base.yaml`); `--cfg` prints the result.
[Configuration](../../configuration.md) tells how they go together. A page each:

| group | default | choices |
|---|---|---|
"""
RUN = """
## Keys of a run

| key | default | what it is |
|---|---|---|
"""


def config_pages() -> dict[str, str]:
    """Text by path inside docs/."""
    groups = {folder.name: files(folder.name) for folder in sorted(product_folder("conf").iterdir()) if folder.is_dir()}
    pages = {f"reference/config/{group}.md": group_page(group, found) for group, found in groups.items()}
    return {"reference/config/index.md": _index(groups), **pages}


def files(group: str) -> list[ConfigFile]:
    """The choices of a group."""
    return [ConfigFile(path) for path in sorted((product_folder("conf") / group).glob("*.yaml"))]


def group_page(group: str, choices: list[ConfigFile]) -> str:
    """The page of a group."""
    return "\n".join([HEAD.format(group=group), *(_section(group, choice) for choice in choices)])


def _section(group: str, choice: ConfigFile) -> str:
    lines = [f"## {choice.path.stem}\n"]
    if choice.purpose:
        lines.append(f"{_sentence(choice.purpose)}\n")
    if choice.defaults:
        made = [entry.removeprefix("override /").replace(": ", "=") for entry in choice.defaults]
        lines.append(f"{'Chooses' if '=' in made[0] else 'On top of'} {', '.join(f'`{entry}`' for entry in made)}.\n")
    if target := choice.content.get(TARGET):
        lines.append(f"`{target}`: {summary(locate(target))}\n")
    if choice.of_several_groups:
        lines += [PRESET, *_settings("", choice.content), ""]
    elif rows := list(_rows(group, choice)):
        lines += [TABLE, *rows, ""]
    return "\n".join(lines)


def _settings(prefix: str, node: Mapping[str, Any]) -> Iterator[str]:
    """Rows of a file that sets keys of several groups: each is explained on its group's page."""
    for name, value in node.items():
        if isinstance(value, Mapping):
            yield from _settings(f"{prefix}{name}.", value)
        else:
            yield f"| `{prefix}{name}` | {_code(value)} |"


def _rows(group: str, choice: ConfigFile) -> Iterator[str]:
    rows = _component if TARGET in choice.content else _plain
    yield from rows(choice, (group,), (), choice.content)


def _component(choice: ConfigFile, prefix: Keys, path: Keys, node: Mapping[str, Any]) -> Iterator[str]:
    """Rows of a class: the keys of the file, then the further keys that the class takes."""
    target = locate(node[TARGET])
    known, said = parameters_of(target) or {}, meanings(target)
    for name, value in node.items():
        if name not in (TARGET, PARTIAL):
            yield from _entry(choice, (*prefix, name), (*path, name), value, known.get(name), said)
    if PARTIAL in node:
        return  # a class of torch, whose documentation says what else it takes
    for name, parameter in known.items():
        if name not in node:
            default = inspect.signature(target).parameters[name].default
            yield _row((*prefix, name), f"{_code(default)} *of the class*", parameter, said.get(name, ""), "")


def _plain(choice: ConfigFile, prefix: Keys, path: Keys, node: Mapping[str, Any]) -> Iterator[str]:
    """Rows of keys without a class, or with a dataclass's."""
    fields = FIXED.get(prefix[0]) if len(prefix) == 1 else None
    known = {} if fields is None else parameters_of_dataclass(fields)
    said = {} if fields is None else meanings(fields)
    for name, value in node.items():
        inner = isinstance(value, Mapping) and name not in known and TARGET not in value
        if inner and value:
            yield from _plain(choice, (*prefix, name), (*path, name), value)
        else:
            yield from _entry(choice, (*prefix, name), (*path, name), value, known.get(name), said)


def _entry(
    choice: ConfigFile, key: Keys, path: Keys, value: object, known: Parameter | None, said: Mapping[str, str]
) -> Iterator[str]:
    comment = choice.comments.get(path, "")
    if isinstance(value, Mapping) and TARGET in value:
        yield _row(key, f"`{value[TARGET]}`", None, said.get(key[-1], "") or summary(locate(value[TARGET])), comment)
        yield from _component(choice, key, path, value)
    else:
        yield _row(key, _code(value), known, said.get(key[-1], ""), comment)


def _row(key: Keys, default: str, known: Parameter | None, said: str, comment: str) -> str:
    takes = "" if known is None else describe_annotation(known.hint)
    # A described machine's figures say in their comments where they are from; elsewhere the class says more.
    about = [text for text in (said, comment if key[0] == "hardware" or not said else "") if text]
    return f"| `{'.'.join(key)}` | {default} | {_cell(takes)} | {_cell(' '.join(map(_sentence, about)))} |"


def _code(value: object) -> str:
    if value == "???":
        return "required"
    return _cell(value) if isinstance(value, str) and len(value) > _LONG else f"`{_cell(value_text(value))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _sentence(text: str) -> str:
    """`text` as a sentence, but for a first word that is a name."""
    text = text[:1].upper() + text[1:] if re.match(r"[a-z]+(-[a-z]+)?[.,;:]?( |$)", text) else text
    return text if text.endswith((".", "…")) else f"{text}."


def _index(groups: Mapping[str, list[ConfigFile]]) -> str:
    composed = ConfigFile(product_folder("conf") / "base.yaml")
    chosen = {
        group: None if choice == "null" else choice
        for group, choice in (entry.split(": ") for entry in composed.defaults)
    }
    named = {group: ", ".join(f"`{choice.path.stem}`" for choice in choices) for group, choices in groups.items()}
    rows = [f"| [`{group}`]({group}.md) | {_code(chosen.get(group))} | {names} |" for group, names in named.items()]
    keys = [
        f"| `{name}` | {_code(value)} | {_cell(_sentence(composed.comments.get((name,)) or MEANING[name]))} |"
        for name, value in composed.content.items()
        if name != "hydra"
    ]
    return INDEX + "\n".join(rows) + "\n" + RUN + "\n".join(keys) + "\n"
