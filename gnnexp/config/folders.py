"""Finds the YAML files: gnnexp's own (in a checkout or the installed package), a user's, and those of plug-ins."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gnnexp.components.signature import nearest, unknown
from gnnexp.config.yaml_files import yaml_files, yaml_problem
from gnnexp.errors import ConfigError, Problem
from gnnexp.files.foreign_yaml import MAX_BYTES
from gnnexp.files.regular import is_folder

if TYPE_CHECKING:
    from gnnexp.config.plugins import Plugins

# Name of the file that a composition starts from.
PRIMARY = "config"
# The variable that names a user's folder, after `--config-dir`.
VARIABLE = "GNNEXP_CONFIG_DIR"


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
    return {file.stem if file.parent == folder else f"{file.parent.name}_{file.stem}": file for file in files}


def papers_with(file: str) -> dict[str, Path]:
    """The files of this name in the papers' folders, by paper: `published.csv`, `targets.csv`, `records.parquet`."""
    return {path.parent.name: path for path in sorted(product_folder("sweeps").glob(f"*/{file}"))}


class FolderListing(NamedTuple):
    """What folders have at one moment.

    Attributes:
        groups: names of all groups (`ConfigFolders.groups`).
        stamp: a number that changes when a file comes, goes or is written: a user's by its content, gnnexp's own by its
            time.
    """

    groups: frozenset[str]
    stamp: int


@dataclass(frozen=True)
class ConfigFolders:
    """The folders that contain `<group>/<choice>.yaml`. The first file of a name wins.

    Attributes:
        folders: a user's folders, those of plug-ins, and gnnexp's own, which is the last one.
        primary: name of the file that a composition starts from (`--config-name`).
    """

    folders: tuple[Path, ...]
    primary: str = PRIMARY

    @property
    def theirs(self) -> tuple[Path, ...]:
        """The folders that are not gnnexp's own."""
        return self.folders[:-1]

    @property
    def plugins(self) -> Plugins:
        """The plug-ins that are installed; the folders of those that work are among `folders`."""
        from gnnexp.config.plugins import installed_plugins

        return installed_plugins(self.folders[-1])

    def listing(self) -> FolderListing:
        """What is there now."""
        own = ((str(file), _written(file)) for file in yaml_files(self.folders[-1]))
        theirs = ((str(file), _read(file)) for folder in self.theirs for file in yaml_files(folder))
        return FolderListing(frozenset(self.groups()), hash(frozenset((*own, *theirs))))

    def groups(self) -> set[str]:
        """Names of all config groups, except Hydra's own; a group inside of another one is `outer/inner`."""
        files = (file.relative_to(folder) for folder in self.folders for file in yaml_files(folder))
        return {str(above) for file in files for above in file.parents[:-1] if above.parts[0] != "hydra"}

    def choices(self, group: str) -> set[str]:
        """Names of all choices of `group`; a choice in a folder of the group is `folder/choice`."""
        return {
            str(file.relative_to(folder / group).with_suffix(""))
            for folder in self.folders
            for file in yaml_files(folder / group)
        }

    def file_of(self, group: str, choice: str) -> Path:
        """The file of one of `choices`."""
        return next(file for folder in self.folders if (file := folder / group / f"{choice}.yaml").exists())


def own_folders() -> ConfigFolders:
    """gnnexp's own `conf`."""
    return ConfigFolders((product_folder("conf").resolve(),))


def find_folders(config_dir: str | None, primary: str = PRIMARY) -> ConfigFolders:
    """The folders of `--config-dir` and `$GNNEXP_CONFIG_DIR`, `./conf`, plug-ins, and gnnexp's own, in this order.

    Raises:
        ConfigError: a named folder is none, or has no folder of a known group; a file is too large; or no folder has
            the file `primary`.
    """
    from gnnexp.config.plugins import installed_plugins

    own = own_folders()
    named = [(key, text) for key, text in (("--config-dir", config_dir), (VARIABLE, os.environ.get(VARIABLE))) if text]
    theirs = [_named(key, text, own) for key, text in named]
    here = Path("conf")
    if is_folder(here) and _held(here, own):
        theirs.append(here.resolve())
    theirs = [folder for folder in dict.fromkeys(theirs) if folder not in own.folders]
    files = [file for folder in theirs for file in sorted(yaml_files(folder))]
    problems = [problem for file in files if (problem := yaml_problem(file))]
    plugins = [plugin.conf for plugin in installed_plugins(*own.folders).working]
    folders = ConfigFolders((*dict.fromkeys((*theirs, *plugins)), *own.folders), primary)
    names = {file.stem for folder in folders.folders for file in folder.glob("*.yaml")}
    if primary not in names:
        problems.append(unknown("--config-name", primary, primary, names))
    ConfigError.raise_all(problems)
    return folders


def _named(key: str, text: str, own: ConfigFolders) -> Path:
    """The folder that a user has named."""
    try:
        folder = Path(text).expanduser()
    except RuntimeError:  # `~nobody`
        folder = Path(text)
    if not is_folder(folder):
        raise ConfigError(Problem(key, text, "must be a folder", "create it, or correct the path"))
    folder = folder.resolve()
    if not _held(folder, own):
        known = own.groups()
        close = nearest(next(iter(sorted(entry.name for entry in folder.iterdir() if entry.is_dir())), ""), known)
        raise ConfigError(
            Problem(
                key,
                text,
                "must hold folders named as groups: " + ", ".join(sorted(known)),
                f"put files into {folder}/{close or 'model'}/<name>.yaml",
            )
        )
    return folder


def _held(folder: Path, own: ConfigFolders) -> bool:
    """Whether `folder` has a folder of a known group, or a file to start from."""
    known = own.groups()
    return any(entry.name in known for entry in folder.iterdir() if entry.is_dir()) or any(folder.glob("*.yaml"))


def _written(file: Path) -> int:
    """When the file was written, in nanoseconds; 0 if that cannot be seen. Reading the file then reports the error."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _read(file: Path) -> bytes:
    """The content, as far as a file may be long; empty if it cannot be read. Composing then reports the error."""
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_BYTES + 1)
    except OSError:
        return b""
