"""Whatever is at the path of a file argument, the command ends within seconds with exit code 2, key, value and fix.

Every argument of every command, and every key of the configuration that names a file, must be in one of the tables
here: a new one that is in none fails the first tests.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest
from hostile_places import KINDS, LIMIT_S, Ending, Unprivileged, hostile
from recording_tracker import RecordingTracker
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.main import make_parser
from gnnexp.config.folders import product_folder

TIERS = ("cached", "cached_whole", "cached_owned", "cached_presampled", "sharded", "sharded_micro")
# What an argument's value is: a file or folder that is read, or one that is made.
READS_FILE, READS_FOLDER, MAKES_FILE, MAKES_FOLDER = "reads a file", "reads a folder", "makes a file", "makes a folder"
# What is no mistake where a file or folder is made: it is made, or replaced.
HARMLESS = {
    MAKES_FILE: {"missing", "empty", "binary", "sparse"},
    MAKES_FOLDER: {"missing", "folder"},
    READS_FILE: set(),
    READS_FOLDER: set(),
}

# What the one opener (gnnexp/files/regular.py) refuses, whatever reads. Each key of a file has one of these, in turns.
# So has each command with a folder of configurations: `run` reads it as all do.
# All of them, for all keys and commands: `test_a_hostile_path_as_a_real_command`.
OPENED = ("missing", "closed", "loop", "fifo", "long")

# Command and argument: what its value is, and a command line with PATH in its place.
ARGUMENTS: dict[tuple[str, str], tuple[str, list[str], str]] = {
    ("run", "config_dir"): (READS_FOLDER, ["run", "--config-dir", "PATH"], ""),
    ("count", "config_dir"): (READS_FOLDER, ["count", "--dry-run", "--config-dir", "PATH"], ""),
    ("sweep", "config_dir"): (READS_FOLDER, ["sweep", "small.yaml", "--dry-run", "--config-dir", "PATH"], ""),
    ("tune", "config_dir"): (READS_FOLDER, ["tune", "small.yaml", "--dry-run", "--config-dir", "PATH"], ""),
    ("plan", "config_dir"): (READS_FOLDER, ["plan", "good", "--hardware", "p3_8xlarge", "--config-dir", "PATH"], ""),
    ("calibrate", "config_dir"): (READS_FOLDER, ["calibrate", "--quick", "--config-dir", "PATH"], ""),
    ("partition", "config_dir"): (READS_FOLDER, ["partition", "--config-dir", "PATH"], ""),
    ("data", "path"): (READS_FOLDER, ["data", "PATH"], ""),
    ("data", "save"): (MAKES_FILE, ["data", "edges.tsv", "--save", "PATH"], ".yaml"),
    ("data", "picture"): (MAKES_FILE, ["data", "edges.tsv", "--picture", "PATH"], ".png"),
    ("predict", "run"): (READS_FOLDER, ["predict", "PATH"], ""),
    ("predict", "out"): (MAKES_FILE, ["predict", "good", "--out", "PATH"], ".csv"),
    ("predict", "links"): (READS_FILE, ["predict", "good", "--links", "PATH"], ".csv"),
    ("sweep", "name"): (READS_FILE, ["sweep", "PATH", "--dry-run"], ".yaml"),
    ("tune", "name"): (READS_FILE, ["tune", "PATH", "--dry-run"], ".yaml"),
    ("tune", "out"): (MAKES_FOLDER, ["tune", "tuning", "--dry-run", "--out", "PATH"], ""),
    ("run", "out"): (MAKES_FOLDER, ["run", "-m", "seed=0,1", "--dry-run", "--out", "PATH"], ""),
    ("sweep", "out"): (MAKES_FOLDER, ["sweep", "quickstart", "--dry-run", "--out", "PATH"], ""),
    ("prepare", "config_dir"): (READS_FOLDER, ["prepare", "--config-dir", "PATH"], ""),
    ("finalize", "run"): (READS_FOLDER, ["finalize", "PATH"], ""),
    ("resume", "run"): (READS_FOLDER, ["resume", "PATH"], ""),
    ("status", "run"): (READS_FOLDER, ["status", "PATH"], ""),
    ("cancel", "run"): (READS_FOLDER, ["cancel", "PATH"], ""),
    ("logs", "run"): (READS_FOLDER, ["logs", "PATH"], ""),
    ("report", "names"): (READS_FOLDER, ["report", "PATH", "good"], ""),
    ("report", "out"): (MAKES_FOLDER, ["report", "good", "--csv", "--out", "PATH"], ""),
    ("plan", "names"): (READS_FOLDER, ["plan", "PATH", "--hardware", "p3_8xlarge"], ""),
    ("claims", "out"): (MAKES_FOLDER, ["claims", "gsplit", "--out", "PATH"], ""),
    ("export", "out"): (MAKES_FILE, ["export", "good", "--out", "PATH"], ".parquet"),
    ("import", "files"): (READS_FILE, ["import", "PATH"], ".parquet"),
    ("calibrate", "out"): (MAKES_FILE, ["calibrate", "--quick", "--out", "PATH"], ".yaml"),
    ("run", "origin"): (READS_FOLDER, ["run", "--from", "PATH"], ""),
    ("list", "config_dir"): (READS_FOLDER, ["list", "systems", "--config-dir", "PATH"], ""),
    ("export", "names"): (READS_FILE, ["export", "PATH"], ".yaml"),
    ("rekey", "folders"): (READS_FOLDER, ["rekey", "PATH"], ""),
}
# A sweep of one case, which may be tuned.
SMALL = """
fixed: [train=default]
axes: {system: [dgl]}
tune: {distributions: {optimizer.lr: {low: 0.1, high: 1}}, trials: 1}
"""
# Arguments that are no path: a switch, a number, or one of names that are known.
NO_PATH = {
    *(
        (command, "overrides")  # see KEYS
        for command in (
            "data",
            "run",
            "count",
            "predict",
            "prepare",
            "sweep",
            "tune",
            "resume",
            "calibrate",
            "partition",
        )
    ),
    ("data", "label"),
    ("data", "sample"),
    ("data", "whole"),
    ("predict", "probabilities"),
    ("predict", "trust"),
    ("predict", "embeddings"),
    ("predict", "last"),
    ("export", "to"),
    ("export", "trust"),
    *(
        (command, name)
        for command in ("run", "sweep", "tune")
        for name in ("jobs", "dry_run", "rerun", "accept_foreign", "changed_code", "same_code")
    ),
    ("rekey", "dry_run"),
    ("count", "dry_run"),
    ("count", "json"),
    ("rekey", "json"),
    ("run", "print_script"),
    ("sweep", "print_script"),
    ("tune", "trials"),
    ("run", "multirun"),
    ("sweep", "full"),
    ("sweep", "until"),
    ("sweep", "most_seeds"),
    ("sweep", "retries"),
    *(("run", name) for name in ("cfg", "info", "package", "resolve", "shell_completion")),
    *((command, "config_name") for command in ("run", "count", "prepare", "sweep", "tune", "calibrate", "partition")),
    ("resume", "changed_code"),
    ("resume", "job_ended"),
    ("resume", "trust"),
    ("cancel", "trust"),
    ("finalize", "trust"),
    ("logs", "rank"),
    ("logs", "follow"),
    ("report", "sort"),
    ("report", "rows"),
    ("report", "markdown"),
    ("report", "csv"),
    ("report", "latex"),
    ("report", "parquet"),
    ("report", "pdf"),
    ("report", "against"),
    ("report", "sync"),
    ("plan", "hardware"),
    ("plan", "scale"),
    ("claims", "papers"),
    ("calibrate", "quick"),
    ("ui", "port"),
    ("ui", "host"),
    ("ui", "no_secret"),
    ("ui", "experiment"),
    ("completion", "shell"),
    ("list", "kind"),
    ("list", "all"),
    ("status", "all"),
    ("sweep", "list"),
    ("run", "trust"),
    *(
        (command, "json")
        for command in (
            "data",
            "predict",
            "run",
            "prepare",
            "finalize",
            "resume",
            "list",
            "status",
            "sweep",
            "tune",
            "report",
            "plan",
            "claims",
            "partition",
            "calibrate",
            "info",
        )
    ),
}
# Files that a command finds by itself below a folder that it is given, by what it is given: PLACE is where they are.
FOUND = {
    "config-dir/hardware/own.yaml": [
        ["run", "hardware=own", "--config-dir", "config-dir"],
        ["plan", "good", "--hardware", "own", "--config-dir", "config-dir"],
    ],
    "config-dir/config.yaml": [["run", "--config-dir", "config-dir"], ["run", "--info", "--config-dir", "config-dir"]],
    "config-dir/mine.yaml": [["run", "--config-name", "mine", "--config-dir", "config-dir"]],
    "config-dir/experiment/mine.yaml": [["run", "+experiment=mine", "--config-dir", "config-dir"]],
    "conf/config.yaml": [["run"], ["sweep", "small.yaml", "--dry-run"]],
    "bad/job.json": [
        ["resume", "bad"],
        ["status", "bad"],
        ["cancel", "bad"],
        ["logs", "bad"],
        ["report", "--sync", "bad"],
    ],
    "bad/result.json": [
        ["report", "bad"],
        ["report", "compare", "bad", "good"],
        ["report", "--sync", "bad"],
        ["plan", "bad", "--hardware", "p3_8xlarge"],
        ["export", "both"],
        ["status", "bad"],
    ],
    "bad/epochs.jsonl": [["status", "bad"], ["report", "--sync", "bad"]],
    "bad/delivery.json": [["report", "--sync", "bad"]],
    "runs/sweeps/worse.json": [["report", "worse"], ["export", "worse"], ["plan", "worse", "--hardware", "p3_8xlarge"]],
    "runs/sweeps/gsplit_table1.json": [["claims", "gsplit"]],
}
# Keys of the configuration that name files: a command line with PATH, and the suffix.
EDGES = ["partition", "dataset=edge_list", "dataset.path=edges.tsv"]
SPLIT = [*EDGES, "dataset.labels=labels.txt", "dataset.split=files"]
TABLES = ["partition", "dataset=tables", "dataset.path=.", "dataset.edges=edges.tsv"]
MATRIX = ["partition", "dataset=matrix", "dataset.path=pairs.mtx"]
METIS = ["partition", "dataset=metis", "dataset.path=pairs.graph"]
KEYS: dict[str, tuple[list[str], str]] = {
    "dataset.aminer.path": (["partition", "dataset=aminer", "dataset.path=PATH"], ""),
    "dataset.dgl_graph.path": (["partition", "dataset=dgl_graph", "dataset.path=PATH"], ".bin"),
    "dataset.dgl_partitions.path": (["partition", "dataset=dgl_partitions", "dataset.path=PATH"], ".json"),
    "dataset.edge_list.path": (["partition", "dataset=edge_list", "dataset.path=PATH"], ".npy"),
    "dataset.edge_list.features": ([*EDGES, "dataset.features=PATH"], ".npy"),
    "dataset.edge_list.node_types": ([*EDGES, "dataset.node_types=PATH"], ".npy"),
    "dataset.edge_list.labels": ([*EDGES, "dataset.labels=PATH"], ".npy"),
    "dataset.edge_list.train_ids": (
        [*SPLIT, "dataset.train_ids=PATH", "dataset.val_ids=two.txt", "dataset.test_ids=two.txt"],
        ".npy",
    ),
    "dataset.edge_list.val_ids": (
        [*SPLIT, "dataset.val_ids=PATH", "dataset.train_ids=two.txt", "dataset.test_ids=two.txt"],
        ".npy",
    ),
    "dataset.edge_list.test_ids": (
        [*SPLIT, "dataset.test_ids=PATH", "dataset.train_ids=two.txt", "dataset.val_ids=two.txt"],
        ".npy",
    ),
    "dataset.fb100.path": (["partition", "dataset=fb100", "dataset.path=PATH"], ".mat"),
    "dataset.gnnexp_format.path": (["partition", "dataset=gnnexp_format", "dataset.path=PATH"], ""),
    "dataset.graphdata_npz.path": (["partition", "dataset=graphdata_npz", "dataset.path=PATH"], ".npz"),
    "dataset.graphbolt.path": (["partition", "dataset=graphbolt", "dataset.path=PATH"], ""),
    "dataset.heterophilous_npz.path": (["partition", "dataset=heterophilous_npz", "dataset.path=PATH"], ".npz"),
    "dataset.matrix.path": (["partition", "dataset=matrix", "dataset.path=PATH"], ".npz"),
    "dataset.matrix.features": ([*MATRIX, "dataset.features=PATH"], ".npy"),
    "dataset.matrix.labels": ([*MATRIX, "dataset.labels=PATH"], ".txt"),
    "dataset.metis.path": (["partition", "dataset=metis", "dataset.path=PATH"], ".graph"),
    "dataset.metis.features": ([*METIS, "dataset.features=PATH"], ".csv"),
    "dataset.metis.labels": ([*METIS, "dataset.labels=PATH"], ".npy"),
    "dataset.networkx.path": (["partition", "dataset=networkx", "dataset.path=PATH"], ".graphml"),
    "dataset.ogb.path": (["partition", "dataset=ogb", "dataset.path=PATH"], ""),
    "dataset.planetoid.path": (["partition", "dataset=planetoid", "dataset.path=PATH"], ""),
    "dataset.pyg.path": (["partition", "dataset=pyg", "dataset.path=PATH"], ".pt"),
    "dataset.tables.path": (["partition", "dataset=tables", "dataset.path=PATH"], ""),
    "dataset.tables.edges": (["partition", "dataset=tables", "dataset.path=.", "dataset.edges=PATH"], ".csv"),
    "dataset.tables.nodes": ([*TABLES, "dataset.nodes=PATH"], ".parquet"),
    "dataset.tables.features": ([*TABLES, "dataset.features=PATH"], ".npy"),
    "dataset.triples.path": (["partition", "dataset=triples", "dataset.path=PATH"], ".tar.gz"),
    "partitioner.stored.path": (["partition", *EDGES[1:], "partitioner=stored", "partitioner.path=PATH"], ""),
    "hydra.run.dir": (["run", "train.epochs=0", "hydra.run.dir=PATH"], ""),
}
# Keys whose name or comment sounds like a file's and that are none.
NO_FILE = {
    "paradigm.vertex_parallel.smooth_features": "a number",
    "system.pipegcn_gf.smooth_features": "a number",
    "dataset.aminer.features": "a word",
    "dataset.aminer.verify": "a switch",
    "dataset.planetoid.verify": "a switch",
    "dataset.tables.no_label": "a label",
    "dataset.tables.path_columns": "names of columns",
    "dataset.edge_list.split": "a word",
    "dataset.edge_list.pairs": "a word",
    "dataset.edge_list.streamed": "a switch",
    "dataset.edge_list.features_by_type": "a switch",
    "dataset.ogb.features_by_type": "a switch",
    "dataset.ogb.scheme": "a name inside of the dataset's folder",
    "dataset.ogb.download": "a switch",
    "dataset.ogb.edge_features": "a switch",
    **dict.fromkeys((f"feature_store.{name}.tier" for name in TIERS), "a word"),
    "dataset.networkx.label": "an attribute",
    "dataset.networkx.features": "attributes",
    "dataset.networkx.directed": "a switch",
    "dataset.matrix.source": "a word",
    "dataset.pyg.features": "an attribute",
    "dataset.pyg.label": "an attribute",
    "dataset.pyg.ids": "an attribute",
    "dataset.tables.split": "a word",
    **dict.fromkeys(
        (f"dataset.{family}.name" for family in ("aminer", "fb100", "graphdata_npz", "heterophilous_npz", "ogb")),
        "a name of published data",
    ),
    "dataset.heterophilous_npz.split_index": "a number",
    "dataset.tables.label_kind": "a word",
    "dataset.tables.label": "a column",
    "dataset.tables.source": "a column",
    "dataset.tables.delimiter": "a sign",
    "dataset.dgl_graph.features": "a name",
    "dataset.dgl_graph.label": "a name",
    "dataset.dgl_graph.graph": "a number",
    "dataset.dgl_partitions.features": "a name",
    "dataset.dgl_partitions.label": "a name",
    "dataset.graphbolt.features": "a name",
    "dataset.dgl_builtin.path": "DGL makes it and downloads into it; nothing of ours reads it",
    "dataset.dcsbm.num_features": "a number",
    "dataset.configuration.num_features": "a number",
    "dataset.configuration.ids": "a word",
    "dataset.configuration.directed": "a switch",
    "dataset.configuration.label_noise": "a number",
    "dataset.rmat.num_features": "a number",
    "dataset.rmat.ids": "a word",
    "dataset.dcsbm.ids": "a word",
    "dataset.aminer.labelled_per_class": "a number",
    "dataset.dcsbm.label_noise": "a number",
    "dataset.rmat.label_noise": "a number",
    "dataset.graphdata_npz.normalize_features": "a switch",
    "dataset.planetoid.normalize_features": "a switch",
    "dataset.planetoid.missing_features": "a word",
    "paradigm.offload.host": "a word",
    "paradigm.external.files": "files of any kind: tests/paradigms/external/test_files.py",
    "paradigm.vertex_parallel.dependency": "a word",
    "tracker.mlflow.uri": "an address: tests/trackers",
    "hardware.source": "a sentence",
    "hardware.time_min": "a duration",
    "hardware.mounts": "folders of a cluster's nodes",
}
_SOUNDS = re.compile(r"path|dir|uri|url|file|feature|label|(^|_)ids$|types|source")
_EXPLAINED = re.compile(r"file|folder|\.np[yz]", re.IGNORECASE)


# --- the tables are whole --------------------------------------------------------------------------------------------
def test_every_argument_is_in_a_table() -> None:
    found = {(name, action.dest) for name, parser in commands() for action in parser._actions if action.dest != "help"}
    assert found - ARGUMENTS.keys() - NO_PATH == set(), "a new argument: does it take a path?"
    assert (ARGUMENTS.keys() | NO_PATH) - found == set(), "gone"
    assert ARGUMENTS.keys() & NO_PATH == set()


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    (groups,) = (action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction))
    yield from groups.choices.items()


def test_every_key_that_names_a_file_is_in_a_table() -> None:
    conf = product_folder("conf")
    found = {"hydra.run.dir"}
    for file in sorted(conf.glob("*/*.yaml")):
        for line in file.read_text().splitlines():
            key, colon, rest = line.strip().partition(":")
            if colon and key.isidentifier() and (_SOUNDS.search(key) or _EXPLAINED.search(rest.partition("#")[2])):
                group = file.parent.name
                found.add(f"hardware.{key}" if group == "hardware" else f"{group}.{file.stem}.{key}")
    assert found - KEYS.keys() - NO_FILE.keys() == set(), "a new key: does it name a file?"
    assert (KEYS.keys() | NO_FILE.keys()) - found == set(), "gone"


# --- what is wrong ends well -----------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def unprivileged() -> Iterator[Unprivileged]:
    process = Unprivileged()
    yield process
    process.close()


def test_the_process_is_unprivileged(unprivileged: Unprivileged, place: Path) -> None:
    closed = hostile(place / "closed", "closed")
    read = [*unprivileged.command, "-c", "import sys; open(sys.argv[1])", str(closed)]
    assert "PermissionError" in subprocess.run(read, capture_output=True, text=True, check=False).stderr


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that anybody may enter, with a run, a sweep, a folder of configurations and a few edges."""
    folder = Path(tempfile.mkdtemp(prefix="gnnexp-arguments-"))
    folder.chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GNNEXP_CACHE", str(folder / "cache"))
    monkeypatch.delenv("GNNEXP_DATA", raising=False)
    for name in ("good", "bad"):
        make_run(folder / name)
    states = folder / "runs" / "sweeps"
    states.mkdir(parents=True)
    for name, runs in (("good", ["good"]), ("both", ["good", "bad"])):
        cases = ", ".join(f'{{"label": "{run}", "run_dir": "{run}", "status": "finished"}}' for run in runs)
        (states / f"{name}.json").write_text(f'{{"name": "{name}", "cases": [{cases}]}}')
    (folder / "config-dir" / "hardware").mkdir(parents=True)
    (folder / "small.yaml").write_text(SMALL)
    write_edges(folder)
    yield folder
    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(folder)


