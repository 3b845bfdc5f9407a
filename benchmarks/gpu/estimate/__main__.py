"""What an epoch should take on an H200, as a table: `python -m benchmarks.gpu.estimate [--out FILE]`. An estimate."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.estimate.seconds import RESULTS, estimate, measured
from gnnexp.record.records import write_json

FOLDER = RESULTS.parent


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The rows of the table."""
    yield f"ESTIMATE of an epoch of {found['epoch_steps']} steps on an H200; nothing was measured but the constants"
    yield f"before: {found['before']['epoch_s']:.1f} s"
    for name, seconds in found["before"]["step_s"].items():
        yield f"  {name:28} {1e3 * seconds:8.2f} ms a step"
    for row in found["after"]:
        yield (
            f"after, kernel={row['kernel']}, matmul={row['matmul']}: {row['epoch_s']:.2f} s, "
            f"with the rest of the host {row['epoch_with_rest_s']:.2f} s, or {row['epoch_with_own_s']:.2f} s with "
            f"{1e3 * row['own_s']:.2f} ms a step of another CPU; GPU alone {row['gpu_s']:.2f} s"
        )
        for name, part in row["parts"].items():
            yield (
                f"  {name:8} {part['launches']:5.0f} launches  host {1e3 * part['host_s']:6.2f} ms  GPU "
                f"{1e3 * part['gpu_s']:6.2f} ms (bytes {1e3 * part['streamed_s']:.2f}, gathers "
                f"{1e3 * part['gathered_s']:.2f}, products {1e3 * part['product_s']:.2f})  bound: {part['bound']}"
            )


def main(argv: Sequence[str] | None = None) -> None:
    """Estimate from the counts, print the table, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", type=Path, default=FOLDER / "estimate_counts.json")
    parser.add_argument("--out", type=Path, default=FOLDER / "estimate.json")
    options = parser.parse_args(argv)
    counts = json.loads(options.counts.read_text(encoding="utf-8"))
    found = estimate(counts, *measured())
    print("\n".join(lines(found)))
    write_json(options.out, found)


if __name__ == "__main__":
    main()
