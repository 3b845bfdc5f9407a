"""Find what points outside of the repository: `python benchmarks/outside.py [FILE…]`.

A path of the machine where a file was made means nothing to a reader, and says more about that machine than it should.
The script reads all text files that git knows. Records of measured runs in Parquet stay as they were made. It prints
each such path with its file and line, and exits with 1 if it has found any.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
# Folders of a user, of the root, and temporary ones; what lies next to a checkout.
_OUTSIDE = re.compile(r"(?<![\w.}$)])/(?:tmp|work|root|home|mnt|scratch)/\w[\w./-]*|\.\./shared/\w[\w./-]*")
# Files that mean such a path, and why.
ALLOWED = {
    "benchmarks/stream_scale.py": "a default that the user may change",
    "benchmarks/tables.py": "an example in its help",
    "docs/dashboard.md": "an example: a file on a local disk",
    "gnnexp/trackers/store.py": "the same example, in a message",
    "tests/benchmarks/test_outside.py": "what the script finds",
    "tests/reports/queries/test_query.py": "queries that must be refused",
    "tests/slurm/cluster.py": "a default, since paths of sockets must be short",
    "tests/torture/test_fuzz_runner.py": "files that must not be written",
    "torture/fuzz/kinds/archives.py": "names of members that must be refused",
    "torture/fuzz/kinds/datasets.py": "names of members that must be refused",
    "torture/fuzz/mutate/arrays.py": "names of members that must be refused",
}


def files() -> Iterator[Path]:
    """All text files of the repository that may not have such a path."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    known = subprocess.run(command, cwd=HERE, check=True, capture_output=True, text=True).stdout
    for name in filter(None, known.split("\0")):
        if name not in ALLOWED and (HERE / name).is_file() and b"\0" not in (HERE / name).read_bytes():
            yield HERE / name


def outside(text: str) -> Iterator[tuple[int, str]]:
    """Lines and paths that point outside."""
    for number, line in enumerate(text.split("\n"), 1):
        yield from ((number, found[0]) for found in _OUTSIDE.finditer(line))


def main() -> None:
    """Read the named files, or all."""
    found = 0
    for file in map(Path, sys.argv[1:]) if sys.argv[1:] else files():
        for number, path in outside(file.read_bytes().decode("utf-8", "replace")):
            found += 1
            print(f"{file}:{number}: {path} is a path of one machine")
    sys.exit(f"{found} places" if found else 0)


if __name__ == "__main__":
    main()
