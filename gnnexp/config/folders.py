"""Where the YAML files are: the product's own (in the checkout or the installed package) and a user's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gnnexp.config.yaml_limits import check_yaml
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.signature import nearest
from gnnexp.files.regular import is_folder

# Of a paper's folder of sweeps: what is no sweep, though it is YAML.
CLAIMS_FILE = "claims.yaml"


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


def product_sweeps() -> dict[str, Path]:
    """Files of sweeps by name; a sweep in a paper's folder has both names: `gsplit/table3.yaml` is `gsplit_table3`."""
    folder = product_folder("sweeps")
    files = [*sorted(folder.glob("*.yaml")), *sorted(folder.glob("*/*.yaml"))]
    return {file.stem if file.parent == folder else f"{file.parent.name}_{file.stem}": file
            for file in files if file.name != CLAIMS_FILE}


def papers_with(file: str) -> dict[str, Path]:
    """A file of the papers' folders by the paper's name: `published.csv`, `claims.yaml`, `records.parquet`."""
    return {path.parent.name: path for path in sorted(product_folder("sweeps").glob(f"*/{file}"))}


@cache
def read_claims(paper: str) -> dict[str, Any]:
    """A paper's `claims.yaml`: `claims`, and `targets`, shares of the vertices that it trains, by `dataset.shape`."""
    import yaml

    file = papers_with(CLAIMS_FILE).get(paper)
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8")) if file else {}
    return found


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
    ConfigError.raise_all([problem for file in files if (problem := check_yaml(file))])
    return ConfigFolders((own, folder))


def _written(file: Path) -> int:
    """When, in nanoseconds; 0 for what cannot be looked at: whoever reads it says so."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
