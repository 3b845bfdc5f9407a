"""What campaigns counted, and a JSON file in which the counts of several runs add up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gnnexp.record.records import write_json

SCHEMA = 1


@dataclass(frozen=True)
class Failure:
    """Something that must not happen, and did.

    Attributes:
        campaign: `kills`, `fuzz`, ….
        what: happened, in words.
        seed: of the storm.
        how: the command that reproduces it.
    """

    campaign: str
    what: str
    seed: int
    how: str


@dataclass(frozen=True)
class Counts:
    """Numbers by their names, and every failure.

    Attributes:
        numbers: how often something was done or seen.
        failures: in the order in which they were found.
    """

    numbers: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()

    def __add__(self, other: Counts) -> Counts:
        """The sum of all numbers, and the failures of both."""
        total = Counter(self.numbers)
        total.update(other.numbers)
        return Counts(dict(sorted(total.items())), self.failures + other.failures)

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `from_json` takes them."""
        return {"numbers": dict(sorted(self.numbers.items())), "failures": [asdict(one) for one in self.failures]}


def from_json(found: Mapping[str, Any]) -> Counts:
    """The counts that `to_json` wrote."""
    return Counts(
        {str(name): int(value) for name, value in found["numbers"].items()},
        tuple(Failure(**one) for one in found["failures"]),
    )


@dataclass(frozen=True)
class Session:
    """One call of `python -m torture`.

    Attributes:
        date: of its end, ISO.
        seconds: how long it took.
        machine: on what.
        commit: of the checkout; with `+` if it had changes that were not committed.
        seed: of the call; the seeds of all storms follow from it.
        counts: what it counted.
    """

    date: str
    seconds: float
    machine: str
    commit: str
    seed: int
    counts: Counts

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "date": self.date,
            "seconds": round(self.seconds, 1),
            "machine": self.machine,
            "commit": self.commit,
            "seed": self.seed,
            **self.counts.to_json(),
        }


def read_sessions(file: Path) -> list[Session]:
    """The sessions of a file of counts; none where there is no file.

    Raises:
        ValueError: the file is of another schema, or its total is not the sum of its sessions.
    """
    if not file.exists():
        return []
    found = json.loads(file.read_text(encoding="utf-8"))
    if found["schema"] != SCHEMA:
        raise ValueError(f"{file}: schema {found['schema']}, but this is version {SCHEMA}")
    sessions = [
        Session(one["date"], one["seconds"], one["machine"], one["commit"], one["seed"], from_json(one))
        for one in found["sessions"]
    ]
    if total(sessions).to_json() != found["total"]:
        raise ValueError(f"{file}: the total is not the sum of the sessions")
    return sessions


def total(sessions: Sequence[Session]) -> Counts:
    """The sum of all sessions."""
    return sum((one.counts for one in sessions), Counts())


def add_session(file: Path, session: Session) -> None:
    """Append a session to the file, atomically; the total is the sum of all."""
    sessions = [*read_sessions(file), session]
    write_json(
        file, {"schema": SCHEMA, "total": total(sessions).to_json(), "sessions": [one.to_json() for one in sessions]}
    )
