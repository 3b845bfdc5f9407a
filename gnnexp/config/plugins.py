"""Plug-ins: installed packages that add choices to gnnexp's groups.

A package names each of its plug-ins in its entry points, in the group `gnnexp.components`:

    [project.entry-points."gnnexp.components"]
    mine = "my_package"

`my_package/conf/` has the layout of gnnexp's own folder: `conf/model/mine.yaml` is chosen by `model=mine`. A plug-in
with a damaged file is left out as a whole. gnnexp and the other plug-ins work without it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from gnnexp.components.signature import TARGET, nearest
from gnnexp.config.yaml_files import is_yaml, yaml_files, yaml_problem
from gnnexp.errors import Problem
from gnnexp.files.regular import is_folder
from gnnexp.provenance.installed import clash_problem, installed_entries

GROUP = "gnnexp.components"


@dataclass(frozen=True)
class Plugin:
    """An installed package with choices.

    Attributes:
        name: name of the entry point.
        distribution: name of the distribution, as pip knows it.
        version: version of the distribution.
        conf: its folder of configurations; the package's name below the current folder if there is none.
    """

    name: str
    distribution: str
    version: str
    conf: Path

    @property
    def key(self) -> str:
        """The plug-in, as messages call it."""
        return f"plug-in {self.name} ({self.distribution} {self.version})"

    def has(self, group: str, choice: str) -> bool:
        """Whether the plug-in has a file of this choice."""
        return (self.conf / group / f"{choice}.yaml").is_file()

    def problem(self, file: object, why: str, repair: str) -> Problem:
        """A problem of a file of this plug-in."""
        fix = f"{repair}; without the package: pip uninstall {self.distribution}"
        return Problem(self.key, str(file), why, fix)


@dataclass(frozen=True)
class Plugins:
    """The plug-ins that are installed.

    Attributes:
        working: those whose files are searched.
        left_out: the others, each with its problems.
    """

    working: tuple[Plugin, ...] = ()
    left_out: tuple[tuple[Plugin, tuple[Problem, ...]], ...] = ()

    @property
    def problems(self) -> list[Problem]:
        """All problems of plug-ins that are left out."""
        return list(dict.fromkeys(problem for _, problems in self.left_out for problem in problems))

    def of_file(self, file: Path) -> Plugin | None:
        """The plug-in that has a file, or None."""
        return next((plugin for plugin in self.working if file.is_relative_to(plugin.conf)), None)

    def left_out_problem(self, group: str, choice: str) -> Problem | None:
        """Why a choice is not there, if a plug-in that is left out has it."""
        for plugin, (problem, *_) in self.left_out:
            if plugin.has(group, choice):
                why = f"is in the {problem.key}, which is left out: {problem.value} {problem.allowed}"
                return Problem(group, choice, why, problem.fix)
        return None

    def named(self, problems: Sequence[Problem], files: Mapping[str, Path]) -> list[Problem]:
        """`problems`, of which those of a class name the plug-in that names the class.

        Args:
            problems: problems of a configuration.
            files: the chosen file of each group.
        """
        return [self._named(problem, files.get(problem.key.partition(".")[0])) for problem in problems]

    def _named(self, problem: Problem, file: Path | None) -> Problem:
        plugin = None if file is None or not problem.key.endswith(TARGET) else self.of_file(file)
        if plugin is None:
            return problem
        of_file = plugin.problem(file, problem.allowed, problem.fix)
        return replace(problem, allowed=f"{problem.allowed}; {plugin.key}, {file}", fix=of_file.fix)


def installed_plugins(own: Path) -> Plugins:
    """The plug-ins of this environment. No code of theirs is imported.

    Args:
        own: gnnexp's own folder of configurations. Plug-ins may not have a file that it has.
    """
    return _plugins(own, Path.cwd(), tuple(sys.path))


@cache
def note_left_out(plugins: Plugins) -> None:
    """Tell the user on standard error, once per process, which plug-ins are left out, and why."""
    for problem in plugins.problems:
        print(f"note: left out: {problem}", file=sys.stderr)


@cache
def _plugins(own: Path, here: Path, path: tuple[str, ...]) -> Plugins:
    """The plug-ins that are found from a folder with a `sys.path`: a process looks once."""
    plugins: dict[Plugin, list[Problem]] = {}
    for name, entries in installed_entries(GROUP).items():
        for distribution, entry in entries.items():
            conf = _conf_of(entry.value)
            plugin = Plugin(name, distribution, entry.dist.version if entry.dist else "", conf or here / entry.value)
            clash = clash_problem(f"plug-in {name}", entries, "plug-ins")
            if clash is not None:
                plugins[plugin] = [clash]
            elif conf is None:
                why = "must be an installed package with a folder conf/"
                plugins[plugin] = [plugin.problem(entry.value, why, "upgrade or repair the package")]
            else:
                plugins[plugin] = _file_problems(plugin, own)
    for plugin, problems in _shared_file_problems([plugin for plugin in plugins if not plugins[plugin]]).items():
        plugins[plugin] += problems
    return Plugins(
        tuple(plugin for plugin, problems in plugins.items() if not problems),
        tuple((plugin, tuple(problems)) for plugin, problems in plugins.items() if problems),
    )


def _conf_of(package: str) -> Path | None:
    """The folder `conf` of a package, or None. Python would execute a package to find a module in it; this does not."""
    top, *below = package.split(".")
    spec = None
    with suppress(ImportError, ValueError):  # no name of a module; Python cannot find it
        spec = find_spec(top)
    places = [] if spec is None else spec.submodule_search_locations or []
    confs = (Path(place, *below, "conf") for place in places)
    return next((conf.resolve() for conf in confs if is_folder(conf)), None)


def _file_problems(plugin: Plugin, own: Path) -> list[Problem]:
    """The problems of a plug-in's files: of the group, the name and the content."""
    groups = sorted(entry.name for entry in own.iterdir() if entry.is_dir())
    problems = []
    for file in sorted(yaml_files(plugin.conf)):
        place = file.relative_to(plugin.conf)
        group = place.parts[0]
        if len(place.parts) == 1 or group not in groups:
            close = nearest(group, groups) or "model"
            why = f"must be in a folder of a group: {', '.join(groups)}"
            problems.append(plugin.problem(file, why, f"move it to {plugin.conf / close / file.name}"))
        elif (own / place).exists():
            problems.append(plugin.problem(file, f"gnnexp has {place} itself", "give the file another name"))
        elif (excess := yaml_problem(file)) is not None:
            problems.append(plugin.problem(file, f"{excess.value}: {excess.allowed}", excess.fix))
        elif not is_yaml(file):
            problems.append(plugin.problem(file, "is not YAML", "correct the file"))
    return problems


def _shared_file_problems(plugins: Sequence[Plugin]) -> dict[Plugin, list[Problem]]:
    """The problems of files that several plug-ins have: none of these is right."""
    places = {plugin: [file.relative_to(plugin.conf) for file in yaml_files(plugin.conf)] for plugin in plugins}
    counts = Counter(place for files in places.values() for place in files)
    problems: dict[Plugin, list[Problem]] = {}
    for plugin, files in places.items():
        for place in sorted(file for file in files if counts[file] > 1):
            others = ", ".join(other.key for other in plugins if other is not plugin and place in places[other])
            problem = plugin.problem(plugin.conf / place, f"{others} has {place}, too", "uninstall one of them")
            problems.setdefault(plugin, []).append(problem)
    return problems