def write_edges(folder: Path) -> None:
    """A path of 21 vertices, with rows of features, labels and ids."""
    (folder / "edges.tsv").write_text("".join(f"{n}\t{n + 1}\n" for n in range(20)))
    (folder / "pairs.mtx").write_text("%%MatrixMarket matrix coordinate pattern symmetric\n2 2 1\n2 1\n")
    (folder / "pairs.graph").write_text("2 1\n2\n1\n")
    (folder / "labels.txt").write_text("0\n1\n1\n" * 7)
    (folder / "rows.txt").write_text("0.5 1\n" * 21)
    (folder / "ids.txt").write_text("0\n1\n")
    (folder / "two.txt").write_text("2\n3\n")


def make_run(run_dir: Path) -> None:
    write_job(run_dir, dataset_key="x")
    job = json.loads((run_dir / "job.json").read_text())
    job["config"]["tracker"]["_target_"] = f"{RecordingTracker.__module__}.RecordingTracker"
    (run_dir / "job.json").write_text(json.dumps(job))
    write_epochs(run_dir, 2)
    write_result(run_dir)


def check(endings: Sequence[Ending], names: Sequence[str]) -> None:
    wrong = [found for ending in endings if (found := ending.wrong(names))]
    assert wrong == [], "\n\n".join(wrong)


