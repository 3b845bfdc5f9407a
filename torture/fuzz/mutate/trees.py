"""Values in JSON and YAML that are of another type, size or name than their readers expect."""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random
from typing import Any

from torture.fuzz.mutate.raw import damaged

FIRES = {"_target_": "torture.fuzz.guard.fire"}
LEAVES: tuple[Any, ...] = (
    None,
    True,
    False,
    -1,
    0,
    1,
    1.5,
    2**31,
    2**63,
    2**70,
    10**400,
    "",
    "x",
    "../../escaped",
    "/etc/passwd",
    [],
    {},
    [1],
    [[]],
    {"a": {}},
    float("nan"),
    float("inf"),
    1e308,
    "é\ud800",
    "[red]x[/nope]",
    "<script>",
    "finished",
    "9" * 400,
    "a" * 300,
    "x\0y",
    [2**31, 2**31],
    "<i8",
    "|O",
    "${seed}",
    "${oc.env:HOME}",
    "???",
    FIRES,
    {"_target_": "os.system", "command": "touch executed"},
    {"_target_": "torch.utils.collect_env.run", "command": "id"},
    {"_target_": "builtins.exec", "_args_": ["open('escaped', 'w')"]},
    "torture.fuzz.guard.fire",
)
_WHOLE = (
    b"",
    b"[]",
    b"null",
    b"{}",
    b"[" * 100_000,
    b'{"a":' * 20_000,
    b"1" * 5000,
    b"\xff\xfe",
    b'"x"',
    b"\0" * 100,
    b"NaN",
    b"1e999",
    b"{}" * 3,
)


def changed(tree: Any, random: Random) -> None:  # noqa: ANN401
    """Change some values of a tree of dictionaries and lists in place; those near the root more often."""
    for _ in range(random.choice([1, 1, 2, 3])):
        spots = list(_spots(tree, 0))
        if not spots:
            return
        holder, key = random.choice(spots)
        how = random.random()
        if how < 0.2:
            del holder[key]
        elif how < 0.3 and isinstance(holder, dict):
            name = random.choice(["../escaped", "", "a" * 300, "é", "_target_", "x\0y", "__class__"])
            holder[name] = deepcopy(holder[key])
        else:
            holder[key] = deepcopy(random.choice(LEAVES))  # the next change may be inside of it


def _spots(tree: Any, depth: int) -> list[tuple[Any, Any]]:  # noqa: ANN401
    keys = list(tree) if isinstance(tree, dict) else list(range(min(4, len(tree)))) if isinstance(tree, list) else []
    here = [(tree, key) for key in keys] * (4 if depth < 2 else 1)
    return here + [spot for key in keys for spot in _spots(tree[key], depth + 1)]


def json_text(content: bytes, random: Random) -> bytes:
    """A JSON document, or one line of many, with other values; or damaged as text."""
    how = random.random()
    if how < 0.2:
        return damaged(content, random)
    if how < 0.25:
        return random.choice(_WHOLE)
    lines = content.rstrip(b"\n").split(b"\n") if content.count(b'\n{"') else [content]
    place = random.randrange(len(lines))
    try:
        tree = json.loads(lines[place])
    except ValueError:  # it is no JSON as it is
        return damaged(content, random)
    changed(tree, random)
    lines[place] = json.dumps(tree).encode()
    return b"\n".join(lines) + b"\n"
