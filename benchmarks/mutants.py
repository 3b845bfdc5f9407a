"""Planted mistakes and the tests that find them: `python benchmarks/mutants.py [--only WORDS]`.

Each mutant of `mutants.toml` is one edit of the core. It is made in a checkout of the last commit, and its tests run
there: one that passes them all has survived, which is a hole in the tests. The test that found it the last time runs
first. All tests are first run without any edit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from same_results import HERE, git

TABLE = Path(__file__).with_suffix(".toml")
RESULTS = HERE / "benchmarks" / "results" / "mutants.json"
TIMEOUT_S = 2400


@dataclass(frozen=True)
class Mutant:
    """One planted mistake.

    Attributes:
        name: what is wrong with it.
        old: text that occurs once in the sources of gnnexp.
        new: what stands there instead.
        tests: files and folders of tests, of which at least one test must fail.
        run: `cpu`, or `emulated` for the tests of the path to a GPU on the emulated device.
    """

    name: str
    old: str
    new: str
    tests: tuple[str, ...]
    run: str = "cpu"


def read_mutants() -> list[Mutant]:
    """All of the table."""
    with TABLE.open("rb") as file:
        rows = tomllib.load(file)["mutant"]
    return [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def place_of(mutant: Mutant, tree: Path) -> Path:
    """The one file of `tree` that has the old text.

    Raises:
        ValueError: several have it, or none, or it stands there more than once.
    """
    found = [file for file in (tree / "gnnexp").rglob("*.py") if mutant.old in file.read_text(encoding="utf-8")]
    if len(found) != 1 or found[0].read_text(encoding="utf-8").count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: its old text must occur once in gnnexp/, and is in {found}")
    return found[0]


@contextmanager
def planted(mutant: Mutant, tree: Path) -> Iterator[None]:
    """`tree` with the mistake; the sources are as before afterwards."""
    file = place_of(mutant, tree)
    before = file.read_text(encoding="utf-8")
    file.write_text(before.replace(mutant.old, mutant.new), encoding="utf-8")
    if "njit" in before:
        forget_kernels(tree)
    try:
        yield
    finally:
        file.write_text(before, encoding="utf-8")
        if "njit" in before:
            forget_kernels(tree)


def forget_kernels(tree: Path) -> None:
    """Remove numba's compiled kernels: a caller in another file keeps the code of what it calls."""
    for file in tree.rglob("__pycache__/*.nb[ic]"):
        file.unlink()


def failing(tests: Sequence[str], run: str, tree: Path) -> str:
    """The first test that fails in `tree`, or what ended pytest; empty if all pass."""
    beside = ["-n", "2", "--dist", "worksteal"] if len(tests) > 1 or "::" not in tests[0] else []
    pytest = ["-m", "pytest", "-x", *beside, "-p", "no:cacheprovider", *tests]
    command = [sys.executable, *pytest]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    if run == "emulated":
        command = [sys.executable, "-m", "emulated_gpu", *pytest, "-m", "gpu and not slow and not nightly"]
        environment |= {"GNNEXP_EMULATED_GPUS": "2", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, text=True, capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no end within {TIMEOUT_S} s"
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return lines[0] if lines else f"exit code {done.returncode}: {done.stdout[-300:]}"


def one_of(line: str) -> tuple[str, ...]:
    """The test that a line of pytest's summary names: `FAILED tests/test_a.py::test_b[c] - AssertionError`."""
    word, _, rest = line.partition(" ")
    return (rest.partition(" - ")[0],) if word in {"FAILED", "ERROR"} and "::" in rest else ()


def still_there(known: Mapping[str, str], mutants: Sequence[Mutant], tree: Path) -> dict[str, tuple[str, ...]]:
    """The test that found each mutant the last time, of those that still exist."""
    tests = {mutant.name: one_of(known.get(mutant.name, "")) for mutant in mutants if mutant.run == "cpu"}
    files = sorted({test.partition("::")[0] for found in tests.values() for test in found})
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", *files],
        cwd=tree,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        check=False,
    ).stdout
    there = set(listed.splitlines())
    return {name: found for name, found in tests.items() if found and set(found) <= there}


def main() -> int:
    """Plant all of them, one after the other; 1 if one survives, or a test fails without any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="whose name has these words; results of others are kept")
    parser.add_argument("--planted-only", action="store_true", help="the tests have just passed without any mutant")
    options = parser.parse_args()
    chosen = [mutant for mutant in read_mutants() if options.only in mutant.name]
    known = json.loads(RESULTS.read_text(encoding="utf-8"))["found_by"] if RESULTS.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git("worktree", "add", "--detach", "-q", str(tree), "HEAD")
        try:
            suites = (
                {}
                if options.planted_only
                else {
                    run: sorted({test for mutant in chosen if mutant.run == run for test in mutant.tests})
                    for run in {mutant.run for mutant in chosen}
                }
            )
            broken = [f"without a mutant: {why}" for run, tests in suites.items() if (why := failing(tests, run, tree))]
            first = {} if broken else still_there(known, chosen, tree)
            found: dict[str, str] = (
                {}
                if broken
                else {mutant.name: killed_by(mutant, first.get(mutant.name, ()), tree) for mutant in chosen}
            )
        finally:
            git("worktree", "remove", "--force", str(tree))
    survived = [name for name, by in found.items() if not by]
    print("\n".join([*broken, *(f"survived: {name}" for name in survived)]))
    print(f"{len(found) - len(survived)} of {len(found)} mutants were found by tests")
    if found:
        kept = known if options.only else {}
        RESULTS.write_text(
            json.dumps({"commit": git("rev-parse", "HEAD"), "found_by": {**kept, **found}}, indent=1) + "\n",
            encoding="utf-8",
        )
    return int(bool(broken or survived or not found))


def killed_by(mutant: Mutant, first: Sequence[str], tree: Path) -> str:
    """The test that finds it, looked for in `first` first; empty if it survives."""
    start = time.perf_counter()
    with planted(mutant, tree):
        found = failing(first, mutant.run, tree) if first else ""
        found = found or failing(mutant.tests, mutant.run, tree)
    print(f"{mutant.name}: {found or 'SURVIVED'} ({time.perf_counter() - start:.0f} s)", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
