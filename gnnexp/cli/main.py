"""The command line: arguments, dispatch, and errors in a user's words. Heavy imports wait for their command."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from gnnexp.cli.output import open_standard_streams, patient_output
from gnnexp.errors import GnnexpError, ProblemsError
from gnnexp.files.disk import in_words
from gnnexp.launchers.parent import import_from_here

_EPILOG = """examples:
  gnnexp run dataset=digits hardware.workers=2
  gnnexp run system=dgl_reference train.epochs=5
  gnnexp sweep quickstart
  gnnexp report quickstart

Overrides are key=value in Hydra's grammar; `gnnexp run --cfg` prints the configuration they make."""



# Commands that call compiled kernels.
_COMPUTING = ("run", "resume", "sweep", "partition", "calibrate")


class StopRequestedError(KeyboardInterrupt):
    """SIGTERM, treated like Ctrl-C but with its own exit code."""


def run_command(arguments: Sequence[str]) -> int:
    """Parse and run; returns the exit code: 0 done, 1 failed, 2 a user's mistake, 128 + n on signal n."""
    open_standard_streams()
    parser = make_parser()
    options, rest = parser.parse_known_args(arguments)
    if not hasattr(options, "command"):
        parser.print_help()
        return 2
    strange = [word for word in rest if word.startswith("--") or not hasattr(options, "overrides")]
    if strange:
        parser.error(f"unrecognized arguments: {' '.join(strange)}")
    if rest:  # overrides that came after an option
        options.overrides = [*options.overrides, *rest]
    return guarded(lambda: options.command(options))


def guarded(command: Callable[[], int]) -> int:
    """Run `command`, with errors in a user's words; returns the exit code."""
    try:
        import_from_here()  # a user's own package in the current folder can be named in `_target_`
    except FileNotFoundError:
        print("gnnexp: the current folder was removed: go to one that is there", file=sys.stderr)
        return 2
    with patient_output():
        return _guarded(command)


def _guarded(command: Callable[[], int]) -> int:
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        with in_words():  # any path that a user names may be one that they may not read or write
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
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(number: int, frame: FrameType | None) -> None:
    raise StopRequestedError


def print_problems(error: ProblemsError) -> None:
    """Every problem, with its fix, on standard error."""
    count = len(error.problems)
    print(f"gnnexp: {count} {error.kind}{'s' if count > 1 else ''}", file=sys.stderr)
    for problem in error.problems:
        print("  " + str(problem).replace("\n", "\n  "), file=sys.stderr)


