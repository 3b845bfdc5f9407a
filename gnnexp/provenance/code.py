"""The code that can change a run's result: a user's own modules, and gnnexp itself.

The key of a run has the digests of the user's modules. Of gnnexp, it has versions (`gnnexp.provenance.recorded`); the
digest of gnnexp's files is only recorded.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from gnnexp.errors import DataError, Problem
from gnnexp.provenance.bytecode import drop_if_stale
from gnnexp.provenance.older import name_today
from gnnexp.provenance.source import (
    Closure,
    closure,
    digest_of,
    digest_of_installed,
    existing,
    file_of,
    imports_of,
    is_within,
)

PACKAGE = "gnnexp"
_FOLDER = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class RunCode:
    """The code of a run.

    Attributes:
        own: modules outside of gnnexp with their digests, and installed distributions with their versions.
        package: digest of gnnexp's files (`package_digest`); empty if it was not made.
    """

    own: Mapping[str, str]
    package: str = ""

    def to_json(self) -> dict[str, Any]:
        """The code as JSON, for the record."""
        return {"own": dict(self.own), **({PACKAGE: self.package} if self.package else {})}


def code_of_config(config: Mapping[str, Any]) -> RunCode:
    """The code of a run with this resolved configuration, without the digest of gnnexp.

    Raises:
        DataError: a source file cannot be read.
    """
    return code_of(modules_of(config))


def modules_of(config: Mapping[str, Any]) -> list[str]:
    """The modules of every `_target_`, except trackers and launchers, which change no result, and torch's classes."""
    modules = (name_today(target).rpartition(".")[0] for target in targets_of_results(config))
    return [module for module in modules if module and not module.startswith("torch.")]


def targets_of_results(config: Mapping[str, Any]) -> list[str]:
    """The dotted names of all components, except trackers and launchers, which change no result."""
    return targets_in({name: node for name, node in config.items() if name not in ("tracker", "hardware")})


def code_key(cls: type) -> str:
    """The part of an artifact's key that has the user's code which makes it; empty for a class of gnnexp.

    Raises:
        DataError: a source file cannot be read, or was edited (`refuse_edited`).
    """
    refuse_edited([cls.__module__])
    own = code_of([cls.__module__]).own
    return json.dumps(own, sort_keys=True) if own else ""


def code_of(modules: Iterable[str]) -> RunCode:
    """The code of the user that importing `modules` may execute.

    Raises:
        DataError: a source file cannot be read.
    """
    return RunCode(_own_code(modules))


@cache
def package_digest() -> str:
    """The digest of all files of gnnexp with code, when this process first asked for it: it ignores later edits."""
    return digest_of_installed([_FOLDER])


def remember_own(config: Mapping[str, Any]) -> None:
    """Keep the digests of the user's modules before this process imports them: it ignores later edits.

    Raises:
        DataError: a source file cannot be read.
    """
    for name, file in _own_sources(modules_of(config)).items():
        drop_if_stale(file)
        _imported_digest(name, file)


def refuse_edited(modules: Iterable[str]) -> None:
    """Check that no module of the user was edited since this process imported it.

    The process works with the old code. Its results must not get the key of the new code.

    Raises:
        DataError: a module was edited.
    """
    DataError.raise_all(
        [
            Problem(
                str(file), "was edited", "must be the code that this command has imported", "start the command again"
            )
            for name, file in _own_sources(list(modules)).items()
            if name in sys.modules and _imported_digest(name, file) != digest_of(file)
        ]
    )


@cache
def _imported_digest(name: str, file: Path) -> str:
    """The digest of a user's module when this process first asked for it (`remember_own`)."""
    return digest_of(file)


def targets_in(node: object) -> list[str]:
    """Every `_target_` of a mapping, at any depth, and every class that a `module` names (model=pyg)."""
    if isinstance(node, Mapping):
        own = [node[key] for key in ("_target_", "module") if isinstance(node.get(key), str)]
        return own + [target for value in node.values() for target in targets_in(value)]
    return [target for value in node for target in targets_in(value)] if isinstance(node, list | tuple) else []


def own_files(config: Mapping[str, Any]) -> list[Path]:
    """Source files of the user's own components, and of modules that they import from the same folder."""
    return sorted(_own_sources(modules_of(config)).values())


def uninstalled(own: Iterable[str]) -> list[str]:
    """Those of the names in `RunCode.own` that are distributions with versions, and are not installed any more."""
    versions = [version for name in own for version in name.split(", ") if "==" in version]
    return [
        version for version in versions if not any(importlib.metadata.distributions(name=version.partition("==")[0]))
    ]


