"""`gnnexp run`: one configuration, one run."""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from gnnexp.cli.output import Answer
from gnnexp.cli.running.origin import with_origin
from gnnexp.errors import ConfigError, Problem


def main(options: argparse.Namespace) -> Answer:
    """Check, run, and show the result; with one of Hydra's flags only print what it asks for."""
    options = with_origin(options)
    asked = {
        "--jobs": options.jobs != 1,
        "--out": options.out is not None,
        "--accept-foreign": options.accept_foreign,
        "--changed-code": options.changed_code,
        "--same-code": options.same_code,
    }
    if not options.multirun and any(asked.values()):
        raise ConfigError(
            [
                Problem(name, "without -m", "is for several runs", "add -m, or leave it out")
                for name, is_given in asked.items()
                if is_given
            ]
        )
    if any(getattr(options, flag) for flag in ("cfg", "resolve", "package", "info", "shell_completion")):
        from gnnexp.cli.hydra_flags import show_flags

        return show_flags(options)
    if options.multirun and options.print_script:
        raise ConfigError(Problem("--print-script", "with -m", "is for one run or a sweep", "gnnexp sweep NAME"))
    if options.multirun:
        from gnnexp.cli.sweeping import multirun

        return multirun.main(options)
    if options.dry_run:
        from gnnexp.cli.running.dry import dry_run

        return dry_run(options)
    if options.print_script:
        return _print_script(options)
    from gnnexp.cli.console import make_console
    from gnnexp.cli.running.execute import answer_of, execute, tell_result
    from gnnexp.cli.running.prepare import checked_config
    from gnnexp.cli.running.set_aside import made_again
    from gnnexp.launchers.base import Launchers

    console = make_console()
    with ExitStack() as stack:
        again = stack.enter_context(made_again(options)) if options.rerun else None
        checked = again or checked_config(options.overrides, options.config_dir, options.config_name)
        outcome = execute(checked, console, stack.enter_context(Launchers()))
    run_dir = checked.composed.run_dir
    if outcome.status == "finished":
        tell_result(run_dir, console)
    return answer_of(run_dir, outcome)


def _print_script(options: argparse.Namespace) -> Answer:
    from gnnexp.cli.running.prepare import checked_config
    from gnnexp.cli.running.scripts import print_scripts

    composed, experiment = checked_config(options.overrides, options.config_dir, options.config_name)
    return print_scripts([(experiment, composed.run_dir)])
