"""SHA-256 of published files (`checksums.csv`): the data set of which they are is named, whatever a user calls them.

The table has the sources, with commits. It also lists published files whose checksum is not known.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gnnexp.errors import Problem

# No file in the table is larger, in bytes.
LARGEST = 1 << 24


class PublishedFile(NamedTuple):
    """One published file; `sha256` is empty if it is not known."""

    dataset: str
    file: str
    sha256: str
    source: str


@dataclass(frozen=True)
class Origin:
    """Where the bytes of a data set come from, as far as checksums say.

    Attributes:
        dataset: the published data set whose bytes these are; empty if they are not known.
        source: where it was published; empty if the bytes are not known.
        claimed: the published data set whose name the files have, although their bytes are others; empty if none.
        differing: names of files whose bytes are others than the published ones.
        unlisted: names of files of the published data set whose checksum is not known.
    """

    dataset: str = ""
    source: str = ""
    claimed: str = ""
    differing: Sequence[str] = ()
    unlisted: Sequence[str] = ()

    @property
    def is_known(self) -> bool:
        """Whether these are published bytes."""
        return bool(self.dataset)

    @property
    def text(self) -> str:
        """The origin in a sentence."""
        if self.is_known:
            others = f"; no checksum of {', '.join(self.unlisted[:_SHOWN])} is known" if self.unlisted else ""
            return f"bytes of the published {self.dataset} ({self.source}){others}"
        if self.claimed:
            files = ", ".join(self.differing[:_SHOWN])
            return f"bytes not known: not the published {self.claimed}, or another copy of it ({files})"
        return "bytes not known: they are of no published data set of which gnnexp has checksums"


_SHOWN = 3


@cache
def published_files() -> Sequence[PublishedFile]:
    """All files of the table."""
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as table:
        return tuple(PublishedFile(**row) for row in csv.DictReader(table))


def origin_of(digests: Mapping[Path, str], name: str) -> Origin:
    """Of which published data set files are.

    Args:
        digests: SHA-256 of all files of the data set.
        name: what the user, or their names, call the data set.
    """
    if not digests:
        return Origin()
    by_digest = {listed.sha256: listed for listed in published_files() if listed.sha256}
    hits = {path: by_digest[digest] for path, digest in digests.items() if digest in by_digest}
    for dataset in dict.fromkeys(listed.dataset for listed in hits.values()):
        files = {listed.file: listed.sha256 for listed in published_files() if listed.dataset == dataset}
        # Of several files, each has to have its own name: two may have been exchanged.
        right = {
            path
            for path, listed in hits.items()
            if listed.dataset == dataset and (path.name == listed.file or len(files) == 1)
        }
        others = [path.name for path in digests if path not in right]
        if right and all(files.get(other, "known") == "" for other in others):
            source = next(listed.source for listed in published_files() if listed.dataset == dataset)
            return Origin(dataset, source, unlisted=others)
    claimed = [listed for listed in published_files() if listed.sha256 and listed.dataset.lower() == name.lower()]
    of_name = {listed.file: listed.sha256 for listed in claimed}
    others = [path.name for path, digest in digests.items() if of_name.get(path.name, digest) != digest]
    return Origin(claimed=claimed[0].dataset, differing=others) if others else Origin()


def differing_problems(digests: Mapping[Path, str]) -> list[Problem]:
    """Problems of files that have the name of a published file, and other bytes."""
    problems = []
    for path, found in digests.items():
        expected = [one.sha256 for one in published_files() if one.file == path.name and one.sha256]
        if expected and found not in expected:
            problems.append(Problem(str(path), f"sha256 {found[:16]}…", f"{expected[0][:16]}… was published", FIX))
    return problems


FIX = "get the file again, or set dataset.verify=false if this copy differs on purpose"