def typed(command: Sequence[str], path: Path) -> list[str]:
    return [word.replace("PATH", str(path)) for word in command]


def argument_cases(
    place: Path, what: str, command: Sequence[str], suffix: str, left_out: Collection[str] = ()
) -> list[list[str]]:
    """The command once for every kind of place that is a mistake for it."""
    return [
        typed(command, hostile(place / "hostile" / kind / f"it{suffix}", kind))
        for kind in KINDS
        if kind not in HARMLESS[what] and kind not in left_out
    ]


@pytest.mark.parametrize("argument", ARGUMENTS, ids=" ".join)
def test_a_hostile_path_as_an_argument(unprivileged: Unprivileged, place: Path, argument: tuple[str, str]) -> None:
    what, command, suffix = ARGUMENTS[argument]
    flag = next(
        (word for word in command if word.startswith("--") and "PATH" in command[command.index(word) + 1 :][:1]),
        command[0],
    )
    alike = argument[1] == "config_dir" and argument[0] != "run"
    left_out = left_out_in([*ARGUMENTS].index(argument)) if alike else set()
    check(unprivileged.run(place, argument_cases(place, what, command, suffix, left_out)), ["hostile/", flag])


def left_out_in(turn: int) -> set[str]:
    return {OPENED[(turn + more) % len(OPENED)] for more in (0, 1, 2, 3)}


