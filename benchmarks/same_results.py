"""Whether a change gives the same results to the bit: `python benchmarks/same_results.py --base COMMIT`.

Runs every system of `conf/system` in a checkout of the base and in this one. Compares every loss, count and accuracy of
all epochs bit by bit, and all graphs that it can load. Systems that refuse a case in both checkouts are left out, and
named. `tests/frozen` compares less, without a base: it is a part of `make test`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
from machine import describe

from gnnexp.config.compose import compose

HERE = Path(__file__).resolve().parent.parent
SMALL = ("train.epochs=2", "hardware.workers=2", "model.hidden=16", "tracker=none", "train.checkpoint_every=1")
# What a run is made on and what it took is no result.
_NO_RESULT = ("time/", "memory/", "eval/")
_SPLIT = "dataset.link_split={val:0.05,test:0.1}"
_EXAMPLE = HERE / "examples"
_TABLES = (
    f"tables dataset.path={_EXAMPLE}/my_tables dataset.nodes=pages.csv dataset.edges=links.csv "
    "dataset.label=kind dataset.features=words.json"
)
_OWN = f"edge_list dataset.path={_EXAMPLE}/my_graph/edges.tsv dataset.features=features.csv dataset.labels=labels.txt"
_AS_IT_IS = "dataset.symmetrize=false dataset.self_loops=keep"
# Every loader of real files, the generators and the examples.
LOADED = (
    "digits",
    "planetoid",
    "planetoid dataset.name=citeseer",
    "planetoid dataset.name=nell",
    _TABLES,
    f"{_TABLES} {_AS_IT_IS} dataset.duplicates=keep",
    f"{_TABLES} {_SPLIT}",
    _OWN,
    f"{_OWN} {_AS_IT_IS} dataset.duplicates=keep",
    f"{_OWN} {_SPLIT}",
    "fb15k_237 dataset.symmetrize=false",
    f"rmat dataset.num_nodes=1000 dataset.relations=3 {_SPLIT}",
    "planetoid dataset.symmetrize=false",
    "ogb dataset.name=ogbl-ddi dataset.symmetrize=false",
    "planetoid dataset.name=pubmed dataset.missing_features=zeros",
    "graphdata_npz",
    "graphdata_npz dataset.name=coauthor-physics",
    "heterophilous_npz",
    "fb100",
    "aminer",
    "fb15k_237",
    "ogb dataset.name=ogbl-ddi",
    "rmat dataset.num_nodes=1000",
    "dcsbm dataset.num_nodes=1000",
    "edge_list dataset.path=edges.tsv dataset.labels=labels.csv dataset.features=features.npy",
)
_LOAD_EACH = """
import hashlib, json, sys
import torch
try:
    from gnnexp.experiment.build import build
except ImportError:  # commits before the rooms of issue 33
    from gnnexp.config.build import build
from gnnexp.config.compose import compose
from gnnexp.datasets.base import Dataset
def digest(value):
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), list(value.shape), hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()]
    if isinstance(value, dict):
        return {key: digest(inner) for key, inner in sorted(value.items())}
    if hasattr(value, "__dataclass_fields__"):
        # A field that only one of the two versions has is None there.
        return {key: digest(inner) for key in value.__dataclass_fields__ if (inner := getattr(value, key)) is not None}
    return repr(value)
found = {}
for line in json.loads(sys.argv[1]):
    name, *more = line.split()
    try:
        graph = build(compose([f"dataset={name}", *more]).config["dataset"], Dataset).load()
        found[line] = {key: value for key, value in digest(graph).items() if key != "notes"}
    except Exception as error:
        print(f"{line}: {error}", file=sys.stderr)
print(json.dumps(found))
"""
_RUN_EACH = """
import json, sys
from gnnexp.cli.main import run_command
for arguments in json.loads(sys.argv[1]).values():
    run_command(arguments)
