"""A case is made once, however many sweeps have it: who starts it holds its lock, and has looked for its run before."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from gnnexp.cli.running.prepare import inputs_of
from gnnexp.cli.sweeping.cases import STATES, State, run_case
from gnnexp.cli.sweeping.definition import Sweep
from gnnexp.cli.sweeping.known_runs import Looking, known_of, stand
from gnnexp.config.compose import Composed
from gnnexp.errors import ProblemsError
from gnnexp.experiment.build import experiment_of
from gnnexp.files.disk import DiskError, in_words, one_line, try_lock
from gnnexp.launchers.kept import Launchers
from gnnexp.provenance.code import code_of_config
from gnnexp.provenance.run_key import run_key


def run_once(
    sweep: Sweep, composed: Composed, state: State, console: Console, launchers: Launchers, looking: Looking
) -> State:
    """Run a case to its end, whatever end that is, unless another sweep runs it or has run it."""
    try:
        with in_words(), turn_of(composed, state, looking) as now:
            return run_case(sweep, composed, now, console, launchers) if now.status == "waiting" else now
    except DiskError as error:
        return not_started(state, error)


def not_started(state: State, error: DiskError) -> State:
    """A case of which not even a record can be written."""
    print(f"gnnexp: {error}", file=sys.stderr)
    return replace(state, status="failed", reason=one_line(error.problems[0]))


@contextmanager
def turn_of(composed: Composed, state: State, looking: Looking) -> Iterator[State]:
    """How a case stands now; where it is `waiting`, no other process starts it before this context is left.

    A sweep plans at its beginning. What other sweeps of this folder, of the same name or another, have made of the
    case since then counts. A case whose code was edited since then is not the planned one: beside the others it would
    mix two codes in one table.
    """
    with _locked(STATES / ".cases" / f"{state.key}.lock") as mine:
        now = look_again(composed, state, looking)
        if now.status == "waiting" and not mine:
            now = replace(now, status="running elsewhere", reason="another sweep is running this case")
        elif now.status == "waiting" and (changed := _changed(composed, state)):
            now = replace(now, status="failed", run_dir="", reason=f"its {changed} edited since the sweep began: start "
                          "the sweep again")
        yield now


def _changed(composed: Composed, state: State) -> str:
    """What is not as it was when the sweep was planned; empty where everything is."""
    config = composed.config
    try:
        code, inputs = code_of_config(config), inputs_of(experiment_of(config))
    except ProblemsError:  # it is not there any more
        return "code or its stored partition was"
    if run_key(config, state.dataset_key, code, inputs) == state.key:
        return ""
    return "code or its stored partition was" if inputs else "code was"


def look_again(composed: Composed, state: State, looking: Looking) -> State:
    """How a case stands by what is on disk now."""
    planned = replace(state, status="waiting", run_dir="", reason="")
    return stand(composed, planned, {state.key: known_of(state.key, looking)}, accept_foreign=looking.accept_foreign)


def looked_at_the_end(composed: Sequence[Composed], states: Sequence[State], looking: Looking) -> list[State]:
    """`states` of a sweep that is over: what ran elsewhere may have finished meanwhile."""
    return [_after(one, state, looking) if state.status == "running elsewhere" else state
            for one, state in zip(composed, states, strict=True)]


def _after(composed: Composed, state: State, looking: Looking) -> State:
    now = look_again(composed, state, looking)
    return now if now.status == "finished before" else replace(state, run_dir=now.run_dir)


@contextmanager
def _locked(file: Path) -> Iterator[bool]:
    """Whether this process holds the lock of `file`, which is removed afterwards; the system releases it at its end."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = try_lock(file)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            file.unlink()
            os.close(handle)
