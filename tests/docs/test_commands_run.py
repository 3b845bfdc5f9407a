"""Every command of README, CONTRIBUTING and docs executed as it stands, in order, in one folder (`make test-slow`).

Where a command takes more than some seconds it is made smaller, by the overrides of the first table, typed after its
own. Of a sweep two cases run, for two epochs (`small_sweep`; `tests/test_conf.py` looks at all cases). The second table
has what cannot be executed here, and what covers it instead. Whatever is in none of these is executed as it stands.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from documented_commands import ROOT, Command, documented
from documents_place import linked_place, small_sweep, stopped_run

from gnnexp.datasets.base import ROOT_VARIABLE
from gnnexp.record.runs import find_runs

pytestmark = [pytest.mark.slow, pytest.mark.interpreter, pytest.mark.timeout(1200)]
COMMANDS = [command for command in documented() if not command.is_usage]

# Beginning of a command, overrides, why. The first line that fits is taken.
SMALLER: list[tuple[str, str, str]] = [
    ("gnnexp run dataset=planetoid", "train.epochs=5", "200 epochs"),
    ("gnnexp run dataset=aminer", "train.epochs=1 train.eval_every=0", "55,783 trained rows, 10 epochs"),
    (
        "gnnexp run task=link_prediction dataset=fb15k_237",
        "train.epochs=1 train.eval_every=0 feature_store.dim=8",
        "filtered ranks among 14,541 entities, 10 times",
    ),
    (
        "gnnexp run system=gsplit dataset=graphdata_npz",
        "train.epochs=1 hardware.threads=1",
        "amazon-computers, 4 ranks",
    ),
    ("gnnexp run system=gsplit hardware.workers=4 train.epochs=100", "train.epochs=3 hardware.threads=1", "100 epochs"),
    ("gnnexp run system=gsplit dataset=digits train=default", "train.epochs=2", "10 epochs of 4 ranks"),
    ("gnnexp run dataset=matrix_market", "train.epochs=20", "200 epochs"),
    ("gnnexp run model=gated", "train.epochs=3", "20 epochs"),
    ("gnnexp run paradigm=", "train.epochs=3", "20 epochs"),
    ("gnnexp partition dataset=dcsbm dataset.shape=arxiv_like", "dataset.scale=0.02", "169,343 vertices"),
    ("gnnexp calibrate", "--quick --out conf/hardware/here.yaml", "measures for a minute"),
]
# Beginning of a command, why it is not executed, what covers it.
ELSEWHERE: list[tuple[str, str, str]] = [
    ("make setup", "installs into .venv", "`.ci/run` starts with it on a clean checkout"),
    ("make run", "needs .venv", "`gnnexp sweep quickstart`, all that it does, is executed"),
    ("make resolution", "may fetch gigabytes", "`make setup` of `.ci/run` resolves for one build of torch"),
    ("make test", "this is it", "`make test`, test-slow, test-core, test-gpu, test-slurm are suites of their own"),
    ("make nightly", "it has this suite", "its parts are suites of their own"),
    ("make coverage", "it has most tests", "its parts are suites of their own"),
    ("make lint", "needs .venv", "`.ci/run`"),
    ("make bench", "takes an hour", "benchmarks/ is linted; its results are kept"),
    ("make peers", "downloads gigabytes and compiles for minutes", "tests/benchmarks/test_peers.py"),
    ("make gpu-proof", "needs a GPU", "`make gpu-proof-rehearsal`, tests/benchmarks"),
    ("python -m benchmarks.gpu.proof", "needs a GPU", "the same"),
    ("make torture", "takes as long as it is asked to", "`make torture-slice` in `.ci/run`, tests/torture"),
    ("python -m torture", "takes as long as it is asked to", "the same"),
    ("make ui", "serves until it is stopped", "tests/test_ui.py"),
    ("make docs", "needs the packages of the site", "its own tests"),
    ("make reproduce-small", "takes hours", "its sweeps are documented commands"),
    ("gnnexp ui", "serves until it is stopped", "tests/test_ui.py"),
    ("make wheel-smoke", "installs into a new environment", "`.ci/run`"),
    ("python -m venv env", "what the wheel is installed into", "`make wheel-smoke`"),
    ("python -m emulated_gpu -m pytest", "the suite of the emulated GPU", "`make test-emulated-gpu`"),
    ("python -m emulated_gpu my_script.py", "a script of the reader's", "tests/emulated_gpu/test_device.py"),
    ("python -m pytest examples/", "this suite", "testpaths of pyproject.toml"),
    ("python -m gnnexp.worker", "what every rank of the commands here runs", "them"),
    ("python -m gnnexp.cli.running.after_job", "the last line of a SLURM job", "tests/slurm"),
    ("gnnexp cancel RUN_DIR", "nobody works on a run that is over", "tests/slurm, tests/test_cli.py"),
    (
        "gnnexp run system=dgl hardware=slurm_gpu hardware.nodes=2 hardware.workers=4 hardware.launcher.partition=gpu "
        "hardware.launcher.time_min=240",
        "needs a cluster",
        "tests/slurm; checked by test_commands.py",
    ),
    ("gnnexp run system=dgl hardware=slurm_gpu hardware.nodes=2 hardware.workers=4", "needs a cluster", "the same"),
    ("gnnexp run system=dgl hardware=our_cluster --config-dir conf", "needs a cluster", "examples/cluster/tests"),
    ("gnnexp sweep gsplit_table3 --full hardware=our_cluster", "needs a cluster", "examples/cluster/tests"),
    ("gnnexp sweep hongtu_table8 --full", "needs a cluster", "checked by test_commands.py"),
    ("python -m http.server", "serves until it is stopped", "Python's own"),
    ("gnnexp report gsplit_table3_full", "needs a cluster's runs", "tests/reports; `gnnexp report quickstart`"),
    ("gnnexp sweep fb15k", "ranks links among 14,541 entities, for minutes", "the link command of recipes.md"),
]
# Of those, what no page may show at present.
OF_OTHER_PAGES = ("make ui", "make docs", "make reproduce-small", "make bench")


# What two epochs of a sweep's two cases would still take too long for.
SMALLER_SWEEPS: dict[str, list[str]] = {
    "ddi": ["train.epochs=1", "model.hidden=8", "feature_store.dim=8"],  # a million links, layers of 256 columns
}


def smaller(command: Command) -> list[str]:
    """What is typed after the command's own overrides."""
    return next((more.split() for start, more, _ in SMALLER if command.text.startswith(start)), [])


