"""The versions of gnnexp and of the libraries that it uses."""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path

import gnnexp
from gnnexp.provenance.machine import output_of

LIBRARIES = (
    "torch",
    "numpy",
    "numba",
    "scipy",
    "dgl",
    "hydra-core",
    "omegaconf",
    "mlflow",
    "submitit",
    "pymetis",
    "scikit-learn",
    "matplotlib",
)


def code_version() -> str:
    """The package's version. In a checkout, also the commit, and whether files differ from it (except `docs`)."""
    version = importlib.metadata.version("gnnexp")
    checkout = Path(gnnexp.__file__).resolve().parent.parent
    if not (checkout / ".git").exists():
        return version
    described = output_of(["git", "-C", str(checkout), "describe", "--always", "--abbrev=12"])
    edited = output_of(["git", "-C", str(checkout), "status", "--porcelain", "--untracked-files=no", ".", ":!docs"])
    return f"{version}+{described}{'-dirty' if edited else ''}" if described else version


def library_versions() -> dict[str, str]:
    """Versions of Python and of the installed libraries."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
