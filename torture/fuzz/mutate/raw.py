"""Damage to bytes and to text, whatever they mean."""

from __future__ import annotations

import os
import pickle
import re
from random import Random
from typing import Any

from torture.fuzz.guard import fire

NUMBERS = (
    b"-1",
    b"0",
    b"1",
    b"2147483647",
    b"2147483648",
    b"4294967296",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"1e400",
    b"nan",
    b"inf",
    b"-inf",
    b"1e18",
    b"0x10",
    b"1_000",
    b"\xd9\xa1",
    b"1.5",
    b"",
    b" ",
    b"\t",
    b'"',
    b"'",
    b"#",
    b"\0",
    b"\r",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"9" * 310,
    b"9" * 5000,
    b"[1]",
    b"()",
    b"None",
    b"True",
    b"=1+1",
    b"-0",
    b"+1",
    b"1e5",
    b"\x0b",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"../../escaped",
    b"/etc/passwd",
)
SIZES = (0, 1, -1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, -(2**31), 2**32 - 1, 2**62, 2**63 - 1, -(2**63))


class Calls:
    """Its pickle calls a function when it is loaded without restriction."""

    def __init__(self, function: Any, *arguments: object) -> None:  # noqa: ANN401
        self._call = (function, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


PAYLOADS = tuple(
    pickle.dumps(payload, protocol)
    for protocol in (0, 2, 4)
    for payload in (
        Calls(fire),
        Calls(os.system, "touch executed"),
        [{"x": Calls(fire, 1)}],
        Calls(open, "escaped", "w"),
    )
)


def damaged(content: bytes, random: Random) -> bytes:
    """What a disk, a network or somebody with bad intentions makes of a file."""
    changed = bytearray(content)
    how = random.choice(
        ["truncated", "flipped", "flipped", "flips", "emptied", "garbled", "longer", "pickle", "copied"]
    )
    if not content or how == "emptied":
        return b""
    if how == "truncated":
        return content[: random.randrange(len(content))]
    if how in ("flipped", "flips"):
        for _ in range(1 if how == "flipped" else 20):
            # Headers are short, so half of the flips are made there.
            limit = len(content) if random.random() < 0.5 else min(len(content), 200)
            changed[random.randrange(limit)] ^= 1 << random.randrange(8)
        return bytes(changed)
    if how == "copied":
        first, last = sorted(random.randrange(len(content) + 1) for _ in range(2))
        return content[:last] + content[first:last] * random.randrange(1, 4) + content[last:]
    if how == "pickle":
        return random.choice(PAYLOADS)
    return random.randbytes(len(content)) if how == "garbled" else content + random.randbytes(9)


def other_tokens(content: bytes, random: Random, tokens: tuple[bytes, ...] = NUMBERS) -> bytes:
    """Text whose cells are others, gone, repeated, or more."""
    cells = re.split(rb"([\s,:=|]+)", content)
    for _ in range(random.choice([1, 1, 2, 6])):
        place, how = random.randrange(len(cells)), random.random()
        if how < 0.6:
            cells[place] = random.choice(tokens)
        elif how < 0.75:
            cells.insert(place, random.choice(tokens))
        elif how < 0.9 and len(cells) > 1:
            del cells[place]
        else:
            cells[place] *= random.randrange(2, 50)
    return b"".join(cells)


def text(content: bytes, random: Random) -> bytes:
    """Damage to a table or another text."""
    return other_tokens(content, random) if random.random() < 0.75 else damaged(content, random)
