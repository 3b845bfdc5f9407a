"""SHA-256 of published files whose format has no checksum (`checksums.csv`).

Sources: kimiyoung/planetoid @ af6abf4; EdisonLeeeee/GraphData @ f8022c2 for NELL; liun-online/HeCo @ 20e8ca2 for
AMiner. Files that are not listed are not compared.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable
from pathlib import Path

from gnnexp.errors import DataError, Problem


def check_sha256(paths: Iterable[Path]) -> None:
    """Compare files with their published digests, by name. Files that are not listed are ignored.

    Raises:
        DataError: names all files that differ.
    """
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as table:
        published = {row["file"]: row["sha256"] for row in csv.DictReader(table)}
    problems = []
    for path in paths:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        expected = published.get(path.name, found)
        if found != expected:
            fix = "get the file again, or set dataset.verify=false if this copy differs on purpose"
            problems.append(Problem(str(path), f"sha256 {found[:16]}…", f"{expected[:16]}… was published", fix))
    DataError.raise_all(problems)