@pytest.mark.parametrize("found", FOUND)
def test_a_hostile_file_in_a_folder_that_is_given(unprivileged: Unprivileged, place: Path, found: str) -> None:
    """All kinds but what is harmless there: a record that is missing, a folder of configurations that lacks a file."""
    for kind in ("empty", "binary", "closed", "loop", "fifo", "sparse", "folder"):
        if kind == "empty" and found.endswith((".yaml", ".jsonl")):
            continue  # no epochs; no keys
        file = place / found
        if file.exists():
            file.unlink()
        hostile(file, kind)
        if found == "bad/epochs.jsonl":
            (place / "bad" / "result.json").unlink(missing_ok=True)
            write_result(place / "good")
        check(unprivileged.run(place, FOUND[found]), [str(Path(found).name), "bad", "own", "mine"])
        for left in (file, file.with_name(f"{file.name}.other")):
            if left.is_dir() and not left.is_symlink():
                left.rmdir()
            elif os.path.lexists(left):
                left.unlink()


# One loop reads the ids of all three sets.
@pytest.mark.parametrize(
    "key",
    [pytest.param(key, marks=pytest.mark.slow) if key.endswith((".val_ids", ".test_ids")) else key for key in KEYS],
)
def test_a_hostile_path_in_the_configuration(unprivileged: Unprivileged, place: Path, key: str) -> None:
    command, suffix = KEYS[key]
    what = MAKES_FOLDER if key == "hydra.run.dir" else READS_FILE
    left_out = left_out_in([*KEYS].index(key)) if suffix else set()
    check(unprivileged.run(place, argument_cases(place, what, command, suffix, left_out)), ["hostile/", named(key)])


