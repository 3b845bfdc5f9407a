"""`gnnexp run`: one configuration, one run."""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from gnnexp.errors import ConfigError, Problem


def main(options: argparse.Namespace) -> int:
    """Check, run, and show the result. With one of Hydra's flags only print what it asks for; with `-m` run several."""
    asked = {"--jobs": options.jobs != 1, "--dry-run": options.dry_run, "--out": options.out is not None,
             "--accept-foreign": options.accept_foreign}
    if not options.multirun and any(asked.values()):
        raise ConfigError([Problem(name, "without -m", "is for several runs", "add -m, or leave it out")
                           for name, given in asked.items() if given])
    if any(getattr(options, flag) for flag in ("cfg", "resolve", "package", "info", "shell_completion")):
        from gnnexp.cli.hydra_flags import show

        show(options)
        return 0
    if options.multirun:
        from gnnexp.cli.sweeping import multirun

        return multirun.main(options)
    from gnnexp.cli.console import make_console
    from gnnexp.cli.running.execute import execute, tell_result
    from gnnexp.cli.running.prepare import checked
    from gnnexp.cli.running.set_aside import made_again
    from gnnexp.launchers.base import Launchers

    console = make_console()
    with ExitStack() as stack:
        again = stack.enter_context(made_again(options)) if options.rerun else None
        composed = again or checked(options.overrides, options.config_dir, options.config_name)
        outcome = execute(composed, console, stack.enter_context(Launchers()))
    if outcome.status == "finished":
        tell_result(composed.run_dir, console)
    return outcome.exit_code
