"""Packages that may not be installed, and how to install them."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from gnnexp.errors import ConfigError, Problem

# The extra of pyproject.toml that installs each package.
EXTRAS = {
    "dgl": "dgl",
    "pandas": "dgl",
    "pydantic": "dgl",
    "submitit": "slurm",
    "pymetis": "metis",
    "torch_geometric": "pyg",
    "optuna": "tune",
    "triton": "triton",
}
# Requirements of gnnexp that ranks do not need; `pip install --no-deps` does not install them.
REQUIREMENTS = {
    "hydra": "hydra-core>=1.3.8,<1.4",
    "omegaconf": "omegaconf>=2.3,<2.4",
    "yaml": "pyyaml",
    "rich": "rich>=13",
    "matplotlib": "matplotlib>=3.8",
    "sklearn": "scikit-learn",
    "mlflow": "mlflow>=3,<4",
}
# Plug-ins that were a part of gnnexp, with their folders in its repository.
PLUGINS = {"gnn_gconstruct": "examples/gconstruct"}
# Packages that a command imports before it starts anything, or after its runs.
OF_COMMANDS = ("hydra", "omegaconf", "yaml", "rich", "matplotlib")
# Packages that the default configurations of gnnexp's systems need, apart from its requirements.
OF_SYSTEMS = ("dgl", "pymetis", "mlflow", "sklearn")
# PyPI has no DGL 1.1.3 for later versions.
_LAST_PYTHON_OF_DGL = (3, 11)


def is_installed(package: str) -> bool:
    """Whether a package can be imported. This does not import it.

    A folder of that name without `__init__.py` does not count: `pip uninstall` may have left it, or it is in the
    current folder.
    """
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def is_requirement(package: str) -> bool:
    """Whether the package is a requirement of gnnexp."""
    return package in EXTRAS or package in REQUIREMENTS


def install_command(package: str) -> str:
    """The command that installs a package that gnnexp requires, or a plug-in of `PLUGINS`."""
    if package == "dgl" and sys.version_info[:2] > _LAST_PYTHON_OF_DGL:
        return "install gnnexp[dgl] for Python 3.11: PyPI has DGL 1.1.3 for no later version"
    if package in PLUGINS:
        return f"pip install {PLUGINS[package]}, in gnnexp's repository"
    if package in EXTRAS:
        return f"pip install 'gnnexp[{EXTRAS[package]}]'"
    return f"pip install '{REQUIREMENTS.get(package, package)}'"


def missing_package(key: str, value: object, package: str, instead: str = "") -> Problem:
    """The problem of a package that is not installed.

    Args:
        key: key of the configuration that needs the package.
        value: value of that key.
        package: import name of the package.
        instead: a choice that does not need the package (`tracker=none`), if there is one.
    """
    return Problem(
        key,
        value,
        f"needs the package {package}, which is not installed",
        install_command(package) + (f", or {instead}" if instead else ""),
    )


def check_commands() -> None:
    """Check that all packages are installed that every command imports.

    Raises:
        ConfigError: names all missing packages.
    """
    ConfigError.raise_all(
        [missing_package("gnnexp", "command line", one) for one in OF_COMMANDS if not is_installed(one)]
    )