def named(key: str) -> str:
    """As a problem names a key of the tables: without the choice of its group."""
    group, _, rest = key.partition(".")
    return key if group == "hydra" else f"{group}.{rest.partition('.')[2]}"


# --- as real commands ------------------------------------------------------------------------------------------------
# An interpreter for each case takes 17 CPU seconds a name: `make test-slow` has every sixth name.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.nightly if place % 6 else pytest.mark.slow)
        for place, name in enumerate([*map(" ".join, ARGUMENTS), *KEYS])
    ],
)
def test_a_hostile_path_as_a_real_command(place: Path, name: str) -> None:
    if name in KEYS:
        what, (command, suffix) = MAKES_FOLDER if name == "hydra.run.dir" else READS_FILE, KEYS[name]
    else:
        what, command, suffix = ARGUMENTS[tuple(name.split())]  # type: ignore[index]
    endings = []
    for case in argument_cases(place, what, command, suffix):
        # On a busy machine starting Python and importing take longer than a command may.
        done = subprocess.run(
            [*Unprivileged().command, "-m", "gnnexp", *case],
            capture_output=True,
            text=True,
            check=False,
            timeout=6 * LIMIT_S,
        )
        endings.append(Ending(case, done.returncode, done.stderr))
    check(endings, ["hostile/", named(name) if name in KEYS else "--"])
