"""Files of arrays (`.npy`, `.npz`, torch's archives, MATLAB's), damaged where their formats keep sizes and types."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from random import Random

from torture.fuzz.mutate.pickles import opcodes
from torture.fuzz.mutate.raw import SIZES, damaged

_DTYPES: tuple[object, ...] = (
    "<f4",
    "<f8",
    "<i8",
    "<i4",
    "|u1",
    "|b1",
    "<f2",
    "<u8",
    ">i8",
    "|O",
    "<U5",
    "|S0",
    "<U0",
    "|V0",
    "<c16",
    "<M8[s]",
    "|V8",
    "<f16",
    "<i3",
    ("<i4", 2),
    [("a", "<i4")],
    [("a", "<i4", (2, 2))],
    "é",
    ("|V0", 0),
    [],
    "",
    {"names": []},
)
_SHAPES = (
    "(40,)",
    "(40, 2)",
    "()",
    "(0,)",
    "(-1,)",
    "(1, 80)",
    f"({2**62},)",
    f"({2**31}, {2**31})",
    "(40, 2, 1)",
    "(True,)",
    "(1.5,)",
    "[40, 2]",
    "40",
    "(" * 60 + ")" * 60,
    "(10**9,)",
    "(80,)",
    "(0, 5)",
    "(5, 0)",
    "(2, 40)",
    f"({2**63},)",
    f"({2**61}, {2**61}, 0)",
    "(" + "1," * 70 + ")",
    "(None,)",
    "('a',)",
    "(1,) * 9",
    f"(0, {2**62})",
)
_MATLAB = (0, 1, 5, 6, 9, 14, 15, 2**31 - 1, 2**32 - 1, 2**31, 4 << 16 | 5, 255, 0x800 | 5, 1 << 24)


def npy(content: bytes, random: Random) -> bytes:
    """Another header, other numbers, or fewer of them."""
    how = random.random()
    if len(content) < 12 or how >= 0.8:
        return damaged(content, random)
    size = struct.unpack_from("<H", content, 8)[0]
    header, data = content[10 : 10 + size], bytearray(content[10 + size :])
    if how < 0.5:
        order = random.choice(["False", "True", "None", "1"])
        header = (
            f"{{'descr': {random.choice(_DTYPES)!r}, 'fortran_order': {order}, 'shape': {random.choice(_SHAPES)}, }}"
        ).encode().ljust(117) + b"\n"
    elif how < 0.7:
        for _ in range(random.choice([1, 3])):
            if len(data) >= 8:
                struct.pack_into("<q", data, random.randrange(len(data) // 8) * 8, random.choice(SIZES))
    else:
        del data[random.randrange(len(data) + 1) :]
    version = random.choice([b"\x01\x00"] * 9 + [b"\x02\x00"])
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header + bytes(data)


def zipped(content: bytes, random: Random) -> bytes:
    """An archive of which one member is damaged, gone, doubled or named otherwise; or the whole archive damaged."""
    if random.random() < 0.25:
        return damaged(content, random)
    with zipfile.ZipFile(io.BytesIO(content)) as source:
        members = [(info.filename, source.read(info)) for info in source.infolist()]
    buffer, victim, how = io.BytesIO(), random.randrange(len(members)), random.random()
    names = ["../escaped", "place/escaped", "/tmp/escaped", "a\\b", "x", "x" * 300]
    with zipfile.ZipFile(
        buffer, "w", random.choice([zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    ) as made:
        for number, (name, data) in enumerate(members):
            if number != victim:
                made.writestr(name, data)
            elif 0.1 <= how < 0.15:
                made.writestr(random.choice(names), data)
            elif how >= 0.15:
                made.writestr(name, _member(name, data, random))
                if how < 0.2 and name:
                    made.writestr(name, data)
    return buffer.getvalue()


def _member(name: str, data: bytes, random: Random) -> bytes:
    if name.endswith(".npy"):
        size = 10 + struct.unpack_from("<H", data, 8)[0]
        holds_object = b"|O" in data[:size]
        return (
            data[:size] + opcodes(data[size:], random) if holds_object and random.random() < 0.8 else npy(data, random)
        )
    return opcodes(data, random) if name.endswith("data.pkl") else damaged(data or b"x", random)


def matlab(content: bytes, random: Random) -> bytes:
    """Elements of a MATLAB file, packed or not, with other types and sizes inside."""
    if random.random() < 0.3:
        return damaged(content, random)
    place, elements = 128, []
    while place + 8 <= len(content):
        kind, size = struct.unpack_from("<II", content, place)
        elements.append((kind, content[place + 8 : place + 8 + size]))
        place += 8 + size
    victim = random.randrange(len(elements))
    elements[victim] = _element(*elements[victim], random)
    return content[:128] + b"".join(struct.pack("<II", kind, len(data)) + data for kind, data in elements)


def _element(kind: int, data: bytes, random: Random) -> tuple[int, bytes]:
    packed = kind == 15
    inner = bytearray(zlib.decompress(data) if packed else struct.pack("<II", kind, len(data)) + data)
    for _ in range(random.choice([1, 2, 5])):
        words, how = min(len(inner), random.choice([120, 120, len(inner)])) // 4, random.random()
        if how < 0.6:
            struct.pack_into("<I", inner, random.randrange(words) * 4, random.choice(_MATLAB))
        elif how < 0.8:
            inner[random.randrange(len(inner))] ^= 1 << random.randrange(8)
        else:
            del inner[random.randrange(8, len(inner) + 1) :]
    if packed:
        return 15, zlib.compress(bytes(inner), 1)
    return struct.unpack_from("<I", inner)[0], bytes(inner[8:])
