"""Which Optuna chooses the trials of a search. A search that goes on needs the one that it began with.

Another version of Optuna chooses other trials from the same seed and the same values, even with the same options. The
search would repeat none of its later trials, and its budget would be that of two searches.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gnnexp.cli.sweeping.processes import STATES
from gnnexp.cli.tuning.definition import Tuning
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.files.regular import SMALL_BYTES, parse_json, read_limited
from gnnexp.record.records import write_json

# Options of Optuna's sampler TPE. All that decide trials are named, because defaults change: `multivariate` and
# `constant_liar` are off by default before Optuna 5. Optuna's 10 trials at random would leave nothing of a budget of 12
# trials to the search. A trial that runs at the same time counts as a bad one (`constant_liar`), so that the next one
# is elsewhere.
OPTIONS: Mapping[str, Any] = {
    "n_startup_trials": 5,
    "n_ei_candidates": 24,
    "multivariate": True,
    "group": False,
    "constant_liar": True,
}
# What decides how long a search is, and not which trials it has.
_LENGTH = ("trials", "seconds")


def chooser() -> dict[str, str]:
    """What chooses trials here: the version of Optuna and the options of its sampler."""
    options = ", ".join(f"{name}={value}" for name, value in OPTIONS.items())
    return {"optuna": importlib.metadata.version("optuna"), "sampler": f"TPESampler({options})"}


def was_begun_here(sweep: str, tuning: Tuning) -> bool:
    """Whether the search was begun here; the trials of a search that was not are of an unknown Optuna.

    Raises:
        ConfigError: another Optuna, or a sampler with other options, has begun it.
        DataError: its note is damaged.
    """
    file = _file(sweep, tuning)
    try:
        recorded = parse_json(read_limited(file, SMALL_BYTES))
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        raise _damaged(file, str(error)) from None
    now = chooser()
    if not isinstance(recorded, dict) or not recorded.keys() >= now.keys():
        raise _damaged(file, str(recorded)[:80])
    if recorded["optuna"] != now["optuna"]:
        raise ConfigError(
            Problem(
                "optuna",
                now["optuna"],
                f"the search of {sweep} was begun with Optuna {recorded['optuna']}, and another "
                "version chooses other trials",
                f"pip install 'optuna=={recorded['optuna']}' to go on; or make all trials again with --rerun",
            )
        )
    if recorded["sampler"] != now["sampler"]:
        raise ConfigError(
            Problem(
                "tune",
                now["sampler"],
                f"the search of {sweep} was begun with {recorded['sampler']}, which chooses other trials",
                "use the gnnexp that began it, or make all trials again with --rerun",
            )
        )
    return True


def note_chooser(sweep: str, tuning: Tuning) -> None:
    """Note what chooses the trials of this search, before the first one runs."""
    file = _file(sweep, tuning)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, {"sweep": sweep, **chooser()})


def _file(sweep: str, tuning: Tuning) -> Path:
    """The note of a search, which is known by all that decides its trials. A longer search is the same one."""
    content = {name: value for name, value in asdict(tuning).items() if name not in _LENGTH}
    digest = hashlib.sha256(json.dumps([sweep, content], sort_keys=True).encode()).hexdigest()[:16]
    return STATES / ".searches" / f"{digest}.json"


def _damaged(file: Path, value: str) -> DataError:
    return DataError(
        Problem(
            str(file),
            value,
            "must say which Optuna began the search",
            "remove the file; then the version that chose the trials is not known",
        )
    )
