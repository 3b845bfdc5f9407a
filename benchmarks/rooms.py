"""Which modules the configuration of a run enters before the launch: `python benchmarks/rooms.py [OVERRIDES]`.

Walks through one `gnnexp run`, call by call, until the launcher is asked to launch. A module is entered where a
function of it is given the configuration: a mapping with the groups `dataset` and `paradigm`. With
`PYTHONPATH=<another checkout>` the walk is through that one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

RUN = (
    "system=gsplit",
    "dataset=digits",
    "train=default",
    "hardware.workers=2",
    "tracker=none",
    "train.epochs=1",
    "hydra.run.dir=run",
)
_GROUPS = ("dataset", "paradigm", "sampler", "hardware")


class Launched(BaseException):
    """The walk is over."""


def is_configuration(value: object) -> bool:
    """Whether a value is a whole configuration."""
    return isinstance(value, Mapping) and all(name in value for name in _GROUPS)


def walk(overrides: tuple[str, ...] = RUN) -> list[str]:
    """Modules of gnnexp that were given the configuration, each once, in order."""
    entered: dict[str, None] = {}

    def watch(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event != "call" or not name.startswith("gnnexp."):
            return
        if name == "gnnexp.launchers.local" and frame.f_code.co_name == "launch":
            raise Launched
        code = frame.f_code
        given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if any(is_configuration(frame.f_locals.get(argument)) for argument in given):
            entered.setdefault(name)

    from gnnexp.cli.main import run_command

    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.setprofile(watch)
        try:
            run_command(["run", *overrides])
        except Launched:
            pass
        finally:
            sys.setprofile(None)
            os.chdir(before)
    return list(entered)


if __name__ == "__main__":
    found = walk(tuple(sys.argv[1:]) or RUN)
    print("\n".join(found))
    print(f"{len(found)} modules")
