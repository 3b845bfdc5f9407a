"""What a user may have meant: a published name, a key of another group, a file in place of an override."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from gnnexp.components.locate import located
from gnnexp.components.packages import missing_package
from gnnexp.components.signature import TARGET, nearest, one_of, parameters_of, unknown
from gnnexp.config.elsewhere import known_elsewhere
from gnnexp.config.folders import ConfigFolders, product_sweeps
from gnnexp.errors import ConfigError, Problem
from gnnexp.files.regular import is_folder
from gnnexp.provenance.older import OF_PLUGINS

# Options by which a choice is published under several names. A name comes before the shape of a generated graph.
_NAMED = ("name", "shape")
# Similarities (`nearest`) from which a word counts as a slip, and as part of a longer name.
SLIP, _ALIKE = 0.75, 0.6
# At most this many keys are named.
_MOST = 4
_YAML = (".yaml", ".yml")
_OWN = "gnnexp."


# --- choices of a group ----------------------------------------------------------------------------------------------
def unknown_choice(group: str, value: object, choices: Iterable[str], folders: ConfigFolders) -> Problem:
    """The problem of a group's unknown choice. Published names and other groups' choices are searched, too."""
    word, names = str(value), list(choices)
    if left_out := folders.plugins.left_out_problem(group, word):
        return left_out
    if (package := OF_PLUGINS.get(f"{group}={word}")) is not None:
        return missing_package(group, value, package)
    if (known := known_elsewhere(group, word)) is not None:
        return Problem(group, value, f"is not in gnnexp ({known.what}); {one_of(names)}", known.fix())
    problem = unknown(group, value, word, names, f"{group}=")
    if nearest(word, names, SLIP) and word.lower() not in (name.lower() for name in published_names(group, folders)):
        return problem
    lines = _meant(group, word, folders)
    return replace(problem, fix=f"did you mean {' '.join(lines)}?") if lines else problem


def _meant(group: str, word: str, folders: ConfigFolders) -> tuple[str, ...]:
    """The overrides that `word` stands for; empty if it is like nothing."""
    names = published_names(group, folders)
    by_lower: dict[str, tuple[str, ...]] = {}
    for name, lines in names.items():  # a name comes before a shape that is spelled like it
        by_lower.setdefault(name.lower(), lines)
    if word.lower() in by_lower:
        return by_lower[word.lower()]
    for choice in sorted(folders.choices(group)):
        if _refuses_others(_component(_content(group, choice, folders)), word):
            return f"{group}={choice}", f"{group}.name={word}"
    for other in sorted(folders.groups(), key=lambda group_name: (group_name != "system", group_name)):
        if word in folders.choices(other):
            return (_choosing(other, word),)
    close = nearest(word.lower(), by_lower, _ALIKE)
    return by_lower[close] if close else ()


def _choosing(group: str, choice: str) -> str:
    """The override that chooses; the group of experiment files is not among the defaults."""
    return f"{'+' * (group == 'experiment')}{group}={choice}"


def published_names(group: str, folders: ConfigFolders) -> dict[str, tuple[str, ...]]:
    """Names that choices of a group know, each with its overrides: `cora` is `dataset=planetoid dataset.name=cora`.

    A choice knows the name in its file, and the values that the annotations of its `name` and `shape` list.
    """
    contents = {choice: _content(group, choice, folders) for choice in sorted(folders.choices(group))}
    lines_of: dict[str, tuple[str, ...]] = {}
    for option in _NAMED:
        for choice, content in contents.items():
            for name in _names(content, option):
                lines = (f"{group}={choice}", f"{group}.{option}={name}")
                lines_of.setdefault(name, lines[:1] if _letters(name) == _letters(choice) else lines)
    return lines_of


def classes_of(group: str, folders: ConfigFolders) -> dict[str, type]:
    """gnnexp's own classes in a group, by choice. Of choices with one class, the one named as its module counts."""
    classes: dict[str, type] = {}
    for choice in sorted(folders.choices(group)):
        kind_of_choice = _component(_content(group, choice, folders))
        if isinstance(kind_of_choice, type):
            known = next((other for other, kind in classes.items() if kind is kind_of_choice), None)
            if known is None or kind_of_choice.__module__.endswith(f".{choice}"):
                classes.pop(known or "", None)
                classes[choice] = kind_of_choice
    return classes


