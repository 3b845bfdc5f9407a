"""Finds the YAML files, gnnexp's own (in a checkout or the installed package) and a user's, and checks their limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.signature import nearest
from gnnexp.files.regular import is_folder, read_limited

# A YAML file in a paper's folder of sweeps that is no sweep.
CLAIMS_FILE = "claims.yaml"


def product_folder(name: str) -> Path:
    """`conf` or `sweeps`: inside of the package if installed from a wheel, next to the package in a checkout.

    Raises:
        ConfigError: the installation is incomplete.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise ConfigError(Problem(name, str(package / name), "the installation lacks its YAML files", "reinstall gnnexp"))


def product_sweeps() -> dict[str, Path]:
    """Files of sweeps by name. A sweep in a paper's folder has both names: `gsplit/table3.yaml` is `gsplit_table3`."""
    folder = product_folder("sweeps")
    files = [*sorted(folder.glob("*.yaml")), *sorted(folder.glob("*/*.yaml"))]
    return {file.stem if file.parent == folder else f"{file.parent.name}_{file.stem}": file
            for file in files if file.name != CLAIMS_FILE}


def papers_with(file: str) -> dict[str, Path]:
    """The files of this name in the papers' folders, by paper: `published.csv`, `claims.yaml`, `records.parquet`."""
    return {path.parent.name: path for path in sorted(product_folder("sweeps").glob(f"*/{file}"))}


@cache
def read_claims(paper: str) -> dict[str, Any]:
    """A paper's `claims.yaml`: `claims`, and `targets` (the share of vertices that it trains, by `dataset.shape`)."""
    import yaml

    file = papers_with(CLAIMS_FILE).get(paper)
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8")) if file else {}
    return found


@dataclass(frozen=True)
class ConfigFolders:
    """The folders that config groups are searched in; gnnexp's own comes first.

    Attributes:
        folders: folders that contain `<group>/<choice>.yaml`.
    """

    folders: tuple[Path, ...]

    def stamp(self) -> int:
        """A number that changes when a file is written, added or removed."""
        files = (file for folder in self.folders for file in files_of(folder))
        return hash(frozenset((str(file), _written(file)) for file in files))

    def groups(self) -> set[str]:
        """Names of all config groups."""
        return {entry.name for folder in self.folders for entry in folder.iterdir() if entry.is_dir()}

    def choices(self, group: str) -> set[str]:
        """Names of all choices of `group`."""
        return {file.stem for folder in self.folders for file in (folder / group).glob("*.yaml")}


def files_of(folder: Path) -> list[Path]:
    """The YAML files in a folder of configurations."""
    return [file for level in ("*.yaml", "*/*.yaml") for file in folder.glob(level)]


def find_folders(config_dir: str | None) -> ConfigFolders:
    """gnnexp's own `conf` and, after it, the user's folder.

    Raises:
        ConfigError: `config_dir` is no folder, has no folder of a known group, or has a file that is too large.
    """
    own = product_folder("conf")
    if config_dir is None:
        return ConfigFolders((own,))
    try:
        folder = Path(config_dir).expanduser()
    except RuntimeError:  # `~nobody`
        folder = Path(config_dir)
    if not is_folder(folder):
        raise ConfigError(Problem("--config-dir", config_dir, "must be a folder", "create it, or correct the path"))
    folder = folder.resolve()
    known = ConfigFolders((own,)).groups()
    theirs = {entry.name for entry in folder.iterdir() if entry.is_dir()}
    if not theirs & known:
        close = nearest(next(iter(sorted(theirs)), ""), known)
        raise ConfigError(Problem(
            "--config-dir", config_dir, "must hold folders named as groups: " + ", ".join(sorted(known)),
            f"put files into {folder}/{close or 'model'}/<name>.yaml"))
    files = [file for group in sorted(theirs & known) for file in sorted((folder / group).glob("*.yaml"))]
    ConfigError.raise_all([problem for file in files if (problem := check_yaml(file))])
    return ConfigFolders((own, folder))


def _written(file: Path) -> int:
    """When the file was written, in nanoseconds; 0 if that cannot be seen. Reading the file then reports the error."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


# gnnexp's own files have at most 2 KiB, 4 levels and 60 nodes.
MAX_BYTES, MAX_DEPTH, MAX_NODES = 1 << 20, 100, 100_000


def check_yaml(file: Path) -> Problem | None:
    """The problem of the kind, size, depth or references of `file`, or None. Its reader reports that it is no YAML.

    A few aliases of aliases stand for more nodes than fit into memory, and parsers follow nesting by recursion.
    """
    from yaml import YAMLError, parse

    try:
        excess = _excess(parse(read_limited(file, MAX_BYTES).decode()))
    except OSError as error:
        allowed = f"must be a regular file that you may read, of at most {MAX_BYTES} bytes"
        return Problem(str(file), error.strerror, allowed, "correct the path or the rights, or remove the file")
    except (UnicodeDecodeError, YAMLError):
        return None
    allowed = f"at most {MAX_BYTES} bytes, {MAX_DEPTH} levels and {MAX_NODES} nodes, none of them in itself"
    return Problem(str(file), excess, allowed, "make it smaller, or remove the file") if excess else None


def _excess(events: Iterable[Any]) -> str:
    """The exceeded limit in words, or an empty text. Aliases count as the nodes that they stand for."""
    from yaml import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent

    nodes, begun = 0, list[tuple[str | None, int]]()
    named: dict[str | None, int] = {}
    for event in events:
        if isinstance(event, AliasEvent):
            if event.anchor in [anchor for anchor, _ in begun]:
                return f"*{event.anchor} inside of itself"
            nodes += named.get(event.anchor, 0)
        elif isinstance(event, NodeEvent):
            nodes += 1
            named[event.anchor] = 1
            if isinstance(event, CollectionStartEvent):
                begun.append((event.anchor, nodes - 1))
        elif isinstance(event, CollectionEndEvent):
            anchor, before = begun.pop()
            named[anchor] = nodes - before
        if len(begun) > MAX_DEPTH or nodes > MAX_NODES:
            return f"more than {MAX_DEPTH} levels" if len(begun) > MAX_DEPTH else f"more than {MAX_NODES} nodes"
    return ""
