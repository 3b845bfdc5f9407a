"""`gnnexp` and `python -m gnnexp`."""

from __future__ import annotations

import signal
import sys

from gnnexp.cli.main import run_command
from gnnexp.files.leaving import Ending, collect_rarely


def main() -> int:
    """Run the command line; returns the exit code.

    While a command runs, Ctrl-C raises an exception. After the command, Ctrl-C ends the process at once, without a
    traceback from the interpreter's clean-up.
    """
    ending = Ending()
    collect_rarely()
    try:
        ending.exit_code = run_command(sys.argv[1:])
    except KeyboardInterrupt:  # a second Ctrl-C, while the first one is handled
        ending.exit_code = 128 + signal.SIGINT
    finally:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    return ending.exit_code


if __name__ == "__main__":
    sys.exit(main())
