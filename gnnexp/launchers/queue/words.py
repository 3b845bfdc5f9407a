"""Times, memory and GPUs in the words of sbatch and sinfo."""

from __future__ import annotations

import re

_TIME = re.compile(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)
_MEMORY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s?(?:([KMGT])B?)?", re.ASCII)
_MEGABYTES = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}
_GPUS = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::[A-Za-z][\w.-]*)?(?:[:=](\d{1,9}))?(?=\(|,|$)", re.ASCII)


def minutes_of(time: int | str) -> float | None:
    """Minutes of `90`, `90:00`, `2:30:00`, `1-12`, `1-12:00` and `1-00:00:00`; None for other texts."""
    match = _TIME.fullmatch(str(time).strip())
    if match is None:
        return None
    days, *fields = (None if text is None else int(text) for text in match.groups())
    numbers = [number for number in fields if number is not None]
    if days is not None:  # days-hours:minutes:seconds
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:  # minutes:seconds
        hours, (minutes, seconds) = 0, (*numbers, 0)[:2]
    return ((days or 0) * 24 + hours) * 60 + minutes + seconds / 60


def megabytes_of(memory: float | str) -> float | None:
    """Megabytes of `100G`, `1T` and `64000`, with 1G = 1024M as in SLURM; a number counts GB. None for other texts."""
    if isinstance(memory, int | float):
        return 1024.0 * memory
    match = _MEMORY.fullmatch(memory.strip().upper())
    return None if match is None else float(match[1]) * _MEGABYTES[match[2] or "M"]


def gpus_in(resources: str) -> int:
    """The GPUs in a list of generic resources, such as `gpu:a100:4(S:0-3),lustre:1`; `gpu` is one GPU."""
    return sum(int(match[1] or 1) for match in _GPUS.finditer(re.sub(r"\([^)]*\)", "", resources)))


def gpus_by_type(number: int | str) -> int | None:
    """The GPUs in the value of `--gpus-per-node` and the like: `4`, `a100:4`, `a100:2,v100:1`; None for other texts."""
    parts = [part.rpartition(":")[2] for part in str(number).split(",")]
    return sum(map(int, parts)) if all(part.isdecimal() and part.isascii() for part in parts) else None
