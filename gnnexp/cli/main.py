"""The command line: dispatch and readable errors. Slow imports wait until their command is called."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

from gnnexp.cli.arguments import COMMANDS, with_values
from gnnexp.cli.here import check_here, tell_if_deaf
from gnnexp.cli.output import Answer, exit_code_of, open_standard_streams, patient_output
from gnnexp.errors import GnnexpError, ProblemsError
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

# Commands that call compiled kernels.
_COMPUTING = (
    "run",
    "count",
    "resume",
    "sweep",
    "tuning.command",
    "partition",
    "calibrate",
    "running.elsewhere",
    "data",
    "gnnexp.api.predicting.command",
)
# Commands that may work for hours.
_TRAINING = ("run", "count", "resume", "sweep", "tuning.command")


class StopRequestedError(KeyboardInterrupt):
    """SIGTERM, treated like Ctrl-C but with its own exit code."""


def run_command(arguments: Sequence[str]) -> int:
    """Parse and run; returns the exit code: 0 done, 1 failed, 2 a user's mistake, 128 + n on signal n."""
    open_standard_streams()
    parser = make_parser()
    options, rest = parser.parse_known_args(with_values(arguments))
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


def _lazy(name: str, function: str = "main") -> Callable[[argparse.Namespace], int | Answer]:
    """A command of `gnnexp.cli.commands.<name>`, or of the module `name`, which is imported when it is called."""

    def command(options: argparse.Namespace) -> int | Answer:
        from gnnexp.cli.kernels import place_kernels
        from gnnexp.components.packages import check_commands

        check_commands()
        if name in _COMPUTING:
            check_here()
        only_shows = any(getattr(options, flag, False) for flag in ("cfg", "list", "dry_run", "print_script"))
        place_kernels(tell=name in _COMPUTING and not only_shows)
        if name in _TRAINING and not only_shows:
            tell_if_deaf()
        place = name if name.startswith("gnnexp.") else f"gnnexp.cli.{name if '.' in name else f'commands.{name}'}"
        main: Callable[[argparse.Namespace], int | Answer] = getattr(importlib.import_module(place), function)
        return main(options)

    return command
