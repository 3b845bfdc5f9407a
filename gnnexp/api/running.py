"""`gnnexp.run`: the code of the command `gnnexp run`, called from a user's Python."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from gnnexp.api.graphs import GivenGraph
from gnnexp.api.record import Run
from gnnexp.cli.console import make_console
from gnnexp.cli.here import check_here
from gnnexp.cli.kernels import place_kernels
from gnnexp.cli.running.execute import execute
from gnnexp.cli.running.prepare import checked_config
from gnnexp.components.packages import check_commands
from gnnexp.errors import ConfigError, Problem, RunError
from gnnexp.files.disk import in_words
from gnnexp.launchers.base import Launchers, Outcome
from gnnexp.launchers.parent import import_from_here

_DATASET = ("dataset", "dataset.path", "dataset.name")


def run(
    *overrides: str, dataset: GivenGraph | None = None, config_dir: str | Path | None = None, progress: bool = False
) -> Run:
    """Run one configuration to its end, as `gnnexp run` does.

    The ranks are processes of their own. They do not import the calling script or notebook, so no
    `if __name__ == "__main__":` is needed. A component of your own must be in a module that the current folder has.

    Ctrl-C ends the ranks after they have written a checkpoint, and raises KeyboardInterrupt. Python gives signals to
    the main thread only: a run in another thread does not see Ctrl-C, and `gnnexp cancel RUN_DIR` ends it.

    Args:
        overrides: `group=choice`, `group.key=value`, in the grammar of `gnnexp run`.
        dataset: a graph of your Python (`gnnexp.from_pyg`, `from_dgl`, `from_networkx`); None: that of the overrides.
        config_dir: folder with your own YAML files.
        progress: whether to print the lines that `gnnexp run` prints.

    Returns:
        The run that has finished. If `hardware.detach=true`, it has only been submitted.

    Raises:
        ConfigError, DataError: problems that were found before a rank started; all of them.
        RunError: the run failed; the message has the reason, the logs and the command that continues the run.
    """
    if wrong := [override for override in overrides if not isinstance(override, str)]:
        raise ConfigError(
            Problem(
                "overrides", wrong[0], "each must be a text key=value", 'gnnexp.run("system=gsplit", "train.epochs=5")'
            )
        )
    if dataset is not None:
        overrides = (*_with(overrides, dataset), *overrides)
    check_commands()
    check_here()
    place_kernels(tell=progress)
    import_from_here()
    with in_words(), ExitStack() as stack:
        checked = checked_config(overrides, None if config_dir is None else str(config_dir))
        outcome = execute(checked, make_console(quiet=not progress), stack.enter_context(Launchers()))
    run_dir = checked.composed.run_dir
    raise_failure(run_dir, outcome)
    return Run(run_dir)


def _with(overrides: Sequence[str], dataset: object) -> list[str]:
    """The overrides that choose a graph in memory.

    Raises:
        ConfigError: it is no such graph, or the other overrides choose a dataset, too.
    """
    if not isinstance(dataset, GivenGraph):
        raise ConfigError(
            Problem(
                "dataset",
                type(dataset).__name__,
                "must be what gnnexp.from_pyg, from_dgl or from_networkx gave",
                'for a choice, write gnnexp.run("dataset=cora")',
            )
        )
    ConfigError.raise_all(
        [
            Problem(
                override.partition("=")[0],
                override.partition("=")[2],
                "the argument dataset chooses the dataset",
                "give one of both",
            )
            for override in overrides
            if override.partition("=")[0] in _DATASET
        ]
    )
    return dataset.overrides


def raise_failure(run_dir: Path, outcome: Outcome) -> None:
    """Raise what a run that did not finish means for the caller. A stop signal is raised again, after the run's end.

    Raises:
        KeyboardInterrupt: Ctrl-C ended the run.
        RunError: the run failed.
    """
    if outcome.status in ("finished", "submitted"):
        return
    if outcome.asked is not None and threading.current_thread() is threading.main_thread():
        signal.raise_signal(outcome.asked)
        if outcome.asked == signal.SIGINT:  # the caller's own handler has returned
            raise KeyboardInterrupt
    lines, run_dir = [outcome.message], run_dir.absolute()  # a notebook's reader does not see its folder
    if run_dir.is_dir():
        lines.append(f"logs: {run_dir / 'logs'}")
    if outcome.kind != "mistake" and "gnnexp resume" not in outcome.message:
        lines.append(f"continue with: gnnexp resume {shlex.quote(str(run_dir))}")
    raise RunError("\n".join(lines))
