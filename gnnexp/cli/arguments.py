"""The commands, with their arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gnnexp.config.folders import PRIMARY

Argument = tuple[tuple[str, ...], dict[str, Any]]


def _option(*names: str, **more: object) -> Argument:
    """The arguments of an `add_argument` call."""
    return names, more


def _flag(*names: str, help: str) -> Argument:
    return names, {"action": "store_true", "help": help}


_PRINT_SCRIPT = _flag("--print-script", help="print the job script that would be submitted to SLURM, submit nothing")


def _queue(rerun: str) -> tuple[Argument, ...]:
    """Options of commands that run several cases."""
    return (
        _option(
            "--jobs",
            type=int,
            default=1,
            metavar="N",
            help="how many runs at a time on this machine, each on its own cores and GPUs",
        ),
        _flag("--dry-run", help="check, show what would run and what it needs, start nothing"),
        _flag("--rerun", help=rerun),
        _flag(
            "--accept-foreign",
            help="also accept finished runs of other kinds of machines, and imported runs: their times differ",
        ),
        _flag("--changed-code", help="also accept finished runs of an earlier gnnexp whose results may differ"),
        _flag("--same-code", help="accept only finished runs that exactly this code of gnnexp made"),
        _option("--out", metavar="DIR", help="folder of the report (default: reports/<name>)"),
    )


_OVERRIDES = (
    _option("overrides", nargs="*", default=[], metavar="key=value", help="group=choice or group.key=value"),
    _option("--config-dir", "-cd", metavar="DIR", help="folder with your own <group>/<choice>.yaml"),
    _option(
        "--config-name",
        "-cn",
        metavar="NAME",
        default=PRIMARY,
        help="file to start from (default: config), in your folder or gnnexp's",
    ),
)
_CFG, _INFO = ("job", "hydra", "all"), ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
# What a flag means without a value, and the values that it may have.
_BARE = {"--cfg": ("--cfg=resolved", _CFG), "--info": ("--info=all", _INFO)}
_BARE |= {"-c": _BARE["--cfg"], "-i": _BARE["--info"]}
_KEY = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
# Hydra's flags, which print something and run nothing.
_HYDRA = (
    _option(
        "--cfg",
        "-c",
        choices=("resolved", *_CFG),
        help="print the configuration: of the job, of Hydra or both; a key, or nothing: that part of the resolved "
        "job, or all of it",
    ),
    _flag("--resolve", help="with --cfg: resolve interpolations"),
    _option("--package", "-p", metavar="KEY", help="with --cfg: only this part of the configuration"),
    _option("--info", "-i", choices=_INFO, help="print how Hydra composes the configuration; without a value: all"),
    _flag("--shell-completion", "-sc", help="install=bash or install=zsh: print a script for eval"),
)
_RUN_DIR = _option("run", metavar="RUN_DIR", help="the run's directory; latest = the one that was started last")
_JSON = _flag("--json", help="print one JSON document on standard output, and all else on standard error")
_ALL = _flag("--all", help="all runs, not only the 20 that were started last")
_TRUST = _flag(
    "--trust",
    help="accept also a run of another user: its files decide what is executed, and which process gets a signal",
)
# Commands that take overrides.
COMPOSING = ("run", "count", "prepare", "sweep", "tune", "partition", "calibrate")
# The commands by name: purpose, module in `gnnexp.cli.commands` (or its whole name), function in it, arguments.
COMMANDS: Mapping[str, tuple[str, str, str, Sequence[Argument]]] = {
    "data": (
        "what a file or a folder of your own data holds, and the command that trains on it",
        "data",
        "main",
        (
            _option("path", metavar="PATH", help="a table of edges, or a folder of tables or of a published dataset"),
            _option("--label", metavar="COLUMN", help="the column of classes, if its name does not tell"),
            _option(
                "--save",
                metavar="FILE.yaml",
                help="keep the dataset as a choice: DIR/dataset/NAME.yaml for --config-dir DIR",
            ),
            _option(
                "--picture", metavar="FILE", help="draw the numbers of edges and the sizes of classes (.png, .svg)"
            ),
            _option(
                "--sample",
                metavar="BYTES",
                type=int,
                default=1 << 30,
                help="if tables have more bytes, read only a sample of their rows (default: 1 GiB)",
            ),
            _flag("--whole", help="read all rows of tables of any size"),
            _JSON,
            _option("overrides", nargs="*", default=[], metavar="key=value", help="dataset.* keys"),
        ),
    ),
    "run": (
        "one training run",
        "run",
        "main",
        (
            *_OVERRIDES,
            *_HYDRA,
            _JSON,
            _option(
                "--from",
                dest="origin",
                metavar="RUN_DIR",
                help="the overrides of that run, before the others: the same run again, or with changes",
            ),
            _TRUST,
            _flag(
                "--multirun",
                "-m",
                help="a sweep by Hydra: a=1,2 makes two runs; --jobs, --accept-foreign and --out belong to it",
            ),
            *_queue(
                "make every run again, also finished ones; without -m: the run of hydra.run.dir, whose directory "
                "gets another name"
            ),
            _PRINT_SCRIPT,
        ),
    ),
    "count": (
        "the bytes, rounds, rows and edges of a run, counted without training: one process runs all ranks",
        "count",
        "main",
        (*_OVERRIDES, _JSON, _flag("--dry-run", help="check, and show what counting needs")),
    ),
    "prepare": (
        "a complete run directory, whose ranks another program starts (torchrun, mpirun, Kubernetes, …)",
        "running.elsewhere",
        "prepare_run",
        (*_OVERRIDES, _JSON),
    ),
    "finalize": (
        "record how a run ended whose ranks another program started",
        "running.elsewhere",
        "finalize_run",
        (_RUN_DIR, _JSON, _TRUST),
    ),
    "resume": (
        "continue a run that was stopped or failed, from its last checkpoint",
        "resume",
        "main",
        (
            _RUN_DIR,
            _JSON,
            _flag("--changed-code", help="continue although its code was edited since; no sweep then uses the result"),
            _TRUST,
            _flag("--job-ended", help="you know that its SLURM job has ended, and SLURM cannot be asked any more"),
            _option(
                "overrides",
                nargs="*",
                default=[],
                metavar="key=value",
                help="hardware.*, tracker.* and similar keys; nothing that changes the experiment",
            ),
        ),
    ),
    "predict": (
        "classes, values or embeddings of vertices, or scores of links, by the model of a run, with your own ids",
        "gnnexp.api.predicting.command",
        "main",
        (
            _RUN_DIR,
            _option(
                "overrides",
                nargs="*",
                default=[],
                metavar="dataset.key=value",
                help="another graph of the same columns: dataset.path=FOLDER",
            ),
            _option(
                "--out",
                metavar="FILE",
                default="predictions.csv",
                help="the table: .csv or .parquet (default: predictions.csv)",
            ),
            _flag("--probabilities", help="a column with the probability of each class"),
            _flag("--embeddings", help="the outputs of the last hidden layer, instead of predictions"),
            _option(
                "--links",
                metavar="FILE",
                help="score these pairs: a table with the columns source, destination and, "
                "for several relations, relation; without it: the test links",
            ),
            _flag("--last", help="the model of the latest checkpoint, instead of that of the best epoch"),
            _TRUST,
            _JSON,
        ),
    ),
    "list": (
        "names to choose from: systems, datasets, models, hardware, sweeps, runs, …",
        "listing",
        "main",
        (
            _option(
                "kind", nargs="?", metavar="KIND", help="runs, sweeps, or a group of the configuration; none = kinds"
            ),
            _ALL,
            _JSON,
            _option("--config-dir", metavar="DIR", help="folder with your own <group>/<choice>.yaml"),
        ),
    ),
    "status": (
        "the state of a run or sweep, on this machine or in a SLURM queue",
        "jobs",
        "status",
        (
            _option(
                "run",
                nargs="?",
                metavar="RUN_DIR|SWEEP",
                help="a run's directory, latest, or a sweep's name; none = all runs and sweeps",
            ),
            _ALL,
            _JSON,
        ),
    ),
    "cancel": (
        "ask a run or sweep to end; `gnnexp resume` continues a run",
        "jobs",
        "cancel",
        (_option("run", metavar="RUN_DIR|SWEEP", help="a run's directory, latest, or a sweep's name"), _TRUST),
    ),
    "logs": (
        "the last lines of the ranks' logs",
        "jobs",
        "logs",
        (
            _RUN_DIR,
            _option("--rank", type=int, help="only the log of this rank"),
            _flag("--follow", "-f", help="print what is added until the run ends"),
        ),
    ),
    "sweep": (
        "all runs of a sweep that have not finished yet",
        "sweep",
        "main",
        (
            _option("name", nargs="?", metavar="NAME", help="a sweep's name, or the path of a YAML file"),
            *_OVERRIDES,
            _flag("--list", help="list the sweeps and stop"),
            _JSON,
            _flag("--full", help="at the paper's size, for a cluster"),
            *_queue("run every case again, also finished ones"),
            _option(
                "--retries",
                type=int,
                metavar="N",
                help="try failed cases again, N times (default: retries of the file)",
            ),
            _option("--until", metavar="decided", help="add seeds until the verdicts of report.against are decided"),
            _option(
                "--most-seeds", type=int, default=40, metavar="N", help="with --until: at most N seeds (default: 40)"
            ),
            _PRINT_SCRIPT,
        ),
    ),
    "tune": (
        "tune every system of a sweep with the same budget, and write presets",
        "tuning.command",
        "main",
        (
            _option("name", metavar="NAME", help="a sweep's name, or the path of a YAML file, with a section `tune`"),
            *_OVERRIDES,
            _JSON,
            _option("--trials", type=int, metavar="N", help="trials of each system (default: tune.trials of the file)"),
            *_queue("run every trial again, also finished ones"),
        ),
    ),
    "report": (
        "table and figure of a sweep or of run directories",
        "report",
        "main",
        (
            _option(
                "names",
                nargs="*",
                metavar="[KIND] NAME|RUN",
                help="a sweep's name or run directories; none = list, "
                "best first. After a query (redundancy, splitting, balance, offload, partitioning, heterogeneous, "
                "tasks): none = all runs. After compare: two run directories",
            ),
            _option("--sort", metavar="ORDER", help="order of the list: best (default), acc, epoch_s, date"),
            _option("--rows", metavar="KEY,KEY", help="config keys that name a row"),
            _flag("--markdown", help="also write the table as .md"),
            _flag("--csv", help="also write the table as .csv: a column each for mean, half width, min, max, n"),
            _flag("--latex", help="also write the table as .tex: booktabs, and a macro for each number"),
            _flag("--pdf", help="also write figures for a paper: PDF and SVG of a column's width, readable in grey"),
            _flag("--parquet", help="also write the table as .parquet, with the columns of --csv"),
            _option("--against", metavar="SYSTEM", help="compare all systems with this one, pair by pair of runs"),
            _option("--out", metavar="DIR", help="folder for the files (default: reports/<name>)"),
            _JSON,
            _flag("--sync", help="deliver records to the tracker that could not be delivered"),
        ),
    ),
    "plan": (
        "rank the systems of runs by their estimated epoch on described hardware",
        "planner",
        "main",
        (
            _JSON,
            _option("names", nargs="+", metavar="NAME|RUN", help="a sweep's name or file, or run directories"),
            _option(
                "--hardware",
                required=True,
                metavar="PROFILE,PROFILE",
                help="files of conf/hardware; all = every complete one",
            ),
            _option(
                "--scale",
                default="1",
                metavar="F",
                help="for a graph F times larger than that of the runs; full = each at the size of its shape",
            ),
            _option("--config-dir", metavar="DIR", help="folder with your own hardware/<profile>.yaml"),
        ),
    ),
    "claims": (
        "the papers' claims, compared with the runs made here",
        "claims",
        "main",
        (
            _JSON,
            _option("papers", nargs="*", metavar="PAPER", help="gsplit, hongtu, …; none = all"),
            _option("--out", metavar="DIR", help="folder for the files (default: reports/claims)"),
        ),
    ),
    "export": (
        "write the records of sweeps to one file; or the model of a run for PyTorch Geometric",
        "gnnexp.api.export",
        "main",
        (
            _option(
                "names",
                nargs="+",
                metavar="NAME|RUN",
                help="names or files of sweeps that were run here; with --to pyg: the directory of one run, or latest",
            ),
            _option(
                "--to",
                choices=("records", "pyg"),
                default="records",
                help="records of sweeps (default), or a state_dict of PyTorch Geometric with the code of its model",
            ),
            _option("--out", metavar="FILE", help="the file (default: NAME.parquet, or model.pt)"),
            _TRUST,
        ),
    ),
    "import": (
        "make runs in runs/ from exported files",
        "archives",
        "bring",
        (_option("files", nargs="+", metavar="FILE.parquet"),),
    ),
    "rekey": (
        "give runs of gnnexp 0.1 the keys of today, so that sweeps take them as finished",
        "rekey",
        "main",
        (
            _option("folders", nargs="*", metavar="FOLDER", help="folders that contain runs (default: runs)"),
            _flag("--dry-run", help="say what would change, and change nothing"),
            _JSON,
        ),
    ),
    "calibrate": (
        "measure this machine, and write its hardware profile",
        "calibrate",
        "main",
        (
            *_OVERRIDES,
            _option(
                "--out",
                metavar="FILE",
                help="the profile (default: hardware/<host>_<ranks>.yaml in --config-dir, or in ./conf)",
            ),
            _flag(
                "--json",
                help="print every repetition, with machine and versions, as one JSON document on standard "
                "output, and all else on standard error",
            ),
            _flag("--quick", help="takes seconds: to try the command, not for estimates"),
        ),
    ),
    "partition": ("make a partition and show its quality", "partition", "main", (*_OVERRIDES, _JSON)),
    "completion": (
        "a script that lets the tab key complete commands, options, sweeps, choices and keys",
        "completion",
        "main",
        (_option("shell", metavar="SHELL", help="bash or zsh"),),
    ),
    "info": ("what is installed, and what this machine can run", "info", "main", (_JSON,)),
    "ui": (
        "the MLflow dashboard on this machine's runs",
        "ui",
        "main",
        (
            _option("--port", type=int, default=5000, help="default: 5000"),
            _option(
                "--host",
                default="127.0.0.1",
                metavar="ADDRESS",
                help="address to listen on (default: 127.0.0.1, this machine only)",
            ),
            _option(
                "--no-secret",
                action="store_true",
                help="answer everybody who reaches the address: for a proxy that asks for a password itself",
            ),
            _option(
                "--experiment",
                metavar="NAME",
                help="the experiment to open (default: tracker.experiment, MLFLOW_EXPERIMENT_NAME or gnnexp)",
            ),
        ),
    ),
}


def with_values(arguments: Sequence[str]) -> list[str]:
    """The arguments with a value for each bare flag that Hydra gives an optional value: the next word is no value.

    The next word of `--cfg` may be a key, too, as in `--cfg train.epochs`.
    """
    words = list(arguments)
    for position, word in enumerate(arguments):
        bare, following = _BARE.get(word), "".join(arguments[position + 1 : position + 2])
        if not bare or words[:1] != ["run"] or following in bare[1]:
            continue
        words[position] = bare[0]
        if bare is _BARE["--cfg"] and _KEY.fullmatch(following):
            words[position + 1] = f"--package={following}"
    return words
