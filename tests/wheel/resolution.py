"""What pip would install on a fresh machine, for each Python and each build of torch: `make resolution`.

Nothing is installed. But pip may fetch whole wheels to read their metadata, gigabytes for the CUDA build, and keeps
none: so `.ci/run` leaves this out. PyPI's own torch, which most
people get, requires CUDA and one version of Triton. A CPU build is tried where pip's configuration leads to one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13")
# Settings of pip that lead to other packages than PyPI's. The rest (a proxy, certificates) stays.
_ELSEWHERE = ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT", "PIP_INDEX_URL")
# PyPI has DGL for no later Python. pip reads markers for the Python that runs it, not for the one that is asked about.
_LAST_OF_DGL = "3.11"
_RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
# They require a package that PyPI has as source only, which pip does not take for another Python than its own.
_ONLY_HERE = ("hydra-core", "omegaconf")


def wanted(python: str) -> list[str]:
    """Everything that gnnexp and its extras for users require."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    found = [
        *project["dependencies"],
        *(line for name in ("dgl", "slurm", "metis", "pyg", "tune", "testing") for line in extras[name]),
    ]
    lines = [line.partition(";")[0] for line in found if not line.startswith("torch>")]
    left_out = (*(() if python == _RUNNING else _ONLY_HERE), *(() if python == _LAST_OF_DGL else ("dgl",)))
    return [line for line in lines if not line.startswith(left_out)]


def pins() -> dict[str, str]:
    """Versions of `constraints.txt` by name in lower case."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {name.lower(): version for name, _, version in (line.partition("==") for line in lines) if version}


def ask(python: str, *, plain: bool) -> subprocess.CompletedProcess[str]:
    """pip's report. `plain`: from PyPI alone."""
    environment = {key: value for key, value in os.environ.items() if not plain or key not in _ELSEWHERE}
    if plain:
        environment["PIP_CONFIG_FILE"] = os.devnull
    with tempfile.TemporaryDirectory() as target:
        other = [] if python == _RUNNING else ["--only-binary=:all:", "--python-version", python, "--target", target]
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--dry-run",
                "--ignore-installed",
                "--quiet",
                "--report",
                "-",
                *other,
                "-c",
                str(ROOT / "constraints.txt"),
                f"torch=={pins()['torch']}",
                *wanted(python),
            ],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


def problems(report: str) -> list[str]:
    """Packages of other versions than those of `constraints.txt`; prints what would be installed."""
    found = {one["metadata"]["name"].lower(): one["metadata"]["version"] for one in json.loads(report)["install"]}
    print(f"{len(found)} packages, torch {found['torch']}, Triton {found.get('triton', 'none')}", flush=True)
    return [
        f"{name} {version}, pinned {pinned}"
        for name, version in found.items()
        if (pinned := pins().get(name, version)) != version.partition("+")[0]
    ]


def is_reachable() -> bool:
    """Whether the index answers at all."""
    return (
        subprocess.run(
            [sys.executable, "-m", "pip", "index", "versions", "packaging"], capture_output=True, check=False
        ).returncode
        == 0
    )


def main() -> int:
    """Ask for every Python and build; 1 if pip finds no solution, or another version than the pinned one."""
    if not is_reachable():
        print("NOT RUN: the index of packages does not answer")
        return 0
    failed = []
    for python in PYTHONS:
        for plain in (True, False) if python == _RUNNING else (True,):
            name = f"Python {python}, {'PyPI alone' if plain else 'as pip is configured here'}"
            print(f"{name}: ", end="", flush=True)
            done = ask(python, plain=plain)
            wrong = problems(done.stdout) if done.returncode == 0 else [done.stderr[-500:]]
            failed += [f"{name}: {line}" for line in wrong]
    print("\n".join(failed) or "every pin holds")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