def _names(content: Mapping[str, Any], option: str) -> Iterator[str]:
    own = content.get(option) if "_target_" in content else None  # `name` in an experiment file is the name of its runs
    if isinstance(own, str) and own != "???":
        yield own
    parameter = (parameters_of(made) or {}).get(option) if (made := _component(content)) else None
    yield from (value for value in _literals(parameter.hint if parameter else None) if isinstance(value, str))


def _literals(hint: object) -> Iterator[object]:
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    for option in get_args(hint) if get_origin(hint) is not Literal else ():
        yield from _literals(option)


def _letters(word: str) -> str:
    return "".join(filter(str.isalnum, word.lower()))


def _content(group: str, choice: str, folders: ConfigFolders) -> Mapping[str, Any]:
    """The YAML of a choice; empty if it cannot be read, which its composition reports."""
    import yaml

    file = folders.file_of(group, choice)
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def _component(content: Mapping[str, Any]) -> Callable[..., Any] | None:
    """The class of a file's `_target_`, if it is gnnexp's own: a hint imports no code that was not chosen."""
    target = content.get(TARGET)
    found = located("", target) if isinstance(target, str) and target.startswith(_OWN) else None
    return None if isinstance(found, Problem) else found


def _refuses_others(made: Callable[..., Any] | None, name: str) -> bool:
    """Whether a component takes `name` although it refuses other names, as `dataset=ogb` does."""
    return made is not None and _takes(made, name) and not _takes(made, f"no {name}")


def _takes(made: Callable[..., Any], name: str) -> bool:
    try:
        made(name=name)
    except (ConfigError, TypeError):
        return False
    return True


# --- keys ------------------------------------------------------------------------------------------------------------
def keys_elsewhere(
    word: str, base: Mapping[str, Any], more: Callable[[Sequence[str], object], Iterable[str]]
) -> list[str]:
    """Keys of the chosen groups whose last part is `word`, else is like it.

    Args:
        word: the last part of a key.
        base: the composed configuration.
        more: further keys of a group, which only its constructor has, by the group's path and content.
    """
    keys: dict[str, list[str]] = {}
    for path in _leaves(base, (), more):
        keys.setdefault(path[-1], []).append(".".join(path))
    close = word if word in keys else nearest(word, keys, SLIP)
    return keys[close] if close else []


def _leaves(
    node: Mapping[str, Any], path: tuple[str, ...], more: Callable[[Sequence[str], object], Iterable[str]]
) -> Iterator[tuple[str, ...]]:
    names = [*node, *(more(path, node) if path else ())]
    for name in dict.fromkeys(names):
        if isinstance(below := node.get(name), Mapping):
            yield from _leaves(below, (*path, name), more)
        elif not name.startswith("_"):
            yield (*path, name)


def lines_of_key(keys: Sequence[str], value: str) -> list[str]:
    """The keys with the typed value, such as `train.epochs=3`."""
    return [f"{key}={value}" if value else key for key in keys[:_MOST]]


# --- words that are no overrides -------------------------------------------------------------------------------------
def no_override(problem: Problem, folders: ConfigFolders) -> Problem:
    """`problem` of a word without `=`, explained if the word is a file, a run, a sweep or a choice."""
    word = problem.key
    if "=" in word or word.startswith("~"):
        return problem
    path = Path(word)
    if path.suffix in _YAML:
        what = "is a file, not key=value" if path.is_file() else "is not key=value, and no such file exists"
        return replace(
            problem,
            allowed=what,
            fix=f"gnnexp run --from RUN/config.yaml makes a run again; here: gnnexp "
            f"run --from {word}. A sweep: gnnexp sweep {word}",
        )
    if is_folder(path):
        fix = f"the same run again: gnnexp run --from {word}"
        return replace(problem, allowed="is a folder, not key=value", fix=fix)
    if word in product_sweeps():
        return replace(problem, allowed="is a sweep, not key=value", fix=f"gnnexp sweep {word}")
    for group in sorted(folders.groups(), key=lambda name: (name != "system", name)):
        if word in folders.choices(group):
            fix = f"write {_choosing(group, word)}"
            return replace(problem, allowed=f"is a choice of {group}, not key=value", fix=fix)
    return problem
