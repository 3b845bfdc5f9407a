"""`make bench`: every benchmark after the other, each into benchmarks/results/<name>.json."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPTS = (
    "sampling",
    "sampling_threads",
    "kernels",
    "epoch",
    "minibatch",
    "full_graph",
    "offload",
    "partitioning",
    "partitioning_cost",
    "model_averaging",
    "against_peers",
)


def main() -> int:
    """Run them in processes of their own; the exit code of the first that fails."""
    for name in SCRIPTS:
        print(f"== benchmarks/{name}.py", flush=True)
        done = subprocess.run([sys.executable, str(Path(__file__).with_name(f"{name}.py"))], check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
