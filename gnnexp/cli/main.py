"""The command line: arguments, dispatch, and errors in a user's words. Heavy imports wait for their command."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType

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

_TRUST = "also a run of another user: its files say what is executed, and which process gets a signal"


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
    """Every problem, with its mend, on standard error."""
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
    _add_run(commands)
    _add_resume(commands)
    _add_jobs(commands)
    _add_sweep(commands)
    _add_report(commands)
    _add_plan(commands)
    _add_claims(commands)
    _add_archives(commands)
    _add_calibrate(commands)
    _add_partition(commands)
    info = commands.add_parser("info", help="what is installed, and what this machine can run")
    info.set_defaults(command=_lazy("info"))
    ui = commands.add_parser("ui", help="the MLflow dashboard on this machine's runs")
    ui.add_argument("--port", type=int, default=5000)
    ui.set_defaults(command=_lazy("ui"))
    return parser


Commands = argparse._SubParsersAction  # argparse has no public name for it


def _add_overrides(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="group=choice or group.key=value")
    parser.add_argument("--config-dir", metavar="DIR", help="folder with your own <group>/<choice>.yaml")


def _add_run(commands: Commands[argparse.ArgumentParser]) -> None:
    run = commands.add_parser("run", help="one training run")
    _add_overrides(run)
    run.add_argument("--multirun", "-m", action="store_true", help="Hydra's multirun: a=1,2 runs two jobs")
    run.add_argument("--rerun", action="store_true",
                     help="make the run of hydra.run.dir again; the directory that is there gets another name")
    run.add_argument("--cfg", action="store_true", help="print the resolved configuration and stop")
    run.set_defaults(command=_lazy("run"))


def _add_sweep(commands: Commands[argparse.ArgumentParser]) -> None:
    sweep = commands.add_parser("sweep", help="all runs of sweeps/NAME.yaml that have not finished yet")
    sweep.add_argument("name", metavar="NAME", help="a sweep's name, or the path of a YAML file")
    _add_overrides(sweep)
    sweep.add_argument("--jobs", type=int, default=1, metavar="N", help="how many runs at a time on this machine")
    sweep.add_argument("--full", action="store_true", help="in the paper's size, for a cluster")
    sweep.add_argument("--dry-run", action="store_true", help="check and list the runs, start none")
    sweep.add_argument("--rerun", action="store_true", help="run every case again, also those that have finished")
    sweep.add_argument("--accept-foreign", action="store_true",
                       help="take finished runs of other kinds of machines, or imported: their times are not yours")
    sweep.add_argument("--out", metavar="DIR", help="folder of its report (default: reports/<name>)")
    sweep.set_defaults(command=_lazy("sweep"))


def _add_resume(commands: Commands[argparse.ArgumentParser]) -> None:
    resume = commands.add_parser("resume", help="go on with a run that was stopped or failed, from its last checkpoint")
    resume.add_argument("run", metavar="RUN_DIR", help="the run's directory")
    resume.add_argument("--changed-code", action="store_true",
                        help="go on although its code was edited since; no sweep takes the result for its own")
    resume.add_argument("--trust", action="store_true", help=_TRUST)
    resume.add_argument("--job-ended", action="store_true",
                        help="its SLURM job has ended: you know it, and no SLURM can be asked any more")
    resume.add_argument("overrides", nargs="*", default=[], metavar="key=value",
                        help="hardware.*, tracker.* and the like; nothing that makes it another experiment")
    resume.set_defaults(command=_lazy("resume"))


def _add_jobs(commands: Commands[argparse.ArgumentParser]) -> None:
    for name, purpose in (("status", "how a run stands, on this machine or in a SLURM queue"),
                          ("cancel", "ask a run to end; `gnnexp resume` goes on with it"),
                          ("logs", "the last lines of the ranks' logs")):
        command = commands.add_parser(name, help=purpose)
        command.add_argument("run", metavar="RUN_DIR", help="the run's directory")
        command.set_defaults(command=_lazy("jobs", name))
        if name == "cancel":
            command.add_argument("--trust", action="store_true", help=_TRUST)
        if name == "logs":
            command.add_argument("--rank", type=int, help="of this rank only")
            command.add_argument("--follow", "-f", action="store_true", help="print what is added until the run ends")


def _add_report(commands: Commands[argparse.ArgumentParser]) -> None:
    report = commands.add_parser("report", help="table and figure of a sweep or of run directories")
    report.add_argument("names", nargs="*", metavar="[KIND] NAME|RUN", help="a sweep's name or run directories; none = "
                        "list, best first. After a kind (redundancy, splitting, balance, offload, "
                        "partitioning, heterogeneous, tasks): none = all runs. After compare: two run directories")
    report.add_argument("--sort", metavar="ORDER", help="of the list: best (default), acc, epoch_s, date")
    report.add_argument("--rows", metavar="KEY,KEY", help="config keys that name a row")
    report.add_argument("--markdown", action="store_true", help="write the table as .md too")
    report.add_argument("--csv", action="store_true", help="write the table as .csv too")
    report.add_argument("--out", metavar="DIR", help="folder for the files (default: reports/<name>)")
    report.add_argument("--sync", action="store_true", help="deliver to the tracker what could not be delivered")
    report.set_defaults(command=_lazy("report"))


def _add_plan(commands: Commands[argparse.ArgumentParser]) -> None:
    plan = commands.add_parser("plan", help="rank the systems of runs by their estimated epoch on described hardware")
    plan.add_argument("names", nargs="+", metavar="NAME|RUN", help="a sweep's name or run directories")
    plan.add_argument("--hardware", required=True, metavar="PROFILE,PROFILE",
                      help="files of conf/hardware; all = every one that says enough")
    plan.add_argument("--scale", default="1", metavar="F",
                      help="of a graph F times as large as that of the runs; full = each in the size of its shape")
    plan.add_argument("--config-dir", metavar="DIR", help="folder with your own hardware/<profile>.yaml")
    plan.set_defaults(command=_lazy("planner"))


def _add_claims(commands: Commands[argparse.ArgumentParser]) -> None:
    claims = commands.add_parser("claims", help="what the papers claim, and what the runs made here say of it")
    claims.add_argument("papers", nargs="*", metavar="PAPER", help="gsplit, hongtu, …; none = all")
    claims.add_argument("--out", metavar="DIR", help="folder for the files (default: reports/claims)")
    claims.set_defaults(command=_lazy("claims"))


def _add_archives(commands: Commands[argparse.ArgumentParser]) -> None:
    export = commands.add_parser("export", help="write the records of sweeps to one file")
    export.add_argument("names", nargs="+", metavar="NAME", help="sweeps that were run here")
    export.add_argument("--out", metavar="FILE.tar.xz", help="the file (default: NAME.tar.xz)")
    export.set_defaults(command=_lazy("archives", "export"))
    bring = commands.add_parser("import", help="make runs of exported files, in runs/")
    bring.add_argument("files", nargs="+", metavar="FILE.tar.xz")
    bring.set_defaults(command=_lazy("archives", "bring"))


def _add_calibrate(commands: Commands[argparse.ArgumentParser]) -> None:
    calibrate = commands.add_parser("calibrate", help="measure this machine, and write its hardware profile")
    _add_overrides(calibrate)
    calibrate.add_argument("--out", metavar="FILE", help="the profile (default: hardware/<host>_<ranks>.yaml in "
                           "--config-dir, or in ./conf)")
    calibrate.add_argument("--json", metavar="FILE", help="keep every repetition, with machine and versions")
    calibrate.add_argument("--quick", action="store_true", help="seconds: to try the command, not to estimate with")
    calibrate.set_defaults(command=_lazy("calibrate"))


def _add_partition(commands: Commands[argparse.ArgumentParser]) -> None:
    partition = commands.add_parser("partition", help="make a partition and show its quality")
    _add_overrides(partition)
    partition.set_defaults(command=_lazy("partition"))


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
