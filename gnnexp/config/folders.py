"""Where the YAML files are: the product's own (in the checkout or the installed package) and a user's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnnexp.config.yaml_limits import check_yaml
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.signature import nearest
from gnnexp.files.regular import is_folder


def product_folder(name: str) -> Path:
    """`conf` or `sweeps`: inside the package when installed from a wheel, beside it in a checkout.

    Raises:
        ConfigError: if the installation is incomplete.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise ConfigError(Problem(name, str(package / name), "the installation lacks its YAML files", "reinstall gnnexp"))


@dataclass(frozen=True)
class ConfigFolders:
    """The folders that config groups are searched in, the product's own first.

    Attributes:
        folders: each holds `<group>/<choice>.yaml`.
    """

    folders: tuple[Path, ...]

    def stamp(self) -> int:
        """Another number when a file has been written, added or removed."""
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
    """The product's `conf` and, after it, the user's folder.

    Raises:
        ConfigError: if `config_dir` is not a folder, holds no group that exists, or a file that costs too much to read.
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
    if problems := [problem for file in files if (problem := check_yaml(file))]:
        raise ConfigError(problems)
    return ConfigFolders((own, folder))


def _written(file: Path) -> int:
    """When, in nanoseconds; 0 for what cannot be looked at: whoever reads it says so."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
