"""The command line: arguments, dispatch, and readable errors. Slow imports wait until their command is called."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import gnnexp
from gnnexp.cli.output import Answer, exit_code_of, open_standard_streams, patient_output
from gnnexp.config.folders import PRIMARY
from gnnexp.errors import ConfigError, GnnexpError, Problem, ProblemsError
from gnnexp.files.disk import in_words
from gnnexp.launchers.interrupts import handling
from gnnexp.launchers.parent import import_from_here

_EPILOG = """examples:
  gnnexp run dataset=digits hardware.workers=2
  gnnexp run system=dgl_reference train.epochs=5
  gnnexp sweep quickstart
  gnnexp report quickstart
  gnnexp list systems

Overrides are key=value in Hydra's grammar; `gnnexp run --cfg` prints the configuration they make."""

# Commands that call compiled kernels, and commands that take overrides.
_COMPUTING = (
    "run",
    "resume",
    "sweep",
    "tuning.command",
    "partition",
    "calibrate",
    "running.elsewhere",
    "looking.command",
    "gnnexp.api.predicting.command",
)
# Commands that may work for hours.
_TRAINING = ("run", "resume", "sweep", "tuning.command")


class StopRequestedError(KeyboardInterrupt):
    """SIGTERM, treated like Ctrl-C but with its own exit code."""


def run_command(arguments: Sequence[str]) -> int:
    """Parse and run; returns the exit code: 0 done, 1 failed, 2 a user's mistake, 128 + n on signal n."""
    open_standard_streams()
    parser = make_parser()
    options, rest = parser.parse_known_args(_with_values(arguments))
    if options.version:
        print(f"gnnexp {importlib.metadata.version('gnnexp')}")
        return 0
    if not hasattr(options, "command"):
        parser.print_help()
        return 2
    strange = [word for word in rest if word.startswith("-") or not hasattr(options, "overrides")]
    if strange:
        return run_guarded(lambda: _refuse(strange, arguments, options))
    if rest:  # overrides that came after an option
        options.overrides = [*options.overrides, *rest]
    return run_guarded(lambda: exit_code_of(options))


def _refuse(strange: Sequence[str], typed: Sequence[str], options: argparse.Namespace) -> NoReturn:
    from gnnexp.cli.typed import refuse

    refuse(strange, typed, options)


def _with_values(arguments: Sequence[str]) -> list[str]:
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


def run_guarded(command: Callable[[], int]) -> int:
    """Run `command`, print its errors in readable form, and return the exit code."""
    try:
        import_from_here()  # so that `_target_` can name a user's package in the current folder
    except FileNotFoundError:
        print("gnnexp: the current folder was removed: go to an existing folder", file=sys.stderr)
        return 2
    with patient_output(), handling({signal.SIGTERM: _stop}):
        return _guarded(command)


def _guarded(command: Callable[[], int]) -> int:
    try:
        with in_words():  # a user may name paths without having the right to read or write them
            return command()
    except ProblemsError as error:
        print_problems(error)
        return error.exit_code
    except GnnexpError as error:
        print(f"gnnexp: {error}", file=sys.stderr)
        return error.exit_code
    except StopRequestedError:
        print("gnnexp: ended by SIGTERM", file=sys.stderr)
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        print("gnnexp: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # `gnnexp report | head`
        sys.stderr.close()
        return 1


def _stop(number: int, frame: FrameType | None) -> None:
    raise StopRequestedError


def print_problems(error: ProblemsError) -> None:
    """Print every problem with its fix on standard error."""
    count = len(error.problems)
    print(f"gnnexp: {count} {error.kind}{'s' if count > 1 else ''}", file=sys.stderr)
    for problem in error.problems:
        print("  " + str(problem).replace("\n", "\n  "), file=sys.stderr)


def make_parser() -> argparse.ArgumentParser:
    """A parser for all commands and their options."""
    parser = argparse.ArgumentParser(
        prog="gnnexp",
        description="Compare ways of training graph neural networks on several devices.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    commands = parser.add_subparsers(title="commands", metavar="command")
    for name, (purpose, module, function, arguments) in COMMANDS.items():
        command = commands.add_parser(name, help=purpose)
        for names, more in arguments:
            command.add_argument(*names, **more)
        command.set_defaults(
            command=_lazy(module, function),
            known=[option for names, _ in arguments for option in names if option.startswith("-")],
        )
    return parser


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
COMPOSING = ("run", "prepare", "sweep", "tune", "partition", "calibrate")
# The commands by name: purpose, module in `gnnexp.cli.commands` (or its whole name), function in it, arguments.
COMMANDS: Mapping[str, tuple[str, str, str, Sequence[Argument]]] = {
    "data": (
        "what a file or a folder of your own data holds, and the command that trains on it",
        "looking.command",
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
        "listing.command",
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
            _flag("--csv", help="also write the table as .csv"),
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
        "gnnexp.api.exporting.command",
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


def _lazy(name: str, function: str = "main") -> Callable[[argparse.Namespace], int | Answer]:
    """A command of `gnnexp.cli.commands.<name>`, or of the module `name`, which is imported when it is called."""

    def command(options: argparse.Namespace) -> int | Answer:
        from importlib import import_module

        from gnnexp.cli.kernels import place_kernels
        from gnnexp.cli.main import check_here
        from gnnexp.components.packages import check_commands

        check_commands()
        if name in _COMPUTING:
            check_here()
        only_shows = any(getattr(options, flag, False) for flag in ("cfg", "list", "dry_run", "print_script"))
        place_kernels(tell=name in _COMPUTING and not only_shows)
        if name in _TRAINING and not only_shows:
            tell_if_deaf()
        place = name if name.startswith("gnnexp.") else f"gnnexp.cli.{name if '.' in name else f'commands.{name}'}"
        main: Callable[[argparse.Namespace], int | Answer] = getattr(import_module(place), function)
        return main(options)

    return command


def tell_if_deaf() -> None:
    """Say how to end this process if it ignores Ctrl-C, as a process does that a script has put into the background."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        print(
            f"gnnexp: Ctrl-C does not reach this command (SIGINT is ignored, as in the background of a script); end "
            f"it with: kill {os.getpid()}",
            file=sys.stderr,
        )


# Environment variables with paths that a record contains.
_VARIABLES = ("GNNEXP_CACHE", "GNNEXP_DATA")


def check_here() -> None:
    """Check that ranks started here would execute this gnnexp, and that their records could be read.

    Raises:
        ConfigError: the current folder has another gnnexp, or a path is not valid text.
    """
    here, ours = Path.cwd(), Path(gnnexp.__file__).resolve().parent
    theirs = here / "gnnexp"
    problems = []
    if (theirs / "__init__.py").is_file() and theirs.resolve() != ours:
        problems.append(
            Problem(
                "current folder",
                str(here),
                f"has a package gnnexp, which ranks would execute instead of {ours}",
                "go to another folder, or use that one: python -m gnnexp …",
            )
        )
    paths = {"current folder": str(here), **{name: os.environ.get(name, "") for name in _VARIABLES}}
    words = {f"argument {number}": word for number, word in enumerate(sys.argv[1:], 1)}
    problems += [
        Problem(
            name,
            ascii(text),
            "is not valid UTF-8, so no record can contain it",
            "rename it, or set a locale with UTF-8 (LC_ALL=C.UTF-8)",
        )
        for name, text in {**paths, **words}.items()
        if not _is_text(text)
    ]
    ConfigError.raise_all(problems)


def _is_text(text: str) -> bool:
    """Whether the text can be written as UTF-8. Bytes that do not fit the locale are lone surrogates in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
