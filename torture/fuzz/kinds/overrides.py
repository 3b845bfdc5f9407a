"""What somebody types behind `gnnexp run`: any key of any system with any value, up to the start of the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from random import Random
from typing import Any

from gnnexp.cli.running.prepare import checked_config
from gnnexp.config.compose import compose
from torture.fuzz.case import Case

if find_spec("dgl") is not None:
    from gnnexp.paradigms import dgl_layers  # noqa: F401  importing dgl binds a socket: no input may

SYSTEMS = (
    "gsplit",
    "distdgl",
    "p3",
    "neutrontp",
    "sancus",
    "hongtu",
    "sdt_gnn",
    "fastsample",
    "dgl",
    "dgl_reference",
    "quiver",
    "distgnn",
    "neutronstar",
    "dgl_full_graph",
    "neutrontp_cs_tp_dt",
    "hongtu_p2p",
)
VALUES = (
    "-1",
    "0",
    "1",
    "2",
    "3",
    "7",
    "1000000",
    "99999999999999999999",
    "-99999999999999999999",
    "1e308",
    "-1e308",
    "1e-320",
    "nan",
    "inf",
    "-inf",
    "0.5",
    "1.5",
    "''",
    "' '",
    "x",
    "null",
    "true",
    "false",
    "[]",
    "{}",
    "[1,2]",
    "[0]",
    "[-1]",
    "[[1]]",
    "[null]",
    "['']",
    "[1e400]",
    "{a:1}",
    "{_target_:torture.fuzz.guard.fire}",
    "{_target_:torch.load}",
    "{_target_:torch.utils.collect_env.run,command:id}",
    "{_target_:1}",
    "{_target_:os.system}",
    "2147483648",
    "9223372036854775808",
    "../../x",
    "/",
    "/dev/null",
    "/dev/zero",
    "/etc/passwd",
    "é",
    "'\\x00'",
    "${seed}",
    "${nothing}",
    "${oc.env:HOME}",
    "${oc.env:NOPE}",
    "${.}",
    "${train}",
    "???",
    "x" * 5000,
    "1,2",
    "range(3)",
    "choice(1,2)",
    "glob(*)",
    "a=b",
    "[",
    "{",
    "'",
    "\\",
    "torch.load",
    "os.system",
    "gnnexp",
    "gnnexp.training.train",
    ".",
    "..",
    "a..b",
    "gnnexp.models.sage.SAGEOptions",
    "torch.nn.Linear",
    "builtins.eval",
    "cpu",
    "cuda",
    "float16",
    "int8",
    "bfloat16",
    "complex64",
    "auto",
    "none",
    "torture.fuzz.guard.fire",
    "[" * 500,
    "{a:" * 200,
    "9" * 5000,
    "\ud800",
    "\x1b[31m",
    "",
)
_KEYS = (
    "hydra.run.dir",
    "+x.y",
    "hydra.job.name",
    "hydra.sweep.dir",
    "",
    "system",
    "dataset",
    "model",
    "sampler",
    "partitioner",
    "hydra",
    "hydra.searchpath",
    "+defaults",
    "_target_",
    "hydra/launcher",
    "seed",
    "name",
)


def make(random: Random) -> Case:
    """Overrides of which at least one is meant to be wrong."""
    system = random.choice(SYSTEMS)
    lines = [
        f"system={system}",
        "dataset=digits",
        "train.epochs=2",
        "tracker=none",
        "hydra.run.dir=out",
        f"hardware.workers={1 if 'full_graph' in system else 2}",
    ]
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        key, value = random.choice(_keys(system)), random.choice(VALUES)
        if random.random() < 0.08:
            key = random.choice([*_KEYS, "~" + key, "++" + key, "+" + key, "@" + key, key + ".x"])
        lines.append(random.choice([key, "=" + key, f"{key}={value}"]) if random.random() < 0.02 else f"{key}={value}")
    return Case(" ".join(lines)[:300], {}, lambda: _check(lines), reads_anywhere=True)


@lru_cache(maxsize=64)
def _keys(system: str) -> tuple[str, ...]:
    return tuple(sorted(set(_dotted(compose([f"system={system}"]).config, ""))))


def _dotted(config: Mapping[str, Any], before: str) -> Iterator[str]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{before}{key}.")
        yield before + key


def _check(lines: list[str]) -> object:
    return checked_config(lines, None)
