"""Packages that may be missing, and how to install them."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from gnnexp.errors import ConfigError, Problem

# Which extra of pyproject.toml brings a package.
EXTRAS = {"dgl": "dgl", "pandas": "dgl", "pydantic": "dgl", "submitit": "slurm", "pymetis": "metis"}
# Requirements of gnnexp itself that a rank does without: `pip install --no-deps` leaves them out.
REQUIREMENTS = {
    "hydra": "hydra-core>=1.3.8,<1.4", "omegaconf": "omegaconf>=2.3,<2.4", "yaml": "pyyaml", "rich": "rich>=13",
    "matplotlib": "matplotlib>=3.8", "sklearn": "scikit-learn", "mlflow": "mlflow>=3,<4",
}
# What a command imports before it starts anything, or when its runs have ended.
OF_COMMANDS = ("hydra", "omegaconf", "yaml", "rich", "matplotlib")
# PyPI has DGL 1.1.3 for no later version.
_LAST_PYTHON_OF_DGL = (3, 11)


def is_installed(package: str) -> bool:
    """Whether a package can be imported; it is not imported for that.

    A folder of that name without `__init__.py` is none: what was left by `pip uninstall`, or one in the current folder.
    """
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def known(package: str) -> bool:
    """Whether gnnexp names the package among its requirements."""
    return package in EXTRAS or package in REQUIREMENTS


def install_command(package: str) -> str:
    """What to type where a package of gnnexp's requirements is missing."""
    if package == "dgl" and sys.version_info[:2] > _LAST_PYTHON_OF_DGL:
        return "install gnnexp[dgl] for Python 3.11: PyPI has DGL 1.1.3 for no later version"
    if package in EXTRAS:
        return f"pip install 'gnnexp[{EXTRAS[package]}]'"
    return f"pip install '{REQUIREMENTS.get(package, package)}'"


def missing_package(key: str, value: object, package: str, instead: str = "") -> Problem:
    """The problem of a package that is not installed.

    Args:
        key: of the configuration, that needs it.
        value: of that key.
        package: as it is imported.
        instead: what does without it, if anything: `tracker=none`.
    """
    return Problem(key, value, f"needs the package {package}, which is not installed",
                   install_command(package) + (f", or {instead}" if instead else ""))


def check_commands() -> None:
    """Whether everything is there that commands import, whatever they are asked to do.

    Raises:
        ConfigError: with every package that is missing.
    """
    ConfigError.raise_all([missing_package("gnnexp", "command line", one)
                           for one in OF_COMMANDS if not is_installed(one)])
