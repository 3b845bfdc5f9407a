"""Pickles whose opcodes are others: still programs, which no writer makes."""

from __future__ import annotations

import pickletools
import struct
import sys
from random import Random

from torture.fuzz.mutate.raw import damaged

_GLOBALS = (
    b"cnumpy\nndarray\n",
    b"cnumpy\ndtype\n",
    b"cnumpy.core.multiarray\n_reconstruct\n",
    b"cscipy.sparse.csr\ncsr_matrix\n",
    b"ccollections\ndefaultdict\n",
    b"ccollections\nOrderedDict\n",
    b"c__builtin__\nlist\n",
    b"c_codecs\nencode\n",
    b"cos\nsystem\n",
    b"c__builtin__\neval\n",
    b"cbuiltins\ngetattr\n",
    b"cnumpy\nload\n",
    b"ctorture.fuzz.guard\nfire\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch\nFloatStorage\n",
    b"\x8c\x13torture.fuzz.guard\x8c\x04fire\x93",
)
_OPCODES = (
    b"R",
    b"b",
    b"\x81",
    b"(",
    b"t",
    b")",
    b"\x85",
    b"\x86",
    b"\x87",
    b"]",
    b"}",
    b"l",
    b"d",
    b"a",
    b"e",
    b"s",
    b"u",
    b"0",
    b"1",
    b"2",
    b"N",
    b"K\x01",
    b"J\xff\xff\xff\x7f",
    b"\x88",
    b"h\x00",
    b"h\x05",
    b"q\x01",
    b"\x94",
    b"Q",
    b"P1\n",
    b"\x8a\x08" + b"\xff" * 7 + b"\x7f",
    b"G" + struct.pack(">d", float("nan")),
    b"U\x02f8",
    b"U\x02O8",
    b"X\x03\x00\x00\x00<f4",
    b".",
    b"r\xff\xff\xff\x7f",
    b"I" + b"9" * 4000 + b"\n",
    b"\x8d" + b"\xff" * 8,
    b"i\x00",
    b"o",
)


def opcodes(content: bytes, random: Random) -> bytes:
    """Some opcodes replaced, added, removed, exchanged or doubled."""
    how = random.random()
    if how < 0.25:
        return damaged(content, random)
    if how < 0.28:
        return colliding(random)
    try:
        starts = [place or 0 for _, _, place in pickletools.genops(content)]
    except Exception:  # pickletools raises whatever struct, codecs and int raise; such content is damaged already
        return damaged(content, random)
    ends = [*starts[1:], len(content)]
    pieces = [content[first:last] for first, last in zip(starts, ends, strict=True)]
    for _ in range(random.choice([1, 1, 2, 5])):
        if not pieces:
            break
        place = random.randrange(len(pieces) if random.random() < 0.5 else min(40, len(pieces)))
        _change(pieces, place, random)
    return b"".join(pieces)


def _change(pieces: list[bytes], place: int, random: Random) -> None:
    how, other = random.random(), random.randrange(len(pieces))
    if how < 0.3:
        pieces[place] = random.choice(_OPCODES + _GLOBALS)
    elif how < 0.5:
        pieces.insert(place, random.choice(_OPCODES + _GLOBALS))
    elif how < 0.65:
        del pieces[place]
    elif how < 0.8:
        pieces[place], pieces[other] = pieces[other], pieces[place]
    else:
        pieces[place] = pieces[other]


def colliding(random: Random) -> bytes:
    """A dictionary whose keys are integers of one hash."""
    keys = range(1, random.choice([100, 3000]))
    modulus = sys.hash_info.modulus
    return (
        b"\x80\x02}("
        + b"".join(b"\x8a\x0c" + (key * modulus).to_bytes(12, "little", signed=True) + b"N" for key in keys)
        + b"u."
    )