def make_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = argparse.ArgumentParser(
        prog="gnnexp", description="Compare ways of training graph neural networks on several devices.",
        epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(title="commands", metavar="command")
    for name, (purpose, module, function, arguments) in _COMMANDS.items():
        command = commands.add_parser(name, help=purpose)
        for names, more in arguments:
            command.add_argument(*names, **more)
        command.set_defaults(command=_lazy(module, function))
    return parser


Argument = tuple[tuple[str, ...], dict[str, Any]]


def _option(*names: str, **more: object) -> Argument:
    """What `add_argument` takes."""
    return names, more


def _flag(*names: str, help: str) -> Argument:
    return names, {"action": "store_true", "help": help}


def _queue(rerun: str) -> tuple[Argument, ...]:
    """Options of commands that run several cases."""
    return (
        _option("--jobs", type=int, default=1, metavar="N",
                help="how many runs at a time on this machine, each on cores and GPUs of its own"),
        _flag("--dry-run", help="check and list the runs, start none"),
        _flag("--rerun", help=rerun),
        _flag("--accept-foreign",
              help="take finished runs of other kinds of machines, or imported: their times are not yours"),
        _option("--out", metavar="DIR", help="folder of the report (default: reports/<name>)"))


_OVERRIDES = (
    _option("overrides", nargs="*", default=[], metavar="key=value", help="group=choice or group.key=value"),
    _option("--config-dir", metavar="DIR", help="folder with your own <group>/<choice>.yaml"))
_RUN_DIR = _option("run", metavar="RUN_DIR", help="the run's directory")
_TRUST = _flag("--trust", help="also a run of another user: its files say what is executed, and which process gets a "
               "signal")
# By name: what each is for, its module in `gnnexp.cli.commands` and the function there, its arguments.
_COMMANDS: Mapping[str, tuple[str, str, str, Sequence[Argument]]] = {
    "run": ("one training run", "run", "main", (
        *_OVERRIDES, _flag("--cfg", help="print the resolved configuration and stop"),
        _flag("--multirun", "-m", help="a sweep by Hydra: a=1,2 makes two runs; the following options are for it"),
        *_queue("every run again, also those that have finished; without -m: the run of hydra.run.dir, whose directory "
                "gets another name"))),
    "resume": ("go on with a run that was stopped or failed, from its last checkpoint", "resume", "main", (
        _RUN_DIR,
        _flag("--changed-code", help="go on although its code was edited since; no sweep takes the result for its own"),
        _TRUST,
        _flag("--job-ended", help="its SLURM job has ended: you know it, and no SLURM can be asked any more"),
        _option("overrides", nargs="*", default=[], metavar="key=value",
                help="hardware.*, tracker.* and the like; nothing that makes it another experiment"))),
    "status": ("how a run stands, on this machine or in a SLURM queue", "jobs", "status", (_RUN_DIR,)),
    "cancel": ("ask a run to end; `gnnexp resume` goes on with it", "jobs", "cancel", (_RUN_DIR, _TRUST)),
    "logs": ("the last lines of the ranks' logs", "jobs", "logs", (
        _RUN_DIR, _option("--rank", type=int, help="of this rank only"),
        _flag("--follow", "-f", help="print what is added until the run ends"))),
    "sweep": ("all runs of a sweep that have not finished yet", "sweep", "main", (
        _option("name", metavar="NAME", help="a sweep's name, or the path of a YAML file"), *_OVERRIDES,
        _flag("--full", help="in the paper's size, for a cluster"),
        *_queue("run every case again, also those that have finished"))),
    "report": ("table and figure of a sweep or of run directories", "report", "main", (
        _option("names", nargs="*", metavar="[KIND] NAME|RUN", help="a sweep's name or run directories; none = list, "
                "best first. After a query (redundancy, splitting, balance, offload, partitioning, heterogeneous, "
                "tasks): none = all runs. After compare: two run directories"),
        _option("--sort", metavar="ORDER", help="of the list: best (default), acc, epoch_s, date"),
        _option("--rows", metavar="KEY,KEY", help="config keys that name a row"),
        _flag("--markdown", help="write the table as .md too"),
        _flag("--csv", help="write the table as .csv too"),
        _option("--out", metavar="DIR", help="folder for the files (default: reports/<name>)"),
        _flag("--sync", help="deliver to the tracker what could not be delivered"))),
    "plan": ("rank the systems of runs by their estimated epoch on described hardware", "planner", "main", (
        _option("names", nargs="+", metavar="NAME|RUN", help="a sweep's name or run directories"),
        _option("--hardware", required=True, metavar="PROFILE,PROFILE",
                help="files of conf/hardware; all = every one that says enough"),
        _option("--scale", default="1", metavar="F",
                help="of a graph F times as large as that of the runs; full = each in the size of its shape"),
        _option("--config-dir", metavar="DIR", help="folder with your own hardware/<profile>.yaml"))),
    "claims": ("what the papers claim, and what the runs made here say of it", "claims", "main", (
        _option("papers", nargs="*", metavar="PAPER", help="gsplit, hongtu, …; none = all"),
        _option("--out", metavar="DIR", help="folder for the files (default: reports/claims)"))),
    "export": ("write the records of sweeps to one file", "archives", "export", (
        _option("names", nargs="+", metavar="NAME", help="sweeps that were run here"),
        _option("--out", metavar="FILE.tar.xz", help="the file (default: NAME.tar.xz)"))),
    "import": ("make runs of exported files, in runs/", "archives", "bring", (
        _option("files", nargs="+", metavar="FILE.tar.xz"),)),
    "calibrate": ("measure this machine, and write its hardware profile", "calibrate", "main", (
        *_OVERRIDES,
        _option("--out", metavar="FILE",
                help="the profile (default: hardware/<host>_<ranks>.yaml in --config-dir, or in ./conf)"),
        _option("--json", metavar="FILE", help="keep every repetition, with machine and versions"),
        _flag("--quick", help="seconds: to try the command, not to estimate with"))),
    "partition": ("make a partition and show its quality", "partition", "main", _OVERRIDES),
    "info": ("what is installed, and what this machine can run", "info", "main", ()),
    "ui": ("the MLflow dashboard on this machine's runs", "ui", "main", (
        _option("--port", type=int, default=5000),)),
}


def _lazy(name: str, function: str = "main") -> Callable[[argparse.Namespace], int]:
    """A command of `gnnexp.cli.commands.<name>`, imported when it is called."""

    def command(options: argparse.Namespace) -> int:
        from importlib import import_module

        from gnnexp.cli.here import check_here
        from gnnexp.cli.kernels import place_kernels
        from gnnexp.experiment.packages import check_commands

        check_commands()
        if name in _COMPUTING:
            check_here()
        place_kernels(tell=name in _COMPUTING and not getattr(options, "cfg", False))
        found: Callable[[argparse.Namespace], int] = getattr(import_module(f"gnnexp.cli.commands.{name}"), function)
        return found(options)

    return command