def elsewhere(command: Command) -> str | None:
    """Why it is not executed, None if it is."""
    shows = command.text.endswith("--cfg")
    return next(
        (f"{why}: {covered}" for start, why, covered in ELSEWHERE if command.text.startswith(start) and not shows), None
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where all of it happens, with a run that was stopped."""
    if not os.environ.get(ROOT_VARIABLE):
        pytest.skip(f"the documentation uses real data: set {ROOT_VARIABLE} to its root")
    with pytest.MonkeyPatch.context() as patch:
        folder = linked_place(tmp_path_factory.mktemp("documents"))
        patch.setenv("GNNEXP_CACHE", str(folder / "cache"))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        patch.chdir(folder)
        yield folder


def run(words: list[str], folder: Path) -> str:
    """Both streams of a command that must succeed: gnnexp, or `python -m` and a module."""
    module = words[2:] if words[:2] == ["python", "-m"] else words
    done = subprocess.run(
        [sys.executable, "-m", *module],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-4000:]}"
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command.place} {command.text}")
def test_it_does_what_it_says(command: Command, place: Path) -> None:
    if reason := elsewhere(command):
        pytest.skip(reason)
    folder, words = place / command.folder, command.words
    over = iter(
        [stopped_run(place)]
        if "resume" in words
        else [run.path.resolve() for run in find_runs(place / "runs") if run.status == "finished"]
    )
    words = [str(next(over)) if word == "RUN_DIR" else word for word in words]
    words = [word.replace("FOLDER", "graph") for word in words]
    options = [word for word in words if word.startswith("--")]
    before = {run.path for run in find_runs(folder / "runs")}
    if words[1] == "sweep" and "--dry-run" not in options:
        end = words.index(options[0]) if options else len(words)
        name, *overrides = words[2:end]
        small = small_sweep(folder, name, overrides)
        words = [*words[:2], small, *SMALLER_SWEEPS.get(name, ["train.epochs=2"]), *words[end:]]
    said = run([*words, *smaller(command)], folder)
    made = [run for run in find_runs(folder / "runs") if run.path not in before]
    assert all(run.status == "finished" for run in made), said[-4000:]
    if words[1] in ("run", "sweep") and not {"--cfg", "--dry-run"} & set(options):
        assert made or "finished before" in said
    else:
        assert said.strip()


def test_what_is_in_the_tables_is_documented() -> None:
    """A line that fits no command is old."""
    for start, *_ in [*SMALLER, *ELSEWHERE]:
        assert start in OF_OTHER_PAGES or any(command.text.startswith(start) for command in COMMANDS), start
    assert not [start for start, _, _ in SMALLER if elsewhere(Command(start, "")) is not None]