def _own_code(modules: Iterable[str]) -> dict[str, str]:
    """Digests of the code outside of gnnexp that `modules` may execute.

    An installed package of a component is identified by its version and its files. Its imports are not followed.
    """
    modules = list(modules)
    files = _own_sources(modules)
    for file in files.values():
        drop_if_stale(file)
    digests = {name: digest_of(file) for name, file in files.items()}
    for top in {name.partition(".")[0] for name in modules} - {PACKAGE}:
        spec = _spec(top)
        if spec is not None and (places := [place for place in _places(spec) if _is_installed(spec, place)]):
            digests[_distribution(top)] = digest_of_installed(places)
    return dict(sorted(digests.items()))


def _own_sources(modules: Iterable[str]) -> dict[str, Path]:
    """Source files outside of gnnexp that importing `modules` may read, by module.

    Packages of a package manager and Python's own are not followed.
    """
    files: dict[str, Path] = {}
    seen: set[str] = set()
    waiting = list(modules)
    named = set(waiting)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if is_within(name, (PACKAGE,)):
            continue
        own = _own_closure(name)
        if name in named and all(file.stem == "__init__" for file in own.files.values()) and name not in own.files:
            own = _elsewhere(name, own)
        files |= own.files
        seen |= set(own.files)
        waiting += own.outside
    return files


def _spec(top: str) -> ModuleSpec | None:
    """The place of a top-level package; None if there is none, which the check of the configuration reports."""
    try:
        return importlib.util.find_spec(top)
    except ValueError:  # `__main__` has none
        return None


def _own_closure(name: str) -> Closure:
    """A user's module, and the modules that it imports from the folders of its top-level package."""
    spec = _spec(name.partition(".")[0])
    places = [] if spec is None else [place for place in _places(spec) if not _is_installed(spec, place)]
    if spec is None or not places:
        return Closure({}, frozenset())
    closures = [closure([name], place.parent, (PACKAGE,)) for place in places]
    files = {module: file for part in closures for module, file in part.files.items()}
    if not files and spec.origin is not None:
        files = {name: existing(Path(spec.origin))}  # compiled, or in an archive
    return Closure(files, frozenset().union(*(part.outside for part in closures)) - {name})


def _elsewhere(name: str, own: Closure) -> Closure:
    """`own`, with the module `name` from outside of its package's folders, if Python finds it there.

    A package may say where its modules are (`__path__`, `pkgutil.extend_path`). Python must execute the package to find
    them.
    """
    if not own.files:
        return own
    try:
        spec = importlib.util.find_spec(name)
    except Exception:  # the package may raise anything: the next import reports it
        return own
    if spec is None or spec.origin is None or not spec.has_location:
        return own
    file = Path(spec.origin)
    base = file.parents[min(name.count("."), len(file.parents) - 1)]
    more = closure([name], base, (PACKAGE,)) if file_of(name, base) == file else Closure({name: file}, frozenset())
    return Closure({**more.files, **own.files}, own.outside | more.outside | frozenset(imports_of(file, name)))


def _places(spec: ModuleSpec) -> list[Path]:
    """The folders of a package (several for a namespace package), or the file of a module; empty if it is built in."""
    if spec.origin in ("built-in", "frozen"):
        return []
    return [Path(place) for place in spec.submodule_search_locations or [spec.origin or ""]]


def _is_installed(spec: ModuleSpec, place: Path) -> bool:
    """Whether a package manager installed it: such a package has a version, and users do not edit it.

    A distribution must name it, and it must be in a folder for distributions. A file that was copied into such a folder
    has no version, and a package installed for editing is in another folder. Of a namespace package, one folder may be
    installed and another one may be the user's own.

    The environment may differ from that of this Python: a cluster's modules, the user's or the system's folder.
    """
    place = place.resolve()
    python = [Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib")]
    managed = bool(_distributions(tuple(sys.path)).get(spec.name)) and _is_managed(place.parent)
    return managed or any(place.is_relative_to(folder) for folder in python)


@cache
def _distributions(path: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Names of the installed distributions by top-level package, for a `sys.path`."""
    return importlib.metadata.packages_distributions()


def _is_managed(folder: Path) -> bool:
    """Whether a folder of `sys.path` belongs to a package manager."""
    named = folder.name in ("site-packages", "dist-packages")
    return named or next(folder.glob("*.dist-info"), None) is not None


def _distribution(top: str) -> str:
    """Name and version of a package's distributions: `torch==2.13.0`."""
    names = _distributions(tuple(sys.path)).get(top, [])
    return ", ".join(f"{name}=={importlib.metadata.version(name)}" for name in sorted(set(names))) or top
