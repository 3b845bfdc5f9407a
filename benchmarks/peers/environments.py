"""`make peers`: a virtual environment for each peer, `.dev/peers/pyg` and `.dev/peers/graphbolt`.

An environment is built again only if its requirement files changed. `make peers PEERS=pyg` builds one of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PLACE = ROOT / ".dev" / "peers"
MADE = "made-from.txt"  # in an environment that is complete: the steps and files that it was built with


@dataclass(frozen=True)
class Peer:
    """How a peer's environment is built.

    Attributes:
        steps: arguments of `pip install`, one call each.
        modules: what the finished environment must be able to import.
    """

    steps: tuple[tuple[str, ...], ...]
    modules: str


def peers(torch: str) -> dict[str, Peer]:
    """All peers. `torch` is the requirement of PyG's torch, with pip's options, as in `make setup`."""
    constraints = ("-c", str(ROOT / "constraints.txt"))
    return {
        "pyg": Peer(
            (
                tuple(torch.split()),
                (*constraints, "-r", str(HERE / "pyg.txt")),
                ("--no-build-isolation", "--no-deps", "-r", str(HERE / "pyg_source.txt")),
            ),
            "torch_geometric, torch_scatter, torch_sparse",
        ),
        "graphbolt": Peer((("--no-deps", "-r", str(HERE / "graphbolt.txt")),), "dgl.graphbolt, dgl.nn"),
    }


def python_of(name: str, place: Path = PLACE) -> Path:
    """The interpreter of a peer's environment.

    Raises:
        SystemExit: the environment is not there, or not complete.
    """
    if not (place / name / MADE).is_file():
        raise SystemExit(f"the environment of {name} is missing in {place}: make peers PEERS={name}")
    return place / name / "bin" / "python"


def build(name: str, peer: Peer, place: Path = PLACE) -> str:
    """Build an environment unless it is complete. Returns what failed, or an empty text."""
    folder, recipe = place / name, _recipe(peer)
    made = folder / MADE
    if made.is_file() and made.read_text(encoding="utf-8") == recipe:
        print(f"{name}: complete, {folder}", flush=True)
        return ""
    made.unlink(missing_ok=True)
    venv.create(folder, symlinks=True, with_pip=True)  # also completes a folder that an earlier call left half made
    python = str(folder / "bin" / "python")
    commands = [[python, "-m", "pip", "install", "-q", *step] for step in peer.steps]
    for command in (*commands, [python, "-c", f"import {peer.modules}"]):
        print(f"{name}: {' '.join(command[1:])}", flush=True)
        if code := subprocess.run(command, env=_compiling(os.environ), check=False).returncode:
            return f"{name}: exit code {code} of {' '.join(command)}"
    unfinished = made.with_suffix(".part")
    unfinished.write_text(recipe, encoding="utf-8")
    unfinished.replace(made)
    return ""


def _recipe(peer: Peer) -> str:
    files = [word for step in peer.steps for option, word in pairwise(step) if option == "-r"]
    return "\n".join([*(" ".join(step) for step in peer.steps), *(Path(file).read_text("utf-8") for file in files)])


def _compiling(environment: Mapping[str, str]) -> dict[str, str]:
    return {"MAX_JOBS": str(os.cpu_count() or 1), **environment}


def main(argv: Sequence[str] | None = None) -> int:
    """Build what was asked for. Every failure is named at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PEER", help="pyg, graphbolt; both by default")
    parser.add_argument("--torch", required=True, help="requirement of PyG's torch, with pip's options")
    chosen = parser.parse_args(argv)
    known = peers(chosen.torch)
    if unknown := [name for name in chosen.names if name not in known]:
        parser.error(f"no peer {', '.join(unknown)}; peers are {', '.join(known)}")
    failed = [text for name in chosen.names or known if (text := build(name, known[name]))]
    for text in failed:
        print(text, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
