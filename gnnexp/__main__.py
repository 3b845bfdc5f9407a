"""`gnnexp` and `python -m gnnexp`."""

from __future__ import annotations

import sys

from gnnexp.cli.main import run_command


def main() -> int:
    """Run the command line; returns the exit code."""
    return run_command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
