"""`python -m torture.fuzz`: minutes of malformed inputs, or one again (`--kind K --case S`)."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from torture.fuzz.campaign import KINDS, fuzz, reproduce
from torture.fuzz.guided import targets
from torture.fuzz.runner import FAILED


def main() -> int:
    """0 if nothing failed."""
    parser = argparse.ArgumentParser(
        prog="python -m torture.fuzz", description="Malformed inputs for gnnexp's readers."
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="of all kinds together")
    parser.add_argument("--seed", type=int, default=0, help="the cases follow from it")
    parser.add_argument(
        "--kind", choices=(*KINDS, *targets()), action="append", help="one kind (may be repeated); default: all"
    )
    parser.add_argument("--case", type=int, metavar="SEED", help="show what becomes of one case of --kind, and stop")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="torture") as folder:
        if options.case is not None:
            if not options.kind:
                parser.error("--case needs --kind")
            print(reproduce(options.kind[0], options.case, Path(folder)))
            return 0
        counts = fuzz(60 * options.minutes, options.seed, Path(folder), options.kind)
    print(json.dumps(dict(counts.numbers), indent=1))
    return int(any(count and name.rpartition("/")[2] in FAILED for name, count in counts.numbers.items()))


if __name__ == "__main__":
    raise SystemExit(main())
