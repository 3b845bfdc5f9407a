"""`gnnexp` and `python -m gnnexp`."""

from __future__ import annotations

import signal
import sys

from gnnexp.cli.main import run_command


def main() -> int:
    """Run the command line; returns the exit code.

    Ctrl-C raises an exception while a command runs. After the command it ends the process at once: the interpreter's
    own clean-up has nothing that is worth a traceback.
    """
    try:
        return run_command(sys.argv[1:])
    except KeyboardInterrupt:  # a second Ctrl-C, while the first is answered
        return 128 + signal.SIGINT
    finally:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