"""


def main() -> int:
    """Compare; 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", required=True, help="commit whose results are known")
    parser.add_argument("--data", default="digits,planetoid", help="datasets of the cases, each with overrides or not")
    parser.add_argument("--with", dest="more", nargs="*", default=[], help="overrides of all cases")
    parser.add_argument("--graphs", action="store_true", help="compare graphs only")
    parser.add_argument("--keep", type=Path, help="write the base's losses, counts and accuracies here, as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base, work = Path(folder) / "base", Path(folder) / "work"
        git("worktree", "add", "--detach", "-q", str(base), options.base)
        try:
            work.mkdir()
            cases = {} if options.graphs else cases_of(options.data.split(","), options.more)
            before = run_all(base, work / "base", cases)
            if options.keep:
                keep(options.keep, git("rev-parse", options.base), before)
            after = run_all(
                HERE,
                work / "here",
                {label: [*cases[label], *as_in(result["config"], cases[label])] for label, result in before.items()},
            )
            differing = differences(before, after)
            graphs = [loaded(tree, work) for tree in (base, HERE)]
            names = sorted({*graphs[0]} | {*graphs[1]})
            differing += [
                f"{name}: another graph ({', '.join(changed)})"
                for name in names
                if (changed := _changed(*(graph.get(name, {}) for graph in graphs)))
            ]
            print(f"{len(graphs[0])} of {len(LOADED)} data sets loaded: {', '.join(graphs[0])}")
            print("\n".join(differing) or f"{len(after)} runs are equal: losses, counts, accuracies")
            print("left out, since the base refuses them:", ", ".join(sorted({*cases} - {*before})) or "nothing")
            return int(bool(differing) or not (after or options.graphs))
        finally:
            git("worktree", "remove", "--force", str(base))


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Names of the parts of a graph that differ."""
    return sorted(name for name in {*before} | {*after} if before.get(name) != after.get(name))


def git(*words: str) -> str:
    """What git answers in this checkout."""
    done = subprocess.run(["git", "-C", str(HERE), *words], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def systems() -> list[str]:
    """Every preset."""
    return sorted(file.stem for file in (HERE / "conf" / "system").glob("*.yaml"))


def cases_of(datasets: Sequence[str], more: Sequence[str]) -> dict[str, list[str]]:
    """Overrides of every case by its label; a dataset may have some of its own behind its name."""
    return {
        f"{system} {data}": [f"system={system}", *f"dataset={data}".split(), *more]
        for data in datasets
        for system in systems()
    }


def keep(file: Path, commit: str, results: Mapping[str, Any]) -> None:
    """Write what the cases of a commit gave, and on which machine: bits are compared on a machine of that kind only."""
    found = {
        "commit": commit,
        "machine": describe(),
        "cases": {label: results_of(result) for label, result in results.items()},
    }
    file.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def run_all(tree: Path, folder: Path, cases: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The results of all cases that `tree` can run, by label; one launching process imports everything once."""
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(tree), "GNNEXP_CACHE": str(folder / "cache")}
    folders = {label: folder / label.replace(" ", "-").replace("=", "-") for label in cases}
    runs = {label: ["run", *overrides, *SMALL, f"hydra.run.dir={folders[label]}"] for label, overrides in cases.items()}
    subprocess.run(
        [sys.executable, "-c", _RUN_EACH, json.dumps(runs)],
        cwd=folder,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    files = {label: place / "result.json" for label, place in folders.items()}
    found = {label: json.loads(file.read_text(encoding="utf-8")) for label, file in files.items() if file.exists()}
    print(f"{tree.name}: {len(found)} of {len(cases)} cases ran", flush=True)
    return {label: result for label, result in found.items() if result["status"] == "finished"}


def loaded(tree: Path, folder: Path) -> dict[str, Any]:
    """Digests of every part of the graphs of `LOADED` that `tree` can load."""
    (folder / "edges.tsv").write_text("".join(f"{n}\t{(7 * n + 1) % 50}\n" for n in range(50)), encoding="utf-8")
    (folder / "labels.csv").write_text("".join(f"{n % 4}\n" for n in range(50)), encoding="utf-8")
    numpy.save(folder / "features.npy", numpy.arange(150, dtype=numpy.float32).reshape(50, 3))
    done = subprocess.run(
        [sys.executable, "-c", _LOAD_EACH, json.dumps(LOADED)],
        cwd=folder,
        check=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def as_in(config: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """Overrides that give this checkout the values of the base: presets may have changed, which changes results."""
    there, here = flat(config), flat(compose([*overrides, *SMALL]).config)
    return [f"{key}={json.dumps(value)}" for key, value in there.items() if key in here and here[key] != value]


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted keys."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What is not equal, in words."""
    found = [f"{label}: runs in one checkout only" for label in sorted({*before} ^ {*after})]
    for label in sorted({*before} & {*after}):
        pairs = zip(results_of(before[label]), results_of(after[label]), strict=True)
        found += [
            f"{label}, epoch {epoch}: {name} was {one.get(name)}, is {other.get(name)}"
            for epoch, (one, other) in enumerate(pairs)
            for name in sorted({*one} | {*other})
            if one.get(name) != other.get(name)
        ]
    return found


def results_of(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Losses of steps, counts and accuracies of each epoch; NaN as text, which is equal to itself."""
    return [
        {
            "losses": repr(epoch["losses"]),
            **{
                name: repr(value)
                for name, value in epoch["metrics"].items()
                if not name.startswith(_NO_RESULT) and "seconds" not in name and not name.endswith("_s")
            },
        }
        for epoch in result["epochs"]
    ]


if __name__ == "__main__":
    sys.exit(main())
